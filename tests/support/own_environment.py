"""Environments under `build/` for frameworks that are too large for the one of the project, made when a slow test first asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, env=quiet, timeout=1800)


def environment(name: str, *packages: str) -> Path:
    """The interpreter of an environment with Intaglio and these packages; the test is skipped where pip cannot make it."""
    home = ROOT / "build" / name
    python = home / "bin" / "python"
    if not (home / ".installed").is_file():
        made = ran(sys.executable, "-m", "venv", home)
        if made.returncode == 0:
            made = ran(python, "-m", "pip", "install", "-q", *packages, "-e", ROOT)
        if made.returncode:
            pytest.skip(f"pip cannot install {' and '.join(packages)}: {made.stderr.strip()[-300:]}")
        (home / ".installed").touch()
    return python
