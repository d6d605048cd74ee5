"""Kernels of strings and of random numbers: by the interpreter as by the references, whatever bytes there are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.regex import Tables, automaton
from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import Bounds
from intaglio.ir.strings import decoded, encoded
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.choice import lower_node
from intaglio.kernels.interpret import interpret
from intaglio.kernels.loop import SIZE_OUT_OF_BOUNDS
from intaglio.ops.base import Op
from intaglio.ops.deform import DeformColumns
from intaglio.ops.random import RandomUniform
from intaglio.ops.strings import NGrams, TextCase, TextFind, TextJoin, TextKeep, TextMatch, TextSplit, TextTrim, case_table
from intaglio.targets.target import find_target

RANDOM = np.random.default_rng(5)


def run(op: Op, *arrays: Array) -> tuple[int, list[Array]]:
    types = [TensorType(DType.of(a), a.shape) for a in arrays]
    values = [Value(f"v{n}", t) for n, t in enumerate(types)]
    node = Node(op, [*values], [Value(f"y{n}", t) for n, t in enumerate(op.infer(*types))], "/node")
    made = lower_node(node, find_target("generic"))
    results = [np.full(v.type.bytes // v.dtype.bytes, 77, v.dtype.numpy) for v in node.outputs]
    memory: list[Array] = []
    for argument in made.arguments:
        assert isinstance(argument, Value)
        known = argument in node.outputs
        memory.append(results[node.outputs.index(argument)] if known else arrays[node.inputs.index(argument)].reshape(-1))
    return interpret(made.kernel, memory), results


def words(*texts: str, width: int = 12) -> Array:
    return encoded(np.array(texts), width)


def count(high: int) -> int:
    return Bounds({"n": (0, high)}).size("n")


def tables(pattern: str) -> tuple[Array, Array, Array]:
    made = automaton(pattern)
    return made.classes, made.after, made.accepts


GARBAGE = np.array([[97, 0, 98, 99], [0, 1, 2, 3], [97, 98, 99, 100]], np.uint8)
SENTENCES = words(" a bc  d ", "one", "", "a,,b", "x , y", "   ")
PLACES = RANDOM.integers(0, 4, (3, 9)).astype(np.int64)
POOL = (np.array([[2, -1], [1, 2], [3, 3], [0, 1]], np.int64), np.array([1, 2, 2, 2], np.int64), np.array([1, 0, 3, 3], np.int64))
CASES: dict[str, tuple[Op, tuple[Array, ...]]] = {
    "whatever is behind the end": (TextTrim(), (GARBAGE,)),
    "which key": (TextFind(), (words("cat", "dog", "", "do", "dogs", "möwe"), words("cat", "dog", "möwe", width=5))),
    "keys that are longer": (TextFind(), (words("cat", "b", width=3), words("a", "b", "cat", "catalogue"))),
    "joined": (TextJoin(), (words("ab", "", "möwe").reshape(3, 1, 12), words("x", "", width=3))),
    "split at spaces": (TextSplit(count(6)), (SENTENCES,)),
    "split at spaces, at most once": (TextSplit(count(2), (), 1), (SENTENCES,)),
    "split at a comma": (TextSplit(count(13), (44,)), (SENTENCES,)),
    "split at two commas, at most once": (TextSplit(count(2), (44, 44), 1), (SENTENCES,)),
    "kept": (TextKeep(count(3)), (words("a", "b", "c"), np.array([True, False, True]))),
    "none kept": (TextKeep(count(3)), (words("a", "b", "c"), np.zeros(3, bool))),
    "large letters": (TextCase(), (words("Möwe", "ǆ ÿ", "日本", "ß"), case_table(True))),
    "small letters of bytes that are no text": (TextCase(), (RANDOM.integers(0, 256, (9, 7)).astype(np.uint8), case_table(False))),
    "a pattern": (TextMatch(), (words("ab", "abab", "aba", "", "möwe"), *tables("(ab)*|m.we"))),
    "n-grams": (NGrams(0, 4), (PLACES, *POOL)),
    "n-grams with skips": (NGrams(3, 4), (PLACES, *POOL)),
    "random numbers": (RandomUniform((3, 5), 7, 2), (np.array([4], np.uint32),)),
    "deformed columns": (
        DeformColumns((2, 3), (2, 1), (1, 0), (1, 2), 2),
        tuple(RANDOM.standard_normal(s).astype(np.float32) * 2 for s in ((2, 4, 5, 6), (2, 24, 3, 2), (2, 12, 3, 2))),
    ),
    "columns of what is no number": (
        DeformColumns((1, 1)),
        (np.ones((1, 1, 2, 2), np.float32), np.array([np.nan, np.inf, -1e30, 0.5] * 2, np.float32).reshape(1, 2, 2, 2)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_kernel_computes_what_the_operator_means(name: str) -> None:
    op, arrays = CASES[name]
    code, got = run(op, *arrays)
    assert code == 0
    with np.errstate(all="ignore"):
        wanted = op.reference(*arrays)
    for right, made in zip(wanted, got, strict=True):
        np.testing.assert_allclose(made[: right.size], right.reshape(-1), rtol=1e-6, atol=1e-6)


def test_more_pieces_than_there_is_room_for_are_an_error() -> None:
    assert run(TextSplit(count(2)), words("a b c"))[0] == SIZE_OUT_OF_BOUNDS


def test_strings_come_back_as_they_were() -> None:
    texts = np.array([["cat", ""], ["möwe", "日本"]])
    assert decoded(encoded(texts, 8)).tolist() == texts.tolist()


def test_random_numbers_are_spread_and_independent() -> None:
    rows = [RandomUniform((200_000,), seed, stream).reference(np.array([n], np.uint32))[0]
            for seed, stream, n in ((0, 1, 0), (0, 1, 1), (0, 2, 0), (1, 1, 0))]  # fmt: skip
    for u in rows:
        assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.003 and abs(u.var() * 12 - 1) < 0.01
        bins = np.histogram(u, 500, (0, 1))[0]
        assert ((bins - 400) ** 2 / 400).sum() / 499 < 1.3
        assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01
    assert np.abs(np.corrcoef(rows) - np.eye(4)).max() < 0.01


def matches(found: Tables, text: str) -> bool:
    state = 0
    for byte in text.encode():
        state = int(found.after[state, found.classes[byte]])
    return bool(found.accepts[state])


PATTERNS = (
    r"www\.[\w.-]+\.\bcom\b", r"(\W|^)[\w.\-]{0,5}@(a|b)x(\W|$)", r"a*b+c?", r"[^a-c]{2,3}", r"(ab|cd)*x{2}", r"é+|ü.",
    r"\d+(\.\d+)?", r"(?i)hello|w[a-f]+", r"", r"(a|b){2,}c", r"(a?){3}b", r"x{1,3}?y", r"a\b.*\Bb", r"^a(^|b)c?$", r"\x61\S[^\d]*",
)  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_what_python_says(pattern: str) -> None:
    found, random = automaton(pattern), np.random.default_rng(1)
    letters = np.array(list("abcdxyé.ü1hHelLoOw@-m"))
    texts = ["".join(letters[random.integers(0, len(letters), random.integers(0, 6))]) for _ in range(400)]
    texts += ["www.x.com", "www..com", "aab", "hElLo", "12.5", "xxy", "ababcdxx", "éé", "aaabc", "a@ax", "@bx.", "ab", "a. bb"]
    for text in texts:
        assert matches(found, text) == bool(re.fullmatch(pattern, text, re.ASCII)), text


BAD = ("a(", "a)", "[a", "*a", "a**", "(?=a)", r"\p{L}", r"\1", "a{2000}", "[b-a]", r"\xZZ", "[[:nothing:]]")


@pytest.mark.parametrize("pattern", BAD)
def test_a_pattern_that_is_not_supported_is_told(pattern: str) -> None:
    with pytest.raises(Fault, match="pattern"):
        automaton(pattern)
