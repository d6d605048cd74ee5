"""Everything that a dossier says of a package, as one value."""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from intaglio.dossier.coverage import Coverage, coverage_of
from intaglio.dossier.meaning import meaning_of
from intaglio.dossier.memory import MemoryProof, program_of, prove
from intaglio.dossier.numerics import ErrorBound, numeric_bounds
from intaglio.dossier.timing import TimeBounds, time_bounds
from intaglio.dossier.trace import Trace, binary_of, trace
from intaglio.errors import IntaglioError, UserError, counted, quoted
from intaglio.ir.files import read_network
from intaglio.ir.offload import flat_nodes
from intaglio.ir.text import Network
from intaglio.kernels.loop_facts import LoopFacts, loop_facts
from intaglio.kernels.program import Program
from intaglio.package.manifest import Manifest, target_of
from intaglio.package.ownership import MANIFEST, file_digest
from intaglio.package.signing import verify_package
from intaglio.run.loaded import LoadedPackage
from intaglio.run.validate import ValidateOptions, Validation, validate

LIMITS = (
    "Cycles follow a model of the core at zero wait states (docs/reference/cycle-estimate.md), not a measurement on silicon. "
    "Caches, wait states and interrupts of a board come on top.",
    "A bound of the time holds for the weights of this package: branches that depend on weights alone are taken as they are here.",
    "Error bounds are for the inputs of the test vectors. They cover rounding, not training or quantisation.",
    "Compiler, assembler and linker are not qualified by this dossier. Compare their digests with those of your tools.",
    "Coverage is of the generated C built for this machine. Instructions that only the core has are covered as the C beside them.",
    "This dossier is evidence for a certification file. It is no certificate, and does not say that the network itself is right.",
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What an operator means."""

    op: str
    meaning: str
    reference: str
    layers: int


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    version: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class KernelFacts:
    function: str
    facts: LoopFacts


@dataclass(frozen=True, slots=True)
class Dossier:
    manifest: Manifest
    manifest_digest: str
    binary: str
    binary_digest: str
    whole: bool  # all files as the manifest lists them
    requirements: tuple[Requirement, ...]
    trace: Trace
    numerics: tuple[ErrorBound, ...]
    memory: MemoryProof
    timing: TimeBounds
    kernels: tuple[KernelFacts, ...]
    coverage: Coverage
    validation: Validation | None
    validation_note: str
    tools: tuple[Tool, ...]
    limits: tuple[str, ...] = LIMITS


@dataclass(frozen=True, slots=True)
class Wanted:
    """`inputs`: that firmware is run on, to see how near the bound of the time is."""

    inputs: int = 100
    run: bool = True


def gather(folder: Path, wanted: Wanted, say: Callable[[str], None]) -> Dossier:
    package = LoadedPackage(folder)
    manifest = package.manifest
    if manifest.opencl is not None:
        raise UserError("no-dossier", "packages for OpenCL have no dossier", hint="compile for the processor that runs the network")
    verdict = verify_package(folder, None)
    if gone := [path for path in verdict.missing if path.startswith(("src/", "include/", "ir/", "test/"))]:
        what = f"{counted(len(gone), 'file')} of the package {'is' if len(gone) == 1 else 'are'} missing, such as {quoted(gone[0])}"
        raise UserError("not-whole", what, hint="`intaglio verify` lists them; compile the model again")
    network = _network(folder, manifest)
    target = target_of(manifest)
    program = program_of(network, manifest, target)
    kernels = () if program is None else tuple(KernelFacts(k.name, loop_facts(k)) for k in program.kernels)
    say("tracing nodes to addresses")
    traced = trace(folder, manifest, network)
    say("bounds of errors")
    numerics = numeric_bounds(folder, manifest)
    say("proof of the memory map")
    memory = prove(manifest, program)
    timing = TimeBounds(reason="not asked for")
    if wanted.run:
        say(f"bounds of the time, and {wanted.inputs} inputs")
        timing = time_bounds(package, {k.function: k.facts for k in kernels}, wanted.inputs)
    say("coverage of the generated C")
    covered = coverage_of(folder, manifest) if wanted.run else Coverage(reason="not asked for")
    validation, note = _validated(package, wanted, say)
    binary = binary_of(folder, manifest)
    return Dossier(
        manifest, file_digest(folder / MANIFEST), "" if binary is None else binary.relative_to(folder).as_posix(),
        "" if binary is None else file_digest(binary), verdict.ok, _requirements(network, manifest), traced,
        numerics, memory, timing, kernels, covered, validation, note, _tools(manifest, covered),
    )  # fmt: skip


def _network(folder: Path, manifest: Manifest) -> Network | None:
    path = folder / "ir" / f"{manifest.name}.ig"
    if not path.is_file():
        return None
    try:
        return read_network(path)
    except IntaglioError:
        return None


def _validated(package: LoadedPackage, wanted: Wanted, say: Callable[[str], None]) -> tuple[Validation | None, str]:
    if not wanted.run:
        return None, "not asked for"
    say("comparing with the reference")
    try:
        return validate(package, ValidateOptions(layers=True)), ""
    except IntaglioError as error:
        return None, error.message


def _requirements(network: Network | None, manifest: Manifest) -> tuple[Requirement, ...]:
    if network is None:
        return ()
    used: dict[str, int] = {}
    meaning: dict[str, tuple[str, str]] = {}
    for node in flat_nodes(network.graph.nodes):
        name, kind = node.op.NAME, type(node.op)
        used[name] = used.get(name, 0) + 1
        meaning[name] = meaning_of(kind), f"{kind.__module__}.{kind.__qualname__}.reference"
    return tuple(Requirement(name, *meaning[name], count) for name, count in sorted(used.items()))


def _tools(manifest: Manifest, covered: Coverage) -> tuple[Tool, ...]:
    found = [Tool("intaglio", manifest.intaglio), *(Tool(name, version) for name, version in sorted(manifest.tools.items()))]
    made = manifest.tools.get("compiler", "").split(" ")[0]
    path = shutil.which(made) if made else None
    if path is not None:
        found.append(Tool(f"compiler, {Path(path).name} of this machine", "", _digest(Path(path))))
    found.append(Tool("dossier written with python", platform.python_version()))
    if covered.compiler:
        gcc = shutil.which("gcc")
        found.append(Tool("coverage", covered.compiler, _digest(Path(gcc)) if gcc else ""))
    return tuple(found)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.resolve().read_bytes()).hexdigest()
    except OSError:
        return ""


__all__ = ["Dossier", "KernelFacts", "Program", "Requirement", "Tool", "Wanted", "gather"]
