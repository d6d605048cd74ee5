"""Chains of reshapes and transposes become at most one transpose between two reshapes."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ops.move import Reshape, Transpose
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, count_readers


@dataclass(eq=False, slots=True)
class _Atom:
    """A factor of an axis of the source that moves as one. `at` orders atoms as they lie in the source."""

    size: int
    at: tuple[int, ...]


def join_movement(graph: Graph, context: Context) -> Graph:
    """Follow every element through a chain of reshapes and transposes, and go there at once.

        a = transpose(x[1,22,22,48], perm=(0,3,1,2))
        b = reshape(a, shape=(1,2,24,22,22))                       a = reshape(x, shape=(484,2,24))
        c = transpose(b, perm=(0,2,1,3,4))                 ->      b = transpose(a, perm=(0,2,1))
        d = reshape(c, shape=(1,48,22,22))                         y = reshape(b, shape=(1,22,22,48))
        y = transpose(d, perm=(0,2,3,1))

    Skipped where a reshape cuts an axis in a way that does not divide it, and where the chain has one transpose already."""
    edit = Editor(graph)
    counts = count_readers(graph)
    movers = {n.output: n for n in graph.nodes if isinstance(n.op, (Reshape, Transpose))}
    consumed = {
        v for n in graph.nodes if isinstance(n.op, (Reshape, Transpose)) for v in n.inputs if v is not None and counts[v] == 1
    }
    for node in graph.nodes:
        edit.take(node)
        if node.output in movers and node.output not in consumed:
            chain = _chain(edit, node)
            turns = sum(isinstance(n.op, Transpose) for n in chain)
            if turns > 1 or (turns == 1 and len(chain) > 3):
                _rewrite(edit, node, chain)
                continue
        edit.keep(node)
    return edit.finish()


def _chain(edit: Editor, node: Node) -> list[Node]:
    """The movers that end in `node`, first to last."""
    chain = [node]
    source = node.inputs[0]
    while source is not None and source in edit.made:
        before = edit.made[source]
        if not isinstance(before.op, (Reshape, Transpose)) or before.when is not node.when:
            break
        chain.append(before)
        source = before.inputs[0]
    return chain[::-1]


def _rewrite(edit: Editor, node: Node, chain: list[Node]) -> None:
    source = chain[0].inputs[0]
    assert source is not None
    atoms = _follow(source, chain)
    if atoms is None or source.type.elements == 0:
        edit.keep(node)
        return
    ordered = sorted(atoms, key=lambda a: a.at)
    rank = {id(a): n for n, a in enumerate(ordered)}
    runs: list[list[_Atom]] = []  # neighbours in both orders move together
    for atom in atoms:
        if runs and rank[id(atom)] == rank[id(runs[-1][-1])] + 1:
            runs[-1].append(atom)
        else:
            runs.append([atom])
    by_source = sorted(runs, key=lambda r: r[0].at)
    shape = tuple(_product(r) for r in by_source)
    perm = tuple(by_source.index(r) for r in runs)
    value: Value = source
    if len(perm) > 1:
        if shape != source.shape:
            value = edit.emit(Reshape(shape), [value], node)
        value = edit.emit(Transpose(perm), [value], node)
    node.op, node.inputs = Reshape(node.output.shape), [value]
    edit.changed = True
    edit.keep(node)


def _product(run: list[_Atom]) -> int:
    size = 1
    for atom in run:
        size *= atom.size
    return size


def _follow(source: Value, chain: list[Node]) -> list[_Atom] | None:
    """The atoms in their final order, or None when a reshape does not cut along factors."""
    groups = [[_Atom(size, (axis,))] if size != 1 else [] for axis, size in enumerate(source.shape)]
    for node in chain:
        if isinstance(node.op, Transpose):
            groups = [groups[p] for p in node.op.perm]
            continue
        flat = [a for g in groups for a in g]
        groups = []
        for size in node.output.shape:
            group: list[_Atom] = []
            left = size
            while left != 1 and left != 0:
                if not flat:
                    return None
                atom = flat.pop(0)
                if left % atom.size == 0:
                    group.append(atom)
                    left //= atom.size
                elif atom.size % left == 0:  # cut it in two
                    group.append(_Atom(left, (*atom.at, 0)))
                    flat.insert(0, _Atom(atom.size // left, (*atom.at, 1)))
                    left = 1
                else:
                    return None
            groups.append(group)
    return [a for g in groups for a in g]
