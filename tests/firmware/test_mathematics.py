"""Our own <math.h> and <string.h>, called on this machine: floats against doubles, doubles against long doubles."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.run.toolchains import find_toolchain
from support.strict import strict_flags

LIBC = Path(str(resources.files("intaglio.package") / "templates" / "_firmware" / "firmware" / "libc"))
ULPS = 4.0
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], str]] = {
    "exp": (np.exp, "wide"), "expm1": (np.expm1, "wide"), "log": (np.log, "positive"), "log1p": (np.log1p, "positive"),
    "sqrt": (np.sqrt, "positive"), "sin": (np.sin, "angle"), "cos": (np.cos, "angle"), "tan": (np.tan, "angle"),
    "asin": (np.arcsin, "unit"), "acos": (np.arccos, "unit"), "atan": (np.arctan, "wide"), "sinh": (np.sinh, "wide"),
    "cosh": (np.cosh, "wide"), "tanh": (np.tanh, "wide"), "asinh": (np.arcsinh, "wide"), "acosh": (np.arccosh, "above"),
    "atanh": (np.arctanh, "unit"), "floor": (np.floor, "wide"), "ceil": (np.ceil, "wide"), "trunc": (np.trunc, "wide"),
    "rint": (np.rint, "wide"),
}  # fmt: skip


def operands(kind: str, largest_angle: float) -> Array:
    random = np.random.default_rng(0)
    match kind:
        case "wide":
            return np.concatenate([random.uniform(-80, 80, 500), random.standard_normal(500), [0.0, -0.0, 0.5, 1.5, -2.5]])
        case "positive":
            return np.concatenate([10.0 ** random.uniform(-30, 30, 800), [1.0, 2.0, 1e-40]])
        case "angle":
            return np.concatenate([random.uniform(-100, 100, 500), 10.0 ** random.uniform(2, math.log10(largest_angle), 300)])
        case "above":
            return 1 + 10.0 ** random.uniform(-5, 8, 500)
        case _:
            return np.asarray(random.uniform(-1, 1, 1000))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Under names of its own, so that nothing of this machine's library is called instead."""
    folder = tmp_path_factory.mktemp("libc")
    names = [*FUNCTIONS, "erf", "erfc", "pow", "fmod", "fma", "nearbyint", "round", "fmax", "fmin"]
    renames = [f"-D{n}{suffix}=own_{n}{suffix}" for n in names for suffix in ("", "f")]
    toolchain = find_toolchain()
    flags = (*strict_flags(toolchain.kind), "-O2", "-fPIC", "-shared", "-ffreestanding", "-ffp-contract=off")
    parts = []
    for source in ("math_float.c", "math_double.c"):
        text = (LIBC / source).read_text().replace('#include "math.h"', (LIBC / "math.h").read_text())
        for name in names:  # macros of math.h would take the place of the renaming
            for suffix in ("", "f"):
                text = text.replace(f"#define {name}{suffix}(", f"#define unused_{name}{suffix}(")
        (folder / source).write_text(text)
        parts.append(str(folder / source))
    made = folder / "libc.so"
    subprocess.run((*toolchain.compiler, *flags, *renames, *parts, "-o", str(made)), env=toolchain.environment(), check=True)
    return ctypes.CDLL(str(made))


def called(library: ctypes.CDLL, name: str, *arguments: Array) -> Array:
    single = arguments[0].dtype == np.float32
    kind: Any = ctypes.c_float if single else ctypes.c_double
    function = getattr(library, f"own_{name}{'f' if single else ''}")
    function.restype, function.argtypes = kind, [kind] * len(arguments)
    return np.array([function(*map(float, row)) for row in zip(*arguments, strict=True)], arguments[0].dtype)


def ulps(got: Array, exact: Array) -> float:
    """The largest distance, in units of the last place of the exact result."""
    rounded = exact.astype(got.dtype)
    finite = np.isfinite(rounded)
    assert np.array_equal(got[~finite], rounded[~finite], equal_nan=True)
    unit = np.maximum(np.spacing(np.abs(rounded[finite])), np.finfo(got.dtype).tiny * np.finfo(got.dtype).eps)
    distance = np.abs(got[finite].astype(exact.dtype) - exact[finite]) / unit.astype(exact.dtype)
    return float(distance.max(initial=0.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_near_the_exact_result(name: str, dtype: type, library: ctypes.CDLL) -> None:
    exact, kind = FUNCTIONS[name]
    x: Array = operands(kind, 1e30 if dtype is np.float32 else 1e5).astype(dtype)
    wide = x.astype(np.float64 if dtype is np.float32 else np.longdouble)
    with np.errstate(all="ignore"):
        assert ulps(called(library, name, x), exact(wide)) <= ULPS


def test_two_operands(library: ctypes.CDLL) -> None:
    random = np.random.default_rng(1)
    x = (10.0 ** random.uniform(-3, 3, 1000)).astype(np.float32)
    y = random.uniform(-10, 10, 1000).astype(np.float32)
    assert ulps(called(library, "pow", x, y), np.power(x.astype(np.float64), y)) <= 1
    assert ulps(called(library, "fmod", x * np.float32(1e6), y), np.fmod((x * np.float32(1e6)).astype(np.float64), y)) == 0
    wide = np.power(x.astype(np.longdouble), y)
    assert np.max(np.abs(called(library, "pow", x.astype(float), y.astype(float)) - wide) / wide) < 1e-13


@pytest.mark.parametrize(
    ("x", "y", "power"),
    [(-2.0, 3.0, -8.0), (-2.0, 2.0, 4.0), (0.0, -1.0, math.inf), (2.0, -math.inf, 0.0), (math.inf, 0.0, 1.0), (-8.0, 0.5, math.nan),
     (5e-39, 0.5, math.sqrt(5e-39)), (2.0, 128.0, math.inf)],
)  # fmt: skip
def test_powers_at_the_edge(x: float, y: float, power: float, library: ctypes.CDLL) -> None:
    got = called(library, "pow", np.array([x], np.float32), np.array([y], np.float32))
    np.testing.assert_allclose(got, np.float32(power), rtol=1e-6)


def test_the_error_function(library: ctypes.CDLL) -> None:
    x = np.concatenate([np.linspace(-5, 5, 2001), [0.0, 1e-20]])
    exact = np.array([math.erf(v) for v in x])
    assert ulps(called(library, "erf", x.astype(np.float32)), np.array([math.erf(v) for v in x.astype(np.float32)])) <= ULPS
    np.testing.assert_allclose(called(library, "erf", x), exact, rtol=2e-15, atol=0)


def test_a_fused_multiplication_rounds_once(library: ctypes.CDLL) -> None:
    from fractions import Fraction

    random = np.random.default_rng(2)
    rows = (random.standard_normal((3, 1000)) * 10.0 ** random.integers(-4, 5, (3, 1000))).astype(np.float32)
    rows[2, :500] = -(rows[0, :500].astype(np.float64) * rows[1, :500])  # the product almost vanishes
    got = called(library, "fma", *rows)
    for x, y, z, result in zip(*rows, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert abs(Fraction(float(result)) - exact) * 2 <= Fraction(float(np.spacing(np.abs(result))))


def test_memory_functions(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    text = (LIBC / "memory.c").read_text().replace('#include "string.h"', (LIBC / "string.h").read_text())
    names = ("memcpy", "memmove", "memset", "memcmp")
    for name in names:
        text = text.replace(f"#define {name}(", f"#define unused_{name}(").replace(f"#undef {name}\n", "")
    (tmp_path / "memory.c").write_text(text)
    flags = ("-std=c99", "-O2", "-fPIC", "-shared", "-ffreestanding", *(f"-D{n}=own_{n}" for n in names))
    command = (*toolchain.compiler, *flags, str(tmp_path / "memory.c"), "-o", str(tmp_path / "memory.so"))
    subprocess.run(command, env=toolchain.environment(), check=True)
    library = ctypes.CDLL(str(tmp_path / "memory.so"))
    data = bytes(range(1, 101))
    for to in range(8):
        for start in range(8):
            for count in (0, 1, 3, 4, 15, 16, 17, 37, 64):
                for function in (library.own_memcpy, library.own_memmove):
                    buffer = ctypes.create_string_buffer(bytes(100), 100)
                    function(ctypes.byref(buffer, to), data[start:], count)
                    assert buffer.raw == bytes(to) + data[start : start + count] + bytes(100 - to - count)
                within = ctypes.create_string_buffer(data, 100)
                library.own_memmove(ctypes.byref(within, to), ctypes.byref(within, start), count)
                assert within.raw == data[:to] + data[start : start + count] + data[to + count :]
            filled = ctypes.create_string_buffer(bytes(100), 100)
            library.own_memset(ctypes.byref(filled, to), 0x1A5, start * 9)
            assert filled.raw == bytes(to) + b"\xa5" * (start * 9) + bytes(100 - to - start * 9)
    assert library.own_memcmp(b"abc", b"abd", 3) < 0 == library.own_memcmp(b"abc", b"abd", 2)


def test_what_the_error_function_leaves_of_one(library: ctypes.CDLL) -> None:
    """With all digits, down to the smallest number of the type."""
    x = np.concatenate([np.linspace(-5, 10.5, 3101), [0.0, 1e-20, -1e-20, 30.0, -30.0, math.inf, -math.inf]])
    single = x.astype(np.float32)
    assert ulps(called(library, "erfc", single), np.array([math.erfc(v) for v in single])) <= 6
    wide = np.concatenate([x, np.linspace(10, 26, 500)])
    np.testing.assert_allclose(called(library, "erfc", wide), np.array([math.erfc(v) for v in wide]), rtol=5e-14, atol=0)
    assert math.isnan(called(library, "erfc", np.array([math.nan]))[0])
