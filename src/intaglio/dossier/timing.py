"""Bounds of cycles for firmware on an emulated Arm core, and the most that was observed on inputs made to be bad."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.ir.graph import Array
from intaglio.kernels.loop_facts import LoopFacts
from intaglio.package.manifest import Manifest, target_of
from intaglio.run.costs import CORES, Coster
from intaglio.run.emulator.device import EmulatedDevice, EmulatorOptions
from intaglio.run.emulator.measure import hooked, layer_counts
from intaglio.run.emulator.traced import Traced
from intaglio.run.loaded import LoadedPackage
from intaglio.run.time_bound import Bound, Bounds

LEARNT = 6  # runs that show which memory instructions touch, and how often loops go round
SCALES = (1.0, 8.0, 0.01, 0.0, 1e6)


@dataclass(frozen=True, slots=True)
class LayerBound:
    layer: int
    name: str
    observed: int
    cycles: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """`reason`: why there are none."""

    core: str = ""
    layers: tuple[LayerBound, ...] = ()
    total: int | None = None
    observed: int = 0
    inputs: int = 0
    reason: str = ""

    @property
    def above(self) -> float | None:
        """The bound above the most that was observed, as a share."""
        return None if self.total is None or not self.observed else self.total / self.observed - 1


def adversarial(manifest: Manifest, number: int) -> list[Array]:
    """Small, large and saturating values, extremes, constants and alternating signs."""
    random = np.random.default_rng(number)
    made = []
    for info in manifest.inputs:
        dtype = info.type.dtype.numpy
        if np.issubdtype(dtype, np.floating):
            scale = SCALES[number % len(SCALES)]
            array = random.standard_normal(info.shape) * scale
            if number % 7 == 3:
                array = np.where(random.random(info.shape) < 0.5, -scale, scale)
            made.append(array.astype(dtype))
        elif dtype == np.bool_:
            made.append(random.random(info.shape) < 0.5)
        else:
            low, high = (0, 1) if dtype.itemsize > 2 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            whole = random.integers(low, high, info.shape, endpoint=True)
            if number % 5 == 4:
                whole = np.where(random.random(info.shape) < 0.5, low, high)
            made.append(whole.astype(dtype))
    return made


def time_bounds(package: LoadedPackage, facts: dict[str, LoopFacts], inputs: int) -> TimeBounds:
    manifest = package.manifest
    if manifest.firmware is None:
        return TimeBounds(reason="bounds are for firmware: compile for a Cortex-M core")
    target = target_of(manifest)
    if target.core not in CORES or not target.core.startswith("cortex-m") or target.core in ("cortex-m55", "cortex-m7"):
        return TimeBounds(target.core, reason=f"there is no model of the cycles of `{target.core}` that gives bounds")
    if manifest.accelerators or manifest.sizes or manifest.memory.fed_rows:
        return TimeBounds(target.core, reason="networks with sizes, rows or accelerators have none yet")
    try:
        layers = _layers(package, facts, target.core)
        observed, tried = _observed(package, target.core, inputs)
    except IntaglioError as error:
        return TimeBounds(target.core, reason=error.message)
    total = None
    if all(layer.cycles is not None for layer in layers):
        glue = max(0, observed - sum(layer.observed for layer in layers))
        total = max(observed, sum(layer.cycles or 0 for layer in layers) + glue)
    return TimeBounds(target.core, layers, total, observed, tried)


def _layers(package: LoadedPackage, facts: dict[str, LoopFacts], core: str) -> tuple[LayerBound, ...]:
    manifest = package.manifest
    count = len(manifest.layers)
    options = EmulatorOptions("unicorn")
    traced = Traced()
    with hooked(package, None, options) as slow:
        trace = getattr(slow.core, "trace_memory")  # noqa: B009  (of this emulator alone)
        symbols = slow.core.image.symbols
        trace(traced, frozenset(symbols[layer.function] for layer in manifest.layers if layer.function in symbols))
        for number in range(LEARNT // 2):
            layer_counts(slow, adversarial(manifest, number), count)
    with hooked(package, None, options) as device:
        coster = Coster(core, device.core.read, riscv=device.core.image.riscv)
        runs = [layer_counts(device, adversarial(manifest, number), count) for number in range(LEARNT)]
        bounds = Bounds(device.core.image, coster, manifest.name, traced)
        found = []
        for layer in manifest.layers:
            known = facts.get(layer.function)
            bound = bounds.layer(layer.function, [run[layer.index] for run in runs])
            if known is not None and known.unbounded:
                bound = Bound(bound.observed, None, known.unbounded[0])
            found.append(LayerBound(layer.index, layer.name, bound.observed, bound.cycles, bound.reason))
        return tuple(found)


def _observed(package: LoadedPackage, core: str, inputs: int) -> tuple[int, int]:
    """The most cycles of a run, on so many inputs."""
    device = EmulatedDevice(package.folder, package.bounded, EmulatorOptions("unicorn"))
    most = 0
    try:
        coster = Coster(core, device.core.read, riscv=device.core.image.riscv)
        before = device.counts()
        for number in range(inputs):
            device.run(adversarial(package.manifest, number))
            after = device.counts()
            if before is None or after is None:
                return 0, 0
            most = max(most, coster.add(after.since(before)).cycles)
            before = after
    finally:
        device.close()
    return most, inputs
