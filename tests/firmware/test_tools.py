"""The compiler for cores without an operating system, and what it calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from intaglio.errors import ToolError
from intaglio.run import firmware_tools
from intaglio.run.firmware_tools import find_firmware_toolchain, runtime
from intaglio.targets.target import find_target


@pytest.mark.slow
def test_two_builds_of_the_run_time_library_at_once_leave_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    target = find_target("cortex-m3")
    tools = find_firmware_toolchain(None, target)
    with ThreadPoolExecutor(2) as pool:
        made = set(pool.map(lambda _: runtime(tools, target), range(2)))
    assert len(made) == 1
    assert [str(p) for p in (tmp_path / "compiler_rt").iterdir()] == list(made)


def test_a_machine_without_a_compiler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    firmware_tools._zig.cache_clear()
    monkeypatch.setattr(firmware_tools, "pip_zig", lambda: None)
    with pytest.raises(ToolError, match="no compiler for this core was found") as told:
        find_firmware_toolchain(None, find_target("cortex-m4f"))
    firmware_tools._zig.cache_clear()
    assert "pip install ziglang" in told.value.hint
    assert told.value.exit_code == 2
