"""The walk over an exported program: each tensor becomes a constant (known now) or a value of the graph.

torch's graphs may change tensors in place, also through views of them. Here a tensor is a *storage* and a path of views
into it; writing gives the storage a new value, and whoever reads another view of it afterwards sees that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.errors import ModelError, printable, quoted
from intaglio.frontends.building import cast, expand, part, reshape
from intaglio.frontends.discovery import import_rows
from intaglio.frontends.emitting import MAX_FOLDED_BYTES, MAX_NODES, Emitter
from intaglio.frontends.fourier import Complex
from intaglio.frontends.onnx.faults import Fault, Problem, unsupported
from intaglio.frontends.torch.call import TABLE, Answer, Item, TorchCall
from intaglio.frontends.torch.labels import labels_of
from intaglio.frontends.torch.program import Argument, GraphRecord, Meta, NodeRecord, Program, Ref
from intaglio.ir.graph import Array, State, Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator
from intaglio.ops.binary import Add, Where
from intaglio.ops.index import Gather
from intaglio.ops.move import Concat

Step = Callable[[Value], Value]
VIEWS = {
    "view", "reshape", "flatten", "squeeze", "unsqueeze", "unflatten", "permute", "transpose", "t", "slice", "select", "narrow",
    "split", "split_with_sizes", "chunk", "tensor_split", "unbind", "expand", "expand_as", "view_as", "contiguous", "alias",
    "detach", "_unsafe_view", "movedim", "swapaxes", "swapdims", "diagonal", "numpy_T", "mT", "_reshape_alias", "unfold",
}  # fmt: skip


MAY_COPY = {"contiguous", "reshape", "flatten"}  # views only of what lies in memory in order


@dataclass(slots=True, eq=False)
class Storage:
    value: Value
    version: int = 0
    buffer: str = ""  # the parameter, buffer or input that it belongs to


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor of the model: a way to look at a storage."""

    storage: Storage
    path: tuple[Step, ...]
    value: Value
    version: int = 0

    def now(self) -> Value:
        if self.version != self.storage.version:
            value = self.storage.value
            for step in self.path:
                value = step(value)
            self.value, self.version = value, self.storage.version
        return self.value


class Unknown:
    """The result of a node that could not be imported (only while `check` collects problems)."""


@dataclass(slots=True)
class Kept:
    """A buffer that changes."""

    name: str
    entry: Value
    start: Array
    storage: Storage


@dataclass(slots=True)
class Scope:
    items: dict[str, Item] = field(default_factory=dict)  # Tensor, Unknown, number, ...


def fill_table() -> None:
    import_rows("intaglio.frontends.torch.rows")


def split_target(target: str) -> tuple[str, str, str]:
    """(namespace, operator, overload) of `torch.ops.aten.add.Tensor`; numbers have targets such as `_operator.mul`."""
    parts = target.removeprefix("torch.ops.").split(".")
    if not target.startswith("torch.ops."):
        return ("python", parts[-1], "")
    return (parts[0], parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else "")


def row_of(target: str) -> tuple[str, bool] | None:
    """The key of the row that serves an operator, and whether it writes to its first argument."""
    namespace, op, _ = split_target(target)
    key = f"{namespace}.{op}"
    if key in TABLE:
        return key, op.endswith("_") and not op.endswith("__")
    if op.endswith("_") and f"{namespace}.{op[:-1]}" in TABLE:
        return f"{namespace}.{op[:-1]}", True
    return None


class Walk(Emitter):
    """The state of one import."""

    def __init__(self, program: Program, collect: bool = False) -> None:
        super().__init__()
        fill_table()
        self.program, self.file, self.collect = program, program.file, collect
        self.problems: list[Problem] = []
        self.labels = labels_of(program.graph)
        self.read_names = {a.name for r in program.graph.calls for a in _refs(r.arguments.values())}
        self.read_names |= {a.name for a in _refs([a for _, a in program.outputs])} | {name for _, name in program.mutations}
        self.kept: list[Kept] = []
        self.unbounded: list[str] = []  # numbers that data gives, and that nothing bounds
        self.symbols: Mapping[str, str] = {}
        self.pinned = False  # an input has another shape than in the file: declared shapes do not count
        self.place = ""
        self.visits = 0
        self.random = "0"  # a seed, or `input`
        self.random_run: Value | None = None  # the state that counts runs, where something is random
        self.random_streams = 0
        self.more_inputs: list[Value] = []
        self._started: Value | None = None
        self._weights: dict[int, Value] = {}

    # Names ----------------------------------------------------------------------------------------------------------

    def bind_weights(self, scope: Scope) -> None:
        changed = changed_names(self.program.graph) | {buffer for buffer, _ in self.program.mutations}
        used = self.read_names | changed
        for name, (kind, path) in self.program.weights.items():
            if name not in used:
                continue
            data, dtype = self.program.tensor(name)
            if name in changed and kind != "parameter":
                value = Value("", TensorType(dtype, data.shape), path)
                storage = Storage(value, buffer=name)
                self.kept.append(Kept(path, value, data, storage))
                storage.value = self._at_start(value, data)
                scope.items[name] = Tensor(storage, (), storage.value)
                continue
            if id(data) not in self._weights:
                self._weights[id(data)] = self.constant(data, dtype, path)
                self.weight_bytes += data.nbytes
            scope.items[name] = Tensor(Storage(self._weights[id(data)], buffer=name), (), self._weights[id(data)])

    def _at_start(self, entry: Value, start: Array) -> Value:
        """A state starts with one number everywhere; any other start is chosen by a flag that is false in the first run."""
        if start.size == 0 or (start == start.reshape(-1)[0]).all():
            return entry
        if self._started is None:
            self._started = Value("", TensorType(DType.BOOL, ()), "started")
        return self.emit(Where(), [self._started, entry, self.constant(start, entry.dtype)])[0]

    def states(self) -> list[State]:
        made = []
        for kept in self.kept:
            fill = kept.start.reshape(-1)[0].item() if kept.start.size and kept.storage.value is not None else 0
            uniform = kept.start.size > 0 and bool((kept.start == kept.start.reshape(-1)[0]).all())
            made.append(State(kept.entry, kept.storage.value, fill if uniform else 0))
        if self._started is not None:
            made.append(State(self._started, self.constant(np.asarray(True))))
        if self.random_run is not None:
            (after,) = self.emit(Add(), [self.random_run, self.scalar(1, DType.U32)])
            after.origin = f"{self.random_run.origin}_next"
            made.append(State(self.random_run, after))
        return made

    def look_up(self, name: str, scope: Scope) -> Item:
        if name not in scope.items:
            raise Fault("bad-graph", f"{quoted(name)} is not defined, or defined later", "export the model again")
        item = scope.items[name]
        return item.now() if isinstance(item, Tensor) else item

    def resolve(self, argument: Argument, scope: Scope) -> Item:
        if isinstance(argument, Ref):
            return self.look_up(argument.name, scope)
        if isinstance(argument, list):
            return [self.resolve(a, scope) for a in argument]
        return argument

    # Graphs ---------------------------------------------------------------------------------------------------------

    def run(self, graph: GraphRecord, scope: Scope, nested: bool = False) -> list[Item]:
        total = len(graph.calls)
        before, self.symbols = self.symbols, graph.symbols
        for index, record in enumerate(graph.calls):
            self.visits += 1
            if self.visits > MAX_NODES:
                raise Fault("too-large", f"the program has more than {MAX_NODES} nodes")
            if not nested:
                self.source = self.labels.get(record.name, record.name)
                self.place = f"{self.file}, node {index + 1} of {total}"
            self._guarded(record, graph, scope, nested)
        self.symbols = before
        return [self.resolve(a, scope) for a in graph.outputs]

    def _guarded(self, record: NodeRecord, graph: GraphRecord, scope: Scope, nested: bool) -> None:
        try:
            self._node(record, graph, scope)
        except (Fault, BadOperator) as error:
            if nested:
                raise
            slug = error.slug if isinstance(error, Fault) else "shape-mismatch"
            self._fail(slug, error.reason, error.hint, record, graph, scope)
        except Undecided as error:
            self._fail("size-decides", str(error), error.hint, record, graph, scope)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError, AssertionError) as error:
            reason = f"its arguments do not fit together ({printable(str(error), 200)})"
            self._fail("bad-attribute", reason, "export the model again, or report this model", record, graph, scope)

    def _fail(self, slug: str, reason: str, hint: str, record: NodeRecord, graph: GraphRecord, scope: Scope) -> None:
        op = printable(record.target.removeprefix("torch.ops."), 100)
        if not hint:
            listing = f"`intaglio check {self.file}` lists everything that is unsupported"
            hint = "export the model again" if self.collect else listing
        if self.collect:
            self.problems.append(Problem(self.source, op, reason, hint, slug, self.place))
            self._poison(record, graph, scope)
            return
        raise ModelError(slug, f"`{op}` in {quoted(self.source)}: {reason}", where=self.place, hint=hint) from None

    def _poison(self, record: NodeRecord, graph: GraphRecord, scope: Scope) -> None:
        """Go on behind a node that could not be imported, with the type that the program declares for its result."""
        for name in _flat(record.outputs):
            declared = _static(graph.metas.get(name))
            if declared is None or self.pinned:
                scope.items[name] = Unknown()
            else:
                value = Value("", declared, name)
                scope.items[name] = Tensor(Storage(value), (), value)

    # Nodes ----------------------------------------------------------------------------------------------------------

    def _node(self, record: NodeRecord, graph: GraphRecord, scope: Scope) -> None:
        found = row_of(record.target)
        if found is None:
            hint = "replace it with other operators, or export with `.run_decompositions()`"
            raise unsupported("the operator is not supported", hint)
        for name in _flat(record.outputs):
            if name in scope.items:
                raise Fault("bad-graph", f"{quoted(name)} is defined twice", "export the model again")
        key, writes = found
        _, op, overload = split_target(record.target)
        arguments = {name: self.resolve(a, scope) for name, a in record.arguments.items()}
        if any(isinstance(i, Unused) for i in _leaves(arguments.values())):
            raise unsupported("it reads a result that exists only in training, such as the statistics of a normalisation")
        if any(isinstance(i, Unknown) for i in _leaves(arguments.values())):
            self._poison(record, graph, scope)
            return
        op = op[:-1] if writes and key.endswith(f".{op[:-1]}") else op
        call = TorchCall(op, overload, arguments, record, self)
        if key.startswith("higher_order."):
            self._bind(record, graph, TABLE[key](call), scope)
            return
        if any(isinstance(i, Complex) for i in _leaves(arguments.values())):
            from intaglio.frontends.torch.rows.spectrum import complex_answer

            self._bind(record, graph, complex_answer(call), scope)
            return
        answer = TABLE[key](call)
        first = next(iter(record.arguments.values()), None)
        base = scope.items.get(first.name) if isinstance(first, Ref) else None
        if writes and isinstance(base, Tensor):
            if not isinstance(answer, Value):
                raise unsupported(f"`{record.target}` in place is not supported")
            names = _flat(record.outputs)
            if names and not answer.origin and answer.data is None:
                answer.origin = self.labels.get(names[0], names[0])
            self._write(call, base, answer)
            scope.items.update(dict.fromkeys(names, base))
            return
        self._bind(record, graph, answer, scope)
        if op in VIEWS and isinstance(base, Tensor) and isinstance(first, Ref):
            meta = graph.metas.get(first.name)
            if op in MAY_COPY and meta is not None and not meta.contiguous:
                return
            self._link(record, call, base, scope)

    def _bind(self, record: NodeRecord, graph: GraphRecord, answer: Answer, scope: Scope) -> None:
        answers = answer if isinstance(answer, (list, tuple)) and len(record.outputs) != 1 else [answer]
        if len(record.outputs) == 1 and isinstance(record.outputs[0], str) and isinstance(answer, (list, tuple)):
            answers = list(answer)[:1]
        if len(answers) < len([o for o in record.outputs if o]):
            raise Fault("bad-graph", f"`{record.target}` gives {len(answers)} results, not {len(record.outputs)}")
        for output, item in zip(record.outputs, answers, strict=False):
            if output is None:
                continue
            names = (output,) if isinstance(output, str) else output
            items = [item] if isinstance(output, str) else list(item)
            if len(names) != len(items):
                raise Fault("bad-graph", f"`{record.target}` gives {len(items)} tensors, not {len(names)}")
            for name, each in zip(names, items, strict=True):
                scope.items[name] = self._bound(name, each, graph.metas.get(name))

    def _bound(self, name: str, item: Item, declared: Meta | None) -> Item:
        if item is None:
            return Unused()
        if not isinstance(item, Value):
            return item
        if declared is not None:
            _check_declared(name, item, declared, self.pinned)
        if not item.origin:
            item.origin = self.labels.get(name, name)
        return Tensor(Storage(item), (), item)

    def _link(self, record: NodeRecord, call: TorchCall, base: Tensor, scope: Scope) -> None:
        """Results that are views of the first argument."""
        first = next(iter(record.arguments))

        def step(index: int | None) -> Step:
            def again(value: Value) -> Value:
                answer = TABLE[f"aten.{call.op}"](replace(call, arguments={**call.arguments, first: value}))
                result = answer if index is None else answer[index]
                assert isinstance(result, Value)
                return result

            return again

        for output in record.outputs:
            for index, name in enumerate(() if output is None else (output,) if isinstance(output, str) else output):
                made = scope.items[name]
                if isinstance(made, Tensor):
                    at = None if isinstance(output, str) else index
                    scope.items[name] = Tensor(base.storage, (*base.path, step(at)), made.value, base.storage.version)

    def _write(self, call: TorchCall, view: Tensor, new: Value) -> None:
        """The storage with a new value where the view looks."""
        old = view.now()
        new = expand(call, cast(call, new, old.dtype), old.shape)
        storage = view.storage
        kind = self.program.weights.get(storage.buffer, ("", ""))[0]
        if kind == "parameter":
            raise unsupported("a parameter is changed", "make it a buffer, or export with `model.eval()`")
        if storage.buffer and not kind:
            if view.path or call.op in ("copy", "index_put", "scatter", "index_copy", "fill"):
                hint = "make it a buffer, which becomes a state, or return the new value"
                raise unsupported(f"the input {quoted(storage.buffer)} is written to, which looks like a state", hint)
            note = f"the model changes its input {quoted(storage.buffer)}; the compiled model does not change it"
            if note not in self.notes:
                self.notes.append(note)
        storage.value = new if not view.path else self._merged(call, storage.value, view, new)
        storage.version += 1
        if not view.path:
            view.value, view.version = new, storage.version

    def _merged(self, call: TorchCall, base: Value, view: Tensor, new: Value) -> Value:
        """Which elements the view looks at is found by looking at numbered elements through it."""
        elements = base.type.elements
        if 8 * elements > MAX_FOLDED_BYTES:
            raise unsupported("a part of a large tensor is changed in place", "concatenate instead")
        at = self.constant(np.arange(elements, dtype=np.int64).reshape(base.shape))
        for step in view.path:
            at = step(at)
        if at.data is None:
            raise unsupported("a part of a tensor that depends on data is changed in place")
        places = at.data.reshape(-1)
        if len(np.unique(places)) != len(places):
            raise unsupported("an expanded tensor is changed in place", "clone it first")
        if not len(places):
            return base
        if len(places) == elements and (places == np.arange(elements)).all():
            return reshape(call, new, base.shape)
        where = np.unravel_index(places, base.shape)
        low = [int(w.min()) for w in where]
        box = tuple(int(w.max()) - n + 1 for w, n in zip(where, low, strict=True))
        inside = np.arange(elements).reshape(base.shape)[tuple(slice(n, n + s) for n, s in zip(low, box, strict=True))]
        if math.prod(box) == len(places) and (inside.reshape(-1) == places).all():
            return self._boxed(call, base, reshape(call, new, box), low)
        index = np.arange(elements)
        index[places] = elements + np.arange(len(places))
        flat = call.emit(Concat(0), reshape(call, base, (elements,)), reshape(call, new, (len(places),)))
        return reshape(call, call.emit(Gather(0), flat, self.constant(index)), base.shape)

    def _boxed(self, call: TorchCall, base: Value, new: Value, low: list[int]) -> Value:
        """The base with a block of it replaced: what is around the block is put back axis by axis."""
        around = base
        layers = []
        for axis, start in enumerate(low):
            size = new.shape[axis]
            layers.append((around, start, size))
            around = part(call, around, axis, start, size)
        for axis in reversed(range(len(low))):
            whole, start, size = layers[axis]
            end = start + size
            pieces = [new]
            if start:
                pieces.insert(0, part(call, whole, axis, 0, start))
            if end < whole.shape[axis]:
                pieces.append(part(call, whole, axis, end, whole.shape[axis] - end))
            new = pieces[0] if len(pieces) == 1 else call.emit(Concat(axis), *pieces)
        return new


class Unused(Unknown):
    """A result that nothing should read, such as the statistics of a normalisation."""


def _check_declared(name: str, value: Value, declared: Meta, pinned: bool) -> None:
    """Our idea of a result against torch's: a difference would be wrong code."""
    if declared.dtype is not None and declared.dtype is not value.dtype:
        reason = f"{quoted(name)} is {value.dtype.value}; the program declares {declared.dtype.value}"
        raise Fault("shape-mismatch", reason, "report this model")
    fits = len(declared.sizes) == len(value.shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(declared.sizes, value.shape, strict=True)
    )
    if not fits and not pinned:
        sizes = [d if isinstance(d, int) else "?" for d in declared.sizes]
        raise Fault("shape-mismatch", f"{quoted(name)} is {list(value.shape)}; the program declares {sizes}", "report this model")


def _static(meta: Meta | None) -> TensorType | None:
    sizes = None if meta is None or meta.dtype is None else [s for s in meta.sizes if isinstance(s, int)]
    if meta is None or meta.dtype is None or sizes is None or len(sizes) != len(meta.sizes):
        return None
    return TensorType(meta.dtype, tuple(sizes))


def changed_names(graph: GraphRecord) -> set[str]:
    """Inputs of the graph that a node writes to, directly or through a view."""
    root: dict[str, str] = {name: name for name in graph.inputs}
    found: set[str] = set()
    for record in graph.calls:
        first = next(iter(record.arguments.values()), None)
        known = row_of(record.target)
        if not isinstance(first, Ref) or first.name not in root or known is None:
            continue
        if known[1]:
            found.add(root[first.name])
        if known[1] or split_target(record.target)[1] in VIEWS:
            root.update(dict.fromkeys(_flat(record.outputs), root[first.name]))
    return found


def _refs(arguments: Iterable[object]) -> list[Ref]:
    found: list[Ref] = []
    for argument in arguments:
        if isinstance(argument, Ref):
            found.append(argument)
        elif isinstance(argument, list):
            found += _refs(argument)
    return found


def _leaves(items: Iterable[Item]) -> list[Item]:
    found: list[Item] = []
    for item in items:
        found += _leaves(item) if isinstance(item, list) else [item]
    return found


def _flat(outputs: tuple[str | tuple[str, ...] | None, ...]) -> list[str]:
    return [name for o in outputs if o for name in ((o,) if isinstance(o, str) else o) if name]
