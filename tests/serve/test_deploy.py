"""The recipes in `deploy/`: what they start is there, and a package that is replaced is seen through the mount."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path, PurePosixPath

from support.commands import Intaglio

DEPLOY = Path(__file__).parents[2] / "deploy"


def options_of(words: list[str]) -> set[str]:
    return {word for word in words if word.startswith("--")}


def test_the_recipes_start_the_server_with_options_that_it_has(intaglio: Intaglio) -> None:
    known = set(re.findall(r"--[a-z-]+", intaglio("serve", "--help").out))
    container = re.search(r"^ENTRYPOINT (.*)$", (DEPLOY / "Containerfile").read_text(), re.M)
    unit = re.search(r"^ExecStart=(.*)$", (DEPLOY / "intaglio-serve.service").read_text(), re.M)
    assert container is not None and unit is not None
    for words in (json.loads(container[1]), shlex.split(unit[1])):
        assert "serve" in words and options_of(words) and options_of(words) <= known


def test_the_container_mounts_the_folder_of_the_packages() -> None:
    """A bind mount of the package itself stays with the old folder when `compile --force` renames a new one into its place."""
    line = re.search(r"podman run (.*)$", (DEPLOY / "Containerfile").read_text(), re.M)
    assert line is not None
    words = shlex.split(line[1])
    mount = PurePosixPath(words[words.index("-v") + 1].split(":")[1])
    assert mount in PurePosixPath(words[-1]).parents
