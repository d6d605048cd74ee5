"""The counters in C are compiled once, and done without where that is not possible; a debugger's port is spoken to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from intaglio.run.emulator.gdb import Closed, Debugger
from intaglio.run.emulator.native import compiled

build = compiled.__wrapped__  # without what this process remembers


def test_a_counter_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    first = build("counter.c")
    assert first is not None
    made = first.stat().st_mtime_ns
    assert build("counter.c") == first
    assert first.stat().st_mtime_ns == made
    assert [p.name for p in (tmp_path / "emulator").iterdir()] == [first.name]  # nothing temporary is left


def test_other_flags_are_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    assert build("counter.c") != build("counter.c", ("-DOTHER",))


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    assert build("counter.c") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert build("counter.c") is None


def answering(port: socket.socket, said: dict[str, str]) -> None:
    """The other side: an answer for each question, until nobody asks; it hangs up on one that it does not know."""
    kept = b""
    while more := port.recv(4096):
        kept += more
        while b"#" in kept[:-2]:
            packet, kept = kept[: kept.index(b"#") + 3], kept[kept.index(b"#") + 3 :]
            text = packet.lstrip(b"+").decode()[1:-3]
            if text not in said:
                port.close()
                return
            body = said[text].encode()
            port.sendall(b"+$" + body + f"#{sum(body) % 256:02x}".encode())


@pytest.fixture
def debugger() -> Iterator[Debugger]:
    here, there = socket.socketpair()
    said = {
        "QStartNoAckMode": "OK", "qXfer:features:read:target.xml:0,ffb": "l<xml/>", "m20000000,4": "78563412",
        "M20000000,2:0aff": "OK", "pf": "04000000", "m90000000,4": "E14",
    }  # fmt: skip
    other = threading.Thread(target=answering, args=(there, said), daemon=True)
    other.start()
    with here, there:
        yield Debugger(here)
        here.shutdown(socket.SHUT_WR)
        other.join(10)
        assert not other.is_alive()


def test_memory_and_registers_travel_as_hex(debugger: Debugger) -> None:
    assert debugger.read(0x20000000, 4) == bytes.fromhex("78563412")
    debugger.write(0x20000000, b"\x0a\xff")
    assert debugger.register(15) == 4


def test_what_is_refused_is_told(debugger: Debugger) -> None:
    with pytest.raises(Closed, match=r"it refuses `m90000000,4`: E14"):
        debugger.read(0x90000000, 4)


def test_a_side_that_hangs_up_is_told(debugger: Debugger) -> None:
    with pytest.raises(Closed):
        debugger.register(3)
