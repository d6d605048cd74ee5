from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

from intaglio.run.toolchains import Toolchain  # noqa: E402
from intaglio.targets.board import all_boards  # noqa: E402
from intaglio.targets.target import Target  # noqa: E402
from support.commands import DIGITS, Intaglio  # noqa: E402
from support.examples import VARIABLE as EXAMPLES  # noqa: E402
from support.outside import outside, plugin_site  # noqa: E402, F401 (fixtures)

OBJECTS, TUNING = "INTAGLIO_OBJECT_CACHE", "INTAGLIO_TUNING"
# Of `make test`, by time (`--durations=0`); the others take less than 5 s each.
LONGEST = (
    "tests/test_docs", "firmware/test_feed_rows", "cli/test_fit", "kernels/test_small_cores", "firmware/test_weights_read",
    "firmware/test_regions", "plugins/test_example_npu", "kernels/test_interpreter", "run/test_opencl_faults",
    "frontends/test_torch_architectures", "kernels/test_compiled", "project/test_project", "cli/test_does_not_fit",
    "run/test_opencl_packages", "run/test_serial_board", "cli/test_accelerators", "ir/test_text", "models/test_shared_models",
    "firmware/test_weights_apart", "quantize/test_quantizing", "emulator/test_device", "kernels/test_opencl",
    "memory/test_side_by_side", "firmware/test_packages", "frontends/test_torch_quantised", "frontends/test_torch_objects",
    "package/test_two_networks", "firmware/test_link", "frontends/test_sklearn", "run/test_opencl_drivers", "memory/test_order",
    "errors/test_onnx_bombs", "run/test_objects", "firmware/test_firmware", "serve/test_serve", "fleet/test_engine",
    "fleet/test_gate",
)  # fmt: skip
_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """One cache of objects for a run of the tests and all its processes: many packages share sources. It starts empty: every
    source is compiled at least once. What was measured on this machine does not count."""
    os.environ[TUNING] = "/nonexistent/tuning.txt"
    if config.option.markexpr == "not slow":
        os.environ[EXAMPLES] = "1"
    if OBJECTS not in os.environ and not hasattr(config, "workerinput"):
        _made.append(tempfile.mkdtemp(prefix="intaglio-objects-"))
        os.environ[OBJECTS] = _made[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting makes stays until the end: no search for garbage in it, then or later (a third of the time to collect)."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)  # a search costs more beside all the libraries than in a program of its own
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long go first: one that starts last keeps one process busy while the others have nothing to do."""
    place = {name: n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(f"{item.path.parent.name}/{item.path.stem}", len(place)))


_as_users_do: list[bool] = []  # not empty while tests of tests/models run


def pytest_unconfigure() -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def level_of_optimisation(request: pytest.FixtureRequest) -> Iterator[None]:
    """`make test` compiles C for this machine with -O0: that takes half of the time, and the level does not change what C computes.
    tests/models compiles as users do, and so does everything in `make test-all`. What a whole run shares has one level, whichever
    file asks for it first."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.option.markexpr == "not slow":
            as_shipped = Toolchain.compile_flags

            def quick(toolchain: Toolchain, target: Target) -> tuple[str, ...]:
                flags = as_shipped(toolchain, target)
                return flags if _as_users_do else tuple("-O0" if flag == "-O3" else flag for flag in flags)

            patch.setattr(Toolchain, "compile_flags", quick)
        yield


@pytest.fixture(scope="module", autouse=True)
def as_users_do(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.path.parent.name == "models":
        _as_users_do.append(True)
    yield
    _as_users_do.clear()


@pytest.fixture
def intaglio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Intaglio:
    return Intaglio(capsys, monkeypatch)


@pytest.fixture
def one_board(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` answers for what is asked, and then for one board instead of all: each of their cores is a compilation."""
    shown = {name: all_boards()[name] for name in ("nucleo-l4r5zi",)}
    monkeypatch.setattr("intaglio.survey.boards.all_boards", lambda: shown)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's network, compiled once."""
    from intaglio import compile

    return compile(DIGITS, output=tmp_path_factory.mktemp("digits") / "package").folder
