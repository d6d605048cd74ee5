"""One layer as a program of its own: every way to compute it is a layer with a switch, all in one library.

    input x: f32[1,56,56,64]
    input use0: bool[]
    y0: f32[1,56,56,64] = conv(x, w, b) using conv_nhwc(tile=6x2) when use0
    y1: f32[1,56,56,64] = conv(x, w, b) using winograd(m=4,tile=6x2) when use1

So threads, working memory and weights are as in a package. A run computes one way and the hook of the package times it. Before it,
other memory is touched, as layers before would do, and then the operands are read, which the layer before would have written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.fitting.plan import Wishes, plan_memory
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType, TensorType
from intaglio.kernels import lower
from intaglio.package.manifest import Manifest
from intaglio.package.vectors import random_inputs
from intaglio.package.write import Origin, write_project
from intaglio.run.build import BuildOptions, build_project, library_file
from intaglio.run.host import Library
from intaglio.run.toolchains import Toolchain
from intaglio.targets.deployment import HOSTED
from intaglio.targets.target import Target
from intaglio.version import __version__

NAME = "trial"


def trial_graph(node: Node, ways: Sequence[str], target: Target) -> tuple[Graph, Choices]:
    graph = Graph(NAME)
    known: dict[Value, Value] = {}
    for value in node.inputs:
        if value is not None and value not in known:
            known[value] = Value(graph.new_name(f"x{len(known)}"), value.type, data=value.data)
    graph.inputs += [value for value in known.values() if not value.is_const]
    kernels = {}
    for n, using in enumerate(ways):
        switch = graph.value(f"use{n}", TensorType(DType.BOOL, ()))
        graph.inputs.append(switch)
        outputs = [graph.value(f"y{n}", out.type) for out in node.outputs]
        operands = [None if v is None else known[v] for v in node.inputs]
        graph.nodes.append(Node(node.op, operands, outputs, when=switch))
        graph.outputs += outputs
        kernels[outputs[0].name] = using
    return graph, Choices(target.name, kernels)


@dataclass(frozen=True, slots=True)
class Trial:
    ways: tuple[str, ...]
    library: Library
    manifest: Manifest
    operands: list[Array]
    outputs: list[Array]
    other: Array  # memory that other layers would use
    alone: bool  # one thread computes everything

    def time_us(self, way: int) -> float:
        """Of one run. The time that this thread had a processor for the whole call is the better bound where another process
        interrupts a long kernel."""
        switches = [np.array(n == way) for n in range(len(self.ways))]
        np.add(self.other, 1, out=self.other)
        for operand in self.operands:
            operand.max(initial=0)
        self.library.start_probe()
        start = time.thread_time()
        self.library.run_into([*self.operands, *switches], self.outputs)
        whole_us = (time.thread_time() - start) * 1e6
        measured = self.library.probe_times()[way]
        return min(measured, whole_us) if self.alone else measured


@contextmanager
def built(node: Node, ways: Sequence[str], target: Target, toolchain: Toolchain) -> Iterator[Trial]:
    graph, choices = trial_graph(node, ways, target)
    program = lower(graph, target, choices)
    program = plan_memory(program, target, HOSTED, Wishes(slots=False), lambda _: None).program
    with tempfile.TemporaryDirectory(prefix="intaglio-trial-") as name:
        folder = Path(name)
        manifest = write_project(program, target, Origin(NAME, "", None, __version__, {}), folder, None)
        for file in ("probe.c", "probe.h"):
            shutil.copyfile(folder / "src" / "app" / file, folder / "src" / file)
        options = BuildOptions(cflags=(f"-D{NAME.upper()}_HOOK",), library_only=True)
        build_project(folder, NAME, target, toolchain, options)
        library = Library(folder / "lib" / library_file(NAME, target), manifest)
        operands = random_inputs([info.type for info in manifest.inputs], seed=0)[: -len(ways)]
        shared = [np.zeros(out.shape, out.dtype.numpy) for out in node.outputs]  # all ways write to the same memory
        outputs = shared * len(ways)
        yield Trial(tuple(ways), library, manifest, operands, outputs, np.zeros(2 * target.l2_bytes, np.uint8), target.threads == 1)


@contextmanager
def on_one_core(target: Target) -> Iterator[None]:
    """This thread stays where it is, so that caches stay its own. Several threads go where the system puts them."""
    if target.threads > 1 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
