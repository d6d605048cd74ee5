"""Floats in whole numbers, for cores without an FPU: the same bits as this machine's, but for numbers below 2^-126."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.run.toolchains import find_toolchain
from support.strict import strict_flags

SOURCE = Path(str(resources.files("intaglio.package") / "templates" / "_firmware" / "firmware" / "libc" / "soft_float.c"))
LEAST = 2.0**-126
DRIVER = """
void pairs(int which, const uint32_t *a, const uint32_t *b, uint32_t *y, int n);
void pairs(int which, const uint32_t *a, const uint32_t *b, uint32_t *y, int n)
{
    for (int i = 0; i < n; i++)
        switch (which) {
        case 0: y[i] = ADD(a[i], b[i]); break;
        case 1: y[i] = SUB(a[i], b[i]); break;
        case 2: y[i] = MUL(a[i], b[i]); break;
        case 3: y[i] = (uint32_t)test_less(a[i], b[i]); break;
        case 4: y[i] = FROM_I32((int32_t)a[i]); break;
        case 5: y[i] = FROM_U32(a[i]); break;
        case 6: y[i] = (uint32_t)TO_I32(a[i]); break;
        default: y[i] = TO_U32(a[i]); break;
        }
}
"""


@pytest.fixture(scope="module", params=["halves", "words", "halves, steady", "words, steady"])
def computed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Array]:
    """`halves`: as on a Cortex-M0+, which multiplies into 32 bits and counts no zeros. `steady`: of `--safety steady`."""
    folder, toolchain = tmp_path_factory.mktemp("soft"), find_toolchain()
    (folder / "soft.c").write_text(SOURCE.read_text() + DRIVER)
    (folder / "steady.h").write_text(f"#define STEADY_FLOATS {int('steady' in request.param)}\n")
    flags = (*strict_flags(toolchain.kind), "-O2", "-fPIC", "-shared", "-DSOFT_FLOAT_TEST")
    flags += ("-D__ARM_ARCH_6M__",) if "halves" in request.param else ()
    made = folder / "soft.so"
    subprocess.run((*toolchain.compiler, *flags, str(folder / "soft.c"), "-o", str(made)), env=toolchain.environment(), check=True)
    library = ctypes.CDLL(str(made))

    def compute(which: int, a: Array, b: Array | None = None) -> Array:
        a = np.ascontiguousarray(a).view(np.uint32)
        b = a if b is None else np.ascontiguousarray(b).view(np.uint32)
        y = np.zeros(len(a), np.uint32)
        library.pairs(which, *(ctypes.c_void_p(v.ctypes.data) for v in (a, b, y)), len(a))
        return y

    return compute


def operands() -> tuple[Array, Array]:
    """Of all kinds: any bits, numbers of about the same size, sums that vanish, ties, the ends of the range."""
    random = np.random.default_rng(4)
    anything = random.integers(0, 2**32, (2, 200_000), dtype=np.uint32)
    near = random.integers(0, 2**32, (2, 200_000), dtype=np.uint32) & 0x87FFFFFF | 0x3C000000
    ties = near.copy()
    ties[1] &= 0xFFFFF000
    odd = np.array([
        0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, LEAST, -LEAST, LEAST / 2, 1e-45, 3.4028235e38, -3.4028235e38, 2.0**24,
        2.0**-24, 1 + 2.0**-23, 1 - 2.0**-24, 2.0**127, LEAST * (1 + 2.0**-23),
    ], np.float32).view(np.uint32)  # fmt: skip
    grid = np.stack([m.reshape(-1) for m in np.meshgrid(odd, odd)])
    close = near.copy()
    close[1] = near[0] ^ (random.integers(0, 8, near.shape[1], dtype=np.uint32) | 0x80000000)
    small = random.integers(0, 2**32, (2, 200_000), dtype=np.uint32) & 0x9FFFFFFF | 0x20000000
    all_of = np.concatenate([anything, near, ties, grid, close, small], axis=1)
    return all_of[0].view(np.float32), all_of[1].view(np.float32)


def flushed(x: Array) -> Array:
    return np.where(np.abs(x) < LEAST, np.copysign(np.float32(0), x), x)


def rounded(exact: Array) -> Array:
    """Doubles to 24 bits, and to zero below 2^-126."""
    part, exponent = np.frexp(exact)
    near = np.ldexp(np.rint(part * 2**24), exponent - 24)
    return flushed(np.where(np.isfinite(exact), near, exact)).astype(np.float32)


def assert_same(got: Array, want: Array) -> None:
    found = got.view(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    there = ~np.isnan(want)
    np.testing.assert_array_equal(got[there], want[there].view(np.uint32))
    assert (got[~there] == 0x7FC00000).all()


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_results_are_those_of_ieee_754(name: str, computed: Callable[..., Array]) -> None:
    a, b = operands()
    with np.errstate(all="ignore"):
        x, y = (flushed(v).astype(np.float64) for v in (a, b))
        exact = {"add": x + y, "subtract": x - y, "multiply": x * y}[name]
        want = rounded(exact)
    assert_same(computed(["add", "subtract", "multiply"].index(name), a, b), want)


def test_comparisons_are_those_of_this_machine(computed: Callable[..., Array]) -> None:
    a, b = operands()
    np.testing.assert_array_equal(computed(3, a, b), (a < b).astype(np.uint32))


def test_whole_numbers_and_back(computed: Callable[..., Array]) -> None:
    edges = [0, 1, 2, 2**24, 2**24 + 1, 2**24 + 3, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 128, 0x80000001, 0xFFFFFF7F]
    x = np.concatenate([np.random.default_rng(1).integers(0, 2**32, 100_000), edges]).astype(np.uint32)
    assert_same(computed(4, x), x.view(np.int32).astype(np.float32))
    assert_same(computed(5, x), x.astype(np.float32))
    real, _ = operands()
    with np.errstate(all="ignore"):
        doubles = np.nan_to_num(np.trunc(real.astype(np.float64)), posinf=1e20, neginf=-1e20)
    np.testing.assert_array_equal(computed(6, real).view(np.int32), np.clip(doubles, -(2.0**31), 2.0**31 - 1).astype(np.int32))
    np.testing.assert_array_equal(computed(7, real), np.clip(doubles, 0, 2.0**32 - 1).astype(np.uint32))
