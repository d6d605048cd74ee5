"""Build the wheel of Intaglio so that the same sources give the same bytes: twice, in two folders, and compare.

    .venv/bin/python scripts/build_wheel.py dist

The time of all files in it is that of the last commit (SOURCE_DATE_EPOCH), or 1980 where there is no git.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "src")
EARLIEST = 315532800  # 1980, the first time that a zip file can have


def time_of_sources() -> int:
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=False, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else EARLIEST


def build(place: Path) -> Path:
    """In a copy of the sources: nothing that lies around in this folder gets into the wheel."""
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copyfile(source, place / name)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_of_sources()), "PYTHONHASHSEED": "0"}
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(place / "dist")]
    subprocess.run([*words, str(place)], check=True, env=environment, umask=0o022)
    (made,) = (place / "dist").glob("*.whl")
    return made


def main() -> int:
    output = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory(prefix="another-") as second:
        wheels = [build(Path(place)) for place in (first, second)]
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
        if digests[0] != digests[1]:
            print("error: two builds of the same sources differ", file=sys.stderr)
            return 1
        output.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(wheels[0], output / wheels[0].name)
        print(f"{digests[0]}  {output / wheels[0].name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
