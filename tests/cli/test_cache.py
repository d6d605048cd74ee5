"""`intaglio cache`: what is said about a program cache, and what is done to it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from intaglio.run.opencl import devices, loader
from intaglio.run.opencl.answers import Answer, OpenCLDevice, Platform
from intaglio.run.opencl.cache_file import Program, dump
from intaglio.run.opencl.cache_store import read_cache
from intaglio.run.opencl.loader import Loader
from support.commands import Intaglio
from support.program_caches import MALI, NOVEMBER, checked, distrusted, program, tuning, unknown, written

HERE = OpenCLDevice(
    place="0.0", platform_name=MALI[0], platform_version=MALI[1], name=MALI[2], vendor=MALI[3], version=MALI[4],
    driver_version=MALI[5], c_version="OpenCL C 1.2", kind="gpu", address_bits=64, compute_units=24, clock_mhz=850,
    work_group_size=1024, work_item_sizes=(1024, 1024, 1024), memory_bytes=8 << 30, allocation_bytes=8 << 30,
    local_memory_bytes=32 << 10, alignment_bits=1024, unified_memory=True, available=True, compiler_available=True,
    single_fp_config=0, half_fp_config=0, extensions=("cl_khr_fp16",),
)  # fmt: skip
USED, OLD, OTHER, BAD = program("a"), program("a", driver_version="3.0 r29p0"), program("a", device_name="Adreno 740"), program("b")


@pytest.fixture(autouse=True)
def a_phone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Loader("libOpenCL.so", {}, Answer((Platform(0, MALI[0], "Arm", MALI[1], "FULL_PROFILE", (HERE,)),)))
    monkeypatch.setattr(devices, "find_loader", lambda: found)
    monkeypatch.delenv(devices.VARIABLE, raising=False)


@pytest.fixture
def intaglio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Intaglio:
    return Intaglio(capsys, monkeypatch)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    programs = (program("a", b"before"), USED, OLD, OTHER, BAD)
    return written(tmp_path / "m.clbin", *programs, checked(USED), distrusted(BAD), tuning(), unknown())


def test_list_has_a_row_per_entry_and_fits_a_terminal(intaglio: Intaglio, cache: Path) -> None:
    said = intaglio("cache", "list", cache)
    rows = said.out.splitlines()[2:]
    assert said.code == 0 and "4 programs of 2 devices, 1 tuning" in said.err
    assert [row.split()[-1] for row in rows] == ["superseded", "checked", "unchecked", "unchecked", "distrusted", "tuning", "77"]
    assert max(map(len, said.out.splitlines())) <= 80


def test_list_of_long_and_hostile_names_fits_too(intaglio: Intaglio, tmp_path: Path) -> None:
    hostile = program(device_name="GPU \x1b[31m\u202e" * 9, driver_version="9" * 99)
    path = written(tmp_path / "m.clbin", hostile, program("b", bytes(10**6)))
    said = intaglio("cache", "list", path)
    assert max(map(len, said.out.splitlines())) <= 80 and "\x1b" not in said.out and "\u202e" not in said.out


def test_a_package_is_named_by_its_folder(intaglio: Intaglio, cache: Path) -> None:
    assert intaglio("cache", "list", cache.parent, "--json").json["file"] == str(cache)


def test_explain_says_field_by_field_why(intaglio: Intaglio, cache: Path) -> None:
    said = intaglio("cache", "explain", cache)
    assert said.code == 0 and "1 of 5 programs would be used on this device" in said.err
    assert "  driver version    differs 3.0 r29p0\n                    here    3.0 r32p1\n" in said.out
    assert "  device name       differs Adreno 740\n                    here    Mali-G78\n" in said.out
    assert "distrusted: the self-test of `k` gave something else" in " ".join(said.out.split())
    assert max(map(len, said.out.splitlines())) <= 80


def test_explain_as_json(intaglio: Intaglio, cache: Path) -> None:
    told = intaglio("cache", "explain", cache, "--json").json
    _, used, old, other, bad = told["entries"]
    assert told["device"]["name"] == "Mali-G78" and told["usable"] == 1
    assert [e["usable"] for e in (used, old, other, bad)] == [True, False, False, False]
    assert (old["differs"], other["differs"], bad["state"]) == (["driver version"], ["device name"], "distrusted")
    assert [f["equal"] for f in used["fields"]] == [None, None] + 7 * [True]
    assert len(used["self_tests"]) == 1


@pytest.mark.parametrize(
    ("programs", "equal"),
    [
        ([{"source": "theirs", "options": "-cl-std=CL1.2"}], [True, True]),
        ([{"source": "theirs", "options": "-cl-std=CL1.2 -DX"}], [True, False]),
        ([{"source": "0" * 64, "options": "-cl-std=CL1.2"}], [False, None]),
        ([7, {"source": 3}], [False, None]),
        ("nonsense", [None, None]),
    ],
)
def test_explain_compares_with_the_programs_of_the_package(
    programs: object, equal: list[bool | None], intaglio: Intaglio, tmp_path: Path
) -> None:
    """The device adds options of its own behind the package's."""
    path = written(tmp_path / "m.clbin", program("a", options="-cl-std=CL1.2 -DIG_FP16"))
    content = read_cache(path).records[0].content
    assert isinstance(content, Program)
    text = json.dumps({"opencl": {"programs": programs}}).replace("theirs", content.field("source"))
    (tmp_path / "manifest.json").write_text(text)
    told = intaglio("cache", "explain", tmp_path, "--json").json
    assert [field["equal"] for field in told["entries"][0]["fields"][:2]] == equal


def test_explain_for_a_device_that_is_not_there(intaglio: Intaglio, cache: Path) -> None:
    said = intaglio("cache", "explain", cache, "--device", "adreno")
    assert said.code == 2 and "error[no-opencl-device]" in said.err and "Mali-G78" in said.err


def test_explain_tells_of_a_process_that_died(intaglio: Intaglio, cache: Path) -> None:
    cache.with_name(f"m.clbin.loading.{USED.key.hex()[:16]}").write_text("L")
    assert "a process died while loading it" in intaglio("cache", "explain", cache).out


def test_verify_tells_good_from_damaged(intaglio: Intaglio, cache: Path) -> None:
    good = intaglio("cache", "verify", cache)
    assert good.code == 0 and "every digest is correct" in good.err
    data = bytearray(cache.read_bytes())
    data[200] ^= 1
    cache.write_bytes(data)
    bad = intaglio("cache", "verify", cache)
    assert bad.code == 1 and "at byte 16: the digest of the record's bytes is wrong" in bad.err
    assert intaglio("cache", "verify", cache, "--json").json["ok"] is False


@pytest.mark.parametrize("data", [b"", b"IGCL", b"no cache at all", b"IGCLBIN\0\x02\0\0\0\0\0\0\0"])
def test_verify_of_what_is_no_cache_any_more(data: bytes, intaglio: Intaglio, tmp_path: Path) -> None:
    (tmp_path / "m.clbin").write_bytes(data)
    assert intaglio("cache", "verify", tmp_path / "m.clbin").code == 1


def test_a_file_that_everybody_may_write_is_pointed_out(intaglio: Intaglio, cache: Path) -> None:
    cache.parent.chmod(0o755)
    cache.chmod(0o666)
    said = intaglio("cache", "verify", cache)
    assert said.code == 0 and "the file is writable by everybody" in said.err


def test_prune_keeps_what_any_device_can_use(intaglio: Intaglio, cache: Path) -> None:
    before = cache.read_bytes()
    dry = intaglio("cache", "prune", cache, "--dry-run")
    assert "2 records would be dropped" in dry.err and cache.read_bytes() == before
    said = intaglio("cache", "prune", cache)
    assert said.code == 0 and "2 records dropped, 7 kept" in said.err
    assert cache.read_bytes() == dump([USED, OLD, OTHER, checked(USED), distrusted(BAD), tuning(), unknown()])
    assert "0 records dropped" in intaglio("cache", "prune", cache).err


def test_prune_after_a_driver_update(intaglio: Intaglio, cache: Path) -> None:
    told = intaglio("cache", "prune", cache, "--other-drivers", "--json").json
    assert [(row["why"], row.get("driver_version")) for row in told["dropped"]] == [
        ("superseded", "3.0 r32p1"), ("of a former driver", "3.0 r29p0"), ("distrusted", "3.0 r32p1"),
    ]  # fmt: skip
    assert OTHER in read_cache(cache).records  # of a device that is not here: who knows


def test_prune_by_device_and_age(intaglio: Intaglio, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOVEMBER + 9 * 86400.0)
    assert intaglio("cache", "prune", cache, "--older-than", "10").code == 0
    assert intaglio("cache", "prune", cache, "--keep-device", "adreno").code == 0
    assert read_cache(cache).records == (OTHER, distrusted(BAD), unknown())
    intaglio("cache", "prune", cache, "--older-than", "8")
    assert read_cache(cache).records == (distrusted(BAD), unknown())


def test_prune_for_a_device_that_the_cache_does_not_have_drops_nothing(intaglio: Intaglio, cache: Path) -> None:
    before = cache.read_bytes()
    said = intaglio("cache", "prune", cache, "--keep-device", "powervr")
    assert said.code == 2 and "error[no-such-device]" in said.err and "`Adreno 740`, `Mali-G78`" in said.err
    assert cache.read_bytes() == before


def test_prune_of_a_package_drops_programs_of_sources_that_it_has_no_more(intaglio: Intaglio, tmp_path: Path) -> None:
    now, tuned, former = program("now"), program("tuned"), program("former")
    adreno = program("chosen there", device_name="Adreno 740")  # tuned elsewhere, and merged: the manifest does not know it
    there = tuning("Adreno 740")
    path = written(tmp_path / "m.clbin", now, tuned, former, checked(former), adreno, tuning(), there)
    digests = {kind: hashlib.sha256(name.encode()).hexdigest() for name, kind in (("now", "gpu"), ("tuned", "tuned"))}
    rows = [{"source": digest, "options": "-cl-std=CL1.2", "kind": kind} for kind, digest in digests.items()]
    (tmp_path / "manifest.json").write_text(json.dumps({"opencl": {"programs": rows}}), encoding="utf-8")
    assert "not used: another source" in intaglio("cache", "explain", tmp_path).out
    assert "0 records dropped" in intaglio("cache", "prune", path).err
    said = intaglio("cache", "prune", tmp_path)
    assert "2 records dropped, 5 kept" in said.err and "another source" in said.out
    assert former not in read_cache(path).records and adreno in read_cache(path).records


def test_prune_drops_what_is_damaged(intaglio: Intaglio, tmp_path: Path) -> None:
    data = bytearray(dump([USED, OTHER]))
    data[200] ^= 1
    (tmp_path / "m.clbin").write_bytes(data)
    assert "1 record dropped, 1 kept" in intaglio("cache", "prune", tmp_path).err
    assert (tmp_path / "m.clbin").read_bytes() == dump([OTHER])


def test_merge_makes_one_cache_of_several_devices(intaglio: Intaglio, tmp_path: Path) -> None:
    one = written(tmp_path / "one.clbin", USED, tuning())
    two = written(tmp_path / "two.clbin", OTHER, BAD, distrusted(BAD))
    out = tmp_path / "all.clbin"
    said = intaglio("cache", "merge", one, two, "-o", out)
    assert said.code == 0 and "3 programs of 2 devices, 1 tuning" in said.err
    assert read_cache(out).records == (USED, OTHER, BAD, tuning(), distrusted(BAD))


def test_merge_into_one_of_them(intaglio: Intaglio, tmp_path: Path) -> None:
    one, two = written(tmp_path / "one.clbin", USED), written(tmp_path / "two.clbin", OTHER)
    assert intaglio("cache", "merge", one, two, "-o", one).code == 0
    assert read_cache(one).records == (USED, OTHER)


def test_merge_does_not_overwrite_what_is_none_of_them(intaglio: Intaglio, tmp_path: Path) -> None:
    one, there = written(tmp_path / "one.clbin", USED), written(tmp_path / "there.clbin", OTHER)
    said = intaglio("cache", "merge", one, "-o", there)
    assert said.code == 2 and "error[output-exists]" in said.err and read_cache(there).records == (OTHER,)
    assert intaglio("cache", "merge", one, "-o", there, "--force").code == 0
    assert read_cache(there).records == (USED,)
    there.write_text("damaged from its first byte on")
    assert intaglio("cache", "merge", one, "-o", there, "--force").code == 0 and read_cache(there).records == (USED,)
    diary = tmp_path / "diary.txt"
    diary.write_text("my diary")
    said = intaglio("cache", "merge", one, "-o", diary, "--force")
    assert said.code == 2 and diary.read_text() == "my diary"


@pytest.mark.parametrize("command", ["list", "explain", "prune", "merge"])
@pytest.mark.parametrize(
    ("there", "slug"), [("nothing", "no-file"), ("folder", "no-cache"), ("foreign", "not-a-cache"), ("fifo", "not-a-cache")]
)
def test_what_is_no_cache_is_an_error(command: str, there: str, slug: str, intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    if there == "folder":
        path.mkdir()
    elif there == "fifo":
        os.mkfifo(path)
    elif there == "foreign":
        path = tmp_path / "diary.txt"
        path.write_text("my diary")
    more: list[str | Path] = ["-o", tmp_path / "out.clbin"] if command == "merge" else []
    said = intaglio("cache", command, path, *more)
    assert said.code == 2 and f"error[{slug}]" in said.err and not (tmp_path / "out.clbin").exists()


@pytest.mark.parametrize("command", ["prune", "merge"])
def test_a_cache_of_a_later_version_is_left_as_it_is(command: str, intaglio: Intaglio, tmp_path: Path) -> None:
    path = tmp_path / "m.clbin"
    path.write_bytes(b"IGCLBIN\0\x02\0\0\0\0\0\0\0")
    more: list[str | Path] = ["-o", path] if command == "merge" else []
    said = intaglio("cache", command, path, *more)
    assert said.code == 2 and "format 2" in said.err and len(path.read_bytes()) == 16


def test_a_file_with_marks_alone_shows_them(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("cache", "list", written(tmp_path / "m.clbin", distrusted(BAD)))
    assert said.code == 0 and "mark: distrusted" in said.out


def test_explain_of_a_file_says_what_was_not_compared(intaglio: Intaglio, cache: Path) -> None:
    said = intaglio("cache", "explain", cache)
    assert "source and options were not compared" in said.out and "if source and options are those of the package" in said.err


def test_env_prints_what_a_shell_needs(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Loader("libOpenCL.so", {"OCL_ICD_VENDORS": "/it's here", "PATH": "/a:/b"}, Answer(()))
    monkeypatch.setattr(loader, "find_loader", lambda: found)
    said = intaglio("cache", "env")
    assert said.out.splitlines() == ["export OCL_ICD_VENDORS='/it'\\''s here'", "export PATH='/a:/b'"]
    monkeypatch.setattr(loader, "find_loader", lambda: Loader("libOpenCL.so.1", {}, Answer(())))
    said = intaglio("cache", "env")
    assert said.code == 0 and not said.out and "nothing to set" in said.err


def test_objects_are_counted_and_removed(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE", str(tmp_path))
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE_SIZE", "2M")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "abc").write_bytes(bytes(100))
    assert intaglio("cache", "objects", "--json").json == {
        "folder": str(tmp_path), "objects": 1, "bytes": 100, "limit_bytes": 2 << 20,
    }  # fmt: skip
    said = intaglio("cache", "objects", "--clear")
    assert said.out.strip() == str(tmp_path) and "0 objects" in said.err and not any((tmp_path / "a").iterdir())


def test_objects_of_a_cache_that_is_off(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAGLIO_OBJECT_CACHE", "off")
    assert "not cached" in intaglio("cache", "objects").err and intaglio("cache", "objects", "--json").json == {"folder": None}
