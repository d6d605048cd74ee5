"""Figures of boards in a file, the page that shows them; firmware for boards, and the emulated one, as commands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from intaglio.run.emulator.image import read_image
from intaglio.run.package import Package
from support.commands import DIGITS, Intaglio
from support.firmware_running import firmware, integer_model
from support.serial_board import answering
from support.strict import CLANG

NO_UART = """description = "Mine"
core = "cortex-m4f"
clock_mhz = 80
wait_states = 4
[[memory]]
name = "flash"
kind = "flash"
address = 0x08000000
bytes = FLASH
[[memory]]
name = "sram"
kind = "ram"
address = 0x20000000
bytes = 131072
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return firmware(DIGITS, tmp_path_factory.mktemp("digits") / "p", name="net")


def kept(package: Package, **changes: object) -> dict[str, Any]:
    """A run as a board of a user's would tell it."""
    layers = [{"name": layer.name, "cycles": 1000 + layer.index} for layer in package.manifest.layers]
    run = {
        "board": "mps2-an386", "name": "net", "build": package.manifest.build, "target": "cortex-m4f", "source": "measured",
        "clock_mhz": 25.0, "runs": 3, "cycles": 7777, "layers": layers,
    }  # fmt: skip
    return run | changes


def written(folder: Path, *runs: dict[str, Any]) -> Path:
    path = folder / "runs.json"
    path.write_text(json.dumps({"format": 1, "runs": runs}))
    return path


def test_a_file_has_one_run_of_each_board_and_build(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    with answering(package) as port:
        words = ("profile", package.folder, "--serial", port, "--runs", "1", "--clock", "25", "--save", path)
        first = intaglio(*words)
        assert first.code == 0 and "which has 1 run\n" in first.err
        before = path.read_bytes()
        assert "which has 1 run\n" in intaglio(*words).err and path.read_bytes() == before
        assert "which has 2 runs\n" in intaglio(*words, "--label", "desk").err
    desk, own = json.loads(path.read_text())["runs"]
    assert (desk["board"], own["board"]) == ("desk", "mps2-an386")
    assert own["build"] == package.manifest.build and own["source"] == "estimated" and own["clock_mhz"] == 25.0
    assert [layer["name"] for layer in own["layers"]] == [layer.name for layer in package.manifest.layers]
    assert str(port) not in path.read_text()


def figures(facts: Any) -> dict[str, tuple[float, str]]:
    return {f["key"]: (f["value"], f["source"]) for f in facts["figures"]}


def test_the_page_shows_cycles_of_a_board_as_measured(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = written(tmp_path, kept(package, board="desk", cycles=9999), kept(package), kept(package, build="0" * 64, cycles=1))
    said = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html", "--json")
    facts = said.json
    assert figures(facts)["cycles"] == (7777, "measured") and figures(facts)["time"] == (7777 / 25 / 1000, "measured")
    assert figures(facts)["instructions"][1] == "emulated"
    assert facts["time_source"] == "measured"
    assert [layer["cycles"] for layer in facts["layers"]] == [1000 + n for n in range(len(facts["layers"]))]
    assert facts["layers"][0]["time"] == 1000 / 25
    assert facts["notes"][0] == "measured on mps2-an386: 7,777 cycles at 25 MHz = 0.311 ms"
    assert facts["notes"][1].startswith("measured on desk: 9,999 cycles")
    assert "measured on mps2-an386" in (tmp_path / "r.html").read_text()


def test_without_running_it_the_page_has_the_cycles_of_the_board(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = written(tmp_path, kept(package, clock_mhz=None))
    facts = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html", "--no-run", "--json").json
    assert figures(facts)["cycles"] == (7777, "measured") and "time" not in figures(facts)


def test_layers_that_no_board_told_stay_estimates(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = written(tmp_path, kept(package, layers=[]))
    facts = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html", "--json").json
    assert figures(facts)["cycles"] == (7777, "measured") and facts["time_source"] == "estimated"
    assert facts["layers"][0]["cycles"] not in (None, 1000)


def test_runs_of_another_model_are_refused(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = written(tmp_path, kept(package, build="ab" * 32, name="kws"))
    said = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html")
    assert said.code == 2 and not (tmp_path / "r.html").exists()
    assert f"error[other-package]: `runs.json` has no run of `net` {package.manifest.build[:12]}" in said.err
    assert "it has `kws` abababababab on `mps2-an386`" in said.err


@pytest.mark.parametrize(
    "change",
    [{"cycles": -1}, {"cycles": "7"}, {"source": "guessed"}, {"clock_mhz": 0}, {"layers": 3}, {"board": 4}, {"volts": 3}],
    ids=lambda change: next(iter(change)),
)
def test_a_file_that_is_damaged_is_refused(
    change: dict[str, object], package: Package, intaglio: Intaglio, tmp_path: Path
) -> None:
    path = written(tmp_path, kept(package, **change))
    said = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html")
    assert said.code == 2 and "error[bad-runs]" in said.err and "is not a file of runs" in said.err


def test_a_file_of_other_layers_or_none_at_all(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    path = written(tmp_path, kept(package, layers=[{"name": "x", "cycles": 1}]))
    said = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html")
    assert said.code == 2 and "its layers are not those of `net`" in said.err
    said = intaglio("report", package.folder, "--measured", tmp_path / "no.json", "-o", tmp_path / "r.html")
    assert said.code == 2 and "error[bad-runs]: cannot read the runs" in said.err
    path.write_text('{"format": 9, "runs": []}')
    said = intaglio("report", package.folder, "--measured", path, "-o", tmp_path / "r.html")
    assert said.code == 2 and "is not a file of runs" in said.err


# Firmware -------------------------------------------------------------------------------------------------------------------------


def test_firmware_for_a_board_is_written(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("firmware", package.folder, "-o", tmp_path / "new" / "net.elf", "--json")
    assert said.code == 0 and said.json["build"] == package.manifest.build
    image = read_image(tmp_path / "new" / "net.elf", ())
    assert image.address("net_serve") and image.address("net_uart_get")
    own = package.manifest.firmware
    assert own is not None and own.flash_bytes < said.json["flash_bytes"] < own.flash_bytes + own.selftest_bytes + 4096


def test_a_board_whose_uart_is_not_known_needs_functions(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(NO_UART.replace("FLASH", "524288"))
    made = firmware(integer_model(tmp_path), tmp_path / "p", name="net", board=str(tmp_path / "mine.toml"))
    said = intaglio("firmware", made.folder, "-o", tmp_path / "x.elf")
    assert said.code == 2 and "error[no-uart]: `net` has no serial line" in said.err and "`net_uart_get`" in said.err
    emulated = intaglio("emulate", made.folder)
    assert emulated.code == 2 and "error[no-uart]: the emulator does not know the UART" in emulated.err
    functions = '#include "uart.h"\nint net_uart_get(void *c) { (void)c; return -1; }\n'
    functions += "void net_uart_put(void *c, unsigned char b) { (void)c; (void)b; }\n"
    (made.folder / "firmware" / "mine.c").write_text(functions)
    assert intaglio("firmware", made.folder, "-o", tmp_path / "x.elf").code == 0


def test_firmware_that_is_too_large_for_the_board_is_a_no(intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(NO_UART.replace("FLASH", "4096") + '[uart]\nkind = "stm32"\naddress = 0x40004400\n')
    made = firmware(integer_model(tmp_path), tmp_path / "p", name="net", board=str(tmp_path / "small.toml"))
    said = intaglio("firmware", made.folder, "-o", tmp_path / "x.elf")
    assert said.code == 1 and "error[does-not-fit]: `net` with the code for its serial line" in said.err


def test_packages_of_this_machine_are_no_firmware(digits: Path, intaglio: Intaglio, tmp_path: Path) -> None:
    for words in (("firmware", digits, "-o", tmp_path / "x.elf"), ("emulate", digits)):
        said = intaglio(*words)
        assert said.code == 2 and "is for `" in said.err and "not firmware" in said.err
    made = firmware(integer_model(tmp_path), tmp_path / "p")
    said = intaglio("firmware", made.folder, "-o", tmp_path)
    assert said.code == 2 and "error[output-exists]" in said.err


def test_qemu_has_no_line(package: Package, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    from intaglio.run.emulator import serving

    monkeypatch.setattr(serving, "UnicornCore", type(None))
    said = intaglio("emulate", package.folder)
    assert said.code == 2 and "error[no-emulator]: QEMU is not connected to a serial line" in said.err


def test_emulate_prints_its_port_and_ends_with_ctrl_c(package: Package, intaglio: Intaglio) -> None:
    pytest.importorskip("serial")
    command = (sys.executable, "-m", "intaglio", "emulate", str(package.folder))
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell starts what is in its background without Ctrl-C
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, preexec_fn=heard) as process:
        try:
            assert process.stdout is not None
            path = process.stdout.readline().strip()
            assert re.fullmatch(r"/dev/\S+", path)
            said = intaglio("validate", package.folder, "--serial", path)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert said.code == 0, said.err
    assert process.returncode == 130 and errors.endswith("stopped\n") and "Traceback" not in errors


@pytest.mark.parametrize("flags", [(), ("-DNET_HOOK",), ("-DNET_SERIAL",), ("-DNET_SERIAL", "-DNET_HOOK")], ids=" ".join)
@pytest.mark.parametrize("core", ["cortex-m4f", pytest.param("rv32imc", marks=pytest.mark.slow)])
def test_generated_c_has_no_warnings(flags: tuple[str, ...], core: str, tmp_path: Path) -> None:
    firmware(integer_model(tmp_path), tmp_path / "p", name="net", target=core, cflags=(*CLANG, *flags))
