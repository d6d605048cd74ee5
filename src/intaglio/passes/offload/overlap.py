"""The order of nodes in which accelerators and the core work at the same time, where dependencies allow it.

    a = conv(x) on npu.0              a = conv(x) on npu.0     started
    b = relu(a)                       c = softmax(z)           meanwhile, on the core
    c = softmax(z)             ->     b = relu(a)              waits for npu.0

List scheduling: of what is ready, accelerators are started first, then the node with the longest way to the end. The given order
is kept unless the new one is faster by this estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Node

WORTH = 0.995  # of the time; below it the order changes


@dataclass(frozen=True, slots=True)
class Task:
    """`beside` seconds or cycles run next to the core, after `busy` ones of the core itself. `unit`: "" for the core."""

    busy: float
    beside: float = 0.0
    unit: str = ""


def makespan(order: list[int], tasks: list[Task], needs: list[set[int]]) -> float:
    """How long it takes in this order: the core goes on after a start, and waits where a result is needed."""
    now = 0.0
    done = [0.0] * len(tasks)
    free: dict[str, float] = {}
    for n in order:
        task = tasks[n]
        now = max([now, free.get(task.unit, 0.0) if task.unit else 0.0, *(done[m] for m in needs[n])]) + task.busy
        done[n] = now + task.beside
        if task.unit:
            free[task.unit] = done[n]
    return max([now, *done], default=0.0)


def best_order(tasks: list[Task], needs: list[set[int]]) -> list[int]:
    given = list(range(len(tasks)))
    if not any(task.beside for task in tasks):
        return given
    order = _listed(tasks, needs)
    return order if makespan(order, tasks, needs) < WORTH * makespan(given, tasks, needs) else given


def _listed(tasks: list[Task], needs: list[set[int]]) -> list[int]:
    readers: list[list[int]] = [[] for _ in tasks]
    for n, wanted in enumerate(needs):
        for m in wanted:
            readers[m].append(n)
    way = [0.0] * len(tasks)
    for n in range(len(tasks) - 1, -1, -1):
        way[n] = tasks[n].busy + tasks[n].beside + max((way[r] for r in readers[n]), default=0.0)
    missing = [len(wanted) for wanted in needs]
    ready = [n for n in range(len(tasks)) if not missing[n]]
    now, done, order = 0.0, [0.0] * len(tasks), []
    free: dict[str, float] = {}

    def start(n: int) -> float:
        """When it could begin, if it were next."""
        return max([now, free.get(tasks[n].unit, 0.0) if tasks[n].unit else 0.0, *(done[m] for m in needs[n])])

    while ready:
        n = min(ready, key=lambda n: (start(n), not tasks[n].unit, -way[n], n))
        ready.remove(n)
        now = start(n) + tasks[n].busy
        done[n] = now + tasks[n].beside
        if tasks[n].unit:
            free[tasks[n].unit] = done[n]
        order.append(n)
        for reader in readers[n]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    return order


def needs_of(nodes: list[Node]) -> list[set[int]]:
    maker = {v: n for n, node in enumerate(nodes) for v in node.outputs}
    return [{maker[v] for v in node.operands() if v in maker} - {n} for n, node in enumerate(nodes)]
