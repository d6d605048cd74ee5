"""Names are data: a model whose names are meant to do harm becomes the C of its harmless twin, but for identifiers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import intaglio
from intaglio.pipeline import compile_request
from intaglio.stages import Request, Watch
from support.onnx_models import model, node, saved, value

# The catalogue of hostile names: comment ends, line ends, trigraphs, formats, keywords, libc, macros, clashes, paths, sizes.
NAMES = {
    "comment": "*/ int f(void) { return 1; } /*",
    "newline": "a\n#define main nothing\n",
    "backslash": "end\\",
    "trigraph": "a ??/ b ??' c",
    "quotes": "\"'`",
    "format": "%s%n%d",
    "keyword": "int",
    "another keyword": "restrict",
    "main": "main",
    "libc": "memcpy",
    "macro": "NULL",
    "another macro": "EOF",
    "reserved": "__FILE__",
    "blank": " ",
    "long": "x" * 1_000_000,
    "nul": "a\0b",
    "bidirectional": "\u202eabc\u2066",
    "digit": "9lives",
    "path": "../../../etc/passwd",
    "absolute": "/etc/passwd",
    "dash": "-rf",
    "ours": "m_run",
    "cpp": "class",
}
CLASHES = ["a.b", "a_b", "a/b", "A_B", "a:b", "a b"]


def made(name: Callable[[str], str], doc: str) -> Any:
    """Two inputs, a convolution, a sum, a product; every name passes through `name`."""
    n = {k: name(k) for k in ("x", "z", "w", "b", "c", "d", "e", "y", "q")}
    steps = [
        helper.make_node("Conv", [n["x"], n["w"], n["b"]], [n["c"]], name=name("n0"), doc_string=doc, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", [n["c"]], [n["d"]], name=name("n1"), doc_string=doc),
        helper.make_node("Sin", [n["d"]], [n["e"]], name=name("n2"), doc_string=doc),
        helper.make_node("Add", [n["e"], n["z"]], [n["y"]], name=name("n3"), doc_string=doc),
        helper.make_node("Softmax", [n["y"]], [n["q"]], name=name("n4"), doc_string=doc),
    ]
    rng = np.random.default_rng(0)
    constants = {n["w"]: rng.standard_normal((3, 2, 3, 3)).astype(np.float32), n["b"]: np.zeros(3, np.float32)}
    inputs = [value(n["x"], [1, 2, 5, 5]), value(n["z"], [1, 3, 5, 5])]
    proto = model(steps, inputs, [value(n["y"], [1, 3, 5, 5]), value(n["q"], [1, 3, 5, 5])], constants)
    proto.producer_name = proto.producer_version = proto.domain = proto.doc_string = name("producer")
    proto.graph.name, proto.graph.doc_string = name("graph"), doc
    entry = proto.metadata_props.add()
    entry.key, entry.value = name("key"), doc
    return proto


def tokens(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert "??" not in text and text.isascii()
    bare = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    bare = re.sub(r"\b[0-9a-f]{64}\b", "digest_of_the_model", bare)
    return re.findall(r"[A-Za-z_]\w*|[0-9][\w.]*|\S", bare)  # inside of strings too: the application names its arguments


def sources(proto: Any, folder: Path) -> dict[str, list[str]]:
    folder.mkdir()
    request = Request(saved(proto, folder), folder / "out", name="m", stop_after="package", library_only=True)
    compile_request(request, Watch())
    files = sorted(p for p in (folder / "out").rglob("*") if p.suffix in (".c", ".h"))
    return {str(p.relative_to(folder / "out")): tokens(p) for p in files}


def assert_same_but_for_identifiers(plain: dict[str, list[str]], odd: dict[str, list[str]]) -> None:
    assert list(plain) == list(odd)
    there: dict[str, str] = {}
    back: dict[str, str] = {}
    for name in plain:
        assert len(plain[name]) == len(odd[name]), name
        for mine, theirs in zip(plain[name], odd[name], strict=True):
            if mine != theirs:
                assert re.fullmatch(r"[A-Za-z_]\w*", mine) and re.fullmatch(r"[A-Za-z_]\w{0,80}", theirs), (name, mine, theirs)
                assert there.setdefault(mine, theirs) == theirs and back.setdefault(theirs, mine) == mine, (name, mine, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_give_the_same_tokens(name: str, tmp_path: Path) -> None:
    plain = sources(made(lambda n: f"v_{n}", "harmless"), tmp_path / "plain")
    odd = sources(made(lambda n: NAMES[name] + n, NAMES[name]), tmp_path / "odd")
    assert_same_but_for_identifiers(plain, odd)


def test_names_that_clash_when_they_are_cleaned_stay_apart(tmp_path: Path) -> None:
    order = iter(CLASHES * 4)
    seen: dict[str, str] = {}

    def name(key: str) -> str:
        if key not in seen:
            seen[key] = next(n for n in order if n not in seen.values()) if len(key) == 1 and len(seen) < 6 else f"plain_{key}"
        return seen[key]

    odd = sources(made(name, "doc"), tmp_path / "odd")
    assert_same_but_for_identifiers(sources(made(lambda n: f"v_{n}", "harmless"), tmp_path / "plain"), odd)


@pytest.mark.parametrize("exact", ["int", "main", "memcpy", "NULL", "m_run", "__FILE__", "9", "INFINITY", "x0", "ig_v4f", "errno"])
def test_a_model_with_such_an_input_compiles_and_runs(exact: str, tmp_path: Path) -> None:
    """The name alone, as input, output and node."""
    proto = model([node("Relu", exact, "y", name=exact)], [value(exact, [1, 4])])
    package = intaglio.compile(
        saved(proto, tmp_path), output=tmp_path / "out", name="m", library_only=True, cflags=("-Wconversion", "-Werror")
    )
    x = np.array([[-1, 0, 2, 3]], np.float32)
    np.testing.assert_array_equal(package.run({exact: x})["y"], np.maximum(x, 0))


def test_a_model_with_all_of_them_compiles_and_runs(tmp_path: Path) -> None:
    order = iter(NAMES.values())
    names: dict[str, str] = {}
    proto = made(lambda n: names.setdefault(n, next(order)), NAMES["comment"])
    package = intaglio.compile(
        saved(proto, tmp_path), output=tmp_path / "out", library_only=True, cflags=("-Wconversion", "-Werror", "-pedantic")
    )
    x, z = np.ones((1, 2, 5, 5), np.float32), np.ones((1, 3, 5, 5), np.float32)
    results = package.run({"in0": x, "in1": z})
    assert list(results) == [names["y"], names["q"]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "out"]
