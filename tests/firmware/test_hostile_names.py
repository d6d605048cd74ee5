"""Names of a model are data in firmware too: in C, in the sketch for Arduino, in every file that a builder reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from intaglio.package.sbom import SBOM
from intaglio.pipeline import compile_request
from intaglio.stages import Request, Watch
from models.test_hostile_names import NAMES, assert_same_but_for_identifiers, made
from support.onnx_models import saved

READ_BY_TOOLS = (".c", ".h", ".ino", ".ld", ".json", ".yml", ".properties", ".cmake", ".txt", "")


def sources(proto: Any, folder: Path) -> dict[str, list[str]]:
    folder.mkdir()
    compile_request(Request(saved(proto, folder), folder / "out", name="m", stop_after="package", board="nucleo-l4r5zi"), Watch())
    return {
        str(path.relative_to(folder / "out")): tokens(path)
        for path in sorted((folder / "out").rglob("*"))
        if path.is_file() and path.suffix in READ_BY_TOOLS and path.name not in ("manifest.json", "vectors.json", SBOM)
    }


def tokens(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    assert "??" not in text and text.isascii()
    bare = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    bare = re.sub(r"//[^\n]*", " ", bare) if path.suffix == ".ino" else bare
    bare = re.sub(r"\b[0-9a-f]{64}\b", "digest_of_the_model", bare)
    return re.findall(r"[A-Za-z_]\w*|[0-9][\w.]*|\S", bare)


@pytest.mark.parametrize(
    "name", ["comment", "newline", "backslash", "trigraph", "quotes", "format", "keyword", "path", "bidirectional"]
)
def test_hostile_names_give_the_same_tokens(name: str, tmp_path: Path) -> None:
    plain = sources(made(lambda n: f"v_{n}", "harmless"), tmp_path / "plain")
    odd = sources(made(lambda n: NAMES[name] + n, NAMES[name]), tmp_path / "odd")
    assert len(plain) > 20
    assert_same_but_for_identifiers(plain, odd)
