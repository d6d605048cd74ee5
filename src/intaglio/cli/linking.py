"""`intaglio link A B -o DIR`: several networks, one firmware."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from intaglio.cli.terminal import note, print_json
from intaglio.run.linking import link_packages


def link_words(packages: list[Path], output: Path, cc: str | None, force: bool, json: bool) -> None:
    linked = link_packages(packages, output, cc=cc, force=force)
    if json:
        print_json({"firmware": str(output), **asdict(linked)})
        return
    stack = "unbounded" if linked.stack_bytes is None else f"{linked.stack_bytes:,}"
    note(
        f"linked {', '.join(f'`{n}`' for n in linked.models)}: flash {linked.flash_bytes:,} bytes (code {linked.code_bytes:,}), "
        f"RAM {linked.ram_bytes:,} bytes (arena {linked.arena_bytes:,} instead of {linked.separate_arena_bytes:,}, stack {stack})"
    )
    note(f"firmware: {output / 'bin' / linked.name}.elf")
    for place in linked.weights:
        note(f"weights: {output / place.file}, {place.bytes:,} bytes, to be written to {place.address:#x}")
