"""Attention of com.microsoft for one word after the other, biases by distance, recurrences and mixtures of experts: against ONNX
Runtime, or their documentation where it has no kernel for CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import intaglio
from intaglio.ir.graph import Array
from support.microsoft_cases import Case, agree, computed, expected, floats, is_refused, whole
from support.onnx_models import saved

QUERY, KEY, VALUE = floats(2, 1, 24), floats(2, 1, 24), floats(2, 1, 24)
PAST = (floats(2, 4, 7, 6), floats(2, 4, 7, 6))
LENGTH = np.array([5], np.int32)
MASK = np.array([[1, 1, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1]], np.int32)
IN_PLACE = {"num_heads": 4, "past_present_share_buffer": 1}
TURNS = tuple(f(np.outer(np.arange(9), 0.3 ** np.arange(4))).astype(np.float32) for f in (np.cos, np.sin))
PLACES = whole(0, 9, 3, 2, 5, dtype=np.int64)
STEPS = {"q_num_heads": 4, "kv_num_heads": 2}
EXPERTS = (floats(5, 12, 8, scale=0.4), floats(5, 12), floats(5, 8, 12, scale=0.4), floats(5, 8))
GATED = (floats(5, 24, 8, scale=0.4), floats(5, 24), floats(5, 8, 12, scale=0.4), floats(5, 8))
ROWS, SCORES = floats(6, 8), floats(6, 5)
BYTES = (whole(0, 256, 5, 32, 16, dtype=np.uint8), floats(5, 32, scale=0.02), floats(5, 32))
BACK = (whole(0, 256, 5, 32, 16, dtype=np.uint8), floats(5, 32, scale=0.02), floats(5, 32))
CASES: dict[str, Case] = {
    "DecoderMaskedMultiHeadAttention": Case(
        "DecoderMaskedMultiHeadAttention", (QUERY, KEY, VALUE, None, None, *PAST, LENGTH), (), IN_PLACE, 3),
    "DecoderMaskedMultiHeadAttention with a mask and biases": Case(
        "DecoderMaskedMultiHeadAttention",
        (QUERY, KEY, VALUE, MASK, floats(2, 4, 1, 6), *PAST, LENGTH, None, None, floats(72)), (), {**IN_PLACE, "scale": 0.3}, 3),
    "DecoderMaskedMultiHeadAttention over what is there": Case(
        "DecoderMaskedMultiHeadAttention", (QUERY, *PAST), (), {"num_heads": 4}),
    "MRotaryEmbedding": Case("MRotaryEmbedding", (floats(2, 3, 5, 8), PLACES, *TURNS), (), {"mrope_section": [2, 1, 1]}),
    "MRotaryEmbedding, in turn, of rows": Case(
        "MRotaryEmbedding", (floats(2, 5, 24), PLACES, *TURNS), (),
        {"mrope_section": [2, 1, 1], "mrope_layout": 1, "interleaved": 1, "num_heads": 3}),
    "LinearAttention": Case(
        "LinearAttention", (floats(2, 5, 24), floats(2, 5, 12), floats(2, 5, 8), floats(2, 2, 6, 4), None, None), (),
        {**STEPS, "update_rule": "linear"}, 2),
    "LinearAttention with gates": Case(
        "LinearAttention", (floats(2, 5, 24), floats(2, 5, 12, scale=0.3), floats(2, 5, 8), None, -abs(floats(2, 5, 2)),
        abs(floats(2, 5, 2, scale=0.3))), (), STEPS, 2),
    "CausalConvWithState": Case(
        "CausalConvWithState", (floats(2, 3, 6), floats(3, 1, 4), floats(3), floats(2, 3, 3)), (), {"activation": "silu"}, 2),
    "MoE": Case("MoE", (ROWS, SCORES), EXPERTS, {"k": 2}),
    "MoE of rows of rows": Case("MoE", (floats(2, 3, 8), SCORES), EXPERTS, {"k": 1, "activation_type": "gelu"}),
    "MoE, normalised": Case(
        "MoE", (ROWS, SCORES), (EXPERTS[0], None, EXPERTS[2]), {"k": 3, "activation_type": "silu", "normalize_routing_weights": 1}),
    "MoE without an activation": Case("MoE", (ROWS, SCORES), EXPERTS, {"k": 5, "activation_type": "identity"}),
    "MoE with gates": Case(
        "MoE", (ROWS, SCORES), GATED, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.7,
        "activation_beta": 1.0, "swiglu_limit": 2.0}),
    "MoE of equal scores": Case("MoE", (ROWS, np.zeros((6, 5), np.float32)), EXPERTS, {"k": 2}),
    "QMoE of 4 bits": Case(
        "QMoE", (floats(6, 32), SCORES), (*BYTES, *BACK), {"k": 2, "expert_weight_bits": 4, "activation_type": "gelu"}),
    "QMoE in blocks": Case(
        "QMoE", (floats(6, 32), SCORES),
        (BYTES[0], floats(5, 32, 2, scale=0.02), BYTES[2], BACK[0], floats(5, 32, 2, scale=0.02), None),
        {"k": 1, "expert_weight_bits": 4, "block_size": 16, "activation_type": "silu"}),
    "QMoE with zero points": Case(
        "QMoE", (floats(6, 32), SCORES),
        (BYTES[0], floats(5, 32, 2, scale=0.02), None, BACK[0], floats(5, 32, 2, scale=0.02), None, None, None, None,
         whole(0, 256, 5, 32, 1, dtype=np.uint8), whole(0, 256, 5, 32, 1, dtype=np.uint8)),
        {"k": 2, "expert_weight_bits": 4, "block_size": 16, "normalize_routing_weights": 1}),
    "QMoE with weights of their own": Case(
        "QMoE", (floats(6, 32), SCORES),
        (*BYTES, *BACK, None, None, None, None, None, None, floats(6, 5)), {"k": 2, "expert_weight_bits": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    agree(computed(CASES[name], tmp_path), expected(CASES[name]))


@pytest.mark.parametrize("name", ["DecoderMaskedMultiHeadAttention", "MoE"])
def test_it_is_compiled_as_well(name: str, tmp_path: Path) -> None:
    package = intaglio.compile(saved(CASES[name].model(), tmp_path), output=tmp_path / "p")
    assert package.validate(inputs=CASES[name].feeds()).ok


LAYOUTS = (
    np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32),
    np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32),
)


def blocks(given: tuple[Array, ...], lengths: list[int], turned: int, constant: bool = True) -> Case:
    """With the layout of blocks as constants; ONNX Runtime, which does not care, has everything as inputs."""
    cos, sin = (f(np.outer(np.arange(64), 0.5 ** np.arange(8))).astype(np.float32) for f in (np.cos, np.sin))
    fields = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": turned}
    more = (*LAYOUTS, np.array([max(lengths)], np.int32), np.array(lengths, np.int32), cos, sin)
    return Case("SparseAttention", given if constant else (*given, *more), more if constant else (), fields, 3)


def words(batch: int, length: int) -> tuple[Array, ...]:
    return (floats(batch, length, 64), *(floats(batch, length, 32) for _ in "kv"), *(floats(batch, 2, 64, 16) for _ in "kv"))


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize(("length", "total"), [(3, 3), (1, 50), (40, 60)])
def test_blocks_of_keys_are_left_out(length: int, total: int, turned: int, tmp_path: Path) -> None:
    """A prompt, one word more, and several."""
    given = words(2, length)
    got = computed(blocks(given, [total, total], turned), tmp_path)
    binding, session = bound(blocks(given, [total, total], turned, False))
    session.run_with_iobinding(binding)
    agree(got, binding.copy_outputs_to_cpu())


def test_rows_of_different_lengths_give_what_each_gives_alone(tmp_path: Path) -> None:
    """ONNX Runtime 1.31 takes the weights of another row there."""
    given = words(2, 3)
    together = computed(blocks(given, [50, 33], 1), tmp_path)
    for n, length in enumerate((50, 33)):
        alone = computed(blocks(tuple(a[n : n + 1] for a in given), [length], 1), tmp_path)
        agree([a[n : n + 1] for a in together], alone, 1e-6)


def bound(case: Case) -> tuple[Any, Any]:
    """ONNX Runtime insists on caches that are inputs and outputs in one place."""
    session = onnxruntime.InferenceSession(case.model().SerializeToString(), providers=["CPUExecutionProvider"])
    binding, values = session.io_binding(), {n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in case.feeds().items()}
    for name, one in values.items():
        binding.bind_ortvalue_input(name, one)
    binding.bind_output("y0")
    for output, cache in (("y1", "a3"), ("y2", "a4")):
        binding.bind_ortvalue_output(output, values[cache])
    return binding, session


# Without a kernel for CPUs --------------------------------------------------------------------------------------------------


def bucket(apart: int, buckets: int, farthest: int, both: bool) -> int:
    """As T5 has it."""
    first = 0
    if both:
        buckets //= 2
        first, apart = (buckets if apart > 0 else 0), abs(apart)
    else:
        apart = max(-apart, 0)
    exact = buckets // 2
    if apart < exact:
        return first + apart
    far = exact + int(np.log(apart / exact) / np.log(farthest / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


@pytest.mark.parametrize("both", [True, False])
def test_distances_fall_into_the_buckets_of_t5(both: bool, tmp_path: Path) -> None:
    table = floats(32, 3)
    lengths = (np.array([150]), np.array([150]))
    case = Case("RelativePositionBias", (table,), lengths, {"max_distance": 128, "is_bidirectional": int(both)})
    which = np.array([[bucket(j - i, 32, 128, both) for j in range(150)] for i in range(150)])
    agree(computed(case, tmp_path), [table.reshape(3, 32)[:, which][None]])


def test_a_bias_is_gated_by_its_query(tmp_path: Path) -> None:
    x, more, distances, w, b, eco = floats(2, 5, 12), floats(12), floats(1, 3, 5, 5), floats(4, 8), floats(8), floats(1, 3, 1, 1)
    q: Any = (x + more).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3)
    gates = 1 / (1 + np.exp(-(q @ w + b).reshape(2, 3, 5, 2, 4).sum(-1)))
    u, r = gates[..., :1], gates[..., 1:]
    case = Case("GatedRelativePositionBias", (x, more, distances, w, b, eco), (), {"num_heads": 3})
    agree(computed(case, tmp_path), [(u * (r * eco - 1) + 2) * distances])


def test_gemma_turns_by_the_angles_it_is_given(tmp_path: Path) -> None:
    angle, sides = floats(2, 5, 6), [floats(2, 3, 5, 6) for _ in range(4)]

    def turned(x: Array, other: Array) -> Array:
        return np.asarray(x * np.cos(angle)[:, None] + other * np.sin(angle)[:, None])

    case = Case("GemmaRotaryEmbedding", (angle, *sides), (), {}, 2)
    agree(computed(case, tmp_path), [turned(*sides[:2]), turned(*sides[2:])])


def sparse(columns: int, block: int) -> Case:
    caches = (floats(1, 2, 32, 16), floats(1, 2, 32, 16))
    layout = (np.array([[0, 1, 2]], np.int32), np.array([[0, columns]], np.int32), np.array([1], np.int32), np.array([1], np.int32))
    fields = {"num_heads": 2, "kv_num_heads": 2, "sparse_block_size": block}
    return Case("SparseAttention", (floats(1, 1, 32), floats(1, 1, 32), floats(1, 1, 32), *caches), layout, fields)


REFUSED: dict[str, tuple[Case, str]] = {
    "a block that is not there": (sparse(2, 16), "not among 2 by 2"),
    "too few blocks": (sparse(1, 8), "with blocks of 8"),
    "no cache": (Case("DecoderMaskedMultiHeadAttention", (QUERY, KEY, VALUE), (), {"num_heads": 4}), "without a cache"),
    "scores as a result": (
        Case("DecoderMaskedMultiHeadAttention", (QUERY, *PAST), (), {"num_heads": 4, "output_qk": 1}), "with scores as a result"),
    "sections": (Case("MRotaryEmbedding", (floats(2, 3, 5, 8), PLACES, *TURNS), (), {"mrope_section": [2, 1, 2]}), "sections"),
    "buckets": (Case("RelativePositionBias", (floats(32, 3),), (np.array([3]), np.array([3])), {"max_distance": 8}), "up to 8"),
    "windows of states": (
        Case("CausalConvWithState", (floats(2, 3, 6), floats(3, 1, 4)), (), {"state_window": 2}, 2), "`state_window` is not"),
    "no experts": (Case("MoE", (ROWS, SCORES), EXPERTS, {"k": 0}), "of 0 out of 5"),
    "an activation": (Case("MoE", (ROWS, SCORES), EXPERTS, {"activation_type": "tanh"}), "the activation `tanh`"),
    "a third product": (Case("MoE", (ROWS, SCORES), (*EXPERTS, EXPERTS[0])), "a third product"),
    "weights that are floats": (Case("QMoE", (floats(6, 32), SCORES), (*BYTES, *BACK), {"quant_type": "fp8"}), "that are floats"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_told(name: str, tmp_path: Path) -> None:
    is_refused(*REFUSED[name], tmp_path)
