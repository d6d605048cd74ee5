"""A convolution or product that adds another tensor writes its result over that one, where nobody needs it any more."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.errors import OurFault
from intaglio.kernels import lower
from intaglio.kernels.c_printer import prototype
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.machine import Machine
from support.ir_text import graph_of, random_array
from support.kernel_running import TARGETS
from support.placing import move

LAYERS = {
    "conv": ("const w: f32[11,11,3,3] ...", "conv(a, w, _, r, pads=(1,1,1,1), epilogue=[add(0,1), relu(2)], layout=NHWC)"),
    "conv 1x1": ("const w: f32[11,11,1,1] ...", "conv(a, w, _, r, epilogue=[add(0,1)], layout=NHWC)"),
    "grouped": ("const w: f32[11,1,3,3] ...", "conv(a, w, _, r, pads=(1,1,1,1), group=11, epilogue=[sub(1,0)], layout=NHWC)"),
    "matmul": ("const w: f32[11,11] ...", "matmul(a, w, _, r, epilogue=[add(0,1)])"),
}


def made(layer: str, isa: str, residual: str = "neg(x)") -> Program:
    weights, text = LAYERS[layer]
    program = lower(
        graph_of(f"""
            input x: f32[1,7,9,11]
            {weights}
            a: f32[1,7,9,11] = exp(x)
            r: f32[1,7,9,11] = {residual}
            s: f32[1,7,9,11] = {text}
            y: f32[11,9,7,1] = transpose(s, perm=(3,2,1,0))
            output y
        """),
        TARGETS[isa],
    )
    program.placement = place(program, TARGETS[isa])
    return program


def assert_right(program: Program) -> None:
    inputs = {"x": random_array("x", program.graph.inputs[0].dtype, program.graph.inputs[0].shape)}
    wanted = evaluate_graph(program.graph, inputs)["y"]
    np.testing.assert_allclose(Machine(program).run(inputs)["y"], wanted, rtol=0, atol=1e-4 * float(np.abs(wanted).max()))


@pytest.mark.parametrize("isa", ["avx2", "scalar"])
@pytest.mark.parametrize("layer", LAYERS)
def test_the_sum_is_written_over_what_is_added(layer: str, isa: str) -> None:
    program = made(layer, isa)
    assert program.placement.in_place["s"] == "r"
    assert_right(program)


@pytest.mark.parametrize("layer", ["conv", "conv 1x1"])
def test_what_is_added_has_another_place_when_it_is_convolved_too(layer: str) -> None:
    weights, text = LAYERS[layer]
    program = lower(
        graph_of(f"""
            input x: f32[1,7,9,11]
            {weights}
            a: f32[1,7,9,11] = exp(x)
            s: f32[1,7,9,11] = {text.replace(" r,", " a,")}
            y: f32[11,9,7,1] = transpose(s, perm=(3,2,1,0))
            output y
        """),
        TARGETS["scalar"],
    )
    program.placement = place(program, TARGETS["scalar"])
    assert "s" not in program.placement.in_place
    assert_right(program)
    values = {v.name: v for v in program.graph.values()}
    move(program, values["s"], program.placement.addresses[values["a"]])
    with pytest.raises(OurFault, match="writes over what it reads"):
        check(program)


def test_all_other_pointers_are_promised_to_differ() -> None:
    kernel = next(layer.kernel for layer in made("conv", "scalar").layers if layer.name == "s")
    text = prototype(kernel)
    assert "const float *restrict x" in text
    assert "const float *restrict w" in text
    assert "const float *e0" in text
    assert "float *y" in text
