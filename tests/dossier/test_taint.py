"""What machine instructions depend on, tried: a register that one does not read may hold anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio as api
from intaglio.run.emulator.device import EmulatorOptions
from intaglio.run.emulator.measure import hooked
from intaglio.run.flow import decoder, flow_of
from intaglio.run.loaded import LoadedPackage
from intaglio.run.taint import reads_of
from support.commands import DIGITS
from support.small_networks import keywords

pytest.importorskip("capstone")
unicorn = pytest.importorskip("unicorn")

CODE = 0x10000
CORE_REGISTERS = [f"r{n}" for n in (*range(9), 9, 10, 11, 12)] + ["lr"]
FLOAT_REGISTERS = [f"s{n}" for n in range(32)]
ALIASES = {"sb": "r9", "sl": "r10", "fp": "r11", "ip": "r12"}
FLAGS = 0xF80F0000  # N, Z, C, V, Q, and those of `sel`
ELSEWHERE = (
    "ldr",
    "str",
    "ldm",
    "stm",
    "push",
    "pop",
    "vldr",
    "vstr",
    "vldm",
    "vstm",
    "vpush",
    "vpop",
    "b",
    "cb",
    "it",
    "tb",
    "udf",
    "svc",
)


class Processor:
    """One instruction at a time."""

    def __init__(self) -> None:
        from unicorn import arm_const

        self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        self.engine.ctl_set_cpu_model(arm_const.UC_CPU_ARM_CORTEX_M4)
        self.engine.mem_map(CODE, 0x1000)
        self.engine.mem_map(0xE0000000, 0x100000)
        self.engine.mem_write(0xE000ED88, (0xF << 20).to_bytes(4, "little"))
        self.names = {name: getattr(arm_const, f"UC_ARM_REG_{name.upper()}") for name in (*CORE_REGISTERS, *FLOAT_REGISTERS)}
        self.flags = arm_const.UC_ARM_REG_APSR

    def run(self, code: bytes, registers: dict[str, int], flags: int) -> dict[str, int]:
        self.engine.mem_write(CODE, code)
        self.engine.ctl_remove_cache(CODE, CODE + 16)
        for name, number in registers.items():
            self.engine.reg_write(self.names[name], number)
        self.engine.reg_write(self.flags, flags)
        self.engine.emu_start(CODE | 1, CODE + len(code), count=1)
        found = {name: int(self.engine.reg_read(number)) for name, number in self.names.items()}
        return found | {"flags": int(self.engine.reg_read(self.flags)) & FLAGS}


def instructions(package: LoadedPackage) -> dict[bytes, Any]:
    """One of each kind: a name, and how many operands of which type."""
    found: dict[Any, Any] = {}
    with hooked(package, None, EmulatorOptions("unicorn")) as device:
        for function in device.core.image.functions:
            for block in flow_of(function, device.core.image, device.core.read).blocks.values():
                for one in decoder().disasm(device.core.read(block.address, block.size), block.address):
                    kinds = tuple((o.type, o.shift.type, bool(o.shift.value)) for o in one.operands)
                    if not str(one.insn_name()).startswith(ELSEWHERE) and "sp" not in one.op_str and "pc" not in one.op_str:
                        found.setdefault((str(one.insn_name()), kinds, one.size, bool(one.update_flags)), one)
    return {bytes(one.bytes): one for one in found.values()}


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m0+"])
def test_what_is_not_read_may_be_anything(core: str, tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(keywords())
    models = [tmp_path / "net.tflite", *([DIGITS] if core == "cortex-m4f" else [])]
    kinds: dict[bytes, Any] = {}
    for n, model in enumerate(models):
        kinds |= instructions(LoadedPackage(api.compile(model, output=tmp_path / f"p{n}", target=core).folder))
    assert len(kinds) > 30
    processor, random = Processor(), np.random.default_rng(1)
    for code, one in kinds.items():
        reads = {ALIASES.get(name, name) for name in reads_of(one, str(one.insn_name()))}
        for _ in range(4):
            start = {name: int(random.integers(1 << 32)) for name in CORE_REGISTERS}
            start |= {name: int(random.standard_normal(1).astype(np.float32).view(np.uint32)[0]) for name in FLOAT_REGISTERS}
            flags = int(random.integers(32)) << 27
            other = {name: number if name in reads else number ^ int(random.integers(1, 1 << 20)) for name, number in start.items()}
            other_flags = flags if "flags" in reads else int(random.integers(32)) << 27
            before = {**start, "flags": flags & FLAGS}
            changed = {**other, "flags": other_flags & FLAGS}
            first, second = processor.run(code, start, flags), processor.run(code, other, other_flags)
            for name in first:
                kept = first[name] == before[name] and second[name] == changed[name]
                assert kept or first[name] == second[name] or name == "flags", (one.mnemonic, one.op_str, name, sorted(reads))


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("01f30f00", {"r1"}),  # ssat r0, #16, r1
        ("c7ea0040", {"r7", "r0"}),  # pkhbt r0, r7, r0, lsl #16
        ("c0fb0231", {"r0", "r2", "r3", "r1"}),  # smlal r3, r1, r0, r2
        ("80fb0231", {"r0", "r2"}),  # smull r3, r1, r0, r2
        ("c0f20103", {"r3"}),  # movt r3, #1
        ("43eb0203", {"r3", "r2", "flags"}),  # adc.w r3, r3, r2
        ("b5eec00a", {"s0"}),  # vcmpe.f32 s0, #0
        ("f1ee10fa", {"flags"}),  # vmrs apsr_nzcv, fpscr
        ("01680000", {"r0"}),  # ldr r1, [r0]
    ],
)
def test_what_instructions_read(code: str, reads: set[str]) -> None:
    """capstone leaves out registers that are saturated, shifted, added to, or compared."""
    found = next(decoder().disasm(bytes.fromhex(code), 0, 1))
    assert {*reads_of(found, str(found.insn_name()))} == reads
