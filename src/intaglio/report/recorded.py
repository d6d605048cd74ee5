"""The options that a manifest has, as words of the command line again."""

from __future__ import annotations

import shlex

from intaglio.options import kinds
from intaglio.options.request import ARRAYS, OPTIONS, Option
from intaglio.package.manifest import Manifest

DATA = "DATA.npz"  # stands for arrays that were given in Python


def recorded_words(option: Option, options: dict[str, str]) -> list[str]:
    """Its values; a flag has one, which is not a word."""
    value = options.get(option.recorded, "")
    if option.name in ("quantize", "ranges"):  # `int8,minmax` has both
        scheme, _, ranges = options.get("quantize", "").partition(",")
        value = scheme if option.name == "quantize" else ranges
    if not value:
        return []
    if option.kind in (kinds.DATA, kinds.LABELS) and value == ARRAYS:
        return [DATA]
    return value.split(";" if option.kind is kinds.SHAPES else ",") if option.kind.many else [value]


def command_of(manifest: Manifest) -> str:
    """The command that makes the package again; options as the manifest has them."""
    place = ["--board", board] if (board := manifest.options.get("board")) else ["--target", manifest.target]
    words = ["intaglio", "compile", manifest.model.file, *place, "-o", manifest.name]
    for option in OPTIONS:
        if not option.word or option.name == "board":
            continue
        for value in recorded_words(option, manifest.options):
            words += [option.word] if option.kind is kinds.FLAG else [option.word, value]
    return shlex.join(words)


__all__ = ["command_of", "recorded_words"]
