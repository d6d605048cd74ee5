"""Options that do not go together: each rule of the table has a case here."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from intaglio.options.rules import RULES
from support.commands import DIGITS, Intaglio

OTHER = "opencl-aarch64" if platform.machine() in ("x86_64", "AMD64") else "opencl-x86-64"
OPENCL = "--target opencl "
WASM = "--target wasm32 "
RANGE = "--dim N=1..4 "
CASES = {
    "opencl, safety": OPENCL + "--safety crc",
    "code ram, not of a board": "--target generic --code ram",
    "style": "--style lint",
    "opencl, style misra": OPENCL + "--style misra",
    "variants, style misra": "--target x86-64 --variants v3 --style misra",
    "safety, feed-rows": "--board nucleo-l4r5zi --feed-rows --safety step",
    "safety steady, FPU": "--target cortex-m4f --safety steady",
    "encrypted, slots": "--safety encrypted",
    "slots, weights read": "--safety slots --weights read",
    "slots, weights ram": "--board nucleo-l4r5zi --safety slots --weights ram",
    "slots, weights-address": "--board nucleo-l4r5zi --safety slots --weights-address 0x08080000",
    "slots, memory": "--board nucleo-l4r5zi --safety slots --memory m.toml",
    "variants, safety": "--target x86-64 --variants v3 --safety crc",
    "opencl, verify": OPENCL + "--verify",
    "verify, stop-after": "--verify --stop-after optimise",
    "export-plan, stop-after": "--export-plan p.csv --stop-after optimise",
    "archive, stop-after": "--archive --stop-after memory",
    "sign, stop-after": "--sign key.pem --stop-after memory",
    "archive-format, archive": "--archive-format zip",
    "accelerator-only, accelerator": "--accelerator-only qconv",
    "weights fp16, quantize": "--weights fp16 --quantize int8",
    "small weights, calibrate": "--quantize weights --calibrate x.npz",
    "calibrate, quantize": "--calibrate x.npz",
    "labels, calibrate": "--quantize int8 --labels l.npy",
    "labels, stop-after": "--quantize int8 --calibrate x.npz --labels l.npy --stop-after memory",
    "labels, no-ir": "--quantize int8 --calibrate x.npz --labels l.npy --no-ir",
    "weights-section, weights-address": "--weights-section .x --weights-address 0x08080000",
    "weights read, a place": "--weights read --weights-section .x",
    "weights ram, elsewhere": "--board nucleo-l4r5zi --weights ram,read",
    "weights staged, elsewhere": "--board nucleo-l4r5zi --weights ram,staged",
    "weights staged, an operating system": "--target generic --weights staged",
    "weights packed, elsewhere": "--board nucleo-l4r5zi --weights ram,packed",
    "weights packed, an operating system": "--target generic --weights packed",
    "weights ram, an operating system": "--target generic --weights ram",
    "board, target": "--board nucleo-l4r5zi --target cortex-m0+",
    "device, a processor": "--device cpu",
    "precision, a processor": "--precision fp16",
    "limit-kernel-time, a processor": "--limit-kernel-time 8",
    "threads, no operating system": "--target cortex-m4f --threads 2",
    "cores, not of a board": "--target generic --cores 2",
    "cores, of this board": "--board nucleo-l4r5zi --cores 2",
    "tuning, not a processor": "--target cortex-m4 --tuning times.txt",
    "weights-address, an operating system": "--target generic --weights-address 0x08080000",
    "opencl, arena caller": OPENCL + "--arena caller",
    "opencl, weights read": OPENCL + "--weights read",
    "opencl, memory": OPENCL + "--memory m.toml",
    "opencl, stream": OPENCL + "--stream 1",
    "opencl, feed-rows": OPENCL + "--feed-rows",
    "opencl, threads": OPENCL + "--threads 2",
    "opencl, accelerator": OPENCL + "--accelerator none",
    "wasm, weights read": WASM + "--weights read",
    "wasm, memory": WASM + "--memory m.toml",
    "wasm, feed-rows": WASM + "--feed-rows",
    "wasm, weights-section": WASM + "--weights-section .x",
    "wasm, threads": WASM + "--threads 2",
    "wasm, accelerator": WASM + "--accelerator none",
    "device, stop-after": OPENCL + "--device cpu --stop-after package",
    "device, another machine": f"--target {OTHER} --device cpu",
    "feed-rows, stream": "--feed-rows --stream 1",
    "feed-rows, weights read": "--feed-rows --weights read",
    "feed-rows, cores": "--board rp2040 --feed-rows --cores 2",
    "feed-rows, threads": "--feed-rows --threads 2",
    "accelerator, weights read": "--accelerator none --weights read",
    "accelerator, feed-rows": "--accelerator none --feed-rows",
    "accelerator, stream": "--accelerator none --stream 1",
    "variants, stop-after": "--variants v4 --stop-after memory",
    "variants, export-plan": "--variants v4 --export-plan p.csv",
    "variants, import-plan": "--variants v4 --import-plan p.csv",
    "variants, memory": "--variants v4 --memory m.toml",
    "variants, feed-rows": "--variants v4 --feed-rows",
    "variants, weights read": "--variants v4 --weights read",
    "variants, accelerator": "--variants v4 --accelerator none",
    "variants, template": "--variants v4 --template t",
    "variants, a processor without them": "--target cortex-m4f --variants v4",
    "variants, an IR file": "--variants v4",
    "quantize, an IR file": "--quantize int8",
    "accelerator, an IR file": "--accelerator none",
    "stream, an IR file": "--stream 1",
    "precision, an IR file": OPENCL + "--precision fp16",
    "ranges, cores": RANGE + "--board rp2040 --cores 2",
    "ranges, accelerator": RANGE + "--accelerator none",
    "ranges, stream": RANGE + "--stream 1",
    "ranges, feed-rows": RANGE + "--feed-rows",
    "ranges, weights read": RANGE + "--weights read",
    "ranges, target": RANGE + "--target opencl",
}


def test_every_rule_has_a_case_and_a_name_of_its_own() -> None:
    assert [rule.name for rule in RULES] == list(CASES)


@pytest.fixture(scope="module")
def optimised(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """IR files of the stage `optimise`, for the processor and for OpenCL."""
    return {"host": tmp_path_factory.mktemp("ir") / "host.ig", "opencl": tmp_path_factory.mktemp("ir") / "opencl.ig"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_options_that_do_not_go_together_are_refused(
    rule: object, intaglio: Intaglio, tmp_path: Path, optimised: dict[str, Path]
) -> None:
    (known,) = [r for r in RULES if r is rule]
    words, model = CASES[known.name].split(), DIGITS
    if known.needs == "model":
        model = optimised["opencl" if "opencl" in words else "host"]
        if not model.exists():
            target = ["--target", "opencl"] if "opencl" in words else []
            assert intaglio("compile", DIGITS, "-o", model, "--stop-after", "optimise", *target).code == 0
    said = intaglio("compile", model, "-o", tmp_path / "p", *words)
    assert said.code == 2, said.err
    assert "error[bad-option]" in said.err
    for part in (p for text in (known.message, known.hint) for p in text.replace("}", "{").split("{")[::2]):
        assert part in said.err, said.err
    assert not any(tmp_path.iterdir())
