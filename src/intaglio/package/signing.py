"""Is a package what its maker wrote? By the digests of its manifest, and by a signature over all of its files.

A signature is a Sigstore bundle as OpenSSF's model-signing (an extra of pip) writes and verifies it: `signature.json` in the
package, by a private key of an elliptic curve in a PEM file. What building and running a package leaves in it (`build/`, program
caches) is not signed, and does not make a signature wrong.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from intaglio.errors import ToolError, UserError, install_hint, quoted
from intaglio.package.ownership import MANIFEST, SIGNATURE, Contents, contents_of, file_digest, paths_below

PASSWORD = "INTAGLIO_SIGN_PASSWORD"  # of the key; a word on the command line would be seen by others
_KEY_HINT = "`openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem` makes a key"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`signed`: by the key that was given; None: nobody asked."""

    files: int
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    unknown: tuple[str, ...]
    signed: bool | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        return not (self.changed or self.missing or self.unknown) and self.signed is not False


def sign_package(folder: Path, key: Path) -> None:
    signing, hashing = _library("signing"), _library("hashing")
    check_key(key)
    folder = folder.resolve()  # the library takes relative paths to ignore as relative to the package
    config = hashing.Config().set_ignored_paths(paths=_unsigned(folder, _contents(folder)), ignore_git_paths=False)
    try:
        signer = signing.Config().use_elliptic_key_signer(private_key=key, password=os.environ.get(PASSWORD) or None)
    except (ValueError, TypeError, OSError, AttributeError) as error:  # the last: a key that has no curve
        hint = f"it must be a private key of an elliptic curve, as PEM; {_KEY_HINT}; `{PASSWORD}` has its password"
        raise UserError("bad-key", f"{quoted(str(key), 200)} is not a key to sign with: {_first(error)}", hint=hint) from None
    signer.set_hashing_config(config).sign(folder, folder / SIGNATURE)


def check_key(key: Path) -> None:
    """Before anything is compiled."""
    _library("signing")
    if not key.is_file():
        raise UserError("no-file", f"there is no key {quoted(str(key), 200)}", hint=_KEY_HINT)


def verify_package(folder: Path, key: Path | None) -> Verdict:
    folder = folder.resolve()  # as in signing
    contents = _contents(folder)
    there = [path for path in sorted(paths_below(folder)) if path not in (MANIFEST, SIGNATURE)]
    changed = tuple(path for path in there if path in contents.files and file_digest(folder / path) != contents.files[path])
    missing = tuple(path for path in contents.files if path not in there)
    unknown = tuple(path for path in there if not contents.knows(path))
    count = len(contents.files)
    if key is None:
        return Verdict(count, changed, missing, unknown)
    reason = _fault_of_signature(folder, key, contents)
    return Verdict(count, changed, missing, unknown, not reason, reason)


def _fault_of_signature(folder: Path, key: Path, contents: Contents) -> str:
    if not key.is_file():
        hint = "`openssl ec -in KEY.pem -pubout -out PUBLIC.pem` writes the public key of a private one"
        raise UserError("no-file", f"there is no key {quoted(str(key), 200)}", hint=hint)
    if not (folder / SIGNATURE).is_file():
        return f"it has no `{SIGNATURE}`"
    verifying, hashing = _library("verifying"), _library("hashing")
    config = hashing.Config().set_ignored_paths(paths=_unsigned(folder, contents), ignore_git_paths=False)
    try:
        verifier = verifying.Config().use_elliptic_key_verifier(public_key=key)
    except (ValueError, TypeError, OSError, AttributeError) as error:  # the last: a key that has no curve
        hint = "it must be a public key of an elliptic curve, as PEM: `openssl ec -in KEY.pem -pubout -out PUBLIC.pem`"
        raise UserError("bad-key", f"{quoted(str(key), 200)} is not a public key: {_first(error)}", hint=hint) from None
    try:
        verifier.set_hashing_config(config).verify(folder, folder / SIGNATURE)
    except Exception as error:  # a damaged bundle fails in as many ways as its formats have layers
        return _first(error) or type(error).__name__
    return ""


def _unsigned(folder: Path, contents: Contents) -> list[Path]:
    """The signature itself, and what building and running have left."""
    left = [path for path in paths_below(folder) if path not in contents.files and path != MANIFEST and contents.knows(path)]
    return [folder / SIGNATURE, *(folder / path for path in left)]


def _contents(folder: Path) -> Contents:
    path = folder / MANIFEST
    found = contents_of(path.read_bytes()) if path.is_file() else None
    if found is None:
        hint = "`intaglio compile MODEL -o DIR` writes a package"
        raise UserError("not-a-package", f"{quoted(str(folder), 200)} is not a package", hint=hint)
    return found


def _library(part: str) -> ModuleType:
    import importlib

    try:
        return importlib.import_module(f"model_signing.{part}")
    except ImportError as error:
        hint = f"{install_hint('sign')} installs it"
        raise ToolError("no-signing", f"signatures need the package `model-signing`: {error}", hint=hint) from None


def _first(error: Exception) -> str:
    if isinstance(error, AttributeError):
        return "it is a key of another kind"
    return (str(error).strip().splitlines() or [""])[0][:200]
