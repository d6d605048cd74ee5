"""Words of the command line, or keywords of `intaglio.compile`, become a `Request`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from pathlib import Path

from intaglio.options import kinds
from intaglio.options.request import OPTIONS, Option, Request


def request_of_words(model: Path, output: Path, words: Mapping[str, object]) -> Request:
    """Words by the name of the option; what was not given is None, or the default."""
    values = {o.name: read_words(o, words[o.name]) for o in OPTIONS if o.name in words}
    return replace(Request(model, output), **values)  # type: ignore[arg-type]


def read_words(option: Option, given: object) -> object:
    if given is None or given == []:
        return option.default
    if option.kind.read is None:
        return given
    words = given if isinstance(given, list) else [given]
    return option.kind.read([str(word) for word in words], option.word)


def request_of_keywords(model: Path, output: Path, keywords: Mapping[str, object]) -> Request:
    """None is the default; a single device may be given alone, a path as text."""
    values = {o.name: _value(o, keywords[o.keyword]) for o in OPTIONS if o.keyword and o.keyword in keywords}
    return replace(Request(model, output), **values)  # type: ignore[arg-type]


def _value(option: Option, given: object) -> object:
    if given is None:
        return option.default
    if option.kind is kinds.DEVICES and isinstance(given, str):
        return (given,)
    match option.default:
        case tuple() if isinstance(given, (list, tuple)):
            return tuple(given)
        case frozenset() if isinstance(given, (list, tuple, Set)):
            return frozenset(given)
        case dict() if isinstance(given, Mapping):
            return {key: tuple(value) if isinstance(value, (list, tuple)) else value for key, value in given.items()}
        case _ if option.kind in (kinds.FILE, kinds.DATA) and isinstance(given, str):
            return Path(given)
        case _ if isinstance(given, Path) and option.kind is kinds.TEXT:
            return str(given)
    return given
