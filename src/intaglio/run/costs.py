"""Cycles of a basic block, estimated: a cost per kind of instruction and core, times how often the block ran.

    1b2: ldr  r0, [r4], #4       2    the first of a row of loads
    1b6: ldr  r1, [r5], #4       1    its neighbour is pipelined
    1ba: smlad r2, r0, r1, r2    1
    1be: subs r3, #1             1
    1c0: bne  1b2                1    + 2 whenever it is taken: the pipeline is filled again, with a wide instruction across words

The core alone, with zero wait states; what memories and caches of a board add is in `board_cycles`.
`docs/reference/cycle-estimate.md` says where the numbers come from and what they leave out. The number of instructions, which
is exact, needs no table: lengths are in the encoding.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from intaglio.errors import ToolError, install_hint
from intaglio.run.board_cycles import NO_WAITS, BoardCycles, Sum
from intaglio.run.emulator.counting import BasicBlock, Counts
from intaglio.targets.issue import Slot, Unit, issue_cycles, slot_of


@dataclass(frozen=True, slots=True)
class Costs:
    """Cycles per kind of instruction. What is not named costs 1."""

    load: int = 2  # the first of neighbouring loads
    next_load: int = 1
    load_use: int = 0  # added if the next instruction reads what is loaded
    store: int = 1
    late_address: int = 1  # added to a load or store if the instruction before computes its address
    refill: int = 1  # added to every branch that is taken
    refill_late: int = 1  # and where the target comes from a register or from memory, so that it is known late
    refill_wide: int = 1  # and where the target is an instruction of 32 bits that is not at a multiple of 4
    folded_it: int = 0  # an IT after an instruction of 16 bits
    multiply_add: int = 1
    multiply_long: int = 1
    divide: int = 7
    float_multiply_add: int = 3
    float_divide: int = 14
    float_pair: int = 2  # two registers of the core to or from the FPU
    vector: int = 2  # 128 bits: four beats, two a cycle
    overlap: int = 0  # less, if the vector instruction before is a load or store and this one is not, or the other way round
    pairs: bool = False  # two instructions at once, by the rules of `issue`; then only what a taken branch costs is from here
    mispredicted: int = 0  # added to a conditional branch that goes the rarer way
    factor: float = 1.0  # all of it times this


M4 = Costs()
FLAT = replace(M4, late_address=0, refill_late=0, refill_wide=0, folded_it=1)  # nothing depends on neighbours or on alignment
CORES = {
    "cortex-m0+": replace(FLAT, next_load=2, store=2),
    "cortex-m3": replace(M4, multiply_add=2, multiply_long=4),
    "cortex-m4": M4,
    "cortex-m7": replace(FLAT, refill=0, pairs=True, mispredicted=7, factor=1.08),
    "cortex-m33": replace(M4, factor=0.95),
    "cortex-m55": replace(FLAT, load=1, divide=6, float_multiply_add=1, float_divide=10, overlap=1),
    "rv32imc": replace(FLAT, next_load=2, refill=2, divide=17),
    "rv32imafc": replace(FLAT, next_load=2, refill=2, divide=17, float_multiply_add=1),
    "hazard3": replace(FLAT, load=1, load_use=1, divide=18),
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
ZERO = {"cbz", "cbnz"}
BRANCHES = {"b", "bl", *ZERO}  # direct ones: the target is in the instruction
FLAGS = {"cpsr", "apsr_nzcv", "apsr", "fpscr"}
FLOAT_DIVISIONS = ("vdiv", "vsqrt", "fdiv", "fsqrt")
MOVED, COMPUTED = "vectors moved", "vectors computed"  # names of MVE instructions, by the unit that executes them
VECTORS = (MOVED, COMPUTED)


@dataclass(frozen=True, slots=True)
class Instruction:
    """What its cost depends on. `sets`: registers that it computes, not those that it loads."""

    name: str
    operands: str = ""
    address: frozenset[str] = frozenset()  # registers that make the address of a load or store
    sets: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()  # RISC-V: but for what a store puts into memory
    target: int | None = None  # of a direct branch, less its own address
    slot: Slot | None = None  # for cores that issue pairs


START = Instruction("")
_RISCV_NAMES = ("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", *(f"a{n}" for n in range(8)),
                *(f"s{n}" for n in range(2, 12)), "t3", "t4", "t5", "t6")  # fmt: skip
_RISCV_REGISTER = re.compile(r"\b(?:zero|ra|sp|gp|tp|t[0-6]|s1[01]|s[0-9]|a[0-7])\b")
PAGE_BYTES = 1024  # of a Cortex-M in emulators: a block ends there, before and after an instruction that crosses it


@dataclass(frozen=True, slots=True)
class BlockCost:
    instructions: int
    cycles: int
    taken_cycles: int  # more, whenever the branch at its end is taken
    vectors: int = 0  # of the instructions
    conditional: bool = False  # does it end in a branch that may or may not be taken?


class Coster:
    """Adds up what ran. `read` gives the bytes of the firmware; each block is disassembled once."""

    def __init__(self, core: str, read: Callable[[int, int], bytes], *, riscv: bool, timing: BoardCycles = NO_WAITS) -> None:
        self._costs = CORES[core]
        self._read = read
        self._riscv = riscv
        self._timing = timing
        self._vectors = core == "cortex-m55"
        self._decoder = _decoder(riscv)
        self._known: dict[tuple[BasicBlock, BasicBlock | None], BlockCost] = {}
        self._decoded: dict[bytes, Instruction] = {}

    def add(self, counts: Counts, timing: BoardCycles | None = None) -> Sum:
        instructions = cycles = taken = vectors = 0
        ends = {block.address + block.size_bytes: block for block in counts.blocks}
        for block, times in counts.blocks.items():
            cost = self.block(block, ends.get(block.address) if (block.address + 2) % PAGE_BYTES < 6 else None)
            instructions += cost.instructions * times.ran
            vectors += cost.vectors * times.ran
            cycles += cost.cycles * times.ran + cost.taken_cycles * times.taken
            cycles += self._costs.mispredicted * min(times.taken, times.ran - times.taken) if cost.conditional else 0
            taken += times.taken if self._timing.waits_for_code(block.address) else 0
        whole = (timing or self._timing).sum(instructions, round(cycles * self._costs.factor), taken, counts)
        return replace(whole, vectors=vectors) if vectors else whole

    def read(self, address: int, size_bytes: int) -> bytes:
        return self._read(address, size_bytes)

    def block(self, block: BasicBlock, before: BasicBlock | None = None) -> BlockCost:
        """`before`: the first part of a block that an emulator has divided, because it goes on in another page."""
        if (block, before) not in self._known:
            self._known[block, before] = self._block(block, before)
        return self._known[block, before]

    def _block(self, block: BasicBlock, first: BasicBlock | None) -> BlockCost:
        code = self._read(block.address, block.size_bytes)
        cycles = count = offset = vectors = 0
        slots: list[Slot] = []
        before, narrow, last = (START, False, 0) if first is None else (*self._last(first), 0)
        while offset < len(code):
            word = code[offset : offset + _length(code, offset, self._riscv)]
            now = self._instruction(word)
            cycles += self._costs.folded_it if now.name == "it" and narrow else self._one(now, before)
            cycles += self._costs.load_use if now.reads & before.loads else 0
            before, narrow, last = now, len(word) == 2, offset
            count += 1
            vectors += now.name in VECTORS
            offset += len(word)
            slots += [now.slot] if now.slot is not None else []
        refill = self._refill(before, block.address + last)
        if self._costs.pairs:
            once = issue_cycles(slots)
            again = issue_cycles(slots, again=True) if before.target == -last else once  # a loop that waits for its own results
            cycles, refill = once + count - len(slots), refill + again - once
        conditional = before.name in ZERO or (before.name == "b" and before.slot is not None and before.slot.reads_flags)
        return BlockCost(count, cycles, refill, vectors, conditional)

    def _last(self, block: BasicBlock) -> tuple[Instruction, bool]:
        """The last instruction of a block, and whether it has 16 bits."""
        code = self._read(block.address, block.size_bytes)
        offset = 0
        while (length := _length(code, offset, self._riscv)) + offset < len(code):
            offset += length
        return self._instruction(code[offset:]), length == 2

    def _instruction(self, word: bytes) -> Instruction:
        if word not in self._decoded:
            found = next(self._decoder.disasm(word, 0, 1), None)
            vector = _vector(word, found is not None) if self._vectors else ""
            if vector or found is None:
                self._decoded[word] = Instruction(vector or _unknown(word), reads=_fields(word) if self._riscv else frozenset())
            else:
                self._decoded[word] = _instruction(found, self._riscv)
                if self._costs.pairs:
                    self._decoded[word] = replace(self._decoded[word], slot=_slot(found, self._decoded[word].name))
        return self._decoded[word]

    def _refill(self, branch: Instruction, at: int) -> int:
        """1 to 3 on an M4, by Arm's manual: "depending on the alignment and width of the target instruction, and whether the
        processor manages to speculate the address early"."""
        c = self._costs
        if branch.target is None:
            return c.refill + c.refill_late
        target = at + branch.target
        wide = c.refill_wide and target % 4 and _length(self._read(target, 2), 0, self._riscv) == 4
        return c.refill + (c.refill_wide if wide else 0)

    def _one(self, now: Instruction, before: Instruction) -> int:
        """A load is pipelined after a load, but not after a store, and not if its address is what was loaded."""
        c, name = self._costs, now.name
        if name in VECTORS:
            return c.vector - (c.overlap if before.name in VECTORS and before.name != name else 0)
        late = c.late_address if now.address & before.sets else 0
        if name in LOADS:
            pipelined = before.name in LOADS and not now.address & before.loads
            return (c.next_load if pipelined else c.load) + late
        if name in STORES:
            return c.store + (c.late_address if now.address & before.loads else late)
        if name in PAIRS:
            return 3 + late
        if name.startswith(LISTS):
            return 1 + _registers(now.operands) + late
        if name == "vmov" and now.operands.count(",") > 1:
            return c.float_pair
        return self._arithmetic(name)

    def _arithmetic(self, name: str) -> int:
        c = self._costs
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


def _fields(word: bytes) -> frozenset[str]:
    """The registers that an instruction of RISC-V reads which capstone does not know, such as those of Zbb."""
    number = int.from_bytes(word, "little")
    return frozenset(_RISCV_NAMES[number >> at & 31] for at in (15, 20)) if len(word) == 4 else frozenset()


def _unknown(word: bytes) -> str:
    """Low-overhead loops of the Armv8.1-M (`LE`, `WLS`, `DLS`), which capstone does not have: like a branch. "" for others."""
    return "loop" if len(word) == 4 and word[1] == 0xF0 and word[3] >> 4 == 0xC and word[2] & 1 else ""


def _vector(word: bytes, known: bool) -> str:
    """Of MVE, whose encodings capstone takes for others (coprocessors, Neon) or does not have: a load or store, or arithmetic."""
    if len(word) != 4:
        return ""
    top, last = word[1], word[3]
    if top in (0xEC, 0xED, 0xFC, 0xFD):
        return MOVED if last & 0x0E == 0x0E else ""
    predicates = top == 0xFE and last & 0x0F == 0x0F and word[2] == 0x4D  # VPST
    return COMPUTED if top in (0xEF, 0xFF) or (top in (0xEE, 0xFE) and not known and not predicates) else ""


def _instruction(found: Any, riscv: bool) -> Instruction:
    """Names are without condition and width: `ldrne.w` is `ldr`. RISC-V has neither."""
    if riscv:
        return _riscv_instruction(str(found.mnemonic), found.op_str)
    from capstone import arm

    name = str(found.insn_name())
    if name in BRANCHES and found.operands[-1].type == arm.ARM_OP_IMM:
        return Instruction(name, target=found.operands[-1].imm)
    written = frozenset(found.reg_name(number) for number in found.regs_access()[1])
    parts = [number for o in found.operands if o.type == arm.ARM_OP_MEM for number in (o.mem.base, o.mem.index) if number]
    if name.startswith(LISTS):  # the base is the first operand, or the stack pointer
        stack = name.endswith(("push", "pop"))
        return Instruction(name, found.op_str, frozenset({"sp" if stack else found.op_str.split(",")[0].rstrip("!")}))
    address = frozenset(found.reg_name(number) for number in parts)
    if name in LOADS or name in PAIRS:
        return Instruction(name, found.op_str, address, loads=written - address)
    if name in STORES:
        return Instruction(name, found.op_str, address)
    return Instruction(name, found.op_str, address, sets=written)


def _riscv_instruction(name: str, operands: str) -> Instruction:
    registers = _RISCV_REGISTER.findall(operands)
    if name in LOADS or name in STORES:
        return Instruction(name, operands, loads=frozenset(registers[:1] if name in LOADS else ()), reads=frozenset(registers[1:]))
    computes = not name.startswith(("b", "c.b", "c.j", "c.add", "c.sub", "c.and", "c.or", "c.xor", "c.s"))
    return Instruction(name, operands, reads=frozenset(registers[1:] if computes else registers))


def _slot(found: Any, name: str) -> Slot:
    """`name`: without condition and width."""
    from capstone import arm

    read, written = (frozenset(found.reg_name(n) for n in numbers) for numbers in found.regs_access())
    operands = [o for o in found.operands if o.type == arm.ARM_OP_REG]
    registers = [found.reg_name(o.reg) for o in operands]
    memory = [o.mem for o in found.operands if o.type == arm.ARM_OP_MEM]
    address = frozenset(found.reg_name(n) for mem in memory for n in (mem.base, mem.index) if n)
    shifted = frozenset(found.reg_name(o.reg) for o in operands if o.shift.type)
    conditional = found.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID)
    slot = slot_of(name, found.op_str, registers, read - FLAGS, written - FLAGS, address, shifted)
    if slot.unit is Unit.LOAD and len(memory) == 1 and not memory[0].index:
        slot = replace(slot, word=(found.reg_name(memory[0].base) if memory[0].base else "pc", memory[0].disp))
    sets, reads = bool(found.update_flags) or bool(written & FLAGS), conditional or bool(read & FLAGS)
    return replace(slot, sets_flags=sets, reads_flags=reads)


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
    found = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8)
    found.detail = True
    return found
