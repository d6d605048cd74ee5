"""Custom operators of TFLite Micro's `signal` library, which turn sound into features for a network (github.com/tensorflow/
tflite-micro, signal/): windows, transforms, energies, filter banks, noise and gain. All in whole numbers, bit for bit.

    SignalWindow -> SignalFftAutoScale -> SignalRfft -> SignalEnergy -> SignalFilterBank -> SignalFilterBankSquareRoot
        -> SignalFilterBankSpectralSubtraction (a state) -> SignalPCAN -> SignalFilterBankLog
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.spectrum import MOST_POINTS, waves
from intaglio.frontends.tflite.walk import TFLiteCall, Variable, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.binary import (
    Add,
    BitwiseAnd,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    Max,
    Min,
    Mul,
    ShiftLeft,
    ShiftRight,
    Sub,
    Where,
)
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Pad, Slice
from intaglio.ops.reduce import Reduce
from intaglio.ops.signal import AutoScale, FixedRfft, RoundedRoot, input_order, split_twiddles, twiddles

_SNR_BITS, _GAIN_BITS = 12, 6  # fractional bits of PCAN's ratio and of its result
_LOG_TABLE = np.array([
    0, 224, 442, 654, 861, 1063, 1259, 1450, 1636, 1817, 1992, 2163, 2329, 2490, 2646, 2797, 2944, 3087, 3224, 3358, 3487, 3611,
    3732, 3848, 3960, 4068, 4172, 4272, 4368, 4460, 4549, 4633, 4714, 4791, 4864, 4934, 5001, 5063, 5123, 5178, 5231, 5280, 5326,
    5368, 5408, 5444, 5477, 5507, 5533, 5557, 5578, 5595, 5610, 5622, 5631, 5637, 5640, 5641, 5638, 5633, 5626, 5615, 5602, 5586,
    5568, 5547, 5524, 5498, 5470, 5439, 5406, 5370, 5332, 5291, 5249, 5203, 5156, 5106, 5054, 5000, 4944, 4885, 4825, 4762, 4697,
    4630, 4561, 4490, 4416, 4341, 4264, 4184, 4103, 4020, 3935, 3848, 3759, 3668, 3575, 3481, 3384, 3286, 3186, 3084, 2981, 2875,
    2768, 2659, 2549, 2437, 2323, 2207, 2090, 1971, 1851, 1729, 1605, 1480, 1353, 1224, 1094, 963, 830, 695, 559, 421, 282, 142,
    0, 0,
], np.int32)  # fmt: skip
_LN2 = 45426  # in 16 bits


def _typed(call: TFLiteCall, i: int, dtype: DType, rank: int = 1) -> Value:
    x = call.value(i)
    if x.dtype is not dtype or x.type.rank < rank:
        raise Fault("unsupported-type", f"operand {i} is {x.dtype.value}{list(x.shape)}, not {dtype.value}", "the file is damaged")
    return x


def _whole(call: TFLiteCall, name: str, low: int = 0, high: int = (1 << 31) - 1) -> int:
    number = call.fields().get(name)
    if not isinstance(number, int) or not low <= number <= high:
        raise Fault("bad-attribute", f"its option `{name}` is {number!r}", "the file is damaged")
    return int(number)


def _right(call: TFLiteCall, x: Value, bits: int) -> Value:
    return call.emit(ShiftRight(), x, call.like(bits, x)) if bits else x


def _left(call: TFLiteCall, x: Value, bits: int) -> Value:
    return call.emit(ShiftLeft(), x, call.like(bits, x)) if bits else x


@importer("CUSTOM SignalWindow")
def window(call: TFLiteCall) -> None:
    x, weights = (cast(call, _typed(call, n, DType.I16), DType.I32) for n in (0, 1))
    if weights.type.rank != 1 or x.shape[-1] != weights.shape[0]:
        raise Fault("shape-mismatch", f"a window of {list(weights.shape)} does not fit {list(x.shape)}")
    raw = _right(call, call.emit(Mul(), x, weights), _whole(call, "shift", 0, 31))
    inside = call.emit(Min(), call.emit(Max(), raw, call.like(-32768, raw)), call.like(32767, raw))
    call.give(cast(call, inside, DType.I16))


@importer("CUSTOM SignalFftAutoScale")
def auto_scale(call: TFLiteCall) -> None:
    for n, value in enumerate(call.emit_all(AutoScale(), _typed(call, 0, DType.I16))):
        call.give(value, n)


@importer("CUSTOM SignalRfft")
def rfft(call: TFLiteCall) -> None:
    x, points = call.value(0), _whole(call, "fft_length", 4, MOST_POINTS)
    if not x.shape or not 1 <= x.shape[-1] <= points:
        raise Fault("shape-mismatch", f"{list(x.shape)} does not fit a transform of {points} points")
    if x.dtype is DType.F32:
        waved = waves(points, points // 2 + 1)[: x.shape[-1]].reshape(x.shape[-1], -1).astype(np.float32)
        call.give(call.emit(MatMul(), x if x.type.rank > 1 else reshape(call, x, (1, *x.shape)), constant(waved)))
        return
    if x.dtype is not DType.I16:
        raise Fault("unsupported-operator", f"a transform of {x.dtype.value} is not supported", "use int16 or float")
    tables = (input_order(points // 2), twiddles(points // 2), split_twiddles(points // 2))
    call.give(call.emit(FixedRfft(points), x, *map(constant, tables)))


@importer("CUSTOM SignalEnergy")
def energy(call: TFLiteCall) -> None:
    """Outside of its range, the library writes nothing; here are zeros."""
    x = _typed(call, 0, DType.I16)
    bins = x.shape[-1] // 2
    start = _whole(call, "start_index", 0, bins)
    end = _whole(call, "end_index", start, bins)
    if x.type.rank != 1 or start == end:
        raise Fault("shape-mismatch", f"energies {start} to {end} of {list(x.shape)}")
    wide = cast(call, x, DType.I32)
    squares = cast(call, call.emit(Mul(), wide, wide), DType.U32)
    parts = [call.emit(Slice((2 * start + n,), (2,), (end - start,)), squares) for n in range(2)]
    call.give(call.emit(Pad((start, bins - end)), call.emit(Add(), *parts)))


@importer("CUSTOM SignalFilterBank")
def filter_bank(call: TFLiteCall) -> None:
    """A channel is the weighted sum of its bins, and that of the channel before with the other weights."""
    x, channels = _typed(call, 0, DType.U32), _whole(call, "num_channels", 1, 1 << 12)
    words = ("weights", "other weights", "first bins", "first weights", "widths")
    weights, others, first, at, widths = (call.known(n + 1, word).reshape(-1).astype(np.int64) for n, word in enumerate(words))
    spans = list(zip(first, at, widths, strict=False))
    room = min(len(weights), len(others))
    fits = all(min(f, a, w) >= 0 and f + w <= x.shape[-1] and a + w <= room for f, a, w in spans)
    if x.type.rank != 1 or len(spans) != channels + 1 or not fits:
        raise Fault("bad-tensor", f"its channels do not fit {list(x.shape)}", "the file is damaged")
    width = max(int(max(widths)), 1)
    places, factors = (np.zeros((channels, 2, width), kind) for kind in (np.int32, np.int64))
    for channel in range(channels):
        for side, (table, (f, a, w)) in enumerate(((weights, spans[channel + 1]), (others, spans[channel]))):
            places[channel, side, :w], factors[channel, side, :w] = np.arange(f, f + w), table[a : a + w]
    taken = call.emit(Gather(0), x, constant(places.reshape(channels, -1)))
    products = call.emit(Mul(), cast(call, taken, DType.I64), constant(factors.reshape(channels, -1)))
    call.give(cast(call, call.emit(Reduce("sum", (1,), False), products), DType.U64))


@importer("CUSTOM SignalFilterBankSquareRoot")
def filter_bank_root(call: TFLiteCall) -> None:
    root, bits = call.emit(RoundedRoot(), _typed(call, 0, DType.U64)), _typed(call, 1, DType.I32, 0)
    call.give(call.emit(ShiftRight(), root, cast(call, reshape(call, bits, (1,)), DType.U32)))


@importer("CUSTOM SignalFilterBankSpectralSubtraction")
def spectral_subtraction(call: TFLiteCall) -> None:
    """The noise of each channel is estimated from run to run, and subtracted; a part of the signal always stays."""
    x = _typed(call, 0, DType.U32)
    bits, fraction = (_whole(call, name, 0, 31) for name in ("smoothing_bits", "spectral_subtraction_bits"))
    if x.type.rank != 1 or x.shape[0] != _whole(call, "num_channels", 1):
        raise Fault("shape-mismatch", f"its channels do not fit {list(x.shape)}", "the file is damaged")

    def by_turns(even: str, odd: str) -> Value:
        pair = np.array([_whole(call, even), _whole(call, odd)], np.uint64)
        return constant(pair[np.arange(x.shape[0]) % 2])

    state = Variable(f"{call.source()}_noise")
    state.entry = state.now = Value("", TensorType(DType.U32, x.shape), state.name)
    call.walk.variables[f"signal:{id(call.graph)}:{call.operator.index}"] = state
    call.walk.extra_inputs.append(state.entry)
    lifted = _left(call, x, bits)
    terms = [
        call.emit(Mul(), cast(call, value, DType.U64), by_turns(*names))
        for value, names in (
            (lifted, ("smoothing", "alternate_smoothing")),
            (state.entry, ("one_minus_smoothing", "alternate_one_minus_smoothing")),
        )
    ]
    noise = cast(call, _right(call, call.emit(Add(), *terms), fraction), DType.U32)
    below = call.emit(Min(), noise, lifted)
    state.now = below if call.fields().get("clamping") else noise
    wide = cast(call, x, DType.U64)
    kept = call.emit(Mul(), wide, call.like(_whole(call, "min_signal_remaining"), wide))
    least = cast(call, _right(call, kept, fraction), DType.U32)
    call.give(call.emit(Max(), _right(call, call.emit(Sub(), lifted, below), bits), least))
    call.keep(state.now, 1)


def _bits(call: TFLiteCall, x: Value) -> Value:
    """How many binary digits a number has."""
    powers = constant(np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32)))
    reached = call.emit(GreaterEqual(), reshape(call, x, (*x.shape, 1)), powers)
    return call.emit(Reduce("sum", (x.type.rank,), False), cast(call, reached, DType.I32))


def _shifted(call: TFLiteCall, x: Value, by: Value) -> Value:
    """To the left; to the right by a number below 0."""
    none = call.like(0, by)
    left = call.emit(ShiftLeft(), x, cast(call, call.emit(Max(), by, none), x.dtype))
    right = call.emit(ShiftRight(), x, cast(call, call.emit(Max(), call.emit(Sub(), none, by), none), x.dtype))
    return call.emit(Where(), call.emit(GreaterEqual(), by, none), left, right)


def _gain(call: TFLiteCall, x: Value, table: Value) -> Value:
    """A function with a wide range: a parabola between each power of two and the next."""
    interval, wide = _bits(call, x), cast(call, table, DType.I32)
    first = call.emit(Sub(), call.emit(Mul(), interval, call.like(4, interval)), call.like(6, interval))

    def entry(n: int) -> Value:
        at = call.emit(Add(), first, call.like(n, first))
        inside = call.emit(Min(), call.emit(Max(), at, call.like(0, at)), call.like(table.shape[0] - 1, at))
        return call.emit(Gather(0), wide, cast(call, inside, DType.I64))

    eleven = call.emit(Sub(), call.like(11, interval), interval)
    ten_bits = call.emit(BitwiseAnd(), _shifted(call, x, eleven), call.like(0x3FF, x))
    part = cast(call, ten_bits, DType.I32)
    slope = call.emit(Add(), _right(call, call.emit(Mul(), entry(2), part), 5), _left(call, entry(1), 5))
    risen = call.emit(Add(), call.emit(Mul(), slope, part), call.like(1 << 14, part))
    curve = call.emit(Add(), _right(call, risen, 15), entry(0))
    low = call.emit(Gather(0), wide, cast(call, call.emit(Min(), x, call.like(2, x)), DType.I64))
    short = call.emit(Where(), call.emit(LessEqual(), x, call.like(2, x)), low, curve)
    return cast(call, cast(call, cast(call, short, DType.I16), DType.I64), DType.U32)


@importer("CUSTOM SignalPCAN")
def pcan(call: TFLiteCall) -> None:
    """Automatic gain: the ratio of signal and noise, then x * x / 4 below 2 and x - 1 above."""
    x, noise, table = _typed(call, 0, DType.U32), _typed(call, 1, DType.U32), _typed(call, 2, DType.I16)
    if x.shape != noise.shape or table.type.rank != 1 or table.shape[0] < 3:
        raise Fault("shape-mismatch", f"{list(x.shape)}, {list(noise.shape)} and {list(table.shape)} do not fit together")
    gain = cast(call, _gain(call, noise, table), DType.U64)
    product = call.emit(Mul(), cast(call, x, DType.U64), gain)
    ratio = cast(call, _right(call, product, _whole(call, "snr_shift", 0, 63)), DType.U32)
    small = _right(call, call.emit(Mul(), ratio, ratio), 2 + 2 * _SNR_BITS - _GAIN_BITS)
    large = call.emit(Sub(), _right(call, ratio, _SNR_BITS - _GAIN_BITS), call.like(1 << _GAIN_BITS, ratio))
    call.give(call.emit(Where(), call.emit(Less(), ratio, call.like(2 << _SNR_BITS, ratio)), small, large))


@importer("CUSTOM SignalFilterBankLog")
def filter_bank_log(call: TFLiteCall) -> None:
    """Logarithms by a table of 128 parts between powers of two."""
    scale, bits = _whole(call, "output_scale"), _whole(call, "input_correction_bits", 0, 31)
    lifted = _left(call, _typed(call, 0, DType.U32), bits)
    digits = _bits(call, lifted)
    top = call.emit(Max(), call.emit(Sub(), digits, call.like(1, digits)), call.like(0, digits))
    power = call.emit(ShiftLeft(), constant(np.full(lifted.shape, 1, np.uint32)), cast(call, top, DType.U32))
    rest = cast(call, _shifted(call, call.emit(Sub(), lifted, power), call.emit(Sub(), call.like(16, top), top)), DType.I32)
    segment = _right(call, rest, 9)
    inside_table = call.emit(Min(), segment, call.like(len(_LOG_TABLE) - 2, segment))
    starts = [call.emit(Gather(0), constant(_LOG_TABLE[n:]), cast(call, inside_table, DType.I64)) for n in range(2)]
    inside = call.emit(Sub(), rest, _left(call, segment, 9))
    between = _right(call, call.emit(Mul(), call.emit(Sub(), starts[1], starts[0]), inside), 16)
    fraction = call.emit(Add(), call.emit(Add(), rest, starts[0]), between)
    log2 = cast(call, call.emit(Add(), _left(call, top, 16), fraction), DType.U64)
    half = call.like(1 << 15, log2)
    loge = cast(call, _right(call, call.emit(Add(), call.emit(Mul(), log2, call.like(_LN2, log2)), half), 16), DType.U32)
    scaled = call.emit(Add(), call.emit(Mul(), loge, call.like(scale, loge)), call.like(1 << 15, loge))
    limited = call.emit(Min(), _right(call, scaled, 16), call.like(32767, loge))
    shown = call.emit(Where(), call.emit(Greater(), lifted, call.like(1, lifted)), limited, call.like(0, limited))
    call.give(cast(call, shown, DType.I16))
