"""How much scratch memory functions of CMSIS-NN need, by the kind of core.

The same as its `..._get_buffer_size` functions give, which the generated code asks too: a version that needs more ends the run with
an error, and does not write where it should not.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.accelerator import Target

MVE_CHANNELS = 124  # CH_IN_BLOCK_MVE: channels that its depthwise convolution takes at a time


def kind_of(target: Target) -> str:
    """Which code of CMSIS-NN the compiler chooses: `mve` (Helium), `dsp`, or `plain` C."""
    if target.arch != "arm" or not target.bare:
        return "plain"
    return "mve" if target.isa.startswith("mve") else "dsp" if target.isa.startswith("dsp") else "plain"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A convolution as CMSIS-NN chooses its function: rows and columns of image, kernel and result."""

    image: tuple[int, int]
    channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]  # above, to the left
    dilations: tuple[int, int]
    result: tuple[int, int]

    @property
    def depth(self) -> int:
        return self.kernel[0] * self.kernel[1] * self.channels

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.pads == (0, 0) and self.dilations == (1, 1)

    @property
    def is_row(self) -> bool:
        """A kernel of 1xN over one row has a function of its own."""
        flat = self.image[0] == 1 and self.kernel[0] == 1 and self.dilations[1] == 1
        return flat and not self.is_pointwise and self.strides[1] * self.channels % 4 == 0


@dataclass(frozen=True, slots=True)
class RowWindows:
    """How arm_convolve_1_x_n_s8 with MVE divides a row: windows that reach over its left end, over none, over its right end."""

    odd: int  # columns that are padded on the right beyond those on the left, if C's remainder says so
    left: int
    inside: int
    right: int

    @classmethod
    def of(cls, g: Geometry) -> RowWindows:
        stride, pad, out = g.strides[1], g.pads[1], g.result[1]
        total = (out - 1) * stride + g.kernel[1] - g.image[1]
        odd = total % 2 if total >= 0 else -(-total % 2)
        right = max(1, int((pad + odd + stride - 1) / stride)) if pad + odd != 0 else 0
        left = max(1, (pad + stride - 1) // stride) if pad != 0 else 0
        return cls(odd, left, max(out - right - left, 0), right)


def row_is_right(g: Geometry) -> bool:
    """Does that function compute this row? With MVE it ends with an error where padding is not as in TFLite, and takes only the
    last column of the first window that reaches over the right end to lie outside, which not every stride gives."""
    row, stride, pad, width = RowWindows.of(g), g.strides[1], g.pads[1], g.kernel[1]
    total = (g.result[1] - 1) * stride + width - g.image[1]
    if 2 * pad + row.odd != total or row.left + row.inside + row.right != g.result[1]:
        return False
    begin = stride * (row.left + row.inside) - pad
    behind = row.right if row.odd else pad
    right = row.right == 0 or (row.odd >= 0 and g.image[1] - begin == width - 1 and (row.right - 1) * stride + 1 <= behind)
    return right and (row.left == 0 or (g.image[1] >= width and stride * row.left >= pad))


def conv_bytes(g: Geometry, kind: str) -> int:
    """arm_convolve_wrapper_s8_get_buffer_size; for rows that the wrapper does not compute, arm_convolve_s8_get_buffer_size."""
    if g.is_pointwise:
        return 0
    if kind != "mve":
        return 2 * 2 * _up(g.depth, 4)  # two columns of 16-bit numbers
    if not g.is_row or not row_is_right(g):
        return 4 * _up(g.depth, 16)  # four columns
    row = RowWindows.of(g)
    before = g.pads[1] * g.channels
    behind = row.right * g.channels if row.odd else before
    whole = g.kernel[1] * g.channels
    return max(whole + before, whole - g.channels + behind)


def depthwise_bytes(g: Geometry, outputs: int, batch: int, kind: str) -> int:
    """arm_depthwise_conv_wrapper_s8_get_buffer_size, of more than one channel."""
    if g.channels != outputs or batch != 1 or g.dilations != (1, 1) or kind == "plain":
        return 0
    if kind == "mve":
        return 4 * MVE_CHANNELS * g.kernel[0] * g.kernel[1]
    return 0 if is_three_by_three(g) else 2 * g.depth


def is_three_by_three(g: Geometry) -> bool:
    return g.kernel == (3, 3) and max(g.pads) <= 1 and g.dilations == (1, 1)


def dense_bytes(outputs: int, kind: str) -> int:
    """arm_fully_connected_s8_get_buffer_size: with MVE, the sums of the weights of each output."""
    return 4 * outputs if kind == "mve" else 0


def average_bytes(channels: int, kind: str) -> int:
    """arm_avgpool_s8_get_buffer_size."""
    return 4 * channels if kind == "dsp" else 0


def _up(count: int, to: int) -> int:
    return -(-count // to) * to
