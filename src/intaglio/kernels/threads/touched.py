"""What each part of a kernel touches, for kernels that their builders divide: calls of routines, which no proof sees through. The
loops are walked with numbers, without data; the check of the memory plan compares the parts (`memory/check_parts.py`)."""

from __future__ import annotations

from intaglio.ir.graph import Array
from intaglio.kernels.interpret import _Machine
from intaglio.kernels.loop import (
    Braces,
    Buffer,
    Comment,
    Expr,
    For,
    If,
    Kernel,
    Let,
    Load,
    Op,
    Place,
    RoutineCall,
    Split,
    Stmt,
    Touched,
)


def touched(kernel: Kernel, split: Split, sizes: dict[Buffer, int]) -> tuple[Touched, ...]:
    """Nothing where the kernel does more than call routines. `sizes`: of the parameters, in elements; of one that is not there no
    other part knows: working memory of its own, a constant."""
    if not _calls_alone(kernel.body):
        return ()
    found: dict[Touched, None] = {}
    for part in range(split.parts):
        for step in range(split.steps):
            walk = _Walk(kernel, part, sizes)
            walk.env |= {"part": part, "step": step}
            walk.run(kernel.body)
            found |= dict.fromkeys(walk.found)
    return tuple(found)


def _calls_alone(body: tuple[Stmt, ...]) -> bool:
    return all(_is_walked(stmt) for stmt in body)


def _is_walked(stmt: Stmt) -> bool:
    match stmt:
        case Let():
            return not stmt.mutable and not _loads(stmt.value)
        case For():
            return not _loads(stmt.start) and not _loads(stmt.stop) and _calls_alone(stmt.body)
        case If():
            return not _loads(stmt.cond) and _calls_alone(stmt.then) and _calls_alone(stmt.otherwise)
        case Braces():
            return _calls_alone(stmt.body)
        case RoutineCall():
            return not any(_loads(a.index if isinstance(a, Place) else a) for a in stmt.args)
        case Comment():
            return True
    return False


def _loads(expr: Expr) -> bool:
    return isinstance(expr, Load) or (isinstance(expr, Op) and any(_loads(a) for a in expr.args))


class _Walk(_Machine):
    def __init__(self, kernel: Kernel, part: int, sizes: dict[Buffer, int]) -> None:
        memory: dict[Buffer, Array] = {}
        super().__init__(memory)
        self.part, self.sizes = part, sizes
        self.params = {param: n for n, param in enumerate(kernel.params)}
        self.found: list[Touched] = []

    def call(self, stmt: RoutineCall) -> None:
        for place in stmt.args:
            if isinstance(place, Place) and place.buffer in self.sizes:
                self.found.append(self._touched(place))

    def _touched(self, place: Place) -> Touched:
        buffer = place.buffer
        where = (self.part, self.params[buffer])
        if place.count is None:
            return Touched(*where, 0, self.sizes[buffer], 1, 0, not buffer.const)
        rows = 1 if place.rows is None else self.index(place.rows)
        return Touched(*where, self.index(place.index), self.index(place.count), rows, place.pitch, not buffer.const)
