"""Text from a model on its way into C, and the C names of our types.

A name such as `*/ int f(void) {...} /*` must never become code. Names that are *used* in C were cleaned by the front
end and are checked here; names that are only *shown* go into comments, and only through `comment`.
"""

from __future__ import annotations

import re

from intaglio.errors import OurFault, printable
from intaglio.ir.names import KEYWORDS
from intaglio.ir.types import DType

C_TYPES = {
    DType.F32: "float", DType.F64: "double", DType.F16: "uint16_t", DType.BF16: "uint16_t", DType.I8: "int8_t",
    DType.I16: "int16_t", DType.I32: "int32_t", DType.I64: "int64_t", DType.U8: "uint8_t", DType.U16: "uint16_t",
    DType.U32: "uint32_t", DType.U64: "uint64_t", DType.BOOL: "uint8_t",
}  # fmt: skip

# What numpy calls them in a .npy header. bf16 has no name there: its bits travel as uint16.
NPY_DESCR = {
    DType.F32: "<f4", DType.F64: "<f8", DType.F16: "<f2", DType.BF16: "<u2", DType.I8: "|i1", DType.I16: "<i2",
    DType.I32: "<i4", DType.I64: "<i8", DType.U8: "|u1", DType.U16: "<u2", DType.U32: "<u4", DType.U64: "<u8",
    DType.BOOL: "|b1",
}  # fmt: skip

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
COMMENT_CHARACTERS = 100


def is_identifier(name: str) -> bool:
    """Usable as a name in C99 and in C++ (headers are read by both)."""
    return _IDENTIFIER.fullmatch(name) is not None and name.lower() not in KEYWORDS


def identifier(name: str) -> str:
    """`name`, after a last look before it becomes C."""
    if not is_identifier(name) or len(name) > 200:
        raise OurFault("unclean-name", f"`{printable(name, 80)}` was about to become a name in C")
    return name


def macro(network: str, kind: str, name: str) -> str:
    """A macro of a network, `NET_AT_x` for what is called `x`: two networks in one file do not collide."""
    return f"{identifier(network).upper()}_{kind}_{identifier(name)}"


def kconfig(network: str) -> str:
    """The symbol of a network in Zephyr's Kconfig, without `CONFIG_`."""
    return f"INTAGLIO_{identifier(network).upper()}"


def comment(text: str, most: int = COMMENT_CHARACTERS) -> str:
    """Text that cannot end a comment, continue a line or spell a trigraph."""
    shown = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text[: most + 1])
    if len(shown) > most:
        shown = shown[: most - 3] + "..."
    # Twice: `//*` becomes `/ /*`... only a second look is safe from what the first one joined.
    for _ in range(2):
        shown = shown.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    return shown.strip()


def unique_macros(names: list[str]) -> list[str]:
    """Upper-case names for macros; `x` and `X` must not become the same one."""
    taken: set[str] = set()
    macros = []
    for name in names:
        stem = macro = identifier(name).upper()
        n = 2
        while macro in taken:
            macro, n = f"{stem}_{n}", n + 1
        taken.add(macro)
        macros.append(macro)
    return macros
