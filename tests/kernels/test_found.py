"""Kernels that find as many as there are: counted and written as numpy does, and never more than there is room for."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import Bounds
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.choice import lower_node
from intaglio.kernels.interpret import interpret
from intaglio.kernels.job import Lowered, Scratch
from intaglio.kernels.loop import SIZE_OUT_OF_BOUNDS
from intaglio.ops.base import Op
from intaglio.ops.found import AsSize, NonMaxSuppression, NonZero, Unique
from intaglio.targets.target import find_target

RANDOM = np.random.default_rng(3)


def lowered(op: Op, *arrays: Array) -> tuple[Node, Lowered]:
    types = [TensorType(DType.of(a), a.shape) for a in arrays]
    values = [Value(f"v{n}", t) for n, t in enumerate(types)]
    node = Node(op, [*values], [Value(f"y{n}", t) for n, t in enumerate(op.infer(*types))], "/node")
    return node, lower_node(node, find_target("generic"))


def run(op: Op, *arrays: Array) -> tuple[int, list[Array]]:
    """The error code, and the results as they lie in memory that has room for the most."""
    node, made = lowered(op, *arrays)
    results = [np.full(v.type.bytes // v.dtype.bytes, 77, v.dtype.numpy) for v in node.outputs]
    memory: list[Array] = []
    for param, argument in zip(made.kernel.params, made.arguments, strict=True):
        if isinstance(argument, Scratch):
            memory.append(np.full(argument.bytes // param.dtype.bytes, 77, param.dtype.numpy))
        else:
            assert isinstance(argument, Value)
            known = argument in node.outputs
            memory.append(results[node.outputs.index(argument)] if known else arrays[node.inputs.index(argument)].reshape(-1))
    return interpret(made.kernel, memory), results


def count(high: int) -> int:
    return Bounds({"n": (0, high)}).size("n")


CASES: dict[str, tuple[Op, tuple[Array, ...]]] = {
    "nonzero": (NonZero(count(30)), (RANDOM.integers(-1, 2, (2, 3, 5)).astype(np.int32),)),
    "nonzero of a vector": (NonZero(count(9)), ((RANDOM.standard_normal(9) > 0),)),
    "nonzero of nothing but zeros": (NonZero(count(4)), (np.zeros((2, 2), np.float32),)),
    "boxes": (
        NonMaxSuppression(count(24), 4, 0.2, 0.3),
        (RANDOM.random((2, 15, 4)).astype(np.float32), RANDOM.random((2, 3, 15)).astype(np.float32)),
    ),
    "centred boxes": (
        NonMaxSuppression(count(40), 20, 0.5, centred=True),
        (RANDOM.random((1, 20, 4)).astype(np.float32), RANDOM.random((1, 2, 20)).astype(np.float32)),
    ),
    "boxes by computed limits": (
        NonMaxSuppression(count(24), 4),
        (
            RANDOM.random((2, 15, 4)).astype(np.float32), RANDOM.random((2, 3, 15)).astype(np.float32), np.asarray(3),
            np.asarray(0.1, np.float32), np.asarray(0.4, np.float32),
        ),
    ),
    "unique": (Unique(count(12)), (RANDOM.integers(0, 5, (12, 1)).astype(np.int64),)),
    "unique rows, as they come": (Unique(count(12), sorted=False), (RANDOM.integers(0, 2, (12, 2)).astype(np.float32),)),
    "unique rows": (Unique(count(12)), (RANDOM.integers(0, 3, (12, 2)).astype(np.float32),)),
    "a size": (AsSize(count(9), 0, 9), (np.array([7], np.int64),)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_many_are_found_as_by_numpy(name: str) -> None:
    op, arrays = CASES[name]
    code, got = run(op, *arrays)
    assert code == 0
    for right, made in zip(op.reference(*arrays), got, strict=True):
        assert np.array_equal(made[: right.size], right.reshape(-1))
        assert (made[right.size :] == 77).all(), "nothing is written behind the last"


@pytest.mark.parametrize("number", [-1, 10, 2**40])
def test_a_number_outside_of_its_bounds_is_no_size(number: int) -> None:
    assert run(AsSize(count(9), 0, 9), np.array([number], np.int64))[0] == SIZE_OUT_OF_BOUNDS


def test_more_than_there_is_room_for_is_an_error() -> None:
    code, got = run(NonZero(count(3)), np.ones(5, np.float32))
    assert code == SIZE_OUT_OF_BOUNDS and (got[0] == 77).all()
