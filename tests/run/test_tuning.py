"""The database of kernel times: as text, merged, damaged, written by several processes; and the search that fills it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.errors import ToolError, UserError
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node
from intaglio.kernels import lower
from intaglio.kernels.choice import can_use, estimate_us, usual_way, ways_to_measure
from intaglio.run.toolchains import find_toolchain
from intaglio.run.tuning import search as searching
from intaglio.run.tuning.database import (
    HEADER,
    Database,
    Place,
    add_records,
    here,
    merged,
    parse_database,
    print_database,
    read_database,
    write_database,
)
from intaglio.run.tuning.layers import layer_text
from intaglio.run.tuning.search import Plan, Step, search, shapes_of, time_ways
from intaglio.run.tuning.trial import trial_graph
from intaglio.targets.target import find_target, host_target, threaded, wished
from support.ir_text import graph_of

ZEN, LAKE = Place("AMD Zen", "x86-64-v3", 1), Place("Intel Lake", "x86-64-v3", 2)
CONV = "conv(f32[1,8,8,8], const f32[8,8,3,3], _, pads=(1,1,1,1), layout=NHWC)"
AVX2 = find_target("x86-64-v3")


# The file -----------------------------------------------------------------------------------------------------------------


def test_a_database_is_text_in_a_fixed_order() -> None:
    two = {"b(_)": {"x": 1.0}, "a(_)": {"y": 2.0}}
    made = Database({LAKE: {CONV: {"conv_nhwc(tile=6x2)": 3.5, "conv_general": 10.0}}, ZEN: two})
    assert print_database(made) == (
        "intaglio-tuning 2\n\n"
        "processor AMD Zen | target x86-64-v3 | threads 1\n\n"
        "a(_)\n          2.00 us  y\n\nb(_)\n          1.00 us  x\n\n"
        "processor Intel Lake | target x86-64-v3 | threads 2\n\n"
        f"{CONV}\n          3.50 us  conv_nhwc(tile=6x2)\n         10.00 us  conv_general\n\nend\n"
    )


def test_a_database_that_was_cut_short_is_refused() -> None:
    made = print_database(Database({ZEN: {CONV: {"conv_nhwc(tile=6x2)": 3.5, "conv_general": 10.0}}}))
    lines = made.splitlines(keepends=True)
    for kept in range(1, len(lines) - 1):
        with pytest.raises(UserError, match="is damaged"):
            parse_database("".join(lines[:kept]), "f")
    first = made.replace("tuning 2", "tuning 1").removesuffix("\nend\n")  # as version 1 wrote it
    assert parse_database(first, "f") == parse_database(made, "f")


_TIMES = st.dictionaries(
    st.sampled_from(["conv_nhwc(tile=6x2)", "winograd(m=4,tile=6x2)", "matmul_general"]),
    st.integers(1, 10**6).map(lambda n: n / 100),
    min_size=1,
)
_NAMES, _TARGETS = st.sampled_from(["AMD EPYC (family 25)", "a | b"]), st.sampled_from(["x86-64-v3", "aarch64"])
_PLACES = st.builds(Place, _NAMES, _TARGETS, st.integers(1, 9))


@settings(max_examples=20, deadline=None)
@given(st.dictionaries(_PLACES, st.dictionaries(st.sampled_from([CONV, "matmul(_)"]), _TIMES, min_size=1)))
def test_what_is_printed_is_read_again(places: dict[Place, dict[str, dict[str, float]]]) -> None:
    assert parse_database(print_database(Database(places)), "f") == Database(places)


def test_merging_keeps_all_records_and_the_shortest_times() -> None:
    one = Database({ZEN: {CONV: {"a": 2.0, "b": 5.0}}})
    other = Database({ZEN: {CONV: {"a": 3.0, "b": 4.0}, "x(_)": {"c": 1.0}}, LAKE: {CONV: {"a": 9.0}}})
    found = merged([one, other])
    assert found == merged([other, one])
    assert found.places == {ZEN: {CONV: {"a": 2.0, "b": 4.0}, "x(_)": {"c": 1.0}}, LAKE: {CONV: {"a": 9.0}}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"intaglio-tuning 3\n", "it starts with `intaglio-tuning 3`"),
        (b"\x7fELF\xff\xfe", "it is not text"),
        (b"import numpy\n", "it starts with `import numpy`"),
        (f"{HEADER}\n{CONV}\nend\n".encode(), "is neither a processor"),  # without a processor
        (f"{HEADER}\n{ZEN}\n{CONV}\n    3.2 u".encode(), "is damaged"),  # cut short
        (f"{HEADER}\n{ZEN}\n{CONV}\n    -3.0 us  x\nend\n".encode(), "is neither a processor"),
        (f"{HEADER}\n{ZEN}\n{CONV}\n    0.0 us  x\nend\n".encode(), "is neither a processor"),
        (f"{HEADER}\n{ZEN}\n{CONV}\n    1.0 us  $(reboot)\nend\n".encode(), "is neither a processor"),
        (f"{HEADER}\nprocessor x | target y | threads 0\nend\n".encode(), "is neither a processor"),
    ],
)
def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    uses: list[Callable[[], object]] = [
        lambda: read_database(path), lambda: add_records(path, ZEN, CONV, {"a": 1.0}), lambda: write_database(path, Database()),
    ]  # fmt: skip
    for use in uses:
        with pytest.raises(UserError, match=said) as caught:
            use()
        assert caught.value.hint and caught.value.exit_code == 2
    assert path.read_bytes() == content


def test_a_folder_and_a_file_that_is_not_there_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a file"):
        read_database(tmp_path)
    with pytest.raises(UserError, match="there is no"):
        read_database(tmp_path / "none.txt")
    with pytest.raises(ToolError, match="cannot be created"):
        add_records(tmp_path / "none" / "t.txt", ZEN, CONV, {"a": 1.0})


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"

    def write(writer: int) -> None:
        for n in range(10):
            add_records(path, ZEN, f"layer_{writer}_{n}(_)", {"a": 1.0 + n})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert read_database(path).layers == 40
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.txt", "t.txt.lock"]


def test_a_layer_measured_again_has_the_new_times(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    add_records(path, ZEN, CONV, {"a": 1.0, "gone": 2.0})
    add_records(path, ZEN, CONV, {"a": 3.0})
    assert read_database(path).times(ZEN, CONV) == {"a": 3.0}


def test_another_processor_with_the_same_target_and_threads() -> None:
    known = Database({LAKE: {CONV: {"a": 1.0}}})
    asked = Place("unknown", "x86-64-v3", 2)
    assert known.times(asked, CONV) == {} and known.elsewhere(asked, CONV) == {"a": 1.0}
    assert known.elsewhere(ZEN, CONV) == {}  # one thread


# Layers and ways ------------------------------------------------------------------------------------------------------------


def conv(size: int = 12, channels: int = 32) -> Graph:
    return graph_of(f"""
        input x: f32[1,{size},{size},{channels}] NHWC
        const w: f32[{channels},{channels},3,3] ...
        y: f32[1,{size},{size},{channels}] NHWC = conv(x, w, _, pads=(1,1,1,1), layout=NHWC)
        output y
    """)


def test_the_name_of_a_layer_has_shapes_and_attributes_but_no_numbers() -> None:
    assert layer_text(conv(8, 8).nodes[0]) == CONV
    quantised = graph_of("""
        input x: i8[1,4,4,8] NHWC q(0.5,3)
        const w: i8[8,8,1,1] ...
        const m: i32[8] ...
        y: i8[1,4,4,8] NHWC q(0.25,1) = qconv(x, w, _, m, m, x_zero=3, y_zero=1, low=1)
        output y
    """)
    assert layer_text(quantised.nodes[0]) == "qconv(i8[1,4,4,8], const i8[8,8,1,1], _, const i32[8], const i32[8])"


def test_ways_are_kernels_with_tiles_and_sizes() -> None:
    (node,) = conv().nodes
    ways = ways_to_measure(node, AVX2)
    uses = [way.using for way in ways]
    assert usual_way(node, AVX2) in uses and usual_way(node, AVX2).startswith("winograd(m=4,")
    assert {use.partition("(")[0] for use in uses} == {"winograd", "conv_nhwc"}  # and not conv_general, which is far behind
    assert {use[:13] for use in uses} > {"winograd(m=2,", "winograd(m=4,"}
    assert [way.estimate_us for way in ways] == sorted(way.estimate_us for way in ways)
    assert ways[0].estimate_us == estimate_us(node, AVX2, uses[0])


@pytest.mark.parametrize("text", [
    "y: f32[1,14,14,32] NHWC = conv(x, w, _, pads=(1,1,1,1), layout=NHWC)",
    "y: f32[1,14,14,32] NHWC = conv(x, v, _, pads=(1,1,1,1), group=32, layout=NHWC)",
    "y: f32[1,14,14,64] NHWC = matmul(x, m)",
])  # fmt: skip
def test_every_way_is_built_as_it_is_called(text: str) -> None:
    graph = graph_of(f"""
        input x: f32[1,14,14,32] NHWC
        const w: f32[32,32,3,3] ...
        const v: f32[32,1,3,3] ...
        const m: f32[32,64] ...
        {text}
        output y
    """)
    (node,) = graph.nodes
    ways = [way.using for way in ways_to_measure(node, AVX2)]
    assert len(ways) > 3
    trial, choices = trial_graph(node, ways, AVX2)
    chosen = lower(trial, AVX2, choices).choices
    assert [chosen.of(each) for each in trial.nodes] == ways
    assert lower(graph, AVX2, Choices()).choices.of(node) == usual_way(node, AVX2)


def test_exact_has_no_winograd_and_limits_neither() -> None:
    (node,) = conv().nodes
    for target in (wished(AVX2, exact=True, limited=False), wished(AVX2, exact=False, limited=True)):
        assert not any(way.using.startswith("winograd") for way in ways_to_measure(node, target))
        assert not can_use(node, target, "winograd(m=4,tile=6x2)")


@pytest.mark.parametrize("using", [
    "", "conv_nhwc", "conv_nhwc(tile=32x8)", "conv_nhwc(tile=x)", "winograd(m=6,tile=6x2)", "matmul(tile=6x2)", "gone(tile=6x2)",
])  # fmt: skip
def test_a_record_that_does_not_apply_is_not_used(using: str) -> None:
    (node,) = conv().nodes
    assert not can_use(node, AVX2, using)
    assert can_use(node, AVX2, "conv_nhwc(tile=6x2)")


# The search -----------------------------------------------------------------------------------------------------------------


@dataclass
class Fake:
    """Instead of a library: the first way takes 5 us, the second 6 us, and so on, with noise on top."""

    ways: tuple[str, ...]
    calls: int = 0

    def time_us(self, way: int) -> float:
        self.calls += 1
        return 5.0 + way + (self.calls * 7 % 5)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The layers that were measured."""
    seen: list[Node] = []

    @contextmanager
    def built(node: Node, ways: Sequence[str], *_: object) -> Iterator[Fake]:
        seen.append(node)
        yield Fake(tuple(ways))

    monkeypatch.setattr(searching, "built", built)
    return seen


def three() -> Graph:
    """Two shapes, one of them twice."""
    return graph_of("""
        input x: f32[1,12,12,8] NHWC
        const w: f32[8,8,3,3] ...
        const v: f32[8,8,1,1] ...
        a: f32[1,12,12,8] NHWC = conv(x, w, _, pads=(1,1,1,1), layout=NHWC)
        b: f32[1,12,12,8] NHWC = conv(a, w, _, pads=(1,1,1,1), layout=NHWC)
        y: f32[1,12,12,8] NHWC = conv(b, v, _, layout=NHWC)
        output y
    """)


def plan_for(tmp_path: Path, *, again: bool = False, time_limit: float | None = None) -> Plan:
    return Plan(tmp_path / "t.txt", AVX2, find_toolchain(), again, time_limit)


def test_noise_does_not_count() -> None:
    found = time_ways(Fake(("a", "b", "c")), seconds=0.01)  # type: ignore[arg-type]
    assert (found["a"], found["b"]) == (5.0, 6.0) and found["c"] > 6.0  # which is far behind, and not timed as often


def test_no_time_is_zero() -> None:
    """A database has no such time, and a speed-up would divide by it."""

    class Quick(Fake):
        def time_us(self, way: int) -> float:
            return 0.003 * way

    assert set(time_ways(Quick(("a", "b")), seconds=0.01).values()) == {0.01}  # type: ignore[arg-type]


def test_a_shape_is_measured_once_and_not_again(trials: list[Node], tmp_path: Path) -> None:
    shapes, steps = shapes_of(three(), AVX2), list[Step]()
    assert [len(shape.nodes) for shape in shapes] == [2, 1]
    found = search(shapes, plan_for(tmp_path), steps.append)
    assert [m.new for m in found] == [True, True] and len(trials) == 2
    assert [(step.number, step.total, step.seconds_left is None) for step in steps] == [(1, 2, True), (2, 2, False)]
    assert [m.new for m in search(shapes, plan_for(tmp_path), steps.append)] == [False, False] and len(trials) == 2
    assert [m.new for m in search(shapes, plan_for(tmp_path, again=True), steps.append)] == [True, True] and len(trials) == 4


def test_what_was_measured_before_an_interruption_is_kept(trials: list[Node], tmp_path: Path) -> None:
    shapes = shapes_of(three(), AVX2)

    def interrupt(step: Step) -> None:
        if step.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(shapes, plan_for(tmp_path), interrupt)
    steps: list[Step] = []
    assert [m.new for m in search(shapes, plan_for(tmp_path), steps.append)] == [False, True]
    assert [step.number for step in steps] == [2] and len(trials) == 2


def test_the_time_limit_ends_the_search(trials: list[Node], tmp_path: Path) -> None:
    assert search(shapes_of(three(), AVX2), plan_for(tmp_path, time_limit=1e-9), lambda _: None) == []
    assert trials == [] and not (tmp_path / "t.txt").exists()


def test_threads_are_another_place() -> None:
    assert here(threaded(host_target(), 2)) != here(host_target())
