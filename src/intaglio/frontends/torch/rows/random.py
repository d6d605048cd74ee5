"""Random operators: by a generator with a seed (`ops/random.py`), or, with `--random input`, as inputs of the model.

PyTorch draws other numbers, and others in every run."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends import drawing
from intaglio.frontends.building import cast, expand, reshape
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType, Shape, TensorType, broadcast_shapes
from intaglio.ops.binary import Add, Div, Less, Max, Mul, Sub
from intaglio.ops.random import RUN_STATE, RandomUniform
from intaglio.ops.reduce import TopK
from intaglio.ops.unary import Floor, Log, Neg

_LARGEST = 1 << 24  # uniform numbers have 24 bits


def uniform(call: TorchCall, shape: Shape) -> Value:
    """Numbers from 0 to below 1."""
    walk = call.walk
    if moves(shape):
        raise unsupported(f"`{call.op}` has a size that is not known at compile time", "pin it with `--dim`")
    if walk.turn is not None:
        raise unsupported(f"`{call.op}` in a loop is not supported", "draw the numbers before the loop")
    if walk.random_run is None:
        walk.random_run = Value("", TensorType(DType.U32, (1,)), RUN_STATE)
        walk.notes.append("random numbers are drawn by a generator with a seed; `--random input` makes them inputs")
    walk.random_streams += 1
    return call.emit(RandomUniform(shape, int(walk.random), walk.random_streams), walk.random_run)


def _given(call: TorchCall, dtype: DType, shape: Shape) -> Value | None:
    """With `--random input`: the numbers are an input, named as the tensor that they are."""
    walk = call.walk
    if walk.random != "input":
        return None
    name = next((o for o in call.record.outputs if isinstance(o, str)), call.record.name)
    if name not in walk.labels or walk.turn is not None:
        raise unsupported("its numbers cannot be an input: it is in a branch or a loop", "use a seed")
    value = Value("", TensorType(dtype, shape), walk.labels[name])
    walk.more_inputs.append(value)
    return value


def _normal(call: TorchCall, shape: Shape) -> Value:
    return drawing.normal(call, uniform(call, shape), uniform(call, shape))


def _form(call: TorchCall) -> tuple[DType, Shape]:
    """Of the result: as asked, or like the first argument."""
    like = call.get("self")
    shape = tuple(call.ints("size")) if "size" in call.arguments else like.shape if isinstance(like, Value) else ()
    dtype = call.dtype() or (like.dtype if isinstance(like, Value) else DType.F32)
    if not dtype.is_float or any(n < 0 for n in shape):
        raise Fault("bad-attribute", f"`{call.op}` of {dtype.value}{list(shape)} is not valid")
    return dtype, shape


def _scaled(call: TorchCall, drawn: Value, factor: float, offset: float) -> Value:
    y = drawn if factor == 1.0 else call.emit(Mul(), drawn, call.like(factor, drawn))
    return y if offset == 0.0 else call.emit(Add(), y, call.like(offset, drawn))


@row("rand", "rand_like", "uniform", "randn", "randn_like", "exponential")
def drawn(call: TorchCall) -> Answer:
    dtype, shape = _form(call)
    if (value := _given(call, dtype, shape)) is not None:
        return value
    match call.op:
        case "randn" | "randn_like":
            made = _normal(call, shape)
        case "exponential":
            u = uniform(call, shape)
            waited = call.emit(Neg(), call.emit(Log(), call.emit(Sub(), call.like(1.0, u), u)))
            made = _scaled(call, waited, 1 / call.real("lambd", 1.0), 0.0)
        case _:
            low, high = call.real("from", 0.0), call.real("to", 1.0)
            made = _scaled(call, uniform(call, shape), high - low, low)
    return cast(call, made, dtype)


@row("normal", "normal_functional")
def normal(call: TorchCall) -> Answer:
    """Mean and deviation are numbers or tensors."""
    mean, deviation = call.get("mean", 0.0), call.get("std", 1.0)
    tensors = [v for v in (mean, deviation) if isinstance(v, Value)]
    if tensors:
        dtype, shape = tensors[0].dtype, broadcast_shapes(*(v.shape for v in tensors))
    else:
        dtype, shape = _form(call)
    if (value := _given(call, dtype, shape)) is not None:
        return value
    if not tensors:
        return cast(call, _scaled(call, _normal(call, shape), call.real("std", 1.0), call.real("mean", 0.0)), dtype)
    spread = call.emit(Mul(), cast(call, _normal(call, shape), dtype), call.typed(deviation, dtype))
    return call.emit(Add(), spread, call.typed(mean, dtype))


@row("randint", "randint_like")
def whole(call: TorchCall) -> Answer:
    low, high = call.integer("low", 0), call.integer("high")
    like = call.get("self")
    shape = like.shape if isinstance(like, Value) else tuple(call.ints("size"))
    dtype = call.dtype() or (like.dtype if isinstance(like, Value) else DType.I64)
    if not 0 < high - low <= _LARGEST or max(abs(low), abs(high)) > _LARGEST:
        raise unsupported(f"whole numbers from {low} to {high} are not supported", f"those up to {_LARGEST} are")
    if (value := _given(call, dtype, shape)) is not None:
        return value
    steps = call.emit(Floor(), _scaled(call, uniform(call, shape), float(high - low), 0.0))  # below high - low: rounded down
    return cast(call, call.emit(Add(), steps, call.like(low, steps)), dtype)


@row("bernoulli")
def bernoulli(call: TorchCall) -> Answer:
    """True where a uniform number is below the probability, which is the tensor itself unless there is another."""
    x, chance = call.tensor("self"), call.get("p")
    if (value := _given(call, x.dtype, x.shape)) is not None:
        return value
    limit = cast(call, x, DType.F32) if chance is None else call.typed(chance, DType.F32)
    return cast(call, call.emit(Less(), uniform(call, x.shape), expand(call, limit, x.shape)), x.dtype)


@row("randperm")
def permutation(call: TorchCall) -> Answer:
    """The order of as many uniform numbers."""
    n, dtype = call.integer("n"), call.dtype() or DType.I64
    call.bounded(n)
    if (value := _given(call, dtype, (n,))) is not None:
        return value
    if n < 1:
        return call.constant(np.zeros(0, dtype.numpy), dtype)
    return cast(call, call.emit_all(TopK(n, 0, False, True), uniform(call, (n,)))[1], dtype)


@row("multinomial")
def multinomial(call: TorchCall) -> Answer:
    """Without replacement: who waits least, where the waiting times are exponential."""
    x, count = call.tensor("self"), call.integer("num_samples")
    if len(x.shape) not in (1, 2) or count < 1 or x.shape[-1] < 1:
        raise Fault("bad-attribute", f"`multinomial` of {list(x.shape)} with {count} samples is not valid")
    shape = (*x.shape[:-1], count)
    if (value := _given(call, DType.I64, shape)) is not None:
        return value
    rows = cast(call, reshape(call, x, (math.prod(x.shape[:-1]), x.shape[-1])), DType.F32)
    if call.flag("replacement") or count == 1:
        picked = drawing.picked(call, call.emit(Log(), rows), uniform(call, (rows.shape[0], count)), DType.I64)
        return reshape(call, picked, shape)
    if count > rows.shape[1]:
        raise Fault("bad-attribute", f"`multinomial` of {count} out of {rows.shape[1]} without replacement is not valid")
    u = uniform(call, rows.shape)
    waited = call.emit(Neg(), call.emit(Log(), call.emit(Sub(), call.like(1.0, u), u)))
    waited = call.emit(Div(), call.emit(Max(), waited, call.like(2.0**-30, u)), rows)
    return reshape(call, call.emit_all(TopK(count, 1, False, True), waited)[1], shape)
