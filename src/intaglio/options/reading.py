"""Words of the command line, or keywords of `intaglio.compile`, become a `Request`."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.frontends.bundle import opened
from intaglio.options.request import OPTIONS, Option, Request
from intaglio.options.values import Unfit


def request_of_words(model: Path, output: Path, words: Mapping[str, object]) -> Request:
    """Words by the name of the option; what was not given is None, or the default."""
    values = {o.name: read_words(o, words[o.name]) for o in OPTIONS if o.name in words}
    return request_for(model, replace(Request(model, output), **values))  # type: ignore[arg-type]


def request_for(model: Path, request: Request) -> Request:
    """The request about a model; of a bundle, about the one that is named."""
    path, signature = opened(model, request.signature)
    return replace(request, model=path, signature=signature)


def read_words(option: Option, given: object) -> object:
    if given is None or given == []:
        return option.default
    if option.kind.read is None:
        return given
    words = given if isinstance(given, list) else [given]
    return option.kind.read([str(word) for word in words], option.word)


def request_of_keywords(model: Path, output: Path, keywords: Mapping[str, object]) -> Request:
    """None is the default."""
    values = {o.name: read_keyword(o, keywords[o.keyword]) for o in OPTIONS if o.keyword and o.keyword in keywords}
    return request_for(model, replace(Request(model, output), **values))  # type: ignore[arg-type]


def read_keyword(option: Option, given: object) -> object:
    """The value of a keyword; text may be written as on the command line."""
    if given is None:
        return option.default
    try:
        if isinstance(given, str) and option.kind.read is not None:
            return option.kind.read([given], option.keyword)
        return option.kind.take(given)
    except (Unfit, UserError) as fault:
        listed = isinstance(given, Mapping) and any(isinstance(size, list) for size in given.values())
        if option.name == "dims" and listed:
            raise UserError(
                "bad-option", f"{quoted(f'dims={reprlib.repr(given)}')} has a list of sizes, which is for several entry points",
                hint="use `intaglio.compile_entries`: each size gets an entry point of one package",
            ) from None  # fmt: skip
        if isinstance(fault, Unfit) and fault.args:
            what, hint = fault.args
            raise UserError("bad-option", f"{quoted(f'{option.keyword}={reprlib.repr(given)}')}: {what}", hint=hint) from None
        raise unfit(option.keyword, given, option.kind.python) from None


def unfit(keyword: str, given: object, expected: str) -> UserError:
    shown = quoted(f"{keyword}={reprlib.repr(given)}")
    return UserError("bad-option", f"{shown} is not a value of the option `{keyword}`", hint=f"expected: {expected}")
