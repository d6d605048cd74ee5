"""Which compiler is taken, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.errors import ToolError, UserError
from intaglio.run import toolchains
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import all_targets, find_target


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a system compiler."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)


@pytest.mark.usefixtures("bare")
def test_zig_is_the_compiler_where_there_is_no_other() -> None:
    assert find_toolchain().kind == "zig"


@pytest.mark.usefixtures("bare")
def test_no_compiler_at_all_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "pip_zig", lambda: None)
    with pytest.raises(ToolError, match=r"error\[no-compiler\]") as caught:
        find_toolchain()
    assert "pip install ziglang" in caught.value.hint


@pytest.mark.parametrize("asked", ["no-such-compiler", "'open", ""])
def test_a_compiler_that_is_not_there_is_explained(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UserError, match=r"error\[no-compiler\]"):
        find_toolchain(asked)


def test_what_is_no_compiler_is_refused() -> None:
    with pytest.raises(UserError, match="does not answer"):
        find_toolchain("false")


@pytest.mark.skipif(sys.platform != "linux", reason="the triple is Linux's")
def test_flags_are_translated_for_zig() -> None:
    flags = find_toolchain("zig").target_flags(find_target("x86-64-v3"))
    assert flags == ("-target", "x86_64-linux-gnu.2.17", "-g0", "-mcpu=x86_64_v3")


MACROS = {
    "x86-64": "__SSE2__", "x86-64-v2": "__SSE4_2__", "x86-64-v3": "__AVX2__", "x86-64-avxvnni": "__AVXVNNI__",
    "x86-64-v4": "__AVX512BW__", "x86-64-avx512vnni": "__AVX512VNNI__", "aarch64": "__ARM_NEON",
    "aarch64-dotprod": "__ARM_FEATURE_DOTPROD", "aarch64-i8mm": "__ARM_FEATURE_MATMUL_INT8",
    "wasm32": "__wasm_simd128__", "generic": "__STDC__",
}  # fmt: skip


def test_zig_has_the_instructions_of_every_target_with_an_operating_system(tmp_path: Path) -> None:
    hosts = {name: target for name, target in all_targets().items() if not target.bare}
    assert set(hosts) == set(MACROS)
    zig = find_toolchain("zig")
    for name, target in hosts.items():
        (tmp_path / "t.c").write_text(f"#ifndef {MACROS[name]}\n#error missing\n#endif\n")
        command = [*zig.compiler, *zig.target_flags(target), "-E", "-o", "t.i", "t.c"]
        done = subprocess.run(command, cwd=tmp_path, env=zig.environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr[-300:]}"
