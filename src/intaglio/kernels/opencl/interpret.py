"""Runs launches in Python: work-items of a group take turns at barriers. The definition that drivers are tested against."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from intaglio.ir.graph import Array as Data
from intaglio.kernels.interpret import Code, Codes, Scalar, _Failed, _Machine, numpy_type
from intaglio.kernels.loop import Array, Barrier, Braces, Buffer, For, If, Kernel, Op, Stmt, While
from intaglio.kernels.opencl.launch import Launch, Variant


class _Item(_Machine):
    """One work-item; `steps` gives way at every barrier."""

    def __init__(
        self, memory: dict[Buffer, Data], codes: Codes, place: tuple[int, ...], inside: tuple[int, ...],
        group: tuple[int, ...],
    ) -> None:  # fmt: skip
        super().__init__(memory, codes)
        self.numbers = {"global_id": place, "local_id": inside, "local_size": group}

    def operation(self, op: Op, args: list[Code]) -> Code:
        if op.op not in self.numbers:
            return super().operation(op, args)
        name, (axis_code,) = op.op, args

        def number(machine: _Machine) -> Scalar:
            assert isinstance(machine, _Item)  # the code is that of all items
            known, axis = machine.numbers[name], int(axis_code(machine))
            return known[axis] if axis < len(known) else (1 if name == "local_size" else 0)

        return number

    def meaning(self, op: Op) -> Callable[..., Scalar]:
        if op.op == "lane":
            return lambda vector, at: np.asarray(np.asarray(vector)[int(at)])[()]
        if op.op == "vector":
            return lambda *args: np.array(args, numpy_type(op.type))
        if op.op == "cast" and op.type.lanes > 1:
            return lambda a: np.asarray(a).astype(numpy_type(op.type))
        return super().meaning(op)

    def steps(self, body: tuple[Stmt, ...]) -> Iterator[None]:
        for stmt in body:
            match stmt:
                case Barrier():
                    yield
                case Array():
                    if stmt.buffer.space == "private" or stmt.buffer not in self.memory:
                        self.memory[stmt.buffer] = np.zeros(stmt.size, stmt.buffer.dtype.numpy)
                case For():
                    for i in range(self.index(stmt.start), self.index(stmt.stop), stmt.step):
                        self.env[stmt.var.name] = i
                        yield from self.steps(stmt.body)
                case While():
                    while self.eval(stmt.cond):
                        yield from self.steps(stmt.body)
                case If():
                    yield from self.steps(stmt.then if self.eval(stmt.cond) else stmt.otherwise)
                case Braces():
                    yield from self.steps(stmt.body)
                case _:
                    self.run((stmt,))


def run_launch(launch: Launch, memory: dict[Buffer, Data], group: tuple[int, ...]) -> int:
    """All work-groups one after the other. Returns the error code that an item left, or 0."""
    counts = [-(-n // g) for n, g in zip(launch.size, group, strict=True)]
    status = 0
    codes = Codes()
    for at in itertools.product(*(range(n) for n in reversed(counts))):
        first = [a * g for a, g in zip(reversed(at), group, strict=True)]
        local: dict[Buffer, Data] = dict(memory)
        for stmt in launch.body:
            if isinstance(stmt, Array) and stmt.buffer.space == "local":
                local[stmt.buffer] = np.full(stmt.size, 7, stmt.buffer.dtype.numpy)
        items = []
        for inside in itertools.product(*(range(g) for g in reversed(group))):
            own = tuple(reversed(inside))
            one = _Item(dict(local), codes, tuple(f + i for f, i in zip(first, own, strict=True)), own, group)
            items.append(one.steps(launch.body))
        while items:
            alive = []
            for item in items:
                try:
                    next(item)
                    alive.append(item)
                except StopIteration:
                    pass
                except _Failed as failed:
                    status = failed.code
            assert len(alive) in (0, len(items)) or status, "a barrier that not all items of a group reach"
            items = alive
    return status


def run_variant(kernel: Kernel, variant: Variant, arrays: Sequence[Data], *, cpu: bool = False) -> int:
    """Run on flat arrays, one per parameter of the kernel; outputs are written in place."""
    memory = dict(zip(kernel.params, arrays, strict=True))
    status = 0
    with np.errstate(all="ignore"):
        for launch in variant.launches:
            status = run_launch(launch, memory, launch.cpu if cpu else launch.gpu) or status
    return status
