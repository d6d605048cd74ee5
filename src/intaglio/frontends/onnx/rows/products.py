"""Matrix products: MatMul, Gemm, Einsum."""

from __future__ import annotations

from intaglio.frontends.building import matmul
from intaglio.frontends.einsum import einsum
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Mul
from intaglio.ops.convert import Cast
from intaglio.ops.matmul import Det, MatMul


@importer("MatMul")
def matmul_row(call: OnnxCall) -> Answer:
    return matmul(call, call.value(0), call.value(1))


@importer("Gemm")
def gemm(call: OnnxCall) -> Answer:
    return gemm_by(call, call.value(0), call.value(1), call.maybe(2))


def gemm_by(call: OnnxCall, a: Value, b: Value, c: Value | None) -> Value:
    """alpha goes into whichever operand is a constant, else into the product; beta into the bias."""
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Fault("shape-mismatch", f"`Gemm` of {list(a.shape)} and {list(b.shape)} is not valid")
    op = MatMul(bool(call.integer("transA")), bool(call.integer("transB")))
    if alpha != 1.0 and b.data is not None:
        b, alpha = scaled(call, b, alpha), 1.0
    elif alpha != 1.0 and a.data is not None:
        a, alpha = scaled(call, a, alpha), 1.0
    if c is not None:
        c = None if beta == 0.0 else scaled(call, c, beta)
    if alpha == 1.0:
        return call.emit(op, a, b, c)
    y = scaled(call, call.emit(op, a, b, None), alpha)
    return y if c is None else call.emit(Add(), y, c)


def scaled(call: OnnxCall, x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if x.dtype.is_int:
        wide = call.emit(Mul(), call.emit(Cast(DType.F64), x), call.like(factor, call.constant(1.0)))
        return call.emit(Cast(x.dtype), wide)
    return call.emit(Mul(), x, call.like(factor, x))


@importer("Einsum")
def einsum_row(call: OnnxCall) -> Answer:
    return einsum(call, call.text("equation"), call.values())


@importer("Det")
def det(call: OnnxCall) -> Answer:
    return call.emit(Det(), call.value(0))
