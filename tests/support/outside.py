"""Plug-ins installed as a user would, from a copy of their folders, into a folder of their own."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parents[2] / "plugins"


def install(sources: list[Path], site: Path) -> None:
    """`pip install`, from copies: a build leaves files beside what it builds."""
    work = site.with_name(f"{site.name}-sources")
    left = shutil.ignore_patterns("build", "*.egg-info")
    copies = [shutil.copytree(source, work / source.name, ignore=left) for source in sources]
    alone = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(site)]
    done = subprocess.run([*command, *alone, *map(str, copies)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's own plug-ins, installed once for all workers."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root
    site, lock = shared / "plugin-site", shared / "plugin-site.lock"
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        for _ in range(1200):
            if (site / "done").exists():
                return site
            time.sleep(0.1)
        pytest.fail("another worker did not install the plug-ins")
    install(sorted(p.parent for p in PLUGINS.glob("*/pyproject.toml")), site)
    (site / "done").touch()
    return site


@pytest.fixture
def outside(plugin_site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plug-ins can be found, in this process and in those it starts."""
    monkeypatch.syspath_prepend(str(plugin_site))
    monkeypatch.setenv("PYTHONPATH", str(plugin_site))
    importlib.invalidate_caches()
    return plugin_site
