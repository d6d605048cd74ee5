"""One schema of options: the command line, `intaglio.compile`, the manifest and the documentation come from it."""

from __future__ import annotations

import importlib.util
import typing
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile as compile_package
from intaglio.cli.main import compile_command
from intaglio.errors import UserError
from intaglio.options.groups import GROUPS
from intaglio.options.keywords import Keywords
from intaglio.options.reading import read_words, request_of_keywords, request_of_words
from intaglio.options.request import OPTIONS, Request
from intaglio.options.speaking import in_python
from intaglio.pipeline import LINE
from intaglio.quantize.settings import Settings
from intaglio.run.package import Package
from support.commands import DIGITS, Intaglio

ROOT = Path(__file__).resolve().parents[1]


def test_every_field_of_a_request_is_an_option() -> None:
    assert {f.name for f in fields(Request)} - {o.name for o in OPTIONS} == {"model", "output", "constants"}


def test_every_option_says_what_it_is() -> None:
    for option in OPTIONS:
        assert option.help.endswith(".") and option.help[0].isalpha(), option.name
        assert option.word or option.keyword, option.name
        assert option.stage in {stage.name for stage in LINE}, option.name


def test_the_command_line_has_every_option_that_has_a_word() -> None:
    parameters = set(typing.get_type_hints(compile_command)) - {"return"}
    beside = {"models", "output", "json", "report", "budget", "entry"}  # what the command does with the package
    assert parameters == beside | {o.name for o in OPTIONS if o.word}


def test_every_word_is_in_one_group_of_the_help() -> None:
    grouped = [name for _, names in GROUPS for name in names]
    assert sorted(grouped) == sorted(o.name for o in OPTIONS if o.word)


def test_keywords_for_type_checkers_are_those_of_the_schema() -> None:
    assert list(Keywords.__annotations__) == [o.keyword for o in OPTIONS if o.keyword]


def test_settings_of_quantisation_are_options_with_the_same_defaults() -> None:
    request, settings = Request(Path(), Path()), Settings()
    for f in fields(Settings):
        if f.name != "scheme":
            assert getattr(request, f.name) == getattr(settings, f.name), f.name


def test_the_documentation_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "scripts" / "options_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    there = (ROOT / "docs" / "reference" / "options.md").read_text(encoding="utf-8")
    assert there == module.page(), "run `python scripts/options_page.py`"
    assert all(o.help in there for o in OPTIONS)


WORDS: dict[str, tuple[object, object]] = {
    "ram": ("64K", 65536),
    "weights_address": ("0x08080000", 0x08080000),
    "dims": (["N=1"], {"N": 1}),
    "shapes": (["x=1,3,8,8"], {"x": (1, 3, 8, 8)}),
    "states": (["h=h_out"], {"h": "h_out"}),
    "devices": (["cpu", "gpu", "cpu"], ("cpu", "gpu")),
    "cflags": ("-O1 '-DX=a b'", ("-O1", "-DX=a b")),
    "accelerator_only": ("qconv, qmatmul", frozenset({"qconv", "qmatmul"})),
    "disabled": (["dead_code"], frozenset({"dead_code"})),
    "keep_float": (["1", "conv*"], ("1", "conv*")),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_become_values(name: str) -> None:
    (option,) = [o for o in OPTIONS if o.name == name]
    words, value = WORDS[name]
    assert read_words(option, words) == value
    assert read_words(option, None) == option.default


def test_keywords_may_be_lists_and_text() -> None:
    given: dict[str, object] = {"device": "cpu", "accelerators": ["a"], "disabled": ["p"], "template": "t", "dims": None}
    request = request_of_keywords(Path("m"), Path("o"), given)
    assert (request.devices, request.accelerators, request.disabled) == (("cpu",), ("a",), frozenset({"p"}))
    assert (request.template, request.dims) == (Path("t"), {})


def test_keywords_may_be_written_as_on_the_command_line() -> None:
    given: dict[str, object] = {"ram": "64K", "weights_address": "0x10", "cflags": "-O1 -g", "disabled": "p", "dims": "N=2"}
    request = request_of_keywords(Path("m"), Path("o"), given)
    assert (request.ram, request.weights_address, request.cflags) == (65536, 16, ("-O1", "-g"))
    assert (request.disabled, request.dims) == (frozenset({"p"}), {"N": 2})


def test_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, object] = {"ram": np.int64(4096), "max_error": np.float32(0.5), "shapes": {"x": [np.int32(2), 3]}}
    request = request_of_keywords(Path("m"), Path("o"), given)
    assert (request.ram, request.max_error, request.shapes) == (4096, 0.5, {"x": (2, 3)})


def test_what_is_left_out_is_the_default() -> None:
    words: dict[str, object] = {o.name: o.default if isinstance(o.default, (str, bool)) else None for o in OPTIONS if o.word}
    assert request_of_words(Path("m"), Path("o"), words) == Request(Path("m"), Path("o"))
    assert Request(Path("m"), Path("o")).record() == {}


def test_the_manifest_records_what_was_given() -> None:
    request = Request(
        Path("m"), Path("o"), board="boards/mine.toml", ram=1024, arena="caller", weights_address=64, dims={"b": 1, "a": 2},
        shapes={"x": (1, 2)}, feed_rows=True, accelerators=("n",), disabled=frozenset({"q", "p"}), import_plan=Path("plan.csv"),
        template=Path("t"), cflags=("-g",), quantize="int8", ranges="mse", weights="read", precision="fp16", devices=("cpu",),
        limit_kernel_time=8.0,
    )  # fmt: skip
    assert request.record() == {
        "board": "mine.toml", "ram": "1024", "arena": "caller", "weights_address": "0x40", "dims": "a=2,b=1", "shapes": "x=1,2",
        "feed_rows": "yes", "accelerators": "n", "disabled": "p,q", "plan": "imported", "template": "edited", "cflags": "-g",
        "quantize": "int8,mse", "weights": "read", "precision": "fp16", "devices": "cpu", "limit_kernel_time": "8",
    }  # fmt: skip


def test_python_records_its_keywords(tmp_path: Path) -> None:
    package = compile_package(DIGITS, output=tmp_path / "p", optimize="size", library_only=True, cflags=["-O0"])
    assert package.manifest.options == {"optimize": "size", "cflags": "-O0"}


def test_the_command_line_records_its_words(intaglio: Intaglio, tmp_path: Path) -> None:
    words = ["compile", str(DIGITS), "-o", str(tmp_path / "p"), "--stop-after", "package", "--optimize", "size", "--dim", "batch=1"]
    assert intaglio(*words).code == 0
    assert Package.load(tmp_path / "p").manifest.options == {"optimize": "size", "dims": "batch=1"}


SPOKEN = {
    "`--shape x=1,3` contradicts the model": "`shapes={'x': (1, 3)}` contradicts the model",
    "set it with `--dim NAME=N`": "set it with `dims={'NAME': N}`",
    "`--dim T=1..N` or `--shape x=1,N`": "`dims={'T': (1, N)}` or `shapes={'x': (1, N)}`",
    "`--dim s1=..` takes them": "`dims={'s1': '..'}` takes them",
    "`--ram` allows 1,024": "`ram` allows 1,024",
    "`--ram 64K`, `--feed-rows` or `--weights read`": "`ram='64K'`, `feed_rows=True` or `weights='read'`",
    "`--stream 1` and `--max-error E`": "`stream=1` and `max_error=E`",
    "`--accelerator a --ram 4K`": "`accelerators='a', ram='4K'`",
    "`intaglio boards --json` lists all; `--explain` says why": "`intaglio boards --json` lists all; `--explain` says why",
}


@pytest.mark.parametrize("text", SPOKEN)
def test_messages_speak_of_keywords_to_python(text: str) -> None:
    assert in_python(text) == SPOKEN[text]


def test_errors_of_a_compile_from_python_name_keywords(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"`shapes=\{'image': \(1, 3\)\}` contradicts the model") as found:
        compile_package(DIGITS, output=tmp_path / "p", shapes={"image": (1, 3)})
    assert "--" not in found.value.hint
