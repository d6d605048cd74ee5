"""Names of layers without what they all have in common, so that what differs can be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST = 40


def shortened(names: Sequence[str]) -> list[str]:
    """`net_layer1_conv_out`, `net_layer2_conv_out` -> `layer1_conv`, `layer2_conv`: the start and the end that most names share are
    left out, up to a whole word. Names stay different."""
    several = [name for name in names if "_" in name]
    if len(several) < 2:
        return [_cut(name) for name in names]
    start = _whole(_shared(several))
    end = _whole(_shared([name[::-1] for name in several]))[::-1]
    short = []
    for name in names:
        inner = name.removeprefix(start)
        inner = inner.removesuffix(end) if len(inner) > len(end) else inner
        short.append(_cut(inner or name))
    return short if len(set(short)) == len(set(names)) else [_cut(name) for name in names]


def _shared(names: Sequence[str]) -> str:
    """The start that all names have: that of the first and the last in order."""
    low, high = min(names), max(names)
    return low[: next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))]


def _whole(shared: str) -> str:
    """Up to the last underscore: words are not divided."""
    return shared[: shared.rfind("_") + 1]


def _cut(name: str) -> str:
    """The end of a long name says more than its start."""
    name = re.sub(r"\s+", " ", name)
    return name if len(name) <= MOST else f"…{name[1 - MOST :]}"


__all__ = ["shortened"]
