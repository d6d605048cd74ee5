"""Where the nodes of a graph are drawn: one row per step of the longest path, columns that keep chains straight.

       x              Rows follow the order of execution, so that an edge always goes down. Within a row, nodes stand near the
     /   \\            middle of what they read: two sweeps down and one up, each linear in the edges. A chain is one column.
    a     b
     \\   /
       c
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Drawn:
    """Column (in widths of a node, may be between two) and row of every node, by number."""

    columns: tuple[float, ...]
    rows: tuple[int, ...]


def layered(count: int, edges: Sequence[tuple[int, int]]) -> Drawn:
    """Edges go from lower to higher numbers, as in order of execution."""
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for first, second in edges:
        above[second].append(first)
        below[first].append(second)
    rows = [0] * count
    for node in range(count):
        rows[node] = max((rows[n] + 1 for n in above[node]), default=0)
    for node in reversed(range(count)):  # a source stands right above what reads it
        if not above[node] and below[node]:
            rows[node] = min(rows[n] for n in below[node]) - 1
    members: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node in range(count):
        members[rows[node]].append(node)
    columns = [0.0] * count
    for row in members:
        for place, node in enumerate(row):
            columns[node] = place - (len(row) - 1) / 2
    for sweep in range(SWEEPS):
        near, order = (above, members) if sweep % 2 == 0 else (below, members[::-1])
        for row in order:
            _place(row, near, columns)
    return Drawn(tuple(columns), tuple(rows))


def _place(row: list[int], near: list[list[int]], columns: list[float]) -> None:
    """Each node where it wants to be, in that order, at least one width apart; the row as a whole keeps its middle."""
    wanted = {node: sum(columns[n] for n in near[node]) / len(near[node]) if near[node] else columns[node] for node in row}
    row.sort(key=lambda node: (wanted[node], columns[node], node))
    at = [wanted[node] for node in row]
    for n in range(1, len(at)):
        at[n] = max(at[n], at[n - 1] + 1)
    shift = sum(wanted[node] - place for node, place in zip(row, at, strict=True)) / len(at)
    for node, place in zip(row, at, strict=True):
        columns[node] = round(place + shift, 3)


__all__ = ["Drawn", "layered"]
