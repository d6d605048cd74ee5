"""Lines that damage bytes, boards that run something else or nothing: values stay right, or an error says what is wrong."""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import IntaglioError, ToolError, UserError
from intaglio.ir.graph import Array
from intaglio.run.package import Package
from intaglio.run.serial import line as serial_line
from intaglio.run.serial.device import SelfTest, SerialDevice
from intaglio.run.serial.line import SerialOptions, SerialPort
from intaglio.run.serial.measure import measure
from intaglio.run.serial.protocol import ANSWER, Frame, Frames, Request, Status
from support.commands import DIGITS, Intaglio
from support.firmware_running import firmware, integer_model
from support.onnx_models import INT64, model, node, saved, value
from support.serial_board import Change, answering, line_to, nobody

INPUT_BYTES, OUTPUT_BYTES, CHUNK = 256, 40, 256


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return firmware(DIGITS, tmp_path_factory.mktemp("digits") / "p", name="net")


@pytest.fixture(scope="module")
def port(package: Package) -> Iterator[str]:
    with answering(package) as path:
        yield path


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a board that is not there."""
    give_up_soon(monkeypatch)


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on: a busy machine may take longer than this to open a line that works."""
    monkeypatch.setattr(serial_line, "START_SECONDS", 0.3)
    monkeypatch.setattr(serial_line, "QUICK_SECONDS", 0.2)


def image() -> Array:
    return np.random.default_rng(3).random((1, 1, 8, 8)).astype(np.float32)


# Frames that firmware refuses -----------------------------------------------------------------------------------------------------


class Raw:
    """Bytes to and from firmware."""

    def __init__(self, path: str) -> None:
        self.port, self._frames, self._number = SerialPort(SerialOptions(path)), Frames(), 0

    def send(self, data: bytes) -> Frame:
        """And the next frame that comes."""
        self.port.write(data)
        while (found := self._frames.next()) is None:
            self._frames.add(self.port.read())
        return found

    def ask(self, type_: int, payload: bytes = b"") -> Frame:
        self._number = self._number % 255 + 1
        found = self.send(Frame(type_, self._number, payload).packed())
        assert (found.type, found.number) == (type_ | ANSWER, self._number)
        return found


@pytest.fixture
def raw(port: str) -> Iterator[Raw]:
    made = Raw(port)
    yield made
    made.port.close()


def write(index: int, offset: int, data: bytes) -> bytes:
    return struct.pack("<HI", index, offset) + data


REFUSED = {
    "an unknown type": (77, b"", Status.UNKNOWN),
    "type 0": (0, b"", Status.UNKNOWN),
    "a payload where none belongs": (Request.RUN, b"x", Status.LENGTH),
    "a payload that is short": (Request.READ, b"123", Status.LENGTH),
    "an input that is not there": (Request.WRITE, write(1, 0, b"x"), Status.RANGE),
    "bytes after the input": (Request.WRITE, write(0, INPUT_BYTES, b"x"), Status.RANGE),
    "bytes across its end": (Request.WRITE, write(0, INPUT_BYTES - 1, b"xy"), Status.RANGE),
    "an offset that wraps": (Request.WRITE, write(0, 0xFFFFFFFF, b"xy"), Status.RANGE),
    "an output that is not there": (Request.READ, struct.pack("<HIH", 9, 0, 1), Status.RANGE),
    "more than the output has": (Request.READ, struct.pack("<HIH", 0, 0, OUTPUT_BYTES + 1), Status.RANGE),
    "more than a frame has": (Request.READ, struct.pack("<HIH", 0, 0, CHUNK + 1), Status.RANGE),
    "the size of no tensor": (Request.TENSOR, struct.pack("<BH", 1, 1), Status.RANGE),
    "rows, which it does not take": (Request.PUSH, b"", Status.ABSENT),
    "the start of a picture": (Request.BEGIN, b"", Status.ABSENT),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_is_refused_and_changes_nothing(what: str, raw: Raw) -> None:
    type_, payload, status = REFUSED[what]
    given = bytes(image())
    assert raw.ask(Request.WRITE, write(0, 0, given)).payload == b"\0"
    assert raw.ask(type_, payload).payload == bytes([status])
    assert raw.ask(Request.RUN).payload[:5] == bytes(5)
    first = raw.ask(Request.READ, struct.pack("<HIH", 0, 0, OUTPUT_BYTES)).payload
    assert raw.ask(Request.WRITE, write(0, 0, given)).payload == b"\0"
    raw.ask(Request.RUN)
    assert raw.ask(Request.READ, struct.pack("<HIH", 0, 0, OUTPUT_BYTES)).payload == first


def test_a_damaged_frame_is_answered_and_the_next_one_is_heard(raw: Raw) -> None:
    frame = Frame(Request.RESET, 9).packed()
    for at in range(6, len(frame)):  # behind type, number and length
        damaged = bytearray(frame)
        damaged[at] ^= 0x10
        assert raw.send(bytes(damaged)).payload == bytes([Status.DAMAGED])
    assert raw.ask(Request.RESET).payload == b"\0"


def test_a_frame_that_is_too_long_is_refused_before_it_comes(raw: Raw) -> None:
    head = b"IG" + struct.pack("<BBH", Request.WRITE, 5, CHUNK + 9)
    found = raw.send(head)
    assert (found.number, found.payload) == (5, bytes([Status.LENGTH]))
    assert raw.ask(Request.RESET).payload == b"\0"


@pytest.mark.parametrize("noise", [b"\xff\0\x80", b"IIIIIG"[:5], b"booting... I G\r\n", b"I"])
def test_noise_between_frames_is_skipped(noise: bytes, raw: Raw) -> None:
    raw.port.write(noise)
    assert raw.ask(Request.RESET).payload == b"\0"


def test_a_frame_that_was_cut_short_ends_with_zeros(raw: Raw) -> None:
    raw.port.write(Frame(Request.WRITE, 3, write(0, 0, bytes(200))).packed()[:100])
    assert raw.send(bytes(512)).payload == bytes([Status.DAMAGED])
    assert raw.ask(Request.RESET).payload == b"\0"


def test_a_run_that_is_asked_for_twice_runs_once(tmp_path: Path) -> None:
    proto = model([node("Add", "x h", "y")], [value("x", [1, 2]), value("h", [1, 2])], [value("y", [1, 2])], {})
    made = firmware(saved(proto, tmp_path), tmp_path / "p", states={"h": "y"}, io="caller")
    with answering(made) as path:
        raw = Raw(path)
        raw.ask(Request.WRITE, write(0, 0, np.array([1, 2], np.float32).tobytes()))
        run = Frame(Request.RUN, 200).packed()
        assert raw.send(run).payload[:5] == raw.send(run).payload[:5] == bytes(5)
        once = raw.ask(Request.READ, struct.pack("<HIH", 0, 0, 8)).payload[1:]
        raw.send(run)
        twice = raw.ask(Request.READ, struct.pack("<HIH", 0, 0, 8)).payload[1:]
        raw.port.close()
    assert np.frombuffer(once, np.float32).tolist() == [1, 2] and np.frombuffer(twice, np.float32).tolist() == [2, 4]


# Lines that damage what they carry ------------------------------------------------------------------------------------------------


def every(nth: int, change: Callable[[bytes], bytes]) -> Change:
    return lambda count, data: change(data) if count % nth == nth - 1 else data


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def after(size_bytes: int, change: Callable[[bytes], bytes]) -> Change:
    """Change a read that crosses a multiple of so many bytes."""
    return lambda count, data: data if count // size_bytes == (count + len(data)) // size_bytes else change(data)


NOISE: dict[str, dict[str, Change]] = {
    "bits that are sent": {"sent": every(5, flipped)},
    "bytes that are lost on the way": {"sent": every(6, lambda data: data[: len(data) // 2])},
    "bits that are received": {"received": after(300, flipped)},
    "answers that are lost": {"received": after(300, lambda data: b"")},
    "bytes that nobody sent": {"received": after(200, lambda data: data + b"IG")},
}


WAITING = ("bytes that are lost on the way", "bytes that nobody sent")  # for a time-out, again and again


@pytest.mark.parametrize("what", [pytest.param(n, marks=pytest.mark.slow) if n in WAITING else n for n in NOISE])
def test_values_are_right_on_a_line_with_noise(what: str, package: Package, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_line, "QUICK_SECONDS", 0.3)
    line = line_to(port, sent=NOISE[what].get("sent"), received=NOISE[what].get("received"), timeout_s=0.4)
    device = SerialDevice(package.manifest, SerialOptions(port, timeout_s=0.4), line)
    for _ in range(3):
        (got,), (want,) = device.run([image()]), package.library.run([image()])
        np.testing.assert_array_equal(got, want)
    device.close()


def test_a_line_that_damages_every_frame_is_an_error(package: Package, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line = line_to(port, sent=lambda count, data: flipped(data) if count > 3 else data)
    give_up_soon(monkeypatch)
    with pytest.raises(ToolError, match=r"the line `.*` damages frames: no whole answer to `") as error:
        SerialDevice(package.manifest, SerialOptions(port), line)
    assert error.value.slug == "serial-noise" and "lower baud rate" in (error.value.hint or "")


def test_a_board_that_stops_is_an_error(package: Package, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = False
    line = line_to(port, received=lambda _, data: b"" if stopped else data)
    device = SerialDevice(package.manifest, SerialOptions(port, timeout_s=0.3), line)
    give_up_soon(monkeypatch)
    stopped = True
    with pytest.raises(ToolError, match="stopped answering: no answer to `selftest`") as error:
        device.selftest()
    assert error.value.slug == "serial-silent" and "`--timeout`" in (error.value.hint or "")
    device.close()


# What a user sees -----------------------------------------------------------------------------------------------------------------


def told(package: Package, intaglio: Intaglio, *words: str | Path) -> str:
    said = intaglio("validate", package.folder, *words)
    assert said.code == 2
    return said.err


@pytest.mark.slow
def test_nobody_answers(package: Package, intaglio: Intaglio, soon: None) -> None:
    with nobody() as path:
        said = told(package, intaglio, "--serial", path, "--baud", "9600")
    assert f"error[serial-silent]: nothing answers on `{path}` at 9600 baud" in said and "flash firmware that answers" in said


def test_something_else_prints_on_the_line(package: Package, intaglio: Intaglio, soon: None) -> None:
    with nobody(b"Hello from the boot loader\r\n") as path:
        said = told(package, intaglio, "--serial", path)
    assert "error[serial-noise]" in said and "bytes at 115200 baud, but no answer" in said


def test_there_is_no_such_port(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    pytest.importorskip("serial")
    said = told(package, intaglio, "--serial", tmp_path / "ttyNone")
    assert "error[no-serial]: cannot open the serial port" in said and "ports of this machine: " in said


def test_pyserial_is_not_installed(package: Package, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "serial", None)
    said = told(package, intaglio, "--serial", "/dev/ttyACM0")
    assert "error[no-serial]: pyserial is needed" in said and "'.[serial]'" in said


def test_the_board_runs_another_package(port: str, intaglio: Intaglio, tmp_path: Path) -> None:
    other = firmware(integer_model(tmp_path), tmp_path / "p", name="other")
    said = told(other, intaglio, "--serial", port)
    assert "error[other-package]: the board runs another build: `net` " in said
    assert f"the package is `other` {other.manifest.build[:12]}" in said


def test_the_firmware_speaks_another_version(package: Package, port: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serial_line, "VERSION", 2)
    with pytest.raises(UserError, match="speaks version 1 of the protocol, not 2"):
        line_to(port)


def test_the_port_goes_away(package: Package, soon: None) -> None:
    with answering(package) as path:
        device = SerialDevice(package.manifest, SerialOptions(path))
    with pytest.raises(ToolError) as error:
        device.run([image()])
    assert error.value.slug in ("serial-lost", "serial-silent")
    device.close()


def test_layers_and_other_places_are_not_for_boards(package: Package, port: str, intaglio: Intaglio) -> None:
    assert "`--layers` needs an emulated core" in told(package, intaglio, "--serial", port, "--layers")
    assert "`--emulator` does not" in told(package, intaglio, "--serial", port, "--emulator", "unicorn")
    said = intaglio("profile", package.folder, "--serial", port, "--wait-states", "2")
    assert said.code == 2 and "a board has its own wait states" in said.err


def test_a_package_of_this_machine_has_no_board(digits: Path, intaglio: Intaglio) -> None:
    said = intaglio("validate", digits, "--serial", "/dev/ttyACM0")
    assert said.code == 2 and "error[bad-option]: `--serial` needs firmware" in said.err
    said = intaglio("profile", digits, "--save", "runs.json")
    assert said.code == 2 and "keep the figures of a board" in said.err
    said = intaglio("profile", digits, "--clock", "25")
    assert said.code == 2 and "`--clock` is that of a board" in said.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--serial", ""), "`--serial` names no port"),
        (("--serial", "p", "--timeout", "0"), "`--timeout 0.0` is not a time"),
        (("--serial", "p", "--timeout", "nan"), "`--timeout nan` is not a time"),
        (("--serial", "p", "--clock", "-1"), "`--clock -1.0` is not a clock"),
    ],
)
def test_options_of_a_line_are_checked(words: tuple[str, ...], what: str, package: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", package.folder, *words)
    assert said.code == 2 and f"error[bad-option]: {what}" in said.err


def test_an_error_of_the_model_is_told(tmp_path: Path) -> None:
    nodes = [node("Gather", "table index", "y")]
    inputs, constants = [value("index", [1], INT64)], {"table": np.arange(4, dtype=np.float32)}
    made = firmware(saved(model(nodes, inputs, [value("y", [1])], constants), tmp_path), tmp_path / "p")
    with answering(made) as path:
        there = Package.load(made.folder, serial=path)
        assert there.run({"index": np.array([2], np.int64)})["y"].tolist() == [2]
        with pytest.raises(IntaglioError, match="an index in the data is outside its tensor") as error:
            there.run({"index": np.array([9], np.int64)})
        assert error.value.slug == "index-out-of-range"
        assert there.run({"index": np.array([3], np.int64)})["y"].tolist() == [3]


@pytest.mark.parametrize(
    ("found", "what"), [(SelfTest.FAILED, "FAILED"), (SelfTest.OTHER_WEIGHTS, "the weights in flash do not belong to this code")]
)
def test_a_self_test_that_fails_is_a_no(
    found: SelfTest, what: str, package: Package, port: str, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SerialDevice, "selftest", lambda self: found)
    said = intaglio("validate", package.folder, "--serial", port)
    assert said.code == 1 and "error[selftest-failed]" in said.err and what in said.err


def test_weights_of_other_code_fail_the_self_test(tmp_path: Path) -> None:
    made = firmware(DIGITS, tmp_path / "p", name="net", weights_address=0x00200000)
    path = made.folder / "weights" / "net_weights.bin"
    data = bytearray(path.read_bytes())
    data[24] ^= 1  # of the digest of the code
    path.write_bytes(data)
    with answering(made) as port:
        device = SerialDevice(made.manifest, SerialOptions(port))
        assert device.selftest() is SelfTest.OTHER_WEIGHTS
        device.close()


@pytest.mark.parametrize(("clock", "seconds", "hint"), [(120.0, 40.0, "counts slower"), (None, 5.0, "`--clock MHZ`")])
def test_a_counter_that_may_have_wrapped_is_not_believed(
    clock: float | None, seconds: float, hint: str, package: Package, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Package.load(package.folder, serial=SerialOptions(port, clock_mhz=clock))
    device = there.serial_device
    device.info = replace(device.info, emulated=False)

    def ran(self: SerialDevice, inputs: list[Array]) -> None:
        self.seconds, self.cycles = seconds, 7

    monkeypatch.setattr(SerialDevice, "run", ran)
    with pytest.raises(IntaglioError, match="the cycle counter of the board counts for") as error:
        measure(there, [image()], 1)
    assert error.value.slug == "counter-wrapped" and hint in (error.value.hint or "")
    device.close()


def test_a_package_of_another_template_cannot_answer(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    folder = shutil.copytree(package.folder, tmp_path / "p")
    (folder / "src" / "net_serial.c").unlink()
    said = intaglio("firmware", folder, "-o", tmp_path / "x.elf")
    assert said.code == 2 and "error[not-built]: `net` has no code for a serial line" in said.err
