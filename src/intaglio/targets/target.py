"""A target as a value, read from a TOML file; `host` is found by looking at this machine.

name = "x86-64-v3"
arch = "x86_64"
isa = "avx2"                      # instruction records used by the kernels
flags = ["-march=x86-64-v3"]      # for the C compiler
needs = ["avx2", "fma", ...]      # what /proc/cpuinfo lists on a machine that can run it
interface = "posix"               # network template
registers = 16                    # vector registers (of floats, where there are no vectors)
l1_bytes, l2_bytes, gflops, gbytes_per_s   # for tile choice and the roofline
piece_cycles = 50.0               # of a piece of a row written to memory behind L2, divided by its lines: for tile choice

Cores without an operating system say more:

triple = "thumbv7em-none-eabihf"  # for clang; `flags` are gcc's
core = "cortex-m4"                # whose costs and emulator: run/costs.py, run/emulator.py
fpu = "single"                    # none, single or double
issues_pairs = true               # two instructions at a time: assembly is put in an order that suits it (kernels/paired.py)
cycles_per_mac_int = 1.7          # of `intaglio profile` over whole models, for the first guess of `intaglio fit`
cycles_per_mac_float = 4.2
"""

from __future__ import annotations

import platform
import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from intaglio.errors import UserError, quoted
from intaglio.targets.near import files_of, holding, listed, nearest


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    description: str
    arch: str
    isa: str
    flags: tuple[str, ...]
    interface: str
    registers: int
    lanes: int
    l1_bytes: int
    l2_bytes: int
    gflops: float
    gbytes_per_s: float
    alignment: int
    needs: tuple[str, ...] = ()  # what /proc/cpuinfo must list, beyond the architecture
    triple: str = ""
    core: str = ""
    fpu: str = "double"
    piece_cycles: float = 0.0  # of a piece of a row written to memory behind L2, divided by its lines
    issues_pairs: bool = False  # two instructions at a time, in order: `targets/issue.py`
    cycles_per_mac_int: float = 0.0  # 0: not known
    cycles_per_mac_float: float = 0.0
    device: str = ""  # `opencl`: layers run on such a device, the rest on this processor
    precision: str = "fp32"  # of floats on the device; not in files
    optimize: str = "balanced"  # not in files: what the user wants, speed, size or balanced
    exact: bool = False  # not in files: no algorithms that change rounding
    limited: bool = False  # not in files: memory has a limit, so kernels do not spend it to be faster
    slow_flash: bool = False  # not in files: the board's flash has wait states, so that smaller weights are faster ones
    threads: int = 1  # not in files: how many compute a layer together

    @property
    def wasm(self) -> bool:
        """A module for browsers and runtimes of WebAssembly."""
        return self.arch == "wasm32"

    @property
    def bare(self) -> bool:
        """No operating system: firmware is built, and runs on an emulated core."""
        return bool(self.core)


@cache
def all_targets() -> dict[str, Target]:
    found: dict[str, Target] = {}
    folder = resources.files("intaglio.targets").joinpath("cores")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.endswith(".toml"):
            target = _from_toml(entry.name.removesuffix(".toml"), entry.read_text(encoding="utf-8"))
            found[target.name] = target
    return found


def _from_toml(name: str, text: str) -> Target:
    table = tomllib.loads(text)
    table["flags"], table["needs"] = tuple(table["flags"]), tuple(table.get("needs", ()))
    return Target(name=name, **table)


def find_target(name: str) -> Target:
    if name == "host":
        return host_target()
    if name == "opencl":
        return opencl_target(host_target())
    targets = all_targets()
    if name.startswith(OPENCL) and (beside := targets.get(name.removeprefix(OPENCL))) and not (beside.bare or beside.wasm):
        return replace(opencl_target(beside), name=name)
    if name not in targets:
        hint = _hint(name, ["host", "opencl", *targets])
        raise UserError("unknown-target", f"unknown target {quoted(name)}", hint=hint)
    return targets[name]


def _hint(name: str, targets: list[str]) -> str:
    """People know the name of a board, or a part of the core's."""
    boards = files_of("boards")
    if name.lower() in boards:
        return f"`{name.lower()}` is a board: use `--board {name.lower()}`"
    known = f"known targets: {listed(targets)}"
    near = holding(name, targets)
    if not near and (held := holding(name, boards)):
        return f"boards with this name: {listed(held)}; use `--board {held[0]}`; {known}"
    near = near or nearest(name, targets, 1)
    return f"did you mean {listed(near)}? {known}" if near else known


OPENCL = "opencl-"  # and the processor beside the device: `opencl-aarch64`
POOL_ALIGNMENT = 512  # of tensors on a device: sub-buffers start where every known device allows it


def opencl_target(processor: Target) -> Target:
    """An OpenCL device, and this processor for what does not run there."""
    about = f"an OpenCL device beside {processor.description}"
    return replace(
        processor, name="opencl", description=about, interface="opencl", device="opencl", alignment=POOL_ALIGNMENT
    )


LEVELS = {"speed": "-O3", "balanced": "-O2", "size": "-Os"}  # for a C compiler, without an operating system
TILE_REGISTERS = {"speed": 64, "balanced": 20, "size": 8}  # how large register tiles, and so kernels, may be there


def optimized(target: Target, word: str) -> Target:
    """The target with the user's wish, which kernels and compilers see."""
    if word not in LEVELS:
        raise UserError("bad-option", f"unknown value {quoted(word)} of `--optimize`", hint="use `speed`, `balanced` or `size`")
    registers = min(target.registers, TILE_REGISTERS[word]) if target.bare else target.registers
    return replace(target, optimize=word, registers=registers)


def wished(target: Target, *, exact: bool, limited: bool) -> Target:
    """The target as kernels see it: with sums that are rounded as usual, and with memory that they do not spend to be faster."""
    return replace(target, exact=exact, limited=limited)


MOST_THREADS = 64
MOST_CORES = 2  # of a microcontroller


def threaded(target: Target, threads: int, cores: int = 1) -> Target:
    """The target with the number of threads, or of cores of a board, that compute a layer together."""
    if not 1 <= cores <= MOST_CORES:
        hint = "use 1 or 2; without the option, one core computes everything"
        raise UserError("bad-option", f"`--cores {cores}` is not a number of cores", hint=hint)
    if not 1 <= threads <= MOST_THREADS:
        hint = f"use 1 to {MOST_THREADS}; without the option, the thread that calls computes everything"
        raise UserError("bad-option", f"`--threads {threads}` is not a number of threads", hint=hint)
    return replace(target, threads=max(threads, cores))


PRECISIONS = ("fp32", "mixed", "fp16")


def precise(target: Target, word: str | None) -> Target:
    """The target with the floats that the user wants on the device: stored in half the bits (mixed), computed so too (fp16)."""
    if word is None or not target.device:
        return target
    if word not in PRECISIONS:
        raise UserError("bad-option", f"unknown precision {quoted(word)}", hint="`--precision fp32`, `mixed` or `fp16`")
    return replace(target, precision=word)


_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def runs_here(target: Target) -> bool:
    """Can this machine execute code for the target?"""
    return target.arch == _MACHINES.get(platform.machine().lower()) and not lacking(target)


def lacking(target: Target) -> tuple[str, ...]:
    """What the target needs and the processor of this machine does not list."""
    if target.arch in _MACHINES.values() and target.arch != _MACHINES.get(platform.machine().lower()):
        return (f"a processor of the architecture {target.arch}",)
    return tuple(word for word in target.needs if word not in _cpu_flags())


HOSTS = (
    "x86-64-avx512vnni", "x86-64-v4", "x86-64-avxvnni", "x86-64-v3", "x86-64-v2", "x86-64", "aarch64-i8mm",
    "aarch64-dotprod", "aarch64",
)  # best first  # fmt: skip


def host_target() -> Target:
    """The best target that this machine can run."""
    targets = all_targets()
    return next((targets[name] for name in HOSTS if runs_here(targets[name])), targets["generic"])


@cache
def processor_name() -> str:
    """As its maker calls it, with the numbers of its kind: virtual machines often have a short name."""
    found: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                found.setdefault(key.strip(), value.strip())
    except (OSError, UnicodeDecodeError):
        pass
    name = found.get("model name") or platform.processor() or platform.machine()
    kinds = {"cpu family": "family", "model": "model", "CPU implementer": "maker", "CPU part": "part"}
    if parts := [f"{word} {found[key]}" for key, word in kinds.items() if found.get(key)]:
        name += f" ({', '.join(parts)})"
    return re.sub(r"[^!-{}~]+", " ", name).strip() or "unknown"


@cache
def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith(("flags", "Features")):  # x86, Arm
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()
