"""`--force` replaces what Intaglio wrote, known by its content, and nothing else."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.package.folder import fresh_folder
from intaglio.package.ownership import check_replaceable, file_digest
from support.commands import DIGITS, Intaglio


def package(folder: Path, **more: object) -> Path:
    """The least that a package has."""
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "m.c").write_text("int m;\n")
    files = {"src/m.c": file_digest(folder / "src" / "m.c")}
    about = {"name": "m", "target": "cortex-m4f", "intaglio": "0.1.0", "files": files, "format": 1, **more}
    (folder / "manifest.json").write_text(json.dumps({key: value for key, value in about.items() if value is not None}))
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_package_may_be_replaced(tmp_path: Path) -> None:
    check_replaceable(package(tmp_path / "p"))


WEB = '{"name": "Thesis reader", "start_url": "/", "icons": [], "files": {"thesis.tex": "/static/thesis.tex"}}'


@pytest.mark.parametrize("text", [WEB, "", "[]", "{", '{"format": 1, "name": "m", "target": "host"}', "\xff", "[" * 100_000])
def test_a_manifest_of_another_program_is_no_package(intaglio: Intaglio, tmp_path: Path, text: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "manifest.json").write_text(text, encoding="latin-1")
    (tmp_path / "site" / "thesis.tex").write_text("years of work")
    before = everything(tmp_path)
    said = intaglio("compile", DIGITS, "-o", tmp_path / "site", "--force", "--stop-after", "package")
    assert said.code == 2
    assert "error[output-exists]" in said.err and "is not a package" in said.err
    assert everything(tmp_path) == before


def test_files_that_the_manifest_does_not_know_stay(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package"]
    assert intaglio(*words).code == 0
    for name in ("a.txt", "src/mine.c", "notes/1", "notes/2", "notes/3"):
        (tmp_path / "p" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "p" / name).write_text("mine")
    before = everything(tmp_path)
    said = intaglio(*words, "--force")
    assert said.code == 2
    assert "has 5 files that Intaglio did not write: `a.txt`, `notes/1`, `notes/2`, `notes/3`, ..." in said.err
    assert "move them away, or" in said.err
    assert everything(tmp_path) == before


def test_a_link_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (package(tmp_path / "p") / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="1 file that Intaglio did not write: `link`") as caught:
        check_replaceable(tmp_path / "p")
    assert caught.value.hint.startswith("move it away, or")


def test_a_file_that_was_edited_stays(tmp_path: Path) -> None:
    (package(tmp_path / "p") / "src" / "m.c").write_text("int m; /* and a day of work */\n")
    with pytest.raises(UserError, match=r"1 file edited since Intaglio wrote the package: `src/m\.c`"):
        check_replaceable(tmp_path / "p")


@pytest.mark.parametrize("files", [None, ["src/m.c"], {"src/m.c": "1"}])
def test_a_manifest_without_a_list_of_files_is_refused(tmp_path: Path, files: object) -> None:
    with pytest.raises(UserError, match="does not list the files of one"):
        check_replaceable(package(tmp_path / "p", files=files))


CACHES = ["m.clbin", "m.clbin.lock", "m.clbin.tmp.77", "m.clbin.loading.0a"]
OF_MAKE = ["app/m.c.o", "src/libc/m.S.o", "m.d", "libm.a", "libm.so", "libm.so.1", "m", "m.exe", "m.elf", "m.bin", "m.hex", "m.map"]
OF_CMAKE = [
    "CMakeCache.txt", "CMakeFiles/3.28/CompilerIdC/a.out", "CMakeFiles/CMakeOutput.log", "cmake_install.cmake", "Makefile",
    "debug/CMakeCache.txt", "build.ninja", ".ninja_log", ".ninja_deps", "compile_commands.json", "CTestTestfile.cmake",
    "install_manifest.txt", "Testing/Temporary/LastTest.log", "Testing/Temporary/CTestCostData.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", [*CACHES, *(f"build/{name}" for name in (*OF_MAKE, *OF_CMAKE))])
def test_what_building_and_running_leave_is_known(tmp_path: Path, name: str) -> None:
    left = package(tmp_path / "p") / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("x")
    check_replaceable(tmp_path / "p")


OTHERS = ["own/build/thesis.txt", "m.txt", "m/thesis.txt", "libm.a/thesis.txt", "results.bin", "notes.log", "src/m.c", ".o"]


@pytest.mark.parametrize(
    "name", ["builds/m.o", "other.clbin", "m.clbin.txt", "src/build/m.o", "build", *(f"build/{name}" for name in OTHERS)]
)
def test_what_only_looks_so_is_not(tmp_path: Path, name: str) -> None:
    left = package(tmp_path / "p") / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("x")
    with pytest.raises(UserError, match="did not write"):
        check_replaceable(tmp_path / "p")


def test_a_combined_firmware_is_ours(tmp_path: Path) -> None:
    check_replaceable(package(tmp_path / "p", intaglio=None, models=["a", "b"], format="combined 1"))


def test_a_package_that_was_built_run_and_profiled_is_replaced(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p"]
    assert intaglio(*words).code == 0
    subprocess.run(["make", "-C", tmp_path / "p", "CFLAGS=-O0", "test"], check=True, capture_output=True)
    assert intaglio("run", tmp_path / "p", "--input", tmp_path / "p" / "test" / "in0.npy").code == 0
    assert intaglio("validate", tmp_path / "p", "--layers").code == 0
    assert intaglio("profile", tmp_path / "p", "--runs", "1").code == 0
    assert (tmp_path / "p" / "build").is_dir()
    assert intaglio(*words, "--force", "--stop-after", "package").code == 0
    assert not (tmp_path / "p" / "build").exists()


def test_files_that_appear_while_it_compiles_stay(tmp_path: Path) -> None:
    package(tmp_path / "p")

    def replace() -> None:
        with fresh_folder(tmp_path / "p", force=True) as fresh:
            (fresh / "new").write_text("new")
            (tmp_path / "p" / "late.txt").write_text("mine")

    with pytest.raises(UserError, match=r"late\.txt"):
        replace()
    assert (tmp_path / "p" / "late.txt").read_text() == "mine"


@pytest.mark.parametrize("format", ["tar.gz", "zip"])
def test_an_archive_of_ours_is_replaced_and_no_other(intaglio: Intaglio, tmp_path: Path, format: str) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--force"]
    words += ["--archive", "--archive-format", format]
    assert intaglio(*words).code == 0
    assert intaglio(*words).code == 0
    (tmp_path / f"p.{format}").write_text("a diary")
    said = intaglio(*words)
    assert said.code == 2 and "is not the archive of a package" in said.err
    assert (tmp_path / f"p.{format}").read_text() == "a diary"


def test_an_archive_with_more_in_it_stays(intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--archive", "--force"]
    assert intaglio(*words).code == 0
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "p", "p")
        archive.addfile(tarfile.TarInfo("p/thesis.tex"), io.BytesIO())
    said = intaglio(*words)
    assert said.code == 2 and "1 file that Intaglio did not write: `p/thesis.tex`" in said.err


Words = Callable[[Path], list[str | Path]]
OUTPUT: Words = lambda place: ["--stop-after", "optimise", "-o", place / "d.ig"]
FOLDER: Words = lambda place: ["--stop-after", "optimise", "-o", place]


@pytest.mark.parametrize(("name", "words"), [("d.ig", OUTPUT), ("digits.ig", FOLDER)])
def test_an_ir_file_replaces_an_ir_file_and_no_other(intaglio: Intaglio, tmp_path: Path, name: str, words: Words) -> None:
    assert intaglio("compile", DIGITS, *words(tmp_path)).code == 0
    assert intaglio("compile", DIGITS, *words(tmp_path)).code == 0
    (tmp_path / name).write_text("a diary")
    said = intaglio("compile", DIGITS, *words(tmp_path))
    assert said.code == 2 and "is not an IR file" in said.err
    assert (tmp_path / name).read_text() == "a diary"


def test_weights_that_belong_to_no_ir_file_stay(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "d.safetensors").write_text("weights of a large model")
    said = intaglio("compile", DIGITS, "--stop-after", "optimise", "-o", tmp_path / "d.ig")
    assert said.code == 2 and "belongs to no IR file" in said.err
    assert [p.name for p in tmp_path.iterdir()] == ["d.safetensors"]


def test_a_folder_of_dumped_ir_keeps_other_files(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "01-import.ig").write_text("a diary")
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--stop-after", "package", "--dump-ir", tmp_path / "dump"]
    said = intaglio(*words)
    assert said.code == 2 and "is not an IR file" in said.err
    assert everything(tmp_path) == {"dump/01-import.ig": b"a diary"}


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("view", "IR", "-o"), "a view that Intaglio wrote"),
        (("fit", DIGITS, "--target", "cortex-m4f", "--quick", "--plot"), "a picture"),
        (("fit", DIGITS, "--quick", "--plot"), "a picture"),
        (("compile", DIGITS, "-o", "IR", "--stop-after", "memory", "--export-plan"), "a plan of buffers"),
        (("report", "PACKAGE", "-o"), "a page"),
        (("run", "PACKAGE", "--input", "INPUT", "--output"), "a file of arrays"),
    ],
)
def test_an_output_of_one_file_replaces_its_own_kind_and_no_other(
    intaglio: Intaglio, digits: Path, tmp_path: Path, words: tuple[str | Path, ...], kind: str
) -> None:
    places: dict[str | Path, Path] = {"IR": digits / "ir" / "digits.ig", "PACKAGE": digits, "INPUT": digits / "test" / "in0.npy"}
    if "compile" in words:
        places["IR"] = tmp_path / "new.ig"
    (tmp_path / "mine").write_bytes(DIGITS.read_bytes())
    said = intaglio(*[places.get(word, word) for word in words], tmp_path / "mine")
    assert said.code == 2
    assert f"error[output-exists]: `{tmp_path / 'mine'}` exists and is not {kind}" in said.err
    assert everything(tmp_path) == {"mine": DIGITS.read_bytes()}


def test_a_view_stays_away_from_the_model_and_replaces_a_view(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(DIGITS.read_bytes())
    assert intaglio("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.ig", "--stop-after", "import").code == 0
    assert "is not a view" in intaglio("view", tmp_path / "m.ig").err
    assert (tmp_path / "m.onnx").read_bytes() == DIGITS.read_bytes()
    for _ in range(2):
        assert intaglio("view", tmp_path / "m.ig", "-o", tmp_path / "v.onnx").code == 0
