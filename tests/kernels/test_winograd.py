"""Convolutions by Winograd: exact in exact numbers, bounded errors in floats, and reasons for the choice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import Bounds
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.kernels.choice import lower_node
from intaglio.kernels.considered import considered
from intaglio.kernels.contraction.patches import MOST_SCRATCH
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.transform import POINTS, transform
from intaglio.kernels.contraction.winograd import plan_of
from intaglio.kernels.job import Scratch
from intaglio.ops.conv import Conv
from intaglio.targets import Target
from support.commands import Intaglio
from support.kernel_running import TARGETS, Case, case, interpreted
from support.kernel_tiles import conv
from support.onnx_models import model, node, saved, value

HERE = TARGETS["avx2"]


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_the_algorithm_does_not_depend_on_the_number_of_threads(threads: int) -> None:
    """Nor do the bits: weights that come from memory would count for more where arithmetic is divided."""
    for size, channels in ((8, 64), (14, 256), (7, 512), (28, 128)):
        layer = conv((1, size, size, channels), channels, (3, 3), pads=(1, 1, 1, 1))
        one, many = (considered(layer.node(), replace(HERE, threads=n)) for n in (1, threads))
        assert [(row.name, row.note) for row in one if not row.reason] == [(row.name, row.note) for row in many if not row.reason]


@pytest.mark.parametrize("size", POINTS)
def test_the_transforms_compute_a_convolution(size: int) -> None:
    way = transform(size)
    for i in range(size):
        for tap in range(3):
            for at in range(way.reach):
                found = sum(
                    (a * g[tap] * b[at] for a, g, b in zip(way.back[i], way.weights, way.forward, strict=True)), Fraction(0)
                )
                assert found == (at == i + tap)


@pytest.mark.parametrize("size", POINTS)
def test_constants_of_the_kernels_are_exact(size: int) -> None:
    way = transform(size)
    assert all(Fraction(float(np.float32(value))) == value for row in (*way.forward, *way.back) for value in row)


def picture(channels: int, out: int, size: int, kind: str) -> Case:
    """Activations as they are behind a ReLU and weights as they are initialised; or numbers of one size with signs that add up."""
    r = np.random.default_rng(channels + size)
    x: Array = np.maximum(r.standard_normal((1, 11, 12, channels)), 0)
    w: Array = r.standard_normal((out, channels, 3, 3)) / np.sqrt(9 * channels)
    if kind == "one size":
        x, w = np.where(x > 0.5, 1.3, -1.3), np.where(w > 0, 0.7, -0.7)
    op = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1, Layout.NHWC)
    return case(op, x.astype(np.float32), w.astype(np.float32), constant=[1], using=f"winograd(m={size})")


def errors(found: Case) -> tuple[float, float]:
    """The largest error, relative to the largest result, and to max |x| max |w|."""
    x, w = (np.asarray(found.operands[n], np.float64) for n in (0, 1))
    (exact,) = replace(found, operands=(x, w)).expected()
    _, (result,) = interpreted(found, HERE)
    worst = float(np.abs(result - exact).max())
    return worst / float(np.abs(exact).max()), worst / float(np.abs(x).max() * np.abs(w).max())


@pytest.mark.parametrize("kind", ["random", "one size"])
@pytest.mark.parametrize(("size", "stated"), [(2, 2e-6), (4, 5e-6)])
def test_the_error_is_within_the_stated_bounds(size: int, stated: float, kind: str) -> None:
    """`stated` is in docs/reference/exactness.md, for 64 channels."""
    to_result, to_operands = errors(picture(64, 8, size, kind))
    assert 0 < to_result < stated
    assert to_operands < transform(size).bound(64)


def image(channels: int, pixels: int, out: int = 0, stride: int = 1) -> Case:
    op = Conv((stride, stride), (1, 1, 1, 1), (1, 1), 1, Layout.NHWC)
    weights = np.zeros((out or channels, channels, 3, 3), np.float32)
    return case(op, np.zeros((1, pixels, pixels, channels), np.float32), weights, constant=[1])


def judged(found: Case, target: Target = HERE, using: str = "") -> tuple[str, str]:
    """Why not, or what speaks for it."""
    first = considered(found.node(), target, using)[0]
    assert first.name == "winograd"
    return first.reason, first.note


def test_large_layers_are_computed_by_winograd_and_say_why() -> None:
    reason, note = judged(image(64, 56))
    assert not reason
    assert note.startswith("estimated ") and " us direct, F(2x2) " in note and ", F(4x4) " in note


@pytest.mark.parametrize(
    ("found", "target", "reason"),
    [
        (image(64, 56), replace(HERE, exact=True), "it changes rounding, and `--exact` is set"),
        (image(64, 56), replace(HERE, optimize="size"), "`--optimize size` is set"),
        (image(64, 56), replace(HERE, limited=True), "memory has a limit"),
        (image(64, 56), TARGETS["scalar"], "it is for processors with vectors of floats"),
        (image(64, 56, stride=2), HERE, "it is not 3x3 with stride 1"),
        (image(3, 112, 8), HERE, "direct convolution is faster: estimated "),
        (image(1024, 4), HERE, "direct convolution is faster: estimated "),
    ],
)
def test_other_layers_say_why_not(found: Case, target: Target, reason: str) -> None:
    assert reason in judged(found, target)[0]


def test_who_asks_for_winograd_gets_it_even_if_it_is_slower_but_not_against_exact() -> None:
    assert judged(image(3, 112, 8), using="winograd(m=2,tile=6x2)")[0] == ""
    assert "`--exact`" in judged(image(3, 112, 8), replace(HERE, exact=True), "winograd(m=2,tile=6x2)")[0]
    assert judged(image(64, 56), using="winograd(m=3,tile=6x2)")[0] == "m is one of 2, 4"


def test_few_pixels_of_many_channels_take_the_smaller_transform_where_weights_are_slow_to_read() -> None:
    slow = replace(HERE, gbytes_per_s=8.0)
    note = judged(image(512, 14), slow)[1]
    assert note
    times = [float(part.split()[1]) for part in note.removeprefix("estimated ").split(", ")[1:]]
    assert times[0] < times[1]


def ranged(channels: int, least: int, largest: int) -> Node:
    """A picture as high and as wide as the caller says."""
    t, op = Bounds({"T": (least, largest)}).size("T"), Conv((1, 1), (1, 1, 1, 1), (1, 1), 1, Layout.NHWC)
    image = TensorType(DType.F32, (1, t, t, channels))
    weights = np.zeros((channels, channels, 3, 3), np.float32)
    operands: list[Value | None] = [Value("x", image), Value("w", TensorType(DType.F32, weights.shape), data=weights)]
    return Node(op, operands, [Value("y", image)], "/conv")


def test_a_range_of_sizes_is_judged_by_all_of_it() -> None:
    """8x8 pixels alone would be faster; of 1x1 to 8x8 most are not."""
    worth, not_worth = (considered(ranged(*range_), HERE)[0] for range_ in ((64, 8, 64), (1024, 1, 8)))
    assert not worth.reason and worth.note.startswith("estimated over the range, as a part of direct: F(2x2) 0.")
    assert "direct convolution is faster: estimated over the range" in not_worth.reason and not judged(image(1024, 8))[0]


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_a_range_of_sizes_needs_the_scratch_memory_of_the_largest(isa: str) -> None:
    node, fixed = ranged(64, 3, 40), image(64, 40).node()
    needed = [
        sum(a.bytes for a in lower_node(each, TARGETS[isa], "winograd(m=4)").arguments if isinstance(a, Scratch))
        for each in (node, fixed)
    ]
    assert needed[0] == needed[1]


@pytest.mark.parametrize("isa", ["avx2", "avx512", "neon", "sse2"])
@pytest.mark.parametrize(("pixels", "channels"), [(7, 512), (14, 256), (56, 64), (224, 64), (9, 2000)])
def test_blocks_are_whole_tiles_in_little_memory(isa: str, pixels: int, channels: int) -> None:
    p = Problem(1, pixels, pixels, channels, pixels, pixels, channels, (3, 3), (1, 1), (1, 1))
    for size in POINTS:
        plan = plan_of(p, TARGETS[isa], TARGETS[isa].lanes, size)
        assert plan.block % plan.tile.rows == 0
        assert plan.block < plan.patches + plan.tile.rows
        scratch = plan.products * plan.block * (channels + plan.wide) * 4
        assert scratch <= MOST_SCRATCH or plan.block == plan.tile.rows


def small_network(folder: Path) -> Path:
    weights = np.random.default_rng(1).standard_normal((32, 32, 3, 3)).astype(np.float32)
    nodes = [node("Conv", "x w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "y")]
    return saved(model(nodes, [value("x", [1, 32, 24, 24])], [value("y", [1, 32, 24, 24])], {"w": weights}), folder)


def test_options_choose_the_direct_kernel(intaglio: Intaglio, tmp_path: Path) -> None:
    network, first = small_network(tmp_path), tmp_path / "first.ig"

    def compiled(source: Path, out: Path, *options: str) -> tuple[int, str]:
        said = intaglio("compile", source, "--target", "x86-64-v3", "--stop-after", "memory", "-o", out, *options)
        return said.code, said.err if said.code else out.read_text(encoding="utf-8")

    assert "using winograd(m=4,tile=" in compiled(network, first)[1]
    for n, option in enumerate((["--exact"], ["--ram", "64M"], ["--optimize", "size"])):
        assert "using conv_nhwc(tile=" in compiled(network, tmp_path / f"{n}.ig", *option)[1]
    assert "using winograd(m=4,tile=" in compiled(first, tmp_path / "again.ig")[1]
    code, message = compiled(first, tmp_path / "exact.ig", "--exact")
    assert code == 2
    assert "error[bad-kernel]" in message and "it changes rounding, and `--exact` is set" in " ".join(message.split())
