"""Matrix products: linear, mm, bmm, matmul, addmm, baddbmm, einsum, outer products, distances."""

from __future__ import annotations

from intaglio.frontends.building import cast, matmul, reshape
from intaglio.frontends.einsum import einsum
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.torch.call import Answer, Number, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ops.activation import Clip, Gelu, Relu
from intaglio.ops.binary import Add, Div, Mul, Pow, Sub
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Abs, Sqrt


@row("linear")
def linear(call: TorchCall) -> Answer:
    """By rows, as one matrix: [..., k] is [rows, k] to the kernel."""
    x, w, bias = call.tensor("input"), call.tensor("weight"), call.maybe("bias")
    if len(w.shape) == 1:
        y = matmul(call, x, w)
        return y if bias is None else call.emit(Add(), y, bias)
    rows = reshape(call, x, (1, *x.shape)) if len(x.shape) == 1 else x
    y = call.emit(MatMul(transpose_b=True), rows, w, bias)
    return reshape(call, y, (*x.shape[:-1], w.shape[0]))


@row("matmul", "mm", "bmm", "mv", "dot", "vdot", "linalg_matmul")
def matmul_row(call: TorchCall) -> Answer:
    operands = [v for v in call.arguments.values() if isinstance(v, Value)]
    if len(operands) != 2:
        raise Fault("bad-graph", f"`{call.op}` of {len(operands)} tensors is not valid")
    return matmul(call, *operands)


def _scaled(call: TorchCall, x: Value, factor: Number) -> Value:
    return x if factor == 1 else call.emit(Mul(), x, call.like(factor, x))


@row("addmm", "baddbmm", "addbmm", "addmv", "addr", "_addmm_activation")
def addmm(call: TorchCall) -> Answer:
    x = call.tensor("self")
    names = {"addmm": ("mat1", "mat2"), "_addmm_activation": ("mat1", "mat2"), "addmv": ("mat", "vec"), "addr": ("vec1", "vec2")}
    a, b = (call.tensor(name) for name in names.get(call.op, ("batch1", "batch2")))
    alpha, beta = call.number("alpha", 1), call.number("beta", 1)
    if call.op == "addr":
        a, b = reshape(call, a, (*a.shape, 1)), reshape(call, b, (1, *b.shape))
    if call.op in ("addmm", "baddbmm", "_addmm_activation") and alpha == 1 and beta == 1:
        y = call.emit(MatMul(), a, b, cast(call, x, a.dtype))
    else:
        y = matmul(call, a, b)
        if call.op == "addbmm":
            y = call.emit(Reduce("sum", (0,), False), y)
        y = _scaled(call, y, alpha)
        y = y if beta == 0 else call.emit(Add(), _scaled(call, x, beta), y)
    if call.op == "_addmm_activation":
        return call.emit(Gelu(True) if call.flag("use_gelu") else Relu(), y)
    return y


@row("outer", "ger", "kron")
def outer(call: TorchCall) -> Answer:
    a, b = [v for v in call.arguments.values() if isinstance(v, Value)]
    if call.op == "kron":
        rank = max(len(a.shape), len(b.shape))
        a, b = (reshape(call, v, (*(1,) * (rank - len(v.shape)), *v.shape)) for v in (a, b))
        left = reshape(call, a, [n for size in a.shape for n in (size, 1)])
        right = reshape(call, b, [n for size in b.shape for n in (1, size)])
        y = call.emit(Mul(), left, right)
        return reshape(call, y, [m * n for m, n in zip(a.shape, b.shape, strict=True)])
    return call.emit(Mul(), reshape(call, a, (*a.shape, 1)), reshape(call, b, (1, *b.shape)))


@row("einsum")
def einsum_row(call: TorchCall) -> Answer:
    return einsum(call, call.text("equation").replace(" ", ""), call.tensors("tensors"))


@row("bilinear")
def bilinear(call: TorchCall) -> Answer:
    y = einsum(call, "...i,oij,...j->...o", [call.tensor("input1"), call.tensor("weight"), call.tensor("input2")])
    bias = call.maybe("bias")
    return y if bias is None else call.emit(Add(), y, bias)


@row("_trilinear")
def trilinear(call: TorchCall) -> Answer:
    """The sum of a product of three, each expanded along some axes."""
    total: Value | None = None
    rank = len(call.tensor("i1").shape) + len(call.ints("expand1"))
    for n in ("1", "2", "3"):
        x, new = call.tensor(f"i{n}"), call.ints(f"expand{n}")
        rest = iter(x.shape)
        x = reshape(call, x, [1 if axis in new else next(rest) for axis in range(rank)])
        total = x if total is None else call.emit(Mul(), total, x)
    assert total is not None
    return call.emit(Reduce("sum", tuple(call.ints("sumdim")), False), total)


@row("tensordot")
def tensordot(call: TorchCall) -> Answer:
    a, b = call.tensor("self"), call.tensor("other")
    left, right = ([call.axis(d, len(x.shape)) for d in call.ints(n)] for x, n in ((a, "dims_self"), (b, "dims_other")))
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    first = [next(letters) for _ in a.shape]
    second = [first[left[right.index(i)]] if i in right else next(letters) for i in range(len(b.shape))]
    out = [c for i, c in enumerate(first) if i not in left] + [c for i, c in enumerate(second) if i not in right]
    return einsum(call, f"{''.join(first)},{''.join(second)}->{''.join(out)}", [a, b])


@row("pairwise_distance")
def pairwise_distance(call: TorchCall) -> Answer:
    a, b = call.operands("x1", "x2")
    apart = call.emit(Add(), call.emit(Sub(), a, b), call.like(call.real("eps", 1e-6), a))
    return call.again("norm", self=apart, p=call.real("p", 2.0), dim=[-1], keepdim=call.flag("keepdim"))


@row("cosine_similarity")
def cosine_similarity(call: TorchCall) -> Answer:
    a, b = call.operands("x1", "x2")
    rank = max(len(a.shape), len(b.shape))
    axis, eps = call.dim("dim", rank, 1), call.real("eps", 1e-8)

    def total(x: Value, y: Value) -> Value:
        product = call.emit(Mul(), x, y)
        return call.emit(Reduce("sum", (axis,), False), product)

    lengths = [call.emit(Clip(low=eps), call.emit(Sqrt(), total(v, v))) for v in (a, b)]
    return call.emit(Div(), total(a, b), call.emit(Mul(), *lengths))


@row("cross", "linalg_cross")
def cross(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    axis = call.dim("dim", len(a.shape), -1)
    turn = [call.constant([1, 2, 0]), call.constant([2, 0, 1])]
    one = call.emit(Mul(), call.emit(Gather(axis), a, turn[0]), call.emit(Gather(axis), b, turn[1]))
    two = call.emit(Mul(), call.emit(Gather(axis), a, turn[1]), call.emit(Gather(axis), b, turn[0]))
    return call.emit(Sub(), one, two)


@row("cdist", "_cdist_forward")
def cdist(call: TorchCall) -> Answer:
    a, b = call.tensor("x1"), call.tensor("x2")
    left = reshape(call, a, (*a.shape[:-1], 1, a.shape[-1]))
    right = reshape(call, b, (*b.shape[:-2], 1, *b.shape[-2:]))
    apart = call.emit(Sub(), left, right)
    p = call.real("p", 2.0)
    last = (len(apart.shape) - 1,)
    if p in (1.0, 2.0):
        return call.emit(Reduce("l1" if p == 1 else "l2", last, False), apart)
    powered = call.emit(Pow(), call.emit(Abs(), apart), call.like(p, apart))
    return call.emit(Pow(), call.emit(Reduce("sum", last, False), powered), call.like(1 / p, apart))
