"""What a faulty ONNX file says. One test per message: slug, literals, place and hint, and never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from intaglio.errors import ModelError
from intaglio.frontends.onnx import check, load
from support.onnx_models import BOOL, FLOAT, INT64, ints, model, node, saved, value


def error_of(proto: Any, folder: Path, **options: Any) -> ModelError:
    path = saved(proto, folder)
    with pytest.raises(ModelError) as caught:
        load(path, **options)
    text = str(caught.value)
    assert text.startswith(f"error[{caught.value.slug}]: ")
    assert "hint: " in text
    assert "\x1b" not in text
    return caught.value


RELU = model([node("Relu", "x", "y")])


# The container ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 a zip file", b"\x00" * 64, b"hello, world\n", bytes(i * 73 % 251 for i in range(512))]
)
def test_a_file_that_is_no_model_is_not_a_model(content: bytes, tmp_path: Path) -> None:
    assert error_of(content, tmp_path).slug in ("not-a-model", "truncated-model")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "nothing.onnx")


def test_a_model_cut_at_any_byte_is_an_error(tmp_path: Path) -> None:
    whole = model([node("Relu", "x", "t"), node("Add", "t c", "y")], constants={"c": np.ones((1, 4), np.float32)})
    content = whole.SerializeToString()
    for end in range(1, len(content)):
        path = saved(content[:end], tmp_path)
        try:
            load(path)
        except ModelError as error:
            assert error.hint  # noqa: PT017 (a cut between two fields may still be a model)


def test_a_file_in_the_format_of_onnx_runtime_is_told_as_such(tmp_path: Path) -> None:
    error = error_of(b"\x20\0\0\0ORTM" + bytes(64), tmp_path)
    assert error.slug == "not-a-model" and error.hint == "give the ONNX file that it was converted from"


def test_a_cut_model_is_called_truncated(tmp_path: Path) -> None:
    content = RELU.SerializeToString()
    assert error_of(content[: len(content) // 2], tmp_path).slug == "truncated-model"


def test_nesting_beyond_protobuf_is_an_error(tmp_path: Path) -> None:
    inner = b""
    for _ in range(200):  # attribute g -> graph -> node -> attribute ...
        attribute = b"\x32" + _length(inner) + inner
        one = b"\x2a" + _length(attribute) + attribute
        inner = b"\x0a" + _length(one) + one
    content = b"\x08\x0a" + b"\x3a" + _length(inner) + inner + b"\x42\x02\x10\x15"
    assert error_of(content, tmp_path).slug in ("not-a-model", "bad-graph")


def _length(data: bytes) -> bytes:
    size, out = len(data), b""
    while size >= 0x80:
        out, size = out + bytes([size & 0x7F | 0x80]), size >> 7
    return out + bytes([size])


def test_a_newer_opset_is_named_with_the_newest_known(tmp_path: Path) -> None:
    error = error_of(model([node("Relu", "x", "y")], opset=999), tmp_path)
    assert (error.slug, "999" in error.message) == ("unsupported-opset", True)


def test_a_newer_file_format_is_unsupported(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")])
    proto.ir_version = 1000
    assert error_of(proto, tmp_path).slug == "unsupported-opset"


# The graph ----------------------------------------------------------------------------------------------------------

NESTED = helper.make_graph([node("Relu", "nobody", "t")], "b", [], [value("t", None)])

GRAPHS: dict[str, tuple[Any, str]] = {
    "cycle": (model([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")]), "cycle"),
    "duplicate output": (model([node("Relu", "x", "y"), node("Abs", "x", "y")]), "already"),
    "undefined input": (model([node("Relu", "nothing", "y")]), "nothing defines"),
    "undefined output": (model([node("Relu", "x", "z")]), "no node computes"),
    "shadowed initializer": (
        model([node("Relu", "x", "c"), node("Relu", "c", "y")], constants={"c": np.ones(4, np.float32)}),
        "already",
    ),
    "no outputs": (model([node("Relu", "x", "y")], outputs=[]), "no outputs"),
    "missing capture": (
        model([node("If", "x", "y", then_branch=NESTED, else_branch=NESTED)], [value("x", [], BOOL)]),
        "nothing defines",
    ),
    "dead duplicate": (model([node("Relu", "x", "y"), node("Abs", "x", "d"), node("Exp", "x", "d")]), "already"),
    "missing operand": (model([node("Add", "x", "y")]), "missing"),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_broken_graph_is_told(name: str, tmp_path: Path) -> None:
    proto, text = GRAPHS[name]
    error = error_of(proto, tmp_path)
    assert error.slug == "bad-graph"
    assert text in error.message


def test_a_function_that_calls_itself_is_an_error(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    body = helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="own")], opsets)
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    error = error_of(model([call], functions=[body], opsets=[helper.make_opsetid("own", 1)]), tmp_path)
    assert error.slug == "bad-graph"
    assert "calls itself" in error.message


def test_functions_nested_over_the_limit_are_an_error(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = []
    for i in range(40):
        inner = helper.make_node(f"F{i + 1}", ["a"], ["b"], domain="own") if i < 39 else node("Relu", "a", "b")
        functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], [inner], opsets))
    call = helper.make_node("F0", ["x"], ["y"], domain="own")
    error = error_of(model([call], functions=functions, opsets=[helper.make_opsetid("own", 1)]), tmp_path)
    assert error.slug == "bad-graph"
    assert "nested" in error.message


def test_an_unknown_operator_is_named_with_its_node(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "t"), helper.make_node("Frobnicate", ["t"], ["y"], name="/head/Frob")])
    error = error_of(proto, tmp_path)
    assert error.slug == "unsupported-operator"
    assert "`Frobnicate` in node `/head/Frob`" in error.message
    assert error.where == "model.onnx, node 2 of 2"


def test_an_unknown_domain_is_unsupported(tmp_path: Path) -> None:
    assert error_of(model([node("Relu", "x", "y", domain="acme")]), tmp_path).slug == "unsupported-operator"


def test_check_lists_every_problem_at_once(tmp_path: Path) -> None:
    nodes = [node("Foo", "x", "a"), node("Relu", "a", "b"), node("Bar", "x", "c"), node("Add", "b c", "y")]
    problems = check(saved(model(nodes), tmp_path))
    assert [(p.op, p.node) for p in problems] == [("Foo", "Foo_0"), ("Bar", "Bar_2")]
    assert all(p.reason and p.hint for p in problems)


def test_check_of_a_good_model_lists_nothing(tmp_path: Path) -> None:
    assert check(saved(RELU, tmp_path)) == []


def test_a_name_that_is_not_utf8_is_told(tmp_path: Path) -> None:
    content = model([node("Relu", "xyz", "y")], [value("xyz", [2])]).SerializeToString()
    assert "UTF-8" in error_of(content.replace(b"xyz", b"x\xffz"), tmp_path).message


# Shapes and data ----------------------------------------------------------------------------------------------------


def test_a_symbolic_dimension_asks_for_the_option_that_pins_it(tmp_path: Path) -> None:
    error = error_of(model([node("Relu", "x", "y")], [value("x", ["N", 3, "width"])]), tmp_path)
    assert error.slug == "dynamic-dimension"
    assert error.hint == "give `--dim width=N`, a range (`--dim width=1..N`), or `--shape x=1,3,N`"


def test_an_unnamed_dimension_asks_for_a_shape(tmp_path: Path) -> None:
    error = error_of(model([node("Relu", "x", "y")], [value("x", [1, None])]), tmp_path)
    assert (error.slug, error.hint) == ("dynamic-dimension", "give `--shape x=1,N`, where a size may be a range (`1..N`)")


def test_all_open_dimensions_are_told_at_once(tmp_path: Path) -> None:
    inputs = [value("x", ["batch", "width"]), value("state", [2, None, 4]), value("mask", ["batch", "width"])]
    error = error_of(model([node("Relu", "x", "y")], inputs), tmp_path)
    assert error.slug == "dynamic-dimension"
    assert error.hint == "give all sizes that are open: `--dim width=N --shape state=2,N,4`, where a size may be a range (`1..N`)"


def test_an_operator_of_onnx_runtime_is_told_by_name_though_its_domain_is_not_declared(tmp_path: Path) -> None:
    error = error_of(model([node("GreedySearch", "x", "y", domain="com.microsoft")]), tmp_path)
    assert "no operator `GreedySearch` in opset 1 of `com.microsoft`" in error.message


def test_an_unknown_rank_asks_for_a_shape(tmp_path: Path) -> None:
    assert error_of(model([node("Relu", "x", "y")], [value("x", None)]), tmp_path).slug == "dynamic-dimension"


PINS: list[tuple[dict[str, Any], str]] = [
    ({"shapes": {"x": (1, 5)}}, "shape-mismatch"),
    ({"shapes": {"in0": (1, 4, 1)}}, "shape-mismatch"),
    ({"shapes": {"z": (1, 4)}}, "unknown-input"),
    ({"dims": {"T": 3}}, "unknown-dimension"),
    ({"shapes": {"x": (1, 4), "in0": (2, 4)}}, "shape-mismatch"),
    ({"states": [("x", "nothing")]}, "unknown-input"),
]


@pytest.mark.parametrize(("options", "slug"), PINS)
def test_a_request_that_contradicts_the_model_is_told(options: dict[str, Any], slug: str, tmp_path: Path) -> None:
    assert error_of(RELU, tmp_path, **options).slug == slug


def test_inputs_that_share_a_dimension_must_agree(tmp_path: Path) -> None:
    proto = model([node("Add", "x z", "y")], [value("x", [1, "T"]), value("z", [1, "T"])])
    error = error_of(proto, tmp_path, shapes={"x": (1, 3), "z": (1, 5)})
    assert error.slug == "shape-mismatch"
    assert "`T` is 3" in error.message


def _tensor(change: Callable[[Any], None]) -> Any:
    proto = model([node("Add", "x c", "y")], constants={"c": np.ones((1, 4), np.float32)})
    change(proto.graph.initializer[0])
    return proto


def _twice(tensor: Any) -> None:
    tensor.float_data.extend([1.0] * 4)


def _dims(*dims: int) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        tensor.dims[:] = dims

    return change


def _kind(kind: int) -> Callable[[Any], None]:
    def change(tensor: Any) -> None:
        tensor.data_type = kind

    return change


TENSORS: dict[str, tuple[Callable[[Any], None], str]] = {
    "raw data short": (_dims(1, 5), "bad-tensor"),
    "raw data long": (_dims(1, 3), "bad-tensor"),
    "given twice": (_twice, "bad-tensor"),
    "negative dimension": (_dims(-1, 4), "bad-tensor"),
    "product that overflows": (_dims(2**33, 2**33), "too-large"),
    "product that wraps to zero": (_dims(2**32, 2**32, 2**32), "too-large"),
    "rank over 8": (_dims(*[1] * 9), "bad-tensor"),
    "unknown type": (_kind(77), "unsupported-type"),
    "fewer strings than the shape says": (_kind(TensorProto.STRING), "bad-tensor"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_malformed_tensor_is_told(name: str, tmp_path: Path) -> None:
    change, slug = TENSORS[name]
    assert error_of(_tensor(change), tmp_path).slug == slug


def test_shapes_that_do_not_fit_are_told_with_both_shapes(tmp_path: Path) -> None:
    proto = model([node("MatMul", "x w", "y")], constants={"w": np.ones((5, 2), np.float32)})
    error = error_of(proto, tmp_path)
    assert error.slug == "shape-mismatch"
    assert "[1, 4]" in error.message


def test_operands_of_different_types_are_told(tmp_path: Path) -> None:
    proto = model([node("Add", "x c", "y")], constants={"c": ints(1)})
    assert "f32, i64" in error_of(proto, tmp_path).message


def test_an_operator_that_does_not_take_strings_is_told(tmp_path: Path) -> None:
    error = error_of(model([node("Relu", "x", "y")], [value("x", [1], TensorProto.STRING)]), tmp_path)
    assert (error.slug, "operand 0 of `Relu` is a tensor of strings" in error.message) == ("unsupported-operator", True)
    assert error.hint


def test_a_shape_that_depends_on_data_is_unsupported_with_a_way_out(tmp_path: Path) -> None:
    proto = model([node("Reshape", "x s", "y")], [value("x", [1, 4]), value("s", [2], INT64)])
    error = error_of(proto, tmp_path)
    assert error.slug == "unsupported-operator"
    assert "depends on data" in error.message


# Attributes ---------------------------------------------------------------------------------------------------------

IMAGE = [value("x", [1, 2, 8, 8])]
KERNEL = {"w": np.ones((4, 2, 3, 3), np.float32)}
ATTRIBUTES: dict[str, Any] = {
    "stride 0": model([node("Conv", "x w", "y", strides=[0, 1])], IMAGE, constants=KERNEL),
    "group 0": model([node("Conv", "x w", "y", group=0)], IMAGE, constants=KERNEL),
    "huge pads": model([node("Conv", "x w", "y", pads=[2**40] * 4)], IMAGE, constants=KERNEL),
    "pads that cut everything": model([node("Conv", "x w", "y", pads=[-9] * 4)], IMAGE, constants=KERNEL),
    "pads for another rank": model([node("Conv", "x w", "y", pads=[1, 1])], IMAGE, constants=KERNEL),
    "kernel shape unlike the weights": model([node("Conv", "x w", "y", kernel_shape=[5, 5])], IMAGE, constants=KERNEL),
    "block size 0": model([node("DepthToSpace", "x", "y", blocksize=0)], IMAGE),
    "axis out of range": model([node("Softmax", "x", "y", axis=7)]),
    "axis twice": model([node("ReduceSum", "x a", "y")], constants={"a": ints(0, -2)}),
    "slice step 0": model([node("Slice", "x a b a s", "y")], constants={"a": ints(0), "b": ints(1), "s": ints(0)}),
    "gather out of range": model([node("Gather", "x i", "y", axis=1)], constants={"i": ints(4)}),
    "scatter out of range": model(
        [node("ScatterElements", "x i u", "y", axis=1)],
        constants={"i": np.array([[9]], np.int64), "u": np.ones((1, 1), np.float32)},
    ),
    "reshape with two -1": model([node("Reshape", "x s", "y")], constants={"s": ints(-1, -1)}),
    "resize by 0": model([node("Resize", "x _ s", "y")], IMAGE, constants={"s": np.array([1, 1, 0, 1], np.float32)}),
    "resize by NaN": model([node("Resize", "x _ s", "y")], IMAGE, constants={"s": np.array([1, 1, np.nan, 1], np.float32)}),
    "wrong type of attribute": model([node("Softmax", "x", "y", axis="last")]),
    "perm that is none": model([node("Transpose", "x", "y", perm=[0, 0])]),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_attribute_out_of_range_is_told(name: str, tmp_path: Path) -> None:
    error = error_of(ATTRIBUTES[name], tmp_path)
    assert error.slug == "bad-attribute"
    assert error.where == "model.onnx, node 1 of 1"


def test_a_kernel_larger_than_its_input_is_told(tmp_path: Path) -> None:
    proto = model([node("MaxPool", "x", "y", kernel_shape=[9, 9])], IMAGE)
    assert "spans 9 elements" in error_of(proto, tmp_path).message


def test_a_slice_by_the_smallest_step_is_one_element(tmp_path: Path) -> None:
    constants = {"a": ints(3), "b": ints(-(2**63)), "s": ints(-(2**63)), "x1": ints(1)}
    graph, _ = load(saved(model([node("Slice", "x a b x1 s", "y")], constants=constants), tmp_path))
    assert graph.outputs[0].shape == (1, 1)


def test_an_endless_loop_is_too_large(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Identity", "c", "d"), node("Relu", "v", "w")], "b",
        [value("i", [], INT64), value("c", [], BOOL), value("v", None)], [value("d", [], BOOL), value("w", None)],
    )  # fmt: skip
    proto = model([node("Loop", "m t x", "y", body=body)], constants={"m": np.array(2**63 - 1), "t": np.array(True)})
    assert error_of(proto, tmp_path).slug == "too-large"


# Quantisation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_makes_no_sense_is_told(scale: float, tmp_path: Path) -> None:
    constants = {"s": np.array(scale, np.float32), "z": np.array(3, np.uint8)}
    error = error_of(model([node("QuantizeLinear", "x s z", "y")], constants=constants), tmp_path)
    assert error.slug == "bad-quantisation"


def test_a_scale_per_channel_must_have_one_entry_per_channel(tmp_path: Path) -> None:
    constants = {"s": np.ones(3, np.float32), "z": np.zeros(3, np.uint8)}
    error = error_of(model([node("QuantizeLinear", "x s z", "y", axis=1)], constants=constants), tmp_path)
    assert error.slug == "bad-quantisation"


def test_a_quantisation_axis_beyond_the_rank_is_told(tmp_path: Path) -> None:
    constants = {"s": np.ones(4, np.float32), "z": np.zeros(4, np.uint8)}
    error = error_of(model([node("QuantizeLinear", "x s z", "y", axis=5)], constants=constants), tmp_path)
    assert error.slug == "bad-attribute"


# External data ------------------------------------------------------------------------------------------------------


def _external(**entries: str) -> Any:
    proto = model([node("Add", "x c", "y")])
    tensor = proto.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.data_location = "c", FLOAT, 1
    tensor.dims[:] = [1, 4]
    for key, text in entries.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    return proto


EXTERNAL: dict[str, dict[str, str]] = {
    "missing file": {"location": "nothing.bin"},
    "no location": {"offset": "0"},
    "absolute": {"location": "/etc/passwd"},
    "parent": {"location": "a/../../secret.bin"},
    "link": {"location": "link.bin"},
    "link in a parent": {"location": "folder/data.bin"},
    "fifo": {"location": "fifo"},
    "folder": {"location": "real"},
    "past the end": {"location": "data.bin", "offset": "8"},
    "negative offset": {"location": "data.bin", "offset": "-4"},
    "negative length": {"location": "data.bin", "length": "-16"},
    "short length": {"location": "data.bin", "length": "4"},
    "not a number": {"location": "data.bin", "offset": "zero"},
    "unknown key": {"location": "data.bin", "command": "rm"},
    "a hard link": {"location": "hard.bin"},
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_external_data_outside_of_the_rules_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "data.bin").write_bytes(np.ones(4, np.float32).tobytes())
    (tmp_path / "link.bin").symlink_to(tmp_path / "data.bin")
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "other").write_bytes(np.ones(4, np.float32).tobytes())
    os.link(tmp_path / "other", tmp_path / "hard.bin")
    os.mkfifo(tmp_path / "fifo")
    assert error_of(_external(**EXTERNAL[name]), tmp_path).slug == "external-data"


def test_external_data_beside_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(16) + np.arange(4, dtype=np.float32).tobytes())
    graph, _ = load(saved(_external(location="data.bin", offset="16", length="16"), tmp_path))
    data = graph.constants()[0].data
    assert data is not None
    assert data.tolist() == [[0.0, 1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("domain", "op", "hint"),
    [
        ("com.microsoft", "NhwcSomething", "ORT_ENABLE_BASIC"),
        ("com.microsoft.nchwc", "Conv", "ORT_ENABLE_BASIC"),
        ("com.microsoft", "GatedDeltaNet", "before its optimiser"),
        ("com.microsoft", "BeamSearch", "compile the decoder alone"),
        ("com.microsoft", "RemovePadding", "without padding"),
        ("com.microsoft", "QOrderedMatMul", "MatMulNBits"),
        ("com.microsoft", "DynamicTimeWarping", "as long as the data makes it"),
        ("ai.onnx.contrib", "BertTokenizer", "cut the model after it"),
        ("org.pytorch.aten", "ATen", "`.pt2`"),
        ("TRT", "EfficientNMS_TRT", "select boxes in your code"),
    ],
)
def test_operators_of_others_say_what_to_do(domain: str, op: str, hint: str, tmp_path: Path) -> None:
    foreign = helper.make_node(op, ["x"], ["y"], domain=domain)
    error = error_of(model([foreign], opsets=[helper.make_opsetid(domain, 1)]), tmp_path)
    assert error.slug == "unsupported-operator" and hint in error.hint
