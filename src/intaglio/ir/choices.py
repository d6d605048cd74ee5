"""Which kernel computes each layer, and which layers are made a few rows at a time: a value beside the graph, never part of it.

    h: f32[1,8,8,16] = conv(x, w) using conv_nhwc(tile=6x2)        the kernel and its tile
    f: f32[1,1024] = reshape(h) using view                         no kernel: another name for the same memory
    stripe from h to p rows=2                                      the layers from `h` to `p`, two rows of each at a time

`lower` takes what was asked for (an edited IR file, views of an earlier plan); its program says what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from intaglio.ir.graph import Graph, Node
from intaglio.ir.stripes import StripeSpec

VIEW = "view"


@dataclass(frozen=True, slots=True)
class Choices:
    """`kernels`: by the name of the first result of a node, e.g. "conv_nhwc(tile=6x16)". They count for `target` alone,
    stripes for every target."""

    target: str = ""
    kernels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stripes: tuple[StripeSpec, ...] = ()

    def of(self, node: Node) -> str:
        """Empty where nothing is chosen."""
        return self.kernels.get(node.output.name, "")

    def is_view(self, node: Node) -> bool:
        return self.of(node) == VIEW

    def views(self, graph: Graph) -> list[Node]:
        """In order of execution."""
        return [node for node in graph.nodes if self.is_view(node)]

    def with_kernels(self, kernels: Mapping[str, str]) -> Choices:
        """These instead of, or beside, those that are there."""
        return replace(self, kernels=MappingProxyType({**self.kernels, **kernels}))

    def without(self, nodes: Iterable[Node]) -> Choices:
        gone = {node.output.name for node in nodes}
        return replace(self, kernels=MappingProxyType({name: k for name, k in self.kernels.items() if name not in gone}))

    def only_views(self) -> Choices:
        return Choices(self.target, MappingProxyType({name: k for name, k in self.kernels.items() if k == VIEW}))


OPEN = Choices()  # before the kernel stage

__all__ = ["OPEN", "VIEW", "Choices"]
