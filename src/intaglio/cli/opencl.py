"""What is told of packages for OpenCL devices: where layers are, what moves, what a start takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from intaglio.cli.terminal import bytes_text, count_text
from intaglio.package.manifest import Manifest


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
        f"on the device: {info.device_layers} of {len(manifest.layers)} layers, {count_text(info.device_macs)} multiply-adds "
        f"({share:.1f} %), in {info.precision}"
    ]
    if info.host_layers:
        found = Counter(manifest.layers[n].op for n in info.host_layers)
        named = ", ".join(op if n == 1 else f"{n} {op}" for op, n in found.most_common(8)) + (", ..." if len(found) > 8 else "")
        moved = f"{info.transfers} transfers, {info.transferred_bytes:,} bytes a run"
        lines.append(f"on the CPU: {len(info.host_layers)} layers ({named}); {moved}, and {bytes_text(info.mirror_bytes)} of RAM")
    total = info.pool_bytes + manifest.memory.weight_bytes
    lines.append(f"device memory: {total:,} bytes: buffers {info.pool_bytes:,}, weights {manifest.memory.weight_bytes:,}")
    if devices:
        lines.append(f"programs for {', '.join(f'`{d}`' for d in devices)} are in `{manifest.name}.clbin`")
    return lines
