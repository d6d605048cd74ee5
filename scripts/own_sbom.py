"""The bill of materials of Intaglio itself, as CycloneDX 1.6: what a wheel needs, in the versions that are installed here.

    .venv/bin/python scripts/own_sbom.py dist/intaglio-0.1.0-py3-none-any.whl > dist/intaglio.cdx.json

Required packages only, with all that they need in turn. The same environment and wheel give the same bytes: no time in it, and the
serial number follows from the content.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import uuid
from importlib import metadata
from pathlib import Path

Json = dict[str, object]
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str) -> list[str]:
    """Names of required packages, without those of extras or other systems."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        word, _, marker = line.partition(";")
        match = _NAME.match(word.strip())
        if match is not None and "extra" not in marker and _holds(marker):
            found.append(normal(match.group()))
    return sorted(set(found))


def _holds(marker: str) -> bool:
    if not marker.strip():
        return True
    from packaging.markers import Marker

    return bool(Marker(marker).evaluate())


def closure(root: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    todo = [root]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = needed(name)
            todo += found[name]
    return found


def component(name: str) -> Json:
    about = metadata.metadata(name)
    version = metadata.version(name)
    made: Json = {"type": "library", "bom-ref": f"pkg:pypi/{name}@{version}", "name": name, "version": version}
    made["purl"] = f"pkg:pypi/{name}@{version}"
    if "License-Expression" in about:
        made["licenses"] = [{"expression": about["License-Expression"]}]
    return made


def sbom(wheel: Path | None) -> Json:
    graph = closure("intaglio")
    installed = {name for name in graph if _there(name)}
    refs = {name: f"pkg:pypi/{name}@{metadata.version(name)}" for name in installed}
    own: Json = {**component("intaglio"), "type": "application", "licenses": [{"license": {"id": "Apache-2.0"}}]}
    if wheel is not None:
        own["hashes"] = [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}]
    body: Json = {
        "metadata": {"component": own},
        "components": [component(name) for name in sorted(installed - {"intaglio"})],
        "dependencies": [
            {"ref": refs[name], "dependsOn": [refs[other] for other in graph[name] if other in installed]}
            for name in sorted(installed)
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


def _there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print(json.dumps(sbom(Path(sys.argv[1]) if len(sys.argv) > 1 else None), indent=1))
