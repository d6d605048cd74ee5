"""Sizes that are known as a bound: `T=1..512`.

A `Size` stands where a shape has a whole number. It has a formula (`T*4+1`), for C and for people, and its value for every
combination of sizes that the bounds allow (`Bounds`). Arithmetic gives another Size, or an int where the result is the same for
all of them. A question about a Size (`n < 8`, `if n % 2`) has an answer where it is the same for all combinations; otherwise it
raises `Undecided`. So nothing is ever decided from one example: code either holds for every size or says that it does not.

    T = Bounds({"T": (1, 512)}).size("T")
    T * 64 // 64 == T        True: equal means equal for all sizes
    T < 513                  True
    T < 8                    raises Undecided
    range(T), int(T)         raise Undecided: there is no one number
    most(T), least(T)        512, 1: for memory, and for estimates
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, is_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from intaglio.errors import counted
from intaglio.ir.formulas import COMPUTE, Formula, num, simple
from intaglio.ir.spans import Span

MOST_COMBINATIONS = 1 << 17
NARROWER = "give a narrower range, or one package for each size: `--dim NAME=N`"
T = TypeVar("T")
Values = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


class Undecided(ValueError):
    """The answer depends on a size that only the caller knows. The text says what was asked, `hint` what can be done."""

    def __init__(self, text: str, hint: str = NARROWER) -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(eq=False)
class Bounds:
    """The sizes that a caller gives, each between two numbers, both included, or in steps; and those that follow from data (`add`).

    Every size has an axis of its own, the first one the last axis: values of what depends on few sizes are small arrays that
    broadcast against the others."""

    given: InitVar[Mapping[str, tuple[int, int] | Span]]
    ranges: dict[str, Span] = field(default_factory=dict, init=False)
    _known: dict[tuple[tuple[int, ...], bytes], Size] = field(default_factory=dict, repr=False)
    _points: dict[str, Values] = field(default_factory=dict, repr=False)
    _given: tuple[str, ...] = ()  # of the sizes, those of the caller

    def __post_init__(self, given: Mapping[str, tuple[int, int] | Span]) -> None:
        for name, span in given.items():
            self.add(name, *span[:3])
        self._given = tuple(given)

    def add(self, name: str, low: int, high: int, step: int = 1) -> int:
        """One more size."""
        taken = max((points.ndim for points in self._points.values()), default=0)
        points = np.arange(low, high + 1, step, dtype=np.int64).reshape(-1, *(1,) * taken)
        self.ranges[name], self._points[name] = Span(low, high, step), points
        return self.size(name)

    def forget(self, names: set[str]) -> None:
        """Sizes that nothing uses."""
        for name in [name for name in self.ranges if name in names]:
            del self.ranges[name], self._points[name]
        self._known = {key: size for key, size in self._known.items() if not size.formula.names() & names}

    @staticmethod
    def combinations(ranges: Mapping[str, Span]) -> int:
        return math.prod(len(span.numbers) for span in ranges.values())

    def axis(self, name: str) -> int:
        """Of arrays of values, from the end."""
        return -self._points[name].ndim

    def size(self, name: str) -> int:
        """The size itself; a plain number where the bound leaves only one."""
        return self._made(Formula("size", name), self._points[name])

    def _made(self, formula: Formula, values: Values) -> int:
        values = _narrowed(values)
        if values.size == 1:
            return int(values.reshape(-1)[0])
        return self._known.setdefault((values.shape, values.tobytes()), Size(formula, values, self))

    def parse(self, text: str) -> int:
        """The size of a formula as it is printed. Raises ValueError where it is none."""
        try:
            tree = ast.parse(text.strip().replace(";", ","), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError(f"`{text}` is not a formula of sizes") from None
        return self._of_tree(tree, text)

    def _of_tree(self, tree: ast.expr, text: str) -> int:
        match tree:
            case ast.Constant(value=int(value)):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._of_tree(inner, text)
            case ast.Name(id=name) if name in self.ranges:
                return self.size(name)
            case ast.BinOp(left=left, op=op, right=right) if (word := _WORDS.get(type(op))) is not None:
                return _apply(word, self._of_tree(left, text), self._of_tree(right, text))
            case ast.Call(func=ast.Name(id="min" | "max" as word), args=[left, right], keywords=[]):
                return _apply(word, self._of_tree(left, text), self._of_tree(right, text))
        raise ValueError(f"`{text}` is not a formula of the sizes {', '.join(self.ranges) or '(none)'}")

    def corners(self) -> Iterator[dict[str, int]]:
        """The least and the largest of everything."""
        for end in (0, 1):
            yield {name: (span.low, span.high)[end] for name, span in self.ranges.items()}

    def __str__(self) -> str:
        return ", ".join(f"{name}={span}" for name, span in self.ranges.items())

    def told(self, *items: object) -> str:
        """The sizes that something depends on, with their bounds."""
        names = {name for item in items for name in names_of(item)}
        return ", ".join(f"{name}={span}" for name, span in self.ranges.items() if name in names)

    def undecided(self, text: str, *items: object, fits: Any = True) -> Undecided:
        """With a hint that names the sizes. One that is found in data cannot be given a value. `fits`: the combinations that would
        have an answer."""
        names = [name for name in self.ranges if name in {name for item in items for name in names_of(item)}]
        if found := [name for name in names if name not in self._given]:
            data = f"only data tells `{found[0]}`"
            if (tensor := _CUT.sub("", found[0])) != found[0]:
                high = max(span.high for name, span in self.ranges.items() if _CUT.sub("", name) == tensor)
                room = f"`--max {tensor}={self._least(found[0], fits)}..{high}`"
                way = f"{room} gives all axes that it cuts a range: other sizes are then an error of the run"
                return Undecided(text, f"{data}; {way}")
            return Undecided(text, f"{data}: leave the layers from here on to the caller, or give them a fixed size in the model")
        return Undecided(text, NARROWER.replace("NAME", names[0]) if names else NARROWER)

    def _least(self, name: str, fits: Any) -> int:
        """From which size on everything fits; 1 where that is not known."""
        numbers, axis = self.ranges[name].numbers, -self.axis(name)
        if np.ndim(fits) < axis:
            return max(1, numbers[0])
        along = np.moveaxis(fits, -axis, 0)
        wrong = np.flatnonzero(~along.reshape(len(along), -1).all(1))
        return max(1, numbers[wrong[-1] + 1]) if len(wrong) and wrong[-1] + 1 < len(numbers) else max(1, numbers[0])


_CUT = re.compile(r"_axis_[0-9]+(_[0-9]+)?$")  # the size of an axis that a slice cuts: `crop_axis_2`
_WORDS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "div", ast.Mod: "mod",
}  # fmt: skip

def _narrowed(values: Values) -> Values:
    """Without axes along which nothing changes."""
    for axis in range(values.ndim):
        first = values.take([0], axis)
        if values.shape[axis] > 1 and (values == first).all():
            values = first
    while values.ndim and values.shape[0] == 1:
        values = values[0]
    return np.ascontiguousarray(values)


if TYPE_CHECKING:
    _Whole = int  # so that a Size may stand in a shape
else:
    _Whole = object  # and numpy, `range` and the like cannot take it for a number


class Size(_Whole):
    """A whole number that depends on sizes of the caller. Equal means equal for all of them."""

    __slots__ = ("bounds", "formula", "values")
    bounds: Bounds
    formula: Formula
    values: Values

    if not TYPE_CHECKING:

        def __init__(self, formula: Formula, values: Values, bounds: Bounds) -> None:
            self.formula, self.values, self.bounds = formula, values, bounds

    else:

        def __new__(cls, formula: Formula, values: Values, bounds: Bounds) -> Size:
            raise NotImplementedError

    def __add__(self, other: int) -> int:
        return _apply("add", self, other)

    def __radd__(self, other: int) -> int:
        return _apply("add", other, self)

    def __sub__(self, other: int) -> int:
        return _apply("sub", self, other)

    def __rsub__(self, other: int) -> int:
        return _apply("sub", other, self)

    def __mul__(self, other: int) -> int:
        return _apply("mul", self, other)

    def __rmul__(self, other: int) -> int:
        return _apply("mul", other, self)

    def __floordiv__(self, other: int) -> int:
        return _apply("div", self, other)

    def __rfloordiv__(self, other: int) -> int:
        return _apply("div", other, self)

    def __mod__(self, other: int) -> int:
        return _apply("mod", self, other)

    def __rmod__(self, other: int) -> int:
        return _apply("mod", other, self)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __truediv__(self, other: float) -> float:
        raise self.bounds.undecided(f"a number is needed, and `{self}` depends on {self.bounds.told(self)}", self)

    __rtruediv__ = __pow__ = __rpow__ = __truediv__  # type: ignore[assignment]

    def __neg__(self) -> int:
        return _apply("sub", 0, self)

    def __pos__(self) -> int:
        return self

    def __abs__(self) -> int:
        return self if self >= 0 else -self

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Size) and np.array_equal(self.values, other.values))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.values.tobytes())

    def __lt__(self, other: int) -> bool:
        return self._decided(self.values < values_of(other), "<", other)

    def __le__(self, other: int) -> bool:
        return self._decided(self.values <= values_of(other), "<=", other)

    def __gt__(self, other: int) -> bool:
        return self._decided(self.values > values_of(other), ">", other)

    def __ge__(self, other: int) -> bool:
        return self._decided(self.values >= values_of(other), ">=", other)

    def __bool__(self) -> bool:
        return self._decided(self.values != 0, "!=", 0)

    def _decided(self, answers: Any, sign: str, other: object) -> bool:
        first = bool(answers.reshape(-1)[0])
        if (answers == first).all():
            return first
        ranges = self.bounds.told(self, other)
        text = f"`{self} {sign} {other}` holds for some of {ranges} and not for others"
        raise self.bounds.undecided(text, self, other, fits=answers == bool(answers.reshape(-1)[-1]))

    def __index__(self) -> int:
        raise self.bounds.undecided(f"a number is needed, and `{self}` depends on {self.bounds.told(self)}", self)

    __int__ = __float__ = __index__

    def __str__(self) -> str:
        return str(self.formula)

    def __repr__(self) -> str:
        return f"{self.formula}<={most(self)}"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def at(self, sizes: Mapping[str, int]) -> int:
        return self.formula.at(sizes)

    def partly(self, sizes: Mapping[str, int]) -> int:
        """Where some of the sizes that it depends on are known."""
        if not self.formula.names() & sizes.keys():
            return self
        values = self.values
        for name, span in self.bounds.ranges.items():
            position = self.bounds._points[name].ndim - 1
            if name in sizes and position < values.ndim and values.shape[-1 - position] > 1:
                values = values.take([span.numbers.index(sizes[name])], -1 - position)
        return self.bounds._made(_substituted(self.formula, sizes), values)

    def __reduce__(self) -> str:
        raise TypeError("a Size belongs to its bounds")

    def __deepcopy__(self, memo: object) -> Size:
        return self

    def __copy__(self) -> Size:
        return self


def _substituted(formula: Formula, sizes: Mapping[str, int]) -> Formula:
    if formula.op == "size":
        return num(sizes[formula.name]) if formula.name in sizes else formula
    if not formula.args:
        return formula
    left, right = (_substituted(part, sizes) for part in formula.args)
    if left.op == right.op == "num":
        return num(int(COMPUTE[formula.op](left.number, right.number)))
    return simple(formula.op, left, right)


def values_of(item: int) -> Any:
    """For every combination of sizes, or the number that it is."""
    return item.values if isinstance(item, Size) else item


def _formula(item: int) -> Formula:
    return item.formula if isinstance(item, Size) else num(int(item))


def _apply(op: str, a: int, b: int) -> int:
    numbers = (int, np.integer, Size)
    if isinstance(a, float) or isinstance(b, float):
        raise Undecided(f"a number is needed for `{a}` and `{b}`")
    if isinstance(a, bool) or isinstance(b, bool) or not isinstance(a, numbers) or not isinstance(b, numbers):
        return NotImplemented  # type: ignore[no-any-return]
    owner = a if isinstance(a, Size) else b
    if not isinstance(owner, Size):
        return int(COMPUTE[op](a, b))
    left, right = values_of(a), values_of(b)
    if op in ("div", "mod") and np.any(np.asarray(right) == 0):
        raise owner.bounds.undecided(f"`{a} / {b}` is a division by zero for some of {owner.bounds.told(a, b)}", a, b)
    if op in ("div", "mod") and np.any(np.asarray(left) < 0) and _rounded_up(op, a, b) is None:
        text = f"`{a} / {b}` has a negative numerator for some of {owner.bounds.told(a, b)}"
        raise owner.bounds.undecided(text, a, b, fits=np.asarray(left) >= 0)
    combinations = int(np.prod(np.broadcast_shapes(np.shape(left), np.shape(right)), dtype=np.int64))
    if combinations > MOST_COMBINATIONS:
        raise Undecided(f"`{a}` and `{b}` together have {combinations} combinations of sizes, more than {MOST_COMBINATIONS}")
    values = np.asarray(COMPUTE[op](left, right), np.int64)
    return owner.bounds._made(_rounded_up(op, a, b) or simple(op, _formula(a), _formula(b)), values)


def _rounded_up(op: str, a: int, b: int) -> Formula | None:
    """`-(-n // 8)`, which rounds up, in numbers that are not negative: C divides towards zero."""
    if op == "div" and isinstance(a, Size) and not isinstance(b, Size) and b > 0 and (a.values <= 0).all():
        positive = -a
        up = simple("div", _formula(positive + (b - 1)), num(int(b)))
        return Formula("sub", args=(num(0), up))
    if op == "sub" and not isinstance(a, Size) and a == 0 and isinstance(b, Size):
        inner = b.formula
        if inner.op == "sub" and inner.args[0] == num(0):
            return inner.args[1]
    return None


def smaller(a: int, b: int) -> int:
    """min(a, b), also where it depends on sizes."""
    return _apply("min", a, b)


def larger(a: int, b: int) -> int:
    return _apply("max", a, b)


def most(item: int) -> int:
    """The largest that it gets: for memory, and for estimates."""
    return int(item.values.max()) if isinstance(item, Size) else item


def least(item: int) -> int:
    return int(item.values.min()) if isinstance(item, Size) else item


def possible(item: int) -> list[int]:
    """All that it can be, in order."""
    return [int(n) for n in np.unique(item.values)] if isinstance(item, Size) else [item]


def is_size(item: object) -> bool:
    return isinstance(item, Size)


def whole(item: Any) -> int:
    """A number of an array as an int, or the Size that it is."""
    return item if isinstance(item, Size) else int(item)


def array_of(items: Sequence[int]) -> Any:
    """A vector of i64; of objects where an item is a Size."""
    if not moves(items):
        return np.array(items, np.int64)
    found = np.empty(len(items), object)
    found[:] = list(items)
    return found


def settled(array: Any, dtype: Any) -> Any:
    """An array of objects without a Size, as numbers again."""
    if array.dtype != object or any(isinstance(item, Size) for item in array.reshape(-1).tolist()):
        return array
    return array.astype(dtype)


def cut(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """The first place and the number of places of `[start:end:step]` along an axis, as Python's slices have it."""
    if not moves((start, end, size)):
        places = range(*slice(start, end, step).indices(size))
        return (places.start if len(places) else 0), len(places)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first, last = (smaller(larger(n + size if n < 0 else n, low), high) for n in (start, end))
    distance = last - first if step > 0 else first - last
    return first, larger(0, (distance + abs(step) - 1) // abs(step)) if distance > -abs(step) else 0


def moves(shape: Sequence[object]) -> bool:
    """Does a dimension depend on a size of the caller?"""
    return any(isinstance(n, Size) for n in shape)


def largest(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(most(n) for n in shape)


def pinned(item: T, sizes: Mapping[str, int]) -> T:
    """The same with every Size replaced by its value: in tuples, and in the fields of dataclasses. One that depends on others than
    `sizes` too is a Size of those."""
    found: Any = item
    if isinstance(item, Size):
        found = item.at(sizes) if item.formula.names() <= sizes.keys() else item.partly(sizes)
    elif isinstance(item, tuple):
        parts = [pinned(part, sizes) for part in item]
        found = item if all(a is b for a, b in zip(parts, item, strict=True)) else tuple(parts)
    elif is_dataclass(item) and not isinstance(item, type):
        old = {f.name: getattr(item, f.name) for f in fields(item) if f.init}
        new = {name: pinned(value, sizes) for name, value in old.items()}
        changed = {name: value for name, value in new.items() if value is not old[name]}
        found = replace(item, **changed) if changed else item
    return found  # type: ignore[no-any-return]


def sizes_in(shapes: Sequence[tuple[Sequence[int], Sequence[int]]]) -> dict[str, int]:
    """The sizes of the caller, out of pairs of a shape that is declared and one that is given. Raises ValueError with the reason
    where they do not fit together."""
    found: dict[str, int] = {}
    for declared, given in shapes:
        if len(declared) != len(given):
            raise ValueError(f"it has {counted(len(given), 'axis')}, and not {len(declared)}")
        for size, n in zip(declared, given, strict=True):
            if isinstance(size, Size) and size.formula.op == "size" and found.setdefault(size.formula.name, n) != n:
                raise ValueError(f"`{size}` is {found[size.formula.name]} in one place and {n} in another")
    for declared, given in shapes:
        for size, n in zip(declared, given, strict=True):
            if n not in possible(size):
                raise ValueError(f"`{size}` is {n}, which is not within {least(size)}..{most(size)}")
            if isinstance(size, Size) and size.formula.names() <= found.keys() and size.at(found) != n:
                raise ValueError(f"`{size}` is {n}, and not {size.at(found)}")
    return found


def names_of(item: object) -> set[str]:
    """The sizes of the caller that something depends on."""
    if isinstance(item, Size):
        return item.formula.names()
    if isinstance(item, (tuple, list)):
        return {name for part in item for name in names_of(part)}
    if is_dataclass(item) and not isinstance(item, type):
        return {name for f in fields(item) for name in names_of(getattr(item, f.name))}
    return set()


def value_of(text: str, sizes: Mapping[str, int]) -> int:
    """A formula as it is printed, for these sizes. Raises ValueError where it is none."""
    return _value_of(text, tuple(sizes.items()))


@lru_cache(4096)
def _value_of(text: str, sizes: tuple[tuple[str, int], ...]) -> int:
    return Bounds({name: (size, size) for name, size in sizes}).parse(text)
