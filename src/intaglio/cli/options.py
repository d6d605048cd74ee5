"""Words of the command line that are more than text: `N=1`, `in0=1,3,224,224`, `IN=OUT`."""

from __future__ import annotations

from intaglio.errors import UserError, quoted


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
        hint = "sizes are whole numbers from 1, as in `--shape in0=1,3,224,224` or `--dim N=1`"
        raise UserError("bad-option", f"{quoted(text)} in {quoted(word, 120)} is not a size", hint=hint)
    return int(text)
