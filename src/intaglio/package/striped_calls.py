"""A stripe as C: a table of steps, and a switch with one call each.

case 3: /* 1 of 24 rows of dw_1 */
    memmove(arena + NET_AT_dw_1, arena + NET_AT_dw_1 + 768, 1536);
    net_depthwise_v2((const int8_t *)(arena + NET_AT_conv_1), ..., (int8_t *)(arena + NET_AT_dw_1 + 1536));
    break;

Where the caller says how many rows there are, a second table has the end of the order for each number of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from intaglio.ir.program import Argument
from intaglio.ir.sizes import Size, least, most, names_of
from intaglio.ir.stripes import Action, Rows, Stripe
from intaglio.kernels.loop import SIZE, Kernel
from intaglio.kernels.program import ConstantArg, Program, ScratchArg, ValueArg
from intaglio.ops.rows import row_bytes
from intaglio.package.c_text import C_TYPES, comment, identifier
from intaglio.package.pointers import Pointers, Result, c_size, size_of, wrapped

NUMBERS_PER_LINE = 28


@dataclass(frozen=True, slots=True)
class Move:
    """Rows of a window move: `memmove(to, source, size_bytes)`."""

    to: str
    source: str
    size_bytes: int | str


@dataclass(frozen=True, slots=True)
class StepView:
    number: int
    layer: int
    comment: str
    move: Move | None
    text: str  # the call; "" where a row of the input is taken
    fallible: bool
    counter: str  # the variable that counts how often this layer was at work, if somebody asks; ""
    slot: str  # where a row of the input goes


@dataclass(frozen=True, slots=True)
class FeedView:
    """Rows of the input that come one by one."""

    field: str
    c_type: str
    rows: int
    row_elements: int
    row_bytes: int
    place: str  # of the position in the order
    slot: str  # where the next row goes
    about: str


@dataclass(frozen=True, slots=True)
class EndsView:
    """The order for each number of rows: `upto` steps of that of the largest, then `count` steps from `first` on in `order`."""

    size: str  # the parameter
    least: int
    c_type: str  # of the numbers in a row of the table
    order: tuple[str, ...]  # lines of numbers
    rows: tuple[str, ...]  # lines of `{upto, first, count}`


@dataclass(frozen=True, slots=True)
class StripeView:
    name: str
    comment: str
    order: tuple[str, ...]  # lines of numbers
    steps: tuple[StepView, ...]
    counters: tuple[str, ...]
    uses_in: bool
    uses_out: bool
    fallible: bool
    results: tuple[tuple[int, Result], ...]  # layer, and what it made as a whole
    fed: FeedView | None
    sizes: tuple[str, ...] = ()  # that it takes
    ends: EndsView | None = None
    counter_type: str = "size_t"


def stripe_views(program: Program) -> dict[int, StripeView]:
    """By the number of their first layer."""
    return {stripe.first: _view(program, stripe, n) for n, stripe in enumerate(program.stripes)}


def _view(program: Program, stripe: Stripe[Kernel, Argument], number: int) -> StripeView:
    pointers = Pointers(program)
    pointers.before(stripe.first)
    counted = set(stripe.counted)
    steps = tuple(_step(pointers, program, stripe, n, action, counted) for n, action in enumerate(stripe.actions))
    whole = [
        (n, Result(pointers.of(v, v.dtype, const=True), size_of(v)))
        for n in range(stripe.first, stripe.last + 1)
        for v in program.layers[n].node.outputs
        if v not in stripe.windows
    ]
    texts = " ".join(step.text for step in steps)
    rows = "a row" if stripe.spec.rows == 1 else f"{stripe.spec.rows} rows"
    way = ", from the bottom up" if stripe.spec.up else ""
    about = f"Layers {stripe.first} to {stripe.last}, {rows} of each at a time{way}."
    return StripeView(
        f"{identifier(program.graph.name)}_stripe_{number}", comment(about), _lines(stripe.order), steps,
        tuple(f"n{layer}" for layer in sorted(counted)), "in->" in texts, "out->" in texts,
        any(step.fallible for step in steps), tuple(whole), _feed(program, stripe, pointers, number), _sizes(program, stripe),
        _ends(stripe), "ptrdiff_t" if _moves(stripe) else "size_t",
    )  # fmt: skip


def _moves(stripe: Stripe[Kernel, Argument]) -> bool:
    """Does the length of a row depend on a size? C then counts with signs, as sizes have them."""
    return any(isinstance(n, Size) for a in stripe.actions for r in a.rows.values() for n in (r.at, r.step))


def _sizes(program: Program, stripe: Stripe[Kernel, Argument]) -> tuple[str, ...]:
    """Parameters, in the order of the sizes."""
    bounds = program.graph.bounds
    used = {stripe.size} if stripe.size else set()
    made = [v for n in range(stripe.first, stripe.last + 1) for v in program.layers[n].node.outputs if v not in stripe.windows]
    used |= {name for v in made for name in names_of(v.shape)}
    for action in stripe.actions:
        used |= {name for rows in action.rows.values() for name in names_of((rows.at, rows.step))} | names_of(action.roll)
    words = {f"{SIZE}{identifier(name)}" for name in used}
    words |= {size for action in stripe.actions if action.kernel is not None for size in action.kernel.sizes}
    return tuple(word for name in (bounds.ranges if bounds else ()) if (word := f"{SIZE}{identifier(name)}") in words)


def _ends(stripe: Stripe[Kernel, Argument]) -> EndsView | None:
    """Many numbers of rows end alike: each end stands once."""
    if not stripe.ends:
        return None
    order: list[int] = []
    starts: dict[tuple[int, ...], int] = {}
    rows = []
    for number in sorted(stripe.ends):
        end = stripe.ends[number]
        if end.order not in starts:
            starts[end.order] = len(order)
            order += end.order
        rows.append((end.upto, starts[end.order], len(end.order)))
    largest = max(n for row in rows for n in row)
    c_type = "unsigned char" if largest < 1 << 8 else "uint16_t" if largest < 1 << 16 else "uint32_t"
    texts = [f"{{{upto}, {first}, {count}}}" for upto, first, count in rows]
    lines = tuple(", ".join(texts[at : at + 7]) + "," for at in range(0, len(texts), 7))
    return EndsView(f"{SIZE}{identifier(stripe.size)}", min(stripe.ends), c_type, _lines(tuple(order) or (0,)), lines)


def _feed(program: Program, stripe: Stripe[Kernel, Argument], pointers: Pointers, number: int) -> FeedView | None:
    if not stripe.spec.fed:
        return None
    value = next(v for v in stripe.windows if v in program.graph.inputs)
    rows, size = value.shape[stripe.axis], stripe.windows[value].row_bytes
    slot = pointers.bytes_of(value, _plus(next(a.rows[value] for a in stripe.actions if a.layer < 0), ""))
    about = f"{value.dtype.value}[{','.join(map(str, value.shape[stripe.axis + 1 :]))}]"
    place = pointers.slot(("feed", number))
    return FeedView(identifier(value.name), C_TYPES[value.dtype], rows, size // value.dtype.bytes, size, place, slot, about)


def _lines(order: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(", ".join(map(str, order[at : at + NUMBERS_PER_LINE])) + "," for at in range(0, len(order), NUMBERS_PER_LINE))


def _step(
    pointers: Pointers, program: Program, stripe: Stripe[Kernel, Argument], number: int, action: Action[Kernel, Argument],
    counted: set[int],
) -> StepView:  # fmt: skip
    window = next((v for v in action.rows if action.layer < 0), None)
    result = window if window is not None else program.layers[action.layer].node.output
    move = None
    if most(action.roll):
        kept = stripe.windows[result].rows * row_bytes(result, stripe.axis) - action.roll
        base, moved = pointers.bytes_of(result), pointers.bytes_of(result, f" + {_number(action.roll)}")
        size: int | str = f"(size_t)({c_size(kept)})" if isinstance(kept, Size) else kept
        move = Move(moved, base, size) if stripe.spec.up else Move(base, moved, size)
    if action.layer < 0 or action.kernel is None:
        slot = pointers.bytes_of(result, _plus(action.rows[result], ""))
        return StepView(number, action.layer, comment(f"a row of {result.name} comes"), move, "", False, "", slot)
    layer = program.layers[action.layer]
    arguments = []
    counter = f"feed->n{action.layer}" if stripe.spec.fed else f"n{action.layer}"
    for param, argument in zip(action.kernel.params, action.arguments, strict=True):
        match argument:
            case ValueArg(value):
                rows = action.rows.get(value)
                plus = "" if rows is None else _plus(rows, counter)
                arguments.append(pointers.of(value, param.dtype, const=param.const, plus=plus))
            case ConstantArg(name):
                arguments.append(pointers.constant(name, param.dtype))
            case ScratchArg():
                arguments.append(pointers.scratch(layer, param.dtype, argument.at))
            case _:
                assert_never(argument)
    text = wrapped(f"{identifier(action.kernel.name)}(", [*arguments, *action.kernel.sizes], indent=16)
    used = counter if action.layer in counted else ""
    return StepView(
        number, action.layer, comment(f"{layer.node.op.NAME}: {action.about}"), move, text, action.kernel.fallible, used, ""
    )


def _plus(rows: Rows, counter: str) -> str:
    """What is added to the start of the memory, in bytes: ` + n3 * 768 - 384`."""
    step, at = rows.step, rows.at
    before = f" + {_number(at)}" if most(at) > 0 else ""
    behind = f" - {_number(-at)}" if least(at) < 0 else ""
    if least(step) < 0:
        return f"{before} - {counter} * {_number(-step)}{behind}"
    moved = f" + {counter} * {_number(step)}" if most(step) > 0 else ""
    return f"{moved}{before}{behind}"


def _number(size: int) -> str:
    text = c_size(size)
    return f"({text})" if " " in text else text
