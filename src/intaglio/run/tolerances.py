"""How far an output may be from its reference, and how that is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.package.manifest import TensorInfo
from intaglio.package.tolerance import share
from intaglio.run.compare import ABSOLUTE, Comparison, Decides, compare

THRESHOLDS = {"cpu": 0.999, "gpu": 0.995, "quantised": 0.98}  # cosines that are enough, by what computes


@dataclass(frozen=True, slots=True)
class Rule:
    """What an output has to be: within a tolerance; where there is a threshold, its cosine is enough too, or decides."""

    tolerance: float | None = None
    threshold: float | None = None
    allowance: float = 0.0  # of the device: the least tolerance of floats
    decides: Decides = "either"

    def compare(self, info: TensorInfo, got: Array, want: Array) -> Comparison:
        dtype = DType(info.dtype)
        threshold = None if is_exact(info) else self.threshold
        return compare(info.name, got, want, dtype, self._tolerance(info), threshold, self.decides)

    def _tolerance(self, info: TensorInfo) -> float:
        if self.tolerance is not None:
            return self.tolerance
        dtype = DType(info.dtype)
        own = share(dtype, info.rounded)
        return max(own, self.allowance) if dtype.is_float else own

    def told(self, outputs: Sequence[TensorInfo], precision: str, backend: str) -> str:
        """`error <= 3e-2 x largest value (mixed) + 1e-6, or cosine >= 0.995 (gpu)`"""
        whose = f" ({precision})" if precision and self.tolerance is None else ""
        shares = dict.fromkeys(self._tolerance(info) for info in outputs if DType(info.dtype).is_float)
        near = [f"error <= {_short(part)} x largest value{whose} + {_short(ABSOLUTE)}" for part in shares]
        near += ["equal (integers)"] if any(not DType(i.dtype).is_float and not is_exact(i) for i in outputs) else []
        parts = [" or ".join(near)] if near else []
        if self.threshold is not None and near:
            cosine = f"cosine >= {self.threshold:g}" + (f" ({backend})" if backend else "")
            parts = {"either": [f"{parts[0]}, or {cosine}"], "cosine": [cosine], "both": [f"{parts[0]}, and {cosine}"]}[
                self.decides
            ]
        return "; ".join([*parts, *(["integers equal"] if any(map(is_exact, outputs)) else [])])


def _short(number: float) -> str:
    """`1e-4` for 0.0001; a number with more digits as it is: `0.0125`."""
    digits, power = f"{number:.0e}".split("e")
    return f"{digits}e{int(power)}" if 0 < number < 1 and float(f"{number:.0e}") == number else f"{number:g}"


def is_exact(info: TensorInfo) -> bool:
    """An index, a length: it is right or wrong."""
    return DType(info.dtype) is DType.BOOL or (DType(info.dtype).is_int and info.quant is None)
