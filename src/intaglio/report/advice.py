"""What else could be tried: options that this package does not use, with the gain that can be told beforehand."""

from __future__ import annotations

from collections.abc import Iterator

from intaglio.package.manifest import Manifest
from intaglio.report.facts import COMPUTED, ESTIMATED, Advice, LayerFacts, Region
from intaglio.targets.target import Target

LARGE_SHARE = 0.1  # of the arena


def advice_of(
    manifest: Manifest, target: Target, layers: tuple[LayerFacts, ...], regions: tuple[Region, ...], ram_limit: int | None
) -> tuple[Advice, ...]:
    return tuple(_all(manifest, target, layers, regions, ram_limit))


def _all(
    manifest: Manifest, target: Target, layers: tuple[LayerFacts, ...], regions: tuple[Region, ...], ram_limit: int | None
) -> Iterator[Advice]:
    options, memory = manifest.options, manifest.memory
    floats = sum(layer.macs for layer in layers if layer.result.startswith("f32"))
    everything = sum(layer.macs for layer in layers) or 1
    if "quantize" not in options and floats > 0.5 * everything:
        saved = memory.weight_bytes * 3 // 4
        yield Advice(
            "Most of the work is in floating point. Integers take a quarter of the weights and of the arena; give calibration data "
            "to keep the accuracy.", "--quantize int8 --calibrate DATA.npz",
            f"about {saved:,} bytes of weights, {memory.arena_bytes * 3 // 4:,} bytes of arena", ESTIMATED,
        )  # fmt: skip
    if target.bare and len(manifest.inputs) == 1 and not memory.fed_rows and len(manifest.inputs[0].shape) == 4:
        info, peak = manifest.inputs[0], regions[0] if regions else None
        if info.arena_offset is not None and peak is not None and info.bytes > LARGE_SHARE * memory.arena_bytes and peak.peak == 0:
            yield Advice(
                "The input picture is in RAM as a whole while the first layer runs, which sets the peak.", "--feed-rows",
                f"up to {info.bytes:,} bytes of RAM", ESTIMATED,
            )  # fmt: skip
    tight = ram_limit is None or memory.arena_bytes > LARGE_SHARE * ram_limit
    if target.bare and "ram" not in options and tight and regions and _dominated(regions[0]):
        yield Advice(
            "A few layers need much more memory than the others. With a limit, layers may be computed a few rows at a time.",
            "--ram N", f"`intaglio fit {manifest.model.file}` has the least RAM and what it costs", COMPUTED,
        )  # fmt: skip
    if memory.arena_bytes > memory.lower_bound_bytes:
        over = memory.arena_bytes - memory.lower_bound_bytes
        yield Advice("The memory plan is above its lower bound; a longer search may find a smaller one.", "--optimize size",
                     f"at most {over:,} bytes of RAM", COMPUTED)  # fmt: skip
    if not target.bare and not target.wasm and target.threads == 1 and manifest.opencl is None and everything > 20_000_000:
        yield Advice("Layers are large enough for several threads.", "--threads 2", "1.7 to 1.9 times the speed on two cores",
                     ESTIMATED)  # fmt: skip
    if not target.bare and manifest.opencl is None and "tuning" not in options and everything > 20_000_000:
        yield Advice("Kernels and tiles were chosen by estimate. Measuring them on this machine may find faster ones.",
                     f"intaglio tune {manifest.model.file}", "up to 15 % of the time", ESTIMATED)  # fmt: skip


def _dominated(region: Region) -> bool:
    """Is the peak much higher than what most layers need?"""
    ordered = sorted(region.live)
    return len(ordered) >= 4 and ordered[-1] > 1.5 * ordered[len(ordered) // 2]


__all__ = ["advice_of"]
