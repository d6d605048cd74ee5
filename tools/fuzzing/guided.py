"""Mutants chosen by coverage: Atheris watches which branches of Intaglio a mutant reaches and keeps those that reach new ones.

Structure stays: Atheris is given our own mutators as its custom one, beside its plain ones.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import tempfile
from pathlib import Path
from types import FunctionType

from fuzzing.formats import FORMATS, files_of
from fuzzing.run import _clear, _too_long, tried, warm


def guide(name: str, minutes: float) -> int:
    try:
        import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        print("Atheris is not installed: `pip install atheris`", file=sys.stderr)
        return 2
    form = FORMATS[name]
    if any(seed.is_dir() for seed in form.seeds()):
        print(f"`{name}` has several files; Atheris mutates one", file=sys.stderr)
        return 2
    warm(name)
    for function in [f for f in gc.get_objects() if isinstance(f, FunctionType) and str(f.__module__).startswith("intaglio.")]:
        atheris.instrument_func(function)
    signal.signal(signal.SIGALRM, _too_long)
    ending = Path(form.main).suffix
    how = next(mutator for end, mutator in form.mutators.items() if ending.endswith(end)) if form.mutators else None
    place = Path(tempfile.mkdtemp(prefix="intaglio-fuzz-"))
    corpus = place / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(form.seeds()):
        (corpus / str(number)).write_bytes(files_of(seed, form.main)[form.main])

    def one(data: bytes) -> None:
        found = tried(form, {form.main: data}, 0, place / "run")
        _clear(place / "run")
        if found is not None:
            raise AssertionError(f"{found.what}\n{found.text}")

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        made = how(rng, data) if how is not None and rng.random() < 0.8 else atheris.Mutate(data, most)
        return bytes(made[:most])

    words = [sys.argv[0], f"-max_total_time={int(minutes * 60)}", f"-artifact_prefix={place}/", "-timeout=10", str(corpus)]
    atheris.Setup(words, one, custom_mutator=mutated)
    atheris.Fuzz()
    return 0
