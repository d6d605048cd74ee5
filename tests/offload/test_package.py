"""Regions in packages: C of plug-ins beside ours, started and waited for, with memory that is left alone meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import AnswerIsNo, OurFault, UserError
from intaglio.ir.files import write_ir
from intaglio.kernels import lower
from intaglio.memory.check_waits import check_waits
from intaglio.memory.checker import check
from intaglio.memory.place import place
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.ir_text import graph_of
from support.placing import move, offset_of, region_of
from support.strict import strict_flags
from support.toy_accelerators import toys  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("toys")
STRICT = strict_flags(find_toolchain().kind)
TEXT = """
    input x: f32[16384]
    input z: f32[16384]
    a: f32[16384] = add(x, z)
    b: f32[16384] = exp(x)
    c: f32[16384] = mul(b, z)
    d: f32[16384] = tanh(c)
    e: f32[16384] = add(a, d)
    y: f32[16384] = softmax(e)
    output y
    """


def model(folder: Path, text: str = TEXT) -> Path:
    path = folder / "m.ig"
    write_ir(graph_of(text), path)
    return path


def inputs() -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    rng = np.random.default_rng(3)
    return {name: rng.normal(0, 1, 16384).astype(np.float32) for name in ("x", "z")}


def test_two_accelerators_and_the_core_in_one_package(tmp_path: Path) -> None:
    path = model(tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", accelerators=["sums", "chains"], cflags=STRICT)
    wanted = evaluate_graph(graph_of(TEXT), inputs())["y"]
    for _ in range(2):  # it is switched off after a run, and on again
        assert np.allclose(package.run(inputs())["y"], wanted, atol=1e-6)
    manifest = package.manifest
    assert manifest.accelerators == ("sums", "chains")
    assert [(layer.op, layer.accelerator) for layer in manifest.layers if layer.accelerator] == [
        ("add", "sums"), ("mul+tanh", "chains"), ("add", "sums"),
    ]  # fmt: skip
    assert manifest.options["accelerators"] == "sums,chains"
    assert (package.folder / "src" / "toy.c").is_file()


def test_the_core_works_between_start_and_wait(tmp_path: Path) -> None:
    """`a` is started first; what does not need it runs beside it, and then it is waited for."""
    package = intaglio.compile(model(tmp_path), output=tmp_path / "p", name="m", accelerators=["sums"])
    text = (package.folder / "src" / "m.c").read_text()
    order = re.findall(r"(m_sums_0\(|m_sums_0_wait\(|toy_on = 1|_stop\(M_OK\))", text)  # equal regions share their functions
    assert order == ["toy_on = 1", "m_sums_0(", "m_sums_0_wait(", "m_sums_0(", "m_sums_0_wait(", "_stop(M_OK)"]
    between = text[text.index("m_sums_0(") : text.index("m_sums_0_wait(")]
    assert "exp" in between
    assert "M_SHOW(0, NULL, 0)" in text


def test_an_accelerator_that_reports_an_error_ends_the_run(tmp_path: Path) -> None:
    package = intaglio.compile(model(tmp_path), output=tmp_path / "p", name="m", accelerators=["failing"])
    with pytest.raises(AnswerIsNo, match="an accelerator reports an error") as caught:
        package.run(inputs())
    assert caught.value.slug == "accelerator-failed"
    assert "return m_stop(M_ACCELERATOR_FAILED);" in (package.folder / "src" / "m.c").read_text()


def test_a_stage_can_be_written_edited_and_resumed(tmp_path: Path) -> None:
    from intaglio.pipeline import compile_request
    from intaglio.stages import Request, Watch

    request = Request(model(tmp_path), tmp_path / "o.ig", accelerators=("sums",), stop_after="optimise")
    compile_request(request, Watch())
    text = (tmp_path / "o.ig").read_text()
    assert "on sums.0" in text and "on sums.1" in text
    (tmp_path / "o.ig").write_text(text.replace(" on sums.1", ""))  # a person keeps one of them on the core
    package = intaglio.compile(tmp_path / "o.ig", output=tmp_path / "p")
    assert [layer.accelerator for layer in package.manifest.layers].count("sums") == 1
    assert np.allclose(package.run(inputs())["y"], evaluate_graph(graph_of(TEXT), inputs())["y"], atol=1e-6)
    assert package.validate().ok


def test_every_later_stage_resumes_too(tmp_path: Path) -> None:
    from intaglio.pipeline import compile_request
    from intaglio.stages import Request, Watch

    wanted = evaluate_graph(graph_of(TEXT), inputs())["y"]
    for stage in ("kernels", "memory"):
        request = Request(model(tmp_path), tmp_path / f"{stage}.ig", accelerators=("sums", "chains"), stop_after=stage)
        compile_request(request, Watch())
        package = intaglio.compile(tmp_path / f"{stage}.ig", output=tmp_path / stage)
        assert package.manifest.accelerators == ("sums", "chains")
        assert np.allclose(package.run(inputs())["y"], wanted, atol=1e-6)


def test_alignment_of_the_accelerator_is_that_of_the_package(tmp_path: Path) -> None:
    package = intaglio.compile(model(tmp_path), output=tmp_path / "p", accelerators=["sums"], target="generic")
    assert package.manifest.memory.alignment >= 32


def test_a_result_is_written_over_an_operand_that_nobody_else_needs() -> None:
    target = find_target("cortex-m4f")
    text = TEXT.replace("e: f32[16384] = add(a, d)", "e: f32[16384] = add(a, d) on sums.0")
    program = lower(graph_of(text), target)
    program.placement = place(program, target)
    check(program)
    values = {v.name: program.placement.of(v) for v in program.graph.values()}
    assert values["e"] == values["a"]
    more = "f: f32[16384] = exp(a)\n    y: f32[16384] = mul(e, f)"
    later = lower(graph_of(text.replace("y: f32[16384] = softmax(e)", more)), target)
    later.placement = place(later, target)
    check(later)
    values = {v.name: later.placement.of(v) for v in later.graph.values()}
    assert values["e"] != values["a"]  # `f` reads it while the accelerator works


def test_memory_is_left_alone_while_an_accelerator_works() -> None:
    graph = graph_of(TEXT.replace("a: f32[16384] = add(x, z)", "a: f32[16384] = add(x, z) on sums.0"))
    target = find_target("cortex-m4f")
    program = lower(graph, target)
    assert program.waits() == {0: 4}
    program.placement = place(program, target)
    check(program)
    meanwhile = program.layers[1].node.output
    scratch = program.placement.scratch
    move(program, meanwhile, scratch[program.layers[0].name])
    with pytest.raises(OurFault, match="which is still at work"):
        check_waits(
            program,
            lambda v: offset_of(program, v) if region_of(program, v) == "arena" else None,
            lambda n: scratch[program.layers[n].name].offset,
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"accelerators": ["nobody"]}, "unknown accelerator `nobody`"),
        ({"accelerators": ["sums"], "stream": 0}, "cannot be combined"),
        ({"accelerators": ["sums"], "feed_rows": True}, "cannot be combined"),
        ({"accelerators": ["sums"], "weights": "read"}, "cannot be combined"),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, words: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        intaglio.compile(model(tmp_path), output=tmp_path / "p", **words)  # type: ignore[arg-type]
    assert not (tmp_path / "p").exists()


def test_lines_that_a_person_gave_to_an_accelerator_are_checked(tmp_path: Path) -> None:
    from intaglio.pipeline import compile_request
    from intaglio.stages import Request, Watch

    apart = frozenset({"fuse_elementwise"})
    compile_request(Request(model(tmp_path), tmp_path / "o.ig", stop_after="optimise", disabled=apart), Watch())
    text = (tmp_path / "o.ig").read_text()
    edited = tmp_path / "o.ig"
    edited.write_text(text.replace("= exp(x)", "= exp(x) on sums.3"))
    with pytest.raises(UserError, match=r"`sums` does not take `b` \(exp\): it has no pattern for `exp`") as caught:
        intaglio.compile(edited, output=tmp_path / "p")
    assert "o.ig, line 6" in caught.value.where
    edited.write_text(text.replace("= add(x, z)", "= add(x, z) on sums.0").replace("= add(a, d)", "= add(a, d) on sums.1"))
    assert intaglio.compile(edited, output=tmp_path / "p").manifest.accelerators == ("sums",)
    edited.write_text(text.replace("= mul(b, z)", "= mul(b, z) on chains.0").replace("= tanh(c)", "= tanh(c) on chains.0"))
    assert [x.op for x in intaglio.compile(edited, output=tmp_path / "q").manifest.layers if x.accelerator] == ["mul+tanh"]


def test_an_ir_file_past_optimise_takes_no_accelerators(tmp_path: Path) -> None:
    path = model(tmp_path)
    path.write_text(path.read_text().replace("stage=import", "stage=optimise"))
    with pytest.raises(UserError, match="past the stage `optimise`"):
        intaglio.compile(path, output=tmp_path / "p", accelerators=["sums"])
