"""What a package needs of its device, by its manifest."""

from __future__ import annotations

from intaglio.fitting.limits import Needs, elsewhere, weights_beside
from intaglio.package.manifest import FirmwareInfo, Manifest
from intaglio.targets.deployment import HOSTED, Deployment


def needs_of(manifest: Manifest, info: FirmwareInfo | None, deployment: Deployment = HOSTED) -> Needs:
    memory = manifest.memory
    apart = elsewhere(memory.arenas, deployment)
    beside = weights_beside(memory.weight_bytes, memory.weights_apart, deployment)
    weights = (info or memory).weight_bytes - sum(size for _, size in beside) - memory.weights_ram
    if info is None:
        on_device = manifest.opencl is not None
        copied = memory.weights_ram
        return Needs(
            weights, memory.arena_bytes, elsewhere=apart, weights_elsewhere=beside, weights_ram=copied, on_device=on_device
        )
    static = info.ram_bytes - memory.arena_bytes - info.io_bytes - (info.stack_bytes or 0) - memory.weights_ram
    return Needs(
        weights, memory.arena_bytes, info.io_bytes, info.code_bytes, info.data_bytes, static, info.stack_bytes, apart,
        beside, memory.weights_ram,
    )  # fmt: skip


def has_room_but_for_vectors(info: FirmwareInfo, deployment: Deployment, weights_elsewhere: int = 0) -> bool:
    """`weights_elsewhere`: bytes of weights in other memories than the main flash."""
    apart = info.weight_bytes if info.weights_address is not None else 0
    room = deployment.code_room(apart)
    beside = info.flash_bytes - (apart or weights_elsewhere)
    return room is not None and beside <= room < beside + info.selftest_bytes
