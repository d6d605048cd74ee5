"""Reports on packages for OpenCL devices: where layers run, what is moved, how long a start takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from intaglio.cli.terminal import beginning, bytes_text, count_text, fitted, print_table
from intaglio.errors import counted
from intaglio.package.manifest import Manifest
from intaglio.run.opencl.library import StartReport
from intaglio.run.opencl.measure import OnDevice, computes_in
from intaglio.run.timing import Profile


def placed_json(manifest: Manifest) -> dict[str, object]:
    info = manifest.opencl
    assert info is not None
    return {
        "precision": info.precision,
        "device_layers": info.device_layers,
        "host_layers": [manifest.layers[n].name for n in info.host_layers],
        "device_macs": info.device_macs,
        "macs": info.macs,
        "transfers": info.transfers,
        "transferred_bytes": info.transferred_bytes,
        "pool_bytes": info.pool_bytes,
        "weight_bytes": manifest.memory.weight_bytes,
        "mirror_bytes": info.mirror_bytes,
        "limit_ms": info.limit_ms or None,
        "devices": list(filter(None, manifest.options.get("devices", "").split(","))),
        "cache": f"{manifest.name}.clbin" if f"{manifest.name}.clbin" in manifest.files else None,
    }


def placed_lines(manifest: Manifest, devices: Sequence[str]) -> list[str]:
    """After compiling: on the device, on the CPU, between them, and what the device has to have."""
    info = manifest.opencl
    assert info is not None
    share = 100 * info.device_macs / info.macs if info.macs else 100.0
    lines = [
        f"on the device: {info.device_layers} of {counted(len(manifest.layers), 'layer')}, "
        f"{count_text(info.device_macs)} multiply-adds ({share:.1f} %), in {computes_in(manifest)}"
    ]
    if info.host_layers:
        found = Counter(manifest.layers[n].op for n in info.host_layers)
        named = ", ".join(op if n == 1 else f"{n} {op}" for op, n in found.most_common(8)) + (", ..." if len(found) > 8 else "")
        moved = f"{counted(info.transfers, 'transfer')}, {info.transferred_bytes:,} bytes a run"
        on_cpu = counted(len(info.host_layers), "layer")
        lines.append(f"on the CPU: {on_cpu} ({named}); {moved}, and {bytes_text(info.mirror_bytes)} of RAM")
    total = info.pool_bytes + manifest.memory.weight_bytes
    lines.append(f"device memory: {total:,} bytes: buffers {info.pool_bytes:,}, weights {manifest.memory.weight_bytes:,}")
    if devices:
        lines.append(f"programs for {', '.join(f'`{d}`' for d in devices)} are in `{manifest.name}.clbin`")
    return lines


def print_on_device(result: Profile, on: OnDevice) -> None:
    """A row per layer and one for transfers, the whole run, then starts."""
    t = result.total
    busy = sum(layer.time_ms or 0 for layer in result.layers) + on.transfers_ms
    waiting = max(0.0, (t.time_ms or 0.0) - busy)
    total = busy + waiting or 1.0
    rows = []
    for layer in result.layers:
        ms = layer.time_ms or 0.0
        speed = f"{2 * layer.macs / ms / 1e6:.1f}" if layer.macs and ms else ""
        where, op = "device" if layer.accelerator else "cpu", beginning(layer.op, 16)
        rows.append([layer.name, op, where, count_text(layer.macs), f"{ms:.4f}", f"{100 * ms / total:.1f}", speed])
    rows.append(["transfers", "", "", "", f"{on.transfers_ms:.4f}", f"{100 * on.transfers_ms / total:.1f}", ""])
    rows.append(["launching and waiting", "", "", "", f"{waiting:.4f}", f"{100 * waiting / total:.1f}", ""])
    columns = ["layer", "op", "on", ">MACs", ">ms", ">%", ">GFLOP/s"]
    print_table(columns, fitted(columns, rows, 21))
    print(f"{on.device} ({on.kind}, {on.platform}, driver {on.driver}), {on.computes_in}: {t.time_ms:.3f} ms a run")
    layers, transfers = counted(len(result.layers), "layer"), counted(on.transfers, "transfer")
    print(f"on the device: {on.device_layers} of {layers}; {transfers} to and from the CPU, "
          f"{on.transferred_bytes:,} bytes, beside inputs and outputs")  # fmt: skip
    print(f"device memory: {t.ram_bytes:,} bytes: buffers {t.arena_bytes:,}, weights {t.weight_bytes:,}")
    print(f"this start: {told_start(on.start)}")
    if not on.cached:
        print("(without Intaglio's cache; the driver's own cache may have helped)")
    if on.cold is not None and on.warm is not None:
        print(f"cold start: {told_start(on.cold)}")
        print(f"warm start: {told_start(on.warm)}")


def told_start(report: StartReport) -> str:
    """`init 1,520.1 ms, first run 2,381.1 ms; 3 programs: 2 from the shipped cache, 1 from source; tuned`"""
    sources = {
        "of this process": report.from_process,
        "from the writable cache": report.from_writable,
        "from the shipped cache": report.from_shipped,
        "from source": report.from_source,
    }
    told = ", ".join(f"{n} {where}" for where, n in sources.items() if n)
    more = [f"{report.refused} refused"] if report.refused else []
    more += [f"{report.self_tests} kernels tested"] if report.self_tests else []
    more += ["tuned"] if report.tuned else []
    ends = f"init {report.init_ms:,.1f} ms, first run {report.first_run_ms:,.1f} ms"
    return "; ".join([ends, f"{report.programs} program{'' if report.programs == 1 else 's'}: {told or 'none'}", *more])
