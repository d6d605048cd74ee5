"""Work beside the line of stages: files that are written and objects that are compiled while the next stage goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Tasks:
    """As many at once as there are cores. What has not begun when the `with` block ends is not done, what runs is waited for: a
    folder can be removed then."""

    def __init__(self) -> None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(max_workers=cores)
        self._writing: list[Future[object]] = []

    def start(self, do: Callable[[], object]) -> Future[object]:
        return self._pool.submit(do)

    def write(self, do: Callable[[], object]) -> None:
        self._writing.append(self.start(do))

    def written(self) -> None:
        """Wait for what writes files; an error of one is raised here."""
        for future in self._writing:
            future.result()
        self._writing.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)
