"""One inference as a plain call, for us and for each peer; every peer is optional and says why it is missing."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import intaglio
from intaglio.run.host import Library, pointers

Call = Callable[[], None]
FLAGS = ("-O3", "-march=x86-64-v3", "-fPIC", "-shared", "-fno-math-errno")


@dataclass(frozen=True, slots=True)
class Work:
    """A model with the inputs to measure it on."""

    name: str
    path: Path
    inputs: list[np.ndarray]


def ours(work: Work, folder: Path) -> tuple[Call, Callable[[], list[np.ndarray]]]:
    """The call, and its outputs to check against the others'."""
    shapes = {f"in{i}": tuple(a.shape) for i, a in enumerate(work.inputs)}
    package = intaglio.compile(work.path, output=folder, shapes=shapes, force=True)
    library = Library(folder / "lib" / f"lib{package.name}.so", package.manifest)
    arrays = [np.ascontiguousarray(a) for a in work.inputs]
    outputs = [np.empty(o.shape, o.type.dtype.numpy) for o in package.manifest.outputs]
    given, taken = pointers(arrays), pointers(outputs)
    run, arena = library._run, library._arena
    first, second = ctypes.addressof(given), ctypes.addressof(taken)
    keep = (library, arrays, outputs, given, taken)

    def call() -> None:
        run(arena, first, second)

    def results() -> list[np.ndarray]:
        call()
        return list(keep[2])

    return call, results


def onnxruntime(work: Work) -> tuple[Call, list[np.ndarray]]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(str(work.path), options, providers=["CPUExecutionProvider"])
    feed = {i.name: a for i, a in zip(session.get_inputs(), work.inputs, strict=True)}
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    for output in session.get_outputs():
        binding.bind_output(output.name)
    results = session.run(None, feed)
    return lambda: session.run_with_iobinding(binding), results


def emx(work: Work, folder: Path, python: str) -> Call:
    """emx-onnx-cgen lives in an environment of its own (`python`); its C is built with our flags."""
    folder.mkdir(parents=True, exist_ok=True)
    model = onnx.load(str(work.path))
    for info, array in zip(_true_inputs(model), work.inputs, strict=True):
        dims = info.type.tensor_type.shape
        del dims.dim[:]
        for size in array.shape:
            dims.dim.add().dim_value = size
    onnx.save(model, str(folder / "pinned.onnx"))
    tool = str(Path(python).parent / "emx-onnx-cgen")
    command = [tool, "compile", "pinned.onnx", "net.c", "--restrict-arrays"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:120])
    subprocess.run(["gcc", *FLAGS, "net.c", "-o", "net.so", "-lm"], cwd=folder, check=True, capture_output=True, timeout=900)
    library = ctypes.CDLL(str(folder / "net.so"))
    library.model_load(str(folder / "model.bin").encode())
    text = (folder / "net.c").read_text(encoding="utf-8", errors="replace")
    signature = re.findall(r"^void model\((.*?)\) \{", text, re.S | re.M)[-1]
    arguments: list[object] = []
    keep = [np.ascontiguousarray(a) for a in work.inputs]
    given = iter(keep)
    for part in signature.split(", "):
        if part.startswith("const "):
            arguments.append(ctypes.c_void_p(next(given).ctypes.data))
        elif "[" in part:
            sizes = [int(n) for n in re.findall(r"\[(?:restrict )?(\d+)\]", part)]
            keep.append(np.zeros(int(np.prod(sizes)) * 8, np.uint8))
            arguments.append(ctypes.c_void_p(keep[-1].ctypes.data))
        else:
            raise RuntimeError(f"scalar argument `{part}`")
    run = library.model
    run.restype = None

    def call() -> None:
        run(*arguments)
        assert keep

    return call


def _true_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {w.name for w in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in weights]


def emx_python(folder: Path) -> str:
    """An environment with emx-onnx-cgen, made once."""
    python = folder / "bin" / "python"
    if not (folder / "bin" / "emx-onnx-cgen").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "emx-onnx-cgen"], check=True)
    return str(python)
