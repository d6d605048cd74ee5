"""`intaglio verify`: a package against its manifest, and against a public key."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from intaglio.cli.terminal import print_json, say
from intaglio.errors import counted, quoted
from intaglio.package.ownership import SIGNATURE
from intaglio.package.signing import Verdict, verify_package

SHOWN = 10


def verify_words(folder: Path, key: Path | None, json: bool) -> int:
    verdict = verify_package(folder, key)
    if json:
        print_json({"ok": verdict.ok, **asdict(verdict)})
    else:
        _print(folder, verdict)
    return 0 if verdict.ok else 1


def _print(folder: Path, verdict: Verdict) -> None:
    for word, paths in (("changed", verdict.changed), ("missing", verdict.missing), ("not of the package", verdict.unknown)):
        for path in paths[:SHOWN]:
            print(f"{word}: {quoted(path, 200)}")
        if len(paths) > SHOWN:
            print(f"{word}: {counted(len(paths) - SHOWN, 'file')} more")
    if verdict.reason:
        say(f"signature: {verdict.reason}")
    if not verdict.ok:
        print("the package is NOT as it was written")
        return
    say(f"{counted(verdict.files, 'file')} as the manifest lists them")
    if verdict.signed:
        print("signed with this key")
    elif (folder / SIGNATURE).is_file():
        say("there is a signature; `--key PUBLIC.pem` checks who signed it")
    else:
        print("not signed")
