"""sbom.cdx.json: what a package was made of, as CycloneDX 1.6 (ECMA-424).

    metadata    the package itself, and the tools that made it: Intaglio, the compiler, Python packages that read the model
    components  the trained model with its digest, data that it was calibrated with, code of accelerators' plug-ins, built files

The same input gives the same bytes: there is no time, and the serial number follows from the content.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.package.ownership import file_digest

SBOM = "sbom.cdx.json"
_BUILT = ("lib/", "bin/", "weights/")
Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Data:
    """A file of calibration data, or an array that was given from Python."""

    name: str
    sha256: str


def calibration_data(given: Path | Mapping[str, Array] | None) -> tuple[Data, ...]:
    if given is None:
        return ()
    if isinstance(given, Path):
        files = sorted(p for p in given.rglob("*") if p.is_file()) if given.is_dir() else [given]
        return tuple(Data(p.relative_to(given).as_posix() if p != given else p.name, file_digest(p)) for p in files)
    return tuple(Data(name, hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()) for name, array in given.items())


def write_sbom(manifest: Manifest, data: Sequence[Data], built: Mapping[str, str], folder: Path) -> None:
    """`built`: digests of the files that are in the folder now."""
    text = json.dumps(sbom_of(manifest, data, built), indent=1)
    (folder / SBOM).write_text(text + "\n", encoding="utf-8")


def sbom_of(manifest: Manifest, data: Sequence[Data], built: Mapping[str, str]) -> Json:
    parts = [_model(manifest), *(_data(n, one) for n, one in enumerate(data))]
    parts += [{"type": "library", "bom-ref": f"accelerator-{name}", "name": name} for name in manifest.accelerators]
    parts += [_file(path, digest) for path, digest in sorted(built.items()) if path.startswith(_BUILT)]
    used = [{"ref": "package", "dependsOn": [str(part["bom-ref"]) for part in parts]}]
    if data:
        used.append({"ref": "model", "dependsOn": [f"data-{n}" for n in range(len(data))]})
    body: Json = {
        "metadata": {"tools": {"components": _tools(manifest)}, "component": _package(manifest)},
        "components": parts,
        "dependencies": used,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def _package(manifest: Manifest) -> Json:
    properties = {"target": manifest.target, **{f"option:{name}": value for name, value in sorted(manifest.options.items())}}
    if manifest.firmware is not None and manifest.firmware.board:
        properties["board"] = manifest.firmware.board
    return {
        "type": "library" if manifest.firmware is None else "firmware",
        "bom-ref": "package",
        "name": manifest.name,
        "version": manifest.model.sha256[:12],
        "properties": [{"name": f"intaglio:{name}", "value": value} for name, value in properties.items()],
    }


def _model(manifest: Manifest) -> Json:
    card: Json = {"modelParameters": {"inputs": _formats(manifest.inputs), "outputs": _formats(manifest.outputs)}}
    return {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": manifest.model.file,
        "hashes": _hashes(manifest.model.sha256),
        "modelCard": card,
    }


def _data(number: int, data: Data) -> Json:
    about = [{"type": "dataset", "name": data.name}]
    return {"type": "data", "bom-ref": f"data-{number}", "name": data.name, "hashes": _hashes(data.sha256), "data": about}


def _file(path: str, digest: str) -> Json:
    return {"type": "file", "bom-ref": f"file-{path}", "name": path, "hashes": _hashes(digest)}


def _tools(manifest: Manifest) -> list[Json]:
    tools: list[Json] = [{"type": "application", "name": "intaglio", "version": manifest.intaglio}]
    for name, version in manifest.tools.items():
        if name == "compiler":  # `zig 0.13.0`, `gcc 12.2.0`
            name, _, version = version.rpartition(" ")
        kind = "application" if name == "python" or name not in manifest.tools else "library"
        tools.append({"type": kind, "name": name or "compiler", "version": version})
    return tools


def _formats(infos: Sequence[TensorInfo]) -> list[Json]:
    return [{"format": f"{info.field}: {info.dtype}[{','.join(map(str, info.shape))}]"} for info in infos]


def _hashes(sha256: str) -> list[Json]:
    return [{"alg": "SHA-256", "content": sha256}]
