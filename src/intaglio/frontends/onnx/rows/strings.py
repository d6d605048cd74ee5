"""Operators on strings. What only moves them about is done on their numbers: 0, 1, 2, ... are moved instead, and say which strings
the result has."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from intaglio.frontends.building import cast, concat, padded, reshape
from intaglio.frontends.foreign import STRINGS
from intaglio.frontends.lookup import in_order
from intaglio.frontends.onnx.call import TABLE, Answer, Item, OnnxCall, Texts, importer, of_strings, texts
from intaglio.frontends.onnx.classes import ML
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.regex import automaton
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import most
from intaglio.ir.strings import stacked
from intaglio.ir.types import DType
from intaglio.ops.binary import Equal, GreaterEqual, Less, Mul, Where
from intaglio.ops.index import Gather
from intaglio.ops.reduce import Reduce
from intaglio.ops.strings import SPACES, NGrams, TextCase, TextFind, TextJoin, TextKeep, TextMatch, TextSplit, case_table

_RUNS = re.compile(r"(\[(?:[^\]\\^]|\\[wd_.-])(?:[^\]\\]|\\[wd_.-])*\]|\\[wd])\+")  # a set of characters, repeated


def widened(call: OnnxCall, value: Value, width: int) -> Value:
    """With room for longer strings."""
    return padded(call, value, [0] * (2 * len(value.shape) - 1) + [width - value.shape[-1]])


# Moving ---------------------------------------------------------------------------------------------------------------------


@of_strings(
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Gather", "GatherElements", "GatherND",
    "Slice", "Expand", "Tile", "Split", "Where", "Compress", "DepthToSpace", "SpaceToDepth", "ReverseSequence",
)  # fmt: skip
def moved(call: OnnxCall) -> Answer:
    if call.op == "Flatten" and call.integer("axis", 1) == 1 and len(call.strings(0).shape) == 3:
        return texts(call.strings(0))  # it is flat; how many there are in a row may be known from data alone
    return [_chosen(call, item, _rows(call)) for item in _of_numbers(call)]


@of_strings("ArrayFeatureExtractor", domain=ML)
def moved_columns(call: OnnxCall) -> Answer:
    return moved(call)


@of_strings("Shape", "Size")
def shape(call: OnnxCall) -> Answer:
    return _of_numbers(call)


def _of_numbers(call: OnnxCall) -> list[Item | None]:
    """What the operator makes of the numbers of the strings."""
    numbered: list[Item | None] = []
    first = 0
    for item in call.inputs:
        if isinstance(item, Texts):
            count = math.prod(item.shape)
            numbered.append(call.constant(np.arange(first, first + count, dtype=np.int64).reshape(item.shape)))
            first += count
        else:
            numbered.append(item)
    answer = TABLE[call.domain, call.op](replace(call, inputs=numbered))
    return list(answer) if isinstance(answer, (list, tuple)) else [answer]  # type: ignore[list-item]


def _rows(call: OnnxCall) -> Value:
    """All strings of all operands, below each other."""
    parts = [item.value for item in call.inputs if isinstance(item, Texts)]
    width = max(part.shape[-1] for part in parts)
    flat = [widened(call, reshape(call, part, (part.type.elements // part.shape[-1], part.shape[-1])), width) for part in parts]
    return concat(call, flat, 0)


def _chosen(call: OnnxCall, numbers: Item | None, rows: Value) -> Item | None:
    if not isinstance(numbers, Value):
        return numbers
    count, width = rows.shape
    flat = reshape(call, numbers, (numbers.type.elements,))
    if flat.data is not None and np.array_equal(flat.data, np.arange(count)):
        return texts(reshape(call, rows, (*numbers.shape, width)))
    return texts(reshape(call, call.emit(Gather(0), rows, flat), (*numbers.shape, width)))


# Comparing ------------------------------------------------------------------------------------------------------------------


@of_strings("Equal")
def equal(call: OnnxCall) -> Answer:
    a, b = call.strings(0), call.strings(1)
    width = max(a.shape[-1], b.shape[-1])
    same = call.emit(Equal(), widened(call, a, width), widened(call, b, width))
    return call.emit(Reduce("all", (len(same.shape) - 1,), False), same)


@of_strings("RegexFullMatch")
def regex_full_match(call: OnnxCall) -> Answer:
    tables = automaton(call.text("pattern"))
    return call.emit(TextMatch(), call.strings(0), *(call.constant(t) for t in (tables.classes, tables.after, tables.accepts)))


def find(call: OnnxCall, x: Value, keys: Sequence[str]) -> tuple[Value, Array]:
    """Which of the keys each string is, in sorted order, -1 where none; and the order: the first of equal keys counts."""
    words, order = in_order(keys)
    return call.emit(TextFind(), x, call.words(words).value), order


def place_of(call: OnnxCall, x: Value, keys: Sequence[str]) -> Value:
    """Which key each string is, by its place in the list; as many as there are where it is none."""
    found, order = find(call, x, keys)
    back = np.array([*order, len(keys)], np.int64)  # -1 counts from the end
    return call.emit(Gather(0), call.constant(back), found)


# Making ---------------------------------------------------------------------------------------------------------------------


@of_strings("StringConcat")
def string_concat(call: OnnxCall) -> Answer:
    return texts(call.emit(TextJoin(), call.strings(0), call.strings(1)))


@of_strings("StringSplit")
def string_split(call: OnnxCall) -> Answer:
    delimiter = call.text("delimiter").encode("utf-8")
    limit = call.integer("maxsplit", -1) if "maxsplit" in call.attributes else -1
    pieces, numbers = _split(call, call.strings(0), delimiter, limit)
    return [texts(pieces), numbers]


@of_strings("Tokenizer", domain="com.microsoft")
def tokenizer(call: OnnxCall) -> Answer:
    """Runs of the characters of a set: all other bytes become spaces, between which strings are split."""
    found, padding = _RUNS.fullmatch(call.text("tokenexp", "")), call.text("pad_value").encode("utf-8")
    if found is None or call.integer("mark", 0) or call.integer("mincharnum", 1) != 1 or call.texts("separators"):
        told = "only `Tokenizer` with a `tokenexp` that is a set of ASCII characters, such as `[a-z0-9]+`, is supported"
        raise unsupported(f"{told}; this one has {call.text('tokenexp', '')!r}", STRINGS)
    kept = {byte for byte in range(1, 128) if re.fullmatch(found[1], chr(byte), re.ASCII)}
    if kept & {*SPACES} or not kept:
        raise unsupported("the characters of a `Tokenizer` must not be white space", STRINGS)
    table = np.array([byte if byte in kept or not byte else ord(" ") for byte in range(256)], np.uint8)
    x = call.strings(0)
    words, _ = _split(call, call.emit(Gather(0), call.constant(table), cast(call, x, DType.I32)), b"", -1)
    if not padding:
        return texts(words)
    width = max(words.shape[-1], len(padding))
    words = widened(call, words, width)
    first = call.emit(Gather(len(words.shape) - 1), words, call.constant(np.zeros(1, np.int64)))
    empty = call.emit(Equal(), first, call.like(0, words))
    row = call.constant(stacked([padding], width).reshape([1] * (len(words.shape) - 1) + [width]))
    return texts(call.emit(Where(), empty, row, words))


def _split(call: OnnxCall, x: Value, delimiter: bytes, limit: int) -> tuple[Value, Value]:
    """The pieces, with room for as many as there may be; and their numbers."""
    shape = x.shape[:-1]
    rows, width = math.prod(shape), x.shape[-1]
    if rows == 0:
        return call.constant(np.zeros((*shape, 0, width), np.uint8)), call.constant(np.zeros(shape, np.int64))
    high = width // max(len(delimiter), 1) + 1 if delimiter else (width + 1) // 2
    high = min(high, limit + 1) if limit >= 0 else high
    high = _at_most(call, high)

    def made(count: int) -> TextSplit:
        return TextSplit(count, tuple(delimiter), limit)

    stem = f"{call.walk.origins[0] if call.walk.origins else 'split'}_count"
    least = 1 if delimiter else 0
    pieces, numbers, _ = call.walk.found(_clean(stem), min(least, high), high, made, [reshape(call, x, (rows, width))])
    return reshape(call, pieces, (*shape, pieces.shape[1], width)), reshape(call, numbers, shape)


def _clean(stem: str) -> str:
    from intaglio.frontends.onnx.names import identifier

    return identifier(stem, "found")


def _at_most(call: OnnxCall, high: int) -> int:
    """`--max` of the result may say less; more is an error when it runs."""
    name = call.walk.origins[0] if call.walk.origins else ""
    if name in call.walk.most:
        call.walk.most_used.add(name)
        return min(high, call.walk.most[name])
    return high


def in_case(call: OnnxCall, x: Value, upper: bool) -> Value:
    return call.emit(TextCase(), x, call.constant(case_table(upper)))


@of_strings("StringNormalizer")
def string_normalizer(call: OnnxCall) -> Answer:
    x, stops, action = call.strings(0), call.texts("stopwords") or [], call.text("case_change_action", "NONE")
    *shape, width = x.shape
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        raise Fault("shape-mismatch", f"`StringNormalizer` takes strings of shape [n] or [1, n], got {shape}")
    if action not in ("NONE", "LOWER", "UPPER"):
        raise Fault("bad-attribute", f"`StringNormalizer` has the action `{action}`", "there are NONE, LOWER and UPPER")
    rows = reshape(call, x, (shape[-1], width))
    if stops:
        sensitive = bool(call.integer("is_case_sensitive", 0))
        compared = rows if sensitive else in_case(call, rows, False)
        found, _ = find(call, compared, stops if sensitive else [word.lower() for word in stops])
        keep = call.emit(Less(), found, call.like(0, found))
        rows = call.walk.found("kept", 1, most(shape[-1]), TextKeep, [rows, keep])[0]
    if action != "NONE":
        rows = in_case(call, rows, action == "UPPER")
    return texts(reshape(call, rows, (*shape[:-1], *rows.shape)))


# Counting -------------------------------------------------------------------------------------------------------------------


@importer("TfIdfVectorizer")
def tfidf_vectorizer(call: OnnxCall) -> Answer:
    numbers = call.ints("pool_int64s") or []
    if not numbers:
        raise Fault("bad-attribute", "`TfIdfVectorizer` of numbers has no `pool_int64s`")
    return _counted(call, cast(call, call.value(0), DType.I64), numbers)


@of_strings("TfIdfVectorizer")
def tfidf_of_strings(call: OnnxCall) -> Answer:
    words = call.texts("pool_strings") or []
    known = {word: n for n, word in enumerate(dict.fromkeys(words))}
    if not known:
        raise Fault("bad-attribute", "`TfIdfVectorizer` of strings has no `pool_strings`")
    return _counted(call, place_of(call, call.strings(0), list(known)), [known[word] for word in words])


def _counted(call: OnnxCall, x: Value, pool: list[int]) -> Answer:
    starts, places = call.ints("ngram_counts") or [], call.ints("ngram_indexes") or []
    low, high, skips = (call.integer(n) for n in ("min_gram_length", "max_gram_length", "max_skip_count"))
    if len(x.shape) not in (1, 2) or not 1 <= low <= high <= len(starts) or skips < 0 or min(places, default=0) < 0:
        raise Fault("bad-attribute", f"`TfIdfVectorizer` of {list(x.shape)} has attributes that do not fit")
    entries: list[tuple[int, ...]] = []
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        entries += [tuple(pool[at : at + length]) for at in range(start, end, length)]
    if len(entries) != len(places) or starts != sorted(starts):
        raise Fault("bad-attribute", f"`TfIdfVectorizer` has {len(entries)} n-grams and {len(places)} indexes")
    kept = [n for n, entry in enumerate(entries) if low <= len(entry) <= high]
    size = max(places) + 1
    table = np.full((max(len(kept), 1), high), -1, np.int64)
    for row, n in zip(table, kept, strict=False):
        row[: len(entries[n])] = entries[n]
    lengths = np.array([len(entries[n]) for n in kept] or [1], np.int64)
    at = np.array([places[n] for n in kept] or [0], np.int64)
    rows = reshape(call, x, (1, *x.shape)) if len(x.shape) == 1 else x
    counts = call.emit(NGrams(skips, size), rows, call.constant(table), call.constant(lengths), call.constant(at))
    weighted = _weighted(call, counts, places)
    return reshape(call, weighted, (size,)) if len(x.shape) == 1 else weighted


def _weighted(call: OnnxCall, counts: Value, places: list[int]) -> Value:
    mode, given = call.text("mode", "TF"), call.floats("weights")
    if mode == "TF":
        return counts
    if mode not in ("IDF", "TFIDF"):
        raise Fault("bad-attribute", f"`TfIdfVectorizer` has the mode `{mode}`", "there are TF, IDF and TFIDF")
    if mode == "IDF":
        counts = cast(call, call.emit(GreaterEqual(), counts, call.like(1.0, counts)), DType.F32)
    if given is None:
        return counts
    if len(given) != len(places):
        raise Fault("bad-attribute", f"`TfIdfVectorizer` has {len(places)} indexes and {len(given)} weights")
    weights = np.ones(counts.shape[-1], np.float32)
    weights[places] = given
    return call.emit(Mul(), counts, call.constant(weights))


@importer("Tokenizer", domain="com.microsoft")
@importer("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch")
def no_strings(call: OnnxCall) -> Answer:
    raise unsupported(f"`{call.op}` of an operand that is no tensor of strings")
