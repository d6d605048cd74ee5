"""Tables from words to numbers and back, which a subgraph fills before the first run, against LiteRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.tflite import check, load
from intaglio.ir.graph import Array
from intaglio.ir.strings import decoded, encoded, is_text
from intaglio.ops.evaluate import evaluate_graph
from support.tflite_models import KINDS, ModelWriter, Tensor

interpreter: Any = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
WORDS, NUMBERS = np.array(["cat", "mäuse", "dog", "cat"]), np.array([7, -3, 5, 9], np.int64)
LONG = "w" * 80
ASKED = np.array(["dog", "", "mäuse", "cats", "cat", "q"])
PLACES = np.array([5, 9, 7, -3, 0, 8], np.int64)


def model(keys: Array, values: Array, other: Array, *, filled: bool = True, reader: str = "HASHTABLE_FIND") -> bytes:
    """y, n = table[x], len(table)"""
    w = ModelWriter()
    kinds = ["string" if is_text(a) else str(a.dtype) for a in (keys, values)]
    for first in (True, False):
        w.subgraph()
        if first and filled:
            w.operator("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 1}, 1)
        handle = w.tensor(Tensor((1,), "resource"), "handle")
        options: dict[str, object] = {"tableId": 4, "keyDtype": KINDS[kinds[0]], "valueDtype": KINDS[kinds[1]]}
        w.operator("HASHTABLE", [], [handle], "HashtableOptions", options, 1)
        if first:
            x, y = (w.tensor(Tensor((6,), kind), name) for kind, name in zip(kinds, ("x", "y"), strict=True))
            n, rest = w.tensor(Tensor((1,), "int64"), "n"), w.tensor(Tensor((1,), kinds[1], data=other), "rest")
            found = reader == "HASHTABLE_FIND"
            w.operator(reader, [handle, x, rest] if found else [x], [y], "HashtableFindOptions" if found else "")
            w.operator("HASHTABLE_SIZE", [handle], [n], "HashtableSizeOptions", version=1)
            w.graph.inputs, w.graph.outputs = [x], [y, n]
            w.model.operatorCodes[-2].version = 1
        else:
            given = [w.tensor(Tensor((len(a),), kind, data=a), kind) for a, kind in zip((keys, values), kinds, strict=True)]
            w.operator("HASHTABLE_IMPORT", [handle, *given], [], "HashtableImportOptions", version=1)
    return w.finish()


def by_litert(data: bytes, x: Array) -> list[Any]:
    kind = interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    made = interpreter.Interpreter(model_content=data, experimental_op_resolver_type=kind)
    made.allocate_tensors()
    made.set_tensor(made.get_input_details()[0]["index"], x.astype(object) if is_text(x) else x)
    made.invoke()
    found = [made.get_tensor(detail["index"]).tolist() for detail in made.get_output_details()]
    return [[one.decode() if isinstance(one, bytes) else one for one in row] for row in found]


@pytest.mark.parametrize(
    ("keys", "values", "other", "x"),
    [
        (WORDS, NUMBERS, np.array([-1], np.int64), ASKED),
        (NUMBERS, WORDS, np.array(["none"]), PLACES),
        (np.array(["cat", LONG]), NUMBERS[:2], np.array([0], np.int64), np.array([LONG, "cat", LONG[1:], "", "c", "w"])),
    ],
    ids=["words", "numbers", "a long word"],
)
def test_a_table_is_looked_up(keys: Array, values: Array, other: Array, x: Array, tmp_path: Path) -> None:
    data = model(keys, values, other)
    (tmp_path / "m.tflite").write_bytes(data)
    graph, _ = load(tmp_path / "m.tflite", dims={}, shapes={})
    given = encoded(x, graph.inputs[0].shape[-1]) if is_text(x) else x
    made = evaluate_graph(graph, {graph.inputs[0].name: given})
    y, n = (made[v.name] if v.data is None else v.data for v in graph.outputs)
    assert [(decoded(y) if is_text(values) else y).tolist(), n.tolist()] == by_litert(data, x)


@pytest.mark.slow
@pytest.mark.parametrize("back", [False, True])
def test_a_package_looks_up(back: bool, tmp_path: Path) -> None:
    data = model(NUMBERS, WORDS, np.array(["none"])) if back else model(WORDS, NUMBERS, np.array([-1], np.int64))
    (tmp_path / "m.tflite").write_bytes(data)
    package = intaglio.compile(tmp_path / "m.tflite", output=tmp_path / "out")
    x = PLACES if back else ASKED
    assert [array.tolist() for array in package.run({"x": x}).values()] == by_litert(data, x)
    checked = package.validate()
    assert checked.ok and "litert" in str(checked)


def test_what_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(model(WORDS, NUMBERS, np.array([-1], np.int64), filled=False))
    with pytest.raises(ModelError, match="nothing fills its table"):
        load(path, dims={}, shapes={})
    path.write_bytes(model(NUMBERS, NUMBERS, np.array([-1], np.int64)))
    with pytest.raises(ModelError, match="tables from strings to whole numbers of 64 bits, and back"):
        load(path, dims={}, shapes={})
    path.write_bytes(model(WORDS, NUMBERS, np.array([-1], np.int64), reader="NEG"))
    assert "on strings is not supported" in check(path, dims={}, shapes={})[0].reason


@pytest.mark.parametrize("place", [0, 4, 8, 12, 20])
def test_damaged_strings(place: int, tmp_path: Path) -> None:
    data = model(WORDS, NUMBERS, np.array([-1], np.int64))
    start = data.index(np.array([4, 24, 27, 33, 36, 39], "<i4").tobytes())
    (tmp_path / "m.tflite").write_bytes(data[: start + place] + b"\xff\xff\xff\x7f" + data[start + place + 4 :])
    with pytest.raises(ModelError, match="string"):
        load(tmp_path / "m.tflite", dims={}, shapes={})
