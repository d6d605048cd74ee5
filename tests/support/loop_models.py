"""Models with loops whose number of turns is known when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import helper

from intaglio.ir.graph import Array
from support.onnx_models import BOOL, FLOAT, INT64, ints, model, node, value

TRUE = np.array(True)


def body(nodes: Sequence[Any], carried: Sequence[tuple[str, str, Any]], rows: Sequence[str] = (), again: str = "go") -> Any:
    """Of a `Loop`. `carried`: the name before a turn, after it, and the type and shape."""
    inputs = [value("turn", [], INT64), value("go", None, BOOL), *(value(a, shape, kind) for a, _, (kind, shape) in carried)]
    after = [value(b, shape, kind) for _, b, (kind, shape) in carried]
    outputs = [value(again, None, BOOL), *after, *(value(r, None) for r in rows)]
    return helper.make_graph(list(nodes), "body", inputs, outputs)


@dataclass(frozen=True)
class Case:
    proto: Any
    draw: Callable[[np.random.Generator], dict[str, Array]]
    most: dict[str, int] = field(default_factory=dict)
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)


def decoder(steps: int = 501, points: int = 12, size: int = 16, words: int = 9, seed: int = 0) -> Any:
    """A greedy decoder, as table recognisers have it: a picture's features, attention, a recurrent cell, one word in each turn,
    until a certain word comes. Its probabilities and a place are collected."""
    random = np.random.default_rng(seed)

    def weights(*shape: int) -> Array:
        return np.asarray(random.standard_normal(shape) * 0.6 / np.sqrt(shape[0]), np.float32)

    nodes = [
        node("Gather", "emb word", "e"), node("MatMul", "h wq", "q"), node("Unsqueeze", "q two", "q2"),
        node("MatMul", "features q2", "score"), node("Softmax", "score", "where", axis=1), node("Mul", "where features", "some"),
        node("ReduceSum", "some one", "seen", keepdims=0), node("Concat", "e seen", "both", axis=1),
        node("MatMul", "both wx", "a"), node("MatMul", "h wh", "b"), node("Add", "a b", "ab"), node("Tanh", "ab", "h2"),
        node("MatMul", "h2 wo", "raw"), node("MatMul", "seen wp", "p0"), node("Sigmoid", "p0", "p1"), node("Mul", "p1 rate", "p2"),
        node("Add", "tired p2", "tired2"), node("Mul", "tired2 end", "p3"), node("Add", "raw p3", "logits"),
        node("Softmax", "logits", "chance", axis=1), node("ArgMax", "chance", "word2", axis=1, keepdims=0),
        node("MatMul", "h2 wl", "place0"), node("Sigmoid", "place0", "place"),
        node("Equal", "word2 last", "is"), node("Not", "is", "not"), node("Squeeze", "not zero", "again"),
    ]  # fmt: skip
    carried = [("word", "word2", (INT64, [1])), ("h", "h2", (FLOAT, [1, size])), ("tired", "tired2", (FLOAT, [1, 1]))]
    inside = body(nodes, carried, ["chance", "place"], "again")
    constants = {
        "wq": weights(size, size), "emb": weights(words, size), "wh": weights(size, size), "wx": weights(2 * size, size),
        "wo": weights(size, words), "wl": weights(size, 4), "wp": weights(size, 1) * 6, "w": weights(size, size),
        "end": (np.arange(words) == 1).astype(np.float32)[None], "rate": np.full((1, 1), 20 / steps, np.float32),
        "start": np.full((1, 1), -2, np.float32), "h0": np.zeros((1, size), np.float32), "word0": ints(0), "last": ints(1),
        "one": ints(1), "two": ints(2), "zero": ints(0), "true": TRUE, "steps": np.asarray(steps),
    }  # fmt: skip
    outer = [
        node("MatMul", "x w", "f0"), node("Relu", "f0", "features"),
        node("Loop", "steps true word0 h0 start", "word_end h_end tired_end chances places", body=inside),
    ]  # fmt: skip
    return model(outer, [value("x", [1, points, size])], [value("chances", None), value("places", None)], constants, opset=17)


def turns(random: np.random.Generator) -> dict[str, Array]:
    return {"x": random.standard_normal((1, 4)).astype(np.float32), "n": np.asarray(random.integers(0, 7))}


X, N = value("x", [1, 4]), value("n", [], INT64)
VECTOR = (FLOAT, [1, 4])
CONSTANTS = {"true": TRUE, "half": np.float32(0.5), "three": np.float32(3), "zero": ints(0), "one": np.asarray(1)}


def _loop(
    nodes: Sequence[Any], carried: Sequence[tuple[str, str, Any]], rows: Sequence[str], outer: Sequence[Any], outs: str
) -> Any:
    """`outer` has a `Loop` with the body `None`, which is this one."""
    inside = body(nodes, carried, rows)
    for one in outer:
        if one.op_type == "Loop":
            one.attribute.append(helper.make_attribute("body", inside))
    return model(outer, [X, N], [value(name, None) for name in outs.split()], CONSTANTS)


def _nested() -> Any:
    inner = body([node("Mul", "v half", "v2"), node("Add", "v2 x", "v3")], [("v", "v3", VECTOR)])
    nodes = [node("Add", "turn one", "m"), node("Loop", "m true a", "a2", body=inner), node("Add", "a2 half", "a3")]
    return _loop(nodes, [("a", "a3", VECTOR)], (), [node("Loop", "n true x", "y")], "y")


def _in_a_branch() -> Any:
    inside = body([node("Add", "a half", "a2")], [("a", "a2", VECTOR)])
    then = helper.make_graph([node("Loop", "n true x", "looped", body=inside)], "then", [], [value("looped", None)])
    other = helper.make_graph([node("Neg", "x", "negative")], "else", [], [value("negative", None)])
    outer = [
        node("ReduceSum", "x", "s0", keepdims=0), node("Greater", "s0 nought", "c"),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]  # fmt: skip
    return model(outer, [X, N], [value("y", None)], {**CONSTANTS, "nought": np.float32(0)})


def _scan() -> Any:
    inputs = [value("h", [3]), value("row", [3])]
    inside = helper.make_graph(
        [node("Mul", "h half", "h1"), node("Add", "h1 row", "h2"), node("Neg", "h2", "out")], "body", inputs,
        [value("h2", [3]), value("out", [3])],
    )  # fmt: skip
    one = node(
        "Scan", "h0 x", "last rows", body=inside, num_scan_inputs=1, scan_input_axes=[1], scan_input_directions=[1],
        scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    return model([one], [value("x", [3, "T"])], [value("last", None), value("rows", None)], {
        "half": np.float32(0.5), "h0": np.zeros(3, np.float32)
    })  # fmt: skip


def _grown() -> Any:
    nodes = [
        node("Add", "a half", "a2"), node("Concat", "all a2 a", "all2", axis=0), node("SequenceInsert", "seq a2", "seq2"),
    ]  # fmt: skip
    inside = body(nodes, [("a", "a2", VECTOR), ("all", "all2", (FLOAT, [None, 4]))])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [1, 4]))
    inside.input.append(helper.make_value_info("seq", kind))
    inside.output.append(helper.make_value_info("seq2", kind))
    outer = [
        node("SequenceConstruct", "x", "seq0"), node("Loop", "n true x x seq0", "end y seq_end", body=inside),
        node("ConcatFromSequence", "seq_end", "z", axis=0), node("SequenceLength", "seq_end", "count"),
        node("SequenceAt", "seq_end zero", "first"),
    ]  # fmt: skip
    outs = [value("y", None), value("z", None), value("count", None, INT64), value("first", None)]
    return model(outer, [X, N], outs, {**CONSTANTS, "zero": np.asarray(0)})


def _until() -> Any:
    nodes = [
        node("Add", "a half", "a2"), node("Relu", "a2", "p"), node("NonZero", "p", "at"),
        node("Shape", "at", "counts", start=1, end=2), node("Cast", "counts", "found", to=FLOAT),
        node("ReduceMax", "a2", "top", keepdims=0), node("Less", "top three", "again"),
    ]  # fmt: skip
    inside = body(nodes, [("a", "a2", VECTOR)], ["found", "a2"], "again")
    outer = [
        node("ReduceMax", "x", "t0", keepdims=0), node("Less", "t0 three", "c"),
        node("Loop", "_ c x", "y counts rows", body=inside),
    ]  # fmt: skip
    return model(outer, [X], [value(n, None) for n in ("y", "counts", "rows")], CONSTANTS)


def _branches() -> Any:
    """Three columns, those that are positive, or twice as many: as large as the branch that is taken."""
    then = helper.make_graph([node("Slice", "x zero three_ one_", "cut")], "then", [], [value("cut", None)])
    inner = helper.make_graph([node("Concat", "x x", "twice", axis=1)], "then", [], [value("twice", None)])
    found = helper.make_graph(
        [node("Squeeze", "x zero", "row"), node("Relu", "row", "p"), node("Cast", "p", "b", to=BOOL),
         node("Compress", "x b", "some", axis=1)], "else", [], [value("some", None)],
    )  # fmt: skip
    other = helper.make_graph([node("If", "d", "more", then_branch=inner, else_branch=found)], "else", [], [value("more", None)])
    outer = [
        node("Greater", "n two", "c"), node("Greater", "n one", "d"), node("If", "c", "z", then_branch=then, else_branch=other),
        node("Neg", "z", "y"), node("ReduceSum", "z", "s", keepdims=0),
    ]  # fmt: skip
    more = {"two": np.asarray(4), "one": np.asarray(2), "three_": ints(3), "one_": ints(1)}
    return model(outer, [X, N], [value("y", None), value("s", None)], {**CONSTANTS, **more})


def _set_value() -> Any:
    """Rows that are written into a buffer, as Paddle's exporter has it: `buffer[:, i:i+1] = v`. What is carried begins with another
    shape where nobody looks at it, and single numbers are [] and [1] in turn."""
    then = helper.make_graph([node("Identity", "yes", "a_stop")], "then", [], [value("a_stop", None, BOOL)])
    other = helper.make_graph(
        [node("Cast", "flag", "f0", to=INT64), node("Add", "f0 zero", "f1"), node("Cast", "f1", "b_stop", to=BOOL)], "else", [],
        [value("b_stop", None, BOOL)],
    )  # fmt: skip
    nodes = [
        node("Cast", "i", "i0", to=FLOAT), node("Mul", "x i0", "v"), node("Add", "i0 one_f", "i1"),
        node("Cast", "i1", "i2", to=INT64),
        node("Reshape", "i one_", "from"), node("Reshape", "i2 one_", "to0"), node("Shape", "buffer", "all"),
        node("Gather", "all one_", "most", axis=0), node("Min", "most to0", "to"),
        node("Slice", "buffer from to one_ one_", "part"),
        node("Shape", "part", "its"), node("Unsqueeze", "v one_", "v1"), node("Expand", "v1 its", "new"),
        node("Squeeze", "from", "a"), node("Squeeze", "to", "b"), node("Squeeze", "one_", "c"), node("Range", "a b c", "r"),
        node("Reshape", "r form", "r1"), node("Slice", "its zero one_ zero", "its0"), node("Slice", "its two_ three_ zero", "its2"),
        node("Concat", "its0 one_ its2", "times", axis=0), node("Tile", "r1 times", "places"),
        node("ScatterElements", "buffer places new", "buffer2", axis=1), node("ReduceSum", "v", "s", keepdims=0),
        node("Greater", "s three", "large"), node("If", "large", "stop", then_branch=then, else_branch=other),
        node("Not", "stop", "again"), node("Identity", "buffer2", "seen2"),
    ]  # fmt: skip
    room = (FLOAT, [1, 9, 4])
    carried: list[tuple[str, str, Any]] = [("i", "i2", (INT64, [])), ("buffer", "buffer2", room)]
    carried += [("seen", "seen2", (FLOAT, None)), ("flag", "stop", (BOOL, None))]
    inside = body(nodes, carried, (), "again")
    outer = [
        node("Loop", "most_ true i_first empty nothing no", "i_end buffer_end seen_end flag_end", body=inside),
        node("Reshape", "i_end one_", "count"), node("Slice", "seen_end zero count one_", "y"),
    ]  # fmt: skip
    more = {
        "yes": TRUE, "no": np.array(False), "one_f": np.float32(1), "one_": ints(1), "two_": ints(2), "three_": ints(3),
        "form": ints(1, -1, 1), "most_": np.asarray(1024), "i_first": np.asarray(0), "empty": np.zeros((1, 9, 4), np.float32),
        "nothing": np.float32(0),
    }  # fmt: skip
    return model(outer, [X], [value("y", None), value("buffer_end", None)], {**CONSTANTS, **more}, opset=17)


ROWS = {"rows": 8}
def remembering(turns: int = 20, words: int = 11) -> Any:
    """A decoder with attention to all that came before, which becomes longer in each turn; it stops at a certain word."""
    random = np.random.default_rng(4)
    weights = {name: random.standard_normal((8, 8)).astype(np.float32) for name in ("wq", "wk", "wv")}
    heads: list[Any] = []
    for name in "qkv":
        heads += [node("MatMul", f"e w{name}", f"{name}0"), node("Reshape", f"{name}0 heads", name)]
    nodes = [
        node("Gather", "emb word", "e"), *heads,
        node("Concat", "keys k", "keys2", axis=2), node("Concat", "values v", "values2", axis=2),
        node("Transpose", "keys2", "turned", perm=[0, 1, 3, 2]), node("MatMul", "q turned", "score"),
        node("Softmax", "score", "where", axis=-1), node("MatMul", "where values2", "seen"), node("Reshape", "seen flat", "all"),
        node("MatMul", "all wo", "chance"), node("ArgMax", "chance", "word2", axis=1, keepdims=0),
        node("Equal", "word2 last", "is"), node("Not", "is", "not"), node("Squeeze", "not zero", "again"),
    ]  # fmt: skip
    kind = (FLOAT, [1, 2, None, 4])
    carried = [("word", "word2", (INT64, [1])), ("keys", "keys2", kind), ("values", "values2", kind)]
    inside = body(nodes, carried, ["word2"], "again")
    constants = {
        **weights, "emb": random.standard_normal((words, 8)).astype(np.float32), "heads": ints(1, 2, 1, 4), "flat": ints(1, 8),
        "wo": random.standard_normal((8, words)).astype(np.float32), "last": ints(3), "zero": ints(0), "word0": ints(1),
        "true": TRUE, "turns": np.asarray(turns),
    }  # fmt: skip
    outer = [node("Loop", "turns true word0 past_keys past_values", "word_end all_keys all_values said", body=inside)]
    given = [value(name, [1, 2, "P", 4]) for name in ("past_keys", "past_values")]
    return model(outer, given, [value("all_keys", None), value("said", None, INT64)], constants, opset=17)


def _past(random: np.random.Generator) -> dict[str, Array]:
    shape = (1, 2, int(random.integers(0, 4)), 4)
    return {name: random.standard_normal(shape).astype(np.float32) for name in ("past_keys", "past_values")}


LOOPS: dict[str, Case] = {
    "as often as an input says": Case(
        _loop(
            [node("Mul", "a half", "a2"), node("Add", "a2 x", "a3")], [("a", "a3", VECTOR)], ["a2"],
            [node("Loop", "n true x", "y rows")], "y rows",
        ), turns, ROWS,
    ),
    "two values that change places": Case(
        _loop(
            [node("Identity", "a", "b2"), node("Identity", "b", "a2")], [("a", "a2", VECTOR), ("b", "b2", VECTOR)], (),
            [node("Neg", "x", "m"), node("Loop", "n true x m", "y z")], "y z",
        ), turns,
    ),
    "a loop in a loop": Case(_nested(), turns),
    "a loop in a branch": Case(_in_a_branch(), turns),
    "along an axis with a range": Case(
        _scan(), lambda r: {"x": r.standard_normal((3, int(r.integers(1, 10)))).astype(np.float32)}, dims={"T": (1, 9)}
    ),
    "branches of different shapes": Case(_branches(), turns),
    "what only grows": Case(_grown(), turns, {"y": 7}),
    "what grows and is read": Case(remembering(), _past, dims={"P": (0, 3)}),
    "until data says so": Case(_until(), lambda r: {"x": (r.standard_normal((1, 4)) * 3).astype(np.float32)}, {"rows": 30}),
    "rows that are written into a buffer": Case(
        _set_value(), lambda r: {"x": (np.abs(r.standard_normal((1, 4))) * 2 + 0.12).astype(np.float32)}
    ),
    "a greedy decoder": Case(
        decoder(40), lambda r: {"x": (r.standard_normal((1, 12, 16)) * r.uniform(0.5, 2)).astype(np.float32)}
    ),
}  # fmt: skip
