"""The kernel stage: every node becomes a call of a kernel; equal kernels and equal constants are shared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from intaglio.errors import ModelError, UserError, quoted
from intaglio.ir.choices import OPEN, VIEW, Choices
from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.loops import shared_memory
from intaglio.ir.placement import NOWHERE, Placement
from intaglio.ir.sizes import most
from intaglio.ir.stripes import Stripe, StripeSpec
from intaglio.ir.views import Pitch, ViewRules, pitches_of
from intaglio.kernels.c_printer import body_lines
from intaglio.kernels.choice import lower_node, refusal
from intaglio.kernels.constants import Constants
from intaglio.kernels.job import Lowered, Packed, Scratch
from intaglio.kernels.loop import Kernel
from intaglio.kernels.opencl.lowering import ON_CPU, PREFIX, device_text
from intaglio.kernels.pitched import Unproven, with_pitches
from intaglio.kernels.program import Argument, ConstantArg, Layer, Program, ScratchArg, ValueArg
from intaglio.kernels.stripes.build import StripeBuilder, nodes_between, starts_of
from intaglio.kernels.threads.lowering import in_parts
from intaglio.ops.move import Reshape
from intaglio.targets import Target

SCRATCH_STEP = 16


@dataclass(slots=True)
class Memo:
    """What was built before of the same nodes for the same target, for those who lower a graph again and again."""

    lowered: dict[object, tuple[Lowered, str, dict[Value, Value]]] = field(default_factory=dict)
    digests: dict[int, tuple[Array, bytes]] = field(default_factory=dict)  # by id; the array is kept, so that it stays its own
    whole: dict[tuple[Node, str], Lowered] = field(default_factory=dict)  # before anything is done for rows or threads
    texts: dict[int, tuple[Kernel, str]] = field(default_factory=dict)  # of kernels, by id
    pitched: dict[object, Kernel] = field(default_factory=dict)  # by the text of a kernel and its pitches

    def of(self, node: Node, target: Target, asked: str) -> Lowered:
        if (node, asked) not in self.whole:
            self.whole[node, asked] = made = lower_node(node, target, asked)
            self.whole.setdefault((node, made.using), made)  # who asks for what was chosen gets the same
        return self.whole[node, asked]

    def in_rows(self, kernel: Kernel, pitches: Mapping[int, Pitch]) -> Kernel:
        """Kernels of the same text are the same on rows too. Raises Unproven."""
        if id(kernel) not in self.texts:
            self.texts[id(kernel)] = kernel, _text_of(kernel)
        key = self.texts[id(kernel)][1], tuple(sorted((n, p.width, p.stride) for n, p in pitches.items()))
        if key not in self.pitched:
            self.pitched[key] = with_pitches(kernel, pitches)
        return self.pitched[key]


def lower(
    graph: Graph, target: Target, asked: Choices = OPEN, *, given: Placement = NOWHERE, memo: Memo | None = None
) -> Program:
    """Build a kernel for each node; the program says which ones were chosen. Views need none. `asked`: stripes, and kernels that
    were chosen before or that an IR file was edited to have. `given`: addresses of an IR file. Kernels and addresses count if they
    are for this target. The program has a graph of its own: the memory stage may order its nodes anew."""
    graph = replace(graph, nodes=list(graph.nodes), names=set(graph.names))
    if asked.target != target.name:
        asked, given = Choices(stripes=asked.stripes), NOWHERE
    build = _Build(graph, target, asked, memo)
    striped = starts_of(graph, asked.stripes)
    skip: set[Node] = set()
    for node in graph.nodes:
        try:
            if node in striped:
                skip |= set(nodes_between(graph, striped[node]))
                build.add_stripe(striped[node])
            if node not in skip:
                build.add(node)
        except UserError as error:
            raise _placed(error, graph, node) from None
        if node not in skip:
            _need_what_was_asked(graph, node, asked.of(node), build.chosen[node.output.name], target)
    kernels = list(build.kernels.values())
    waits = any(layer.kernel.wait is not None for layer in build.layers)
    return Program(
        graph,
        build.layers,
        kernels,
        build.constants.found,
        target.isa,
        target.alignment,
        Choices(target.name, MappingProxyType(build.chosen), asked.stripes),
        given,
        stripes=build.stripes,
        asynchronous=waits,
    )


def _need_what_was_asked(graph: Graph, node: Node, asked: str, chosen: str, target: Target) -> None:
    """An edited `using` either counts or is an error; it is never passed over."""
    if asked in ("", chosen) or (asked == ON_CPU and not chosen.startswith(PREFIX)):
        return
    reason = refusal(node, target, asked)
    if reason is not None:
        kernel = quoted(node.op.NAME)
        hint = f"its kernel here is {quoted(chosen)}; remove `using` to leave the choice to the compiler; {reason}"
        if target.device:
            hint += f"; kernels of the device start with `{PREFIX}`, and `using cpu` keeps the layer off it"
        error = UserError("bad-kernel", f"{kernel} of {quoted(node.output.name)} has no kernel {quoted(asked)}", hint=hint)
        raise _placed(error, graph, node)


def _placed(error: UserError, graph: Graph, node: Node) -> UserError:
    where = error.where or graph.where(node.output.name)
    return type(error)(error.slug, error.message, where=where, hint=error.hint)


def find_views(graph: Graph, asked: Choices) -> list[Node]:
    """The reshapes that are another name for the same memory (`using view`), and the other views, which the memory stage makes,
    where they are asked for and possible.

    A reshape needs memory of its own when it is guarded (its source may not exist), when its source is a constant, or when it is
    an output (or a state) and that memory is an input or is an output already."""
    special = {*graph.outputs, *(s.output for s in graph.states)}
    roots = shared_memory(graph)
    claimed = set(special)
    fed = set(graph.inputs)
    found: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node.op, Reshape):
            continue
        source, out = node.inputs[0], node.output
        assert source is not None
        root = roots.get(source, source)
        claimed.discard(out)
        taken = out in special and (root in fed or any(roots.get(v, v) is root for v in claimed))
        if source.is_const or node.when is not None or taken:
            claimed |= {out} & special
            continue
        found.append(node)
        roots[out] = root
        claimed |= {out} & special
    rules, known = ViewRules(graph, found), set(found)
    for node in asked.views(graph):  # among them reshapes that the memory stage has made views
        if node not in known and (rules.allow(node) or rules.allow_rows(node)):
            found.append(node)
            rules.add(node)
    return found


def _apart(arguments: list[Argument], step: int) -> tuple[Argument, ...]:
    """Pieces of working memory one after the other."""
    out: list[Argument] = []
    end = 0
    for argument in arguments:
        if isinstance(argument, ScratchArg):
            argument = replace(argument, at=-(-end // step) * step)
            end = argument.at + argument.bytes
        out.append(argument)
    return tuple(out)


def _text_of(kernel: Kernel) -> str:
    """Kernels of the same text are one."""
    params = ",".join(f"{p.name}:{p.dtype.value}:{p.const}" for p in kernel.params)
    lines = body_lines(kernel)
    text = f"{params}|{kernel.in_place}|{kernel.over}|{kernel.pitches}|" + "\n".join(lines)
    if kernel.variants:
        text += device_text(kernel)
    return text if kernel.wait is None else f"{text}|{_text_of(kernel.wait)}"


def _in_rows(lowered: Lowered, node: Node, pitches: Mapping[Value, Pitch], memo: Memo) -> Lowered:
    """The kernel on values that do not lie in one piece."""
    arguments = enumerate(lowered.arguments)
    found = {n: pitches[a] for n, a in arguments if isinstance(a, Value) and a in pitches}
    try:
        return replace(lowered, kernel=memo.in_rows(lowered.kernel, found))
    except Unproven as reason:
        kernel = f"the kernel {quoted(lowered.using)} of {quoted(node.output.name)}"
        names = ", ".join(quoted(a.name) for n, a in enumerate(lowered.arguments) if n in found and isinstance(a, Value))
        text = f"{kernel} cannot use rows that are apart ({names}, by `using view`): {reason}"
        raise UserError("bad-view", text, hint="remove `using view` of the `concat` that has this part") from None


def takes_rows(node: Node, target: Target, asked: str, pitches: Mapping[Value, Pitch], memo: Memo) -> bool:
    """Has the node a kernel for values with these pitches?"""
    try:
        _in_rows(memo.of(node, target, asked), node, pitches, memo)
    except UserError:
        return False
    return True


class _Build:
    def __init__(self, graph: Graph, target: Target, asked: Choices, memo: Memo | None) -> None:
        self.graph, self.target, self.asked, self.memo = graph, target, asked, memo
        views = find_views(graph, asked)
        self.views = frozenset(views)
        self.pitches = pitches_of(views)
        self.chosen: dict[str, str] = {}
        self.layers: list[Layer] = []
        self.kernels: dict[str, Kernel] = {}  # by the text of their body
        self.constants = Constants(None if memo is None else memo.digests)
        self._names: dict[str, int] = {}
        self.stripes: list[Stripe[Kernel, Argument]] = []
        self.scratch_step = target.alignment if target.device else SCRATCH_STEP  # parts of a buffer on a device are aligned

    def add_stripe(self, spec: StripeSpec) -> None:
        for node in nodes_between(self.graph, spec):
            if (value := next((v for v in [*node.operands(), *node.outputs] if v in self.pitches), None)) is not None:
                text = f"`{spec}`: {quoted(value.name)} is a part of rows (`using view`), which stripes do not make"
                hint = "remove the `stripe` line, or `using view` of the `concat`"
                raise ModelError("bad-stripe", text, where=self.graph.file, hint=hint)
        builder = StripeBuilder(self.graph, spec, self.views, len(self.layers), self._lower_rows)
        layers, stripe = builder.build()
        self.layers += layers
        self.chosen |= builder.chosen
        self.stripes.append(stripe)

    def _lowered(
        self, node: Node, key: object, originals: dict[Value, Value], asked: str = "", *, whole: bool = False
    ) -> tuple[Lowered, Kernel, dict[Value, Value]]:
        rows = tuple((v.name, self.pitches[v]) for v in [*node.operands(), *node.outputs] if v in self.pitches) if whole else ()
        known = None if self.memo is None else self.memo.lowered.get((key, rows, whole))
        if known is None:
            threads = self.target.threads if whole else 1
            lowered = self._plain(node, asked) if whole else lower_node(node, replace(self.target, threads=1), asked)
            if rows:
                lowered = _in_rows(lowered, node, self.pitches, self.memo or Memo())
            if threads > 1:
                lowered = in_parts(lowered, node, self.target)
            known = (lowered, _text_of(lowered.kernel), originals)
            if self.memo is not None:
                self.memo.lowered[key, rows, whole] = known
                if whole and not asked:
                    self.memo.lowered.setdefault(((node, lowered.using), rows, whole), known)
        lowered, text, originals = known
        kernel = self._shared(lowered.kernel if self.memo is None else replace(lowered.kernel, used_by=[]), text)
        kernel.used_by.append(node.source or node.output.name)
        return lowered, kernel, originals

    def _plain(self, node: Node, asked: str) -> Lowered:
        return lower_node(node, self.target, asked) if self.memo is None else self.memo.of(node, self.target, asked)

    def _lower_rows(
        self, node: Node, originals: dict[Value, Value], key: object
    ) -> tuple[Kernel, tuple[Argument, ...], str]:
        """A kernel for a few rows of a layer; its arguments are the values that the rows are of."""
        lowered, kernel, originals = self._lowered(node, key, originals)
        arguments = self._arguments(lowered, node, kernel)
        whole = tuple(ValueArg(originals.get(a.value, a.value)) if isinstance(a, ValueArg) else a for a in arguments)
        return kernel, whole, lowered.using

    def add(self, node: Node) -> None:
        if node in self.views:
            self.chosen[node.output.name] = VIEW
            return
        asked = self.asked.of(node)
        asked = "" if asked == VIEW or isinstance(node.op, Reshape) else asked
        lowered, kernel, _ = self._lowered(node, (node, asked), {}, asked, whole=True)
        self.chosen[node.output.name] = lowered.using
        arguments = self._arguments(lowered, node, kernel)
        types = [None if v is None else v.type for v in node.inputs]
        self.layers.append(Layer(node.output.name, node, kernel, arguments, most(node.op.macs(types, node.output.type))))

    def _shared(self, kernel: Kernel, key: str) -> Kernel:
        if key not in self.kernels:
            stem = re.sub(r"\W+", "_", kernel.stem)[:40]
            n = self._names.get(stem, 0)
            self._names[stem] = n + 1
            kernel.name = f"{self.graph.name}_{stem}" + (f"_v{n + 1}" if n else "")
            self.kernels[key] = kernel
            if kernel.wait is not None:
                kernel.wait.name = f"{kernel.name}_wait"
                self.kernels[f"{key}|wait"] = kernel.wait
        return self.kernels[key]

    def _arguments(self, lowered: Lowered, node: Node, kernel: Kernel) -> tuple[Argument, ...]:
        named = zip(lowered.arguments, kernel.params, strict=True)
        return _apart([self._argument(source, param.name, node, kernel) for source, param in named], self.scratch_step)

    def _argument(self, source: Value | Packed | Scratch, parameter: str, node: Node, kernel: Kernel) -> Argument:
        match source:
            case Scratch():
                return ScratchArg(source.bytes, each=source.each)
            case Value() if source.data is None:
                return ValueArg(source)
            case Value() | Packed():
                return ConstantArg(self.constants.name_of(source, parameter, node, kernel))
            case _:
                assert_never(source)
