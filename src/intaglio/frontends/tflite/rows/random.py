"""Random operators: by a generator with a seed (`ops/random.py`), or, with `--random input`, as inputs of the model.

The seeds of the file count beside the one that is asked for. LiteRT draws other numbers, and others in every run.
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends import drawing
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.random import RUN_STATE, RandomUniform

Shape = tuple[int, ...]


def uniform(call: TFLiteCall, shape: Shape) -> Value:
    """Numbers from 0 to below 1."""
    walk, o = call.walk, call.options
    if walk.random_run is None:
        walk.random_run = Value("", TensorType(DType.U32, (1,)), RUN_STATE)
        walk.extra_inputs.append(walk.random_run)
        walk.notes.append("random numbers are drawn by a generator with a seed; `--random input` makes them inputs")
    walk.random_streams += 1
    seed = int(walk.random) ^ (int(o.Seed()) & 0xFFFFFFFF) ^ (int(o.Seed2()) * 0x9E3779B9 & 0xFFFFFFFF)
    return call.emit(RandomUniform(shape, seed, walk.random_streams), walk.random_run)


def _given(call: TFLiteCall, dtype: DType, shape: Shape) -> bool:
    """With `--random input`: the numbers are an input, named as the tensor that they are."""
    if call.walk.random != "input":
        return False
    if len(call.walk.active) > 1:
        raise Fault("unsupported-operator", "its numbers cannot be an input: it is in a branch or a loop", "use a seed")
    value = Value("", TensorType(dtype, shape), call.out().name)
    call.walk.extra_inputs.append(value)
    call.keep(value)
    return True


@importer("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random(call: TFLiteCall) -> None:
    shape = tuple(int(n) for n in np.asarray(call.known(0, "shape")).reshape(-1))
    if any(n < 0 for n in shape):
        raise Fault("bad-tensor", f"it has the shape {list(shape)}")
    if call.out().dtype is not DType.F32:
        raise Fault("unsupported-type", "random numbers other than f32 are not supported")
    if _given(call, DType.F32, shape):
        return
    if call.operator.op == "RANDOM_UNIFORM":
        call.give(uniform(call, shape))
    else:
        call.give(drawing.normal(call, uniform(call, shape), uniform(call, shape)))


@importer("MULTINOMIAL")
def multinomial(call: TFLiteCall) -> None:
    logits, count = call.value(0), int(np.asarray(call.known(1, "number of samples")).reshape(-1)[0])
    dtype = call.out().dtype
    if logits.type.rank != 2 or count < 1 or dtype not in (DType.I32, DType.I64) or not logits.dtype.is_float:
        raise Fault("bad-tensor", f"{count} samples of {logits.type} are not valid")
    shape = (logits.shape[0], count)
    if not _given(call, dtype, shape):
        call.give(drawing.picked(call, logits, uniform(call, shape), dtype))
