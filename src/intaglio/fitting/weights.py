"""Where constants lie: one block of bytes for each memory, each constant aligned in it.

main flash  ALIGNMENT = 64 on a host, words on a core
    conv1_weight  at 0
    conv1_bias    at 1,728
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.fitting.fast_weights import IN_RAM
from intaglio.kernels.program import Constant, Program
from intaglio.memory.weights_read import file_offsets
from intaglio.targets.deployment import WEIGHTS_HEADER_BYTES, Deployment

ALIGNMENT = 64
AS_TEXT_BELOW_BYTES = 4096
FIRMWARE_ALIGNMENT = 4  # words; what is wider keeps its own
FIRMWARE_AS_TEXT_BELOW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Weights:
    """Where each constant lies in its block, and where the block of the main flash lies."""

    offsets: dict[str, int]
    size_bytes: int
    alignment: int = ALIGNMENT
    as_text: bool = True
    section: str = ""
    address: int | None = None
    apart: tuple[tuple[str, Weights], ...] = ()  # blocks in other memories
    ram: bool = False  # its first values are in flash, and copied at start-up
    read: bool = False  # a file that nothing maps; offsets are those in the file

    @property
    def total_bytes(self) -> int:
        return self.size_bytes + sum(block.size_bytes for _, block in self.apart)

    @property
    def ram_bytes(self) -> int:
        """Of them in RAM."""
        return sum(block.size_bytes for _, block in self.apart if block.ram)

    @property
    def in_flashes(self) -> tuple[tuple[str, int], ...]:
        """Bytes in other flashes than that of the code."""
        return tuple((memory, block.size_bytes) for memory, block in self.apart if not block.ram)

    @property
    def binary(self) -> bool:
        """Written to flash, or to another memory, apart from the code."""
        return (self.read or self.address is not None) and self.size_bytes > 0


def plan_weights(constants: list[Constant], deployment: Deployment) -> Weights:
    own = [c for c in constants if not c.memory]
    block = _plan(own, deployment, deployment.weights_section)
    memories = dict.fromkeys(c.memory for c in constants if c.memory)
    sections = {m: "" if m == IN_RAM else f".rodata.intaglio_{m}" for m in memories}
    apart = {m: _plan([c for c in constants if c.memory == m], deployment, section) for m, section in sections.items()}
    apart = {m: replace(other, ram=m == IN_RAM) for m, other in apart.items()}
    offsets = {**block.offsets, **{name: at for other in apart.values() for name, at in other.offsets.items()}}
    return replace(block, offsets=offsets, address=deployment.weights_address, apart=tuple(apart.items()))


def plan_file(program: Program) -> Weights:
    """Weights that are read: the file has its header, then the constants in the order in which they are needed."""
    offsets, end = file_offsets(program, WEIGHTS_HEADER_BYTES)
    return Weights(offsets, end - WEIGHTS_HEADER_BYTES if program.constants else 0, program.alignment, False, read=True)


def _plan(constants: list[Constant], deployment: Deployment, section: str) -> Weights:
    bare = deployment.board is not None
    alignment, limit = (FIRMWARE_ALIGNMENT, FIRMWARE_AS_TEXT_BELOW_BYTES) if bare else (ALIGNMENT, AS_TEXT_BELOW_BYTES)
    offsets: dict[str, int] = {}
    end = 0
    for constant in constants:
        step = max(alignment, constant.data.itemsize)
        start = -(-end // step) * step
        offsets[constant.name] = start
        end = start + max(constant.data.nbytes, 1)  # an empty tensor too has an address
    block = max([alignment, *(constant.data.itemsize for constant in constants)])
    return Weights(offsets, end, block, end < limit, section)
