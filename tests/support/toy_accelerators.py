"""Small accelerators for tests: good ones with every feature of the protocol, and some that misbehave."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from types import MappingProxyType

import pytest

from intaglio.accelerator import Accelerator, Array, Bus, Code, Cost, Device, Facts, Is, Layout, Pattern, Region, Target, chain
from intaglio.ops.activation import Relu, Sigmoid, Tanh
from intaglio.ops.binary import Add, Mul
from intaglio.ops.matmul import MatMul
from intaglio.targets import plugins
from intaglio.targets.plugins import Plugin, checked

HEADER = """#ifndef TOY_H
#define TOY_H
#include <stdint.h>
extern int32_t toy_on, toy_left;
void toy_add(const float *a, const float *b, float *y, int32_t n);
#endif
"""
SOURCE = """#include "toy.h"
int32_t toy_on, toy_left;
void toy_add(const float *a, const float *b, float *y, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = a[i] + b[i] + (toy_on != 1 ? 1000.0f : 0.0f);
}
"""


def same_shapes(region: Region) -> str | None:
    shapes = {v.shape for v in region.inputs}
    return None if len(shapes) == 1 and not region.constants else "both sides must have the same shape"


class Sums(Accelerator):
    """Sums, started and waited for; it has to be switched on, and uses memory of its own."""

    name = "sums"
    facts = Facts("adds", alignment=32, overlaps=True)
    patterns: tuple[Pattern, ...] = (Pattern("add", Is(Add), same_shapes),)

    def cost(self, region: Region, target: Target) -> Cost:
        return Cost(1, launch_cycles=1)

    def compile(self, region: Region, target: Target) -> Code:
        second = "in1" if len(region.inputs) > 1 else "in0"
        n = region.elements
        copy = f"for (int32_t i = 0; i < {4 * n}; i++)\n    scratch[i] = 1;"
        started = f"toy_add(in0, {second}, out0, {n});\n{copy}"
        wait = "if (scratch[0] != 1)\n    return 1;"
        return Code(started, scratch_bytes=4 * n, wait=wait, fallible=True, includes=("toy.h",), over=0)

    def files(self, target: Target) -> Mapping[str, str]:
        return {"toy.h": HEADER, "toy.c": SOURCE}

    def setup(self, target: Target) -> str:
        return "toy_on = 1;"

    def teardown(self, target: Target) -> str:
        return "toy_on = 0;\ntoy_left++;"


class Chains(Accelerator):
    """A product and what follows, and up to three of its matches at once."""

    name = "chains"
    facts = Facts("multiplies", merges=3, layouts=(Layout.NONE,))
    patterns: tuple[Pattern, ...] = (
        Pattern("mul+relu", chain(Mul, Relu), same_shapes),
        Pattern("mul", Is(Mul), same_shapes),
        Pattern("tanh", Is(Tanh)),
    )
    launch = 100.0

    def accepts(self, region: Region) -> str | None:
        return "one result alone" if len(region.outputs) != 1 else None

    def cost(self, region: Region, target: Target) -> Cost:
        return Cost(region.elements / 64, launch_cycles=self.launch, bytes=region.elements)

    def compile(self, region: Region, target: Target) -> Code:
        names = {v: f"in{n}[i]" for n, v in enumerate(region.inputs)}
        lines = [f"for (int32_t i = 0; i < {region.outputs[0].type.elements}; i++) {{"]
        for n, node in enumerate(region.nodes):
            a, *b = [names[v] for v in node.operands()]
            text = {"mul": f"{a} * {b[0] if b else a}", "relu": f"{a} > 0.0f ? {a} : 0.0f", "tanh": f"tanhf({a})"}[node.op.NAME]
            names[node.output] = f"t{n}"
            lines.append(f"    const float t{n} = {text};")
        lines += [f"    out0[i] = {names[region.outputs[0]]};", "}"]
        return Code("\n".join(lines))


class Failing(Sums):
    """Its hardware reports an error."""

    name = "failing"

    def compile(self, region: Region, target: Target) -> Code:
        return Code("return 7;", fallible=True, includes=("toy.h",))


class Crashing(Sums):
    name = "crashing"

    def cost(self, region: Region, target: Target) -> Cost:
        raise ZeroDivisionError("no cycles")


class Hanging(Sums):
    name = "hanging"

    def cost(self, region: Region, target: Target) -> Cost:
        while True:
            time.sleep(0.05)


class Leaving(Sums):
    """Ends the process, or tries to."""

    name = "leaving"

    def cost(self, region: Region, target: Target) -> Cost:
        raise SystemExit(0)


class Garbage(Sums):
    """Whatever `gives` says, from the call of that name."""

    name = "garbage"
    gives: Mapping[str, object] = MappingProxyType({})

    def _say(self, word: str, region: Region | None, target: Target | None, usual: object) -> object:
        return self.gives.get(word, usual)

    def cost(self, region: Region, target: Target) -> Cost:
        return self._say("cost", region, target, super().cost(region, target))  # type: ignore[return-value]

    def compile(self, region: Region, target: Target) -> Code:
        return self._say("compile", region, target, super().compile(region, target))  # type: ignore[return-value]

    def emulate(self, region: Region, inputs: Sequence[Array]) -> Sequence[Array]:
        return self._say("emulate", region, None, super().emulate(region, inputs))  # type: ignore[return-value]

    def files(self, target: Target) -> Mapping[str, str]:
        return self._say("files", None, target, super().files(target))  # type: ignore[return-value]

    def setup(self, target: Target) -> str:
        return self._say("setup", None, target, super().setup(target))  # type: ignore[return-value]

    def device(self, bus: Bus) -> Device | None:
        return self._say("device", None, None, None)  # type: ignore[return-value]


class Wide(Accelerator):
    """Takes products of matrices and sigmoids, at a cost that tests choose."""

    name = "wide"
    facts = Facts("wide")
    patterns = (Pattern("matmul", Is(MatMul)), Pattern("sigmoid", Is(Sigmoid)))

    def cost(self, region: Region, target: Target) -> Cost:
        return Cost(1e9)

    def compile(self, region: Region, target: Target) -> Code:
        return Code("(void)in0;")


ALL = (Sums, Chains, Failing, Crashing, Hanging, Leaving, Garbage, Wide)


def plugin(accelerator: Accelerator) -> Plugin:
    return checked(accelerator, accelerator.name, "toys 1.0")


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, as if they were installed."""
    points = {c.name: metadata.EntryPoint(c.name, f"support.toy_accelerators:{c.__name__}", plugins.GROUP) for c in ALL}
    monkeypatch.setattr(plugins, "installed", lambda: points)
    monkeypatch.setattr(plugins, "_LOADED", {})
