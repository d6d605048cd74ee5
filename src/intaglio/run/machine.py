"""A placed program run by the interpreter, in one arena, at the addresses of the plan: for `compile --verify` and tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.loops import loops_of
from intaglio.ir.placement import ARENA, STATE, Address, Kind
from intaglio.ir.sizes import largest, most, pinned
from intaglio.ir.stripes import Rows, Stripe
from intaglio.ir.types import TensorType
from intaglio.kernels.interpret import interpret
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import Argument, ConstantArg, Layer, Program, ScratchArg, ValueArg


class Watcher(Protocol):
    """Sees each layer before and after it runs. Where `instead` is true, it has put the layer's results into memory itself."""

    def instead(self, machine: Machine, layer: Layer) -> bool: ...

    def after(self, machine: Machine, layer: Layer) -> None: ...


class Machine:
    def __init__(self, program: Program, watcher: Watcher | None = None, sizes: Mapping[str, int] | None = None) -> None:
        """`sizes` are those of the caller. Those that follow from data are found on the way."""
        self.watcher = watcher
        self.program = program
        self.known = dict(sizes or {})
        self.counts = {value: name for name, value in program.graph.counts.items()}
        self.loops = loops_of([layer.node for layer in program.layers])
        self.pitches = program.storage_pitches()
        self.arena = np.full(max(1, program.arena_bytes), 0x7F, np.uint8)
        self.arena[:] = 0x7F
        self.constants = {c.name: np.ascontiguousarray(c.data).reshape(-1) for c in program.constants}
        self.arenas = {arena.region: np.full(max(1, arena.bytes), 0x7F, np.uint8) for arena in program.arenas}
        self.outside: dict[Address, Array] = {}
        for state in program.graph.states:
            self._bytes(state.input)[:] = 0

    def type(self, value: Value) -> TensorType:
        """Of a value, for the sizes that are known by now; the largest of those that are not."""
        found = pinned(value.type, self.known) if self.known else value.type
        return replace(found, shape=largest(found.shape)) if found.moves else found

    def _bytes(self, value: Value) -> Array:
        """From its first byte to its last, with what lies between its rows."""
        address = self.program.placement.addresses[value]
        at = address.offset
        size = pinned(self.pitches[value].extent(value), self.known) if value in self.pitches else self.type(value).bytes
        if address.region.kind is Kind.PART:  # of an input or an output
            whole = next(v for v in self.program.graph.values() if v.name == address.region.name)
            return self._bytes(whole)[at : at + size]
        if address.region in (ARENA, STATE):
            return self.arena[at : at + size]
        if address.region.kind is Kind.ARENA:  # of another memory
            return self.arenas[address.region][at : at + size]
        return self.outside.setdefault(address, np.zeros(most(value.type.bytes), np.uint8))[:size]

    def _memory(self, argument: Argument, layer: Layer, dtype: np.dtype[np.generic]) -> Array:
        match argument:
            case ConstantArg():
                return self.constants[argument.name]
            case ScratchArg():
                address = self.program.placement.scratch[layer.name]
                arena = self.arena if address.region == ARENA else self.arenas[address.region]
                at = address.offset + argument.at
                return arena[at : at + argument.bytes].view(dtype)
            case ValueArg():
                return self._bytes(argument.value).view(argument.value.dtype.numpy)

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        graph = self.program.graph
        fed = {s.input for s in graph.states}
        for value in graph.inputs:
            if value not in fed and self.program.window_of(value) is None:
                self._bytes(value)[:] = np.ascontiguousarray(inputs[value.name]).reshape(-1).view(np.uint8)
        position = 0
        while position < len(self.program.layers):
            position = self._step(position, inputs)
        results = {v.name: self.value(v) for v in graph.outputs}
        following = [self.value(s.output).reshape(-1).view(np.uint8) for s in graph.states]
        for state, new in zip(graph.states, following, strict=True):
            self._bytes(state.input)[:] = new
        return results

    def _step(self, position: int, inputs: dict[str, Array]) -> int:
        """One layer, or a stripe; the layer that is next."""
        layer, stripe = self.program.layers[position], self.program.stripe_at(position)
        if stripe is not None:
            if position == stripe.first:
                self._run_stripe(stripe, inputs)
            return position + 1
        guard = layer.node.when
        if guard is not None and not bool((guard.data if guard.data is not None else self._bytes(guard)).any()):
            return next((loop.end for loop in self.loops if loop.start == position), position) + 1
        for value in layer.node.outputs:  # in a loop, it was another in the turn before
            self.known.pop(self.counts.get(value, ""), None)
        if self.watcher is None or not self.watcher.instead(self, layer):
            pairs = zip(layer.arguments, layer.kernel.params, strict=True)
            self._interpret(layer.kernel, [self._memory(a, layer, p.dtype.numpy) for a, p in pairs])
            self._find(layer)
            if self.watcher is not None:
                self.watcher.after(self, layer)
        self._find(layer)
        return self._following(position, layer)

    def _following(self, position: int, layer: Layer) -> int:
        """A loop goes on while its condition holds."""
        for loop in self.loops if layer.node.op.LOOP else ():
            start, end = (self.program.layers[n] for n in (loop.start, loop.end))
            if position == loop.start:
                self._find(end)  # where it makes no turn
                return position + 1 if self._bytes(start.node.output).any() else loop.end + 1
            if position == loop.end and self._bytes(start.node.output).any():
                return loop.start + 1
        return position + 1

    def _find(self, layer: Layer) -> None:
        """Sizes that the layer has found are known from here on."""
        self.known |= {self.counts[v]: int(self.value(v).reshape(-1)[0]) for v in layer.node.outputs if v in self.counts}

    def _interpret(self, kernel: Kernel, memory: list[Array]) -> None:
        unknown = dict.fromkeys(self.program.graph.counts, 0)  # of branches that were not taken
        if (code := interpret(kernel, memory, unknown | self.known)) != 0:
            raise ArithmeticError(f"the kernel `{kernel.name}` ends with error {code}")

    def put(self, value: Value, array: Array) -> None:
        """For a layer that is not interpreted."""
        flat, places = np.asarray(array).reshape(-1), self._places(value)
        self._bytes(value).view(value.dtype.numpy)[places if isinstance(places, np.ndarray) else slice(flat.size)] = flat

    def _places(self, value: Value) -> Array | slice:
        """Of its elements: it may lie in rows of another."""
        if (pitch := self.pitches.get(value)) is None:
            return slice(None)
        rows = self.type(value).elements // pitch.width
        return np.asarray(np.arange(rows)[:, None] * pitch.stride + np.arange(pitch.width)).reshape(-1)

    def _run_stripe(self, stripe: Stripe[Kernel, Argument], inputs: dict[str, Array]) -> None:
        times: dict[int, int] = {}
        end = stripe.ends[self.known[stripe.size]] if stripe.size else None
        for number in stripe.order if end is None else (*stripe.order[: end.upto], *end.order):
            action = stripe.actions[number]
            time = times.get(action.layer, 0)
            times[action.layer] = time + 1
            result = next(reversed(action.rows))  # rows that are read come first
            if roll := pinned(action.roll, self.known):
                window = self._window(stripe, result)
                kept = len(window) - roll
                to, source = (roll, 0) if stripe.spec.up else (0, roll)
                window[to : to + kept] = window[source : source + kept].copy()
            if action.kernel is None:
                rows = np.ascontiguousarray(inputs[result.name]).reshape(self.type(result).shape[stripe.axis], -1)
                self._rows(stripe, result, action.rows[result], time)[:] = rows[time].view(np.uint8)
                continue
            layer, memory = self.program.layers[action.layer], []
            for argument, param in zip(action.arguments, action.kernel.params, strict=True):
                if isinstance(argument, ValueArg) and argument.value in action.rows:
                    part = self._rows(stripe, argument.value, action.rows[argument.value], time)
                    memory.append(part.view(argument.value.dtype.numpy))
                elif isinstance(argument, ScratchArg):
                    at = self.program.placement.scratch[layer.name].offset + argument.at
                    memory.append(self.arena[at : at + argument.bytes].view(param.dtype.numpy))
                else:
                    memory.append(self._memory(argument, layer, param.dtype.numpy))
            self._interpret(action.kernel, memory)

    def _window(self, stripe: Stripe[Kernel, Argument], value: Value) -> Array:
        at = self.program.placement.addresses[value].offset
        return self.arena[at : at + pinned(stripe.windows[value].bytes, self.known)]

    def _rows(self, stripe: Stripe[Kernel, Argument], value: Value, rows: Rows, time: int) -> Array:
        whole = self._window(stripe, value) if value in stripe.windows else self._bytes(value)
        at = pinned(rows.at, self.known) + pinned(rows.step, self.known) * time
        size = rows.count * math.prod(self.type(value).shape[stripe.axis + 1 :]) * value.dtype.bytes
        assert at >= 0 and at + size <= len(whole)
        return whole[at : at + size]

    def value(self, value: Value) -> Array:
        if value.data is not None:
            return value.data
        return self._bytes(value).view(value.dtype.numpy)[self._places(value)].reshape(self.type(value).shape).copy()
