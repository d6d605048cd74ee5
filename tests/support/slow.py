"""Cases of which `make test` runs those that stand for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def quick_where(is_quick: Callable[[T], bool], values: Iterable[T], name: Callable[[T], str] = str) -> list[Any]:
    return [pytest.param(v, id=name(v), marks=() if is_quick(v) else pytest.mark.slow) for v in values]
