"""Writes the corpus anew: small files of every format. It is committed, so that mutants are the same everywhere.

.venv/bin/python tools/fuzzing/seeds.py
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1] / "tests")]

from fuzzing.formats import CORPUS  # noqa: E402
from intaglio.cli.main import _command  # noqa: E402
from support.onnx_models import FLOAT, model, node, value  # noqa: E402
from support.program_caches import checked, distrusted, program, tuning, unknown, written  # noqa: E402
from support.pt2_files import Pt2  # noqa: E402
from support.tflite_models import one_operator, tensor  # noqa: E402

DIGITS = Path(str(resources.files("intaglio") / "demo_data" / "digits.onnx"))


def numbers(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def onnx_models() -> dict[str, Any]:
    """Windows, products, moves, quantisation, recurrence, control flow."""
    x4, x2 = value("x", [1, 2, 5, 5]), value("x", ["N", 6])
    then, other = ([node("Relu" if n == "t" else "Neg", "x", n)] for n in "te")
    from onnx import helper

    branches = {
        f"{name}_branch": helper.make_graph(nodes, name, [], [value(out, [2, 6])])
        for name, nodes, out in (("then", then, "t"), ("else", other, "e"))
    }
    scale, zero = np.array(0.05, np.float32), np.array(3, np.int8)
    return {
        "windows": model(
            [
                node("Conv", "x w b", "a", pads=[1, 1, 1, 1]),
                node("Relu", "a", "r"),
                node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
                node("Flatten", "p", "f"),
                node("Gemm", "f g h", "y", transB=1),
            ],
            [x4],
            [value("y", None)],
            {"w": numbers(3, 2, 3, 3), "b": numbers(3), "g": numbers(4, 12), "h": numbers(4)},
        ),
        "moves": model(
            [
                node("Reshape", "x s", "a"),
                node("Transpose", "a", "b", perm=[1, 0, 2]),
                node("Slice", "b i j", "c"),
                node("Concat", "c c", "d", axis=0),
                node("Pad", "d q", "e"),
                node("ReduceMean", "e", "m", axes=[1]),
                node("Softmax", "m", "y"),
            ],
            [value("x", [2, 6])],
            [value("y", None)],
            {"s": np.array([2, 3, 2]), "i": np.array([0]), "j": np.array([2]), "q": np.array([0, 1, 0, 0, 0, 1])},
            opset=13,
        ),
        "quantised": model(
            [
                node("QuantizeLinear", "x sc z", "q"),
                node("DequantizeLinear", "q sc z", "d"),
                node("DequantizeLinear", "w sc zw", "dw"),
                node("MatMul", "d dw", "m"),
                node("QuantizeLinear", "m sc z", "qm"),
                node("DequantizeLinear", "qm sc z", "y"),
            ],
            [x2],
            [value("y", None)],
            {"sc": scale, "z": zero, "zw": np.array(0, np.int8), "w": np.arange(24, dtype=np.int8).reshape(6, 4)},
        ),
        "recurrent": model(
            [node("LSTM", "x w r b", "a h c", hidden_size=3)],
            [value("x", [4, 1, 2])],
            [value("a", None), value("h", None)],
            {"w": numbers(1, 12, 2), "r": numbers(1, 12, 3), "b": numbers(1, 24)},
        ),
        "branches": model(
            [helper.make_node("If", ["c"], ["y"], **branches), node("Gather", "y i", "g", axis=1)],
            [value("x", [2, 6]), value("c", [], 9)],
            [value("y", [2, 6]), value("g", None)],
            {"i": np.array([0, -1])},
        ),
        "elements": model(
            [
                node("Add", "x k", "a"),
                node("Sigmoid", "a", "b"),
                node("Mul", "a b", "c"),
                node("Clip", "c lo hi", "d"),
                node("LayerNormalization", "d g", "e"),
                node("TopK", "e n", "y i"),
            ],
            [x2],
            [value("y", None), value("i", None, 7)],
            {
                "k": numbers(1, 6),
                "lo": np.array(-1, np.float32),
                "hi": np.array(1, np.float32),
                "g": numbers(6),
                "n": np.array([2]),
            },
            opset=17,
        ),
    }


def run(*words: str | Path) -> None:
    _command()([str(word) for word in words], standalone_mode=False)


def write_models() -> None:
    for name, proto in onnx_models().items():
        (CORPUS / "onnx" / f"{name}.onnx").write_bytes(proto.SerializeToString())
    x = tensor((1, 6, 6, 2), "int8")
    conv: dict[str, object] = {"padding": 0, "strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    w8 = tensor((3, 3, 3, 2), "int8", zero=0, data=np.arange(54, dtype=np.int8).reshape(3, 3, 3, 2))
    w32 = tensor((5, 12), "float32", data=numbers(5, 12))
    places = replace(tensor((2,), "int32"), data=np.array([0, 1], np.int32))
    for name, data in {
        "conv": one_operator("CONV_2D", [x, w8], tensor((1, 6, 6, 3), "int8"), "Conv2DOptions", conv, 3),
        "dense": one_operator(
            "FULLY_CONNECTED", [tensor((2, 12), "float32"), w32, None], tensor((2, 5), "float32"), "FullyConnectedOptions"
        ),
        "add": one_operator("ADD", [tensor((4, 3), "int8")] * 2, tensor((4, 3), "int8"), "AddOptions"),
        "softmax": one_operator(
            "SOFTMAX", [tensor((4, 3), "int8")], tensor((4, 3), "int8", 1 / 256, -128), "SoftmaxOptions", {"beta": 1.0}
        ),
        "gather": one_operator("GATHER", [tensor((4, 3), "int8"), places], tensor((2, 3), "int8"), "GatherOptions"),
        "pool": one_operator(
            "MAX_POOL_2D",
            [x],
            tensor((1, 3, 3, 2), "int8"),
            "Pool2DOptions",
            {"filterHeight": 2, "filterWidth": 2, "strideH": 2, "strideW": 2},
        ),
    }.items():
        (CORPUS / "tflite" / f"{name}.tflite").write_bytes(data)
    Pt2().save(CORPUS / "pt2" / "linear.pt2")
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    layers = keras.layers
    net = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    steps = keras.Sequential([keras.Input((4, 2)), layers.GRU(3), layers.BatchNormalization(), layers.Dense(2)])
    for name, made in (("image", net), ("steps", steps)):
        made.save(CORPUS / "keras" / f"{name}.keras")
        made.save(CORPUS / "h5" / f"{name}.h5")


def write_others() -> None:
    for name in onnx_models():
        for stage in ("import", "memory"):
            out = CORPUS / "ig" / f"{name}-{stage}"
            run("compile", CORPUS / "onnx" / f"{name}.onnx", "-o", out / "model.ig", "--target", "generic", "--stop-after", stage)
    work = CORPUS / "work"
    run(
        "compile",
        DIGITS,
        "-o",
        work / "p",
        "--target",
        "cortex-m4f",
        "--export-plan",
        work / "plan.csv",
        "--stop-after",
        "package",
        "--name",
        "digits",
    )
    run("compile", CORPUS / "onnx" / "windows.onnx", "-o", work / "small", "--target", "generic")
    shutil.copy(work / "small" / "manifest.json", CORPUS / "manifest" / "small.json")
    (CORPUS / "plan" / "digits").mkdir()
    shutil.copy(work / "plan.csv", CORPUS / "plan" / "digits" / "plan.csv")
    shutil.copy(DIGITS, CORPUS / "plan" / "digits" / "model.onnx")
    np.savez(CORPUS / "npz" / "two.npz", x=numbers(2, 3), i=np.arange(4))
    np.savez_compressed(CORPUS / "npz" / "packed.npz", x=numbers(2, 3))
    np.save(CORPUS / "npz" / "one.npy", numbers(2, 3))
    one = program()
    written(CORPUS / "clbin" / "programs.clbin", one, tuning(), checked(one), distrusted(program("j")), unknown())
    template = CORPUS / "template" / "network"
    for folder in ("include", "src"):
        shutil.copytree(Path(str(resources.files("intaglio.package"))) / "templates" / "_network" / folder, template / folder)
    (template / "README.md.j2").write_text(
        "{{ name }} has {{ inputs | length }} inputs{% for i in inputs %}, {{ i.field }}{% endfor %}\n"
    )
    shutil.rmtree(work)


def main() -> None:
    kept = CORPUS.with_name("texts")
    shutil.rmtree(CORPUS, ignore_errors=True)
    for name in ("onnx", "tflite", "pt2", "keras", "h5", "ig", "manifest", "npz", "plan", "clbin"):
        (CORPUS / name).mkdir(parents=True)
    shutil.copytree(kept, CORPUS, dirs_exist_ok=True)
    write_models()
    write_others()


if __name__ == "__main__":
    main()
    assert FLOAT == 1
