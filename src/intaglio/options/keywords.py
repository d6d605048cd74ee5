"""Options as keywords of `intaglio.compile`, for editors and type checkers. A test compares them with the fields of `Request`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from intaglio.errors import UserError, quoted
from intaglio.options.request import OPTIONS

if TYPE_CHECKING:
    from intaglio.ir.graph import Array


class Keywords(TypedDict, total=False):
    target: str | None
    board: str | None
    ram: int | str | None
    flash: int | str | None
    memory: str | Path | None
    arena: str
    code: str
    optimize: str
    exact: bool
    io: str
    weights_section: str | None
    weights_address: int | str | None
    device: str | Sequence[str] | None
    precision: str | None
    limit_kernel_time: float | None
    threads: int
    cores: int
    variants: Sequence[str] | str
    tuning: str | Path | None
    dims: Mapping[str, int | tuple[int, int] | tuple[int, int, int] | str] | None
    shapes: Mapping[str, tuple[int | tuple[int, int] | tuple[int, int, int] | str, ...]] | None
    max: Mapping[str, int | tuple[int, int] | str] | None
    lengths: Mapping[str, int] | None
    random: str
    states: Mapping[str, str] | None
    signature: str | None
    name: str | None
    feed_rows: bool
    stream: int | None
    accelerators: Sequence[str]
    accelerator_only: Sequence[str] | AbstractSet[str]
    export_plan: str | Path | None
    import_plan: str | Path | None
    disabled: Sequence[str] | AbstractSet[str]
    dump_ir: str | Path | None
    verify: bool
    archive: bool
    archive_format: str
    force: bool
    template: str | Path | None
    cc: str | None
    cflags: Sequence[str]
    no_source: bool
    no_ir: bool
    sign: str | Path | None
    safety: Sequence[str]
    style: str
    library_only: bool
    quantize: str | None
    calibrate: str | Path | Mapping[str, Array] | None
    labels: str | Path | Sequence[int] | Array | None
    ranges: str
    max_error: float | None
    keep_float: Sequence[str]
    keep_int16: Sequence[str]
    keep_int8: Sequence[str]
    equalize: bool
    correct_bias: bool
    integer_io: bool
    sensitivity: bool
    weights: str


NEAR = 0.75  # `calibration` is near `calibrate`, `explain` is not near `export_plan`


def check_keywords(given: Mapping[str, object]) -> None:
    """A misspelt keyword must not be ignored silently."""
    known = ["model", "example_inputs", "output", "progress", *(o.keyword for o in OPTIONS if o.keyword)]
    for word in given:
        if word not in known:
            raise UserError("bad-option", f"`intaglio.compile` has no option {quoted(word)}", hint=_near(word, known))


def _near(word: str, known: list[str]) -> str:
    if elsewhere := [o.word for o in OPTIONS if o.name == word and not o.keyword]:
        return f"`{elsewhere[0]}` is an option of the command line alone"
    near = get_close_matches(word, known, 1, NEAR)
    return f"did you mean `{near[0]}`?" if near else "options: " + ", ".join(f"`{name}`" for name in known)
