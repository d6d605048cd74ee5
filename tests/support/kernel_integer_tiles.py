"""Cases of the integer kernels with vectors: tails, borders, strides, and numbers at the limits. Bit for bit."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, QMatMul, QMul, Requantize
from intaglio.ops.quantised_rows import QAveragePool, QMean, mean_factor
from support.kernel_running import Case, case

_RANDOM = np.random.default_rng(7)


def numbers(*shape: int, dtype: type = np.int8, low: int | None = None, high: int | None = None) -> Array:
    """Over the whole range of the type, its ends included."""
    info = np.iinfo(dtype)
    first, last = info.min if low is None else low, info.max if high is None else high
    out = _RANDOM.integers(first, last, size=shape, dtype=np.int64, endpoint=True)
    out.reshape(-1)[:2] = (first, last)[: out.size]
    return out.astype(dtype)


def factors(count: int, real: float, spread: float = 1.0) -> tuple[Array, Array]:
    """Multipliers around a factor; `spread` apart from the first to the last channel."""
    pairs = [quantize_multiplier(real * spread ** (n / max(count - 1, 1))) for n in range(count)]
    return np.array([m for m, _ in pairs], np.int32), np.array([s for _, s in pairs], np.int32)


def conv(
    shape: tuple[int, ...], out: int, kernel: tuple[int, int], strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0), dilations: tuple[int, int] = (1, 1), group: int = 1, *, dtype: type = np.int8,
    x_zero: int = -9, w_zero: int = 0, y_zero: int = 5, low: int | None = None, high: int | None = None, scaling: str = "twice",
    weight: int | None = None, x: int | None = None, real: float = 0.0, spread: float = 3.0, bias: bool = True, using: str = "",
    largest: int = 127,
) -> Case:  # fmt: skip
    """`weight` and `x` put one number everywhere; `real` is the factor of the sums, by default one that fills the range."""
    depth = shape[-1] // group
    w = numbers(out, depth, *kernel, dtype=dtype, **({} if dtype is np.uint8 else {"low": -largest, "high": largest}))
    image = numbers(*shape, dtype=dtype)
    w, image = (a if v is None else np.full_like(a, v) for a, v in ((w, weight), (image, x)))
    info = np.iinfo(dtype)
    to = DType.U8 if dtype is np.uint8 else DType.I8
    op = QConv(
        strides, pads, dilations, group, x_zero, w_zero, y_zero, info.min if low is None else low,
        info.max if high is None else high, to, scaling,
    )  # fmt: skip
    size = real or 0.6 / (largest * np.sqrt(depth * kernel[0] * kernel[1]))
    m, s = factors(out, size, spread)
    b = numbers(out, dtype=np.int32, low=-3000, high=3000) if bias else None
    if scaling == "float":
        return case(op, image, w, b, np.linspace(size, size * spread, out, dtype=np.float32), None, constant=[1, 2, 3], using=using)
    return case(op, image, w, b, m, s, constant=[1, 2, 3, 4], using=using)


def dense(
    rows: int, depth: int, out: int, *, dtype: type = np.int8, a_zero: int = 4, b_zero: int = 0, scaling: str = "once",
    spread: float = 1.0, largest: int = 127, transpose: bool = True, batch: tuple[int, ...] = (), using: str = "",
) -> Case:  # fmt: skip
    w = numbers(out, depth, low=-largest, high=largest)
    info = np.iinfo(dtype)
    to = DType.U8 if dtype is np.uint8 else DType.I8
    op = QMatMul(transpose, a_zero, b_zero, 3, info.min, info.max, to, scaling)
    m, s = factors(out, 0.6 / (largest * np.sqrt(depth)), spread)
    b = numbers(out, dtype=np.int32, low=-3000, high=3000)
    return case(
        op, numbers(*batch, rows, depth, dtype=dtype), w if transpose else w.T.copy(), b, m, s, constant=[1, 2, 3, 4], using=using
    )


def qadd(
    a: tuple[int, ...], b: tuple[int, ...], left: float, right: float, out: float, zeros: tuple[int, int, int] = (3, -7, 9),
    dtype: type = np.int8, subtract: bool = False, low: int | None = None,
) -> Case:  # fmt: skip
    """Factors of both sides and of their sum."""
    info = np.iinfo(dtype)
    to = DType.U8 if dtype is np.uint8 else DType.I8
    op = QAdd(
        zeros[0], *quantize_multiplier(left), zeros[1], *quantize_multiplier(right), 20, subtract, *quantize_multiplier(out),
        zeros[2], info.min if low is None else low, info.max, to,
    )  # fmt: skip
    return case(op, numbers(*a, dtype=dtype), numbers(*b, dtype=dtype))


_SAME = (1, 1, 1, 1)
INTEGER_TILES: dict[str, Case] = {
    "tiles 1x1": conv((1, 5, 5, 16), 32, (1, 1)),
    "tiles 1x1 of odd channels": conv((2, 3, 3, 7), 21, (1, 1), x_zero=127),
    "tiles 1x1 of one pixel": conv((1, 1, 1, 33), 10, (1, 1), x_zero=-128),
    "tiles 1x1 of small weights": conv((1, 4, 5, 12), 24, (1, 1), largest=60),
    "tiles 1x1 of small weights of u8": conv((1, 4, 5, 12), 24, (1, 1), largest=60, dtype=np.uint8, x_zero=100, w_zero=128),
    "tiles 1x1 strided": conv((1, 5, 7, 9), 9, (1, 1), (2, 2), scaling="once"),
    "tiles 1x1 in chunks": conv((1, 20, 20, 48), 8, (1, 1)),
    "tiles 3x3": conv((1, 6, 9, 3), 8, (3, 3), pads=_SAME),
    "tiles 3x3 of odd channels": conv((1, 5, 6, 5), 13, (3, 3), pads=_SAME, bias=False),
    "tiles 3x3 strided": conv((2, 9, 8, 4), 17, (3, 3), (2, 2), (0, 0, 1, 1)),
    "tiles 3x3 in stripes": conv((1, 40, 24, 16), 4, (3, 3), pads=_SAME),
    "tiles 3x3 of u8": conv((1, 5, 6, 3), 9, (3, 3), (2, 1), _SAME, dtype=np.uint8, x_zero=131, w_zero=97, low=10, high=201),
    "tiles of one channel": conv((1, 13, 10, 1), 12, (10, 4), (2, 2), (4, 1, 5, 1)),
    "tiles dilated": conv((1, 9, 11, 3), 4, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3)),
    "tiles in groups": conv((1, 5, 9, 6), 27, (3, 3), pads=_SAME, group=3),
    "tiles of two channels from one": conv((1, 5, 4, 3), 6, (3, 3), pads=_SAME, group=3),
    "tiles wider than the image": conv((1, 3, 3, 2), 3, (5, 5), pads=(2, 2, 2, 2)),
    "tiles of padding alone": conv((1, 2, 2, 2), 3, (3, 3), (3, 3), (3, 3, 3, 3)),
    "tiles 1 high": conv((1, 1, 31, 3), 8, (1, 5), (1, 2), (0, 2, 0, 2)),
    "tiles 1 wide": conv((1, 31, 1, 3), 8, (5, 1), (2, 1), (2, 0, 2, 0)),
    "tiles of a given size": conv((1, 4, 9, 6), 40, (3, 3), pads=_SAME, using="qconv_tiles(tile=3x3)"),
    "tiles by floats": conv((1, 4, 5, 8), 19, (3, 3), pads=_SAME, scaling="float", low=-100, high=90),
    "tiles rounded once": conv((1, 4, 5, 8), 19, (3, 3), pads=_SAME, scaling="once", spread=40.0),
    "tiles shifted both ways": conv((1, 3, 4, 2), 16, (1, 1), real=0.02, spread=300.0),
    "tiles shifted up": conv((1, 3, 4, 2), 16, (1, 1), real=1.99999, spread=4.0),
    "tiles shifted far": conv((1, 3, 4, 9), 16, (1, 1), real=1e-8, spread=1e4),
    "tiles of the largest products": conv((1, 3, 4, 40), 16, (1, 1), x_zero=-128, x=127, weight=-127, real=0.9999999),
    "tiles of the lowest": conv((1, 4, 4, 9), 16, (3, 3), pads=_SAME, x_zero=127, x=-128, weight=-128, real=1e-4),
    "tiles of u8 at the limits": conv((1, 3, 4, 40), 8, (1, 1), dtype=np.uint8, x_zero=0, w_zero=255, x=255, weight=0, real=1e-4),
    "tiles of full pairs": conv((1, 3, 4, 8), 16, (1, 1), x_zero=-128, x=127, weight=64, real=1e-3),
    "whole winograd 2": conv((1, 3, 5, 16), 20, (3, 3), pads=_SAME, using="qwinograd(m=2)"),
    "whole winograd 4": conv((2, 5, 3, 16), 9, (3, 3), pads=_SAME, using="qwinograd(m=4)"),
    "whole winograd of long vectors": conv((1, 3, 5, 32), 8, (3, 3), pads=_SAME, using="qwinograd(m=4)"),
    "whole winograd 4 inside": conv((1, 6, 10, 16), 17, (3, 3), scaling="once", using="qwinograd(m=4,tile=1x2)"),
    "whole winograd 2 of u8": conv(
        (1, 4, 3, 16), 17, (3, 3), pads=(1, 0, 1, 0), dtype=np.uint8, x_zero=131, w_zero=128, low=9, high=99, using="qwinograd(m=2)"
    ),
    "whole winograd 4 of the largest": conv(
        (1, 4, 4, 16), 8, (3, 3), pads=_SAME, x_zero=-128, x=127, weight=127, real=1e-5, scaling="float", using="qwinograd(m=4)"
    ),
    "whole winograd 2 of the lowest": conv(
        (1, 2, 4, 16), 8, (3, 3), pads=_SAME, x_zero=127, x=-128, weight=-128, real=1e-5, using="qwinograd(m=2)"
    ),
    "listed 3x3": conv((1, 6, 9, 8), 24, (3, 3), pads=_SAME, using="qconv_listed"),
    "listed 3x3 strided": conv((2, 9, 8, 4), 19, (3, 3), (2, 2), (0, 0, 1, 1), using="qconv_listed", largest=100),
    "listed 3x3 of u8": conv(
        (1, 5, 7, 12), 9, (3, 3), pads=_SAME, dtype=np.uint8, x_zero=131, w_zero=128, low=10, high=201, using="qconv_listed"
    ),
    "listed 1x1": conv((1, 7, 9, 16), 40, (1, 1), using="qconv_listed(tile=6x2)"),
    "listed 1x1 strided": conv((1, 5, 7, 16), 9, (1, 1), (2, 2), scaling="once", using="qconv_listed"),
    "listed 1 wide": conv((1, 31, 1, 4), 8, (5, 1), (2, 1), (2, 0, 2, 0), using="qconv_listed"),
    "listed dilated": conv((1, 9, 11, 4), 5, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3), using="qconv_listed", scaling="float"),
    "listed of the largest numbers": conv((1, 3, 5, 64), 16, (1, 1), x_zero=-128, x=127, real=1e-4, using="qconv_listed"),
    "listed where no pair fits": conv((1, 3, 5, 8), 16, (1, 1), x_zero=-128, x=127, weight=-127, real=1e-4, using="qconv_listed"),
    "lanes 3x3": conv((1, 6, 9, 16), 16, (3, 3), pads=_SAME, group=16),
    "lanes 3x3 of many channels": conv((1, 4, 6, 37), 37, (3, 3), pads=_SAME, group=37, low=-128, high=60),
    "lanes 3x3 strided": conv((2, 7, 8, 18), 18, (3, 3), (2, 2), (0, 1, 1, 0), group=18),
    "lanes of few channels": conv((1, 5, 7, 8), 8, (3, 3), pads=_SAME, group=8),
    "lanes of five channels": conv((2, 5, 23, 5), 5, (3, 3), pads=_SAME, group=5, spread=50.0),
    "lanes of five channels in a short row": conv((1, 5, 2, 5), 5, (3, 3), pads=_SAME, group=5),
    "lanes of 18 channels": conv((1, 4, 9, 18), 18, (3, 2), pads=(1, 0, 1, 1), group=18, scaling="float"),
    "lanes of two channels": conv((1, 5, 7, 2), 2, (3, 3), pads=_SAME, group=2, scaling="once"),
    "lanes of few channels strided": conv((1, 7, 9, 8), 8, (3, 3), (2, 2), _SAME, group=8),
    "lanes dilated": conv((1, 9, 9, 5), 5, (3, 3), dilations=(2, 2), pads=(2, 2, 2, 2), group=5),
    "lanes of even windows": conv((1, 6, 9, 17), 17, (2, 4), pads=(0, 1, 1, 2), group=17),
    "lanes 1 wide": conv((1, 20, 1, 16), 16, (5, 1), group=16),
    "lanes in stripes": conv((1, 40, 20, 16), 16, (3, 3), pads=_SAME, group=16),
    "lanes of u8": conv((1, 5, 6, 16), 16, (3, 3), (1, 1), _SAME, group=16, dtype=np.uint8, x_zero=131, w_zero=97),
    "lanes by floats": conv((1, 4, 5, 16), 16, (3, 3), pads=_SAME, group=16, scaling="float"),
    "lanes at the limits": conv((1, 4, 4, 16), 16, (3, 3), pads=_SAME, group=16, x_zero=127, x=-128, weight=-128, real=1e-3),
    "lanes of a large window": conv((1, 12, 12, 4), 4, (11, 11), pads=(5, 5, 5, 5), group=4),
    "dense": dense(1, 64, 40),
    "dense of one result": dense(1, 30, 1),
    "dense of one row, an odd number of results": dense(1, 100, 33, scaling="twice", spread=9.0),
    "dense of one row of u8": dense(1, 64, 28, dtype=np.uint8, a_zero=131),
    "dense of one row, large weights": dense(1, 700, 14, largest=128),
    "dense of odd sizes": dense(3, 33, 19, spread=20.0),
    "dense of u8": dense(2, 20, 9, dtype=np.uint8, a_zero=128),
    "dense with a zero point of weights": dense(2, 20, 9, b_zero=-100),
    "dense rounded twice": dense(5, 16, 24, scaling="twice", spread=9.0),
    "dense of small weights": dense(7, 24, 16, largest=50),
    "dense in batches": dense(3, 12, 10, batch=(2, 2), transpose=False),
    "dense, few deep rows": dense(9, 1280, 24),  # fewer rows fit the cache than a tile has
    "dense by lists": dense(9, 36, 40, using="qmatmul_listed"),
    "dense by lists, few deep rows": dense(9, 1280, 24, dtype=np.uint8, a_zero=100, using="qmatmul_listed"),
    "dense of a given size": dense(9, 12, 40, using="qmatmul_tiles(tile=2x4)"),
    "lanes of a sum": qadd((5, 33), (5, 33), 0.5, 0.37, 1.1 / (1 << 20)),
    "lanes of a sum at the limits": qadd((64,), (64,), 0.5, 0.49999999, 1.9 / (1 << 20), (-128, 127, 0), low=-5),
    "lanes of a difference of u8": qadd((2, 40), (2, 1), 0.21, 0.5, 1.3 / (1 << 20), (0, 255, 128), np.uint8, True),
    "lanes of a sum of channels": qadd((3, 20), (20,), 0.5, 0.01, 0.9 / (1 << 20)),
    "lanes of a sum with a factor over one": qadd((40,), (40,), 1.5, 0.25, 0.3 / (1 << 20)),
    "lanes of a product": case(QMul(3, -128, *quantize_multiplier(0.011), 4), numbers(3, 21), numbers(3, 21)),
    "lanes of a product of u8": case(
        QMul(0, 200, *quantize_multiplier(0.004), 90, low=0, high=255, to=DType.U8),
        numbers(35, dtype=np.uint8),
        numbers(1, dtype=np.uint8),
    ),
    "lanes requantized": case(Requantize(-128, *quantize_multiplier(0.77), 5), numbers(3, 17)),
    "lanes requantized up": case(
        Requantize(100, *quantize_multiplier(3.7), 5, low=0, high=255, to=DType.U8), numbers(300, dtype=np.uint8)
    ),
    "lanes requantized to u8": case(Requantize(0, *quantize_multiplier(1.0), 128, low=0, high=255, to=DType.U8), numbers(256)),
    "lanes averaged": case(QAveragePool((3, 3), (2, 2), (1, 1, 1, 1)), numbers(1, 6, 7, 21)),
    "lanes averaged over all": case(QAveragePool((9, 13), (1, 1), low=-3, high=40), numbers(2, 9, 13, 16)),
    "lanes averaged of u8": case(QAveragePool((2, 5), (1, 2)), numbers(1, 4, 9, 32, dtype=np.uint8)),
    "lanes averaged of the lowest": case(QAveragePool((3, 3), (1, 1), _SAME), np.full((1, 4, 4, 16), -128, np.int8)),
    "bytes pooled": case(MaxPool((3, 3), (2, 2), _SAME, layout=Layout.NHWC), numbers(2, 7, 6, 19)),
    "bytes pooled with windows of padding": case(MaxPool((2, 2), (2, 2), (2, 2, 2, 2), layout=Layout.NHWC), numbers(1, 4, 4, 16)),
    "bytes pooled of u8": case(MaxPool((2, 2), (2, 2), (0, 0, 0, 0), layout=Layout.NHWC), numbers(1, 4, 6, 16, dtype=np.uint8)),
    "lanes of a mean": case(QMean((1, 2), True, 3, *mean_factor(0.02 / 0.015, 20), -4), numbers(2, 4, 5, 23)),
    "lanes of a sum over an axis": case(QMean((1,), False, -128, *quantize_multiplier(0.011), -4), numbers(2, 30, 16)),
    "lanes of a sum, once": case(QMean((1,), False, -7, *quantize_multiplier(5 / 13), 4, scaling="once"), numbers(9, 3, 23)),
}
