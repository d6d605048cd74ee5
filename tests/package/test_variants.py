"""`--variants`: one library with code for several processors, of which the first run picks one."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import UserError
from intaglio.ir.graph import Array
from intaglio.package.processor import BITS, WORDS, needed_bits
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import all_targets, find_target, host_target, lacking, runs_here
from intaglio.targets.variants import variants_of
from support.building import needs_gcc
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved, value
from support.small_networks import keywords
from support.strict import strict_flags

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="variants of x86-64 need such a processor")
NAMES = ["x86-64-avx512vnni", "x86-64-v4", "x86-64-avxvnni", "x86-64-v3", "x86-64-v2", "x86-64"]
HERE = [name for name in NAMES if runs_here(find_target(name))]
X = {"in0": np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8) % 17}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """With warnings as errors, and every variant there is."""
    flags = strict_flags(find_toolchain(None).kind)
    folder = tmp_path_factory.mktemp("variants") / "p"
    return intaglio.compile(
        DIGITS, output=folder, target="x86-64", variants="v2,v3,v4,avxvnni,avx512vnni", cflags=flags, archive=True
    )


def only(results: dict[str, Array]) -> Array:
    (array,) = results.values()
    return array


def application(package: Package, *words: str | Path, start: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*start, package.folder / "bin" / package.name, *words]
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def test_the_manifest_lists_the_best_first_and_the_target_last(digits: Package) -> None:
    assert [info.target for info in digits.manifest.variants] == NAMES
    assert digits.manifest.target == "x86-64"
    assert digits.manifest.memory.arena_bytes == max(info.arena_bytes for info in digits.manifest.variants)
    assert digits.variant is not None and digits.manifest.layers == digits.variant.layers


def test_the_library_itself_picks_what_host_is_here(digits: Package) -> None:
    library = ctypes.CDLL(str(shutil.copyfile(digits.folder / "lib" / "libdigits.so", digits.folder.parent / "fresh.so")))
    library.digits_variant.restype = ctypes.c_char_p
    assert library.digits_variant().decode() == HERE[0] == host_target().name
    for name in NAMES:
        code = library.digits_use_variant(name.encode())
        assert (code == 0) == (name in HERE)
        assert library.digits_variant().decode() == (name if name in HERE else HERE[0])
        library.digits_use_variant(None)
    assert library.digits_use_variant(b"x86-64-v9") == 22
    assert library.digits_variant().decode() == HERE[0]


@pytest.mark.parametrize("name", ["x86-64", HERE[0]])
def test_a_variant_computes_what_a_package_for_its_target_computes(name: str, digits: Package) -> None:
    alone = intaglio.compile(DIGITS, target=name, library_only=True)
    np.testing.assert_array_equal(only(Package.load(digits.folder, variant=name).run(X)), only(alone.run(X)))


def test_two_objects_of_one_package_keep_their_variants(digits: Package) -> None:
    packages = [Package.load(digits.folder, variant=name) for name in HERE]
    first = [only(package.run(X)) for package in packages]
    for package, result in zip(packages, first, strict=True):
        np.testing.assert_array_equal(only(package.run(X)), result)
    np.testing.assert_array_equal(only(digits.run(X)), first[0])


def test_validate_runs_what_this_machine_can_run_and_tells_the_rest(digits: Package, intaglio: Intaglio) -> None:
    said = intaglio("validate", digits.folder)
    assert said.code == 0
    for name in NAMES:
        missing = lacking(find_target(name))
        told = f"variant {name}: NOT validated, this machine lacks {', '.join(missing)}" if missing else f"variant {name}: pass"
        assert told in said.out
    rows = intaglio("validate", digits.folder, "--json").json["variants"]
    assert {row["variant"]: row["ok"] for row in rows} == {name: True if name in HERE else None for name in NAMES}


@pytest.mark.slow
def test_a_wrong_variant_is_found(digits: Package, tmp_path: Path) -> None:
    """The weights of the baseline alone are damaged: its result is wrong, and so the answer for the package."""
    folder = tmp_path / "p"
    shutil.copytree(digits.folder, folder)
    text = (folder / "src" / "x86-64" / "digits_on_x86_64_weights.h").read_text()
    source = folder / "src" / "x86-64" / "digits_on_x86_64_weights.h"
    source.write_text(re.sub(r"W_dense_bias\n", "W_conv2_bias\n", text, count=1))
    assert source.read_text() != text
    subprocess.run(["make", "CFLAGS=-O1"], cwd=folder, check=True, capture_output=True)
    shutil.copyfile(folder / "build" / "libdigits.so", folder / "lib" / "libdigits.so")
    result = Package.load(folder).validate()
    assert not result.ok
    assert [row.variant for row in result.variants if row.ok is False] == ["x86-64"]


def test_the_application_takes_a_variant(digits: Package) -> None:
    for name in HERE:
        assert application(digits, "--variant", name, "--selftest").returncode == 0
        assert application(digits, "--variant", name.rpartition("-")[2], "--selftest").returncode == 0, "as `--variants` takes it"
    absent = application(digits, "--variant", "x86-64-v9", "--selftest")
    assert absent.returncode == 2 and "the processor cannot run it" in absent.stderr
    assert f"in use here   {HERE[0]}" in application(digits, "--info").stdout


@pytest.mark.slow
def test_profile_takes_a_variant(digits: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", digits.folder, "--runs", "1", "--variant", "x86-64", "--json")
    assert said.json["target"] == "x86-64" and all(layer["time_ms"] > 0 for layer in said.json["layers"])


def test_constants_that_are_the_same_stand_once(digits: Package) -> None:
    text = (digits.folder / "src" / "digits_weights.h").read_text()
    assert text.count("conv1_bias ") == text.count("dense_bias ") + 1  # AVX-512 pads it to sixteen lanes
    assert digits.manifest.memory.weight_bytes < sum(info.weight_bytes for info in digits.manifest.variants) / 2
    assert "#define DIGITS_ON_V3_W_dense_bias DIGITS_W_dense_bias" in (
        digits.folder / "src" / "v3" / "digits_on_v3_weights.h"
    ).read_text()


def test_the_other_networks_symbols_stay_free(digits: Package) -> None:
    listed = subprocess.run(["nm", digits.folder / "lib" / "libdigits.a"], capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in listed.splitlines() if re.search(r" [TDBR] ", line)]
    assert len(defined) > 20 and len(defined) == len(set(defined))
    assert [name for name in defined if not name.startswith("digits_")] == []


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_make_compiles_each_variant_with_its_own_flags(digits: Package) -> None:
    words = ["make", "-n", "TARGET_FLAGS=-march=x86-64"]
    done = subprocess.run(words, cwd=digits.folder, capture_output=True, text=True, check=True)
    for folder, flags in (("v3", "-march=x86-64-v3"), ("avx512vnni", "-march=x86-64-v4 -mavx512vnni"), ("x86-64", "-march=x86-64")):
        (line,) = [line for line in done.stdout.splitlines() if f"-c src/{folder}/digits_on_{folder.replace('-', '_')}.c " in line]
        assert f" {flags} -Iinclude" in line


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake here")
def test_make_and_cmake_build_it_anywhere(digits: Package, tmp_path: Path) -> None:
    shutil.copytree(digits.folder, tmp_path / "p")
    subprocess.run(["make", "test"], cwd=tmp_path / "p", check=True, capture_output=True)
    subprocess.run(["make", "clean"], cwd=tmp_path / "p", check=True, capture_output=True)
    for command in (["cmake", "-B", "build", "."], ["cmake", "--build", "build"], ["ctest", "--test-dir", "build"]):
        subprocess.run(command, cwd=tmp_path / "p", check=True, capture_output=True)


@needs_gcc
@pytest.mark.parametrize("kind", ["gcc", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("clang", "zig"))])
def test_integers_with_threads_are_the_same_in_every_variant(kind: str, tmp_path: Path) -> None:
    if kind == "clang" and shutil.which("clang") is None:
        pytest.skip("there is no clang here")
    source = tmp_path / "net.tflite"
    source.write_bytes(keywords())
    package = intaglio.compile(
        source, output=tmp_path / "p", target="x86-64", variants=["v3"], threads=2, cc=kind, cflags=strict_flags(kind)
    )
    (info,) = package.manifest.inputs
    x = {"in0": np.random.default_rng(4).integers(-128, 128, info.shape).astype(np.int8)}
    names = [name for name in ("x86-64", "x86-64-v3") if name in HERE]
    results = [only(Package.load(package.folder, variant=name).run(x)) for name in names]
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    assert package.validate().ok


@pytest.mark.slow
@needs_gcc
def test_every_variant_is_clean_under_sanitizers(tmp_path: Path) -> None:
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1"]
    package = intaglio.compile(DIGITS, output=tmp_path / "p", target="x86-64", variants=["v2", "v3"], cc="gcc", cflags=flags)
    for name in ("x86-64", "x86-64-v2", "x86-64-v3"):
        if name in HERE:
            done = application(package, "--variant", name, "--selftest")
            assert done.returncode == 0, done.stderr


def test_a_state_starts_and_goes_on_in_every_variant(tmp_path: Path) -> None:
    """A running mean; the caller's arena is as large as the largest of a variant's."""
    constants = {"half": np.array([0.5], np.float32)}
    nodes = [node("Add", "x h", "s"), node("Mul", "s half", "y")]
    path = saved(model(nodes, [value("x", [1, 5]), value("h", [1, 5])], [value("y", [1, 5])], constants), tmp_path, "mean.onnx")
    made = intaglio.compile(path, output=tmp_path / "p", target="x86-64", variants=["v3"], states={"h": "y"}, arena="caller")
    steps = np.random.default_rng(0).standard_normal((4, 1, 5)).astype(np.float32)
    want, h = [], np.zeros((1, 5), np.float32)
    for x in steps:
        h = (x + h) * np.float32(0.5)
        want.append(h)
    for name in ("x86-64", "x86-64-v3"):
        if name in HERE:
            got = Package.load(made.folder, variant=name).run_steps({"x": steps})
            np.testing.assert_array_equal(only(got), np.stack(want))


@needs_gcc
def test_two_networks_with_variants_are_one_program(digits: Package, tmp_path: Path) -> None:
    other = intaglio.compile(DIGITS, output=tmp_path / "p", name="other", target="x86-64", variants=["v3"])
    (tmp_path / "main.c").write_text(
        '#include "digits.h"\n#include "other.h"\n#include <string.h>\n'
        "int main(void) { static float x[64]; float y[10], z[10]; for (int i = 0; i < 64; i++) x[i] = (float)(i % 7);\n"
        '  if (other_use_variant("x86-64") || digits_use_variant("x86-64")) return 2;\n'
        "  return digits_run_one(x, y) || other_run_one(x, z) || memcmp(y, z, sizeof y) != 0; }\n"
    )
    words = [f"-I{p.folder}/include" for p in (digits, other)] + ["main.c"]
    words += [f"{p.folder}/lib/lib{p.name}.a" for p in (digits, other)]
    subprocess.run(["gcc", *words, "-lm", "-o", "program"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "program"], check=True)


HARNESS = """
#include "digits.c"
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **given)
{
    uint32_t words[digits_words];
    int i;
    for (i = 0; i < digits_words; i++)
        words[i] = (uint32_t)strtoul(given[1 + i], NULL, 16);
    for (i = 0; !digits_can_run(i, words); i++)
        continue;
    puts(digits_codes[i].name);
    return count == 1 + digits_words ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def harness(digits: Package) -> Path:
    """The program that says which variant runs on a processor with these words."""
    folder = digits.folder.parent
    (folder / "harness.c").write_text(HARNESS)
    library = folder / "others.a"
    shutil.copyfile(digits.folder / "lib" / "libdigits.a", library)
    subprocess.run(["ar", "d", library, "digits.c.o"], check=True)
    words = [f"-I{digits.folder}/include", f"-I{digits.folder}/src", "harness.c", "others.a", "-lm", "-o", "harness"]
    subprocess.run([find_toolchain(None).compiler[0], *words], cwd=folder, check=True)
    return folder / "harness"


@needs_gcc
@pytest.mark.parametrize(
    ("needs_of", "states", "picks"),
    [
        ("x86-64-avx512vnni", 0xE7, "x86-64-avx512vnni"),
        ("x86-64-v4", 0xE7, "x86-64-v4"),
        ("x86-64-v4", 0x07, "x86-64-v3"),  # the operating system does not save AVX-512's registers
        ("x86-64-avx512vnni", 0x01, "x86-64-v2"),  # nor those of AVX
        ("x86-64-avxvnni", 0x07, "x86-64-avxvnni"),
        ("x86-64-v3", 0x07, "x86-64-v3"),
        ("x86-64-v2", 0x00, "x86-64-v2"),
        ("x86-64", 0x00, "x86-64"),
    ],
)
def test_the_best_for_a_processor_and_its_operating_system(needs_of: str, states: int, picks: str, harness: Path) -> None:
    bits = dict(zip(WORDS["x86_64"], needed_bits("x86_64", find_target(needs_of).needs), strict=True)) | {"states": states}
    done = subprocess.run([harness, *(f"{word:x}" for word in bits.values())], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == picks


def test_every_need_of_a_target_has_a_bit() -> None:
    for target in all_targets().values():
        if target.arch in WORDS:
            assert all(BITS[name][0] in WORDS[target.arch] for name in target.needs), target.name


@needs_gcc
def test_bits_are_those_of_the_compilers_header(tmp_path: Path) -> None:
    """gcc and clang name them in <cpuid.h>."""
    names = {"abm": "LZCNT", "cx16": "CMPXCHG16B", "bmi1": "BMI", "avx512_vnni": "AVX512VNNI", "avx_vnni": "AVXVNNI"}
    bits = [(names.get(n, n.upper()), bit) for n, (word, bit) in BITS.items() if word in WORDS["x86_64"]]
    text = "#include <cpuid.h>\n" + "".join(f"typedef char is_{n}[bit_{n} == 1u << {bit} ? 1 : -1];\n" for n, bit in bits)
    (tmp_path / "bits.c").write_text(text)
    subprocess.run(["gcc", "-fsyntax-only", "bits.c"], cwd=tmp_path, check=True)


@pytest.mark.skipif(shutil.which("qemu-x86_64-static") is None, reason="qemu-x86_64-static is not installed")
@pytest.mark.parametrize(("processor", "picks"), [("core2duo", "x86-64"), ("Nehalem", "x86-64-v2"), ("max", "x86-64-v3")])
def test_other_processors_by_emulation(processor: str, picks: str, digits: Package) -> None:
    start = ("qemu-x86_64-static", "-cpu", processor)
    assert f"in use here   {picks}" in application(digits, "--info", start=start).stdout
    assert application(digits, "--selftest", start=start).returncode == 0


LIMITED = ("compile", DIGITS, "--target", "x86-64", "--variants", "v3", "--stop-after", "package", "-o")


def test_flash_is_that_of_all_variants(intaglio: Intaglio, tmp_path: Path) -> None:
    short = intaglio(*LIMITED, tmp_path / "p", "--flash", "12K")
    assert short.code == 1 and "`digits` needs at least" in short.err


@pytest.mark.slow
def test_ram_is_that_of_the_largest(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio(*LIMITED, tmp_path / "p", "--ram", "2K", "--json")
    assert said.json["arena_bytes"] == max(row["arena_bytes"] for row in said.json["variants"]) <= 2048
    assert intaglio(*LIMITED, tmp_path / "q", "--ram", "64").code == 1


def test_a_variant_needs_more_than_its_target() -> None:
    names = [v.name for v in variants_of(find_target("x86-64-v3"), ("v4", "x86-64-avxvnni", "v3"), "net")]
    assert names == ["x86-64-v4", "x86-64-avxvnni", "x86-64-v3"]
    with pytest.raises(UserError, match="`x86-64-v3` has no variant `v2`"):
        variants_of(find_target("x86-64-v3"), ("v2",), "net")
    with pytest.raises(UserError, match="`--target x86-64` has more"):
        variants_of(find_target("x86-64-v3"), ("v2",), "net")
    assert variants_of(find_target("x86-64"), (), "net") == ()


def test_a_package_that_is_up_to_date_stays(tmp_path: Path, intaglio: Intaglio) -> None:
    words: list[str | Path] = ["compile", DIGITS, "-o", tmp_path / "p", "--target", "x86-64", "--stop-after", "package"]
    words.append("--variants")
    assert "weights that each variant reads" in intaglio(*words, "v2").out
    assert "is up to date" in intaglio(*words, "v2").out
    assert "exists" in intaglio(*words, "v3").err
