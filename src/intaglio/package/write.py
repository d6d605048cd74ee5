"""Write the C project of a placed program into a folder. Libraries and manifest follow once it is built."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from intaglio.errors import printable
from intaglio.fitting.weights import Weights, plan_file, plan_weights
from intaglio.ir.graph import Value
from intaglio.ir.offload import flat_nodes
from intaglio.ir.placement import Address
from intaglio.kernels.program import Constant, ConstantArg, Program
from intaglio.memory.weights_read import plan_reads
from intaglio.package.accelerators import accelerator_of, write_accelerators
from intaglio.package.folder import Later, at_once
from intaglio.package.kernel_files import write_kernels
from intaglio.package.manifest import (
    ArenaInfo,
    LayerInfo,
    Manifest,
    MemoryInfo,
    ModelInfo,
    PlaceInfo,
    StateInfo,
    TensorInfo,
    tensor_info,
)  # fmt: skip
from intaglio.package.opencl import write_opencl
from intaglio.package.pointers import output_fields, raw_constant_name
from intaglio.package.project import Project, api_inputs, input_slots, lifetimes, output_slots, project_of, state_bytes
from intaglio.package.size_info import SizeInfo
from intaglio.package.slots import write_slots
from intaglio.package.template import render_template, shipped_template
from intaglio.package.tolerance import narrowest
from intaglio.package.weights import write_offsets, write_weights
from intaglio.targets.deployment import HOSTED, Deployment
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the program came from, for header and manifest."""

    model_file: str
    model_sha256: str
    source: str | None
    version: str
    options: dict[str, str]


@dataclass(frozen=True, slots=True)
class InCommon:
    """What an entry point has in common with others: the name of the package, the block of weights, and where its own are."""

    network: str
    weights: Weights
    names: Mapping[str, Mapping[str, str]]  # by the prefix of a network: its own name of each constant, with the one in common
    has_constants: bool


def write_project(
    program: Program, target: Target, origin: Origin, folder: Path, template: Path | None, deployment: Deployment = HOSTED,
    shared: InCommon | None = None, later: Later = at_once,
) -> Manifest:  # fmt: skip
    """Sources, header, build files; weights `later`. Returns the manifest, still without files and tools. `shared`: of an entry
    point."""
    graph = program.graph
    keep_constant_outputs(program)
    weights = plan_file(program) if graph.weights == "read" else plan_weights(program.constants, deployment)
    weights = weights if shared is None else shared.weights
    manifest = manifest_of(program, target, origin, weights)
    if target.bare:
        manifest = replace(manifest, build=_build_digest(program, manifest))
    words = {"version": origin.version, "digest": origin.model_sha256, "build": manifest.build}
    project = project_of(program, target, deployment, weights, **words)
    if shared is not None:
        project = in_common(project, shared)
    render_template((template,) if template else shipped_template(target.interface), project, folder)
    sources = folder / "src"
    write_kernels(program, graph.name, sources, pairs=target.issues_pairs)
    write_accelerators(program, target, sources)
    if shared is None:
        slots = "slots" in deployment.safety
        write_weights(program.constants, weights, graph.name, sources, later, slots=slots)
        if slots:
            write_slots(program.constants, weights, graph.name, folder)
    elif shared.has_constants:
        write_offsets(shared.names[graph.name], graph.name, shared.network, sources)
    return replace(manifest, opencl=write_opencl(program, target, folder, deployment.limit_ms)) if target.device else manifest


def in_common(project: Project, shared: InCommon) -> Project:
    """One of several entry points: weights are those of all. So is the arena, unless there is a state or several memories."""
    own = bool(project.state_bytes) or len(project.arenas) > 1 or bool(project.arenas[0].section)
    return replace(project, shared_arena="" if own else shared.network, shared_weights=shared.network)


def manifest_of(program: Program, target: Target, origin: Origin, weights: Weights) -> Manifest:
    graph = program.graph
    return Manifest(
        name=graph.name,
        target=target.name,
        intaglio=origin.version,
        model=ModelInfo(printable(origin.model_file, 200), origin.model_sha256, origin.source),
        inputs=tuple(
            slotted(tensor_info(v.origin or v.name, v.name, v.type), slot)
            for v, slot in zip(api_inputs(graph), input_slots(program), strict=True)
        ),
        outputs=_outputs(program),
        states=tuple(
            StateInfo(s.input.origin or s.input.name, _state_output(program, s.output), s.input.dtype.value, s.input.shape, s.fill)
            for s in graph.states
        ),
        memory=MemoryInfo(
            arena_bytes=program.arena_bytes,
            lower_bound_bytes=program.lower_bound_bytes,
            alignment=target.alignment,
            state_bytes=state_bytes(program),
            weight_bytes=weights.total_bytes,
            optimal=program.optimal,
            fed_rows=next((v.shape[s.axis] for s in program.stripes if s.spec.fed for v in s.windows if v in graph.inputs), 0),
            arenas=tuple(ArenaInfo(str(a.region), a.bytes, a.memory) for a in program.arenas),
            weights_apart=weights.in_flashes,
            weights_ram=weights.ram_bytes,
        ),
        layers=layers_of(program),
        options=origin.options,
        sizes=tuple(
            SizeInfo(n, s.low, s.high, n in graph.counts, s.step) for n, s in (graph.bounds.ranges.items() if graph.bounds else ())
        ),
    )


def _build_digest(program: Program, manifest: Manifest) -> str:
    """Of what the firmware computes, and how. Options are not in it: they name files of the user's."""
    m = manifest
    tensors, layers = [asdict(info) for info in (*m.inputs, *m.outputs)], [asdict(layer) for layer in m.layers]
    told = [m.intaglio, m.target, m.model.sha256, asdict(m.memory), tensors, layers]
    digest = hashlib.sha256(json.dumps(told).encode())
    for constant in program.constants:
        digest.update(constant.name.encode() + constant.data.tobytes())
    return digest.hexdigest()


def keep_constant_outputs(program: Program) -> None:
    """An output that is a constant is copied from the weights, so it has to be among them."""
    graph = program.graph
    for value in [*graph.outputs, *(s.output for s in graph.states)]:
        if value.data is not None:
            name = raw_constant_name(value)
            if all(c.name != name for c in program.constants):
                program.constants.append(Constant(name, np.ascontiguousarray(value.data), value.dtype))


def slotted(info: TensorInfo, slot: Address | None) -> TensorInfo:
    return info if slot is None else replace(info, arena_offset=slot.offset, arena_region=str(slot.region))


def _outputs(program: Program) -> tuple[TensorInfo, ...]:
    graph = program.graph
    fields = output_fields(graph)
    names = graph.output_names or [v.origin or v.name for v in graph.outputs]
    slots, rounded = output_slots(program), narrowest(graph)
    return tuple(
        slotted(tensor_info(n, f, v.type, rounded.get(v, "")), slot)
        for n, f, v, slot in zip(names, fields, graph.outputs, slots, strict=True)
    )


def _state_output(program: Program, value: Value) -> str:
    graph = program.graph
    for output, name in zip(graph.outputs, graph.output_names, strict=False):
        if output is value:
            return name
    return value.origin or value.name


def layers_of(program: Program) -> tuple[LayerInfo, ...]:
    alive = lifetimes(program)
    sizes = {constant.name: constant.data.nbytes for constant in program.constants}
    read_for = {read.layer: read for read in plan_reads(program)}
    pitches, rounded = program.storage_pitches(), narrowest(program.graph)
    layers = []
    for index, layer in enumerate(program.layers):
        places = []
        for value in layer.node.outputs:
            if (place := program.placement.of(value)) is not None:
                first, last = alive[value.name]
                window = program.window_of(value)  # the rows of it that are there at once
                size = value.type.bytes if window is None else window.bytes
                row = pitches[value].width * value.dtype.bytes if value in pitches else 0
                places.append(PlaceInfo(value.name, str(place.region), place.offset, size, first, last, row, place.stride))
        if (place := program.placement.scratch.get(layer.name)) is not None:
            places.append(PlaceInfo("scratch", str(place.region), place.offset, layer.scratch_bytes, index, index))
        if (read := read_for.get(index)) is not None:
            place = program.placement.slots[read.slot]
            places.append(PlaceInfo("weights", str(place.region), place.offset, read.bytes, read.first, read.last))
        layers.append(
            LayerInfo(
                index=index,
                name=layer.name,
                op="+".join(dict.fromkeys(n.op.NAME for n in flat_nodes([layer.node]))),
                accelerator=accelerator_of(layer.node.op) or ("opencl" if layer.kernel.variants else ""),
                kernel=program.choices.of(layer.node) or layer.kernel.name,
                macs=layer.macs,
                source=printable(layer.node.source, 1000),
                outputs=tuple(tensor_info(v.origin, v.name, v.type, rounded.get(v, "")) for v in layer.node.outputs),
                weight_bytes=sum(sizes[name] for name in {a.name for a in layer.arguments if isinstance(a, ConstantArg)}),
                guarded=layer.node.when is not None,
                memory=tuple(places),
                parts=layer.kernel.split.parts if layer.kernel.split is not None else 1,
                function="" if layer.kernel.variants else layer.kernel.name,
            )
        )
    return tuple(layers)
