"""From a node of the model to addresses in the binary, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from intaglio.ir.text import Network, print_graph
from intaglio.package.manifest import Manifest

_DEFINITION = re.compile(r"^(?!return\b)(?:\w+ )+\*?(\w+)\(", re.M)


@dataclass(frozen=True, slots=True)
class Place:
    """A function of the generated C, and where it is in the binary; 0: it was inlined, or there is no binary."""

    function: str
    file: str
    first_line: int
    last_line: int
    address: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Traced:
    layer: int
    name: str
    op: str
    nodes: str  # of the model
    ir: str
    passes: tuple[str, ...]
    kernel: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Trace:
    layers: tuple[Traced, ...]
    functions: tuple[tuple[str, tuple[int, ...]], ...]  # back: by function, the layers that call it
    left_out: tuple[str, ...]  # nodes of the model that no layer names: folded or joined with others
    nodes: int  # of the model; 0: its nodes have no names


def trace(folder: Path, manifest: Manifest, network: Network | None) -> Trace:
    places = _places(folder, manifest)
    lines = _ir_lines(network)
    layers = tuple(
        Traced(
            layer.index, layer.name, layer.op, layer.source, lines.get(layer.outputs[0].field if layer.outputs else "", ""),
            tuple(p.name for p in manifest.passes if layer.name in p.layers), layer.kernel, places.get(layer.function),
        )
        for layer in manifest.layers
    )  # fmt: skip
    back: dict[str, list[int]] = {}
    for layer in manifest.layers:
        back.setdefault(layer.function, []).append(layer.index)
    nodes = _model_nodes(folder, manifest)
    told = " ".join(layer.source for layer in manifest.layers)
    words = set(re.split(r"[\s,+]+", told))
    left = tuple(name for name in nodes if name not in words and name not in told)
    return Trace(layers, tuple((name, tuple(numbers)) for name, numbers in sorted(back.items()) if name), left, len(nodes))


def _ir_lines(network: Network | None) -> dict[str, str]:
    """By the value that a line defines."""
    if network is None:
        return {}
    text = print_graph(network.graph, network.choices, network.placement, network.stage)
    return {re.split(r"[ :]", line.strip(), maxsplit=1)[0]: line.strip() for line in text.splitlines() if " = " in line}


def _model_nodes(folder: Path, manifest: Manifest) -> list[str]:
    source = manifest.model.source
    if source is None or not source.endswith(".onnx"):
        return []
    import onnx

    model = onnx.load(folder / source, load_external_data=False)
    return [node.name for node in model.graph.node if node.name]


def _places(folder: Path, manifest: Manifest) -> dict[str, Place]:
    found: dict[str, Place] = {}
    addresses = _symbols(folder, manifest)
    for path in sorted((folder / "src").rglob("*.c")):
        if "weights" in path.name:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in _DEFINITION.finditer(text):
            end = text.find("\n}\n", match.start())
            body = text.find("\n{", match.end())
            if end < 0 or body < 0 or ";" in text[match.end() : body]:
                continue
            first, last = text.count("\n", 0, match.start()) + 1, text.count("\n", 0, end) + 2
            address, size = addresses.get(match[1], (0, 0))
            found[match[1]] = Place(match[1], path.relative_to(folder).as_posix(), first, last, address, size)
    return found


def binary_of(folder: Path, manifest: Manifest) -> Path | None:
    places = [manifest.firmware.elf] if manifest.firmware is not None else []
    places.append(f"lib/lib{manifest.name}.so")
    return next((folder / place for place in places if (folder / place).is_file()), None)


def _symbols(folder: Path, manifest: Manifest) -> dict[str, tuple[int, int]]:
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    binary = binary_of(folder, manifest)
    if binary is None:
        return {}
    try:
        with open(binary, "rb") as file:
            elf = ELFFile(file)
            thumb = elf["e_machine"] == "EM_ARM"
            tables = [s for s in elf.iter_sections() if isinstance(s, SymbolTableSection)]
            functions = [s for t in tables for s in t.iter_symbols() if s["st_info"]["type"] == "STT_FUNC" and s["st_size"]]
            return {s.name: (s["st_value"] & (-2 if thumb else -1), s["st_size"]) for s in functions}
    except (ELFError, OSError):
        return {}
