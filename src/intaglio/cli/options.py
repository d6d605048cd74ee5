"""Words of the command line that are more than text: `N=1`, `in0=1,3,224,224`, `IN=OUT`, `64K`, `0x90000000`."""

from __future__ import annotations

import re

from intaglio.errors import UserError, quoted
from intaglio.stages import Device

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def pairs(words: list[str] | None, option: str) -> dict[str, str]:
    """`KEY=VALUE` words; keys may hold anything but come once."""
    found: dict[str, str] = {}
    for word in words or []:
        # The last `=`: names in models may hold one, numbers do not.
        key, equals, value = word.rpartition("=")
        if not equals or not key or not value:
            raise UserError("bad-option", f"`{option} {quoted(word)[1:-1]}` is not of the form NAME=VALUE")
        if key in found:
            raise UserError("bad-option", f"`{option}` is given twice for {quoted(key)}")
        found[key] = value
    return found


def dims(words: list[str] | None) -> dict[str, int]:
    return {key: _size(value, f"--dim {key}={value}") for key, value in pairs(words, "--dim").items()}


def shapes(words: list[str] | None) -> dict[str, tuple[int, ...]]:
    found = {}
    for key, value in pairs(words, "--shape").items():
        sizes = [] if value in ("[]", "scalar") else value.strip("[]").replace("x", ",").split(",")
        found[key] = tuple(_size(size, f"--shape {key}={value}") for size in sizes)
    return found


def _size(text: str, word: str) -> int:
    if not (text.strip().isascii() and text.strip().isdigit()) or len(text) > 18 or int(text) < 1:
        hint = "sizes are integers from 1, for example `--shape in0=1,3,224,224` or `--dim N=1`"
        raise UserError("bad-option", f"{quoted(text)} in {quoted(word, 120)} is not a size", hint=hint)
    return int(text)


def device(
    board: str | None, ram: str | None, flash: str | None, arena: str, section: str | None, address: str | None, io: str,
    optimize: str, memory: str | None = None, weights: str | None = None, precision: str | None = None,
    limit_ms: float | None = None,
) -> Device:  # fmt: skip
    sizes = size_bytes(ram, "--ram"), size_bytes(flash, "--flash")
    read = "read" if "read" in (weights or "").split(",") else "mapped"
    return Device(board, *sizes, arena, section, _address(address), io, optimize, memory, read, precision, limit_ms)


def stored_weights(text: str | None) -> str | None:
    """What `--weights` says of how they are stored, beside whether they are read: `fp16` of `fp16,read`."""
    words = [word for word in (text or "").split(",") if word != "read"]
    return ",".join(words) or None


def size_bytes(text: str | None, option: str) -> int | None:
    """`65536`, `64K`, `64KB`, `64KiB`, `1M`: always in steps of 1024."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})([KMG]?)(i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    if found is None or int(found[1]) == 0:
        hint = f"for example `{option} 64K` or `{option} 1M`"
        raise UserError("bad-option", f"`{option} {quoted(text)[1:-1]}` is not a size", hint=hint)
    return int(found[1]) * _UNITS[found[2].upper()]


def _address(text: str | None) -> int | None:
    if text is None:
        return None
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}", text.strip(), re.ASCII) is None:
        hint = "use a hexadecimal number of up to 32 bits, for example `--weights-address 0x08080000`"
        raise UserError("bad-option", f"`--weights-address {quoted(text)[1:-1]}` is not an address", hint=hint)
    return int(text, 16)
