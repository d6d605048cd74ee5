"""Run ONNX's own backend tests on Intaglio: passed, wrong, unsupported, by operator.

    .venv/bin/python tools/conformance.py [--jobs 2] [--sanitize] [--only REGEX]

Tests run in worker processes, so that one that crashes costs itself and nothing else. With `--sanitize`, generated code
is built with ASan and UBSan (gcc). Writes docs/reference/onnx-conformance.md when all tests were run.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "reference" / "onnx-conformance.md"
SECONDS_PER_TEST = 300
SANITIZE_FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@dataclass(frozen=True, slots=True)
class Outcome:
    test: str
    category: str
    op: str
    status: str  # passed, rounding, wrong, unsupported, crash
    reason: str


# In a worker ----------------------------------------------------------------------------------------------------------


def work(sanitize: bool) -> None:
    """Reads names of tests from stdin, writes outcomes to stdout, a line each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tests print must not mix with answers
    import unittest

    from onnx.backend.test import BackendTest

    from intaglio import onnx_backend

    refusals: list[str] = []
    models: list[object] = []

    class WatchedRep(onnx_backend.IntaglioRep):
        def run(self, inputs: Any, **kwargs: Any) -> Any:
            with watched():
                return super().run(inputs, **kwargs)

    class Watched(onnx_backend.IntaglioBackend):
        REP = WatchedRep

        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> onnx_backend.IntaglioRep:
            models.append(model)
            flags = SANITIZE_FLAGS if sanitize else ("-O1",)
            with watched():
                return super().prepare(model, device, cflags=flags)

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        """Remembers refusals: the runner treats them as passed."""
        try:
            yield
        except onnx_backend.NotSupported as error:
            refusals.append(str(error))
            raise

    found: dict[str, tuple[str, unittest.TestCase]] = {}
    class Tests(BackendTest):
        """ONNX's runner asks for the length of every member of a sequence, which numbers do not have."""

        @classmethod
        def assert_similar_outputs(cls, ref_outputs: Any, outputs: Any, *rest: Any, **named: Any) -> None:
            if getattr(ref_outputs, "shape", None) == () and getattr(outputs, "shape", None) == ():
                ref_outputs, outputs = [ref_outputs], [outputs]
            super().assert_similar_outputs(ref_outputs, outputs, *rest, **named)

    for category, kind in Tests(Watched, __name__).test_cases.items():
        for name in dir(kind):
            if name.startswith("test_") and name.endswith("_cpu"):
                found[name] = (category.removeprefix("OnnxBackend").removesuffix("Test"), kind(name))
    print(json.dumps({name: category for name, (category, _) in found.items()}), file=answers, flush=True)
    for line in sys.stdin:
        name = line.strip()
        category, case = found[name]
        refusals.clear()
        models.clear()
        status, reason = "passed", ""
        try:
            getattr(case, name)()
        except unittest.SkipTest as skip:
            status, reason = "unsupported", f"skipped: {skip}"
        except Exception as error:  # whatever it is, it is the outcome of this test
            status = "rounding" if _is_rounding(name, str(error)) else "wrong"
            reason = f"{type(error).__name__}: {error}"
        if status == "wrong" and models and _is_random(models[0]):
            status, reason = "unsupported", "random numbers: the standard does not say which, and the test has those of numpy"
        if refusals:
            status, reason = "unsupported", refusals[0]
        outcome = Outcome(name, category, _op(models[0] if models else None, category), status, reason.strip()[:1000])
        print(json.dumps(asdict(outcome)), file=answers, flush=True)


def _is_rounding(test: str, message: str) -> bool:
    """ONNX's tests allow 1e-7 + 0.1 %. Numbers that ought to be zero, and f16 results of a long chain, can miss that by rounding
    alone: these are told apart, not passed."""
    found = re.search(r"Max absolute difference among violations: ([-+.\deE]+)", message)
    if found is None:
        return False
    return float(found.group(1)) <= (2e-3 if re.search("fp16|float16", test) else 5e-7)


def _is_random(model: Any) -> bool:
    return any(node.op_type.startswith(("Random", "Bernoulli", "Multinomial")) for node in model.graph.node)


def _op(model: object, category: str) -> str:
    graph = getattr(model, "graph", None)
    if category != "NodeModel" or graph is None or not graph.node:
        return f"({category})"
    return str(graph.node[-1].op_type)


# In the parent --------------------------------------------------------------------------------------------------------


class Worker:
    """A process that can die without taking the run along."""

    def __init__(self, sanitize: bool) -> None:
        self._sanitize = sanitize
        self._start()

    def _start(self) -> None:
        environment = dict(os.environ, ONNX_HOME=str(Path(tempfile.gettempdir()) / "intaglio-onnx-home"))
        if self._sanitize:
            environment["LD_PRELOAD"] = " ".join(_library(name) for name in ("libasan.so", "libubsan.so"))
            environment["ASAN_OPTIONS"] = "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1"
            environment["UBSAN_OPTIONS"] = "print_stacktrace=1:abort_on_error=1"
        command = [sys.executable, __file__, "--worker", *(["--sanitize"] if self._sanitize else [])]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  lives as long as the process
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )
        assert self._process.stdout is not None
        self.tests: dict[str, str] = json.loads(self._process.stdout.readline() or "{}")

    def run(self, test: str) -> Outcome:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(test + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS_PER_TEST)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(**json.loads(line))
        process.kill()
        process.wait()
        self._errors.seek(0)
        said = self._errors.read()[-1500:]
        category = self.tests.get(test, "?")
        self._start()
        reason = f"the process died: {said}" if ready else f"no answer in {SECONDS_PER_TEST} s"
        return Outcome(test, category, "(unknown)", "crash", reason)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _library(name: str) -> str:
    return subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()


def run_all(jobs: int, sanitize: bool, only: str) -> list[Outcome]:
    first = Worker(sanitize)
    names = [name for name in sorted(first.tests) if re.search(only, name)]
    if not names:
        sys.exit(f"error: no test matches `{only}`")
    waiting = collections.deque(names)
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    start = time.time()

    def drain(worker: Worker) -> None:
        while True:
            with lock:
                if not waiting:
                    break
                name = waiting.popleft()
            outcome = worker.run(name)
            with lock:
                outcomes.append(outcome)
                if outcome.status in ("wrong", "crash"):
                    print(f"{outcome.status}: {outcome.test}: {outcome.reason.splitlines()[0][:150]}", flush=True)
                if len(outcomes) % 100 == 0:
                    print(f"{len(outcomes)} of {len(names)}, {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        worker.stop()

    threads = [threading.Thread(target=lambda: drain(first))]
    threads += [threading.Thread(target=lambda: drain(Worker(sanitize))) for _ in range(jobs - 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes, key=lambda o: o.test)


def summary(outcomes: list[Outcome]) -> str:
    count = collections.Counter(o.status for o in outcomes)
    parts = [f"{count[s]} {s}" for s in ("passed", "rounding", "wrong", "crash", "unsupported")]
    return f"{len(outcomes)} tests: {', '.join(parts)}"


def table(outcomes: list[Outcome]) -> list[str]:
    rows: dict[str, collections.Counter[str]] = {}
    for o in outcomes:
        rows.setdefault(o.op, collections.Counter())[o.status] += 1
    lines = ["| operator | passed | rounding | wrong | unsupported |", "| --- | ---: | ---: | ---: | ---: |"]
    for op, count in sorted(rows.items()):
        wrong = count["wrong"] + count["crash"]
        lines.append(f"| {op} | {count['passed']} | {count['rounding']} | {wrong} | {count['unsupported']} |")
    return lines


# Operators whose sizes or turns depend on data, sequences and optionals: tests that passed when all shapes were static.
STATIC = {
    "Compress": 5, "If": 5, "Loop": 1, "NonMaxSuppression": 0, "NonZero": 0, "OptionalGetElement": 1, "OptionalHasElement": 4,
    "Range": 0, "Scan": 3, "SequenceInsert": 0, "SequenceMap": 0, "SplitToSequence": 0, "Unique": 0,
}  # fmt: skip


def moving(passed: dict[str, int]) -> list[str]:
    """What sizes, loops and sequences add: by operator, how many tests pass now."""
    gains = {op: passed.get(op, 0) - before for op, before in STATIC.items()}
    more = ", ".join(f"{op} {gain}" for op, gain in sorted(gains.items()) if gain)
    return [
        "## Sizes, loops and sequences",
        "",
        f"Of the tests of these operators that were refused while all shapes were static, {sum(gains.values())} pass:",
        f"{more}.",
    ]


def report(outcomes: list[Outcome], sanitize: bool) -> str:
    import onnx

    lines = [
        "# ONNX conformance",
        "",
        f"`make conformance`: the backend tests of onnx {onnx.__version__} (node, simple, pytorch-converted,",
        "pytorch-operator, real), compiled and run on the host" + (", under ASan and UBSan." if sanitize else "."),
        "*Unsupported*: compilation ends with a clear error. If shapes depend on the value of an input (the second one of",
        "Reshape), the model is compiled for that value, provided that another input is left; otherwise with sizes up to 64",
        "(`--max`). *Rounding*: a result misses the",
        "tolerance of the test, 1e-7 + 0.1 %, by no more than 5e-7 (f16: 2e-3).",
        "",
        f"**{summary(outcomes)}.**",
        "",
        *table(outcomes),
        "",
        *moving(dict(collections.Counter(o.op for o in outcomes if o.status in ("passed", "rounding")))),
        "",
        "## Wrong",
        "",
        *[f"- `{o.test}`: {o.reason.splitlines()[0][:160]}" for o in outcomes if o.status in ("wrong", "crash")],
        "",
        "## Why unsupported",
        "",
    ]
    reasons: dict[str, list[str]] = {}
    for o in outcomes:
        if o.status == "unsupported":
            key = re.sub(r"`[^`]*`", "`…`", o.reason.splitlines()[0])[:140]
            reasons.setdefault(key, []).append(o.test)
    for key, tests in sorted(reasons.items(), key=lambda item: -len(item[1])):
        lines.append(f"- {len(tests)}: {key} (such as `{tests[0]}`)")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="ONNX's backend tests on Intaglio")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--only", default="", help="tests whose name matches; no report is written then")
    parser.add_argument("--json", type=Path, help="also write every outcome here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.worker:
        work(words.sanitize)
        return
    outcomes = run_all(words.jobs, words.sanitize, words.only)
    print("\n".join(table(outcomes)))
    print(summary(outcomes))
    if words.json:
        words.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1))
    if not words.only:
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        REPORT.write_text(report(outcomes, words.sanitize), encoding="utf-8")
        print(f"wrote {REPORT.relative_to(ROOT)}")
    sys.exit(1 if any(o.status in ("wrong", "crash") for o in outcomes) else 0)


if __name__ == "__main__":
    main()
