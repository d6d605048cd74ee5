"""A package says what it was made of, and whether it is still what its maker wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

import intaglio as compiler
from intaglio.package.ownership import SIGNATURE, file_digest
from intaglio.package.sbom import SBOM
from support.commands import DIGITS, DIGITS_DATA, Intaglio


def keys(folder: Path, name: str = "key", private: Any = None) -> tuple[Path, Path]:
    private = private or ec.generate_private_key(ec.SECP256R1())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    own, public = folder / f"{name}.pem", folder / f"{name}.pub"
    own.write_bytes(private.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public.write_bytes(private.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return own, public


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("signed")
    own, public = keys(folder)
    return compiler.compile(DIGITS, output=folder / "digits", sign=own).folder, public


@pytest.fixture
def copy(signed: tuple[Path, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed[0], tmp_path / "digits"))


def test_a_signed_package_is_verified(signed: tuple[Path, Path], intaglio: Intaglio) -> None:
    folder, public = signed
    said = intaglio("verify", folder, "--key", public)
    assert said.code == 0 and "signed with this key" in said.out
    told = intaglio("verify", folder, "--key", public, "--json").json
    assert told["ok"] and told["signed"] and told["files"] > 10


def test_relative_paths_sign_and_verify(tmp_path: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    keys(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert intaglio("compile", DIGITS, "-o", "digits", "--sign", "key.pem").code == 0
    said = intaglio("verify", "digits", "--key", "key.pub")
    assert said.code == 0 and "signed with this key" in said.out
    assert intaglio("verify", tmp_path / "digits", "--key", "key.pub").code == 0


def test_without_a_key_only_the_files_are_compared(copy: Path, intaglio: Intaglio) -> None:
    assert "`--key PUBLIC.pem` checks who signed it" in intaglio("verify", copy).out
    (copy / SIGNATURE).unlink()
    said = intaglio("verify", copy)
    assert said.code == 0 and "not signed" in said.out


def test_what_a_build_leaves_does_not_break_the_signature(copy: Path, signed: tuple[Path, Path], intaglio: Intaglio) -> None:
    (copy / "build").mkdir()
    (copy / "build" / "digits.o").write_bytes(b"object")
    assert intaglio("verify", copy, "--key", signed[1]).code == 0


def test_every_change_is_seen(copy: Path, signed: tuple[Path, Path], intaglio: Intaglio) -> None:
    source = copy / "src" / "digits.c"
    source.write_text(source.read_text() + "\n")
    (copy / "include" / "digits.hpp").unlink()
    (copy / "src" / "extra.c").write_text("int extra;\n")
    said = intaglio("verify", copy)
    assert said.code == 1 and "changed: `src/digits.c`" in said.out and "missing: `include/digits.hpp`" in said.out
    assert "not of the package: `src/extra.c`" in said.out and "NOT as it was written" in said.out
    assert intaglio("verify", copy, "--key", signed[1]).code == 1


def test_a_manifest_that_was_made_to_fit_is_caught_by_the_signature(
    copy: Path, signed: tuple[Path, Path], intaglio: Intaglio
) -> None:
    source, manifest = copy / "src" / "digits.c", copy / "manifest.json"
    before = file_digest(source)
    source.write_text(source.read_text() + "\n")
    manifest.write_text(manifest.read_text().replace(before, file_digest(source)))
    assert intaglio("verify", copy).code == 0  # it agrees with itself
    told = intaglio("verify", copy, "--key", signed[1], "--json")
    assert told.code == 1 and told.json["signed"] is False and told.json["changed"] == []


def test_another_key_and_a_damaged_signature_are_refused(copy: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    _, other = keys(tmp_path, "other")
    assert intaglio("verify", copy, "--key", other).code == 1
    (copy / SIGNATURE).write_text("{}")
    said = intaglio("verify", copy, "--key", other)
    assert said.code == 1 and "signature: " in said.out
    (copy / SIGNATURE).unlink()
    assert f"it has no `{SIGNATURE}`" in intaglio("verify", copy, "--key", other).out


def test_keys_that_are_none(copy: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--sign", tmp_path / "none.pem")
    assert said.code == 2 and "error[no-file]: there is no key" in said.err and "openssl" in said.err
    (tmp_path / "text.pem").write_text("text")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--sign", tmp_path / "text.pem", "--stop-after", "package")
    assert said.code == 2 and "error[bad-key]" in said.err and not (tmp_path / "p").exists()
    said = intaglio("verify", copy, "--key", tmp_path / "text.pem")
    assert said.code == 2 and "error[bad-key]" in said.err
    assert intaglio("verify", tmp_path).code == 2


def test_keys_of_another_kind_are_refused(copy: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    """Those of slots are Ed25519."""
    own, public = keys(tmp_path, "slots", ed25519.Ed25519PrivateKey.generate())
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--sign", own, "--stop-after", "package")
    assert said.code == 2 and "a key of another kind" in said.err and "elliptic curve" in said.err and not (tmp_path / "p").exists()
    said = intaglio("verify", copy, "--key", public)
    assert said.code == 2 and "a key of another kind" in said.err


def test_a_signed_package_stays_current_and_can_be_replaced(tmp_path: Path, intaglio: Intaglio) -> None:
    own, _ = keys(tmp_path)
    words = ("compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--sign", own)
    assert intaglio(*words).code == 0
    assert "is up to date" in intaglio(*words).out
    (tmp_path / "p" / SIGNATURE).unlink()
    assert intaglio(*words).code == 2  # not up to date, and it exists
    assert intaglio(*words, "--force").code == 0 and (tmp_path / "p" / SIGNATURE).is_file()


@pytest.mark.slow
def test_the_sbom_is_cyclonedx_and_names_model_data_and_tools(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    with np.load(DIGITS_DATA) as data:
        np.savez(tmp_path / "real.npz", image=data["image"][:8])
    words = {"quantize": "int8", "calibrate": tmp_path / "real.npz", "board": "nucleo-l4r5zi"}
    folder = compiler.compile(DIGITS, output=tmp_path / "p", **words).folder  # type: ignore[arg-type]
    text = (folder / SBOM).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    sbom = json.loads(text)
    parts = {part["bom-ref"]: part for part in sbom["components"]}
    assert parts["model"]["hashes"] == [{"alg": "SHA-256", "content": file_digest(DIGITS)}]
    assert parts["data-0"]["hashes"] == [{"alg": "SHA-256", "content": file_digest(tmp_path / "real.npz")}]
    assert parts["file-bin/digits.elf"]["hashes"][0]["content"] == file_digest(folder / "bin" / "digits.elf")
    tools = {tool["name"]: tool["version"] for tool in sbom["metadata"]["tools"]["components"]}
    assert tools["intaglio"] == compiler.__version__ and "numpy" in tools and "zig" in tools
    assert sbom["metadata"]["component"]["type"] == "firmware"
    again = compiler.compile(DIGITS, output=tmp_path / "q", **words).folder  # type: ignore[arg-type]
    assert (again / SBOM).read_text() == text
