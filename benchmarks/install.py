"""Install the peers and what makes the models: the extra `bench` of pyproject.toml. A peer without a wheel here is skipped.

All at once, so that versions agree; where that fails, one by one. `make bench` runs this; the report names what is missing.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIP = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def installed(*wanted: str) -> bool:
    return subprocess.run([*PIP, *wanted], cwd=ROOT, check=False).returncode == 0


def main() -> None:
    if installed("-e", ".[dev,bench]"):
        return
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    torch = [row for row in extras["dev"] if row.startswith("torch==")]  # what the tests need stays as it is
    for row in extras["bench"]:
        if not installed(row, *torch):
            print(f"not installed: {row}; its rows will be missing", file=sys.stderr)


if __name__ == "__main__":
    main()
