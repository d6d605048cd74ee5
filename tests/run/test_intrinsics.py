"""Fewer headers of the compiler are read, and its objects stay the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from intaglio.run import build, intrinsics
from intaglio.run.build import BuildOptions, spared_flags
from intaglio.run.intrinsics import PROBE
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.building import needs_gcc

AVX2 = find_target("x86-64-v3")
PLAIN = BuildOptions()


def read_by_gcc(folder: Path, *flags: str) -> tuple[bytes, int]:
    """The object, and how much text it was compiled from."""
    (folder / "probe.c").write_text(PROBE)
    command = ["gcc", "-O2", *AVX2.flags, *flags, "probe.c", "-o"]
    subprocess.run([*command, "probe.o", "-c"], cwd=folder, check=True)
    subprocess.run([*command, "probe.i", "-E"], cwd=folder, check=True)
    return (folder / "probe.o").read_bytes(), (folder / "probe.i").stat().st_size


@needs_gcc
def test_the_object_is_the_same_with_fewer_headers(tmp_path: Path) -> None:
    flags = spared_flags(find_toolchain("gcc"), AVX2, PLAIN)
    (spared, few), (usual, all_of_it) = read_by_gcc(tmp_path, *flags), read_by_gcc(tmp_path)
    assert spared == usual
    assert few < all_of_it / 2 or not flags


@needs_gcc
def test_a_compiler_that_needs_a_header_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intrinsics, "_guards", lambda _: ("_AVXINTRIN_H_INCLUDED",))  # `avx2intrin.h` needs this one
    build._accepts.cache_clear()
    assert spared_flags(find_toolchain("gcc"), AVX2, PLAIN) == ()
    build._accepts.cache_clear()


OTHERS = [BuildOptions(("-mavx512f",)), BuildOptions(edited_template=True), BuildOptions(accelerators=("a",))]


@pytest.mark.parametrize("options", OTHERS)
def test_c_that_is_not_ours_may_use_every_intrinsic(options: BuildOptions) -> None:
    assert spared_flags(find_toolchain(), AVX2, options) == ()


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64", "aarch64", "generic"])
def test_other_targets_read_what_they_include(target: str) -> None:
    assert spared_flags(find_toolchain(), find_target(target), PLAIN) == ()
