"""`intaglio slot`: weights of a package as a signed image for a slot in flash, and the check of such an image."""

from __future__ import annotations

from pathlib import Path

from intaglio.cli.terminal import print_json, say
from intaglio.errors import AnswerIsNo, UserError, quoted
from intaglio.package.manifest import read_manifest
from intaglio.package.slots import check_image, image_of_package, sign_image, write_image


def write_slot(
    package: Path, output: Path | None, version: int, keys: tuple[Path | None, Path | None], replaces: Path | None, json: bool
) -> None:
    sign, encrypt = keys
    if version == 0 and output is not None and sign is not None:
        what = "`intaglio slot` needs `--version`, a number from 1"
        raise UserError("bad-option", what, hint="it must grow: a device refuses older ones")
    missing = next((word for word, given in (("--output", output), ("--sign", sign), ("--version", version)) if not given), "")
    if output is None or sign is None or missing:
        hint = "for example `intaglio slot DIR -o F.bin --version 1 --sign KEY.pem`"
        raise UserError("bad-option", f"`intaglio slot` needs `{missing}`", hint=hint)
    image = image_of_package(package)
    for folder in (package, *([] if replaces is None else [replaces])) if encrypt is not None else ():
        if "encrypted" not in read_manifest(folder).options.get("safety", "").split(","):
            what = f"the code of {quoted(str(folder), 200)} cannot decrypt weights"
            raise UserError("bad-option", what, hint="compile the model with `--safety slots,encrypted`, or omit `--encrypt`")
    if replaces is not None and image_of_package(replaces).layout != image.layout:
        what = f"the code of {quoted(str(replaces), 200)} cannot use the weights of {quoted(str(package), 200)}"
        raise AnswerIsNo("other-code", what, hint="the network or its kernels differ: update the firmware instead")
    data, public = sign_image(image, version, sign, encrypt)
    write_image(data, output)
    if json:
        told = {
            "file": str(output),
            "bytes": len(data),
            "version": version,
            "layout": image.layout.hex(),
            "public_key": public.hex(),
        }
        print_json({**told, "encrypted": encrypt is not None})
        return
    print(f"image: {output}, {len(data)} bytes, version {version}")
    say(f"public key for the device: {public.hex()}")


def check_slot(path: Path, key: Path, json: bool) -> int:
    if not path.is_file():
        raise UserError("no-file", f"there is no file {quoted(str(path), 200)}", hint="`intaglio slot DIR -o F.bin ...` writes one")
    image, signed = check_image(path.read_bytes(), key, quoted(str(path), 200))
    if json:
        told = {"ok": signed, "version": image.version, "encrypted": image.encrypted, "layout": image.layout.hex()}
        print_json({**told, "weight_bytes": len(image.weights)})
        return 0 if signed else 1
    print(f"version {image.version}, {len(image.weights)} bytes of weights{', encrypted' if image.encrypted else ''}")
    print("signed with this key" if signed else "NOT signed with this key")
    return 0 if signed else 1
