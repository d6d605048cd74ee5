"""Weights that are not mapped: read before each layer, while the one before is at work."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from intaglio import compile
from intaglio.errors import OurFault
from intaglio.ir.graph import Graph
from intaglio.ir.text import parse_graph, print_graph
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.regions import Room
from intaglio.memory.weights_read import file_offsets, plan_reads
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.commands import DIGITS, DIGITS_DATA, Intaglio
from support.firmware_running import firmware, package_selftest
from support.ir_text import graph_of
from support.placing import at, move, move_slot
from support.random_graphs import graphs
from support.slow import quick_where
from support.strict import CLANG

TARGET = find_target("cortex-m4f")
_TWICE = """
    input x: f32[1,64]
    const w: f32[64,64] ...
    const u: f32[64,64] ...
    a: f32[1,64] = matmul(x, w)
    b: f32[1,64] = matmul(a, u)
    c: f32[1,64] = matmul(b, w)
    output c
"""


def read_program(graph: Graph, *, slots: bool = True, rooms: tuple[Room, ...] = ()) -> Program:
    graph.weights = "read"
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET, slots=slots, rooms=rooms)
    return program


def test_weights_live_from_the_layer_before_to_their_own() -> None:
    program = read_program(graph_of(_TWICE))
    reads = plan_reads(program)
    assert [(r.layer, r.first, r.last) for r in reads] == [(0, 0, 0), (1, 0, 1), (2, 1, 2)]
    assert reads[2].fresh == () and reads[2].places == reads[0].places  # the same weights as those of layer 0
    offsets, end = file_offsets(program, 64)
    assert len(offsets) == 3 and end == 64 + 2 * 64 * 64 * 4 + 64 * 4  # two of weights, one of zeros


def test_the_text_says_that_weights_are_read() -> None:
    program = read_program(graph_of(_TWICE))
    text = print_graph(program.graph)
    assert " weights=read\n" in text
    arrays = {v.name: v.data for v in program.graph.values() if v.data is not None}
    assert print_graph(parse_graph(text, arrays)) == text


def test_the_checker_finds_weights_that_are_overwritten() -> None:
    program = read_program(graph_of(_TWICE))
    check(program)
    for slot, says in ((("weights", 1), "are in the same place"), (("weights", 2), "are in the same place")):
        right = program.placement
        move_slot(program, slot, right.slots["weights", slot[1] - 1])
        with pytest.raises(OurFault, match=says):
            check(program)
        program.placement = right
    move_slot(program, ("weights", 0), program.placement.slots["input", 0])
    with pytest.raises(OurFault, match="the weights of layer 0 `a` and `x` are in the same place"):
        check(program)
    move_slot(program, ("weights", 0), at("arena", program.arena_bytes))
    with pytest.raises(OurFault, match="lies outside of the arena"):
        check(program)
    fewer = {slot: place for slot, place in program.placement.slots.items() if slot != ("weights", 0)}
    program.placement = replace(program.placement, slots=fewer)
    with pytest.raises(OurFault, match="have no place"):
        check(program)


def test_the_checker_finds_weights_on_a_value_that_is_read_by_another_name() -> None:
    """What a layer wrote is alive until its view is read for the last time."""
    text = _TWICE.replace("c: f32[1,64] = matmul(b, w)", "v: f32[64] = reshape(a, shape=(64))\n    c: f32[1,64] = mul(v, b)")
    program = read_program(graph_of(text.replace("matmul(x, w)", "exp(x)").replace("const w: f32[64,64] ...", "")))
    check(program)
    end = program.arena_bytes
    program.placement = replace(program.placement, arena_bytes=2 * end)
    for value in [v for v in program.graph.values() if v.name in "av"]:
        move(program, value, at("arena", end))
    check(program)
    move_slot(program, ("weights", 1), at("arena", end + 192))
    with pytest.raises(OurFault, match=r"the weights of layer 1 `b` and `[av]` are in the same place"):
        check(program)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_any_graph_has_a_sound_plan(graph: Graph) -> None:
    read_program(graph)  # checked inside


@pytest.mark.parametrize("words", [{}, {"arena": "caller", "io": "caller"}], ids=str)
@pytest.mark.parametrize("target", ["cortex-m4f", *(pytest.param(t, marks=pytest.mark.slow) for t in ("cortex-m0+", "rv32imc"))])
def test_on_the_emulated_core(target: str, words: dict[str, str], tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "out", target=target, weights="read", **words)
    mapped = firmware(DIGITS, tmp_path / "mapped", target=target, **words)
    x = {"in0": np.load(DIGITS_DATA)["image"][:1]} if "image" in np.load(DIGITS_DATA) else {}
    x = x or {"in0": np.random.default_rng(0).normal(size=made.manifest.inputs[0].shape).astype(np.float32)}
    assert made.run(x)["probabilities"].tobytes() == mapped.run(x)["probabilities"].tobytes()
    assert made.validate().ok and package_selftest(made)[0] == 0
    assert {p.value for layer in made.manifest.layers for p in layer.memory} >= {"weights", "scores"}
    info = made.manifest.firmware
    assert info is not None and info.weights_file == "weights/digits_weights.bin" and info.code_bytes < 16384


@pytest.mark.slow
def test_with_two_memories(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        '[[memory]]\nname = "flash"\nkind = "flash"\naddress = 0x08000000\nbytes = 65536\nholds = ["code"]\n'
        '[[memory]]\nname = "spi"\nkind = "flash"\nbytes = 65536\nmapped = false\n'
        '[[memory]]\nname = "fast"\nkind = "ram"\naddress = 0x20000000\nbytes = 5120\nbytes_per_cycle = 8\nholds = ["arena"]\n'
        '[[memory]]\nname = "slow"\nkind = "ram"\naddress = 0x24000000\nbytes = 65536\n'
    )
    made = firmware(DIGITS, tmp_path / "out", target="cortex-m7", weights="read", memory=tmp_path / "m.toml")
    assert len(made.manifest.memory.arenas) == 2 and made.validate().ok
    regions = {p.region for layer in made.manifest.layers for p in layer.memory if p.value == "weights"}
    assert regions <= {"arena", "arena:slow"}


_READER = """
#include <stdio.h>
#include <string.h>
#include "digits.h"
static FILE *file;
static size_t offsets[64], counts[64];
static void *places[64];
static int pending, most, reads;
int digits_read(size_t offset, void *dst, size_t n)
{
    reads++;
    return fseek(file, (long)offset, SEEK_SET) != 0 || fread(dst, 1, n, file) != n;
}
int digits_read_start(size_t offset, void *dst, size_t n)
{
    if (!LAZY)
        return digits_read(offset, dst, n);
    memset(dst, 0x7f, n); /* whatever was here is gone; what comes is not here yet */
    offsets[pending] = offset;
    places[pending] = dst;
    counts[pending++] = n;
    most = pending > most ? pending : most;
    return FAIL;
}
int digits_read_wait(void)
{
    int failed = 0;
    for (; pending > 0; pending--)
        failed |= digits_read(offsets[pending - 1], places[pending - 1], counts[pending - 1]);
    return failed;
}
int main(int count, char **words)
{
    static float x[DIGITS_INPUT_IMAGE_ELEMENTS], y[DIGITS_OUTPUT_PROBABILITIES_ELEMENTS];
    file = fopen(words[count - 1], "rb");
    for (size_t i = 0; i < DIGITS_INPUT_IMAGE_ELEMENTS; i++)
        x[i] = (float)(i % 16);
    printf("%d %d", digits_weights_check(), digits_run_one(x, y));
    for (size_t i = 0; i < DIGITS_OUTPUT_PROBABILITIES_ELEMENTS; i++)
        printf(" %.9g", (double)y[i]);
    return 0;
}
"""


def test_a_reader_of_the_user_s_that_is_late_one_that_is_early_and_one_that_fails(tmp_path: Path) -> None:
    """What arrives only when it is waited for, and what is there at once, give the same: the memory is nobody else's meanwhile."""
    made = compile(DIGITS, output=tmp_path / "out", weights="read", cflags=CLANG)
    said = {}
    for name, flags in {"early": ("0", "0"), "late": ("1", "0"), "failing": ("1", "1")}.items():
        (tmp_path / "reader.c").write_text(_READER)
        toolchain = find_toolchain()
        command: list[str | Path] = [*toolchain.compiler, f"-DLAZY={flags[0]}", f"-DFAIL={flags[1]}", "-I", made.folder / "include"]
        command += [tmp_path / "reader.c", made.folder / "lib" / "libdigits.a", "-lm", "-o", tmp_path / name]
        subprocess.run(command, check=True, capture_output=True, env=toolchain.environment())
        file = made.folder / "weights" / "digits_weights.bin"
        said[name] = subprocess.run([tmp_path / name, file], capture_output=True, text=True, check=True).stdout.split()
    assert said["early"][:2] == ["0", "0"] and said["late"] == said["early"] and said["failing"][:2] == ["0", "20"]
    mapped = compile(DIGITS, output=tmp_path / "mapped")
    x = (np.arange(mapped.manifest.inputs[0].bytes // 4) % 16).astype(np.float32).reshape(mapped.manifest.inputs[0].shape)
    np.testing.assert_array_equal(np.array(said["late"][2:], np.float32), mapped.run({"in0": x})["probabilities"].reshape(-1))


def test_where_there_is_an_operating_system(intaglio: Intaglio, tmp_path: Path) -> None:
    made = compile(DIGITS, output=tmp_path / "out", weights="read", cflags=CLANG)
    assert made.validate(layers=True).ok
    assert subprocess.run([made.folder / "bin" / "digits", "--selftest"], capture_output=True).returncode == 0
    file = made.folder / "weights" / "digits_weights.bin"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    said = intaglio("validate", made.folder)
    assert said.code == 2 and "error[weights-damaged]" in said.err and "hint: " in said.err
    ran = subprocess.run([made.folder / "bin" / "digits", "--selftest"], capture_output=True, text=True)
    assert ran.returncode == 2 and "is damaged" in ran.stderr
    file.unlink()
    assert intaglio("run", made.folder, "--input", DIGITS_DATA).code == 2


def test_an_output_that_is_a_constant_is_read_too(tmp_path: Path) -> None:
    from support.onnx_models import model, node, saved, value

    constant = np.arange(4, dtype=np.float32)
    proto = model(
        [node("Add", "x c", "y"), node("Identity", "c", "z")], inputs=[value("x", [4])], outputs=[value("y", [4]), value("z", [4])],
        constants={"c": constant},
    )  # fmt: skip
    made = firmware(saved(proto, tmp_path), tmp_path / "out", target="cortex-m4f", weights="read", name="net")
    found = made.run({"x": np.ones(4, np.float32)})
    assert found["z"].tolist() == [0, 1, 2, 3] and found["y"].tolist() == [1, 2, 3, 4]


WRONG = [
    (["--weights", "red"], "unknown value `red` of `--weights`"),
    (["--weights", "read", "--weights-section", ".x"], "`--weights read` cannot be combined with an address or a section"),
    (["--weights", "read", "--feed-rows"], "`--weights read` and `--feed-rows` cannot be combined"),
]


@pytest.mark.parametrize(("words", "says"), WRONG, ids=[" ".join(w[0]) for w in WRONG])
def test_words_that_cannot_be(words: list[str], says: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "out", "--target", "cortex-m4f", *words)
    assert said.code == 2 and says in said.err and "hint: " in said.err


@pytest.mark.slow
def test_a_file_that_is_too_large_for_its_memory(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(
        '[[memory]]\nname = "flash"\nkind = "flash"\naddress = 0x08000000\nbytes = 65536\n'
        '[[memory]]\nname = "spi"\nkind = "flash"\nbytes = 4096\nmapped = false\n'
        '[[memory]]\nname = "ram"\nkind = "ram"\naddress = 0x24000000\nbytes = 65536\n'
    )
    words = ("--target", "cortex-m7", "--weights", "read", "--memory", tmp_path / "m.toml")
    said = intaglio("compile", DIGITS, "-o", tmp_path / "out", *words)
    assert said.code == 1 and "are a file of 7,656 bytes, `spi` has 4,096: 3,560 too many" in said.err and "hint: " in said.err


@pytest.mark.slow
def test_packages_that_read_are_not_combined(intaglio: Intaglio, tmp_path: Path) -> None:
    for name in ("first", "second"):
        firmware(DIGITS, tmp_path / name, name=name, target="cortex-m4f", weights="read", arena="caller")
    said = intaglio("link", tmp_path / "first", tmp_path / "second", "-o", tmp_path / "both")
    assert said.code == 2 and "reads its weights" in said.err


def dense_model(folder: Path) -> Path:
    from support.onnx_models import model, node, saved, value

    rng = np.random.default_rng(3)
    constants = {"w": rng.normal(size=(96, 300)), "b": rng.normal(size=300), "u": rng.normal(size=(300, 10))}
    nodes = [node("Gemm", "x w b", "a"), node("Relu", "a", "h"), node("MatMul", "h u", "y")]
    proto = model(nodes, inputs=[value("x", [1, 96])], constants={n: a.astype(np.float32) for n, a in constants.items()})
    return saved(proto, folder)


@pytest.mark.parametrize("target", quick_where(lambda name: name != "cortex-m0+", ["cortex-m4f", "cortex-m0+", None]))
def test_a_dense_layer_is_read_by_parts_and_computes_the_same(target: str | None, tmp_path: Path) -> None:
    """115,200 bytes of weights, at most two parts of which are in memory."""
    path = dense_model(tmp_path)
    made = compile(path, output=tmp_path / "out", weights="read", name="net", cflags=CLANG, target=target)
    mapped = compile(path, output=tmp_path / "mapped", name="net", cflags=CLANG, target=target)
    sizes = [p.bytes for layer in made.manifest.layers for p in layer.memory if p.value == "weights"]
    assert len(sizes) > 6 and max(sizes) <= 20480 and made.manifest.memory.arena_bytes < 40960
    x = {"x": np.random.default_rng(0).normal(size=(1, 96)).astype(np.float32)}
    assert made.run(x)["y"].tobytes() == mapped.run(x)["y"].tobytes()
    assert made.validate().ok


@pytest.mark.slow
def test_a_dense_layer_of_bytes_is_read_by_parts(tmp_path: Path) -> None:
    from support.firmware_running import integer_model

    path = integer_model(tmp_path, 3000)
    made = firmware(path, tmp_path / "out", target="cortex-m4f", weights="read", name="net")
    mapped = firmware(path, tmp_path / "mapped", target="cortex-m4f", name="net")
    x = {"in0": np.random.default_rng(0).integers(-128, 128, (1, 16)).astype(np.int8)}
    found, wanted = (next(iter(p.run(x).values())) for p in (made, mapped))
    assert len(made.manifest.layers) > 1 and found.tobytes() == wanted.tobytes() and made.validate().ok


def test_an_output_that_is_put_together_of_parts(tmp_path: Path) -> None:
    """Its parts are written where they belong, by layers that come after the first weights have been read."""
    from support.onnx_models import model, node, saved, value

    rng = np.random.default_rng(5)
    constants = {f"w{n}": rng.normal(size=(32, 32)).astype(np.float32) for n in range(3)}
    nodes = [
        node("MatMul", "x w0", "a"),
        node("MatMul", "a w1", "b"),
        node("MatMul", "a w2", "c"),
        node("Concat", "b c", "y", axis=1),
    ]
    path = saved(model(nodes, inputs=[value("x", [1, 32])], constants=constants), tmp_path)
    made = firmware(path, tmp_path / "out", target="cortex-m4f", weights="read", name="net")
    assert made.validate().ok
