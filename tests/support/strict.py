"""The warnings that generated C passes, with gcc and with clang, as errors."""

from __future__ import annotations

SHARED = (
    "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Wdouble-promotion", "-Wstrict-prototypes",
    "-Werror",
)  # fmt: skip
GCC = (*SHARED, "-Wcast-align=strict")
CLANG = (*SHARED, "-Wcast-align")  # as strict as gcc's `=strict`


def strict_flags(kind: str) -> tuple[str, ...]:
    """For a toolchain of this kind: `gcc`, `clang` or `zig`."""
    return GCC if kind == "gcc" else CLANG
