"""What a device needs, written into the package's README once the program is linked.

The template says where, by a line `<!-- figures -->`; one without it keeps its README as it is.
"""

from __future__ import annotations

from pathlib import Path

from intaglio.package.manifest import FirmwareInfo, Manifest

MARK = "<!-- figures -->"


def write_figures(folder: Path, manifest: Manifest, info: FirmwareInfo) -> None:
    path = folder / "README.md"
    if path.is_file() and MARK in (text := path.read_text(encoding="utf-8")):
        path.write_text(text.replace(MARK, figures(manifest, info)), encoding="utf-8")


def figures(manifest: Manifest, info: FirmwareInfo) -> str:
    stack = "unbounded (a call through a pointer, or recursion)" if info.stack_bytes is None else f"{info.stack_bytes:,}"
    apart = f" (in `{info.weights_file}`)" if info.weights_file else ""
    rows = [
        ("**flash**", f"**{info.flash_bytes:,}**"),
        ("code", f"{info.code_bytes:,}"),
        ("weights", f"{info.weight_bytes:,}{apart}"),
        ("first values of variables", f"{info.data_bytes:,}"),
        ("**RAM**", f"**{info.ram_bytes:,}**"),
        ("arena", f"{manifest.memory.arena_bytes:,}"),
        ("inputs and outputs", f"{info.io_bytes:,}"),
        ("variables", f"{info.static_bytes:,}"),
        ("weights, copied at start-up", f"{manifest.memory.weights_ram:,}"),
        ("code, copied at start-up", f"{info.code_ram_bytes:,}"),
        ("stack, at most", stack),
        ("self-test, beside that", f"{info.selftest_bytes:,}"),
    ]
    table = ["| bytes | |", "| --- | ---: |", *(f"| {what} | {size} |" for what, size in rows if size != "0")]
    return "\n".join(table)
