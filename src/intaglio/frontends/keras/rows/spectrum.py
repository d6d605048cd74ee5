"""Spectrograms: a convolution whose kernels are the waves times the window, and what is made of its results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, part, reshape, transpose
from intaglio.frontends.fourier import waves
from intaglio.frontends.keras.rows.convolution import channels, spatial, window_pads
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Max, Mul, Pow, Sub
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Pad
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Log, Sqrt

_SMALLEST = 1e-7  # `keras.config.epsilon()`
_MOST = 1 << 26  # numbers in kernels
_MODES = ("log", "magnitude", "psd", "real", "imag", "angle", "stft")


@layer("STFTSpectrogram")
def stft_spectrogram(call: KerasCall) -> Result:
    """The kernels are weights: what they say, also when they were trained."""
    x, mode = call.x, call.option("mode", "log")
    if mode not in _MODES:
        raise Fault("bad-attribute", f"`mode` is {quoted(str(mode))}, which is not valid")
    if mode == "angle":
        raise unsupported("`mode` is `angle`, whose value where nothing is heard depends on the last bit", "use `stft`")
    (time,), depth = spatial(call, x, 1), channels(call, x)
    length = call.whole("frame_length")
    step = call.whole("frame_step") if call.option("frame_step") else length // 2
    size = call.whole("fft_length") if call.option("fft_length") else 2 ** math.ceil(math.log2(max(length, 1)))
    if length < 1 or step < 1 or length * size > _MOST:
        raise Fault("bad-attribute", f"frames of {length} elements, {step} apart, with {size} waves are not valid")
    bins = size // 2 + 1
    roles = [role for role, without in (("real_kernel", "imag"), ("imag_kernel", "real")) if mode != without]
    kernels = np.concatenate([call.array(role, length, 1, bins).transpose(2, 1, 0) for role in roles])
    pads = window_pads(call, (time,), (length,), (step,), (1,))
    rows = x if call.channels_first else transpose(call, x, (0, 2, 1))
    rows = reshape(call, rows, (x.shape[0] * depth, 1, time))
    y = call.emit(Conv((step,), pads, (1,), 1), rows, call.constant(kernels, call.dtype, "kernels"))
    y = reshape(call, y, (x.shape[0], depth, len(roles) * bins, y.shape[2]))
    if mode not in ("real", "imag", "stft"):
        squares = call.emit(Mul(), y, y)
        y = call.emit(Add(), part(call, squares, 2, 0, bins), part(call, squares, 2, bins, bins))
        y = _strength(call, y, str(mode), bins)
    b, d, f, t = y.shape
    if call.flag("expand_dims"):
        return transpose(call, y, (0, 1, 3, 2) if call.channels_first else (0, 3, 2, 1))
    y = reshape(call, y, (b, d * f, t))
    return y if call.channels_first else transpose(call, y, (0, 2, 1))


def _strength(call: KerasCall, power: Value, mode: str, bins: int) -> Value:
    """Of the power of each wave."""
    if mode == "psd":  # all waves but the first and the last have a twin
        twice = np.ones((bins, 1), np.float32)
        twice[1:-1] = 2
        return call.emit(Mul(), power, call.constant(twice, power.dtype))
    y = call.emit(Sqrt(), call.emit(Max(), power, call.like(_SMALLEST, power)))
    return y if mode == "magnitude" else call.emit(Log(), call.emit(Max(), y, call.like(_SMALLEST, y)))


@layer("MelSpectrogram")
def mel_spectrogram(call: KerasCall) -> Result:
    x = cast(call, call.x, call.dtype if call.dtype is DType.F64 else DType.F32)
    size, step = call.whole("fft_length", 2048), call.whole("sequence_stride", 512)
    length = call.whole("sequence_length") if call.option("sequence_length") else size
    time, batch = x.shape[-1], x.shape[:-1]
    if not 1 <= length <= size or step < 1 or size * size > _MOST or time <= size // 2:
        raise Fault("bad-attribute", f"frames of {length} elements, {step} apart, with {size} waves do not fit {list(x.shape)}")
    half, bins = size // 2, size // 2 + 1
    window = np.zeros(size)
    window[(size - length) // 2 :][:length] = _window(call, length)
    rows = reshape(call, x, (math.prod(batch), 1, time))
    rows = call.emit(Pad((0, 0, half, 0, 0, half), "reflect", 0.0), rows)
    y = call.emit(Conv((step,), (0, 0), (1,), 1), rows, call.constant((waves(size, bins) * window)[:, None], x.dtype, "waves"))
    squares = call.emit(Mul(), y, y)
    power = call.emit(Add(), part(call, squares, 1, 0, bins), part(call, squares, 1, bins, bins))
    exponent = call.number("mag_exp", 2.0)
    if exponent != 2.0:
        root = call.emit(Sqrt(), power)
        power = root if exponent == 1.0 else call.emit(Pow(), root, call.like(exponent, root))
    y = call.emit(MatMul(), call.constant(_mel(call, bins).T.copy(), x.dtype, "mel"), power)
    if call.flag("power_to_db", True):
        y = _decibels(call, y)
    return cast(call, reshape(call, y, (*batch, *y.shape[1:])), call.dtype)


def _window(call: KerasCall, length: int) -> Array:
    told: Any = call.option("window", "hann")
    if told is None:
        return np.ones(length)
    if told not in ("hann", "hamming"):
        raise unsupported(f"`window` is {quoted(str(told))}, which is not supported", "use `hann` or `hamming`")
    turn = np.cos(2 * np.pi * np.arange(length) / length)
    return np.asarray(0.5 - 0.5 * turn if told == "hann" else 0.54 - 0.46 * turn)


def _mel(call: KerasCall, bins: int) -> Array:
    """[bins, bands]: triangles that are even on the mel scale; the first wave, which does not move, is left out."""
    rate, bands = call.number("sampling_rate", 16000), call.whole("num_mel_bins", 128)
    low, high = call.number("min_freq", 20.0), call.number("max_freq", rate / 2) if call.option("max_freq") else int(rate / 2)
    if bands < 1 or bins * bands > _MOST:
        raise Fault("bad-attribute", f"`num_mel_bins` is {bands}")

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)

    at = mel(np.linspace(0.0, rate / 2, bins)[1:])[:, None]
    edges = np.linspace(mel(low), mel(high), bands + 2)
    before, middle, after = edges[:-2], edges[1:-1], edges[2:]
    slopes = np.minimum((at - before) / (middle - before), (after - at) / (after - middle))
    return np.pad(np.maximum(0.0, slopes), [[1, 0], [0, 0]])


def _decibels(call: KerasCall, y: Value) -> Value:
    """No further than `top_db` below the loudest of all."""
    least = call.number("min_power", 1e-10)
    tens = call.like(10.0 / math.log(10.0), y)
    loud = call.emit(Mul(), call.emit(Log(), call.emit(Max(), y, call.like(least, y))), tens)
    reference = 10.0 * math.log10(max(abs(call.number("ref_power", 1.0)), least))
    loud = call.emit(Sub(), loud, call.like(reference, loud)) if reference else loud
    highest = call.emit(Reduce("max", tuple(range(loud.type.rank)), True), loud)
    return call.emit(Max(), loud, call.emit(Sub(), highest, call.like(call.number("top_db", 80.0), loud)))
