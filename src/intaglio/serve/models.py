"""The models that are served: names, versions, and packages that are replaced while requests run.

    DIR                 a package: its own name, version 1
    NAME=DIR            another name
    NAME:3=DIR          and version
    DIR with 1/, 2/     versions of one model, each a package; the highest is the default

A package that was compiled again is loaded beside the one in use. New requests go to it, those that were taken stay where they are,
and the old one ends when the last of them is answered. If one cannot be loaded, the log says so and the old one stays. A served
name stays until the end: a package with another name is not loaded in its place, unless the command line names it.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.package.manifest import target_of
from intaglio.package.ownership import MANIFEST
from intaglio.run.host import Runner
from intaglio.run.opencl.library import DeviceOptions, OpenclLibrary
from intaglio.run.package import Package
from intaglio.serve.lane import QUICK_S, Full, Lane, time_of
from intaglio.serve.metrics import Metrics, ModelMetrics
from intaglio.serve.refusals import Refused, refusal_of
from intaglio.serve.tensors import Signature

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,99})(?::([1-9][0-9]{0,17}))?=(.+)", re.S)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_VERSION = re.compile(r"[1-9][0-9]{0,17}")
Stamp = tuple[int, int, int]
GONE: Stamp = (0, 0, 0)
MOST_IGNORED = 20
OF_SERVE = ("other-name", "bad-option", "cannot-serve")  # errors whose hints speak of `intaglio serve`
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Source:
    """What the command line names. `name`: "" for that of the package."""

    name: str
    version: str
    folder: Path

    @staticmethod
    def of(word: str) -> Source:
        found = _NAMED.fullmatch(word)
        if Path(word).exists() or "=" not in word:
            return Source("", "", Path(word))
        if found is None:
            name, _, folder = word.partition("=")
            name, colon, version = name.partition(":")
            hint = f"NAME=DIR or NAME:VERSION=DIR, for example `{re.sub('[^A-Za-z0-9_.-]', '', name) or 'model'}:2={folder}`"
            if colon and _NAME.fullmatch(name):
                what = f"{quoted(version)} in {quoted(word, 200)} is not a version: these are whole numbers from 1"
                raise UserError("bad-option", what, hint=hint)
            what = f"{quoted(name)} in {quoted(word, 200)} is not a name: letters, digits, `-`, `_` and `.`"
            raise UserError("bad-option", what if folder else f"{quoted(word, 200)} names no folder", hint=hint)
        return Source(found[1], found[2] or "", Path(found[3]))

    def packages(self) -> dict[str, Path]:
        """Versions that are there now, with their folders."""
        if (self.folder / MANIFEST).is_file() or not self.folder.is_dir():
            return {self.version or "1": self.folder}
        inner = [p for p in self.folder.iterdir() if _VERSION.fullmatch(p.name) and (p / MANIFEST).is_file()]
        return {p.name: p for p in sorted(inner, key=lambda p: int(p.name))} or {self.version or "1": self.folder}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much a model may take. `workers` None: as many as the package has threads."""

    depth: int = 64
    workers: int | None = None
    device: str | None = None


class Served:
    """One version of one model, loaded."""

    def __init__(self, name: str, version: str, loaded: Loaded, depth: int, metrics: ModelMetrics) -> None:
        self.name, self.version, self.stamp = name, version, loaded.stamp
        self.package, self.signature, self.metrics = loaded.package, loaded.signature, metrics
        self.lane = Lane(loaded.runners, depth, quick=loaded.quick)
        metrics.pending.set_function(lambda: self.lane.pending)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Counts what is refused inside: requests at fault, and those that a full queue does not take."""
        try:
            yield
        except Refused:
            self.metrics.refused.inc()
            raise

    async def infer(self, given: dict[str, Array]) -> list[Array]:
        """Outputs in the order of the package; raises Refused."""
        with self.refusals():
            inputs = self.signature.ordered(given)
            try:
                ticket = self.lane.submit(inputs)
            except Full:
                what = f"the queue of {quoted(self.name)} is full: {self.lane.depth} requests are waiting"
                raise Refused(429, what) from None
        try:
            outputs = await ticket.answer
        except IntaglioError as error:
            self._failed(ticket.taken)
            raise refusal_of(error) from None
        except Exception as error:
            self._failed(ticket.taken)
            raise Refused(500, f"{type(error).__name__}: {error}") from error
        spent = time.perf_counter() - ticket.taken
        self.metrics.answered.inc()
        self.metrics.waited.observe(ticket.waited_s)
        self.metrics.latency.observe(spent)
        self.metrics.tally.add(spent, ticket.waited_s, ok=True)
        return outputs

    def _failed(self, taken: float) -> None:
        self.metrics.failed.inc()
        self.metrics.tally.add(time.perf_counter() - taken, 0.0, ok=False)

    def metadata(self, versions: Sequence[str]) -> dict[str, object]:
        manifest = self.package.manifest
        return {
            "name": self.name,
            "versions": list(versions),
            "platform": f"intaglio_{manifest.target}",
            "inputs": [port.as_json() for port in self.signature.inputs],
            "outputs": [port.as_json() for port in self.signature.outputs],
        }

    def config(self) -> dict[str, object]:
        """As Triton describes a model; there are no batches that the server makes."""
        manifest = self.package.manifest
        inputs, outputs = (
            [{"name": port.name, "data_type": f"TYPE_{port.datatype}", "dims": list(port.shape)} for port in ports]
            for ports in (self.signature.inputs, self.signature.outputs)
        )
        about = {"name": self.name, "platform": f"intaglio_{manifest.target}", "backend": "intaglio", "max_batch_size": 0}
        return {**about, "input": inputs, "output": outputs}

    def statistics(self) -> dict[str, object]:
        """Triton's: success and failure, and of the successes the time in the queue and that of computing."""
        tally = self.metrics.tally
        computed = {"count": tally.answered, "ns": max(0, tally.answered_ns - tally.queue_ns)}
        nothing = {"count": tally.answered, "ns": 0}
        stats = {
            "success": {"count": tally.answered, "ns": tally.answered_ns},
            "fail": {"count": tally.failed, "ns": tally.failed_ns},
            "queue": {"count": tally.answered, "ns": tally.queue_ns},
            "compute_input": nothing,
            "compute_infer": computed,
            "compute_output": nothing,
        }
        counts = {"inference_count": tally.answered, "execution_count": tally.answered}
        return {"name": self.name, "version": self.version, "last_inference": tally.last_ms, **counts, "inference_stats": stats}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A package that is ready to run: an object for each worker."""

    package: Package
    signature: Signature
    runners: list[Runner]
    quick: bool
    stamp: Stamp


def load(folder: Path, sizes: Sizes) -> Loaded:
    stamp = stamp_of(folder)
    device = DeviceOptions(sizes.device)
    package = Package(folder, device=device)
    manifest = package.manifest
    if package.bare or target_of(manifest).wasm:
        what = f"`{package.name}` was compiled for `{manifest.target}`, which this machine does not run"
        raise UserError("cannot-serve", what, hint="compile it for a host, or with `--target opencl`")
    if manifest.states:
        what = f"`{package.name}` keeps state from one run to the next, and requests of several clients would share it"
        raise UserError("cannot-serve", what, hint="serve a package without `--stream` and without state")
    if sizes.device is not None and manifest.opencl is None:
        what = f"`--device` is for packages for OpenCL, and `{package.name}` was compiled for `{manifest.target}`"
        raise UserError("bad-option", what, hint="omit `--device`, or compile the model with `--target opencl`")
    runners = _runners(package, folder, sizes, device)
    return Loaded(package, Signature.of(manifest), runners, _is_quick(package, runners[0]), stamp)


def _runners(package: Package, folder: Path, sizes: Sizes, device: DeviceOptions) -> list[Runner]:
    """Of a copy of the library, which is gone from the disk when all have it: who overwrites the file would end this process."""
    manifest, name = package.manifest, f"lib{package.name}.so"
    if not (folder / "lib" / name).is_file():
        return [package.library]  # tells what is missing
    with tempfile.TemporaryDirectory(prefix="intaglio-serve-") as place:
        path = Path(place) / name
        shutil.copyfile(folder / "lib" / name, path)
        if manifest.opencl is not None:
            return [OpenclLibrary(path, manifest, folder, device)]  # one device, one queue
        threads = manifest.options.get("threads", "1")
        count = sizes.workers or (int(threads) if threads.isdigit() and int(threads) else 1)
        return [package.library_at(path) for _ in range(count)]


def _is_quick(package: Package, runner: Runner) -> bool:
    """By a run on zeros, which also starts threads and devices before the first request."""
    zeros = [np.zeros(info.shape, info.type.dtype.numpy) for info in package.manifest.inputs]
    try:
        return time_of(lambda: runner.run(zeros)) < QUICK_S and package.manifest.opencl is None
    except IntaglioError:  # the model does not take zeros, or the device is not there: the first request gets the error
        if package.manifest.opencl is not None:
            raise
        return False


def stamp_of(folder: Path) -> Stamp:
    """Another one when the package was written again."""
    try:
        status = (folder / MANIFEST).stat()
    except OSError:
        return GONE
    return status.st_ino, status.st_mtime_ns, status.st_size


def differing(before: Signature, after: Signature) -> str:
    """What clients would notice."""
    changed = []
    for what, old, new in (("inputs", before.inputs, after.inputs), ("outputs", before.outputs, after.outputs)):
        texts = [", ".join(f"{p.name} {p.datatype} {list(p.shape)}" for p in ports) for ports in (old, new)]
        if texts[0] != texts[1]:
            changed.append(f"other {what}, {texts[0]} -> {texts[1]}")
    return "; ".join(changed)


class Models:
    def __init__(self, sources: Sequence[Source], sizes: Sizes, metrics: Metrics, say: Callable[[str], None]) -> None:
        self._sources, self._sizes, self._metrics, self._say = sources, sizes, metrics, say
        self._served: dict[Key, Served] = {}
        self._from: dict[Key, Source] = {}
        self._names: dict[Source, str] = {}  # under which each is served
        self._failed: dict[tuple[Path, Stamp], str] = {}  # told once
        self._ending: set[asyncio.Task[None]] = set()
        self._ignored: set[str] = set()
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """All of them, or an error."""
        for source in self._sources:
            for version, folder in source.packages().items():
                loaded = await asyncio.to_thread(load, folder, self._sizes)
                key = (self._name_of(source, folder, loaded), version)
                if key in self._served:
                    what = f"two packages are called {quoted(key[0])} in version {version}"
                    raise UserError("bad-option", what, hint=f"name one: `NAME={folder}` or `{key[0]}:2={folder}`")
                self._put(key, source, loaded)

    def _name_of(self, source: Source, folder: Path, loaded: Loaded) -> str:
        """That of the command line, or of the first package that was loaded from there."""
        own = loaded.package.name
        name = self._names.setdefault(source, source.name or own)
        if source.name or own == name:
            return name
        what = f"the package in {quoted(str(folder), 200)} is called {quoted(own)}, and {quoted(name)} is served from there"
        hint = f"`{name}={source.folder}` on the command line serves it as {quoted(name)}; or compile it with `--name {name}`"
        raise UserError("other-name", what, hint=hint)

    def _put(self, key: Key, source: Source, loaded: Loaded) -> None:
        old = self._served.get(key)
        self._served[key] = Served(*key, loaded, self._sizes.depth, self._metrics.of(*key))
        self._from[key] = source
        if old is not None:
            self._retire(old)

    def _retire(self, old: Served) -> None:
        async def end() -> None:
            await old.lane.drained()
            old.lane.end()

        task = asyncio.get_running_loop().create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def reload(self, only: str | None = None) -> list[str]:
        """Load what has changed on disk; returns why something could not be loaded."""
        async with self._turn:
            return [why for source in self._sources for why in await self._reload(source, only)]

    async def _reload(self, source: Source, only: str | None) -> list[str]:
        there = source.packages()
        for key in [k for k, s in self._from.items() if s is source and k[1] not in there]:
            self._say(f"{key[0]} version {key[1]}: not there any more")
            del self._from[key]
            self._retire(self._served.pop(key))
        if only is not None and self._names.get(source, only) != only:
            return []
        known = {version: self._served[name, version] for (name, version), own in self._from.items() if own is source}
        found: list[str] = []
        for version, folder in there.items():
            stamp = stamp_of(folder)
            if stamp == GONE:
                if only is not None or (folder, stamp) not in self._failed:
                    self._failed[folder, stamp] = "gone"
                    self._say(f"{folder}: there is no package any more; the one in use stays")
                if only is not None:
                    found.append("there is no package any more")
                continue
            self._failed.pop((folder, GONE), None)
            if version not in known or known[version].stamp != stamp:
                found += await self._replace(source, version, folder, stamp)
        return found

    async def _replace(self, source: Source, version: str, folder: Path, stamp: Stamp) -> list[str]:
        try:
            loaded = await asyncio.to_thread(load, folder, self._sizes)
            name = self._name_of(source, folder, loaded)
            if self._from.get((name, version), source) is not source:
                what = f"two packages are called {quoted(name)} in version {version}"
                raise UserError("bad-option", what, hint=f"name one on the command line: `NAME={source.folder}`")
        except IntaglioError as error:
            if (folder, stamp) not in self._failed:
                self._failed[folder, stamp] = str(error)
                self._metrics.reloaded(self._names[source], ok=False)
                self._say(f"{folder}: cannot be loaded; the package in use stays\n{error}")
            hint = f"; {error.hint}" if error.slug in OF_SERVE and error.hint else ""  # for whoever runs the server
            return [refusal_of(error).text + hint]
        before = self._served.get((name, version))
        self._put((name, version), source, loaded)
        self._metrics.reloaded(name, ok=True)
        if before is not None and (told := differing(before.signature, loaded.signature)):
            self._say(f"{name} version {version}: {told}; requests for the one before are refused")
        self._say(f"{name} version {version}: loaded from {folder}")
        return []

    def ignored(self, names: Iterable[str]) -> None:
        """Parameters of requests that have no effect here: the log names each once."""
        for name in names:
            if name not in self._ignored and len(self._ignored) < MOST_IGNORED:
                self._ignored.add(name)
                self._say(f"requests have the parameter {quoted(name)}, which is ignored")

    async def idle(self) -> None:
        """When nothing is pending, for now."""
        for served in self.all():
            await served.lane.drained()

    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self._served))

    def versions(self, name: str) -> list[str]:
        return sorted((v for n, v in self._served if n == name), key=int)

    def has(self, name: str, version: str = "") -> bool:
        return (name, version) in self._served if version else bool(self.versions(name))

    def find(self, name: str, version: str = "") -> Served:
        found = self._served.get((name, version)) if version else None
        if found is None:
            versions = self.versions(name)
            if not versions:
                raise Refused(404, f"there is no model {quoted(name)}; models: {', '.join(map(quoted, self.names()))}")
            if version:
                raise Refused(404, f"{quoted(name)} has no version {quoted(version)}; versions: {', '.join(versions)}")
            found = self._served[name, versions[-1]]
        return found

    def asked(self, name: str = "", version: str = "") -> list[Served]:
        """All, those of a model, or one."""
        if not name or version:
            return [self.find(name, version)] if name else self.all()
        self.find(name)
        return [served for served in self.all() if served.name == name]

    def all(self) -> list[Served]:
        return [self._served[key] for key in sorted(self._served)]

    async def drained(self) -> None:
        """When everything that was taken is answered, also by packages that were replaced."""
        for served in self.all():
            await served.lane.drained()
        for task in list(self._ending):
            await task
        for served in self.all():
            served.lane.end()


__all__ = ["Models", "Served", "Sizes", "Source", "load"]
