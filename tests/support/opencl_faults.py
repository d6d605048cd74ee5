"""A package for OpenCL devices whose program cache is damaged: starts of its application, each a process of its own.

The driver is PoCL, behind one that notes every binary it is given, and crashes, refuses or computes wrong where a test asks for it
(opencl_faulty_driver.c).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

import intaglio as api
from intaglio.ir.graph import Array
from intaglio.package import opencl
from intaglio.run.opencl import loader
from intaglio.run.opencl.cache_contents import entries
from intaglio.run.opencl.cache_file import MARK, PROGRAM, CacheFile, Program, Record, dump, program_record
from intaglio.run.opencl.cache_store import read_cache
from intaglio.run.opencl.loader import find_loader, pip_loader
from intaglio.run.toolchains import find_toolchain
from support.onnx_models import model, node, saved, value
from support.program_caches import checked, program, tuning, unknown

FAULTY = Path(__file__).with_name("opencl_faulty_driver.c")
RANDOM = np.random.default_rng(7)
W = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32) / 4
D = RANDOM.standard_normal((4, 5)).astype(np.float32)
X = RANDOM.standard_normal((1, 3, 6, 6)).astype(np.float32)
PROGRAMS = 2
COMPUTES = "computes layer"
COUNTS = re.compile(r"(process|writable|shipped|source|refused|self-tests|saved|tuned) (\d+)")


def expected() -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(X[0], ((0, 0), (1, 1), (1, 1))), (3, 3), axis=(1, 2))
    return np.asarray(np.maximum(np.einsum("cyxij,ocij->oyx", windows, W), 0).mean(axis=(1, 2))[None] @ D)


@dataclass(frozen=True, slots=True)
class Started:
    """What a process said and did. `handed`: digests of the binaries that its driver was given."""

    code: int
    told: tuple[str, ...]
    counts: Mapping[str, int]
    output: Array | None
    handed: tuple[bytes, ...]

    @property
    def right(self) -> bool:
        return self.code == 0 and self.output is not None and np.allclose(self.output, expected(), rtol=1e-5, atol=1e-6)


@dataclass(frozen=True)
class World:
    """The package, and what its application puts into an empty cache."""

    folder: Path
    environment: Mapping[str, str]

    @property
    def application(self) -> Path:
        return self.folder / "package" / "bin" / "tiny"

    @cached_property
    def ours(self) -> tuple[Record, ...]:
        """Programs, each before its mark `checked`."""
        found = read_cache(self.folder / "good.clbin").records
        return tuple(record for key in dict.fromkeys(r.key for r in found) for record in found if record.key == key)

    @cached_property
    def programs(self) -> tuple[Record, ...]:
        return tuple(record for record in self.ours if isinstance(record.content, Program))

    @cached_property
    def keys(self) -> frozenset[bytes]:
        return frozenset(record.key for record in self.programs)

    @cached_property
    def binaries(self) -> frozenset[bytes]:
        return frozenset(digests(self.ours))

    @cached_property
    def others(self) -> tuple[Record, ...]:
        """Of another device, of an earlier driver of this one, of a later version of Intaglio."""
        mine = self.programs[0].content
        assert isinstance(mine, Program)
        earlier = (*mine.fields[:7], "0.1", *mine.fields[8:])
        old = program_record(Program(earlier, mine.report, mine.self_tests, b"of an earlier driver"))
        mali = program(binary=b"of a Mali")
        return mali, checked(mali), old, tuning(), unknown()

    @cached_property
    def others_keys(self) -> frozenset[bytes]:
        return frozenset(record.key for record in self.others)

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """Of a cache in good order: ours are in the middle."""
        return self.others[:2] + self.ours + self.others[2:]

    @cached_property
    def tuned(self) -> tuple[Record, ...]:
        """Of a cache that `--tune` wrote: it takes its time, and the first test that needs it makes it."""
        path = self.folder / "tuned.clbin"
        with alone(self.folder):
            if not path.exists():
                assert Bench(self, self.folder / "bench").start("--tune", cache=path).right
        return read_cache(path).records


@dataclass(frozen=True)
class Bench:
    """A folder with a cache in it."""

    world: World
    folder: Path
    any_device: bool = False  # the application chooses none
    cache: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        object.__setattr__(self, "cache", self.folder / "tiny.clbin")

    def command(self, *words: str | Path, cache: Path | None = None, shipped: Path | None = None) -> list[str]:
        line: list[str | Path] = [self.world.application, self.world.folder / "x.npy", "-o", self.output, "--cache-report"]
        line += [] if self.any_device else ["--device", "basic"]
        return [*map(str, line), "--cache", str(cache or self.cache), "--shipped", str(shipped or "none"), *map(str, words)]

    @property
    def output(self) -> Path:
        return self.folder.with_name(f"{self.folder.name}-y.npy")

    def own_kernels(self) -> str:
        """A copy of PoCL's own cache, which wrong binaries may spoil."""
        return str(shutil.copytree(self.world.folder / "pocl-at-first", f"{self.folder}-pocl"))

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {**self.world.environment, "HANDED": f"{self.folder}-handed", **variables}

    def start(
        self,
        *words: str | Path,
        cache: Path | None = None,
        shipped: Path | None = None,
        before: tuple[str, ...] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Started:
        """`before`: a command that starts the application."""
        handed = Path(f"{self.folder}-handed")
        handed.unlink(missing_ok=True)
        self.output.unlink(missing_ok=True)
        line = [*before, *self.command(*words, cache=cache, shipped=shipped)]
        done = subprocess.run(line, env=self.environment(variables), capture_output=True, text=True, timeout=100)
        counts = {name: int(number) for name, number in COUNTS.findall(done.stdout)}
        told = tuple(line for line in done.stderr.splitlines() if line.startswith(("tiny: ", "error: ")) or COMPUTES in line)
        output = np.load(self.output) if self.output.exists() else None
        return Started(done.returncode, told, counts, output, tuple(given(handed)))

    def write(self, *records: Record) -> None:
        self.cache.write_bytes(dump(records))

    def read(self) -> CacheFile:
        return read_cache(self.cache)

    def heals(self, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        """From now on all is well: nothing told, everything from the cache, and no file of a process that died."""
        holds = frozenset(digests(self.read().records))
        again = self.start(variables=variables)
        assert again.right and not again.told and again.counts["writable"] == PROGRAMS, again
        assert holds >= set(again.handed)
        assert not list(self.folder.glob("*.tmp.*")) and not list(self.folder.glob("*.loading.*"))
        self.is_whole()

    def is_whole(self) -> None:
        after = self.read()
        assert not after.damage and not after.problem
        ours = [record for record in after.records if record.kind == PROGRAM and record.key in self.world.keys]
        assert not [record.problem for record in ours if record.problem]

    def kept(self, before: CacheFile) -> None:
        """Every record that was good is still there; those of others with the very same bytes."""
        after = {(record.kind, record.key): record.body for record in self.read().records}
        for record in before.records:
            if not record.problem and (record.kind != MARK or record.key not in self.world.keys):
                assert (record.kind, record.key) in after
                assert record.key in self.world.keys or after[(record.kind, record.key)] == record.body

    def has_ours(self) -> None:
        states = {entry.record.key: entry.state for entry in entries(self.read().records) if entry.program and entry.counts}
        assert {states.get(key) for key in self.world.keys} <= {"checked", "unchecked"}


def digests(records: tuple[Record, ...]) -> list[bytes]:
    return [hashlib.sha256(record.content.binary).digest() for record in records if isinstance(record.content, Program)]


def given(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes() if path.exists() else b"", 0, []
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        found.append(hashlib.sha256(data[at + 8 : at + 8 + size]).digest())
        at += 8 + size
    return found


# Made once, for all workers of a test run


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_world(folder: Path) -> World:
    """In a folder that workers share: the first makes it, the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv(loader.VARIABLE, str(pip_loader()))
        patch.setattr(opencl, "PER_PROGRAM", 2)  # as small as it is, several programs
        hidden = ("INTAGLIO_OPENCL_DEVICE", "INTAGLIO_OPENCL_CACHE", "OCL_ICD_VENDORS")
        base = {name: text for name, text in os.environ.items() if name not in hidden}
        own = {loader.VARIABLE: str(folder / "libfaulty.so"), "POCL_DEVICES": "basic", "POCL_CACHE_DIR": str(folder / "pocl")}
        world = World(folder, {**find_loader().child_environment(base), **own})
        if not (folder / "good.clbin").exists():
            _compile(folder)
            (folder / "pocl").mkdir(exist_ok=True)
            np.save(folder / "x.npy", X)
            bench = Bench(world, folder / "bench")
            cold = bench.start(cache=folder / "fresh.clbin")
            assert cold.right and cold.counts["source"] == PROGRAMS and cold.counts["saved"] == PROGRAMS, cold
            shutil.copytree(folder / "pocl", folder / "pocl-at-first")
            (folder / "fresh.clbin").rename(folder / "good.clbin")
        return world


def _compile(folder: Path) -> None:
    nodes = [
        node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "b"),
        node("GlobalAveragePool", "b", "g"),
        node("Flatten", "g", "h"),
        node("MatMul", "h d", "y"),
    ]
    proto = model(nodes, [value("x", [1, 3, 6, 6])], [value("y", [1, 5])], {"w": W, "d": D})
    api.compile(saved(proto, folder, "tiny.onnx"), output=folder / "package", target="opencl", cflags=("-O1",))
    real = pip_loader()
    assert real is not None
    libraries = ["-Wl,--no-as-needed", str(real), f"-Wl,-rpath,{real.parent}", "-ldl"]
    line = ["-shared", "-fPIC", "-O1", str(FAULTY), "-o", "libfaulty.so", *libraries]
    subprocess.run([*find_toolchain().compiler, *line], cwd=folder, check=True)
