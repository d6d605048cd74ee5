"""What is asked of quantisation, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

METHODS = ("minmax", "percentile", "entropy", "mse")
SCHEMES = ("int8", "int16x8", "int4", "palette")
NARROW_SCHEMES = ("int4", "palette")  # weights of 4 bits


@dataclass(frozen=True, slots=True)
class Settings:
    scheme: str = "int8"
    ranges: str = "auto"  # one of METHODS, or the one with the least error
    keep_float: tuple[str, ...] = ()  # names of layers, `*` and `?` as in file names
    keep_int16: tuple[str, ...] = ()
    keep_int8: tuple[str, ...] = ()  # 8-bit weights, where others have 4
    max_error: float | None = None  # of the outputs, relative
    equalize: bool = True
    correct_bias: bool = True
    integer_io: bool = False
    sensitivity: bool = True


@dataclass(frozen=True, slots=True)
class OutputError:
    name: str
    relative: float  # root mean square of the difference over that of the float result
    cosine: float
    largest: float


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer: the error at the outputs when only this layer is quantised, and at the layer itself when all are."""

    name: str
    op: str
    stored: str  # i8, i16, f32; i4 or p4: weights of 4 bits, or of 16 values
    alone: float
    accumulated: float
    number: int = 0


@dataclass(slots=True)
class Account:
    """What quantisation did and what it cost."""

    scheme: str
    samples: int
    random_data: bool
    ranges: str
    tried: dict[str, float] = field(default_factory=dict)  # error by method
    reached: float = 0.0  # by the best of them
    equalized: int = 0
    corrected: int = 0
    outputs: list[OutputError] = field(default_factory=list)
    layers: list[LayerRow] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)  # layer: i8, i16 or f32
    advice: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def error(self) -> float:
        return max((o.relative for o in self.outputs), default=0.0)

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of_json(cls, table: dict[str, Any]) -> Account:
        """What `as_json` wrote."""
        outputs = [OutputError(**row) for row in table["outputs"]]
        layers = [LayerRow(**row) for row in table["layers"]]
        return cls(**{**table, "outputs": outputs, "layers": layers})


Progress = Callable[[str, int, int], None]


def silent(_text: str, _done: int, _of: int) -> None:
    return None
