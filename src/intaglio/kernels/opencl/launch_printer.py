"""A launch as a __kernel function: its body is printed in floats, or in halves where the launch asks for it."""

from __future__ import annotations

from intaglio.kernels.c_printer import comment_text
from intaglio.kernels.loop import Buffer, Kernel
from intaglio.kernels.opencl.half_printer import HalfPrinter
from intaglio.kernels.opencl.launch import Launch
from intaglio.kernels.opencl.printer import C_WORDS, STATUS, TYPE_WORDS, TYPES, CLPrinter, NoOpenCL, fails, spelled


def _parameter(buffer: Buffer, restrict: bool) -> str:
    const = "const " if buffer.const else ""
    return f"__global {const}{TYPES[buffer.dtype.value]} *{'restrict ' if restrict else ''}{spelled(buffer.name)}"


def print_launch(launch: Launch, kernel: Kernel, printer: CLPrinter, name: str) -> str:
    """A complete __kernel function. Pointers that may be the same memory do not promise to differ."""
    body = (HalfPrinter(printer) if launch.half else printer).stmts(launch.body, 1)
    if not any(p.dtype.is_int for p in kernel.params):
        body.insert(0, "#pragma OPENCL FP_CONTRACT ON")
    shared = {p for n, p in enumerate(kernel.params) if kernel.in_place and (kernel.over in (-1, n) or not p.const)}
    for p in launch.params:
        if p.dtype.value not in TYPES:
            raise NoOpenCL
    parameters = [_parameter(p, p not in shared) for p in launch.params]
    if fails(launch):
        parameters.append(f"__global int *{STATUS}")
    required = ""
    if launch.fixed:
        sizes = ", ".join(str(n) for n in (*launch.gpu, *[1] * (3 - len(launch.gpu))))
        required = f"__attribute__((reqd_work_group_size({sizes})))\n"
    about = "\n".join(f" * {comment_text(line)}" for line in (launch.about or kernel.about).splitlines())
    head = f"__kernel {required}void {name}({', '.join(parameters)})"
    lines = [TYPE_WORDS.sub(lambda m: C_WORDS[m[0]], line) for line in body]
    return "\n".join([f"/*\n{about}\n */", head, "{", *lines, "}"]) + "\n"
