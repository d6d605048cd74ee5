"""The fuzzer: mutants of every format that Intaglio reads, in worker processes with limits of time and memory.

    make fuzz MINUTES=10            all formats
    make fuzz MINUTES=10 ONLY=onnx,tflite
    .venv/bin/python tools/fuzzing/run.py --again onnx 4711        one mutant again, with its traceback
    .venv/bin/python tools/fuzzing/run.py --guided onnx            by coverage, with Atheris (`pip install atheris`)

A mutant may be read or refused with an error of ours. Anything else is a find: another exception, more than 10 s, more than 1 GB,
the end of the process, a file outside of the output. Finds are kept in build/fuzz, one for each place in the code. `total.json` has
how many mutants of each format were tried since this fuzzer exists; a run goes on behind them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import FrameType

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # instead of this folder, whose names others have too

from fuzzing.formats import FORMATS, Format, files_of
from intaglio.errors import IntaglioError, OurFault
from intaglio.ir.sizes import Undecided

TOTAL = Path(__file__).with_name("total.json")
FINDS = Path("build/fuzz")
SECONDS, GRACE_SECONDS = 10, 10  # of one mutant; before a worker that does not answer is ended
MEGABYTES = 1024
PER_TURN = 250  # mutants of a format, then the next has its turn
CHEAP = ("manifest", "npz", "board", "memories", "project", "budgets", "tuning", "clbin", "runs")


class TooLong(BaseException):
    """Not an Exception: no reader may take it for a damaged file."""


@dataclass(frozen=True, slots=True)
class Find:
    format: str
    seed: int
    what: str  # type and place
    text: str = ""


def written(form: Format, files: dict[str, bytes], folder: Path) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / form.main


def tried(form: Format, files: dict[str, bytes], seed: int, folder: Path) -> Find | None:
    """One mutant, in a folder of its own inside of `folder`."""
    main = written(form, files, folder / "own")
    try:
        signal.alarm(SECONDS)
        form.read(main, random.Random(seed))
    except OurFault as error:
        return Find(form.name, seed, f"OurFault {error.slug}", str(error))
    except (IntaglioError, Undecided):
        return None
    except TooLong as error:
        return Find(form.name, seed, f"over {SECONDS} s in {place_of(error)}", "".join(traceback.format_exception(error)))
    except Exception as error:
        return Find(form.name, seed, f"{type(error).__name__} in {place_of(error)}", "".join(traceback.format_exception(error)))
    finally:
        signal.alarm(0)
    return None


def place_of(error: BaseException) -> str:
    """The last line of ours that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/intaglio/" in f.filename] or frames
    return f"{ours[-1].filename.rpartition('/intaglio/')[2]}:{ours[-1].lineno}" if ours else "?"


def _too_long(signum: int, frame: FrameType | None) -> None:
    raise TooLong


def limit_memory() -> None:
    """Beyond what is there now: numpy then says MemoryError, which is a find."""
    used = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_DATA, (used + (MEGABYTES << 20), -1))


def _clear(folder: Path) -> list[str]:
    """Empty the folder; names of files beside the mutant's own."""
    import shutil

    strange = [entry.name for entry in folder.iterdir() if entry.name not in ("own", "rendered")]
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return strange


def work(
    name: str,
    first: int,
    count: int,
    at: multiprocessing.sharedctypes.Synchronized[int],
    answers: multiprocessing.connection.Connection,
) -> None:
    """The worker: says which mutant it is at, then what it found."""
    signal.signal(signal.SIGALRM, _too_long)
    os.environ["INTAGLIO_CACHE"] = "off"
    form = FORMATS[name]
    if sys.platform == "linux":
        limit_memory()
    with tempfile.TemporaryDirectory(prefix="intaglio-fuzz-") as place:
        folder = Path(place)
        os.chdir(folder)
        for seed in range(first, first + count):
            at.value = seed
            found = tried(form, form.mutant(seed), seed, folder)
            strange = _clear(folder)
            if strange and found is None:
                found = Find(name, seed, f"wrote {strange[0]} outside of its folder")
            if found is not None:
                answers.send(found)
        os.chdir("/")
    answers.send(None)


@cache
def warm(name: str) -> None:
    """Libraries are loaded before workers are forked and their memory is limited."""
    form = FORMATS[name]
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as place:
        for seed in form.seeds():
            main = written(form, files_of(seed, form.main), Path(place) / seed.stem)
            form.read(main, random.Random(0))  # a seed that is refused makes mutants that show nothing


def turns(only: list[str]) -> Iterator[str]:
    while True:
        yield from only


def turn(name: str, first: int, count: int) -> tuple[int, list[Find]]:
    """Some mutants in a process of their own: how many, and what was found."""
    here, there = multiprocessing.Pipe(duplex=False)
    at = multiprocessing.Value("q", first)
    worker = multiprocessing.get_context("fork").Process(target=work, args=(name, first, count, at, there))
    worker.start()
    there.close()
    found: list[Find] = []
    seen, since = -1, time.monotonic()
    while True:
        try:
            if here.poll(1.0):
                answer = here.recv()
                if answer is None:
                    worker.join()
                    return count, found
                found.append(answer)
        except EOFError:
            worker.join()
            return at.value - first + 1, [*found, Find(name, at.value, f"the process ended with {worker.exitcode}")]
        if at.value != seen:
            seen, since = at.value, time.monotonic()
        elif time.monotonic() - since > SECONDS + GRACE_SECONDS:
            worker.kill()
            worker.join()
            return at.value - first + 1, [*found, Find(name, at.value, "a hang that no signal ends")]


def keep(find: Find) -> bool:
    """In build/fuzz, once for each place."""
    slug = "".join(c if c.isalnum() else "-" for c in f"{find.format} {find.what}")[:120]
    folder = FINDS / slug
    if folder.exists():
        return False
    for name, data in FORMATS[find.format].mutant(find.seed).items():
        path = folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "find.json").write_text(json.dumps(asdict(find), indent=1) + "\n")
    print(f"find: {find.what}\n      --again {find.format} {find.seed}", flush=True)
    return True


def fuzz(minutes: float, only: list[str], offset: int) -> int:
    total: dict[str, int] = json.loads(TOTAL.read_text()) if TOTAL.exists() else {}
    start, count, kinds = time.monotonic(), 0, 0
    for name in turns(only):
        if time.monotonic() - start > 60 * minutes:
            break
        warm(name)
        done, found = turn(name, offset + total.get(name, 0), PER_TURN * (4 if name in CHEAP else 1))
        total[name] = total.get(name, 0) + done
        count += done
        kinds += sum(keep(find) for find in found)
        TOTAL.write_text(json.dumps(dict(sorted(total.items())), indent=1) + "\n")
    seconds = time.monotonic() - start
    print(f"{count:,} mutants in {seconds:.0f} s, {kinds} new finds; {sum(total.values()):,} mutants since the start")
    return 1 if kinds else 0


def again(name: str, seed: int) -> int:
    signal.signal(signal.SIGALRM, _too_long)
    with tempfile.TemporaryDirectory() as place:
        found = tried(FORMATS[name], FORMATS[name].mutant(seed), seed, Path(place))
    print("read, or refused as it should be" if found is None else f"{found.what}\n{found.text}")
    return found is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--only", help="formats, with commas", default=",".join(FORMATS))
    parser.add_argument("--first", type=int, default=0, help="added to the numbers of mutants, for machines that keep no total")
    parser.add_argument("--again", nargs=2, metavar=("FORMAT", "SEED"))
    parser.add_argument("--guided", metavar="FORMAT", choices=list(FORMATS))
    given = parser.parse_args()
    if given.again:
        return again(given.again[0], int(given.again[1]))
    if given.guided:
        from fuzzing.guided import guide

        return guide(given.guided, given.minutes)
    unknown = [name for name in given.only.split(",") if name not in FORMATS]
    if unknown:
        parser.error(f"unknown format {unknown[0]!r}; known: {', '.join(FORMATS)}")
    return fuzz(given.minutes, given.only.split(","), given.first)


if __name__ == "__main__":
    raise SystemExit(main())
