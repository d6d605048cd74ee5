"""Messages name options as the command line does. To a caller from Python they speak of keywords:

    `--shape x=1,3` contradicts the model      ->   `shapes={'x': (1, 3)}` contradicts the model
    the target needs `--quantize int8`         ->   the target needs `quantize='int8'`
    `--feed-rows` takes the input row by row   ->   `feed_rows=True` takes the input row by row

Commands (`intaglio boards`) and options that Python does not have stay as they are.
"""

from __future__ import annotations

import re

from intaglio.errors import IntaglioError, UserError
from intaglio.options import kinds
from intaglio.options.request import OPTIONS, Option

_QUOTED = re.compile(r"`(--[^`]*)`")
_PLACEHOLDER = re.compile(r"(?<=[=,])[MN]\b")  # `NAME=N`: any size, and not one that is called so
_PAIRS = (kinds.DIMS, kinds.SHAPES, kinds.STATES, kinds.COUNTS)


def in_python(text: str) -> str:
    return _QUOTED.sub(lambda found: f"`{_keywords(found[1])}`", text)


def spoken_in_python(error: IntaglioError) -> IntaglioError:
    """The same error, in words of Python."""
    error.message, error.hint = in_python(error.message), in_python(error.hint)
    return error


def _keywords(words: str) -> str:
    """`--accelerator NAME --ram 64K` -> `accelerators=NAME, ram='64K'`."""
    parts = []
    for part in re.split(r"\s+(?=--)", words):
        word, _, value = part.partition(" ")
        option = next((o for o in OPTIONS if o.word == word and o.keyword), None)
        if option is None:
            return words
        parts.append(_keyword(option, value.strip()))
    return ", ".join(parts)


def _keyword(option: Option, value: str) -> str:
    if option.kind is kinds.FLAG:
        return f"{option.keyword}=True"
    if not value:
        return option.keyword
    if option.kind in _PAIRS:
        try:
            if _PLACEHOLDER.search(value):
                raise UserError("bad-option", value)
            return f"{option.keyword}={_value(option, value)!r}"
        except UserError:  # a placeholder: `NAME=N`
            key, _, rest = value.rpartition("=")
            low, dots, high = rest.partition("..")
            if dots or option.kind is kinds.SHAPES:
                rest = f"({low}, {high})" if dots and option.kind is kinds.DIMS else f"({', '.join(rest.split(','))})"
            return f"{option.keyword}={{{key!r}: {rest}}}"
    if option.kind in (kinds.WHOLE, kinds.NUMBER) or value == option.metavar or value == "...":
        return f"{option.keyword}={value}"
    return f"{option.keyword}={value!r}"


def _value(option: Option, value: str) -> object:
    assert option.kind.read is not None
    return option.kind.read([value], option.word)
