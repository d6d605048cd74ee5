"""Fewer headers of the compiler are read, and its objects stay the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from intaglio import kernels
from intaglio.run import build, intrinsics
from intaglio.run.build import BuildOptions, spared_flags
from intaglio.run.intrinsics import probe_text
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import Target, find_target
from support.building import needs_gcc

AVX2, AVX512, VNNI = find_target("x86-64-v3"), find_target("x86-64-v4"), find_target("x86-64-avx512vnni")
KERNELS = Path(kernels.__file__).parent
PLAIN = BuildOptions()


def read_by_gcc(folder: Path, target: Target, *flags: str) -> tuple[bytes, str]:
    """The object, and the text it was compiled from."""
    (folder / "probe.c").write_text(probe_text(target))
    command = ["gcc", "-O2", *target.flags, *flags, "probe.c", "-o"]
    subprocess.run([*command, "probe.o", "-c"], cwd=folder, check=True)
    subprocess.run([*command, "probe.i", "-E"], cwd=folder, check=True)
    return (folder / "probe.o").read_bytes(), (folder / "probe.i").read_text()


@needs_gcc
@pytest.mark.parametrize(("target", "share"), [(AVX2, 0.5), (AVX512, 0.7), (VNNI, 0.7)])
def test_the_object_is_the_same_with_fewer_headers(target: Target, share: float, tmp_path: Path) -> None:
    flags = spared_flags(find_toolchain("gcc"), target, PLAIN)
    (spared, few), (usual, all_of_it) = read_by_gcc(tmp_path, target, *flags), read_by_gcc(tmp_path, target)
    assert spared == usual
    assert len(few) < len(all_of_it) * share or not flags


@pytest.mark.slow
@needs_gcc
def test_every_intrinsic_of_our_kernels_is_left(tmp_path: Path) -> None:
    """Other versions of the compiler may have other headers: one that our kernels need and that is spared shows here."""
    ours = "\n".join(path.read_text() for path in KERNELS.rglob("*.py"))
    _, text = read_by_gcc(tmp_path, VNNI, *spared_flags(find_toolchain("gcc"), VNNI, PLAIN))
    _, all_of_it = read_by_gcc(tmp_path, VNNI)
    names = {name for name in re.findall(r"_mm(?:256|512)?_\w+", ours) if re.search(rf"\b{name} ?\(", all_of_it)}
    assert len(names) > 100
    assert sorted(name for name in names if not re.search(rf"\b{name} ?\(", text)) == []


@pytest.mark.slow
@needs_gcc
def test_a_compiler_that_needs_a_header_gets_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intrinsics, "_guards", lambda *_: ("_AVXINTRIN_H_INCLUDED",))  # `avx2intrin.h` needs this one
    build._accepts.cache_clear()
    assert spared_flags(find_toolchain("gcc"), AVX2, PLAIN) == ()
    build._accepts.cache_clear()


OTHERS = [BuildOptions(("-mavx512f",)), BuildOptions(edited_template=True), BuildOptions(accelerators=("a",))]


@pytest.mark.parametrize("options", OTHERS)
def test_c_that_is_not_ours_may_use_every_intrinsic(options: BuildOptions) -> None:
    assert spared_flags(find_toolchain(), AVX2, options) == ()


@pytest.mark.parametrize("target", ["x86-64", "aarch64", "generic"])
def test_other_targets_read_what_they_include(target: str) -> None:
    assert spared_flags(find_toolchain(), find_target(target), PLAIN) == ()
