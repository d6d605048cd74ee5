"""The data of the page of a WebAssembly package: module and test vectors as text in a script, so that it opens without a server."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np

from intaglio.package.manifest import Manifest

MOST_VECTOR_BYTES = 16 << 20


def write_page_data(folder: Path, manifest: Manifest) -> None:
    """Once the module is built. Vectors that are missing, or very large, are left out: the page runs random numbers then."""
    name = manifest.name
    stored: dict[str, object] = {"module": _text((folder / "lib" / f"{name}.wasm").read_bytes())}
    parts = {"inputs": ("in", len(manifest.inputs)), "outputs": ("out", len(manifest.outputs))}
    files = {key: [folder / "test" / f"{stem}{n}.npy" for n in range(count)] for key, (stem, count) in parts.items()}
    every = [file for group in files.values() for file in group]
    if all(file.is_file() for file in every) and sum(file.stat().st_size for file in every) <= MOST_VECTOR_BYTES:
        for key, group in files.items():
            stored[key] = [_text(np.ascontiguousarray(np.load(file, allow_pickle=False)).tobytes()) for file in group]
    (folder / "web" / f"{name}_data.js").write_text(f"const {name}_data = {json.dumps(stored)};\n", encoding="utf-8")


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
