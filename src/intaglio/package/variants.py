"""A package with variants: the network several times, for processors of one architecture, and C that picks one at run time.

    src/NAME.c                what the API is: looks at the processor, calls a variant
    src/NAME_weights.bin      constants of all variants; those that are the same in several stand once
    src/v3/NAME_on_v3.c       a variant: the network under a name of its own, from the same template as a package without variants
    src/v3/NAME_on_v3_*       its kernels

Each folder is compiled with the flags of its target. The arena is as large as that of the variant that needs most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intaglio.fitting.weights import Weights, plan_weights
from intaglio.kernels.program import Constant, Program
from intaglio.package.c_text import identifier
from intaglio.package.folder import Later, at_once
from intaglio.package.kernel_files import write_kernels
from intaglio.package.manifest import Manifest, MemoryInfo, VariantInfo
from intaglio.package.processor import WORDS, needed_bits
from intaglio.package.project import Project, VariantView, project_of
from intaglio.package.template import render_own, render_template, shipped_template
from intaglio.package.weights import write_offsets, write_weights
from intaglio.package.write import InCommon, Origin, in_common, keep_constant_outputs, layers_of, manifest_of
from intaglio.targets.deployment import Deployment
from intaglio.targets.variants import Variant


@dataclass(frozen=True, slots=True)
class Part:
    """A variant with its placed program."""

    variant: Variant
    program: Program


@dataclass(frozen=True, slots=True)
class Shared:
    """Constants of all variants, and by prefix of the variant: its own name of each, with the name here."""

    constants: list[Constant]
    names: Mapping[str, Mapping[str, str]]


def write_variants(
    parts: Sequence[Part], origin: Origin, folder: Path, deployment: Deployment, later: Later = at_once,
    shared: InCommon | None = None,
) -> Manifest:  # fmt: skip
    """Sources, header, build files; `parts` are best first. The manifest is that of the last, which runs everywhere.
    `shared`: of an entry point, whose constants are among those of all."""
    network = parts[0].variant.network
    for part in parts:
        keep_constant_outputs(part.program)
    own = share_constants([(part.variant.prefix, part.variant.short, part.program) for part in parts])
    weights = plan_weights(own.constants, deployment) if shared is None else shared.weights
    names = own.names if shared is None else shared.names
    projects = [_project(part, deployment, weights, origin) for part in parts]
    for part, project in zip(parts, projects, strict=True):
        sources = folder / "src" / part.variant.short
        render_own(shipped_template("_variant"), project.name, project.variables(), sources)
        write_kernels(part.program, project.name, sources)
        if own.constants if shared is None else shared.has_constants:
            write_offsets(names[project.name], project.name, network if shared is None else shared.network, sources)
    whole = _whole(network, parts, projects)
    render_template(shipped_template("_variants"), whole if shared is None else in_common(whole, shared), folder)
    if shared is None:
        write_weights(own.constants, weights, network, folder / "src", later)
    return _manifest(parts, origin, weights)


def _project(part: Part, deployment: Deployment, weights: Weights, origin: Origin) -> Project:
    target = part.variant.target
    made = project_of(part.program, target, deployment, weights, version=origin.version, digest=origin.model_sha256)
    return replace(made, network=part.variant.network)


def _whole(network: str, parts: Sequence[Part], projects: Sequence[Project]) -> Project:
    """What the API and the application see: the largest arena, the strictest alignment, no layers of its own."""
    own, arch = projects[-1], parts[-1].variant.target.arch
    views = tuple(_view(part, project, arch) for part, project in zip(parts, projects, strict=True))
    largest = max(projects, key=lambda p: p.arena_bytes)
    name = identifier(network)
    return replace(
        own,
        name=name,
        NAME=name.upper(),
        network="",
        arena_bytes=largest.arena_bytes,
        arenas=largest.arenas,
        alignment=max(p.alignment for p in projects),
        state_bytes=max(p.state_bytes for p in projects),
        layers=max((p.layers for p in projects), key=len),
        places=(),
        blocks=(),
        variants=(*views[:-1], replace(views[-1], needs=tuple(0 for _ in WORDS[arch]))),
        words=WORDS[arch],
    )


def _view(part: Part, project: Project, arch: str) -> VariantView:
    v, needs = part.variant, needed_bits(arch, part.variant.target.needs)
    return VariantView(v.name, v.short, project.name, project.target_about, v.target.flags, needs, project.layers)


def share_constants(parts: Sequence[tuple[str, str, Program]]) -> Shared:
    """Of programs with their prefixes and short names. Those that several have come first, then those of each together: what a
    process does not use, it does not load."""
    readers: dict[str, list[str]] = {}
    keyed = [(prefix, short, [(_content(c), c) for c in program.constants]) for prefix, short, program in reversed(parts)]
    for prefix, _, constants in keyed:
        for content, _constant in constants:
            readers.setdefault(content, []).append(prefix)
    found: dict[str, Constant] = {}
    names: dict[str, dict[str, str]] = {prefix: {} for prefix, _, _ in parts}
    taken: set[str] = set()
    for prefix, short, constants in keyed:
        for content, constant in constants:
            if content not in found:
                name = constant.name if constant.name not in taken else f"{identifier(short)}_{constant.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found[content] = replace(constant, name=name)
            names[prefix][constant.name] = found[content].name
    several = [constant for content, constant in found.items() if len(set(readers[content])) > 1]
    alone = [constant for content, constant in found.items() if len(set(readers[content])) == 1]
    return Shared([*several, *alone], names)


def _content(constant: Constant) -> str:
    data = np.ascontiguousarray(constant.data)
    digest = hashlib.sha256(data.reshape(-1).view(np.uint8).data).hexdigest()
    return f"{constant.dtype.value}{data.shape}{digest}"


def _manifest(parts: Sequence[Part], origin: Origin, weights: Weights) -> Manifest:
    own = parts[-1]
    manifest = manifest_of(own.program, own.variant.target, origin, weights)
    rows = tuple(_row(part) for part in parts)
    most = max(parts, key=lambda part: part.program.arena_bytes).program
    memory: MemoryInfo = replace(
        manifest.memory,
        arena_bytes=most.arena_bytes,
        lower_bound_bytes=most.lower_bound_bytes,
        optimal=most.optimal,
        alignment=max(part.variant.target.alignment for part in parts),
    )
    return replace(manifest, name=own.variant.network, memory=memory, variants=rows)


def _row(part: Part) -> VariantInfo:
    v, program = part.variant, part.program
    read = sum(constant.data.nbytes for constant in program.constants)
    return VariantInfo(v.name, v.prefix, v.short, program.arena_bytes, read, layers_of(program))
