"""TFLite models of integers at random: chains of layers with branches. Every way to compute them has to agree in every bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from hunting.compare import Case, Failure, optimised
from intaglio.frontends.reading import read_source
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from intaglio.options.request import Request
from intaglio.pipeline import plan_request
from intaglio.run.error_bounds import Known
from intaglio.run.machine import Machine
from intaglio.stages.watch import Watch
from support.tflite_models import ModelWriter, Tensor, all_by_litert

KINDS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "MAX_POOL_2D", "AVERAGE_POOL_2D", "SOFTMAX", "LOGISTIC",
         "TANH", "RESHAPE", "MEAN", "CONCATENATION", "RELU")  # fmt: skip
TARGETS = ("cortex-m4f", "cortex-m0+", "x86-64-v3", "cortex-m55")


@dataclass(frozen=True, slots=True)
class Chain:
    """A model by its number and the operators that were chosen; one with fewer of them is the reduced one."""

    seed: int
    kinds: tuple[str, ...]

    def smaller(self) -> Iterator[Chain]:
        for n in range(len(self.kinds)):
            yield Chain(self.seed, (*self.kinds[:n], *self.kinds[n + 1 :]))

    def write(self, path: Path) -> list[list[Array]]:
        """The file, and inputs for it."""
        maker = _Maker(self.seed)
        for kind in self.kinds:
            maker.grow(kind)
        path.write_bytes(maker.finish())
        rng = np.random.default_rng(self.seed)
        shape = maker.first.shape
        return [[rng.integers(-128, 128, shape).astype(np.int8)], [rng.choice([-128, 127], shape).astype(np.int8)]]


class _Maker:
    def __init__(self, seed: int) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.writer = ModelWriter()
        self.writer.subgraph()
        shape = self.rng.choice([(1, 6, 6, 3), (1, 5, 4, 8), (1, 1, 7, 2), (1, 8, 8, 1), (1, 10)])
        self.first = self.made = self._tensor(shape)
        self.at = self.writer.tensor(self.first, "in")
        self.writer.graph.inputs = [self.at]

    def _tensor(self, shape: tuple[int, ...], scale: float | None = None, zero: int | None = None) -> Tensor:
        zero = self.rng.randrange(-128, 128) if zero is None else zero
        return Tensor(shape, "int8", scale or self.rng.choice((0.01, 0.02, 0.05, 0.1)), zero)

    def _add(
        self, op: str, inputs: list[int], out: Tensor, options: str = "", fields: dict[str, object] | None = None, version: int = 2
    ) -> None:
        at = self.writer.tensor(out, f"t{len(self.writer.graph.tensors)}")
        self.writer.operator(op, inputs, [at], options, fields, version)
        self.at, self.made = at, out

    def _weights(self, shape: tuple[int, ...], channels: int, axis: int) -> tuple[int, int]:
        """With one scale for each channel, and a bias."""
        scales = [float(np.float32(s)) for s in self.numbers.uniform(0.002, 0.02, channels)]
        w = Tensor(shape, "int8", scales, 0, self.numbers.integers(-127, 128, shape).astype(np.int8), axis)
        assert isinstance(self.made.scale, float)
        steps = [float(np.float32(self.made.scale) * np.float32(s)) for s in scales]
        b = Tensor((channels,), "int32", steps, 0, self.numbers.integers(-2000, 2000, channels).astype(np.int32))
        names = len(self.writer.graph.tensors)
        return self.writer.tensor(w, f"w{names}"), self.writer.tensor(b, f"b{names}")

    def grow(self, kind: str) -> None:
        shape, image = self.made.shape, len(self.made.shape) == 4
        pad, stride = self.rng.randrange(2), self.rng.choice((1, 1, 2))
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"):
            if image:
                self._window(kind, pad, stride)
        elif kind == "FULLY_CONNECTED":
            if not image:
                outs = self.rng.choice((1, 5, 16))
                w = Tensor((outs, shape[-1]), "int8", 0.01, 0, self.numbers.integers(-127, 128, (outs, shape[-1])).astype(np.int8))
                place = self.writer.tensor(w, f"w{len(self.writer.graph.tensors)}")
                self._add(kind, [self.at, place, -1], self._tensor((shape[0], outs)), "FullyConnectedOptions", version=4)
        elif kind in ("ADD", "MUL"):
            self._add(
                kind,
                [self.at, self.at],
                self._tensor(shape),
                f"{kind.capitalize()}Options",
                {"fusedActivationFunction": self.rng.choice((0, 1))},
            )
        elif kind == "SOFTMAX":
            if not image:
                self._add(kind, [self.at], self._tensor(shape, 1 / 256, -128), "SoftmaxOptions", {"beta": 1.0})
        elif kind in ("LOGISTIC", "TANH"):
            scale, zero = (1 / 256, -128) if kind == "LOGISTIC" else (1 / 128, 0)
            self._add(kind, [self.at], self._tensor(shape, scale, zero))
        elif kind == "RESHAPE":
            size = int(np.prod(shape))
            new = Tensor((2,), "int32", data=np.array([1, size], np.int32))
            place = self.writer.tensor(new, f"s{len(self.writer.graph.tensors)}")
            self._add(
                kind,
                [self.at, place],
                Tensor((1, size), "int8", self.made.scale, self.made.zero),
                "ReshapeOptions",
                {"newShape": [1, size]},
                1,
            )
        elif kind == "MEAN":
            if image:
                axes = self.writer.tensor(
                    Tensor((2,), "int32", data=np.array([1, 2], np.int32)), f"a{len(self.writer.graph.tensors)}"
                )
                self._add(kind, [self.at, axes], self._tensor((shape[0], shape[3])), "ReducerOptions", {"keepDims": False})
        elif kind == "CONCATENATION":
            same = Tensor((*shape[:-1], 2 * shape[-1]), "int8", self.made.scale, self.made.zero)
            self._add(kind, [self.at, self.at], same, "ConcatenationOptions", {"axis": len(shape) - 1})
        else:
            self._add(kind, [self.at], Tensor(shape, "int8", self.made.scale, self.made.zero))

    def _window(self, kind: str, pad: int, stride: int) -> None:
        n, h, w, c = self.made.shape
        k = self.rng.choice([size for size in (1, 2, 3) if size <= min(h, w)])
        out = [-(-s // stride) if pad == 0 else (s - k) // stride + 1 for s in (h, w)]
        fields: dict[str, object] = {
            "padding": pad,
            "strideH": stride,
            "strideW": stride,
            "fusedActivationFunction": self.rng.choice((0, 1, 3)),
        }
        if kind.endswith("POOL_2D"):
            same = Tensor((n, *out, c), "int8", self.made.scale, self.made.zero)
            self._add(kind, [self.at], same, "Pool2DOptions", {**fields, "filterHeight": k, "filterWidth": k})
            return
        fields |= {"dilationHFactor": 1, "dilationWFactor": 1}
        if kind == "CONV_2D":
            outs = self.rng.choice((1, 4, 7, 16))
            places = self._weights((outs, k, k, c), outs, 0)
            self._add(kind, [self.at, *places], self._tensor((n, *out, outs)), "Conv2DOptions", fields, 3)
        else:
            places = self._weights((1, k, k, c), c, 3)
            self._add(
                kind, [self.at, *places], self._tensor((n, *out, c)), "DepthwiseConv2DOptions", {**fields, "depthMultiplier": 1}, 3
            )

    def finish(self) -> bytes:
        if self.at == self.writer.graph.inputs[0]:
            self._add("RELU", [self.at], Tensor(self.made.shape, "int8", self.made.scale, self.made.zero))
        self.writer.graph.outputs = [self.at]
        return self.writer.finish()


class ReferenceEnded(Exception):
    """LiteRT ended the process on a model, as its own checks do: there is nothing to compare with."""


def by_litert(path: Path, steps: list[list[Array]]) -> list[list[Array]]:
    """In a process of its own, which may end."""
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        try:
            return pool.submit(all_by_litert, path, steps).result()
        except BrokenProcessPool:
            raise ReferenceEnded(path.name) from None


def chain_of(seed: int) -> Chain:
    rng = random.Random(f"tflite {seed}")
    return Chain(seed, tuple(rng.choice(KINDS) for _ in range(rng.randrange(1, 9))))


def failures_of(chain: Chain, folder: Path) -> Iterator[Failure]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"m{chain.seed}.tflite"
    steps = chain.write(path)
    expected = by_litert(path, steps)
    graph = read_source(path, {}, {}, None, {}, lambda note: None).graph
    target = random.Random(chain.seed).choice(TARGETS)
    program = plan_request(Request(path, folder / "out", target=target), Watch()).program
    ways: dict[str, Any] = {"meaning": graph, "passes": optimised(path, frozenset()), f"loops:{target}": program}
    for name, made in ways.items():
        for feed, want in zip(steps, expected, strict=True):
            if name.startswith("loops"):
                results = Machine(made).run({made.graph.inputs[0].name: feed[0]})
                got = [results[v.name] for v in made.graph.outputs]
            else:
                found = evaluate_graph(made, {made.inputs[0].name: feed[0]})
                got = [found[v.name] for v in made.outputs]
            wrong = [int(np.count_nonzero(a.reshape(-1) != b.reshape(-1))) for a, b in zip(got, want, strict=True)]
            if any(wrong):
                yield Failure(chain.seed, f"tflite {name}", f"{wrong[0]} of {got[0].size} elements differ from LiteRT")
                break


def case_of_chain(chain: Chain, folder: Path) -> Case:
    """For what is compiled: what LiteRT says, with no error."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"t{chain.seed}.tflite"
    steps = chain.write(path)
    graph = read_source(path, {}, {}, None, {}, lambda note: None).graph
    name = graph.inputs[0].origin or graph.inputs[0].name
    known = [{v.name: Known.exactly(a) for v, a in zip(graph.outputs, want, strict=True)} for want in by_litert(path, steps)]
    return Case(chain.seed, None, tuple({name: feed[0]} for feed in steps), graph, tuple(known), path)


def reduced_chain(chain: Chain, config: str, folder: Path) -> Chain:
    again = True
    while again:
        again = False
        for n in range(len(chain.kinds)):
            smaller = Chain(chain.seed, (*chain.kinds[:n], *chain.kinds[n + 1 :]))
            try:
                fails = any(f.config == config for f in failures_of(smaller, folder))
            except Exception:
                fails = False
            if fails:
                chain, again = smaller, True
                break
    return chain
