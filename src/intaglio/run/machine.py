"""A placed program run by the interpreter, in one arena, at the addresses of the plan: for `compile --verify` and tests."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.placement import ARENA, STATE, Address, Kind
from intaglio.ir.stripes import Rows, Stripe
from intaglio.kernels.interpret import interpret
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import Argument, ConstantArg, Layer, Program, ScratchArg, ValueArg


class Watcher(Protocol):
    """Sees each layer before and after it runs. Where `instead` is true, it has put the layer's results into memory itself."""

    def instead(self, machine: Machine, layer: Layer) -> bool: ...

    def after(self, machine: Machine, layer: Layer) -> None: ...


class Machine:
    def __init__(self, program: Program, watcher: Watcher | None = None) -> None:
        self.watcher = watcher
        self.program = program
        self.pitches = program.storage_pitches()
        self.arena = np.full(max(1, program.arena_bytes), 0x7F, np.uint8)
        self.arena[:] = 0x7F
        self.constants = {c.name: np.ascontiguousarray(c.data).reshape(-1) for c in program.constants}
        self.arenas = {arena.region: np.full(max(1, arena.bytes), 0x7F, np.uint8) for arena in program.arenas}
        self.outside: dict[Address, Array] = {}
        for state in program.graph.states:
            self._bytes(state.input)[:] = 0

    def _bytes(self, value: Value) -> Array:
        """From its first byte to its last, with what lies between its rows."""
        address = self.program.placement.addresses[value]
        at = address.offset
        size = self.pitches[value].extent(value) if value in self.pitches else value.type.bytes
        if address.region.kind is Kind.PART:  # of an input or an output
            whole = next(v for v in self.program.graph.values() if v.name == address.region.name)
            return self._bytes(whole)[at : at + size]
        if address.region in (ARENA, STATE):
            return self.arena[at : at + size]
        if address.region.kind is Kind.ARENA:  # of another memory
            return self.arenas[address.region][at : at + size]
        return self.outside.setdefault(address, np.zeros(value.type.bytes, np.uint8))

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
        for index, layer in enumerate(self.program.layers):
            stripe = self.program.stripe_at(index)
            if stripe is not None:
                if index == stripe.first:
                    self._run_stripe(stripe, inputs)
                continue
            guard = layer.node.when
            if guard is not None and not bool((guard.data if guard.data is not None else self._bytes(guard)).any()):
                continue
            if self.watcher is not None and self.watcher.instead(self, layer):
                continue
            pairs = zip(layer.arguments, layer.kernel.params, strict=True)
            self._interpret(layer.kernel, [self._memory(a, layer, p.dtype.numpy) for a, p in pairs])
            if self.watcher is not None:
                self.watcher.after(self, layer)
        results = {v.name: self.value(v) for v in graph.outputs}
        following = [self.value(s.output).reshape(-1).view(np.uint8) for s in graph.states]
        for state, new in zip(graph.states, following, strict=True):
            self._bytes(state.input)[:] = new
        return results

    def _interpret(self, kernel: Kernel, memory: list[Array]) -> None:
        if (code := interpret(kernel, memory)) != 0:
            raise ArithmeticError(f"the kernel `{kernel.name}` ends with error {code}")

    def put(self, value: Value, array: Array) -> None:
        """For a layer that is not interpreted."""
        self._bytes(value).view(value.dtype.numpy)[self._places(value)] = np.asarray(array).reshape(-1)

    def _places(self, value: Value) -> Array | slice:
        """Of its elements: it may lie in rows of another."""
        if (pitch := self.pitches.get(value)) is None:
            return slice(None)
        rows = value.type.elements // pitch.width
        return np.asarray(np.arange(rows)[:, None] * pitch.stride + np.arange(pitch.width)).reshape(-1)

    def _run_stripe(self, stripe: Stripe[Kernel, Argument], inputs: dict[str, Array]) -> None:
        times: dict[int, int] = {}
        for number in stripe.order:
            action = stripe.actions[number]
            time = times.get(action.layer, 0)
            times[action.layer] = time + 1
            result = next(reversed(action.rows))  # rows that are read come first
            if action.roll:
                window = self._window(stripe, result)
                kept = len(window) - action.roll
                to, source = (action.roll, 0) if stripe.spec.up else (0, action.roll)
                window[to : to + kept] = window[source : source + kept].copy()
            if action.kernel is None:
                rows = np.ascontiguousarray(inputs[result.name]).reshape(result.shape[stripe.axis], -1)
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
        return self.arena[at : at + stripe.windows[value].bytes]

    def _rows(self, stripe: Stripe[Kernel, Argument], value: Value, rows: Rows, time: int) -> Array:
        whole = self._window(stripe, value) if value in stripe.windows else self._bytes(value)
        at = rows.at + rows.step * time
        size = rows.count * math.prod(value.shape[stripe.axis + 1 :]) * value.dtype.bytes
        assert at >= 0 and at + size <= len(whole)
        return whole[at : at + size]

    def value(self, value: Value) -> Array:
        if value.data is not None:
            return value.data
        return self._bytes(value).view(value.dtype.numpy)[self._places(value)].reshape(value.shape).copy()
