"""Cycles of a basic block, estimated: a cost per kind of instruction and core, times how often the block ran.

    1b2: ldr  r0, [r4], #4       2    the first of a row of loads
    1b6: ldr  r1, [r5], #4       1    its neighbour is pipelined
    1ba: smlad r2, r0, r1, r2    1
    1be: subs r3, #1             1
    1c0: bne  1b2                1    + 2 whenever it is taken: the pipeline is filled again

Zero wait states, no caches, no interrupts: `docs/reference/cycle-estimate.md` says where the numbers come from and what
they leave out. The number of instructions, which is exact, needs no table: lengths are in the encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from intaglio.errors import ToolError, install_hint
from intaglio.run.emulator.counting import BasicBlock, Counts


@dataclass(frozen=True, slots=True)
class Costs:
    """Cycles per kind of instruction. What is not named costs 1."""

    load: int = 2  # the first of neighbouring loads
    next_load: int = 1
    store: int = 1
    refill: int = 2  # added to every branch that is taken
    multiply_add: int = 1
    multiply_long: int = 1
    divide: int = 7
    float_multiply_add: int = 3
    float_divide: int = 14
    vector: int = 2  # what capstone does not know on a core with vectors: 128 bits, two beats at a time
    dual_issue: float = 1.0  # all of it times this


M4 = Costs()
CORES = {
    "cortex-m0+": replace(M4, next_load=2, store=2, refill=1),
    "cortex-m3": replace(M4, multiply_add=2, multiply_long=4),
    "cortex-m4": M4,
    "cortex-m7": replace(M4, dual_issue=0.6),
    "cortex-m33": replace(M4, dual_issue=0.9),
    "cortex-m55": replace(M4, load=1, refill=1, divide=6, float_multiply_add=1, float_divide=10),
    "rv32imc": replace(M4, next_load=2, multiply_long=1, divide=17),
    "rv32imafc": replace(M4, next_load=2, divide=17, float_multiply_add=1),
}

LOADS = {
    "ldr", "ldrb", "ldrh", "ldrsb", "ldrsh", "ldrex", "vldr",
    "lw", "lh", "lb", "lhu", "lbu", "flw", "c.lw", "c.lwsp", "c.flw", "c.flwsp",
}  # fmt: skip
STORES = {"str", "strb", "strh", "strex", "vstr", "sw", "sh", "sb", "fsw", "c.sw", "c.swsp", "c.fsw", "c.fswsp"}
PAIRS = {"ldrd", "strd"}
LISTS = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
ADDED = {"mla", "mls", "smlabb", "smlabt", "smlatb", "smlatt", "smlad", "smladx", "smlsd", "smlsdx", "smmla", "smmlar"}
LONG = {"umull", "smull", "umlal", "smlal", "umaal", "smlald", "smlaldx", "mulh", "mulhu", "mulhsu"}
DIVISIONS = {"sdiv", "udiv", "div", "divu", "rem", "remu"}
FUSED = ("vmla", "vmls", "vnmla", "vnmls", "vfma", "vfms", "vfnma", "vfnms", "fmadd", "fmsub", "fnmadd", "fnmsub")
FLOAT_DIVISIONS = ("vdiv", "vsqrt", "fdiv", "fsqrt")


@dataclass(frozen=True, slots=True)
class BlockCost:
    instructions: int
    cycles: int
    taken_cycles: int  # more, whenever the branch at its end is taken


@dataclass(frozen=True, slots=True)
class Sum:
    instructions: int
    cycles: int


class Coster:
    """Adds up what ran. `read` gives the bytes of the firmware; each block is disassembled once."""

    def __init__(self, core: str, read: Callable[[int, int], bytes], *, riscv: bool, wait_states: int = 0) -> None:
        self._costs = CORES[core]
        self._read = read
        self._riscv = riscv
        self._wait_states = wait_states
        self._vectors = core == "cortex-m55"
        self._decoder = _decoder(riscv)
        self._known: dict[BasicBlock, BlockCost] = {}
        self._decoded: dict[bytes, tuple[str, str]] = {}  # name and operands, of which only the number matters

    def add(self, counts: Counts) -> Sum:
        """Wait states: each taken branch and each load from flash waits for the flash; code in a row is fetched ahead."""
        instructions = cycles = waits = 0
        for block, times in counts.blocks.items():
            if block not in self._known:
                self._known[block] = self._block(block)
            cost = self._known[block]
            instructions += cost.instructions * times.ran
            cycles += cost.cycles * times.ran + cost.taken_cycles * times.taken
            waits += times.taken
        waits = (waits + counts.flash_reads) * self._wait_states
        return Sum(instructions, round(cycles * self._costs.dual_issue) + waits + counts.stalls)

    def _block(self, block: BasicBlock) -> BlockCost:
        code = self._read(block.address, block.size_bytes)
        cycles = count = offset = 0
        after_load = False
        while offset < len(code):
            word = code[offset : offset + _length(code, offset, self._riscv)]
            if word not in self._decoded:
                found = next(self._decoder.disasm(word, block.address + offset, 1), None)
                known = (_base_name(found, self._riscv), found.op_str) if found is not None else (_unknown(word), "")
                self._decoded[word] = known
            name, operands = self._decoded[word]
            cycles += self._one(name, operands, after_load)
            after_load = name in LOADS or name in STORES
            count += 1
            offset += len(word)
        return BlockCost(count, cycles, self._costs.refill)

    def _one(self, name: str, operands: str, after_load: bool) -> int:
        c = self._costs
        if not name:
            return c.vector if self._vectors else 1
        if name in LOADS:
            return c.next_load if after_load else c.load
        if name in STORES:
            return c.store
        if name in PAIRS:
            return 3
        if name.startswith(LISTS):
            return 1 + _registers(operands)
        if name in ADDED:
            return c.multiply_add
        if name in LONG:
            return c.multiply_long
        if name in DIVISIONS:
            return c.divide
        if name.startswith(FUSED):
            return c.float_multiply_add
        if name.startswith(FLOAT_DIVISIONS):
            return c.float_divide
        return 1


def _length(code: bytes, offset: int, riscv: bool) -> int:
    """Two or four bytes; both encodings say so in their first half word."""
    if riscv:
        return 4 if code[offset] & 3 == 3 else 2
    return 4 if code[offset + 1] >> 3 in (0b11101, 0b11110, 0b11111) else 2


def _unknown(word: bytes) -> str:
    """Low-overhead loops of the Armv8.1-M (`LE`, `WLS`, `DLS`), which capstone does not have: like a branch. "" for others."""
    return "loop" if len(word) == 4 and word[1] == 0xF0 and word[3] >> 4 == 0xC and word[2] & 1 else ""


def _base_name(instruction: Any, riscv: bool) -> str:
    """Without condition and width: `ldrne.w` is `ldr`. RISC-V has neither."""
    return str(instruction.mnemonic if riscv else instruction.insn_name())


def _registers(operands: str) -> int:
    """`{r4, r5, pc}` 3, `{d8, d9}` 4: words that a list moves."""
    listed = operands[operands.find("{") + 1 : operands.rfind("}")].split(",")
    return sum(2 if name.strip().startswith("d") else 1 for name in listed)


def _decoder(riscv: bool) -> Any:
    try:
        import capstone
    except (ImportError, OSError) as error:
        hint = f"{install_hint('emulator')} installs it"
        raise ToolError("no-emulator", f"capstone is needed to estimate cycles: {error}", hint=hint) from None
    if riscv:
        return capstone.Cs(capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV32 | capstone.CS_MODE_RISCVC)
    return capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8)
