"""Plug-ins that crash, hang or give nonsense: an error that names them, and nothing half-written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.accelerator import Accelerator, Code, Cost, Facts, Pattern
from intaglio.errors import ToolError
from intaglio.ir.files import write_ir
from intaglio.passes.offload.match import Flow, claims
from intaglio.targets.plugins import checked, find_accelerator
from intaglio.targets.target import find_target
from support.ir_text import graph_of
from support.toy_accelerators import Garbage, Sums, plugin, toys  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("toys")
TEXT = """
    input x: f32[8]
    y: f32[8] = add(x, x)
    output y
    """


def compiled(folder: Path, name: str) -> intaglio.Package:
    write_ir(graph_of(TEXT), folder / "m.ig")
    try:
        return intaglio.compile(folder / "m.ig", output=folder / "p", accelerators=[name])
    finally:
        left = sorted(p.name for p in folder.iterdir() if p.name not in ("m.ig", "m.safetensors"))
        assert left in ([], ["p"])


@pytest.mark.parametrize(
    ("name", "slug", "said"),
    [
        ("crashing", "plugin-failed", r"`crashing` \(.*\) failed in `cost`: ZeroDivisionError: no cycles"),
        ("leaving", "plugin-failed", "failed in `cost`: SystemExit: 0"),
    ],
)
def test_one_that_crashes_is_named(tmp_path: Path, name: str, slug: str, said: str) -> None:
    with pytest.raises(ToolError, match=said) as caught:
        compiled(tmp_path, name)
    assert caught.value.slug == slug
    assert "toy_accelerators.py, line" in caught.value.where
    assert not (tmp_path / "p").exists()


def test_one_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_PLUGIN_SECONDS", "0.2")
    with pytest.raises(ToolError, match=r"`hanging` .* did not return from `cost` in 0.2 s") as caught:
        compiled(tmp_path, "hanging")
    assert caught.value.slug == "plugin-hangs"
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(
    ("word", "answer", "wanted"),
    [
        ("cost", 12, "a `Cost`"),
        ("cost", Cost(float("nan")), "finite numbers that are not negative"),
        ("cost", Cost(-1), "finite numbers that are not negative"),
        ("compile", "toy_add();", "a `Code`"),
        ("compile", Code("", scratch_bytes=-4), "scratch_bytes"),
        ("compile", Code("", constants={"in0": np.zeros(3, np.int8)}), "names are unique C identifiers"),
        ("compile", Code("", constants={"1w": np.zeros(3, np.int8)}), "names are unique C identifiers"),
        ("compile", Code("", constants={"w": [1, 2]}), "an array"),  # type: ignore[dict-item]
        ("compile", Code("", constants={"w": np.zeros(3, np.complex64)}), "a supported type"),
        ("compile", Code("", includes=('x.h"\n#include "/etc/passwd',)), "names of headers"),
        ("files", {"../evil.c": ""}, "names of C files"),
        ("files", {"a.c": 3}, "texts by file name"),
        ("setup", None, "C text"),
    ],
)
def test_nonsense_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, answer: object, wanted: str
) -> None:
    monkeypatch.setattr(Garbage, "gives", {word: answer})
    with pytest.raises(ToolError, match="`garbage`") as caught:
        compiled(tmp_path, "garbage")
    assert caught.value.slug == "plugin-garbage"
    assert wanted in caught.value.message
    assert not (tmp_path / "p").exists()


def test_c_that_does_not_compile_is_an_error_with_the_compilers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Garbage, "gives", {"compile": Code("this is no C;")})
    with pytest.raises(ToolError, match="the C compiler failed") as caught:
        compiled(tmp_path, "garbage")
    assert caught.value.slug == "plugin-garbage"
    assert "`garbage`" in caught.value.hint
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("answer", [[], [np.zeros(3, np.float32)], [np.zeros(8, np.int8)], ["y"]])
def test_an_emulation_of_another_shape_is_nonsense(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    monkeypatch.setattr(Garbage, "gives", {"emulate": answer})
    made = plugin(Garbage())
    found, _ = claims(Flow.of(graph_of(TEXT)), made)
    with pytest.raises(ToolError, match="from `emulate`"):
        made.emulate(found[0].region, [np.zeros(8, np.float32)])


def test_a_device_without_registers_is_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Garbage, "gives", {"device": 5})
    with pytest.raises(ToolError, match="from `device`"):
        plugin(Garbage()).device(None)  # type: ignore[arg-type]


class Nameless(Sums):
    name = "other"


class Crooked(Sums):
    facts = Facts("crooked", alignment=3)


class Patternless(Sums):
    patterns: tuple[Pattern, ...] = ()


@pytest.mark.parametrize(
    ("accelerator", "said"),
    [(7, "an `Accelerator`"), (Nameless(), "as its entry point"), (Crooked(), "power of two"), (Patternless(), "one `Pattern`")],
)
def test_declarations_are_looked_at(accelerator: object, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        checked(accelerator, "sums", "toys 1.0")


def test_a_module_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    from intaglio.targets import plugins

    point = metadata.EntryPoint("lost", "no_such_module_anywhere:Lost", plugins.GROUP)
    monkeypatch.setattr(plugins, "installed", lambda: {"lost": point})
    with pytest.raises(ToolError, match=r"`lost` .* failed in its import: ModuleNotFoundError"):
        find_accelerator("lost")


def test_a_pattern_check_that_gives_no_reason() -> None:
    class Silent(Sums):
        patterns = (Sums.patterns[0].__class__("add", Sums.patterns[0].root, lambda _: ""),)

    with pytest.raises(ToolError, match="the check of the pattern `add`"):
        claims(Flow.of(graph_of(TEXT)), plugin(Silent()))


def test_cost_and_code_must_be_written() -> None:
    class Empty(Accelerator):
        name = "empty"
        patterns = Sums.patterns

    made = plugin(Empty())
    found, _ = claims(Flow.of(graph_of(TEXT)), made)
    with pytest.raises(ToolError, match="NotImplementedError"):
        made.cost(found[0].region, find_target("generic"))
