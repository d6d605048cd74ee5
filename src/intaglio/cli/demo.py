"""`intaglio demo`: the whole line on a network that is shipped, with real handwritten digits."""

from __future__ import annotations

import subprocess
import tempfile
import time
from importlib import resources
from pathlib import Path

import numpy as np

from intaglio.cli.running import print_validation
from intaglio.cli.terminal import bytes_text, count_text, note, print_table, progress_bar
from intaglio.errors import AnswerIsNo, counted
from intaglio.ir.graph import Array
from intaglio.pipeline import compile_request
from intaglio.run.data import read_arrays
from intaglio.run.package import Package
from intaglio.run.validate import ValidateOptions, validate
from intaglio.stages import Request, Watch

SHOWN = 5


def run_demo(output: Path | None, cc: str | None) -> int:
    start = time.perf_counter()
    data = Path(str(resources.files("intaglio") / "demo_data"))
    folder = output or Path(tempfile.mkdtemp(prefix="intaglio-demo-")) / "digits"
    arrays = read_arrays(data / "digits.npz")
    images, labels = arrays["image"], arrays["labels"]

    print("1. compile: digits.onnx, a convolutional network for handwritten digits")
    with progress_bar() as progress:
        request = Request(model=data / "digits.onnx", output=folder, force=output is not None, cc=cc)
        compile_request(request, Watch(note=lambda text: note(f"   note: {text}"), progress=progress))
    package = Package.load(folder)
    _print_layers(package)

    print(f"2. run the application on {SHOWN} digits that the network has not seen")
    _run_application(package, images, labels)

    print(f"\n3. its self-test, and all {len(labels)} digits against ONNX Runtime")
    print(_application(package, "--selftest"), end="")
    result = validate(package, ValidateOptions(inputs={"image": images}, steps=True, labels=labels))
    print_validation(result)

    print("\n4. speed")
    print(_application(package, "--benchmark", "1000"), end="")
    seconds = time.perf_counter() - start
    print(f"\nThe package is in {folder} (took {seconds:.1f} s). Its README.md explains how to use it.")
    return 0 if result.ok else 1


def _print_layers(package: Package) -> None:
    m = package.manifest
    rows = []
    for layer in m.layers:
        out = layer.outputs[0]
        shape = f"{out.dtype}[{','.join(map(str, out.shape))}]"
        rows.append([layer.op[:20], layer.kernel[:34], shape, count_text(layer.macs), layer.source[:24]])
    print_table(["layer", "kernel", "output", ">MACs", "in the model"], rows)
    weights, arena = bytes_text(m.memory.weight_bytes), bytes_text(m.memory.arena_bytes)
    print(f"   {counted(len(m.layers), 'layer')} for {m.target}, weights {weights}, arena {arena}\n")


def _run_application(package: Package, images: Array, labels: Array) -> None:
    with tempfile.TemporaryDirectory(prefix="intaglio-digits-") as folder:
        pictures, answers = [], []
        for index in range(SHOWN):
            path = Path(folder) / f"digit{index}.npy"
            np.save(path, images[index])
            said = _application(package, str(path), "--top", "1").split()
            answers.append(f"{said[1]} ({100 * float(said[2]):.0f} %)")
            pictures.append(_picture(np.asarray(images[index])))
    for rows in zip(*pictures, strict=True):
        print("   " + "   ".join(rows))
    print("   " + "   ".join(f"{answer:16s}" for answer in answers))
    print("   " + "   ".join(f"{f'label: {int(label)}':16s}" for label in labels[:SHOWN]))


def _picture(image: Array) -> list[str]:
    shades = " .:-=+*#%@"
    pixels = np.asarray(image, np.float64).reshape(8, 8)
    return ["".join(shades[min(9, int(p * 9.99))] * 2 for p in row) for row in pixels]


def _application(package: Package, *words: str) -> str:
    program = package.folder / "bin" / package.name
    done = subprocess.run([str(program.resolve()), *words], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise AnswerIsNo("demo-failed", f"`{program.name} {words[0]}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout
