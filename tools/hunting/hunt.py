"""The hunter for miscompiles: models at random, computed in every way there is, held against bounds that follow from each model.

    make hunt MINUTES=10
    .venv/bin/python tools/hunting/hunt.py --again 4711       one model again, reduced

A difference is reduced to the fewest steps that still show it, and printed as a test. `total.json` has how many models were tried
since this hunter exists; a run goes on behind them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT / "tools"), str(ROOT / "tests")]  # instead of this folder, whose names others have too

import numpy as np  # noqa: E402

from hunting.chains import Chain, ReferenceEnded, case_of_chain, chain_of, failures_of, reduced_chain  # noqa: E402
from hunting.compare import Case, Failure, case_of, compiled, configs, in_python  # noqa: E402
from hunting.devices import devices, on_device  # noqa: E402
from hunting.flows import Flow, case_of_flow, failures_of_flow, flow_of  # noqa: E402
from hunting.generate import generate  # noqa: E402
from hunting.recipe import Recipe  # noqa: E402

TOTAL = Path(__file__).with_name("total.json")
FINDS = Path("build/hunt")
CHAINS, FLOWS = 48, 18  # of TFLite, and with states and control flow, for each batch
DEVICES = 3  # of each kind for each batch: a package takes seconds
BATCH, COMPILED = 96, 24  # models at a time, and those of them that a C compiler sees: it takes 30 times as long as the rest


def failures(cases: Sequence[Case], only: str = "") -> Iterator[Failure]:
    for case in cases:
        if not only or not only.startswith(("c:", "on:")):
            yield from tried(case)
    for config in configs():
        if not only or only == config.name:
            yield from compiled(cases, config)
    if only.startswith("on:"):
        yield from chain.from_iterable(on_device(case, only.removeprefix("on:")) for case in cases)


def of_flow(made: Flow, folder: Path, only: str = "") -> Iterator[Failure]:
    case = case_of_flow(made, folder)
    if not only.startswith(("c:", "on:")):
        yield from failures_of_flow(case, random.Random(made.seed))
    if only.startswith(("c:", "on:")):
        yield from failures([case], only)


def of_chain(made: Chain, folder: Path, only: str) -> Iterator[Failure]:
    yield from failures([case_of_chain(made, folder)], only)


Ways = Callable[[Any, Path, str], Iterator[Failure]]


def smallest(made: Any, config: str, folder: Path, ways: Ways) -> Any:
    """The flow or chain with the fewest steps that still fails in the same way of computing."""

    def fails(one: Any) -> bool:
        try:
            return any(f.config == config for f in ways(one, folder, config))
        except Exception:
            return False

    while (less := next((one for one in made.smaller() if fails(one)), None)) is not None:
        made = less
    return made


def report_made(made: Any, failure: Failure, folder: Path, ways: Ways) -> None:
    small = smallest(made, failure.config, folder, ways)
    FINDS.mkdir(parents=True, exist_ok=True)
    text = f"{failure.config}: {failure.what}\n{small!r}\n"
    (FINDS / f"{failure.seed}-{type(made).__name__.lower()}-{failure.config.partition(':')[0]}.txt").write_text(text)
    print(text, flush=True)


def tried(case: Case) -> list[Failure]:
    try:
        return list(in_python(case, random.Random(case.seed)))
    except Exception as error:  # of ours: a model that ONNX Runtime takes and we do not
        return [Failure(case.seed, "python", f"{type(error).__name__}: {error}")]


def reduced(seed: int, recipe: Recipe, config: str, folder: Path) -> Recipe:
    """The fewest steps that still fail in the same way of computing."""

    def fails(smaller: Recipe) -> bool:
        try:
            case = case_of(seed, smaller, folder)
        except Exception:
            return False
        return case is not None and any(f.config == config for f in failures([case], config))

    again = True
    while again:
        again = False
        first = len(recipe.inputs)
        for smaller in (
            *(Recipe(recipe.inputs, recipe.steps, (o,)).pruned() for o in recipe.outputs if len(recipe.outputs) > 1),
            *(Recipe(recipe.inputs, recipe.steps, (n,)).pruned() for n in range(first, first + len(recipe.steps) - 1)),
            *(recipe.without(n).pruned() for n in range(first, first + len(recipe.steps)) if recipe.outputs != (n,)),
        ):
            if len(smaller.steps) < len(recipe.steps) and smaller.outputs and fails(smaller):
                recipe, again = smaller, True
                break
    return recipe


def as_test(seed: int, recipe: Recipe, failure: Failure) -> str:
    """To be put into tests/hunting/test_found.py."""
    lines = [
        f"def test_{seed}() -> None:",
        f'    """{failure.config}: {failure.what.splitlines()[0][:100]}"""',
        "    recipe = Recipe(",
    ]
    lines += [f"        {recipe.inputs!r},", "        ("]
    for step in recipe.steps:
        operands = ", ".join(
            f"np.array({o.tolist()!r}, np.{o.dtype})" if isinstance(o, np.ndarray) else repr(o) for o in step.operands
        )
        lines.append(f"            Step({step.op!r}, ({operands},), {step.type!r}, {dict(step.attributes)!r}),")
    return "\n".join([*lines, "        ),", f"        {recipe.outputs!r},", "    )", f"    assert_right({seed}, recipe)", ""])


def report(failure: Failure, folder: Path) -> None:
    small = reduced(failure.seed, generate(failure.seed), failure.config, folder)
    FINDS.mkdir(parents=True, exist_ok=True)
    text = as_test(failure.seed, small, failure)
    (FINDS / f"{failure.seed}-{failure.config.partition(':')[0]}.txt").write_text(f"{failure.config}\n{failure.what}\n\n{text}")
    print(f"model {failure.seed}, {failure.config}: {failure.what}\n{len(small.steps)} steps:\n{text}", flush=True)


def report_chain(chain: Chain, folder: Path) -> bool:
    try:
        wrong = next(failures_of(chain, folder), None)
    except ReferenceEnded:
        return False
    except Exception as error:  # of ours, or of LiteRT, which names itself
        wrong = Failure(chain.seed, "tflite python", f"{type(error).__name__}: {error}")
    if wrong is not None:
        small = reduced_chain(chain, wrong.config, folder)
        FINDS.mkdir(parents=True, exist_ok=True)
        text = f"def test_tflite_{chain.seed}() -> None:\n    assert list(failures_of({small!r}, FOLDER)) == []\n"
        (FINDS / f"{chain.seed}-tflite.txt").write_text(f"{wrong.config}\n{wrong.what}\n\n{text}")
        print(f"{wrong.config}: {wrong.what}\n{text}", flush=True)
    return wrong is not None


def hunt_flows(seed: int, folder: Path) -> tuple[int, list[tuple[Any, Case, Ways]]]:
    """In Python; how many were wrong, and what is to be compiled: those that were right, and chains."""
    found, right = 0, list[tuple[Any, Case, Ways]]()
    for number in range(seed, seed + FLOWS):
        made = flow_of(number)
        try:
            case = case_of_flow(made, folder)
            wrong = next(failures_of_flow(case, random.Random(number)), None)
        except Exception as error:  # of ours: a model that ONNX Runtime takes and we do not
            wrong = Failure(number, "flow python", f"{type(error).__name__}: {error}")
        if wrong is None:
            right.append((made, case, of_flow))
        else:
            found += 1
            report_made(made, wrong, folder, of_flow)
    for number in range(seed, seed + FLOWS):
        with contextlib.suppress(ReferenceEnded):
            right.append((chain_of(number), case_of_chain(chain_of(number), folder), of_chain))
    return found, right


def hunt_compiled(makers: list[tuple[Any, Case, Ways]], recipes: list[Case], turn: int, folder: Path) -> tuple[int, int]:
    """Flows and chains as C; and some models of every kind on devices, a different one each. Counts those that are wrong, and
    packages."""
    wrong = 0
    for kind in (of_flow, of_chain):
        some = [(made, case) for made, case, ways in makers if ways is kind]
        for failure in chain.from_iterable(compiled([case for _, case in some], config) for config in configs()):
            wrong += 1
            report_made(next(m for m, case in some if case.seed == failure.seed), failure, folder, kind)
    targets = devices()
    chosen = [
        one for kind in (of_flow, of_chain) for one in [m for m in makers if m[2] is kind][turn % 3 :: FLOWS // DEVICES][:DEVICES]
    ]
    if not targets:
        return wrong, 0
    for n, (made, case, ways) in enumerate(chosen):
        for failure in on_device(case, targets[(turn + n) % len(targets)]):
            wrong += 1
            report_made(made, failure, folder, ways)
    for n, case in enumerate(recipes[:DEVICES]):
        for failure in on_device(case, targets[(turn + n + 1) % len(targets)]):
            wrong += 1
            report(failure, folder)
    return wrong, len(chosen) + len(recipes[:DEVICES])


def hunt(minutes: float, first: int | None) -> int:
    total: dict[str, int] = json.loads(TOTAL.read_text()) if TOTAL.exists() else {"models": 0, "without a bound": 0}
    start, found, count = time.monotonic(), 0, 0
    seed = total["models"] if first is None else first
    while time.monotonic() - start < 60 * minutes:
        with tempfile.TemporaryDirectory(prefix="intaglio-hunt-") as place:
            cases = []
            for number in range(seed, seed + BATCH):
                case = case_of(number, generate(number), Path(place))
                if case is None:
                    total["without a bound"] += 1
                else:
                    cases.append(case)
            for number in range(seed, seed + CHAINS):
                found += report_chain(chain_of(number), Path(place) / "tflite")
            wrong, makers = hunt_flows(seed, Path(place) / "flows")
            more, packages = hunt_compiled(makers, cases[COMPILED:], seed // BATCH, Path(place) / "flows")
            found += wrong + more
            seen: set[int] = set()
            for failure in chain(chain.from_iterable(map(tried, cases[COMPILED:])), failures(cases[:COMPILED])):
                found += failure.seed not in seen
                if failure.seed not in seen:
                    report(failure, Path(place) / "small")
                seen.add(failure.seed)
        seed += BATCH
        count += BATCH
        more_tried = {"models": BATCH, "tflite": CHAINS, "compiled": COMPILED + len(makers), "flows": FLOWS, "packages": packages}
        total |= {name: total.get(name, 0) + n for name, n in more_tried.items()}
        TOTAL.write_text(json.dumps(total, indent=1) + "\n")
    told = ", ".join(f"{n:,} {name}" for name, n in total.items())
    print(f"{count:,} models, {found} wrong; since the start: {told}")
    return 1 if found else 0


def again(seed: int) -> int:
    with tempfile.TemporaryDirectory() as place:
        case = case_of(seed, generate(seed), Path(place))
        found = [] if case is None else list(failures([case]))
        for failure in found:
            report(failure, Path(place) / "small")
    print("nothing is wrong" if not found else f"{len(found)} ways are wrong")
    return bool(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--first", type=int, help="number of the first model; default: behind those that were tried")
    parser.add_argument("--again", type=int, metavar="NUMBER")
    given = parser.parse_args()
    return again(given.again) if given.again is not None else hunt(given.minutes, given.first)


if __name__ == "__main__":
    raise SystemExit(main())
