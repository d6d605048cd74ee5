"""`intaglio cache list | explain | verify | prune | merge | env`: program caches (NAME.clbin) of OpenCL packages; `cache objects`:
the cache of compiled objects of this user."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from intaglio.errors import UserError, counted, printable, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from intaglio.run.opencl.answers import OpenCLDevice
    from intaglio.run.opencl.cache_contents import Entry
    from intaglio.run.opencl.cache_file import CacheFile, Damage, Record
    from intaglio.run.opencl.matching import Match

cache_app = typer.Typer(help="Inspect and manage OpenCL program caches, and the cache of compiled objects.", no_args_is_help=True)

Cache = Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A .clbin file, or a package with one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DeviceOption = Annotated[
    Optional[str], typer.Option("--device", metavar="D", help="gpu, cpu, accelerator, numbers such as 0.0, or a part of a name.")
]
KINDS = {1: "program", 2: "tuning", 3: "mark"}


@cache_app.command("list")
def list_command(cache: Cache, json: JsonOption = False) -> None:
    """List the entries of a cache: device, driver, size and state."""
    from intaglio.cli.terminal import bytes_text, note, print_json, print_table
    from intaglio.run.opencl.cache_contents import STATES, entries
    from intaglio.targets.caches import unsafe

    path, found = _read(cache)
    listed = entries(found.records)
    if json:
        told = {"file": str(path), "problem": found.problem, "unsafe": unsafe(path), "damage": [_damage(d) for d in found.damage]}
        print_json({**told, "entries": [_entry(entry) for entry in listed]})
        return
    rows, programs = [], {entry.record.key for entry in listed if entry.program is not None}
    for entry in listed:
        if entry.mark is not None and entry.record.key in programs:
            continue  # it shows as the state of its program
        fields = _about(entry)
        device, driver = _cut(fields.get("device name", ""), 17), _cut(fields.get("driver version", ""), 11)
        kind = KINDS.get(entry.record.kind, f"kind {entry.record.kind}")
        if entry.mark is not None:  # of a program in another file: the one that is shipped
            kind = f"mark: {STATES.get(entry.mark.what, entry.mark.what)}"
        size, date = bytes_text(len(entry.record.body)), _date(entry.record.written)
        rows.append([entry.record.key.hex()[:8], device, driver, size, date, entry.state or kind])
    if rows:
        print_table(["key", "device", "driver", ">size", "written", "state"], rows)
    _remarks(path, found)
    note(f"{path.name}: {_summary(listed)}")


@cache_app.command("explain")
def explain_command(cache: Cache, device: DeviceOption = None, json: JsonOption = False) -> None:
    """Report for each entry, field by field, whether it would be used on this machine."""
    from intaglio.cli.terminal import note, print_json
    from intaglio.run.opencl.cache_contents import entries
    from intaglio.run.opencl.cache_store import sentinel
    from intaglio.run.opencl.devices import find_device
    from intaglio.run.opencl.matching import match, package_programs
    from intaglio.targets.caches import unsafe

    path, found = _read(cache)
    here = find_device(device)
    package = package_programs(cache) if cache.is_dir() else None
    listed = entries(found.records)
    matches = [match(e, e.program, here, package) for e in listed if e.program is not None]
    loading = {m.entry.record.key: sentinel(path, m.entry.record.key) for m in matches}
    if json:
        told = [_match(m, loading[m.entry.record.key]) for m in matches]
        head = {"file": str(path), "device": _device(here), "problem": found.problem, "unsafe": unsafe(path)}
        damage = [_damage(d) for d in found.damage]
        print_json({**head, "damage": damage, "usable": sum(m.usable for m in matches), "entries": told})
        return
    print(printable(f"device {here.place}: {here.name} ({here.platform_name}), driver {here.driver_version}"))
    for m in matches:
        print()
        _print_match(m, loading[m.entry.record.key])
    for entry in listed:
        if entry.state == "malformed":
            print(f"\n{KINDS[entry.record.kind]} {entry.record.key.hex()[:8]}: not used: {entry.reason}")
    alone = any(m.fields[0].equal is None for m in matches)
    if alone:
        print("\nsource and options were not compared: `intaglio cache explain DIR` does")
    print()
    _remarks(path, found)
    used = f"{sum(m.usable for m in matches)} of {len(matches)} programs would be used on this device"
    note(f"{path.name}: {used}{', if source and options are those of the package' if alone else ''}")


@cache_app.command("verify")
def verify_command(cache: Cache, json: JsonOption = False) -> None:
    """Check every length, key and digest. Exit code 1 if something is damaged."""
    from intaglio.cli.terminal import note, print_json
    from intaglio.run.opencl.cache_contents import entries
    from intaglio.run.opencl.cache_store import read_cache
    from intaglio.targets.caches import unsafe

    path = _place(cache)
    found = read_cache(path)
    listed = entries(found.records)
    bad = [entry for entry in listed if entry.state == "malformed"]
    if json:
        told = {"file": str(path), "ok": found.sound, "problem": found.problem, "unsafe": unsafe(path), "records": len(listed)}
        malformed = [{"key": e.record.key.hex(), "kind": e.record.kind, "reason": e.reason} for e in bad]
        print_json({**told, "damage": [_damage(d) for d in found.damage], "malformed": malformed})
    else:
        for entry in bad:
            print(f"{KINDS[entry.record.kind]} {entry.record.key.hex()[:8]}: {entry.reason}")
        _remarks(path, found)
        note(f"{path.name}: {_summary(listed)}; " + ("every digest is correct" if found.sound else "damaged"))
    raise typer.Exit(0 if found.sound else 1)


@cache_app.command("prune")
def prune_command(
    cache: Cache,
    other_drivers: Annotated[
        bool, typer.Option("--other-drivers", help="Also drop entries for former drivers of this machine's devices.")
    ] = False,
    older_than: Annotated[
        Optional[float],
        typer.Option(metavar="DAYS", min=0, help="Also drop entries written more than DAYS days ago, of any device."),
    ] = None,
    keep_device: Annotated[
        Optional[list[str]], typer.Option(metavar="D", help="Also drop entries of all devices except these (parts of names).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be dropped, and drop nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Drop records that no device can use: superseded, damaged, distrusted. In a package, also programs of former sources."""
    from intaglio.cli.terminal import bytes_text, note, print_json, print_table
    from intaglio.run.opencl.cache_contents import entries, prune
    from intaglio.run.opencl.cache_file import dump
    from intaglio.run.opencl.cache_store import update_cache

    path, found = _read(cache)
    _known(path, found)
    why = _reasons(found, other_drivers, older_than, keep_device, cache if cache.is_dir() else None)
    seen: list[CacheFile] = []

    def change(old: CacheFile) -> Sequence[Record]:
        _known(path, old)
        seen[:] = [old]
        return prune(old, lambda entry: bool(why(entry)))

    before = path.stat().st_size
    kept = change(found) if dry_run else update_cache(path, change).records
    old, stays = seen[0], {id(record) for record in kept}
    dropped = [entry for entry in entries(old.records) if id(entry.record) not in stays]
    after = len(dump(kept)) if dry_run else path.stat().st_size
    reasons = [
        entry.state if entry.state in NEVER_USED else "its program is dropped" if entry.mark else why(entry) for entry in dropped
    ]
    if json:
        rows = [{**_entry(entry), "why": reason} for entry, reason in zip(dropped, reasons, strict=True)]
        told = {"file": str(path), "dry_run": dry_run, "dropped": rows, "damage": [_damage(d) for d in old.damage]}
        print_json({**told, "kept": len(kept), "bytes_before": before, "bytes_after": after})
        return
    table = []
    for entry, reason in zip(dropped, reasons, strict=True):
        device = _about(entry).get("device name", "")
        table.append([entry.record.key.hex()[:8], KINDS.get(entry.record.kind, ""), _cut(device, 22), reason])
    if table:
        print_table(["key", "kind", "device", "reason"], table)
    _remarks(path, old)
    verb, size = ("would be dropped", "the file would have") if dry_run else ("dropped", "the file has")
    sizes = f"{size} {bytes_text(after)} instead of {bytes_text(before)}"
    note(f"{path.name}: {counted(len(dropped) + len(old.damage), 'record')} {verb}, {len(kept)} kept; {sizes}")


@cache_app.command("merge")
def merge_command(
    caches: Annotated[list[Path], typer.Argument(metavar="FILE|DIR...", help="Caches to merge, of any devices.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Cache to write; may be one of the merged ones.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing cache that is not one of the merged ones.")] = False,
    json: JsonOption = False,
) -> None:
    """Merge several caches. Of two entries with one key, the one that passed its self-test is kept, or the later one."""
    from intaglio.cli.terminal import bytes_text, note, print_json
    from intaglio.run.opencl.cache_contents import entries, merge
    from intaglio.run.opencl.cache_file import dump
    from intaglio.run.opencl.cache_store import update_cache

    read = [_read(cache) for cache in caches]
    for path, found in read:
        _known(path, found)
        _remarks(path, found)
    target = _place(output) if output.is_dir() else output
    own = [n for n, (path, _) in enumerate(read) if target.exists() and path.exists() and path.samefile(target)]
    if target.exists() and not own and not force:
        hint = "add it to the caches to merge, or replace it with `--force`"
        raise UserError("output-exists", f"{quoted(str(target), 200)} already exists", hint=hint)
    if not target.parent.is_dir():
        raise UserError("cannot-write", f"there is no folder {quoted(str(target.parent), 200)}")

    def change(old: CacheFile) -> Sequence[Record]:
        _known(target, old)
        return merge([old if n in own else found for n, (_, found) in enumerate(read)])

    made = update_cache(target, change)
    listed = entries(made.records)
    if json:
        told = {"file": str(target), "from": [str(path) for path, _ in read], "bytes": len(dump(made.records))}
        print_json({**told, "entries": [_entry(entry) for entry in listed]})
        return
    note(f"wrote {target}: {_summary(listed)}; {bytes_text(target.stat().st_size)}")


@cache_app.command("env")
def env_command(json: JsonOption = False) -> None:
    """Print the variables of the OpenCL loader that Intaglio uses; `eval "$(intaglio cache env)"` sets them for `bin/NAME`."""
    from intaglio.cli.terminal import note, print_json
    from intaglio.run.opencl.loader import find_loader

    found = find_loader()
    if json:
        print_json({"library": found.library, "environment": found.environment})
        return
    for name, value in found.environment.items():
        quote = value.replace("'", "'\\''")
        print(f"export {name}='{quote}'")
    if not found.environment:
        note(f"nothing to set: {found.library} is found without variables")


@cache_app.command("objects")
def objects_command(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all objects.")] = False, json: JsonOption = False
) -> None:
    """Show where compiled objects are cached, how many, and their size. INTAGLIO_OBJECT_CACHE=off switches the cache off."""
    from intaglio.cli.terminal import bytes_text, note, print_json
    from intaglio.run.objects import object_cache

    cache = object_cache()
    if cache is None:
        print_json({"folder": None}) if json else note("compiled objects are not cached")
        return
    if clear:
        cache.clear()
    sizes = cache.sizes()
    if json:
        print_json({"folder": str(cache.folder), "objects": len(sizes), "bytes": sum(sizes), "limit_bytes": cache.limit_bytes})
        return
    print(cache.folder)
    note(f"{counted(len(sizes), 'object')}, {bytes_text(sum(sizes))} of {bytes_text(cache.limit_bytes)}")


NEVER_USED = ("superseded", "malformed", "distrusted")


def _why_dropped(entry: Entry, why: Callable[[Entry], str]) -> str:
    if entry.state in NEVER_USED:
        return entry.state
    return "its program is dropped" if entry.mark else why(entry)


def _place(cache: Path) -> Path:
    """The file itself, or that of a package: NAME.clbin."""
    if not cache.is_dir():
        return cache
    found = sorted(cache.glob("*.clbin"))
    if len(found) > 1 and (cache / "manifest.json").is_file():
        from intaglio.package.manifest import read_manifest

        found = [path for path in found if path.stem == read_manifest(cache).name] or found
    shown = quoted(str(cache), 200)
    if not found:
        if (target := _processor_of(cache)) is not None:
            what = f"{shown} is a package for `{target}`, which has no program cache"
            raise UserError("no-cache", what, hint="compile the model with `--target opencl`")
        hint = "run `bin/NAME --warm` of the package to write one, or give a .clbin file"
        raise UserError("no-cache", f"there is no program cache (NAME.clbin) in {shown}", hint=hint)
    if len(found) > 1:
        names = ", ".join(quoted(path.name) for path in found)
        raise UserError("no-cache", f"there are several program caches in {shown}: {names}", hint="give the file itself")
    return found[0]


def _processor_of(folder: Path) -> str | None:
    """The target of a package that is not for an OpenCL device."""
    if not (folder / "manifest.json").is_file():
        return None
    from intaglio.package.manifest import read_manifest

    manifest = read_manifest(folder)
    return manifest.target if manifest.opencl is None else None


def _read(cache: Path) -> tuple[Path, CacheFile]:
    """What is nothing of ours is refused: there is nothing to say about it."""
    from intaglio.run.opencl.cache_store import read_cache

    path = _place(cache)
    found = read_cache(path)
    if found.foreign:
        hint = "if it was one, its first bytes are damaged: remove it, and a package writes a new one"
        raise UserError("not-a-cache", f"{quoted(str(path), 200)} is not a program cache: {found.problem}", hint=hint)
    return path, found


def _known(path: Path, found: CacheFile) -> None:
    if "format" in found.problem:
        hint = "another version of Intaglio wrote it; use that version to change it"
        raise UserError("not-a-cache", f"{quoted(str(path), 200)} is not changed: {found.problem}", hint=hint)


def _reasons(
    found: CacheFile, other_drivers: bool, older_than: float | None, keep_device: list[str] | None, folder: Path | None
) -> Callable[[Entry], str]:
    """Why an entry goes that could be used somewhere; empty where it stays."""
    from intaglio.run.opencl.cache_contents import entries
    from intaglio.run.opencl.matching import is_former_driver, is_left_over, package_programs

    package = package_programs(folder) if folder is not None else None
    devices: Sequence[OpenCLDevice] = ()
    if other_drivers:
        from intaglio.run.opencl.devices import list_devices

        devices = list_devices()
    now = time.time()
    listed = [entry for entry in entries(found.records) if entry.program is not None or entry.tuning is not None]
    there = sorted({_about(entry)["device name"] for entry in listed})
    programs = [entry.program for entry in listed if entry.program is not None]
    tunings = [entry.tuning for entry in listed if entry.tuning is not None]
    for wanted in keep_device or ():
        if not any(_is_of(entry, wanted) for entry in listed):
            names = ", ".join(map(quoted, there)) or "none"
            text = f"no entry is for a device {quoted(wanted)}; devices in this cache: {names}"
            raise UserError("no-such-device", text, hint="give a part of one of these names; nothing was dropped")

    def why(entry: Entry) -> str:
        if keep_device and not any(_is_of(entry, wanted) for wanted in keep_device):
            return "of another device"
        if older_than is not None and entry.record.written < now - older_than * 86400:
            return f"older than {older_than:g} days"
        if entry.program is not None and is_former_driver(entry.program, devices):
            return "of a former driver"
        if entry.program is not None and package and is_left_over(entry.program, package, tunings, programs):
            return "of another source than the package's"
        return ""

    return why


def _is_of(entry: Entry, wanted: str) -> bool:
    about = _about(entry)
    return any(wanted.lower() in about[name].lower() for name in ("device name", "platform name"))


def _about(entry: Entry) -> dict[str, str]:
    from intaglio.run.opencl.cache_file import FIELDS, TUNING_FIELDS

    if entry.program is not None:
        return dict(zip(FIELDS, entry.program.fields, strict=True))
    return dict(zip(TUNING_FIELDS, entry.tuning.fields, strict=True)) if entry.tuning is not None else {}


def _entry(entry: Entry) -> dict[str, object]:
    told: dict[str, object] = {"key": entry.record.key.hex(), "kind": KINDS.get(entry.record.kind, entry.record.kind)}
    told |= {"state": entry.state, "reason": entry.reason, "bytes": len(entry.record.body), "written": entry.record.written}
    told |= {name.replace(" ", "_"): _plain(text) for name, text in _about(entry).items()}
    if entry.program is not None:
        told |= {"binary_bytes": len(entry.program.binary), "self_tests": [_plain(name) for name, _ in entry.program.self_tests]}
        told |= {"device_report": _plain(entry.program.report)}
    if entry.mark is not None:
        told |= {"mark": {1: "checked", 2: "distrusted"}.get(entry.mark.what, entry.mark.what), "reason": _plain(entry.mark.reason)}
    return told


def _match(m: Match, loading: str) -> dict[str, object]:
    fields = [
        {"name": f.name, "entry": _plain(f.entry), "here": None if f.here is None else _plain(f.here), "equal": f.equal}
        for f in m.fields
    ]
    return {**_entry(m.entry), "usable": m.usable, "differs": list(m.other), "fields": fields, "sentinel": loading}


def _print_match(m: Match, loading: str) -> None:
    from intaglio.cli.terminal import bytes_text

    entry = m.entry
    size = bytes_text(len(entry.record.body))
    print(f"program {entry.record.key.hex()[:8]}, {size}, written {_date(entry.record.written)}: {_verdict(m)}")
    for field in m.fields if entry.counts else ():
        word = {True: "same", False: "differs", None: ""}[field.equal]
        _print_field(field.name, word, field.entry if field.name != "source" else f"{field.entry[:16]}…")
        if field.equal is False and field.here is not None:
            _print_field("", "here", field.here)
    tests = len(entry.program.self_tests) if entry.program is not None else 0
    said = {
        "checked": "the digests are correct, the self-test passed",
        "unchecked": f"the digests are correct; its self-test ({counted(tests, 'kernel')}) runs at the first load",
        "distrusted": f"the digests are correct; distrusted: {entry.reason or 'no reason given'}",
        "superseded": "a later record of this cache has the same key",
    }
    _print_field("state", "", said[entry.state])
    if loading:
        text = {"loading": "a process is loading it for the first time", "died": "a process died while loading it"}[loading]
        _print_field("sentinel", "", text)


def _verdict(m: Match) -> str:
    if m.entry.state == "superseded":
        return "not used: superseded"
    if "source" in m.other:
        return "not used: another source"
    if m.other:
        return f"not used: differs in {counted(len(m.other), 'field')}"
    return "not used: distrusted" if m.entry.state == "distrusted" else "would be used"


def _print_field(name: str, word: str, text: str) -> None:
    """In columns; a long text goes on in its own, uncut: what differs may be its end."""
    from intaglio.cli.terminal import PAGE

    pieces = textwrap.wrap(printable(text), PAGE - 28, break_on_hyphens=False) or ["(empty)"]
    print(f"  {name:<17} {word:<7} {pieces[0]}")
    for piece in pieces[1:]:
        print(f"{'':28}{piece}")


def _remarks(path: Path, found: CacheFile) -> None:
    from intaglio.cli.terminal import bytes_text, note
    from intaglio.targets.caches import unsafe

    if found.problem:
        note(f"{path.name}: {found.problem}")
    for part in found.damage[:20]:
        note(f"damaged: {bytes_text(part.size_bytes)} at byte {part.offset}: {part.reason}")
    if len(found.damage) > 20:
        note(f"damaged: {len(found.damage) - 20} more places")
    if text := unsafe(path):
        note(f"{path.name}: packages do not use it: {text}")


def _summary(listed: Sequence[Entry]) -> str:
    programs = [entry for entry in listed if entry.program is not None and entry.counts]
    devices = {_about(entry)["device name"] for entry in programs}
    tunings = sum(entry.tuning is not None and entry.counts for entry in listed)
    return f"{counted(len(programs), 'program')} of {counted(len(devices), 'device')}, {counted(tunings, 'tuning')}"


def _damage(part: Damage) -> dict[str, object]:
    return {"offset": part.offset, "bytes": part.size_bytes, "reason": part.reason}


def _device(device: OpenCLDevice) -> dict[str, object]:
    return {
        "place": device.place,
        "name": _plain(device.name),
        "kind": device.kind,
        "platform": _plain(device.platform_name),
        "driver_version": _plain(device.driver_version),
    }


def _plain(text: str) -> str:
    """Text of a driver for JSON: what is no UTF-8 is shown, not lost in an error."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _cut(text: str, width: int) -> str:
    shown = printable(text.strip())
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"


def _date(seconds: int) -> str:
    try:
        return time.strftime("%Y-%m-%d", time.gmtime(seconds)) if seconds > 0 else "-"
    except (OverflowError, OSError, ValueError):
        return "-"
