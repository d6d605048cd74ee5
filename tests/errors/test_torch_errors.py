"""Files of PyTorch with something wrong: a clear error, exit code 2, no traceback, and nothing in them ever runs."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError, UserError
from intaglio.frontends.torch import check, load
from intaglio.ops.evaluate import evaluate_graph
from support.commands import Intaglio
from support.pt2_files import LONG, Pt2, meta, node, tensor


def fault(path: Path) -> ModelError:
    with pytest.raises(UserError) as caught:
        load(path, dims={}, shapes={})
    assert isinstance(caught.value, ModelError)
    assert caught.value.message
    assert caught.value.hint
    return caught.value


def test_a_file_written_by_hand_is_read_and_computes(tmp_path: Path) -> None:
    model = Pt2()
    graph, notes = load(model.save(tmp_path / "m.pt2"), dims={}, shapes={})
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    assert notes == []
    assert [n.source for n in graph.nodes] == ["fc", "relu"]
    values = evaluate_graph(graph, {"x": x}, keep=True)
    assert np.allclose(values[graph.outputs[0].name], model.expected(x))


def test_no_torch_is_needed_for_a_file(tmp_path: Path) -> None:
    path = Pt2().save(tmp_path / "m.pt2")
    code = f"""
import sys
for name in ("torch", "torchao"):
    sys.modules[name] = None
import intaglio
package = intaglio.compile({str(path)!r}, output={str(tmp_path / "p")!r})
result = package.validate()
assert result.ok, result
print(result.reference)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "numpy references" in done.stdout


def test_the_command_line_says_what_is_wrong(intaglio: Intaglio, tmp_path: Path) -> None:
    model = Pt2()
    model.nodes[1]["target"] = "torch.ops.aten.linalg_svd.default"
    path = model.save(tmp_path / "m.pt2")
    said = intaglio("compile", path, "-o", tmp_path / "p")
    assert said.code == 2
    assert "error[unsupported-operator]: `aten.linalg_svd.default` in `relu`" in said.err
    assert "m.pt2, node 2 of 2" in said.err
    assert not (tmp_path / "p").exists()
    listed = intaglio("check", path)
    assert listed.code == 1
    assert "`aten.linalg_svd.default` in node `relu`" in listed.out


def test_all_operators_that_are_missing_are_listed_at_once(tmp_path: Path) -> None:
    model = Pt2()
    model.nodes[0]["target"] = "torch.ops.aten.no_such_thing.default"
    model.nodes[1]["target"] = "torch.ops.mylib.other.default"
    problems = check(model.save(tmp_path / "m.pt2"), dims={}, shapes={})
    assert [p.op for p in problems] == ["aten.no_such_thing.default", "mylib.other.default"]


def _cycle(m: Pt2) -> None:
    m.nodes[0]["inputs"][0]["arg"] = tensor("relu")


def _twice(m: Pt2) -> None:
    m.nodes[1]["outputs"] = [tensor("linear")]


def _division(m: Pt2) -> None:
    m.nodes.append(node("_operator.floordiv", {"a": {"as_int": 1}, "b": {"as_int": 0}}, "z"))


def _overlapping_name(m: Pt2) -> None:
    m.nodes[0]["inputs"].append({"name": "weight", "arg": tensor("x"), "kind": 1})


def _quantised(scale: object) -> Callable[[Pt2], None]:
    def change(m: Pt2) -> None:
        given = {
            "input": tensor("linear"), "scale": {"as_float": scale}, "zero_point": {"as_int": 0}, "quant_min": {"as_int": -128},
            "quant_max": {"as_int": 127}, "dtype": {"as_scalar_type": 2},
        }  # fmt: skip
        m.nodes[1] = node("torch.ops.quantized_decomposed.quantize_per_tensor.default", given, "relu")
        m.metas["relu"] = meta((2, 3), 2)

    return change


def _weight(**fields: object) -> Callable[[Pt2], None]:
    return lambda m: m.config["fc.weight"]["tensor_meta"].update(fields)


WRONG: dict[str, tuple[Callable[[Pt2], object], str]] = {
    "weights are missing": (lambda m: m.config.pop("fc.weight"), "missing-weights"),
    "the file of weights is missing": (lambda m: m.files.pop("data/weights/weight_0"), "bad-archive"),
    "weights are a pickle": (lambda m: m.config["fc.bias"].update(use_pickle=True), "pickled-weights"),
    "weights are short": (lambda m: m.files.update({"data/weights/weight_0": b"1234"}), "bad-tensor"),
    "a negative stride": (_weight(strides=[{"as_int": -4}, {"as_int": 1}]), "bad-tensor"),
    "a stride beyond the end": (_weight(strides=[{"as_int": 4000}, {"as_int": 1}]), "bad-tensor"),
    "a negative offset": (_weight(storage_offset={"as_int": -1}), "bad-tensor"),
    "an offset beyond the end": (_weight(storage_offset={"as_int": 1}), "bad-tensor"),
    "a size beyond everything": (_weight(sizes=[{"as_int": 2**62}, {"as_int": 4}], strides=[{"as_int": 0}] * 2), "too-large"),
    "sizes without strides": (_weight(strides=[]), "bad-tensor"),
    "a size that is text": (_weight(sizes=[{"as_int": "3"}, {"as_int": 4}]), "bad-archive"),
    "an unknown element type": (_weight(dtype=99), "unsupported-type"),
    "a path out of the archive": (lambda m: m.config["fc.weight"].update(path_name="../../../etc/passwd"), "bad-archive"),
    "a cycle": (_cycle, "bad-graph"),
    "a name that is made twice": (_twice, "bad-graph"),
    "an output that nobody makes": (lambda m: m.output_specs.append({"user_output": {"arg": tensor("nobody")}}), "bad-graph"),
    "an argument that is given twice": (_overlapping_name, "bad-archive"),
    "a division of sizes by zero": (_division, "bad-attribute"),
    "declared shapes that are wrong": (lambda m: m.metas.update(linear=meta((2, 5))), "shape-mismatch"),
    "declared types that are wrong": (lambda m: m.metas.update(relu=meta((2, 3), LONG)), "shape-mismatch"),
    "weights of another shape": (lambda m: m.metas.update(x=meta((2, 5))), "shape-mismatch"),
    "an input without a type": (lambda m: m.metas.pop("x"), "unsupported-type"),
    "a scale of zero": (_quantised(0.0), "bad-quantisation"),
    "a scale that is no number": (_quantised("NaN"), "bad-quantisation"),
    "a scale below zero": (_quantised(-1.0), "bad-quantisation"),
    "an object of a class": (
        lambda m: m.input_specs.append({"custom_obj": {"arg": {"name": "o", "class_fqn": "x"}, "custom_obj_name": "o"}}),
        "unsupported-operator",
    ),
    "an input that is changed": (
        lambda m: m.output_specs.append({"user_input_mutation": {"arg": {"name": "relu"}, "user_input_name": "x"}}),
        "unsupported-operator",
    ),
    "a loss": (lambda m: m.output_specs.append({"loss_output": {"arg": {"name": "relu"}}}), "unsupported-operator"),
    "big-endian weights": (lambda m: m.files.update(byteorder=b"big"), "unsupported-format"),
    "an operator that reads files": (
        lambda m: m.nodes[1].update(target="torch.ops.aten.from_file.default"),
        "unsupported-operator",
    ),
    "code of Python": (lambda m: m.nodes[1].update(target="os.system"), "unsupported-operator"),
}


@pytest.mark.parametrize("name", WRONG)
def test_one_thing_wrong(name: str, tmp_path: Path) -> None:
    change, slug = WRONG[name]
    model = Pt2()
    change(model)
    text = json.dumps(model.json()) if all("user_output" in s for s in model.output_specs) else None
    if text is None:  # an output of another kind is in the signature alone
        plain = Pt2().json()
        plain["graph_module"]["signature"]["output_specs"] = model.output_specs
        text = json.dumps(plain)
    assert fault(model.save(tmp_path / "m.pt2", program=text)).slug == slug


@pytest.mark.parametrize(
    ("entries", "slug", "word"),
    [
        ({"m/serialized_exported_program.json": b"{}", "m/serialized_state_dict.pt": b"\x80\x02"}, "unsupported-format", "2.7"),
        ({"m/code/x.py": b"", "m/constants.pkl": b"\x80\x02"}, "unsupported-format", "TorchScript"),
        ({"m/data.pkl": b"\x80\x02", "m/data/0": b""}, "unsupported-format", "pickle"),
        ({"m/data/aotinductor/model/x.so": b"\x7fELF"}, "unsupported-format", "compiled library"),
        ({"hello.txt": b"hello"}, "unsupported-format", "without an exported program"),
        ({"m/models/model.json": b"{" * 20_000}, "bad-archive", "not JSON"),
        ({"m/models/model.json": b"[" * 200_000 + b"]" * 200_000}, "bad-archive", "not JSON"),
        ({"m/models/model.json": b"null"}, "bad-archive", "differs from what torch writes"),
        ({"m/models/a.json": b"{}", "m/models/b.json": b"{}"}, "unsupported-format", "2 programs"),
        ({"m/models/model.json": b"{}", "n/other": b""}, "bad-archive", "2 folders"),
    ],
)
def test_other_archives(entries: dict[str, bytes], slug: str, word: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    error = fault(tmp_path / "m.pt2")
    assert error.slug == slug
    assert word in error.message


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (tmp_path / "m.pt").write_bytes(b"\x80\x02" + evil)
    assert fault(tmp_path / "m.pt").slug == "unsupported-format"
    model = Pt2()
    model.config["fc.weight"]["use_pickle"] = True
    model.files["data/weights/weight_0"] = model.files["data/sample_inputs/model.pt"] = evil
    assert fault(model.save(tmp_path / "m.pt2")).slug == "pickled-weights"
    assert not marker.exists()


def test_a_zip_bomb(tmp_path: Path) -> None:
    model = Pt2()
    model.files["data/weights/weight_0"] = bytes(64 << 20)
    path = model.save(tmp_path / "m.pt2", compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    assert fault(path).slug == "too-large"


def test_an_entry_twice(tmp_path: Path) -> None:
    path = Pt2().save(tmp_path / "m.pt2")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("net/models/model.json", "{}")
    assert fault(path).slug == "bad-archive"


def survives(path: Path) -> None:
    with contextlib.suppress(ModelError):
        load(path, dims={}, shapes={})


@pytest.mark.parametrize("seed", range(60))
def test_damaged_bytes(seed: int, tmp_path: Path) -> None:
    data = bytearray(Pt2().save(tmp_path / "good.pt2").read_bytes())
    chance = random.Random(seed)
    if seed % 3 == 0:
        data = data[: chance.randrange(len(data))]
    for _ in range(chance.randrange(1, 6)):
        if data:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    (tmp_path / "m.pt2").write_bytes(data)
    survives(tmp_path / "m.pt2")


def places(item: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [path] if path else []
    if isinstance(item, dict):
        for key, value in item.items():
            found += places(value, (*path, key))
    elif isinstance(item, list):
        for n, value in enumerate(item):
            found += places(value, (*path, n))
    return found


ODD: list[object] = [None, True, -1, 0, 2**63, 10**30, 1.5, "", "x", "\x00*/", [], [None], {}, {"as_int": -1}, {"as_tensor": 3}]


def test_wrong_values_everywhere(tmp_path: Path) -> None:
    """Each place of the program in turn holds something else."""
    whole = Pt2().json()
    chance = random.Random(1)
    for path in places(whole):
        program = json.loads(json.dumps(whole))
        at = program
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = chance.choice(ODD)
        survives(Pt2().save(tmp_path / "m.pt2", program=json.dumps(program)))
