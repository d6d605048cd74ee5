"""Cases of the integer operators: bit for bit."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.detection import SelectBoxes, SuppressBoxes
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.hybrid import HybridConv, HybridMatMul
from intaglio.ops.quantised import Lookup, QAdd, QConv, QMatMul, QMul, Requantize
from intaglio.ops.quantised_elementwise import Lift, QDiv
from intaglio.ops.quantised_functions import table16
from intaglio.ops.quantised_norms import QDense, QL2Norm, QLogSoftmax
from intaglio.ops.quantised_real import QRealMean
from intaglio.ops.quantised_recurrent import QLstm
from intaglio.ops.quantised_rows import QAveragePool, QMean, QResize, QSoftmax, mean_factor
from intaglio.ops.quantised_tables import Lookup16, QSoftmax16, ResizeBytes, Squash16
from intaglio.ops.signal import AutoScale, FixedRfft, RoundedRoot, input_order, split_twiddles, twiddles
from support.kernel_cases import real, whole
from support.kernel_running import Case, case

_M, _S = quantize_multiplier(0.0123)
_BIG, _UP = quantize_multiplier(1.7)


def image(*shape: int, dtype: type = np.int8) -> Array:
    info = np.iinfo(dtype)
    return whole(*shape, low=max(info.min, -200), high=min(info.max, 200), dtype=dtype)


def short(*shape: int) -> Array:
    return whole(*shape, low=-32768, high=32767, dtype=np.int16)


def boxes(count: int) -> Array:
    corner = np.abs(real(count, 2))
    return np.concatenate([corner, corner + np.abs(real(count, 2))], 1).astype(np.float32)


def scales(count: int) -> tuple[Array, Array]:
    """A multiplier and a shift per channel."""
    pairs = [quantize_multiplier(0.002 * (n + 1) * 1.37) for n in range(count)]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int32)


def qconv(shape: tuple[int, ...], weights: tuple[int, ...], op: QConv, dtype: type = np.int8, bias: type | None = np.int32) -> Case:
    b = None if bias is None else whole(weights[0], low=-99, high=99, dtype=bias)
    return case(op, image(*shape, dtype=dtype), image(*weights), b, *scales(weights[0]), constant=[1, 2, 3, 4])


def factors(count: int) -> Array:
    return np.linspace(0.001, 0.02, count, dtype=np.float32)


def qmatmul(op: QMatMul, a: Array, b: Array, bias: bool = True) -> Case:
    n = b.shape[-2 if op.transpose_b else -1]
    return case(op, a, b, whole(n, low=-99, high=99) if bias else None, *scales(n), constant=[1, 2, 3, 4])


def qlstm(gates: int, bits: int = -12, clip: int = 0, time_major: bool = False) -> Case:
    """Three steps of two entries, five inputs, seven units."""
    w, r = [quantize_multiplier(4.0 + n) for n in range(gates)], [quantize_multiplier(2.5 + n) for n in range(gates)]
    op = QLstm(
        tuple(m for m, _ in w), tuple(s for _, s in w), tuple(m for m, _ in r), tuple(s for _, s in r),
        *quantize_multiplier(1.3e-7), -4, bits, clip, gates == 3, time_major,
    )  # fmt: skip
    x = image(*((3, 2, 5) if time_major else (2, 3, 5)))
    biases = [whole(gates * 7, low=-999, high=999) for _ in range(2)]
    cell = whole(2, 7, low=-20000, high=20000, dtype=np.int16)
    return case(op, x, image(gates * 7, 5), image(gates * 7, 7), *biases, image(2, 7), cell, constant=[1, 2, 3, 4])


def qlstm_with_more(gates: int, extras: str, time_major: bool = False) -> Case:
    """Two steps of two entries, three inputs, six units, four outputs after a projection."""

    def factors(first: float, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pairs = [quantize_multiplier(first * (n + 1)) for n in range(count)]
        return tuple(m for m, _ in pairs), tuple(s for _, s in pairs)

    peephole, norm, outputs = "peephole" in extras, "norm" in extras, 4 if "projection" in extras else 6
    op = QLstm(
        *factors(3.0, gates), *factors(1.5, gates), *quantize_multiplier(1.3e-7), -4, -12, 0, gates == 3, time_major,
        *factors(1e-4, (gates - 1) * peephole), *factors(2e-4, gates * norm), (2,) * (gates * norm),
        *(quantize_multiplier(0.011) if "projection" in extras else (0, 0)), 3, 90 if "projection" in extras else 0,
    )  # fmt: skip
    rows = gates * 6
    given = [image(2, 2, 3), image(rows, 3), image(rows, outputs), *[whole(rows, low=-999, high=999) for _ in range(2)]]
    given += [image(2, outputs), whole(2, 6, low=-20000, high=20000, dtype=np.int16)]
    more: list[Array | None] = [short(rows - 6) if peephole else None]
    more += [short(rows), whole(rows, low=-9999, high=9999)] if norm else [None, None]
    more += [image(outputs, 6), whole(outputs, low=-999, high=999)] if "projection" in extras else []
    return case(op, *given, *more, constant=[1, 2, 3, 4, *[7 + n for n, array in enumerate(more) if array is not None]])


def _tables(points: int) -> list[Array]:
    return [input_order(points // 2), twiddles(points // 2), split_twiddles(points // 2)]


def _limits(*numbers: float) -> list[Array]:
    return [np.asarray(number, np.float32) for number in numbers]


QUANTISED: dict[str, Case] = {
    "select_boxes": case(SelectBoxes(6, 0.1, 0.2), boxes(40), np.abs(real(40))),
    "select_boxes with free places": case(SelectBoxes(9, 0.9, 0.01), boxes(12), np.abs(real(12))),
    "select_boxes of three classes": case(SelectBoxes(4, 0.3, 0.2), boxes(20), np.abs(real(3, 20))),
    "suppress_boxes": case(SuppressBoxes(9), boxes(40), np.abs(real(40)), *_limits(0.2, 0.1, 0.0)),
    "suppress_boxes softly": case(SuppressBoxes(20), boxes(20), np.abs(real(20)).round(1), *_limits(0.5, 0.1, 0.3)),
    "auto_scale": case(AutoScale(), short(41) // 200),
    "auto_scale of zeros": case(AutoScale(), np.zeros(5, np.int16)),
    "auto_scale of the lowest number": case(AutoScale(), np.array([3, -32768, 100, -7], np.int16)),
    "rounded_root": case(RoundedRoot(), np.array([0, 1, 2, 3, 6, 7, 2**32 - 1, 2**32, 2**40 + 12345, 2**64 - 1], np.uint64)),
    "fixed_rfft": case(FixedRfft(32), short(3, 24), *_tables(32), constant=[1, 2, 3]),
    "fixed_rfft by radix 4 alone": case(FixedRfft(128), short(128), *_tables(128), constant=[1, 2, 3]),
    "lift": case(Lift(3, 8, _M, _S), image(40)),
    "qdiv": case(QDiv(3, -128, _BIG, _UP, 4), image(3, 40), image(40)),
    "qdiv of i16": case(QDiv(0, 0, _M, _S + 9, 0, -32768, 32767, DType.I16), short(4, 9), np.maximum(short(9), 1)),
    "lookup16": case(Lookup16(), short(3, 40), table16(np.tanh, (1e-4, 0), (1 / 32768, 0)), constant=[1]),
    "squash16": case(Squash16("logistic", 20000, 11), short(3, 40)),
    "squash16 by tanh": case(Squash16("tanh", 6, 0), short(3, 40)),
    "qsoftmax16": case(QSoftmax16(0.0004), short(3, 10)),
    "qlog_softmax": case(QLogSoftmax(0.1), image(3, 10)),
    "qlog_softmax of u8": case(QLogSoftmax(0.02), image(2, 3, 9, dtype=np.uint8)),
    "ql2_norm": case(QL2Norm(3), image(3, 10)),
    "ql2_norm of u8": case(QL2Norm(120), image(3, 10, dtype=np.uint8)),
    "qdense": case(QDense(), short(3, 11), image(7, 11), None, np.abs(real(7)).astype(np.float64) / 100, constant=[1, 3]),
    "qdense with a bias": case(
        QDense(-100, 3000), short(3, 11), image(7, 11), whole(7, dtype=np.int64), np.full(7, 0.01), constant=[1, 2, 3]
    ),
    "resize_bytes": case(ResizeBytes((1, 7, 9, 2), half_pixel=True), image(1, 4, 5, 2, dtype=np.uint8)),
    "resize_bytes aligned": case(ResizeBytes((2, 3, 9, 2), align_corners=True), image(2, 4, 5, 2, dtype=np.uint8)),
    "qlstm": qlstm(4),
    "qlstm of a coupled gate": qlstm(3, -11, 20000, True),
    "qlstm with a wide cell": qlstm(4, -9),
    "qlstm with peepholes": qlstm_with_more(4, "peephole"),
    "qlstm with a norm": qlstm_with_more(4, "norm"),
    "qlstm with a projection": qlstm_with_more(3, "projection"),
    "qlstm with all": qlstm_with_more(4, "peephole norm projection"),
    "qlstm with all, time first": qlstm_with_more(3, "peephole norm projection", True),
    "qconv": qconv((1, 5, 6, 3), (7, 3, 3, 3), QConv((1, 1), (1, 1, 1, 1), x_zero=3, y_zero=-5)),
    "qconv strided": qconv((2, 6, 7, 4), (5, 4, 2, 3), QConv((2, 2), (0, 1, 1, 0), x_zero=-7), bias=None),
    "qconv dilated": qconv((1, 7, 7, 2), (3, 2, 2, 2), QConv(dilations=(2, 3), x_zero=1, low=-20, high=30)),
    "qconv depthwise": qconv((1, 5, 5, 6), (6, 1, 3, 3), QConv((1, 1), (1, 1, 1, 1), group=6, x_zero=2)),
    "qconv in groups": qconv((1, 4, 4, 6), (4, 3, 1, 1), QConv(group=2)),
    "qconv 1x1": qconv((1, 4, 5, 9), (11, 9, 1, 1), QConv(x_zero=-128, y_zero=4)),
    "qconv of i16": qconv((1, 4, 4, 3), (4, 3, 2, 2), QConv(low=-32768, high=32767, to=DType.I16), np.int16, np.int64),
    "qmatmul": qmatmul(QMatMul(a_zero=3, y_zero=-9), image(4, 11), image(11, 7)),
    "qmatmul transposed": qmatmul(QMatMul(True, a_zero=-3, b_zero=2), image(4, 11), image(7, 11), bias=False),
    "qmatmul in batches": qmatmul(QMatMul(scaling="once"), image(2, 3, 5), image(2, 5, 4)),
    "qconv by floats": case(
        QConv((1, 1), (1, 1, 1, 1), x_zero=3, y_zero=7, scaling="float"),
        image(1, 5, 6, 3), image(7, 3, 3, 3), None, factors(7), None, constant=[1, 3],
    ),
    "qmatmul by floats": case(
        QMatMul(True, 3, 0, 9, 0, 255, DType.U8, "float"),
        image(4, 40, dtype=np.uint8), image(7, 40), None, factors(7), None, constant=[1, 3],
    ),
    "qconv with a bias of floats": case(
        QConv((1, 1), (1, 1, 1, 1), x_zero=3, y_zero=7, scaling="float"),
        image(1, 5, 6, 3), image(7, 3, 3, 3), real(7), factors(7), None, constant=[1, 2, 3],
    ),
    "qconv of i16 by floats": case(
        QConv((1, 1), (1, 1, 1, 1), x_zero=3, y_zero=7, low=-32768, high=32767, to=DType.I16, scaling="float"),
        image(1, 5, 6, 3, dtype=np.int16), image(7, 3, 3, 3), whole(7, low=-99, high=99), factors(7), None, constant=[1, 2, 3],
    ),
    "qmatmul of u16 by floats": case(
        QMatMul(True, 3, 0, 9, 0, 65535, DType.U16, "float"),
        image(4, 40, dtype=np.uint16), image(7, 40), real(7), factors(7), None, constant=[1, 2, 3],
    ),
    "qconv of sums": case(
        QConv(x_zero=3, low=-(2**31), high=2**31 - 1, to=DType.I32, scaling="none"),
        image(1, 5, 6, 3, dtype=np.uint8), image(7, 3, 3, 3), None, None, None, constant=[1],
    ),
    "qconv of sums of i16": case(
        QConv(low=-(2**31), high=2**31 - 1, to=DType.I32, scaling="none"),
        image(1, 5, 6, 3, dtype=np.int16), image(7, 3, 3, 3), None, None, None, constant=[1],
    ),
    "qmatmul with a bias of floats": case(
        QMatMul(False, 3, 1, 9, 0, 255, DType.U8, "float"),
        image(2, 4, 40, dtype=np.uint8), image(40, 7), real(7), factors(7), None, constant=[1, 2, 3],
    ),
    "qmatmul of sums": case(
        QMatMul(False, 3, 0, 0, -(2**31), 2**31 - 1, DType.I32, "none"),
        image(2, 4, 40, dtype=np.uint8), image(40, 7), None, None, None, constant=[1],
    ),
    "qmatmul of activations": case(
        QMatMul(False, 3, -4, 0, -(2**31), 2**31 - 1, DType.I32, "none"),
        image(2, 4, 10, dtype=np.uint8), image(2, 10, 7), None, None, None,
    ),
    "lookup": case(Lookup(), image(3, 9), image(256), constant=[1]),
    "requantize": case(Requantize(3, _M, _S, -7), image(40)),
    "requantize up": case(Requantize(0, _BIG, _UP, 128, 0, 255, DType.U8), image(40)),
    "qadd": case(QAdd(3, _BIG, _UP - 3, -2, _M, _S, 20, False, _M, _S - 9, 4), image(3, 9), image(3, 1)),
    "qadd subtracted": case(QAdd(3, _BIG, _UP - 3, -2, _M, _S, 20, True, _M, _S - 9, 4), image(3, 9), image(9)),
    "qmul": case(QMul(3, -2, _M, _S, 4), image(3, 9), image(3, 9)),
    "qmul of u8": case(QMul(100, 128, _M, _S, 90, 0, 255, DType.U8), image(9, dtype=np.uint8), image(9, dtype=np.uint8)),
    "qaverage_pool": case(QAveragePool((3, 3), (2, 2), (1, 1, 1, 1)), image(1, 6, 7, 5)),
    "qaverage_pool bounded": case(QAveragePool((2, 2), (1, 1), low=-10, high=20), image(2, 4, 4, 3)),
    "qreal_mean": case(
        QRealMean((3, 2), (2, 2), (1, 0, 1, 1), order="columns", x_scale=0.031, x_zero=3, y_scale=0.029, y_zero=-4),
        image(2, 6, 7, 5),
    ),
    "qreal_mean counting pads": case(
        QRealMean((2, 2), (1, 1), (1, 1, 0, 0), True, x_scale=0.5, y_scale=0.5, low=0, high=255, to=DType.U8),
        image(1, 4, 5, 3, dtype=np.uint8),
    ),
    "qreal_mean of all": case(
        QRealMean((5, 3), order="lanes", x_scale=0.1, x_zero=-128, y_scale=0.1, y_zero=-128), image(2, 5, 3, 6)
    ),
    "qsoftmax": case(QSoftmax(0.1), image(3, 10)),
    "qsoftmax of u8 to i16": case(QSoftmax(0.05, 1.0, DType.I16), image(2, 5, dtype=np.uint8)),
    "qmean": case(QMean((1, 2), True, 3, *mean_factor(0.02 / 0.015, 20), -4), image(2, 4, 5, 3)),
    "qmean as a sum": case(QMean((1,), False, 3, *quantize_multiplier(0.02 / 0.3), -4), image(3, 9)),
    "qmean as a sum, rounded once": case(QMean((1,), False, 3, *quantize_multiplier(5 / 13), -4, scaling="once"), image(9, 9)),
    "qresize": case(QResize((1, 7, 9, 2), half_pixel=True), image(1, 4, 5, 2)),
    "qresize aligned": case(QResize((1, 7, 9, 2), align_corners=True), image(1, 4, 5, 2)),
    "hybrid_matmul": case(HybridMatMul(), real(3, 11), image(7, 11), np.abs(real(7)), real(7), constant=[1, 2, 3]),
    "hybrid_matmul asymmetric": case(HybridMatMul(True), real(3, 11), image(7, 11), np.abs(real(7)), None, constant=[1, 2]),
    "hybrid_conv": case(
        HybridConv((2, 1), (1, 0, 1, 1)), real(2, 5, 5, 3), image(4, 3, 3, 2), np.abs(real(4)), real(4), constant=[1, 2, 3]
    ),
    "hybrid_conv depthwise": case(
        HybridConv(group=3, asymmetric=False), real(1, 4, 4, 3), image(3, 1, 2, 2), np.abs(real(3)), None, constant=[1, 2]
    ),
}  # fmt: skip
