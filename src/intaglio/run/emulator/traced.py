"""Which memory each instruction of a run read and wrote."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Traced:
    """By address of an instruction: `flash`, `ram`, or words of the stack by their distance from the stack pointer. `frames`: by
    address of a function, the bytes of the stack that it has itself. `writers`: by address of the function of a layer, and of an
    instruction that reads RAM or the stack in it, the instructions that wrote there last, and None where the layer wrote nothing.
    """

    reads: dict[int, set[str | int]] = field(default_factory=dict)
    writes: dict[int, set[str | int]] = field(default_factory=dict)
    frames: dict[int, int] = field(default_factory=dict)
    writers: dict[tuple[int, int], set[int | None]] = field(default_factory=dict)
