"""Clusters with real daemons: SSH and Slurm, where they run on this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio

pytestmark = pytest.mark.slow
PROJECT = """
[models.digits]
source = "{model}"

[fleet]
boards = ["nucleo-l4r5zi"]
targets = ["host"]
jobs = ["fit", "compile", "validate"]
store = "store"

[fleet.cluster.ssh]
hosts = ["localhost", "localhost", "localhost"]

[fleet.cluster.slurm]
workers = 2
cores = 1
memory = "2GB"
"""
ANSWERS = {
    "ssh": ("asyncssh", ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "localhost", "true"]),
    "slurm": ("dask_jobqueue", ["srun", "--immediate=20", "true"]),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_fleet_on_a_cluster(kind: str, tmp_path: Path, intaglio: Intaglio) -> None:
    module, command = ANSWERS[kind]
    pytest.importorskip(module, reason=f"`--cluster {kind}` needs {module}")
    if shutil.which(command[0]) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"no {kind} daemon answers on this machine")
    (tmp_path / "intaglio.toml").write_text(PROJECT.format(model=DIGITS))
    first, again = (intaglio("fleet", tmp_path / "intaglio.toml", "--cluster", kind) for _ in range(2))
    assert first.code == 0 and "5 jobs, 5 done now" in first.out, first.err
    assert kind != "slurm" or list((tmp_path / "store" / "logs").iterdir())
    assert again.code == 0 and "0 done now, 5 known before" in again.out, again.err
