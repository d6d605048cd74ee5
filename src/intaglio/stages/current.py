"""Is the output already what a request asks for? Then a compile has nothing to do.

The manifest has a digest of the request: options with the content of the files that they name, and Intaglio itself. A package is
current if that digest, the versions of the tools, the model and every file of the package are what they were. A model that is
more than one file (an IR file with its weights, external data) is always compiled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.options.request import Request
from intaglio.package.manifest import Manifest, read_manifest
from intaglio.package.ownership import MANIFEST, SIGNATURE, file_digest, file_digests
from intaglio.run.accuracy import kept_accuracy
from intaglio.run.expect import tool_versions
from intaglio.stages.packaging import compiler_for
from intaglio.stages.tuned import implicit_file
from intaglio.targets.deployment import target_of
from intaglio.targets.target import find_target

# The model and the compiler are compared by themselves; where the package goes, and what is shown or written beside it, does not
# change it.
LEFT_OUT = frozenset(["model", "output", "force", "cc", "archive", "archive_format", "explain", "dump_ir", "export_plan", "verify"])
# More is asked for than a package: a table, a file beside it, a measurement. Or it depends on code and drivers outside of Intaglio.
MORE = ("force", "archive", "explain", "verify", "dump_ir", "export_plan", "devices", "accelerators", "library_only")
BESIDE = ("archive", "explain", "verify", "dump_ir", "export_plan")
FILES = ("board", "memory")  # names of a board, or of a file


def is_current(request: Request) -> bool:
    folder = request.output
    if any(getattr(request, name) for name in MORE):
        return False
    try:
        if not (folder / MANIFEST).is_file() or folder.is_symlink():
            return False
        manifest = read_manifest(folder)
        signed = request.sign is None or (folder / SIGNATURE).is_file()
        counted = request.labels is None or kept_accuracy(folder) is not None
        return signed and counted and bool(manifest.request) and _is_of(request, manifest) and _is_whole(folder, manifest)
    except (IntaglioError, OSError):  # the compile tells what is wrong
        return False


def made_again(request: Request) -> Request:
    """A package that is up to date may be made again, for what a request shows or writes beside it."""
    plain = {field.name: field.default for field in fields(request) if field.name in BESIDE}
    if request.force or all(getattr(request, name) == usual for name, usual in plain.items()):
        return request
    return replace(request, force=True) if is_current(replace(request, **plain)) else request  # type: ignore[arg-type]


def _is_of(request: Request, manifest: Manifest) -> bool:
    target = target_of(request.board, request.target, "host")
    toolchain = compiler_for(target, request.cc) if request.stop_after == "build" else None
    kept = manifest.model.sha256 if request.no_source else manifest.files.get(manifest.model.source or "")
    return (
        manifest.tools == tool_versions(toolchain)
        and manifest.request == request_digest(request)
        and request.model.is_file()
        and kept == manifest.model.sha256 == file_digest(request.model)
    )


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    """A cache of OpenCL programs grows as the package runs."""
    files = {path: digest for path, digest in manifest.files.items() if path != f"{manifest.name}.clbin"}
    paths = [folder / path for path in files]
    return all(path.is_file() for path in paths) and file_digests(paths) == list(files.values())


def request_digest(request: Request) -> str:
    told: dict[str, object] = {"intaglio": _own_digest(), "host": find_target("host").name, "model": request.model.name}
    told["tuned"] = _told(implicit_file(request))
    for field in fields(request):
        value = getattr(request, field.name)
        if field.name in FILES and value is not None and Path(value).is_file():
            value = Path(value)
        if field.name not in LEFT_OUT:
            told[field.name] = _told(value)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _told(value: object) -> object:
    """As JSON: files and arrays by their content."""
    match value:
        case Path():
            return _content(value)
        case Mapping():
            return {str(key): _told(item) for key, item in value.items()}
        case frozenset():
            return sorted(map(str, value))
        case tuple():
            return [_told(item) for item in value]
        case np.ndarray():
            return [str(value.dtype), list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise AssertionError(f"{type(value).__name__} in a request")


def _content(path: Path) -> object:
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
        return {p.relative_to(path).as_posix(): file_digest(p) for p in inside}
    return [path.name, file_digest(path)] if path.is_file() else None


@cache
def _own_digest() -> str:
    """Of Intaglio's code and data: in a checkout, they change without the version."""
    return hashlib.sha256(json.dumps(_content(Path(str(resources.files("intaglio"))))).encode()).hexdigest()
