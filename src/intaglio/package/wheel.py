"""A package as a Python wheel: `pip install digits-0.1.0-py3-none-linux_x86_64.whl`, then `import digits`.

    digits/__init__.py     wheel_module.py
    digits/model.json      names, types and shapes, the size of the arena
    digits/libdigits.so
    digits-0.1.0.dist-info/...

The same package gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import keyword
import platform
import re
from importlib import resources
from pathlib import Path

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.package.archive import write_zip_of
from intaglio.package.manifest import Manifest, TensorInfo, target_of
from intaglio.package.size_info import SizeInfo
from intaglio.version import __version__

_ARCHES = {"x86_64": "x86_64", "aarch64": "aarch64"}


def write_wheel(folder: Path, manifest: Manifest, output: Path, version: str) -> Path:
    """The wheel in the folder `output`."""
    _check(folder, manifest, version)
    name = manifest.name
    tag = f"py3-none-{_platform(manifest)}"
    module = (resources.files("intaglio.package") / "wheel_module.py").read_bytes().replace(b"NAME", name.encode())
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": module,
        f"{name}/model.json": (json.dumps(_facts(manifest, version), indent=1) + "\n").encode(),
        f"{name}/lib{name}.so": (folder / "lib" / f"lib{name}.so").read_bytes(),
        f"{info}/METADATA": _metadata(manifest, version).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: intaglio {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*rows, f"{info}/RECORD,,"]) + "\n").encode()
    path = output / f"{name}-{version}-{tag}.whl"
    write_zip_of(files, path)
    return path


def _check(folder: Path, manifest: Manifest, version: str) -> None:
    target, name = target_of(manifest), manifest.name
    reason = ""
    if target.bare or target.wasm or manifest.opencl is not None:
        reason = f"it is for {manifest.target}, and a wheel is for a host"
    elif len(manifest.memory.arena_sizes()) > 1 or manifest.options.get("weights") == "read":
        reason = "its arena or its weights are in several memories"
    elif not (folder / "lib" / f"lib{name}.so").is_file():
        reason = f"it has no `lib/lib{name}.so`"
    elif keyword.iskeyword(name) or name in ("numpy", "ctypes", "json"):
        reason = f"no Python module can be called `{name}`; compile it with `--name`"
    if reason:
        raise UserError("no-wheel", f"{quoted(str(folder), 200)} cannot be a wheel: {reason}", hint="compile it for a host")
    if re.fullmatch(r"\d+(\.\d+)*((a|b|rc|\.post|\.dev)\d+)?", version) is None:
        raise UserError("bad-option", f"{quoted(version)} is not a version", hint="for example `--wheel-version 1.0.2`")


def _platform(manifest: Manifest) -> str:
    arch = target_of(manifest).arch
    system = platform.system().lower()
    word = next((short for name, short in _ARCHES.items() if arch.replace("-", "_").startswith(name)), platform.machine())
    return f"{'linux' if system == 'linux' else system}_{word}"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def _tensor(info: TensorInfo) -> dict[str, object]:
    numpy = "uint16" if info.dtype == "bf16" else np.dtype(info.type.dtype.numpy).name
    told: dict[str, object] = {"name": info.name, "field": info.field, "dtype": info.dtype, "numpy": numpy}
    return {**told, "shape": list(info.shape), **({"dims": list(info.dims)} if info.dims else {})}


def _facts(manifest: Manifest, version: str) -> dict[str, object]:
    memory = manifest.memory
    return {
        "name": manifest.name,
        "version": version,
        "library": f"lib{manifest.name}.so",
        "target": manifest.target,
        "model_sha256": manifest.model.sha256,
        "arena_bytes": max(1, memory.arena_bytes),
        "alignment": memory.alignment,
        "state_bytes": memory.state_bytes,
        "inputs": [_tensor(i) for i in manifest.inputs],
        "outputs": [_tensor(o) for o in manifest.outputs],
        **({"sizes": [_size(s) for s in manifest.given]} if manifest.given else {}),
    }


def _size(info: SizeInfo) -> dict[str, str | int]:
    return {"name": info.name, "low": info.low, "high": info.high, "step": info.step}


def _metadata(manifest: Manifest, version: str) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {manifest.name}", f"Version: {version}"]
    lines += [f"Summary: A neural network, compiled for {manifest.target}", "Requires-Python: >=3.9", "Requires-Dist: numpy"]
    return "\n".join(lines) + f"\n\nCompiled by Intaglio {manifest.intaglio} from `{manifest.model.file}`.\n"


__all__ = ["write_wheel"]
