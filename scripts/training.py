"""What the scripts that train networks in numpy share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Adam:
    """Changes weights in place, by their gradients."""

    def __init__(self, weights: list[Floats]) -> None:
        self._weights = weights
        self._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
        self._steps = 0

    def step(self, gradients: list[Floats], rate: float) -> None:
        self._steps += 1
        for weight, gradient, (mean, square) in zip(self._weights, gradients, self._moments, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            corrected = mean / (1 - 0.9**self._steps)
            weight -= rate * corrected / (np.sqrt(square / (1 - 0.999**self._steps)) + 1e-8)
