"""What is left of a row after its whole vectors, where the caller gives its length: one vector with fewer lanes.

    for (j = 0; j < T / 8 * 8; j += 8)                   as for one size
        total = add(total, load(&x[j]));
    if (T % 8 > 0)
        total = add(total, load_part(&x[T / 8 * 8], T % 8));

For one size, a compiler unrolls the loop over these numbers. It does not know that there are fewer than a vector of them where the
caller gives the size, and vectorises the loop once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.sizes import most
from intaglio.kernels.job import Job
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Type, cast, idx


@dataclass(slots=True)
class Part:
    """`lanes`: those that there are. `numbers`: 0, 1, 2 and so on, of all lanes, once they are needed."""

    job: Job
    left: Expr
    lanes: Lanes
    numbers: Buffer | None = None

    @staticmethod
    def of(job: Job, left: int) -> Part | None:
        """None: nothing is ever left."""
        if most(left) == 0:
            return None
        count = job.k.let("left", left)
        return Part(job, count, replace(job.vector, left=count))

    @contextmanager
    def there(self) -> Iterator[None]:
        """Code for the case that something is left."""
        with self.job.k.when(self.left.compare("gt", 0)):
            yield

    def filled(self, value: Expr, other: Expr) -> Expr:
        """`other` in the lanes that there are not."""
        e = self.job.vector
        if self.numbers is None:
            self.numbers = self.job.packed(np.arange(e.lanes, dtype=np.float32), "lane")
        return e.choose(e.compare("lt", e.load(self.numbers, idx(0)), e.splat(cast(self.left, Type("f32")))), value, other)


__all__ = ["Part"]
