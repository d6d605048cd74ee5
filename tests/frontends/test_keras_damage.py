"""Bad Keras files end in one clear error, and nothing in them is ever run."""

from __future__ import annotations

import io
import json
import marshal
import re
import zipfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile as intaglio_compile
from intaglio.errors import UserError
from intaglio.frontends.keras import check, load
from support.commands import Intaglio

h5py: Any = pytest.importorskip("h5py", reason="h5py is not installed")

Config = dict[str, Any]


def dense(name: str = "dense", units: Any = 3, **more: Any) -> Config:
    return {"module": "keras.layers", "class_name": "Dense", "config": {"name": name, "trainable": True, "units": units, **more}}


def entry(shape: list[int | None], name: str = "x") -> Config:
    return {
        "module": "keras.layers",
        "class_name": "InputLayer",
        "config": {"batch_shape": shape, "dtype": "float32", "name": name},
    }


def sequence(*layers: Config) -> Config:
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "s", "layers": [entry([None, 4]), *layers]}}


def called(layer: Config, *sources: str) -> Config:
    """A layer of a functional model, called with the first results of others."""
    tensors = [{"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "keras_history": [s, 0, 0]}} for s in sources]
    nodes = [{"args": tensors, "kwargs": {}}] if sources else []
    return {**layer, "name": layer["config"]["name"], "inbound_nodes": nodes}


def functional(*layers: Config, outputs: list[Any]) -> Config:
    config = {"name": "f", "layers": list(layers), "input_layers": [["x", 0, 0]], "output_layers": outputs}
    return {"module": "keras.src.models.functional", "class_name": "Functional", "config": config}


def weights(*kernels: tuple[str, tuple[int, ...]], edit: Callable[[Any], None] | None = None) -> bytes:
    place = io.BytesIO()
    with h5py.File(place, "w") as file:
        for path, shape in kernels:
            file[path] = np.ones(shape, np.float32)
        if edit is not None:
            edit(file)
    return place.getvalue()


PLAIN = (("layers/dense/vars/0", (4, 3)), ("layers/dense/vars/1", (3,)))


def archive(path: Path, config: Any, stored: bytes | None = None, **more: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        file.writestr("config.json", config if isinstance(config, (str, bytes)) else json.dumps(config))
        if stored is not None:
            file.writestr("model.weights.h5", stored)
        for name, data in more.items():
            file.writestr(name, data)
    return path


def refused(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        load(path, dims={}, shapes={})
    assert caught.value.exit_code == 2
    return caught.value


def test_the_plain_model_is_read(tmp_path: Path) -> None:
    graph, _ = load(archive(tmp_path / "m.keras", sequence(dense()), weights(*PLAIN)), dims={}, shapes={})
    assert graph.outputs[0].shape == (1, 3)


def test_a_lambda_is_never_run(tmp_path: Path, intaglio: Intaglio) -> None:
    flag = tmp_path / "ran"
    code = marshal.dumps(compile(f"open({str(flag)!r}, 'w')", "x", "exec"))
    payload = {"class_name": "__lambda__", "config": {"code": b64encode(code).decode(), "defaults": None, "closure": None}}
    layer = {"module": "keras.layers", "class_name": "Lambda", "config": {"name": "evil", "trainable": True, "function": payload}}
    path = archive(tmp_path / "m.keras", sequence(layer, dense()), weights(*PLAIN))
    error = refused(path)
    assert (error.slug, "`evil`" in error.message) == ("unsupported-operator", True)
    assert [(p.node, p.op) for p in check(path, dims={}, shapes={})] == [("evil", "Lambda")]
    assert intaglio("compile", path, "-o", tmp_path / "out").code == 2
    assert not flag.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("module", ["os", "builtins", "subprocess", "keras.layers.os", "keras; import os", "", 3])
def test_modules_that_the_file_names_are_not_imported(module: Any, tmp_path: Path) -> None:
    layer = {"module": module, "class_name": "system", "config": {"name": "run", "command": "true"}, "registered_name": "system"}
    error = refused(archive(tmp_path / "m.keras", sequence(layer), weights()))
    assert error.slug == "unsupported-operator"
    assert "`run`" in error.message


@pytest.mark.parametrize(
    "activation",
    [
        {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"},
        {"class_name": "__lambda__", "config": {"code": "4wEAAAA="}},
        "eval",
        ["relu"],
        7,
    ],
)
def test_activations_that_are_not_of_keras_are_refused(activation: Any, tmp_path: Path) -> None:
    error = refused(archive(tmp_path / "m.keras", sequence(dense(activation=activation)), weights(*PLAIN)))
    assert error.slug == "unsupported-operator"


def test_check_names_everything_that_is_unsupported(tmp_path: Path, intaglio: Intaglio) -> None:
    unknown = {"module": "keras.layers", "class_name": "TextVectorization", "config": {"name": "words", "trainable": True}}
    inner = {"class_name": "Sequential", "config": {"name": "inside", "layers": [dict(unknown)]}}
    custom = {"module": None, "class_name": "Mine", "config": {"name": "own", "trainable": True}, "registered_name": "pack>Mine"}
    path = archive(tmp_path / "m.keras", sequence(unknown, dense(), inner, custom), weights(*PLAIN))
    done = intaglio("check", path)
    assert done.code == 1
    assert "`words`" in done.out
    assert "`inside/words`" in done.out
    assert "own" in done.out


def external_link(file: Any) -> None:
    file["layers/dense/vars/0"] = h5py.ExternalLink("/etc/passwd", "/x")


def soft_link(file: Any) -> None:
    file["layers/dense/vars/0"] = h5py.SoftLink("/layers/dense/vars/1")


def external_storage(file: Any) -> None:
    file.create_dataset("layers/dense/vars/0", (4, 3), "f4", external=[("/etc/passwd", 0, 48)])


def virtual(file: Any) -> None:
    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4, 3))
    file.create_virtual_dataset("layers/dense/vars/0", layout)


def declared_only(file: Any) -> None:
    file.create_dataset("layers/dense/vars/0", (4, 3), "f4", chunks=(1, 1))


def of_text(file: Any) -> None:
    file.create_dataset("layers/dense/vars/0", (4, 3), h5py.string_dtype())


def a_group(file: Any) -> None:
    file.create_group("layers/dense/vars/0")


def another_shape(file: Any) -> None:
    file["layers/dense/vars/0"] = np.ones((3, 4), np.float32)


def nothing(file: Any) -> None: ...


@pytest.mark.parametrize(
    ("edit", "slug"),
    [
        (external_link, "bad-file"), (soft_link, "bad-file"), (external_storage, "bad-file"), (virtual, "bad-file"),
        (declared_only, "bad-tensor"), (of_text, "unsupported-type"), (a_group, "bad-tensor"), (another_shape, "shape-mismatch"),
        (nothing, "bad-tensor"),
    ],
    ids=lambda item: getattr(item, "__name__", str(item)),
)  # fmt: skip
def test_weights_that_are_not_in_the_file(edit: Callable[[Any], None], slug: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", sequence(dense()), weights(PLAIN[1], edit=edit))
    assert refused(path).slug == slug


def test_nan_and_infinite_weights_are_weights(tmp_path: Path) -> None:
    def edit(file: Any) -> None:
        file["layers/dense/vars/0"] = np.full((4, 3), np.nan, np.float32)

    path = archive(tmp_path / "m.keras", sequence(dense()), weights(PLAIN[1], edit=edit))
    graph, _ = load(path, dims={}, shapes={})
    constants = [v.data for n in graph.nodes for v in n.inputs if v is not None and v.data is not None]
    assert any(np.isnan(data).all() for data in constants if data.size == 12)


X, A, B = entry([None, 4]), dense("a", 4), dense("b", 4)
GRAPHS: dict[str, Any] = {
    "a cycle": functional(called(X), called(A, "b"), called(B, "a"), outputs=[["b", 0, 0]]),
    "a layer of itself": functional(called(X), called(A, "a"), outputs=[["a", 0, 0]]),
    "a missing layer": functional(called(X), called(A, "nobody"), outputs=[["a", 0, 0]]),
    "a missing output": functional(called(X), called(A, "x"), outputs=[["nobody", 0, 0]]),
    "a missing result": functional(called(X), called(A, "x"), outputs=[["a", 0, 7]]),
    "no outputs": functional(called(X), called(A, "x"), outputs=[]),
    "a negative call": functional(called(X), called(A, "x"), outputs=[["a", -1, 0]]),
    "two layers of one name": functional(called(X), called(A, "x"), called(A, "x"), outputs=[["a", 0, 0]]),
    "no layers": {"class_name": "Sequential", "config": {"name": "s", "layers": []}},
    "layers that are not": {"class_name": "Sequential", "config": {"name": "s", "layers": [1, None, "x"]}},
    "no class": {"config": {}},
    "a list": [],
    "a number": 7,
    "a huge layer": sequence(dense(units=2**40)),
    "a negative layer": sequence(dense(units=-3)),
    "a text for a number": sequence(dense(units="3")),
    "a huge input": {"class_name": "Sequential", "config": {"name": "s", "layers": [entry([None, 2**40]), dense()]}},
    "a negative input": {"class_name": "Sequential", "config": {"name": "s", "layers": [entry([None, -4]), dense()]}},
    "an input of nothing": {"class_name": "Sequential", "config": {"name": "s", "layers": [entry([]), dense()]}},
    "not JSON": "{",
    "not UTF-8": b"\xff\xfe{}",
    "deep": "[" * 100_000 + "]" * 100_000,
    "deep in Python's limits": json.dumps({"a": json.loads("[" * 300 + "]" * 300)}),
    "a number of a million digits": '{"a": ' + "1" * 1_000_000 + "}",
    "quantised": sequence(dense(dtype={"class_name": "QuantizedDTypePolicy", "config": {"name": "int8_from_float32"}})),
    "a type that is not": sequence(dense(dtype="complex64")),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_description_that_makes_no_sense(name: str, tmp_path: Path) -> None:
    stored = weights(*PLAIN, *[(f"layers/dense{n}/vars/{i}", s) for n in ("", "_1") for i, s in ((2, (4, 4)),)])
    refused(archive(tmp_path / "m.keras", GRAPHS[name], stored))


def test_models_nested_without_end(tmp_path: Path) -> None:
    config: Config = dense()
    for _ in range(40):
        config = {"class_name": "Sequential", "config": {"name": "s", "layers": [config]}}
    assert refused(archive(tmp_path / "m.keras", config, weights(*PLAIN))).slug == "bad-graph"


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        file.writestr("config.json", json.dumps(sequence(dense())))
        file.writestr("model.weights.h5", b"\0" * (1 << 26))
    assert refused(path).slug == "too-large"


def test_a_member_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    archive(path, sequence(dense()), weights(*PLAIN))
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("config.json", json.dumps(sequence(dense())))
    assert refused(path).slug == "bad-file"


def test_weights_without_a_model(tmp_path: Path) -> None:
    (tmp_path / "m.h5").write_bytes(weights(*PLAIN))
    assert refused(tmp_path / "m.h5").slug == "not-a-model"
    archive(tmp_path / "m.keras", sequence(dense()))
    assert refused(tmp_path / "m.keras").slug == "bad-file"


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_file_that_is_cut_or_changed_is_read_or_refused(suffix: str, tmp_path: Path) -> None:
    """Never anything but an answer or an error of ours."""
    path = tmp_path / f"m{suffix}"
    if suffix == ".keras":
        archive(path, sequence(dense()), weights(*PLAIN))
    else:
        with h5py.File(path, "w") as file:
            file.attrs["model_config"] = json.dumps(sequence(dense()))
            group = file.create_group("model_weights/dense")
            group.attrs["weight_names"] = ["dense/kernel", "dense/bias"]
            group["dense/kernel"], group["dense/bias"] = np.ones((4, 3), np.float32), np.ones(3, np.float32)
    good = path.read_bytes()
    rng = np.random.default_rng(2)
    for n in range(120):
        data = bytearray(good)
        if n % 3 == 0:
            data = data[: rng.integers(0, len(good))]
        else:
            for at in rng.integers(0, len(good), 1 + n % 7):
                data[at] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(data)
        with suppress(UserError):
            load(path, dims={}, shapes={})


def test_the_command_line_shows_no_traceback(tmp_path: Path, intaglio: Intaglio) -> None:
    (tmp_path / "m.keras").write_bytes(b"PK\x03\x04 and nothing more")
    done = intaglio("compile", tmp_path / "m.keras", "-o", tmp_path / "out")
    assert done.code == 2
    assert "Traceback" not in done.err
    assert "error[" in done.err


def test_a_mask_that_would_change_the_result_is_refused(tmp_path: Path) -> None:
    options = {"name": "e", "trainable": True, "input_dim": 5, "output_dim": 2, "mask_zero": True}
    table = {"module": "keras.layers", "class_name": "Embedding", "config": options}
    weighed = {"module": "keras.layers", "class_name": "Softmax", "config": {"name": "l", "trainable": True}}
    path = archive(tmp_path / "m.keras", sequence(table, weighed), weights(("layers/embedding/vars/0", (5, 2))))
    error = refused(path)
    assert "mask" in error.message
    assert "`l`" in error.message


HOSTILE = [
    "*/ int evil(void) { return 1; } /*",
    'a"\n#error b',
    "../../x",
    "main",
    "%s%n",
    "\\",
    "int",
    "\u202ereversed",
    "",
    "x" * 100_000,
]


def sources(folder: Path, first: str, last: str) -> dict[str, str]:
    """The C of a network of two layers, without comments and texts."""
    layers = [called(entry([None, 4])), called(dense(first), "x"), called(dense(last), first)]
    kernels = [(f"layers/dense{n}/vars/{i}", s) for n, c in (("", 4), ("_1", 3)) for i, s in ((0, (c, 3)), (1, (3,)))]
    folder.mkdir()
    path = archive(folder / "m.keras", functional(*layers, outputs=[[last, 0, 0]]), weights(*kernels))
    made = intaglio_compile(path, output=folder / "out", name="m", library_only=True).folder.rglob("*.[ch]")
    hidden = re.compile(r"/\*.*?\*/|//[^\n]*|\"(\\.|[^\"\\])*\"", re.S)
    return {p.name: hidden.sub(" ", p.read_text()) for p in made}


NAMES = [*HOSTILE[:2], *[pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE[2:]]]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_does_not_become_code(name: str, tmp_path: Path) -> None:
    made = sources(tmp_path / "a", name, "last")
    assert len(made) > 2
    assert not any(part in text for text in made.values() for part in ("evil(void)", "#error b", "%n"))


def test_options_that_do_not_go_with_the_weights(tmp_path: Path) -> None:
    """`null` says how many arrays a layer has in one place, and is the default in another."""
    error = refused(archive(tmp_path / "m.keras", sequence(dense(use_bias=None)), weights(*PLAIN)))
    assert (error.slug, error.hint) == ("bad-tensor", "save it again")
    assert "its options do not go with the weights `bias` that it needs" in error.message
