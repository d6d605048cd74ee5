"""Random numbers, by a hash of where they are: the run, the layer, the element. The same seed gives the same numbers everywhere.

    key   = mix(mix(seed + 0x9E3779B9 * run) + 0x85EBCA6B * stream)
    u(i)  = mix(mix(i * 0x9E3779B1 + key) + key) >> 8, times 2^-24

`mix` is the finaliser of MurmurHash3 for 32 bits. `run` counts the runs since the last reset, `stream` the random layers of the
model. All of it is arithmetic modulo 2^32, so there is no table and nothing to keep but the number of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need

RUN_STATE = "random_run"  # the name of the state that counts runs
RUN, STREAM, PLACE = 0x9E3779B9, 0x85EBCA6B, 0x9E3779B1
FIRST, SECOND = 0x85EBCA6B, 0xC2B2AE35


def mix(h: Array) -> Array:
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(FIRST)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(SECOND)
    mixed: Array = h ^ (h >> np.uint32(16))
    return mixed


@dataclass(frozen=True, slots=True)
class RandomUniform(Op):
    """random_uniform(run u32[1]) -> f32: numbers from 0 to below 1, in steps of 2^-24."""

    NAME: ClassVar[str] = "random_uniform"
    shape: tuple[int, ...] = ()
    seed: int = 0
    stream: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        run = need(self.NAME, types, 1, 1)[0]
        if run.dtype is not DType.U32 or run.elements != 1:
            raise BadOperator(f"`random_uniform` takes the number of the run as u32[1], got {run}")
        return (TensorType(DType.F32, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        run = arrays[0].reshape(1).astype(np.uint32)
        key = mix(mix(np.uint32(self.seed & 0xFFFFFFFF) + run * np.uint32(RUN)) + np.uint32(self.stream * STREAM & 0xFFFFFFFF))
        place = np.arange(int(np.prod(self.shape, dtype=np.int64)), dtype=np.uint32)
        bits = mix(mix(place * np.uint32(PLACE) + key) + key)
        return (((bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)).reshape(self.shape),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * 4
