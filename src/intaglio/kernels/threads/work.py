"""How much there is to do in a part of a kernel: operations of scalars or vectors, and the bytes that are touched."""

from __future__ import annotations

from collections.abc import Iterable

from intaglio.kernels.accesses import Access, after_let, enter, most_rounds
from intaglio.kernels.forms import Atom, Scope
from intaglio.kernels.loop import Assign, Braces, Buffer, CopyRun, Expr, For, If, Let, Load, Num, Op, Stmt, Store, While

FUNCTION = 12  # operations of exp, erf and their like
UNKNOWN_ROUNDS = 16  # of a loop whose bounds are not known
COPIED_BYTES = 8  # of one operation
LINE_BYTES = 64  # of a cache
LINE_WORK = 60  # operations while a line goes from one core to another
BYTE_WORK = 0.15  # operations while a byte comes from a cache that is shared, or from memory
OTHERS_WORK = 0.5  # while one comes that another core may have written: half of those that all parts read


def work_of(body: tuple[Stmt, ...], scope: Scope) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case Let():
                total += _cost(stmt.value)
                scope = after_let(stmt, scope)
            case Assign():
                total += _cost(stmt.value)
            case Store():
                total += 1 + _cost(stmt.value)
            case CopyRun():
                total += 1 + stmt.count * stmt.to.dtype.bytes // COPIED_BYTES
            case For():
                total += int(rounds_of(stmt, scope) * (1 + work_of(stmt.body, enter(stmt, scope)[0])))
            case While():
                total += UNKNOWN_ROUNDS * (1 + work_of(stmt.body, scope))
            case If():
                total += 1 + max(work_of(stmt.then, scope), work_of(stmt.otherwise, scope))
            case Braces():
                total += work_of(stmt.body, scope)
            case _:
                pass
    return total


def rounds_of(loop: For, scope: Scope) -> float:
    """How often a loop goes round. The last round of one over blocks does what is left: it is a part of a round."""
    if isinstance(loop.start, Num) and isinstance(loop.stop, Num):
        return (int(loop.stop.value) - int(loop.start.value)) / loop.step
    return most_rounds(loop, scope) or UNKNOWN_ROUNDS


def _cost(expr: Expr) -> int:
    match expr:
        case Load():
            return 1
        case Op():
            own = FUNCTION if expr.op.startswith("fn_") else 0 if expr.type.kind == "idx" else 1
            return own + sum(_cost(a) for a in expr.args)
    return 0


def traffic(found: Iterable[Access], loop: Atom, share: float, rounds: int, weights: frozenset[Buffer]) -> float:
    """What memory costs the part that does most, `share` of the rounds of a loop: buffers that do not move with the loop are read
    as a whole by every part, and a line of the cache that two parts write goes from one core to the other and back. What the layer
    before wrote is in the caches of both cores: a part that reads all of it waits for the other's, one that reads its rows finds
    them in its own cache where that layer was divided by rows too. `weights`, and what the kernel packs itself, cost less."""
    spans: dict[Buffer, tuple[int, int, bool]] = {}
    shared_lines = 0
    for access in found:
        if access.form is None:
            continue
        low, high = access.form.range()
        moved = any(atom.moved_by(loop) for atom, _ in access.form.terms)
        known = spans.get(access.buffer)
        if known is not None:
            low, high, moved = min(low, known[0]), max(high, known[1]), moved or known[2]
        spans[access.buffer] = (low, high, moved)
        if access.writes:
            shared_lines = max(shared_lines, _shared_lines(access, loop, rounds))
    work = 0.0
    for buffer, (low, high, moved) in spans.items():
        each = BYTE_WORK if moved or buffer in weights else OTHERS_WORK
        work += (high - low + 1) * buffer.dtype.bytes * (share if moved else 1) * each
    return work + shared_lines * LINE_WORK


def _shared_lines(access: Access, loop: Atom, rounds: int) -> int:
    """Lines in which one part ends and the next begins."""
    assert access.form is not None
    step = abs(access.form.coefficient(loop))
    if step == 0:
        return 0
    outer = [(atom, abs(c)) for atom, c in access.form.terms if abs(c) >= step * rounds and atom != loop]
    sizes = [step * access.buffer.dtype.bytes, *(c * access.buffer.dtype.bytes for _, c in outer)]
    if all(size % LINE_BYTES == 0 for size in sizes):
        return 0
    lines = 1
    for atom, _ in outer:
        lines *= atom.extent
    return lines
