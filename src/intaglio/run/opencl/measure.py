"""Times of a package on an OpenCL device: layers by the device's own events, transfers, and what a start takes."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest
from intaglio.run.loaded import LoadedPackage
from intaglio.run.opencl.application import start_times
from intaglio.run.opencl.library import StartReport
from intaglio.run.timing import LayerTime, Profile, Total, code_bytes, least_ms


def computes_in(manifest: Manifest) -> str:
    """`fp32`; `int8`, or `int8 and fp32`, where layers of the device compute in integers."""
    info = manifest.opencl
    assert info is not None
    made = [(layer.op, DType(o.dtype), o.quant) for layer in manifest.layers if layer.accelerator for o in layer.outputs]
    names = dict.fromkeys(dtype.numpy.name for _, dtype, quant in made if quant is not None and dtype.is_int)
    if not names:
        return info.precision
    whole = next(iter(names)) if len(names) == 1 else "integers"
    floats = any(dtype.is_float and op != "dequantize" for op, dtype, _ in made)  # that makes the outputs of a quantised model
    return f"{whole} and {info.precision}" if floats else whole


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The device, what moves, and starts: of this process with the caches as they are, without any, with a filled one."""

    device: str
    kind: str
    platform: str
    driver: str
    precision: str
    device_layers: int
    transfers: int  # between host and device, beside inputs and outputs
    transferred_bytes: int
    transfers_ms: float  # all of them, inputs and outputs too
    start: StartReport
    cold: StartReport | None
    warm: StartReport | None
    computes_in: str = ""  # the precision, or the integers of a quantised model
    cached: bool = True  # programs could come from Intaglio's caches


def measure(package: LoadedPackage, inputs: list[Array], runs: int) -> Profile:
    manifest, info, library = package.manifest, package.manifest.opencl, package.opencl_library
    assert info is not None
    library.reset()
    library.run(inputs)
    start = library.start_report()
    total_ms = least_ms(package, inputs, runs)
    library.set_profiling(True)
    best, moved = [float("inf")] * len(manifest.layers), float("inf")
    try:
        for _ in range(max(1, runs)):
            library.reset()
            library.run(inputs)
            best = [min(a, b) for a, b in zip(best, library.layer_times(), strict=True)]
            moved = min(moved, library.transfer_time())
    finally:
        library.set_profiling(False)
    cold = warm = None
    if (package.folder / "bin" / manifest.name).is_file():
        cold, warm = start_times(package.folder, manifest.name, library.device, package.device.say)
    memory, code = manifest.memory, code_bytes(package)
    total = Total(
        macs=info.macs,
        instructions=None,
        cycles=None,
        time_ms=total_ms,
        ram_bytes=info.pool_bytes + memory.weight_bytes,
        arena_bytes=info.pool_bytes,
        stack_bytes=None,
        flash_bytes=None if code is None else code + memory.weight_bytes,
        code_bytes=code,
        weight_bytes=memory.weight_bytes,
    )
    layers = tuple(
        LayerTime(one.name, one.op, one.macs, None, None, us / 1000, one.kernel, one.source, accelerator=one.accelerator)
        for one, us in zip(manifest.layers, best, strict=True)
    )
    on = library.device
    about = OnDevice(
        on.name, on.kind, on.platform_name, on.driver_version, info.precision, info.device_layers, info.transfers,
        info.transferred_bytes, moved / 1000, start, cold, warm, computes_in(manifest), package.device.cache,
    )  # fmt: skip
    return Profile(manifest.target, total, layers, opencl=about)
