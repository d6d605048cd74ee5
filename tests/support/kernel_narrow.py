"""Cases of products whose weights are stored as i8 or f16: twins of the tiled ones, made by rounding their weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.matmul import MatMul
from intaglio.ops.recurrent import OPERANDS, Recurrent
from support.kernel_cases import F, H
from support.kernel_running import Case, case
from support.kernel_tiles import TILED

NARROW: dict[str, Case] = {}
_TILES = ("1x4", "6x2")
_RECURRENT = (
    "", "long", "of one", "without bias", "both ways", "with lengths", "batch first", "computed", "computed, both ways",
    "with peepholes", "linear before reset", "linear before reset, both ways", "linear before reset, computed",
    "linear before reset without bias",
)  # fmt: skip


def _chosen(name: str, like: Case) -> bool:
    """One of each way through a kernel: tiles of a few sizes, recurrent layers in their main forms."""
    if not isinstance(like.op, (Conv, ConvTranspose, MatMul, Recurrent)):
        return False
    x, weights = like.operands[:2]
    if x is None or weights is None or x.dtype != F or weights.size == 0:
        return False
    if name.startswith("winograd"):  # takes weights of f32 alone
        return False
    if " in tiles " in name:
        return name.endswith(_TILES)
    return not isinstance(like.op, Recurrent) or name.removeprefix(like.op.NAME).strip() in _RECURRENT


def halved(like: Case) -> Case:
    places = (1, 2) if isinstance(like.op, Recurrent) else (1,)
    arrays = [a.astype(H) if a is not None and n in places else a for n, a in enumerate(like.operands)]
    return replace(like, operands=tuple(arrays))


def whole(like: Case) -> Case:
    """i8 weights, small enough that sums stay in the range of the activations after them."""
    if not isinstance(like.op, Recurrent):
        weights = like.operands[1]
        assert weights is not None
        return replace(like, operands=(like.operands[0], _steps(weights, 1.5), *like.operands[2:]))
    arrays = [*like.operands, *[None] * (OPERANDS - len(like.operands))]
    for n in (1, 2):
        weights = arrays[n]
        assert weights is not None
        units = np.arange(weights.shape[0] * weights.shape[1], dtype=F)
        arrays[n], arrays[7 + n] = _steps(weights, 40.0), ((units % 7 + 20) / 1000).reshape(weights.shape[:2])
    known = like.constant | {8, 9} if like.constant else like.constant
    return replace(like, operands=tuple(arrays), constant=known)


def _steps(
    weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]], times: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    steps = np.clip(np.rint(weights * times), -127, 127)
    return np.asarray(steps, np.int8)


for _name, _like in TILED.items():
    if _chosen(_name, _like):
        NARROW[f"{_name} with weights of f16"] = halved(_like)
        NARROW[f"{_name} with weights of i8"] = whole(_like)
_ODD = np.array([0.0, -0.0, 6e-8, -5.9e-5, 6.11e-5, 65504.0, -65504.0, 1.0, 0.1, -2.5, 1e-7, 3e-5], H)
_ENDS = np.array([-128, 127, -1, 0, 1, -127, 64, -64, 3, 100, -100, 7], np.int8)
for _kind, _weights in (("f16", _ODD), ("i8", _ENDS)):  # every number by itself: exact
    NARROW[f"matmul by odd numbers of {_kind}"] = case(MatMul(), np.ones((1, 1), F), _weights.reshape(1, -1), constant=[1])
NARROW["matmul by infinities of f16"] = case(MatMul(), np.ones((1, 1), F), np.full((1, 8), -np.inf, H), constant=[1])
