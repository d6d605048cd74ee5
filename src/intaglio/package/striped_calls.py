"""A stripe as C: a table of steps, and a switch with one call each.

case 3: /* 1 of 24 rows of dw_1 */
    memmove(arena + NET_AT_dw_1, arena + NET_AT_dw_1 + 768, 1536);
    net_depthwise_v2((const int8_t *)(arena + NET_AT_conv_1), ..., (int8_t *)(arena + NET_AT_dw_1 + 1536));
    break;
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from intaglio.ir.program import Argument
from intaglio.ir.stripes import Action, Rows, Stripe
from intaglio.kernels.loop import Kernel
from intaglio.kernels.program import ConstantArg, Program, ScratchArg, ValueArg
from intaglio.package.c_text import C_TYPES, comment, identifier
from intaglio.package.pointers import Pointers, Result, wrapped

NUMBERS_PER_LINE = 28


@dataclass(frozen=True, slots=True)
class Move:
    """Rows of a window move: `memmove(to, source, size_bytes)`."""

    to: str
    source: str
    size_bytes: int


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


def stripe_views(program: Program) -> dict[int, StripeView]:
    """By the number of their first layer."""
    return {stripe.first: _view(program, stripe, n) for n, stripe in enumerate(program.stripes)}


def _view(program: Program, stripe: Stripe[Kernel, Argument], number: int) -> StripeView:
    pointers = Pointers(program)
    pointers.before(stripe.first)
    counted = set(stripe.counted)
    steps = tuple(_step(pointers, program, stripe, n, action, counted) for n, action in enumerate(stripe.actions))
    whole = [
        (n, Result(pointers.of(v, v.dtype, const=True), v.type.bytes))
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
        any(step.fallible for step in steps), tuple(whole), _feed(program, stripe, pointers, number),
    )  # fmt: skip


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
    if action.roll:
        kept = stripe.windows[result].bytes - action.roll
        base, moved = pointers.bytes_of(result), pointers.bytes_of(result, f" + {action.roll}")
        move = Move(moved, base, kept) if stripe.spec.up else Move(base, moved, kept)
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
    text = wrapped(f"{identifier(action.kernel.name)}(", arguments, indent=16)
    used = counter if action.layer in counted else ""
    return StepView(
        number, action.layer, comment(f"{layer.node.op.NAME}: {action.about}"), move, text, action.kernel.fallible, used, ""
    )


def _plus(rows: Rows, counter: str) -> str:
    """What is added to the start of the memory, in bytes: ` + n3 * 768 - 384`."""
    step, at = rows.step, rows.at
    text = ""
    if step < 0:
        return (f" + {at}" if at > 0 else "") + f" - {counter} * {-step}" + (f" - {-at}" if at < 0 else "")
    if step:
        text = f" + {counter} * {step}"
    return text + (f" + {at}" if at > 0 else f" - {-at}" if at < 0 else "")
