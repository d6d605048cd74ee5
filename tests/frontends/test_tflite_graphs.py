"""TFLite files of more than one operator or subgraph: states, loops, branches, sparse weights, open axes, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import ModelError, UserError
from intaglio.frontends.tflite import load
from intaglio.frontends.tflite.unread import unread
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.tflite_models import ModelWriter, Tensor, all_by_litert, all_by_reference, assert_like_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
F4 = Tensor((4,), "float32")


def scalar(value: object, dtype: str) -> Tensor:
    return Tensor((), dtype, data=np.asarray(value, dtype))


def numbers(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


# States -----------------------------------------------------------------------------------------------------------------


def running_sum(start: Array) -> bytes:
    """y = state + x; state = y; the state starts as it is given."""
    w = ModelWriter()
    for first in (True, False):
        w.subgraph()
        if first:
            w.operator("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 1}, 1)
        handle = w.tensor(Tensor((), "resource"), "handle")
        w.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", {"sharedName": "sum", "container": ""}, 1)
        if first:
            x, before, y = (w.tensor(F4, name) for name in ("x", "before", "y"))
            w.operator("READ_VARIABLE", [handle], [before], "ReadVariableOptions", version=1)
            w.operator("ADD", [before, x], [y], "AddOptions")
            w.operator("ASSIGN_VARIABLE", [handle, y], [], "AssignVariableOptions", version=1)
            w.graph.inputs, w.graph.outputs = [x], [y]
        else:
            value = w.tensor(Tensor((4,), "float32", data=start), "start")
            w.operator("ASSIGN_VARIABLE", [handle, value], [], "AssignVariableOptions", version=1)
    return w.finish()


@pytest.mark.parametrize("start", [[0, 0, 0, 0], [2.5] * 4, [1, -2, 3, 4]])
def test_a_variable_starts_as_the_file_says(start: list[float], tmp_path: Path) -> None:
    data = running_sum(np.asarray(start, np.float32))
    assert_like_litert(data, tmp_path, *[[numbers(4) * n] for n in range(3)])


def test_an_operator_without_inputs_has_no_first_one(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(running_sum(np.zeros(4, np.float32)))
    assert unread(tmp_path / "m.tflite") is None


@pytest.mark.parametrize("op", ["ADD", "SUB"])
def test_a_sum_has_the_type_of_the_second_operand_whatever_the_file_says(op: str, tmp_path: Path) -> None:
    w = ModelWriter()
    w.subgraph()
    x, y = (w.tensor(Tensor((4,), "uint8", 0.05, 100), name) for name in "xy")
    middle = w.tensor(Tensor((4,), "float32", 0.06, 90), "middle")
    w.operator(op, [x, x], [middle], op.capitalize() + "Options", version=1)
    w.operator(op, [middle, x], [y], op.capitalize() + "Options", version=1)
    w.graph.inputs, w.graph.outputs = [x], [y]
    assert_like_litert(w.finish(), tmp_path, [np.array([3, 90, 120, 250], np.uint8)])


# Loops and branches -----------------------------------------------------------------------------------------------------


def loop(rounds: int, own: int = 1) -> bytes:
    """for i in range(rounds): x = x + x. `own`: the subgraph that the body names as its condition's."""
    w = ModelWriter()
    w.subgraph()
    count, x, out = w.tensor(scalar(0, "int32"), "zero"), w.tensor(F4, "x"), w.tensor(F4, "y")
    last = w.tensor(Tensor((), "int32"), "last")
    w.operator("WHILE", [count, x], [last, out], "WhileOptions", {"condSubgraphIndex": own, "bodySubgraphIndex": 2}, 1)
    w.graph.inputs, w.graph.outputs = [x], [out]
    w.subgraph()
    i, v, most = w.tensor(Tensor((), "int32"), "i"), w.tensor(F4, "v"), w.tensor(scalar(rounds, "int32"), "most")
    go = w.tensor(Tensor((), "bool"), "go")
    w.operator("LESS", [i, most], [go], "LessOptions")
    w.graph.inputs, w.graph.outputs = [i, v], [go]
    w.subgraph()
    i, v, one = w.tensor(Tensor((), "int32"), "i"), w.tensor(F4, "v"), w.tensor(scalar(1, "int32"), "one")
    after, twice = w.tensor(Tensor((), "int32"), "after"), w.tensor(F4, "twice")
    w.operator("ADD", [i, one], [after], "AddOptions")
    w.operator("ADD", [v, v], [twice], "AddOptions")
    w.graph.inputs, w.graph.outputs = [i, v], [after, twice]
    return w.finish()


@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_a_loop_of_known_length_is_unrolled(rounds: int, tmp_path: Path) -> None:
    assert_like_litert(loop(rounds), tmp_path, [numbers(4)])


def test_a_loop_of_many_rounds_stays_a_loop(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(loop(100_000))
    assert [node.op.NAME for node in load(tmp_path / "m.tflite", dims={}, shapes={})[0].nodes].count("loop_end") == 1
    assert_like_litert(loop(100), tmp_path, [numbers(4)])


def until_large(joined: bool) -> bytes:
    """row = 0; while sum(x) < limit: x = x + step, table[row] = x, row = row + 1: the rows of a list, as Keras' layers make them.
    `joined`: what is before the row, the row, and what is behind it."""
    w = ModelWriter()
    vector, number, table = Tensor((4,), "float32"), Tensor((), "int32"), Tensor((6, 4), "float32")
    w.subgraph()
    zero, x, limit = w.tensor(scalar(0, "int32"), "zero"), w.tensor(vector, "x"), w.tensor(Tensor((), "float32"), "limit")
    empty = w.tensor(Tensor((6, 4), "float32", data=np.zeros((6, 4), np.float32)), "empty")
    outs = [w.tensor(t, n) for t, n in ((number, "rows"), (vector, "y"), (Tensor((), "float32"), "same"), (table, "filled"))]
    w.operator("WHILE", [zero, x, limit, empty], outs, "WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}, 1)
    w.graph.inputs, w.graph.outputs = [x, limit], [outs[0], outs[1], outs[3]]
    for body in (False, True):
        w.subgraph()
        i, v, most, rows = (
            w.tensor(t, n) for t, n in ((number, "i"), (vector, "v"), (Tensor((), "float32"), "most"), (table, "t"))
        )
        if not body:
            axis = w.tensor(Tensor((1,), "int32", data=np.zeros(1, np.int32)), "axis")
            total = w.tensor(Tensor((), "float32"), "sum")
            go = w.tensor(Tensor((), "bool"), "go")
            w.operator("SUM", [v, axis], [total], "ReducerOptions", {"keepDims": False})
            w.operator("LESS", [total, most], [go], "LessOptions")
            w.graph.inputs, w.graph.outputs = [i, v, most, rows], [go]
            continue
        one, step = w.tensor(scalar(1, "int32"), "one"), w.tensor(scalar(1, "float32"), "step")
        after, larger, shaped = w.tensor(number, "after"), w.tensor(vector, "larger"), w.tensor(Tensor((1, 4), "float32"), "shaped")
        shape = w.tensor(Tensor((2,), "int32", data=np.array([1, 4], np.int32)), "shape")
        put, nought = w.tensor(table, "put"), w.tensor(scalar(0, "int32"), "nought")
        start = w.tensor(Tensor((2,), "int32"), "start")
        w.operator("ADD", [i, one], [after], "AddOptions")
        w.operator("ADD", [v, step], [larger], "AddOptions")
        w.operator("RESHAPE", [larger, shape], [shaped], "ReshapeOptions", {"newShape": [1, 4]}, 1)
        w.operator("PACK", [i, nought], [start], "PackOptions", {"valuesCount": 2, "axis": 0}, 1)
        if joined:
            _put_by_joining(w, rows, shaped, start, after, put)
        else:
            w.operator("DYNAMIC_UPDATE_SLICE", [rows, shaped, start], [put], "DynamicUpdateSliceOptions", {}, 1)
        w.graph.inputs, w.graph.outputs = [i, v, most, rows], [after, larger, most, put]
    return w.finish()


def _put_by_joining(w: ModelWriter, rows: int, item: int, start: int, after: int, put: int) -> None:
    def known(name: str, *numbers: int) -> int:
        return w.tensor(Tensor((len(numbers),), "int32", data=np.array(numbers, np.int32)), name)

    part = Tensor((1, 4), "float32", signature=(-1, 4))
    all_of_it = w.tensor(scalar(-1, "int32"), "all")
    size, second = w.tensor(Tensor((2,), "int32"), "size"), w.tensor(Tensor((2,), "int32"), "second")
    head, tail = w.tensor(part, "head"), w.tensor(part, "tail")
    first, nought = w.tensor(Tensor((), "int32"), "first"), w.tensor(scalar(0, "int32"), "nought2")
    w.operator("GATHER", [start, w.tensor(scalar(0, "int32"), "at")], [first], "GatherOptions", {"axis": 0}, 1)
    w.operator("PACK", [first, all_of_it], [size], "PackOptions", {"valuesCount": 2, "axis": 0}, 1)
    w.operator("PACK", [after, nought], [second], "PackOptions", {"valuesCount": 2, "axis": 0}, 1)
    w.operator("SLICE", [rows, known("from", 0, 0), size], [head], "SliceOptions", {}, 1)
    w.operator("SLICE", [rows, second, known("to", -1, -1)], [tail], "SliceOptions", {}, 1)
    w.operator("CONCATENATION", [head, item, tail], [put], "ConcatenationOptions", {"axis": 0}, 1)


@pytest.mark.parametrize("joined", [False, True])
def test_a_loop_that_data_ends(joined: bool, tmp_path: Path) -> None:
    given = [[np.zeros(4, np.float32), np.asarray(limit, np.float32)] for limit in (-1, 3, 19)]
    assert_like_litert(until_large(joined), tmp_path, *given)


@pytest.mark.parametrize("own", [0, 7, -3])
def test_a_loop_over_a_subgraph_that_cannot_be_is_told(own: int, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(loop(3, own))
    with pytest.raises(ModelError, match="it calls subgraph"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


def test_a_subgraph_that_calls_itself_is_told(tmp_path: Path) -> None:
    w = ModelWriter()
    for _ in range(2):
        w.subgraph()
        c, x, y = w.tensor(Tensor((), "bool"), "c"), w.tensor(F4, "x"), w.tensor(F4, "y")
        w.operator("IF", [c, c, x], [y], "IfOptions", {"thenSubgraphIndex": 1, "elseSubgraphIndex": 1}, 1)
        w.graph.inputs, w.graph.outputs = [c, x], [y]
    (tmp_path / "m.tflite").write_bytes(w.finish())
    with pytest.raises(ModelError, match="subgraph 1 calls itself"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


def branches(known: bool | None) -> bytes:
    w = ModelWriter()
    w.subgraph()
    c = w.tensor(Tensor((), "bool") if known is None else scalar(known, "bool"), "c")
    x, y = w.tensor(F4, "x"), w.tensor(F4, "y")
    w.operator("IF", [c, x], [y], "IfOptions", {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2}, 1)
    w.graph.inputs, w.graph.outputs = ([c, x] if known is None else [x]), [y]
    for op in ("ADD", "MUL"):
        w.subgraph()
        x, y = w.tensor(F4, "x"), w.tensor(F4, "y")
        w.operator(op, [x, x], [y], f"{op.capitalize()}Options")
        w.graph.inputs, w.graph.outputs = [x], [y]
    return w.finish()


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_is_taken_by_data_or_when_compiled(taken: bool, tmp_path: Path) -> None:
    assert_like_litert(branches(None), tmp_path, [np.asarray(taken), numbers(4)])
    assert_like_litert(branches(taken), tmp_path, [numbers(4)])
    graph, _ = load(tmp_path / "one.tflite", dims={}, shapes={})
    assert [node.op.NAME for node in graph.nodes] == ["add" if taken else "mul"]


# Sparse weights ---------------------------------------------------------------------------------------------------------


def sparse(weights: Array, block: int, spoil: str = "") -> tuple[Any, Array]:
    """Rows dense, columns compressed, in blocks of `block` columns."""
    w = ModelWriter().schema
    parts = weights.reshape(len(weights), -1, block)
    kept = [[n for n in range(parts.shape[1]) if row[n].any()] for row in parts]
    made = w.SparsityParametersT()
    made.traversalOrder, made.blockMap, made.dimMetadata = [0, 1, 2], [1], []
    segments = [0, *np.cumsum([len(k) for k in kept]).tolist()]
    indices = [n for row in kept for n in row]
    if spoil == "index":
        indices[-1] = 99
    if spoil == "segments":
        segments[1] = 1000
    if spoil == "order":
        made.traversalOrder = [0, 1, 1]
    for size in (len(weights), None, block):
        level = w.DimensionMetadataT()
        level.format = 0 if size else 1
        if size:
            level.denseSize = size
        else:
            level.arraySegmentsType, level.arrayIndicesType = 1, 3
            level.arraySegments, level.arrayIndices = w.Int32VectorT(), w.Uint8VectorT()
            level.arraySegments.values, level.arrayIndices.values = segments, np.asarray(indices, np.uint8)
        made.dimMetadata.append(level)
    values = np.concatenate([parts[r, n] for r, row in enumerate(kept) for n in row])
    return made, values


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_sparse_weights_are_made_dense(dtype: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = rng.integers(-9, 9, (6, 16)).astype(dtype)
    weights[rng.random((6, 16)) < 0.7] = 0
    how, values = sparse(weights, 4)
    quant = {"scale": 0.1} if dtype == "int8" else {}
    stored = Tensor((6, 16), dtype, data=values, sparsity=how, **quant)  # type: ignore[arg-type]
    data = one_operator("DENSIFY", [stored], Tensor((6, 16), dtype, **quant), "DensifyOptions", version=1)  # type: ignore[arg-type]
    (tmp_path / "m.tflite").write_bytes(data)
    graph, _ = load(tmp_path / "m.tflite", dims={}, shapes={})
    assert np.array_equal(evaluate_graph(graph, {})[graph.outputs[0].name], weights)
    assert_like_litert(data, tmp_path, [])


@pytest.mark.parametrize(
    ("spoil", "text"), [("index", "outside an axis"), ("segments", "do not follow"), ("order", "does not fit")]
)
def test_sparsity_that_does_not_fit_is_told(spoil: str, text: str, tmp_path: Path) -> None:
    how, values = sparse(np.eye(8, 16, dtype=np.float32), 4, spoil)
    data = one_operator(
        "DENSIFY", [Tensor((8, 16), "float32", data=values, sparsity=how)], Tensor((8, 16), "float32"), "DensifyOptions"
    )
    (tmp_path / "m.tflite").write_bytes(data)
    with pytest.raises(ModelError, match=text):
        load(tmp_path / "m.tflite", dims={}, shapes={})


# Inputs and names -------------------------------------------------------------------------------------------------------


def test_open_axes_of_an_input_are_pinned_by_shape(tmp_path: Path) -> None:
    x, y = (Tensor((1, 4), "float32", signature=(-1, 4)) for _ in range(2))
    path = tmp_path / "m.tflite"
    path.write_bytes(one_operator("ABS", [x], y, version=1))
    graph, notes = load(path, dims={}, shapes={})
    assert graph.outputs[0].shape == (1, 4)
    assert notes == ["axis 0 of the input `in0` can be chosen with `--shape in0=N,4`; it is 1 here"]
    graph, notes = load(path, dims={}, shapes={"in0": (3, 4)})
    assert graph.outputs[0].shape == (3, 4) and notes == []
    with pytest.raises(UserError, match="is \\[1, 4\\], not \\[3, 5\\]"):
        load(path, dims={}, shapes={"in0": (3, 5)})


def test_an_open_axis_that_is_too_small_as_it_is_asks_for_a_shape(tmp_path: Path) -> None:
    x, y = (Tensor((1, 1, 1, 1), "float32", signature=(1, -1, -1, 1)) for _ in range(2))
    weights = Tensor((1, 3, 3, 1), "float32", data=np.ones((1, 3, 3, 1), np.float32))
    fields: dict[str, object] = {"padding": 1, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    path = tmp_path / "m.tflite"
    path.write_bytes(one_operator("CONV_2D", [x, weights], y, "Conv2DOptions", fields))
    with pytest.raises(ModelError, match="kernel of `conv` spans 3") as told:
        load(path, dims={}, shapes={})
    assert "--shape in0=" in told.value.hint
    assert load(path, dims={}, shapes={"in0": (1, 5, 6, 1)})[0].outputs[0].shape == (1, 3, 4, 1)


def test_inputs_and_outputs_have_the_names_of_the_signature(tmp_path: Path) -> None:
    w = ModelWriter()
    w.subgraph()
    x, y = w.tensor(F4, "serving_default_x:0"), w.tensor(F4, "StatefulPartitionedCall:0")
    w.operator("ADD", [x, x], [y], "AddOptions")
    w.graph.inputs, w.graph.outputs = [x], [y]
    signature = w.schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex, signature.inputs, signature.outputs = "serving_default", 0, [], []
    for where, name, index in ((signature.inputs, "audio", x), (signature.outputs, "score", y)):
        entry = w.schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        where.append(entry)
    w.model.signatureDefs = [signature]
    (tmp_path / "m.tflite").write_bytes(w.finish())
    graph, _ = load(tmp_path / "m.tflite", dims={}, shapes={})
    assert [v.origin for v in graph.inputs] == ["audio"]
    assert graph.output_names == ["score"]


# Spectra ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [(1, 16), (1, 32), (4, 8), (2, 4)])
@pytest.mark.parametrize("part", ["COMPLEX_ABS", "REAL", "IMAG", "CAST"])
def test_a_transform_and_a_part_of_it(points: tuple[int, int], part: str, tmp_path: Path) -> None:
    w = ModelWriter()
    w.subgraph()
    bins = points[1] // 2 + 1
    x, length = (
        w.tensor(Tensor((3, points[0], 16), "float32"), "x"),
        w.tensor(Tensor((2,), "int32", data=np.array(points, np.int32)), "n"),
    )
    z, y = w.tensor(Tensor((3, points[0], bins), "complex64"), "z"), w.tensor(Tensor((3 * points[0], bins), "float32"), "y")
    flat = w.tensor(Tensor((3 * points[0], bins), "complex64"), "flat")
    shape = w.tensor(Tensor((2,), "int32", data=np.array([-1, bins], np.int32)), "shape")
    w.operator("RFFT2D", [x, length], [z], "Rfft2dOptions", version=1)
    w.operator("RESHAPE", [z, shape], [flat], version=1)
    fields: dict[str, object] = {"inDataType": 8, "outDataType": 0} if part == "CAST" else {}
    w.operator(part, [flat], [y], "CastOptions" if part == "CAST" else "", fields, 1)
    w.graph.inputs, w.graph.outputs = [x], [y]
    assert_like_litert(w.finish(), tmp_path, [numbers(3, points[0], 16)])


# Detection --------------------------------------------------------------------------------------------------------------


def detector(each: int = 1, **other: object) -> bytes:
    from flatbuffers import flexbuffers

    rng = np.random.default_rng(3)
    w = ModelWriter()
    w.subgraph()
    anchors = np.concatenate([rng.random((30, 2)), rng.random((30, 2)) * 0.4 + 0.1], 1).astype(np.float32)
    ins = [Tensor((1, 30, 4), "float32"), Tensor((1, 30, 4), "float32"), Tensor((30, 4), "float32", data=anchors)]
    outs = [Tensor((1, 8 * each, 4), "float32"), *[Tensor((1, 8 * each), "float32")] * 2, Tensor((1,), "float32")]
    places = [w.tensor(t, f"in{n}") for n, t in enumerate(ins)]
    w.graph.outputs = [w.tensor(t, f"out{n}") for n, t in enumerate(outs)]
    w.graph.inputs = places[:2]
    w.operator("CUSTOM", places, w.graph.outputs, version=1)
    w.model.operatorCodes[0].customCode = "TFLite_Detection_PostProcess"
    fields = {
        "max_detections": 8, "max_classes_per_detection": 1, "detections_per_class": 100, "use_regular_nms": False,
        "nms_score_threshold": 0.3, "nms_iou_threshold": 0.4, "num_classes": 3, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0,
        "w_scale": 5.0, **other,
    }  # fmt: skip
    w.graph.operators[0].customOptions = np.frombuffer(bytes(flexbuffers.Dumps(fields)), np.uint8)
    return w.finish()


def test_detections_are_the_best_boxes_that_do_not_overlap(tmp_path: Path) -> None:
    scores = np.random.default_rng(4).random((1, 30, 4)).astype(np.float32)
    assert_like_litert(detector(), tmp_path, [numbers(1, 30, 4), scores])


@pytest.mark.parametrize("other", [
    {"use_regular_nms": True}, {"use_regular_nms": True, "detections_per_class": 2, "nms_score_threshold": 0.8},
    {"max_classes_per_detection": 2}, {"max_classes_per_detection": 3, "nms_score_threshold": 0.7},
])  # fmt: skip
def test_detections_class_by_class_and_of_several_classes(other: dict[str, object], tmp_path: Path) -> None:
    scores = np.random.default_rng(4).random((1, 30, 4)).astype(np.float32)
    if "use_regular_nms" in other:
        scores = (np.round(scores * 8) / 8).astype(np.float32)  # equal ones come in the order of the classes
    each = int(str(other.get("max_classes_per_detection", 1)))
    data, feeds = detector(each, **other), [numbers(1, 30, 4), scores]
    (tmp_path / "m.tflite").write_bytes(data)
    wanted, made = all_by_litert(tmp_path / "m.tflite", [feeds])[0], all_by_reference(tmp_path / "m.tflite", [feeds])[0]
    count = int(wanted[3][0]) * each  # LiteRT writes nothing behind them
    assert int(made[3][0]) * each == count and all(a.shape == b.shape for a, b in zip(wanted, made, strict=True))
    assert all(np.allclose(a[:, :count], b[:, :count], atol=1e-5) for a, b in zip(wanted[:3], made[:3], strict=True))
