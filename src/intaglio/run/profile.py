"""Time per layer on this machine, measured by the hook in the library: those of the fastest of several runs, since noise only adds.
The total is their sum: the least time of a run, as `bin/NAME --benchmark N` tells it. What reading the clock takes is left out, and
a network that takes microseconds runs more often, so that caches and clock are those of a loop.

Packages for other cores are counted on an emulated one (`emulator/measure.py`) or measured on a board (`serial/measure.py`); those
for OpenCL: `opencl/measure.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from intaglio.errors import UserError
from intaglio.ir.graph import Array
from intaglio.package.at_sizes import sizes_of
from intaglio.run.host import ordered_inputs
from intaglio.run.loaded import LoadedPackage
from intaglio.run.probe import Probe
from intaglio.run.timing import LayerTime, Profile, Total, code_bytes, layers_at_sizes, stored_inputs

RUNS = 20
LEAST_US, MOST_RUNS = 20_000.0, 2_000  # without `runs`: as many as take this long, by the layers
Loaded = TypeVar("Loaded", bound=LoadedPackage)


def chosen(package: Loaded, sizes: Mapping[str, int], given: Mapping[str, Array] | None) -> tuple[Loaded, list[Array] | None]:
    """The package for these sizes, or for those of the inputs that are given, and these in order."""
    if given is None:
        return package.at(sizes), None
    inputs = ordered_inputs(package.manifest, given)
    found = sizes_of(package.manifest, [array.shape for array in inputs])
    for name, n in sizes.items():
        if found.get(name, n) != n:
            raise UserError("wrong-input", f"`{name}` is {found[name]} in the inputs, not {n}", hint=f"omit `--size {name}={n}`")
    return package.at({**sizes, **found}), inputs


def profile(
    package: LoadedPackage,
    runs: int | None = None,
    cc: str | None = None,
    wait_states: int | None = None,
    inputs: list[Array] | None = None,
) -> Profile:
    """On this machine and on a board the least of `runs`; on an emulated core one run, since all are alike. `wait_states` of
    flash, instead of the board as its file describes it. `inputs`: instead of the package's test vectors."""
    inputs = stored_inputs(package) if inputs is None else inputs
    if package.serial is not None:
        from intaglio.run.serial.measure import measure as measure_on_board

        return measure_on_board(package, inputs, runs)
    if package.bare:
        from intaglio.run.emulator.measure import measure

        return measure(package, inputs, cc, wait_states)
    manifest = replace(package.manifest, layers=layers_at_sizes(package))
    if manifest.opencl is not None:
        from intaglio.run.opencl.measure import measure as measure_on_device

        return measure_on_device(package, inputs, RUNS if runs is None else runs)
    probe = Probe(package, cc)
    try:
        best = _fastest(probe, inputs, runs)
    finally:
        probe.close()
    memory = manifest.memory
    code = code_bytes(package)
    total = Total(
        macs=sum(layer.macs for layer in manifest.layers),
        instructions=None,
        cycles=None,
        time_ms=sum(best) / 1000,
        ram_bytes=memory.arena_bytes,
        arena_bytes=memory.arena_bytes,
        stack_bytes=None,
        flash_bytes=None if code is None else code + memory.weight_bytes,
        code_bytes=code,
        weight_bytes=memory.weight_bytes,
    )
    layers = tuple(
        LayerTime(
            layer.name,
            layer.op,
            layer.macs,
            None,
            None,
            us / 1000,
            layer.kernel,
            layer.source,
            accelerator=layer.accelerator,
            parts=layer.parts,
        )
        for layer, us in zip(manifest.layers, best, strict=True)
    )
    return Profile(manifest.target if package.variant is None else package.variant.target, total, layers)


def _fastest(probe: Probe, inputs: list[Array], runs: int | None) -> list[float]:
    """Microseconds by layer."""
    best: list[float] | None = None
    spent, done = 0.0, 0
    while done < max(2, RUNS if runs is None else runs) or (runs is None and spent < LEAST_US and done < MOST_RUNS):
        probe.library.reset()
        probe.library.start_probe()
        probe.library.run(inputs)
        times = probe.library.probe_times()
        spent, done = spent + sum(times), done + 1
        if best is None or sum(times) < sum(best):
            best = times
    assert best is not None
    return best
