"""Releases: a wheel that is the same bytes twice, a bill of materials that validates, a workflow that is pinned."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def sbom(*words: str | Path) -> dict[str, object]:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "own_sbom.py", *words], check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_the_bill_of_materials_is_valid_and_the_same_twice() -> None:
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    made = sbom()
    fault = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(json.dumps(made))
    assert fault is None, fault
    assert made == sbom()
    names = {str(part["name"]) for part in made["components"]}  # type: ignore[attr-defined]
    assert {"numpy", "onnx", "jinja2", "typer"} <= names
    assert "pytest" not in names


def test_the_release_is_pinned() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    uses = re.findall(r"uses: (\S+)", text)
    assert len(uses) >= 3
    assert [one for one in uses if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one)] == []
    lines = (ROOT / "deploy" / "release-requirements.txt").read_text(encoding="utf-8")
    packages = re.findall(r"^[\w-]+==\S+", lines, re.M)
    assert packages
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", lines)) == len(packages)


@pytest.mark.slow
def test_two_builds_of_the_wheel_are_the_same_bytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "build_wheel.py", tmp_path], check=False, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert "intaglio/package/templates/_network/src/NAME.c.j2" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    assert json.dumps(sbom(wheel)).count("SHA-256") == 1
