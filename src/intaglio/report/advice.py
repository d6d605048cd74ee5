"""What else could be tried: options that this package does not use, with the gain that a plan with them has."""

from __future__ import annotations

from collections.abc import Iterator

from intaglio.package.manifest import Manifest
from intaglio.report.facts import COMPUTED, ESTIMATED, Advice, LayerFacts, Region
from intaglio.report.gains import Gain
from intaglio.run.firmware import STACK_ALIGNMENT
from intaglio.targets.target import Target

LEAST_SHARE = 0.02  # of what there is: less is not worth a line
LARGE = 20_000_000  # multiply-adds
LEAST_WORK = 0.0005  # a share of the instructions
DEEPER_BYTES = 128  # of stack, for the calls of stripes
TEXTS = {
    "--ram": "Layers can be computed a few rows at a time, so that their tensors are never in RAM as a whole.",
    "--feed-rows": "Rows of the input can be given one by one, so that the picture is never in RAM as a whole.",
    "--stream": "The input is a sequence: one frame at a time, the network keeps what it needs of the frames before.",
    "--quantize": "Most of the work is in floating point. Give calibration data to keep the accuracy of integers.",
}


def advice_of(
    manifest: Manifest,
    target: Target,
    layers: tuple[LayerFacts, ...],
    regions: tuple[Region, ...],
    gains: tuple[Gain, ...] | None,
) -> tuple[Advice, ...]:
    """`gains` is None where they are not computed: then there are the ways, without numbers."""
    if gains is None:
        found = list(_unplanned(manifest, target, layers, regions))
    else:
        found = [_planned(gain, manifest) for gain in gains if _worth(gain, manifest)]
    return (*found, *_others(manifest, target, sum(layer.macs for layer in layers)))


def _worth(gain: Gain, manifest: Manifest) -> bool:
    memory = manifest.memory
    return gain.arena_bytes > LEAST_SHARE * memory.arena_bytes or gain.weight_bytes > LEAST_SHARE * memory.weight_bytes


def _planned(gain: Gain, manifest: Manifest) -> Advice:
    arena, weights = manifest.memory.arena_bytes, manifest.memory.weight_bytes
    parts = [f"{gain.arena_bytes:,} bytes of RAM (arena {arena:,} -> {arena - gain.arena_bytes:,})"] if gain.arena_bytes > 0 else []
    if gain.weight_bytes > 0:
        parts.append(f"{gain.weight_bytes:,} bytes of weights ({weights:,} -> {weights - gain.weight_bytes:,})")
    cost = f"; needs {-gain.arena_bytes:,} bytes of RAM more" if gain.arena_bytes < 0 else ""
    cost += f"; about {100 * gain.slower:.1f} % more work (estimated)" if gain.slower > LEAST_WORK else ""
    word = gain.flag.split()[0]
    return Advice(TEXTS[word], _flag(gain, manifest), f"saves {' and '.join(parts)}, by a plan with it{cost}", ESTIMATED)


def _flag(gain: Gain, manifest: Manifest) -> str:
    if gain.flag.startswith("--quantize"):
        return f"{gain.flag} --calibrate DATA.npz"
    info = manifest.firmware
    if gain.flag not in ("--ram", "--feed-rows") or info is None:
        return gain.flag
    least = info.ram_bytes - gain.arena_bytes + DEEPER_BYTES
    limit = f"--ram {-(-least // STACK_ALIGNMENT) * STACK_ALIGNMENT}"
    return limit if gain.flag == "--ram" else f"{gain.flag} {limit}"


def _unplanned(
    manifest: Manifest, target: Target, layers: tuple[LayerFacts, ...], regions: tuple[Region, ...]
) -> Iterator[Advice]:
    unknown = "not computed here" + (f"; `intaglio fit {manifest.model.file}` does" if target.bare else "")
    options = manifest.options
    floats = sum(layer.macs for layer in layers if layer.result.startswith("f32"))
    if "quantize" not in options and 2 * floats > sum(layer.macs for layer in layers):
        yield Advice(TEXTS["--quantize"], "--quantize int8 --calibrate DATA.npz", unknown, ESTIMATED)
    if target.bare and "ram" not in options and regions and _dominated(regions[0]):
        yield Advice(TEXTS["--ram"], "--ram N", unknown, ESTIMATED)


def _others(manifest: Manifest, target: Target, macs: int) -> Iterator[Advice]:
    memory = manifest.memory
    if memory.arena_bytes > memory.lower_bound_bytes:
        bound = memory.lower_bound_bytes
        gain = f"at most {memory.arena_bytes - bound:,} bytes of RAM: no plan of these buffers is below {bound:,}"
        text = "The memory plan is above its lower bound; a longer search may find a smaller one."
        yield Advice(text, "--optimize size", gain, COMPUTED)
    if target.bare or target.wasm or manifest.opencl is not None or macs <= LARGE:
        return
    if target.threads == 1:
        yield Advice("Layers are large enough for several threads.", "--threads 2", "at most half of the time, on two cores",
                     ESTIMATED)  # fmt: skip
    if "tuning" not in manifest.options:
        yield Advice("Kernels and tiles were chosen by estimate. Measuring them on this machine may find faster ones.",
                     f"intaglio tune {manifest.model.file}", "not known before it is measured", ESTIMATED)  # fmt: skip


def _dominated(region: Region) -> bool:
    """Is the peak much higher than what most layers need?"""
    ordered = sorted(region.live)
    return len(ordered) >= 4 and ordered[-1] > 1.5 * ordered[len(ordered) // 2]


__all__ = ["advice_of"]
