"""Models at random with branches, loops, scans, states and streams. Their numbers are whole and small, so floats are exact in any
order of sums, fused or not: every way to compute them has to agree with ONNX Runtime in every element, without a tolerance."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hunting.compare import OPTIONAL, Case, Failure, by_reference, in_loops, stepwise, wrong
from intaglio.frontends.reading import read_source
from intaglio.ir.graph import Array, Graph
from intaglio.ir.loops import loops_of
from intaglio.ir.verify import verify
from intaglio.passes import Context, absorb, optimise
from intaglio.passes.stream import stream_along
from intaglio.run.error_bounds import Known
from intaglio.targets.target import find_target

KINDS = ("if", "loop", "until", "scan", "if in loop", "loop in if", "state", "state and if", "stream")
ROW = ("neg", "abs", "relu", "half", "add", "sub", "max", "min", "mul", "dot", "swap", "sum")
FRAME = ("conv", "conv", "depthwise", "relu", "half", "neg", "pool")
MOST_TURNS, STEPS, LIMIT = 6, 5, 50.0
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


@dataclass(frozen=True, slots=True)
class Flow:
    """By its number, the steps inside of the branch, the loop or the state, and those behind. One with fewer of them is smaller."""

    seed: int
    kind: str
    inner: tuple[str, ...]
    tail: tuple[str, ...] = ()

    def smaller(self) -> Iterator[Flow]:
        for n in range(len(self.inner)):
            yield replace(self, inner=(*self.inner[:n], *self.inner[n + 1 :]))
        for n in range(len(self.tail)):
            yield replace(self, tail=(*self.tail[:n], *self.tail[n + 1 :]))


def flow_of(seed: int) -> Flow:
    rng = random.Random(f"flow {seed}")
    kind = KINDS[seed % len(KINDS)]
    steps = FRAME if kind == "stream" else ROW
    inner = tuple(rng.choice(steps) for _ in range(rng.randrange(1, 6)))
    return Flow(seed, kind, inner, () if kind == "stream" else tuple(rng.choice(ROW) for _ in range(rng.randrange(0, 3))))


class _Maker:
    def __init__(self, flow: Flow) -> None:
        self.flow, self.numbers = flow, np.random.default_rng(flow.seed)
        self.width = int(self.numbers.integers(1, 7))
        single = {"nought": 0.0, "low": -LIMIT, "high": LIMIT, "half": 0.5}
        self.constants: dict[str, Array] = {name: np.full((), number, np.float32) for name, number in single.items()}
        self.constants |= {"true": np.array(True), "from": np.array([0]), "one": np.array([1]), "axis": np.array([1])}
        self.constants |= {"end": np.array([self.width]), "most": np.array(MOST_TURNS)}
        self.constants["first"] = np.zeros((1, self.width), np.float32)
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def weights(self, *shape: int) -> str:
        name = self.name("w")
        self.constants[name] = self.numbers.integers(-2, 3, shape).astype(np.float32)
        return name

    def one(self, nodes: list[Any], op: str, *names: str, **attributes: Any) -> str:
        made = self.name("t")
        nodes.append(helper.make_node(op, list(names), [made], **attributes))
        return made

    def grow(self, nodes: list[Any], steps: tuple[str, ...], a: str, x: str) -> str:
        """Steps of a row, with a limit at the end: what goes round and round stays small."""
        for step in steps:
            match step:
                case "neg" | "abs" | "relu":
                    a = self.one(nodes, step.capitalize(), a)
                case "half":
                    a = self.one(nodes, "Floor", self.one(nodes, "Mul", a, "half"))
                case "add" | "sub" | "max" | "min":
                    a = self.one(nodes, step.capitalize(), a, x)
                case "mul":
                    a = self.limited(nodes, self.one(nodes, "Mul", a, x))
                case "dot":
                    a = self.limited(nodes, self.one(nodes, "MatMul", a, self.weights(self.width, self.width)))
                case "swap":
                    left = self.one(nodes, "Slice", a, "one", "end", "axis")
                    a = self.one(nodes, "Concat", left, self.one(nodes, "Slice", a, "from", "one", "axis"), axis=1)
                case "sum":
                    a = self.limited(nodes, self.one(nodes, "Sub", a, self.one(nodes, "ReduceSum", a, "axis", keepdims=1)))
        return self.limited(nodes, a)

    def limited(self, nodes: list[Any], a: str) -> str:
        return self.one(nodes, "Clip", a, "low", "high")

    def positive(self, nodes: list[Any], a: str) -> str:
        return self.one(nodes, "Greater", self.one(nodes, "ReduceSum", a, keepdims=0), "nought")

    def branch(self, nodes: list[Any], a: str, x: str) -> str:
        """Two branches, of the steps and of the same ones backwards."""
        condition, graphs = self.positive(nodes, a), []
        for steps in (self.flow.inner, self.flow.inner[::-1]):
            inside: list[Any] = []
            made = self.grow(inside, steps, a, x)
            graphs.append(helper.make_graph(inside, self.name("g"), [], [self.info(made, [1, self.width])]))
        return self.one(nodes, "If", condition, then_branch=graphs[0], else_branch=graphs[1])

    def loop(self, nodes: list[Any], x: str) -> str:
        inside: list[Any] = []
        turn, go, a = self.name("turn"), self.name("go"), self.name("a")
        made = self.branch(inside, a, x) if self.flow.kind == "if in loop" else self.grow(inside, self.flow.inner, a, x)
        again = self.positive(inside, made) if self.flow.kind == "until" else self.one(inside, "Identity", go)
        row = [1, self.width]
        given = [self.info(turn, [], INT64), self.info(go, [], BOOL), self.info(a, row)]
        told, ends = [self.info(again, [], BOOL), self.info(made, row)], [self.name("t")]
        if self.flow.kind != "loop in if":
            told.append(self.info(self.one(inside, "Neg", made), row))
            ends.append("rows")
        body = helper.make_graph(inside, self.name("body"), given, told)
        nodes.append(helper.make_node("Loop", ["most" if self.flow.kind == "until" else "n", "true", x], ends, body=body))
        return ends[0]

    def loop_in_if(self, nodes: list[Any], x: str) -> str:
        inside: list[Any] = []
        condition, end = self.positive(nodes, x), self.loop(inside, x)
        then = helper.make_graph(inside, "then", [], [self.info(end, [1, self.width])])
        other: list[Any] = []
        made = self.one(other, "Neg", x)
        return self.one(nodes, "If", condition, then_branch=then,
                        else_branch=helper.make_graph(other, "else", [], [self.info(made, [1, self.width])]))  # fmt: skip

    def scan(self, nodes: list[Any], x: str) -> str:
        inside: list[Any] = []
        row = [1, self.width]
        made = self.grow(inside, self.flow.inner, "h", "part")
        told = self.one(inside, "Abs", made)
        body = helper.make_graph(inside, "body", [self.info("h", row), self.info("part", row)], [self.info(made, row),
                                                                                              self.info(told, row)])  # fmt: skip
        end = self.name("t")
        nodes.append(helper.make_node("Scan", ["first", x], [end, "rows"], body=body, num_scan_inputs=1))
        return end

    @staticmethod
    def info(name: str, shape: list[int | str] | list[int], kind: int = FLOAT) -> Any:
        return helper.make_tensor_value_info(name, kind, shape)

    def model(self) -> bytes:
        flow, row = self.flow, [1, self.width]
        nodes: list[Any] = []
        inputs = [self.info("x", row)]
        outputs: list[Any] = []
        match flow.kind:
            case "if":
                end = self.branch(nodes, "x", "x")
            case "loop" | "if in loop" | "until":
                end = self.loop(nodes, "x")
                outputs.append(helper.make_tensor_value_info("rows", FLOAT, None))
            case "loop in if":
                end = self.loop_in_if(nodes, "x")
            case "scan":
                inputs = [self.info("x", [MOST_TURNS, *row])]
                end = self.scan(nodes, "x")
                outputs.append(self.info("rows", [MOST_TURNS, *row]))
            case _:
                inputs.append(self.info("s", row))
                end = self.branch(nodes, "s", "x") if flow.kind == "state and if" else self.grow(nodes, flow.inner, "s", "x")
                nodes.append(helper.make_node("Add", [end, "x"], ["both"]))
                nodes.append(helper.make_node("Clip", ["both", "low", "high"], ["s2"]))
                outputs.append(self.info("s2", row))
                end = "s2"
        if flow.kind in ("loop", "if in loop", "loop in if"):
            inputs.append(self.info("n", [], INT64))
        made = self.grow(nodes, flow.tail, end, end)
        nodes.append(helper.make_node("Neg", [made], ["y"]))
        return self.finish(nodes, inputs, [self.info("y", row), *outputs])

    def frames(self) -> bytes:
        """Convolutions and windows along the last axis."""
        nodes: list[Any] = []
        self.time, made = int(self.numbers.integers(8, 14)), "x"
        for step in self.flow.inner:
            match step:
                case "conv" | "depthwise":
                    groups = self.width if step == "depthwise" else 1
                    k, hop = int(self.numbers.integers(1, 4)), 1
                    w = self.weights(self.width, self.width // groups, k)
                    made = self.one(nodes, "Conv", made, w, group=groups, kernel_shape=[k], strides=[hop])
                    made = self.limited(nodes, made)
                case "pool":
                    made = self.one(nodes, "MaxPool", made, kernel_shape=[2], strides=[1])
                case "half":
                    made = self.one(nodes, "Floor", self.one(nodes, "Mul", made, "half"))
                case _:
                    made = self.one(nodes, step.capitalize(), made)
        nodes.append(helper.make_node("Abs", [made], ["y"]))
        shape = [1, self.width, self.time]
        return self.finish(nodes, [self.info("x", shape)], [helper.make_tensor_value_info("y", FLOAT, None)])

    def finish(self, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
        constants = [numpy_helper.from_array(np.asarray(a), name) for name, a in self.constants.items()]
        graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
        return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def case_of_flow(flow: Flow, folder: Path) -> Case:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"f{flow.seed}.onnx"
    maker = _Maker(flow)
    path.write_bytes(maker.frames() if flow.kind == "stream" else maker.model())
    if flow.kind == "stream":
        return _streamed(flow, maker, path)
    rng = np.random.default_rng(flow.seed)
    shape = (MOST_TURNS, 1, maker.width) if flow.kind == "scan" else (1, maker.width)
    feeds: list[dict[str, Array]] = [{"x": rng.integers(-8, 9, shape).astype(np.float32)} for _ in range(STEPS)]
    if flow.kind in ("loop", "if in loop", "loop in if"):
        feeds = [{**feed, "n": np.asarray(rng.integers(0, MOST_TURNS + 1))} for feed in feeds]
    stateful = flow.kind.startswith("state")
    options: dict[str, Any] = {"states": {"s": "s2"}} if stateful else {"most": {"rows": MOST_TURNS}}
    options = options if stateful or flow.kind in ("loop", "until", "if in loop") else {}
    graph = read_graph(path, options)
    told: list[dict[str, Known] | None] = []
    kept: Array = np.zeros((1, maker.width), np.float32)
    for feed in feeds:
        results = by_reference(path.read_bytes(), {**feed, "s": kept} if stateful else feed)
        kept = results[-1] if stateful else kept
        names = ["y", "s2" if stateful else "rows"]
        told.append({name: Known.exactly(a) for name, a in zip(names, results, strict=False)})
    return Case(flow.seed, None, tuple(feeds), graph, tuple(told), path, options)


def _streamed(flow: Flow, maker: _Maker, path: Path) -> Case:
    whole = read_graph(path, {})
    made = stream_along(whole, 2)
    frames = np.random.default_rng(flow.seed).integers(-8, 9, (1, maker.width, made.hop * (made.warmup + 3)))
    frames = frames.astype(np.float32)
    feeds: list[dict[str, Array]] = []
    told: list[dict[str, Known] | None] = []
    for step in range(frames.shape[2] // made.hop):
        end = (step + 1) * made.hop
        feeds.append({"x": frames[:, :, end - made.hop : end]})
        if end < made.window:
            told.append(None)
            continue
        (result,) = by_reference(path.read_bytes(), {"x": np.ascontiguousarray(frames[:, :, end - made.window : end])})
        rows, axis = made.graph.outputs[0].shape, made.outputs[0]
        newest = result if axis is None else np.take(result, range(result.shape[axis] - rows[axis], result.shape[axis]), axis)
        told.append({"y": Known.exactly(newest)})
    return Case(flow.seed, None, tuple(feeds), made.graph, tuple(told), path, {"stream": 2})


def read_graph(path: Path, options: Mapping[str, Any]) -> Graph:
    return read_source(path, {}, {}, None, dict(options.get("states", {})), lambda note: None, most=options.get("most")).graph


def without_pass(case: Case, disabled: frozenset[str]) -> Graph:
    graph = case.graph if "stream" in case.options else read_graph(case.model, case.options)
    context = Context(find_target("x86-64-v3"), disabled=disabled, source="onnx")
    graph = optimise(absorb(graph, context), context)
    verify(graph)
    return graph


def failures_of_flow(case: Case, rng: random.Random) -> Iterator[Failure]:
    """In Python; compiled C, emulated cores and OpenCL take it as they take any other case."""
    ways: dict[str, Graph] = {"meaning": case.graph}
    if "stream" not in case.options:  # whose graph is made by a pass, and read anew below
        ways |= {"passes": without_pass(case, frozenset())}
        ways |= {f"pass:{name}": without_pass(case, frozenset({name})) for name in rng.sample(OPTIONAL, 2)}
    for name, graph in ways.items():
        for step, results in enumerate(stepwise(graph, case.feeds)):
            if told := wrong(case, step, results):
                yield Failure(case.seed, f"flow {name}", told)
                break
    if not loops_of(case.graph.nodes):
        yield from in_loops(case, rng.choice(("cortex-m4f", "cortex-m0+", "x86-64-v3", "cortex-m55")))
