"""An IR file and its weights: `model.ig` and `model.safetensors`."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from pathlib import Path

from intaglio.errors import ModelError, ToolError, UserError, quoted
from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.graph import FIRST_STAGE, Graph
from intaglio.ir.placement import NOWHERE, Placement
from intaglio.ir.text import Network, parse_network, print_graph
from intaglio.ir.verify import verify_edited
from intaglio.ir.weights import INLINE_ELEMENTS, load_weights, save_weights

_FIRST_WORD = b"intaglio-ir"


def check_ir_place(path: Path, *, weights: bool) -> None:
    """An IR file replaces another one, and nothing else; `weights`: its side file will be written too."""
    hint = "move it, or use another file"
    if path.is_file():
        with open(path, "rb") as file:
            is_ir = file.read(len(_FIRST_WORD)) == _FIRST_WORD
        if not is_ir:
            raise UserError("output-exists", f"{quoted(str(path), 200)} exists and is not an IR file", hint=hint)
        return
    beside = path.with_suffix(".safetensors")
    if weights and beside.exists():
        what = f"{quoted(str(beside), 200)} exists and belongs to no IR file; the weights of {quoted(path.name)} would overwrite it"
        raise UserError("output-exists", what, hint=hint)


def write_ir(
    graph: Graph, path: Path, choices: Choices = OPEN, placement: Placement = NOWHERE, stage: str = FIRST_STAGE
) -> None:
    """Both files or none: each is written beside its place first."""
    from safetensors import SafetensorError

    weights = path.with_suffix(".safetensors")
    large = any(v.data is not None and v.data.size > INLINE_ELEMENTS for v in graph.constants())
    own = secrets.token_hex(4)  # others may write the same file at this moment
    parts = [(path.with_name(f".{path.name}.{own}.part"), path)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        check_ir_place(path, weights=large)
        parts[0][0].write_text(print_graph(graph, choices, placement, stage), encoding="utf-8")
        if large:
            parts.append((path.with_name(f".{weights.name}.{own}.part"), weights))
            parts[1][0].touch()
            mode = parts[1][0].stat().st_mode
            save_weights(graph, parts[1][0])
            parts[1][0].chmod(mode)  # as the umask says; safetensors makes it private
        for part, target in reversed(parts):
            os.replace(part, target)
    except (OSError, SafetensorError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or "os error 28" in reason
        slug, hint = ("disk-full", "free some space, or use another `-o`") if full else ("cannot-write", "use another `-o`")
        raise ToolError(slug, f"cannot write {quoted(str(path), 200)}: {reason}", hint=hint) from None
    finally:
        for part, _ in parts:
            with contextlib.suppress(OSError):
                part.unlink()


def read_ir(path: Path) -> Graph:
    """The graph of an IR file alone."""
    return read_network(path).graph


def read_network(path: Path) -> Network:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ModelError("not-ir", f"{quoted(path.name)} is not text", hint="IR files start with `intaglio-ir 1`") from None
    except OSError as error:
        hint = "check the path and its permissions"
        raise ModelError("cannot-read", f"cannot read {quoted(str(path), 200)}: {error.strerror}", hint=hint) from None
    weights = path.with_suffix(".safetensors")
    arrays = load_weights(weights) if weights.exists() else {}
    network = parse_network(text, arrays, file=path.name)
    verify_edited(network.graph)
    return network
