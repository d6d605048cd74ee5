"""Assembly in the order of a core that issues two instructions at a time: the same results, in fewer cycles."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.kernels.paired import paired
from support.examples import examples

MARGIN = "    "


def block(*lines: str, operands: str = ": : [low] \"i\"(-100) : \"r0\", \"memory\");") -> str:
    """A routine of these lines of assembly."""
    ends = ["\\n\\t"] * (len(lines) - 1) + [""]
    rows = "".join(f'{MARGIN}"{line}{end}"\n' for line, end in zip(lines, ends, strict=True))
    return f"void f(void)\n{{\n{MARGIN}__asm__ volatile(\n{rows}{MARGIN}{operands}\n}}"


def order(text: str) -> list[str]:
    return [re.sub(r"(\\n|\\t)+$", "", line) for line in re.findall(r'^    "(.*)"(?: /\*.*)?$', text, re.M)]


def test_loads_go_beside_products() -> None:
    before = ["ldr r12, [r1], #4", "ldr r2, [r0], #4", "sxtb16 r3, r2", "smlad r8, r2, r12, r8", "smlad r4, r3, r12, r4",
              "ldr lr, [r1], #4", "smlad r9, r2, lr, r9", "smlad r5, r3, lr, r5"]  # fmt: skip
    after = order(paired(block(*before)))
    assert sorted(after) == sorted(before)
    assert after.index("ldr lr, [r1], #4") < after.index("smlad r8, r2, r12, r8")


def test_loads_of_two_registers_are_taken_apart_where_that_is_faster() -> None:
    products = ("smlad r4, r2, r2, r4", "smlad r5, r2, r2, r5", "smlad r6, r3, r3, r6", "smlad r8, r3, r3, r8")
    body = ["ldrd r2, r3, [r1], #8", *products] * 3
    after = order(paired(block(*body)))
    assert "ldr r2, [r1], #8" in after and "ldr r3, [r1, #4]" in after and not any(line.startswith("ldrd") for line in after)


def test_loads_that_overwrite_their_address_stay_together() -> None:
    for load in ("ldrd r1, r2, [r1]", "ldrd r2, r1, [r1, #8]", "ldm r1, {r1, r2}"):
        body = ["smlad r4, r5, r5, r4", load, "smlad r6, r1, r2, r6", "ldr r5, [r0]", "smlad r8, r5, r5, r8"]
        assert load in order(paired(block(*body)))


def test_nothing_moves_across_labels_and_branches() -> None:
    body = ["mov r2, #1", "1:", "ldr r3, [r1], #4", "smlad r4, r2, r3, r4", "subs r2, r2, #1", "bne 1b", "str r4, [r0]"]
    after = order(paired(block(*body)))
    assert after[:2] == ["mov r2, #1", "1:"] and after[-2:] == ["bne 1b", "str r4, [r0]"]


def test_a_condition_keeps_what_depends_on_it() -> None:
    body = ["cmp r4, %[low]", "it lt", "movlt r4, %[low]", "ldr r5, [r1]", "cmp r5, %[low]", "it lt", "movlt r5, %[low]"]
    after = order(paired(block(*body)))
    at = after.index("it lt")
    assert after[at + 1] == "movlt r4, %[low]" and after.index("cmp r4, %[low]") < at < after.index("cmp r5, %[low]")


def test_what_is_not_known_stays_as_it_is() -> None:
    body = ["ldr r2, [r1]", "smlad r4, r2, r2, r4", "mrs r5, primask", "ldr r3, [r1, #4]", "smlad r4, r3, r3, r4"]
    assert paired(block(*body)) == block(*body)


def test_inputs_that_may_share_a_register_with_a_result_stay_before_it() -> None:
    body = ["ldr %[a], [%[p]]", "ldr %[b], [%[q]]", "smlad %[a], %[a], %[b], %[a]", "ldr %[b], [%[q], #4]"]
    shared = ': [a] "=r"(a), [b] "=r"(b) : [p] "r"(p), [q] "r"(q) : "memory");'
    assert paired(block(*body, operands=shared)) == block(*body, operands=shared)


def test_texts_without_assembly_are_not_touched() -> None:
    assert paired("static int f(void) { return 1; }") == "static int f(void) { return 1; }"


# Any order gives the same --------------------------------------------------------------------------------------------------

Value = object
REGISTERS = ("r2", "r3", "r4", "r5", "r6")
some = st.sampled_from(REGISTERS)
words = st.sampled_from((0, 4, 8))
INSTRUCTIONS = st.one_of(
    st.builds("ldr {}, [r1, #{}]".format, some, words),
    st.builds("ldr {}, [r1], #4".format, some),
    st.builds("str {}, [r0, #{}]".format, some, words),
    st.builds("ldrd {0[0]}, {0[1]}, [r1, #{1}]".format, st.permutations(REGISTERS), words),
    st.builds("smlad {}, {}, {}, {}".format, some, some, some, some),
    st.builds("sxtb16 {}, {}".format, some, some),
    st.builds("add {}, {}, {}, asr #31".format, some, some, some),
    st.builds("asr {}, {}, #7".format, some, some),
    st.builds("cmp {}, #3\nit lt\nmovlt {}, #3".format, some, some),
    st.builds("vmov s{}, {}".format, words, some),
    st.builds("vmov {}, s{}".format, some, words),
)


def run(lines: list[str]) -> dict[str, Value]:
    """What registers and memory hold in the end, as the expressions that made them."""
    state: dict[str, Value] = {}

    def of(name: str) -> Value:
        return state.get(name, name)

    def number(text: str) -> int:
        return int(text.lstrip("#"))

    def load(base: Value, offset: int) -> Value:
        return ("load", base, offset, of("memory"))

    for line in lines:
        name, *operands = re.findall(r"[\w#-]+", line)
        match name, operands:
            case "ldr", [to, base, by] if "]," in line:
                state |= {to: load(of(base), 0), base: ("moved", of(base), number(by))}
            case "ldr", [to, base, *offset]:
                state[to] = load(of(base), number(offset[0]) if offset else 0)
            case "ldrd", [to, second, base, offset]:
                state |= {to: load(of(base), number(offset)), second: load(of(base), number(offset) + 4)}
            case "str", [value, base, offset]:
                state["memory"] = ("stored", of("memory"), of(base), number(offset), of(value))
            case "cmp", [value, _]:
                state["flags"] = ("compared", of(value))
            case "it", _:
                pass
            case "movlt", [to, constant]:
                state[to] = ("either", of("flags"), constant, of(to))
            case _:
                state[operands[0]] = (name, *(of(operand) for operand in operands[1:]))
    return state


@given(st.lists(INSTRUCTIONS, min_size=2, max_size=14))
@settings(deadline=None, max_examples=examples(200))
def test_the_new_order_computes_the_same(drawn: list[str]) -> None:
    lines = [line for text in drawn for line in text.split("\n")]
    assert run(order(paired(block(*lines)))) == run(lines)
