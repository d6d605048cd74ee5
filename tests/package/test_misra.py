"""C for a safety reviewer: cppcheck with its MISRA addon, gcc's analyser, clang-tidy. Skipped where they are not installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import intaglio as api
from intaglio.package.misra import ADVISORY
from support.building import needs_gcc
from support.commands import DIGITS, Intaglio
from support.slow import quick_where
from support.small_networks import images, keywords

needs_cppcheck = pytest.mark.skipif(shutil.which("cppcheck") is None, reason="there is no cppcheck here")
needs_tidy = pytest.mark.skipif(shutil.which("clang-tidy") is None, reason="there is no clang-tidy here")
# Left out: parameters of one type beside each other, which layers have; the order of a struct whose parts have cache lines.
TIDY = "-*,bugprone-*,cert-*,clang-analyzer-*,-bugprone-easily-swappable-parameters,-clang-analyzer-optin.performance.Padding"
TARGETS = ("generic", "cortex-m0+", "cortex-m4f")
APART = ("_serial", "_profile", "_selftest")
HARMLESS = (  # of cppcheck itself: each was looked at
    "knownConditionTrueFalse",  # borders that one shape does not have
    "unusedStructMember",  # a union gives alignment
    "shiftTooManyBitsSigned",  # `x >> 31` is the sign, on purpose
    "unreadVariable", "variableScope", "constParameter", "constParameterPointer", "unusedFunction",
)  # fmt: skip


def compiled(network: Callable[[], bytes] | None, target: str, folder: Path) -> Path:
    model = DIGITS
    if network is not None:
        model = folder / "net.tflite"
        model.write_bytes(network())
    return api.compile(model, output=folder / "p", target=target, style="misra").folder


def sources(folder: Path) -> list[Path]:
    return [p for p in sorted((folder / "src").glob("*.c")) if not p.stem.endswith(APART) and "weights" not in p.stem]


def findings(folder: Path) -> set[tuple[str, str]]:
    """Rule or kind, and file."""
    words = ["cppcheck", "--addon=misra", "--enable=warning,style,performance,portability", "--std=c99", "--platform=unix32", "-q"]
    words += [f"-I{folder / 'include'}", f"-I{folder / 'src'}", "--suppress=missingIncludeSystem"]
    done = subprocess.run(
        [*words, "--template={id} {file}", *map(str, sources(folder))], check=False, capture_output=True, text=True, timeout=600
    )
    found = set()
    for line in done.stderr.splitlines():
        kind, _, path = line.partition(" ")
        if Path(path).is_relative_to(folder):
            found.add((kind, Path(path).relative_to(folder).as_posix()))
    return found


def deviations(folder: Path) -> set[tuple[str, str]]:
    told, rules = set(), list[str]()
    for line in (folder / "MISRA.md").read_text().splitlines():
        if head := re.match(r"## ([\d., ]+):", line):
            rules = head[1].split(", ")
        elif place := re.match(r"- `([^`]+)`: lines \d+", line):
            told |= {(rule, place[1]) for rule in rules}
    return told


def check(folder: Path) -> int:
    advisory = {rule for rules, _ in ADVISORY for rule in rules.split(", ")}
    found, told = findings(folder), deviations(folder)
    required = {(kind.removeprefix("misra-c2012-"), file) for kind, file in found if kind.startswith("misra-")}
    required = {(rule, file) for rule, file in required if rule not in advisory}
    assert required - told == set()
    assert {kind for kind, _ in found if not kind.startswith("misra-")} - {*HARMLESS} == set()
    return len(required)


@needs_cppcheck
def test_required_rules_hold_or_are_listed(tmp_path: Path) -> None:
    assert check(compiled(images, "cortex-m4f", tmp_path)) > 3


@needs_cppcheck
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("network", [None, images, keywords], ids=["digits", "images", "keywords"])
def test_required_rules_hold_on_every_target(network: Callable[[], bytes] | None, target: str, tmp_path: Path) -> None:
    check(compiled(network, target, tmp_path))


@needs_gcc
@pytest.mark.parametrize("target", quick_where(lambda name: name != "cortex-m4f", TARGETS))
def test_the_analyser_of_gcc_finds_nothing(target: str, tmp_path: Path) -> None:
    folder = compiled(images, target, tmp_path)
    flags = ["-fanalyzer", "-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{folder / 'include'}", f"-I{folder / 'src'}"]
    for source in sources(folder):
        done = subprocess.run(["gcc", *flags, "-c", source, "-o", "/dev/null"], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_file_names_places_of_this_package(tmp_path: Path) -> None:
    folder = compiled(None, "generic", tmp_path)
    lines = (folder / "src" / "digits_kernels_0.c").read_text().splitlines()
    text = (folder / "MISRA.md").read_text()
    section = text[text.index("## 8.14") :].split("\n## ")[0]
    place = re.search(r"`src/digits_kernels_0.c`: lines (\d+)", section)
    assert place is not None
    assert "restrict" in lines[int(place[1]) - 1]
    assert "MISRA.md" in (folder / "manifest.json").read_text()


def test_the_style_is_checked(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    assert not (digits / "MISRA.md").exists()
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--style", "autosar")
    assert said.code == 2
    assert "use plain or misra" in said.err


def tidied(folder: Path, *flags: str, checks: str = TIDY, whole: bool = False) -> str:
    """`whole`: with self-tests and the like."""
    found = sorted((folder / "src").glob("*.c")) if whole else sources(folder)
    files = [*found, *sorted((folder / "src" / "app").glob("*.c"))]
    words = ["clang-tidy", "--quiet", f"-checks={checks}", *map(str, files), "--", "-std=c99", *flags]
    words += [f"-I{folder / 'include'}", f"-I{folder / 'src'}"]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=600)
    assert "error:" not in done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if re.search(r":\d+: (warning|error): ", line))


@needs_tidy
def test_clang_tidy_finds_nothing(tmp_path: Path) -> None:
    assert tidied(compiled(None, "generic", tmp_path)) == ""


@needs_tidy
@pytest.mark.slow
@pytest.mark.parametrize("network", [images, keywords], ids=["images", "keywords"])
def test_clang_tidy_finds_nothing_in_integers(network: Callable[[], bytes], tmp_path: Path) -> None:
    assert tidied(compiled(network, "generic", tmp_path)) == ""


@needs_tidy
@pytest.mark.slow
def test_clang_tidy_finds_nothing_in_a_package_with_threads_and_checks(tmp_path: Path) -> None:
    safety = "crc,step,golden,canary,slots"
    folder = api.compile(DIGITS, output=tmp_path / "p", target="x86-64-v3", threads=2, safety=safety).folder
    assert tidied(folder, "-mavx2", "-mfma") == ""


# Of the host code of OpenCL: `_XOPEN_SOURCE` is how POSIX is asked for; handles of OpenCL are pointers, whose own size is meant;
# version 14 takes a `va_list` behind `va_start` for unset.
OPENCL_TIDY = TIDY + (
    ",-bugprone-reserved-identifier,-cert-dcl37-c,-cert-dcl51-cpp,-bugprone-sizeof-expression,-clang-analyzer-valist.Uninitialized"
)


@needs_tidy
@pytest.mark.slow
def test_clang_tidy_finds_nothing_in_the_host_code_of_opencl(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--target", "opencl", "--stop-after", "package")
    assert said.code == 0, said.err
    assert tidied(tmp_path / "p", checks=OPENCL_TIDY, whole=True) == ""
