"""What JAX computes for an exported function."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from intaglio.errors import ModelError, ToolError
from intaglio.frontends.jax.opening import opened
from intaglio.ir.graph import Array


class JaxModel:
    """The function in the package; inputs and outputs are `in0`, ... and `out0`, ..."""

    of_model = True

    def __init__(self, path: Path) -> None:
        try:
            self._exported = opened(path)
        except (ModelError, ToolError) as error:
            raise ToolError("no-reference", error.message, hint=error.hint) from None
        import jax

        self._jax = jax
        self.about = f"jax {jax.__version__}"

    def fresh(self) -> None:
        """Functions of JAX have no state."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = [np.asarray(inputs[f"in{n}"]) for n in range(len(self._exported.in_avals))]
        args, kwargs = self._jax.tree_util.tree_unflatten(self._exported.in_tree, given)
        made = self._jax.tree_util.tree_leaves(self._exported.call(*args, **kwargs))
        return {f"out{n}": np.asarray(array) for n, array in enumerate(made)}
