"""One operator with its operands: by its reference, by the interpreter, and as compiled C."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.c_printer import print_kernel
from intaglio.kernels.choice import lower_node
from intaglio.kernels.interpret import interpret
from intaglio.kernels.job import Lowered, Packed, Scratch
from intaglio.kernels.prelude import prelude
from intaglio.kernels.program import Program
from intaglio.ops.base import Op, widen
from intaglio.run.build import BuildOptions, spared_flags
from intaglio.run.toolchains import Toolchain
from intaglio.targets import Target
from intaglio.targets.target import all_targets
from support.strict import strict_flags

TARGETS: dict[str, Target] = {t.isa: t for t in sorted(all_targets().values(), key=lambda t: not t.bare)}
TARGETS["vec4"] = replace(TARGETS["sse2"], isa="vec4")
# Largest difference between two ways to compute a float, relative to the largest number of the output.
BOUNDS = {DType.F32: 3e-6, DType.F64: 1e-13, DType.F16: 1e-3, DType.BF16: 8e-3}


@dataclass(frozen=True)
class Case:
    """Operands by position; those whose position is in `constant` are known at compile time."""

    op: Op
    operands: tuple[Array | None, ...]
    constant: frozenset[int] = frozenset()
    dtypes: tuple[tuple[int, DType], ...] = ()  # where the array does not tell: bf16
    using: str = ""  # a tile that is asked for
    bound: float | None = None

    def node(self) -> Node:
        told = dict(self.dtypes)
        values: list[Value | None] = []
        for n, array in enumerate(self.operands):
            if array is None:
                values.append(None)
                continue
            type = TensorType(told.get(n, DType.of(array)), array.shape)
            values.append(Value(f"v{n}", type, data=array if n in self.constant else None))
        outs = self.op.infer(*[None if v is None else v.type for v in values])
        return Node(self.op, values, [Value(f"y{n}", t) for n, t in enumerate(outs)], "/node")

    def expected(self) -> list[Array]:
        types = [None if v is None else v.type for v in self.node().inputs]
        return list(self.op.evaluate(list(self.operands), types))


def case(op: Op, *operands: Array | None, constant: Sequence[int] = (), using: str = "", bound: float | None = None) -> Case:
    return Case(op, operands, frozenset(constant), using=using, bound=bound)


@dataclass
class Call:
    """A kernel and the flat memory of its parameters."""

    lowered: Lowered
    arrays: list[Array]
    outputs: list[int] = field(default_factory=list)  # positions among the arrays


def prepare(case: Case, target: Target) -> Call:
    node = case.node()
    lowered = lower_node(node, target, case.using)
    given = {f"v{n}": a for n, a in enumerate(case.operands) if a is not None}
    call = Call(lowered, [])
    places = {}
    for source, param in zip(lowered.arguments, lowered.kernel.params, strict=True):
        match source:
            case Packed():
                call.arrays.append(np.ascontiguousarray(source.data).reshape(-1).copy())
            case Scratch():  # full of what would be noticed
                call.arrays.append(np.full(source.bytes, 0xFF, np.uint8).view(param.dtype.numpy))
            case Value() if source.name in given:
                call.arrays.append(np.ascontiguousarray(given[source.name]).reshape(-1).copy())
            case Value():
                places[source.name] = len(call.arrays)
                call.arrays.append(np.full(source.type.bytes, 0x7B, np.uint8).view(source.dtype.numpy))
    call.outputs = [places[o.name] for o in node.outputs]
    return call


def interpreted(case: Case, target: Target) -> tuple[int, list[Array]]:
    """The error code and the outputs."""
    call = prepare(case, target)
    code = interpret(call.lowered.kernel, call.arrays)
    shapes = [o.shape for o in case.node().outputs]
    return code, [call.arrays[n].reshape(s) for n, s in zip(call.outputs, shapes, strict=True)]


def assert_close(case: Case, results: list[Array], expected: list[Array]) -> None:
    """Integers bit for bit; floats within the bound, infinities and NaN where they belong."""
    for out, result, wanted in zip(case.node().outputs, results, expected, strict=True):
        assert result.shape == wanted.shape
        if not out.dtype.is_float:
            np.testing.assert_array_equal(result, wanted)
            continue
        got, want = (widen(np.asarray(a), out.dtype).astype(np.float64) for a in (result, wanted))
        finite = np.abs(want[np.isfinite(want)])
        bound = (case.bound or BOUNDS[out.dtype]) * float(finite.max(initial=1.0))
        np.testing.assert_allclose(got, want, rtol=0, atol=bound)


# Compiled ----------------------------------------------------------------------------------------------------------------


def write_c(calls: Sequence[Call], isa: str, path: Path) -> None:
    """All kernels in one file, as k0, k1, ..."""
    kernels = [c.lowered.kernel for c in calls]
    for n, kernel in enumerate(kernels):
        kernel.name = f"k{n}"
    program = Program(Graph("t"), [], kernels, [], isa)
    path.write_text(prelude(program) + "\n" + "\n".join(print_kernel(k) for k in kernels))


# Of gcc. Checks of addresses are calls, which are compiled faster than the checks themselves; they find null and what is outside
# of an object too.
SANITIZED = (
    "-fsanitize=address,undefined", "-fno-sanitize=null,object-size", "-fno-sanitize-recover=all",
    "--param", "asan-instrumentation-with-call-threshold=0",
)  # fmt: skip


def compile_c(toolchain: Toolchain, target: Target, source: Path, out: Path, *flags: str) -> None:
    warnings = strict_flags(toolchain.kind)
    spared = spared_flags(toolchain, target, BuildOptions(cflags=flags))
    command = [*toolchain.compiler, *warnings, *toolchain.target_flags(target), *spared, *flags, str(source), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=toolchain.environment())
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[:4000]}"


def call_compiled(library: ctypes.CDLL, call: Call) -> int:
    function = getattr(library, call.lowered.kernel.name)
    function.restype = ctypes.c_int if call.lowered.kernel.fallible else None
    function.argtypes = [ctypes.c_void_p] * len(call.arrays)
    code = function(*[a.ctypes.data for a in call.arrays])
    return int(code or 0)
