"""Kernels for a device: as the interpreter runs them, and as PoCL (or another driver) does."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.loop import Kernel
from intaglio.kernels.opencl.interpret import run_variant
from intaglio.kernels.opencl.launch import Variant
from intaglio.kernels.opencl.launch_printer import print_launch
from intaglio.kernels.opencl.printer import CLPrinter, common, fails
from intaglio.ops.base import BadOperator
from intaglio.targets.target import Target, find_target
from support.kernel_running import Call, Case, prepare

OPENCL = find_target("opencl-generic")


def asked_of(case: Case) -> str:
    return "cl_winograd" if case.using.startswith("winograd") else ""


def on_device(case: Case, target: Target = OPENCL) -> Call | None:
    """The kernel and fresh memory; None where it stays on the CPU. Of what a case asks for, only Winograd's is there as well."""
    call = prepare(replace(case, using=asked_of(case)), target)
    return call if call.lowered.kernel.variants else None


def halves_of(case: Case) -> Case | None:
    """The same with all floats in 16 bits, where the operator takes that."""
    with np.errstate(over="ignore"):
        operands = tuple(a.astype(np.float16) if a is not None and a.dtype == np.float32 else a for a in case.operands)
    made = replace(case, operands=operands, bound=2e-2)
    try:
        node = made.node()
    except (BadOperator, AssertionError, ValueError):
        return None
    return made if node.output.dtype is DType.F16 else None


def results_of(case: Case, call: Call) -> list[Array]:
    shapes = [o.shape for o in case.node().outputs]
    return [call.arrays[n].reshape(s) for n, s in zip(call.outputs, shapes, strict=True)]


def interpreted_on_device(case: Case, variant: int, *, cpu: bool) -> tuple[int, list[Array]]:
    call = on_device(case)
    assert call is not None
    kernel = call.lowered.kernel
    code = run_variant(kernel, kernel.variants[variant], call.arrays, cpu=cpu)
    return code, results_of(case, call)


@dataclass
class Built:
    """Functions of many kernels as one text."""

    text: str
    names: dict[int, str]  # by launch


def source_of(kernels: list[Kernel]) -> Built:
    printer, texts = CLPrinter(), []
    names: dict[int, str] = {}
    for kernel in kernels:
        for variant in kernel.variants:
            for launch in variant.launches:
                if id(launch) not in names:
                    names[id(launch)] = f"k{len(names)}"
                    texts.append(print_launch(launch, kernel, printer, names[id(launch)]))
    return Built("\n".join([common(printer), *texts]), names)


class Driver:
    """A device of pyopencl."""

    def __init__(self) -> None:
        import pyopencl as cl

        self.cl = cl
        platform = next(p for p in cl.get_platforms() if p.get_devices())
        self.context = cl.Context(platform.get_devices()[:1])
        self.queue = cl.CommandQueue(self.context)

    def build(self, text: str) -> object:
        return self.cl.Program(self.context, text).build(["-cl-std=CL1.2"])

    def run(self, program: object, built: Built, call: Call, variant: Variant, *, cpu: bool) -> int:
        cl, flags = self.cl, self.cl.mem_flags
        kernel = call.lowered.kernel
        buffers = {}
        for param, array in zip(kernel.params, call.arrays, strict=True):
            host = array if array.size else np.zeros(1, array.dtype)
            buffers[param] = cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=host)
        status = np.zeros(1, np.int32)
        told = cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=status)
        for launch in variant.launches:
            function = cl.Kernel(program, built.names[id(launch)])
            function.set_args(*[buffers[p] for p in launch.params], *([told] if fails(launch) else []))
            group = launch.cpu if cpu else launch.gpu
            size = tuple(-(-n // g) * g for n, g in zip(launch.size, group, strict=True))
            cl.enqueue_nd_range_kernel(self.queue, function, size, group)
        for param, array in zip(kernel.params, call.arrays, strict=True):
            if array.size and not param.const:
                cl.enqueue_copy(self.queue, array, buffers[param])
        cl.enqueue_copy(self.queue, status, told)
        return int(status[0])
