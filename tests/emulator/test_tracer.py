"""Accesses that are computed from instructions and registers are those that the emulator makes."""

from __future__ import annotations

from pathlib import Path

import pytest

import intaglio as api
from intaglio.dossier.timing import adversarial
from intaglio.run.emulator import unicorn_core
from intaglio.run.emulator.device import EmulatorOptions
from intaglio.run.emulator.measure import hooked, layer_counts
from intaglio.run.emulator.traced import Traced
from intaglio.run.emulator.tracer import Access, Tracer
from intaglio.run.loaded import LoadedPackage
from support.commands import DIGITS
from support.small_networks import anomalies

pytest.importorskip("unicorn")

Bytes = set[tuple[int, bool, int]]  # instruction, does it write, address


@pytest.mark.parametrize("core", [pytest.param("cortex-m0+", marks=pytest.mark.slow), "cortex-m4f"])
def test_accesses_are_those_of_the_emulator(core: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if core == "cortex-m0+":
        (tmp_path / "net.tflite").write_bytes(anomalies())
    model = DIGITS if core == "cortex-m4f" else tmp_path / "net.tflite"
    package = LoadedPackage(api.compile(model, output=tmp_path / "p", target=core).folder)
    inputs, count = adversarial(package.manifest, 0), len(package.manifest.layers)
    ours, theirs = Bytes(), Bytes()

    class Noting(Tracer):
        def _note(self, pc: int, access: Access, address: int) -> None:
            ours.update((pc, access.writes, address + n) for n in range(access.size))
            super()._note(pc, access, address)

    monkeypatch.setattr(unicorn_core, "Tracer", Noting)
    with hooked(package, None, EmulatorOptions("unicorn")) as device:
        assert isinstance(device.core, unicorn_core.UnicornCore)
        device.core.trace_memory(Traced(), frozenset())
        layer_counts(device, inputs, count)
    with hooked(package, None, EmulatorOptions("unicorn")) as device:
        assert isinstance(device.core, unicorn_core.UnicornCore)
        import unicorn

        engine, here = device.core._engine, [0]

        def step(_: object, address: int, *__: object) -> None:
            here[0] = address

        def access(_: object, kind: int, address: int, size: int, *__: object) -> None:
            theirs.update((here[0], kind == unicorn.UC_MEM_WRITE, address + n) for n in range(size))

        engine.hook_add(unicorn.UC_HOOK_CODE, step)
        engine.hook_add(unicorn.UC_HOOK_MEM_READ | unicorn.UC_HOOK_MEM_WRITE, access)
        engine.ctl_flush_tb()
        layer_counts(device, inputs, count)
    assert len(theirs) > 1000
    assert ours == theirs
