"""`host`: the best target that a processor can run."""

from __future__ import annotations

import pytest

from intaglio.targets import target as targets
from intaglio.targets.target import find_target, host_target

SSE4 = {"ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "lahf_lm"}
AVX2 = SSE4 | {"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


@pytest.mark.parametrize(
    ("machine", "flags", "name"),
    [
        ("x86_64", set(), "x86-64"),
        ("x86_64", {"avx2"}, "x86-64"),
        ("x86_64", SSE4, "x86-64-v2"),
        ("x86_64", AVX2 - {"fma"}, "x86-64-v2"),
        ("x86_64", AVX2, "x86-64-v3"),
        ("AMD64", AVX2 | {"avx_vnni"}, "x86-64-avxvnni"),
        ("x86_64", AVX512, "x86-64-v4"),
        ("x86_64", AVX512 - {"avx512vl"}, "x86-64-v3"),
        ("x86_64", AVX512 | {"avx512_vnni", "avx_vnni"}, "x86-64-avx512vnni"),
        ("aarch64", set(), "aarch64"),
        ("arm64", {"asimddp"}, "aarch64-dotprod"),
        ("aarch64", {"asimddp", "i8mm"}, "aarch64-i8mm"),
        ("riscv64", set(), "generic"),
    ],
)
def test_the_best_that_the_processor_lists(machine: str, flags: set[str], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(targets, "_cpu_flags", lambda: frozenset(flags))
    assert host_target() == find_target(name)
