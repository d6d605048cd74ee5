"""Random operators: by a generator with a seed (`ops/random.py`), or, with `--random input`, as inputs of the model."""

from __future__ import annotations

import numpy as np

from intaglio.frontends import drawing
from intaglio.frontends.building import cast, expand
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.tensors import DTYPES, dtype_of
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType, Shape, TensorType
from intaglio.ops.binary import Add, GreaterEqual, Less, Mul
from intaglio.ops.random import RUN_STATE, RandomUniform


def uniform(call: OnnxCall, shape: Shape) -> Value:
    """Numbers from 0 to below 1."""
    walk = call.walk
    if moves(shape):
        raise Fault("unsupported-operator", f"`{call.op}` has a size that is not known at compile time", "pin it with `--dim`")
    if walk.random_run is None:
        walk.random_run = Value("", TensorType(DType.U32, (1,)), RUN_STATE)
        walk.notes.append("random numbers are drawn by a generator with a seed; `--random input` makes them inputs")
    seed = walk.random_seed
    if "seed" in call.attributes:
        seed ^= int(np.float32(call.real("seed")).view(np.uint32))
    walk.random_streams += 1
    return call.emit(RandomUniform(shape, seed, walk.random_streams), walk.random_run)


def normal(call: OnnxCall, shape: Shape) -> Value:
    return drawing.normal(call, uniform(call, shape), uniform(call, shape))


def given(call: OnnxCall, dtype: DType, shape: Shape) -> Value | None:
    """With `--random input`: the numbers are an input, named as the tensor that they are."""
    walk = call.walk
    if not walk.random_inputs or walk.depth > 1:
        return None
    value = Value("", TensorType(dtype, shape), walk.origins[0])
    walk.more_inputs.append(value)
    return value


def _scaled(call: OnnxCall, drawn: Value, factor: float, offset: float) -> Value:
    y = drawn if factor == 1.0 else call.emit(Mul(), drawn, call.like(factor, drawn))
    return y if offset == 0.0 else call.emit(Add(), y, call.like(offset, drawn))


@importer("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(call: OnnxCall) -> Answer:
    if call.op.endswith("Like"):
        shape, dtype = call.value(0).shape, call.value(0).dtype
    else:
        shape, dtype = tuple(call.ints("shape") or ()), DType.F32
    if "dtype" in call.attributes:
        dtype = dtype_of(call.integer("dtype"), f"the result of `{call.op}`")
    if not dtype.is_float or any(n < 0 for n in shape):
        raise Fault("bad-attribute", f"`{call.op}` of {dtype.value}{list(shape)} is not valid")
    if (value := given(call, dtype, shape)) is not None:
        return value
    if "Normal" in call.op:
        made = _scaled(call, normal(call, shape), call.real("scale", 1.0), call.real("mean", 0.0))
    else:
        low, high = call.real("low", 0.0), call.real("high", 1.0)
        made = _scaled(call, uniform(call, shape), high - low, low)
    return cast(call, made, dtype)


@importer("Bernoulli")
def bernoulli(call: OnnxCall) -> Answer:
    x = call.value(0)
    code = call.integer("dtype") or next(code for code, dtype in DTYPES.items() if dtype is x.dtype)
    dtype = dtype_of(code, "the result of `Bernoulli`")
    if (value := given(call, dtype, x.shape)) is not None:
        return value
    return cast(call, call.emit(Less(), uniform(call, x.shape), cast(call, x, DType.F32)), dtype)


@importer("Multinomial")
def multinomial(call: OnnxCall) -> Answer:
    x, count = call.value(0), call.integer("sample_size", 1)
    dtype = dtype_of(call.integer("dtype", 6), "the result of `Multinomial`")
    if len(x.shape) != 2 or count < 1 or dtype not in (DType.I32, DType.I64):
        raise Fault("bad-attribute", f"`Multinomial` of {list(x.shape)} with {count} samples is not valid")
    batch = x.shape[0]
    if (value := given(call, dtype, (batch, count))) is not None:
        return value
    return drawing.picked(call, x, uniform(call, (batch, count)), dtype)


def dropped(call: OnnxCall, x: Value, ratio: float) -> tuple[Value, Value]:
    """Dropout that is at work: what is kept is larger, and the mask of it."""
    keep = call.emit(GreaterEqual(), uniform(call, x.shape), call.constant(np.asarray(ratio, np.float32)))
    if ratio >= 1.0:
        return expand(call, call.like(0.0, x), x.shape), keep
    scaled = call.emit(Mul(), x, call.like(1.0 / (1.0 - ratio), x))
    return call.emit(Mul(), scaled, cast(call, keep, x.dtype)), keep
