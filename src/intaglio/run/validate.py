"""Does the built package compute what the reference runtime computes? And if not, from which layer on?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intaglio.errors import AnswerIsNo, ModelError, ToolError, UserError, quoted
from intaglio.ir.files import read_ir
from intaglio.ir.graph import Array
from intaglio.ir.operator import BadOperator
from intaglio.ir.types import DType
from intaglio.package.at_sizes import sizes_of
from intaglio.package.manifest import LayerInfo, Manifest, TensorInfo
from intaglio.package.stream_info import StreamInfo
from intaglio.package.tolerance import DEVICE_TOLERANCE
from intaglio.package.vectors import KINDS, random_inputs
from intaglio.run.build import Progress
from intaglio.run.checks import SizeCheck, VariantCheck
from intaglio.run.compare import Comparison, compare, is_at
from intaglio.run.dequantised import one_step, quantised_steps
from intaglio.run.host import ordered_inputs
from intaglio.run.limited import VALIDATE_SECONDS, limit, reference_within
from intaglio.run.loaded import LoadedPackage
from intaglio.run.map_entries import is_of_map
from intaglio.run.noise import FACTOR, beside_integers, beside_noise, has_integers, may_be_noise
from intaglio.run.probe import watch_layers
from intaglio.run.reference import LONG_RUN, IrReference, Reference, cannot_compare, model_reference, run_steps
from intaglio.run.streaming import Windowed
from intaglio.run.timing import stored_inputs
from intaglio.run.tolerances import THRESHOLDS, Rule
from intaglio.run.variants import lacking_here

RANDOM_SAMPLES = 3
SHAPE_MOST = 8  # axes


@dataclass(frozen=True, slots=True)
class ValidateOptions:
    inputs: Mapping[str, Array] | None = None
    steps: bool = False
    labels: Array | None = None
    layers: bool = False
    tolerance: float | None = None
    threshold: float | None = None  # a cosine, which alone decides then; None: by backend, and the tolerance is enough too
    seed: int = 1
    cc: str | None = None
    progress: Progress | None = None
    note: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class LayerCheck:
    layer: str
    op: str
    source: str
    tensor: str
    comparison: Comparison
    whole: bool = False  # integers: differences are in steps of them


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Shares of samples whose largest output is at the label."""

    package: float
    reference: float


@dataclass(frozen=True, slots=True)
class Validation:
    ok: bool
    reference: str
    outputs: tuple[Comparison, ...]
    first_bad_layer: str | None
    layers: tuple[LayerCheck, ...]
    accuracy: Accuracy | None
    samples: int
    layer_count: int = 0
    random_inputs: bool = False
    against_float: tuple[Comparison, ...] = ()  # of a package that was quantised here: how far it is from the float model
    threshold: float | None = None  # of the cosine, where the tolerance alone does not decide
    backend: str = ""  # cpu, gpu or quantised, where the threshold is the backend's
    rule: str = ""  # what an output has to be, in words
    no_layers: str = ""  # why there is no layer to compare, where that was asked for
    variants: tuple[VariantCheck, ...] = ()  # of a package that has some, in the order of its manifest
    sizes: tuple[SizeCheck, ...] = ()  # of the caller, that it was compared at


def validate(package: LoadedPackage, options: ValidateOptions) -> Validation:
    """Every variant that this machine can run, where there are some and none was asked for. The result is that of the best; `ok` is
    that of all. Where the caller gives sizes: the least, the largest and some between; the result is the worst."""
    compared = _at_several_sizes if package.manifest.given else _validate
    result = compared(package, options)
    if package.variant is None or package.variant_asked:
        return result
    rows = []
    for info in package.manifest.variants:
        if missing := lacking_here(info):
            rows.append(VariantCheck(info.target, None, lacking=missing))
            continue
        one = result
        if info.target != package.variant.target:
            other = LoadedPackage(package.folder, variant=info.target)
            one = compared(other, options)
        rows.append(VariantCheck(info.target, one.ok, max((o.max_rel for o in one.outputs), default=0.0)))
    return replace(result, ok=all(row.ok is not False for row in rows), variants=tuple(rows))


RANDOM_SIZES = 4
GIVE_INPUTS = "give yours with `--inputs`"


def _at_several_sizes(package: LoadedPackage, options: ValidateOptions) -> Validation:
    ranges = package.manifest.given
    if options.inputs is not None:
        arrays = ordered_inputs(package.manifest, options.inputs, steps=options.steps)
        chosen = [sizes_of(package.manifest, [a.shape[1:] if options.steps else a.shape for a in arrays])]
    else:
        random = np.random.default_rng(options.seed)
        ends = [{size.name: end for size in ranges for end in (getattr(size, which),)} for which in ("low", "high")]
        between = [{s.name: int(random.choice(s.span.numbers)) for s in ranges} for _ in range(RANDOM_SIZES)]
        chosen = [dict(pairs) for pairs in dict.fromkeys(tuple(sizes.items()) for sizes in (*ends, *between))]
    rows: list[SizeCheck] = []
    results: list[Validation] = []
    refused: ModelError | None = None
    for sizes in chosen:
        try:
            one = _validate(package.at(sizes), options)
        except ModelError as error:
            if error.slug != "no-reference":
                raise
            refused = error
            rows.append(SizeCheck(sizes, None, 0.0, error.message))
            continue
        results.append(one)
        rows.append(SizeCheck(sizes, one.ok, max((o.max_rel for o in one.outputs), default=0.0)))
    if refused is not None and not results:
        raise refused
    worst = max(results, key=lambda one: (not one.ok, max((o.max_rel for o in one.outputs), default=0.0)))
    samples = sum(one.samples for one in results)
    return replace(worst, ok=all(row.ok is not False for row in rows), samples=samples, sizes=tuple(rows))


def _validate(package: LoadedPackage, options: ValidateOptions) -> Validation:
    """A package that was quantised here is compared with its own integers; the float model is reported beside."""
    manifest = package.manifest
    tensors = tuple(o.name for layer in manifest.layers for o in layer.outputs if o.name) if options.layers else ()
    reference = reference_of(package, tensors)
    steps, expected = _samples(package, reference, options)
    package.reset()
    results = []
    for step in steps:
        if not manifest.states:
            package.reset()
        results.append(package.run_stored(step))
        if options.progress is not None:
            options.progress("running", len(results), len(steps))
    if manifest.stream is not None and isinstance(reference, Windowed):
        steps, expected, results = _of_whole_windows(reference, manifest.stream, steps, expected, results)
    backend, rule = rule_of(package, options)
    one_off = _of_torch(manifest) and reference.of_model and options.tolerance is None
    steps_allowed = quantised_steps(read_ir(ir_path(package))) if one_off else {}
    words = rule.told(manifest.outputs, manifest.opencl.precision if manifest.opencl is not None else "", backend)
    if steps_allowed and options.threshold is None:
        words += "; dequantised integers within one step"

    def compared(info: TensorInfo, wanted: Sequence[Mapping[str, Array]]) -> Comparison:
        got, want = _side_by_side(info, [r[info.name] for r in results], [np.asarray(e[info.name]) for e in wanted])
        one = rule if info.name not in steps_allowed else replace(rule, tolerance=one_step(want, steps_allowed[info.name]))
        return one.compare(info, got, _stored(want, DType(info.dtype)))

    rows = [compared(info, expected) for info in manifest.outputs]
    by_default = options.tolerance is None and options.threshold is None
    if by_default and any(map(may_be_noise, manifest.outputs, rows)):
        rows, words = beside_noise(reference, manifest, steps, expected, rows), f"{words}, or {FACTOR} x the model's own noise"
    if by_default and not all(row.ok for row in rows) and has_integers(read_ir(ir_path(package))):
        rows = beside_integers(reference, manifest, steps, expected, rows, compared)
    checks = _check_layers(package, steps[:1], expected[:1], options, rule) if options.layers else ()
    bad = next((check.layer for check in checks if not check.comparison.ok), None)
    accuracy: Accuracy | None = None
    float_rows: tuple[Comparison, ...] = ()
    baseline = expected
    if was_quantized(manifest) and (source := float_reference(package)) is not None:
        baseline = run_steps(source, manifest, [_as_floats(manifest, step) for step in steps])
        keep = source.comparable(len(steps)) if isinstance(source, Windowed) else range(len(steps))
        if keep:
            float_rows = _against_floats(manifest, [results[n] for n in keep], [baseline[n] for n in keep])
    if options.labels is not None:
        accuracy = _accuracy(manifest, results, baseline, options.labels)
    return Validation(
        ok=all(row.ok for row in rows),
        reference=reference.about,
        outputs=tuple(rows),
        first_bad_layer=bad,
        layers=checks,
        accuracy=accuracy,
        samples=len(steps),
        layer_count=len(manifest.layers),
        random_inputs=options.inputs is None,
        against_float=float_rows,
        threshold=rule.threshold,
        backend=backend,
        rule=words,
        no_layers=_why_no_layers(package, reference) if options.layers and not checks else "",
    )


def _side_by_side(info: TensorInfo, got: list[Array], want: list[Array]) -> tuple[Array, Array]:
    """All samples of an output. Where their number depends on data, samples of different numbers differ in every element."""
    if not info.dims:
        return np.stack(got), np.stack([array.reshape(info.shape) for array in want])
    pairs = [(a, b) if a.shape == b.shape else (np.ones(1, a.dtype), np.zeros(1, a.dtype)) for a, b in zip(got, want, strict=True)]
    return np.concatenate([a.reshape(-1) for a, _ in pairs]), np.concatenate([b.reshape(-1).astype(a.dtype) for a, b in pairs])


def _why_no_layers(package: LoadedPackage, reference: Reference) -> str:
    if was_quantized(package.manifest):
        return "it was quantised by Intaglio, so the model in it has no tensors with the values of its layers"
    if package.manifest.model.source is None or package.manifest.model.source.endswith(".ig"):
        return "it was compiled from an IR file, so it contains no model to compare with"
    if not reference.of_model:
        return f"the reference ({reference.about}) has only outputs"
    return "no layer writes a tensor of the model: all are fused or rearranged"


def rule_of(package: LoadedPackage, options: ValidateOptions) -> tuple[str, Rule]:
    """The processor computes as the reference does. OpenCL devices round in their own ways: there a cosine is enough. What the user
    gives, tolerance or threshold or both, is all that counts."""
    info, given = package.manifest.opencl, options.tolerance
    allowance = 0.0 if info is None else DEVICE_TOLERANCE[info.precision]
    if options.threshold is not None:
        return "", Rule(given, options.threshold, allowance, "cosine" if given is None else "both")
    if info is None or given is not None:
        return "", Rule(given)
    integers = any(o.quant is not None for layer in package.manifest.layers for o in layer.outputs)
    kind = package.opencl_library.device.kind
    backend = "quantised" if was_quantized(package.manifest) or integers else "cpu" if kind == "cpu" else "gpu"
    return backend, Rule(None, THRESHOLDS[backend], allowance)


def _of_torch(manifest: Manifest) -> bool:
    return (manifest.model.source or "").endswith(".pt2")


Step = dict[str, Array]


def _of_whole_windows(
    reference: Windowed, info: StreamInfo, steps: list[Step], expected: list[Step], results: list[Step]
) -> tuple[list[Step], list[Step], list[Step]]:
    """The steps for which the model says what the result is."""
    keep = reference.comparable(len(steps))
    if not keep:
        need = -(-info.window // info.hop)
        what = f"there are {len(steps)} steps; the first result comes after {need}"
        raise UserError("wrong-input", what, hint=f"give `--steps` with at least {need} of them")
    return [steps[n] for n in keep], [expected[n] for n in keep], [results[n] for n in keep]


def was_quantized(manifest: Manifest) -> bool:
    return bool(manifest.options.get("quantize"))


def float_reference(package: LoadedPackage) -> Reference | None:
    """The model that a quantised package was made from, where its runtime is here."""
    source = package.manifest.model.source
    if source is None or not (package.folder / source).is_file():
        return None
    try:
        if (info := package.manifest.stream) is not None:
            return _on_windows(package, source, info)
        return reference_within(package.folder / source, package.manifest)
    except (ModelError, ToolError):
        return None


def _as_floats(manifest: Manifest, step: dict[str, Array]) -> dict[str, Array]:
    """Inputs as the float model takes them, where the package takes integers."""
    made = dict(step)
    for info in manifest.inputs:
        if info.quant is not None and DType(info.dtype).is_int:
            steps = step[info.name].astype(np.float32) - info.quant.zero_point[0]
            made[info.name] = (steps * info.quant.scale[0]).astype(np.float32)
    return made


def _against_floats(
    manifest: Manifest, results: list[dict[str, Array]], baseline: list[dict[str, Array]]
) -> tuple[Comparison, ...]:
    """Where data says how large a result is, the float model may find another number: such samples are left out."""
    rows = []
    for info in manifest.outputs:
        pairs = [(np.asarray(r[info.name]), np.asarray(e[info.name])) for r, e in zip(results, baseline, strict=True)]
        pairs = [(a, b) for a, b in pairs if a.size == b.size]
        if not pairs:
            continue
        got = np.concatenate([a.reshape(-1) for a, _ in pairs]).astype(np.float32)
        if info.quant is not None and DType(info.dtype).is_int:
            got = ((got - info.quant.zero_point[0]) * info.quant.scale[0]).astype(np.float32)
        want = np.concatenate([b.reshape(-1) for _, b in pairs]).astype(np.float32)
        rows.append(compare(info.name, got, want, DType.F32, None))
    return tuple(rows)


def reference_of(package: LoadedPackage, extra: tuple[str, ...] = ()) -> Reference:
    """The model inside the package, run by ONNX Runtime. The package's own IR where there is no model in it, or one
    that ONNX Runtime does not read (an opset that is newer, bf16): the result says which it was."""
    source = None if was_quantized(package.manifest) else package.manifest.model.source
    if (info := package.manifest.stream) is not None:
        return _stream_reference(package, source, info)
    if source is not None and (package.folder / source).is_file() and not cannot_compare(package.manifest):
        try:
            return reference_within(package.folder / source, package.manifest, extra)
        except (ModelError, ToolError):
            return _own_reference(package)
    return _own_reference(package)


def _own_reference(package: LoadedPackage) -> IrReference:
    graph = read_ir(ir_path(package))
    return IrReference(graph.pinned(package.sizes) if package.sizes else graph, limit(VALIDATE_SECONDS))


def _stream_reference(package: LoadedPackage, source: str | None, info: StreamInfo) -> Reference:
    """The model on windows; the steps by their numpy references where the model is not there, or has states that are inputs."""
    if source is not None and (package.folder / source).is_file() and not package.manifest.options.get("states"):
        try:
            return _on_windows(package, source, info)
        except (ModelError, ToolError):
            pass
    return IrReference(read_ir(ir_path(package)))


def _on_windows(package: LoadedPackage, source: str, info: StreamInfo) -> Windowed:
    whole = replace(package.manifest, inputs=(_windowed(package.manifest.inputs[0], info),))
    return Windowed(model_reference(package.folder / source, whole), package.manifest, info)


def _windowed(tensor: TensorInfo, info: StreamInfo) -> TensorInfo:
    return replace(tensor, shape=(*tensor.shape[: info.axis], info.window, *tensor.shape[info.axis + 1 :]))


def ir_path(package: LoadedPackage) -> Path:
    name = package.name if package.variant is None else package.variant.prefix
    path = package.folder / "ir" / f"{name}.ig"
    if not path.is_file() and package.manifest.options.get("no_ir"):
        hint = "compile it without `--no-ir`, or without `--no-source`"
        raise UserError("no-reference", f"`{package.name}` has neither its model nor its IR to compare with", hint=hint)
    return path


def _samples(
    package: LoadedPackage, reference: Reference, options: ValidateOptions
) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Inputs, and what the reference makes of them. Random ones are drawn until the reference accepts them."""
    manifest = package.manifest
    names = [info.name for info in manifest.inputs]
    if options.inputs is not None:
        arrays = ordered_inputs(manifest, options.inputs, steps=options.steps)
        rows = zip(*arrays, strict=True) if options.steps else [tuple(arrays)]
        steps = [dict(zip(names, (np.asarray(a) for a in row), strict=True)) for row in rows]
        if not steps:
            raise UserError("wrong-input", "the inputs have no steps")
        return steps, run_steps(reference, manifest, steps)
    types = [info.type for info in manifest.inputs]
    # A single whole number (a sampling rate, a length) is rarely good at random: take what the test vectors have. A short list of
    # them may be a shape: there, too, where nothing else is accepted.
    stored = [(i, array) for i, array in zip(manifest.inputs, stored_inputs(package), strict=True) if i.type.dtype.is_int]
    kept = {info.name: array for info, array in stored if info.type.elements == 1}
    lists = {info.name: array for info, array in stored if info.type.rank == 1 and 1 < info.type.elements <= SHAPE_MOST}
    words = {info.name: array for info, array in stored if info.text and is_of_map(info, manifest)}  # random ones are unknown
    tries = [(kind, kept) for kind in KINDS] + [(kind, kept | lists) for kind in KINDS if lists]
    for number, (kind, kept) in enumerate(tries, 1):
        count = RANDOM_SAMPLES + (manifest.stream.window // manifest.stream.hop if manifest.stream else 0)
        seeds = range(options.seed, options.seed + count)
        steps = [dict(zip(names, random_inputs(types, seed, kind), strict=True)) for seed in seeds]
        for step in steps:
            step.update(kept)
        steps[0].update(words)
        try:
            expected = run_steps(reference, manifest, steps)
            if manifest.found:  # more of them than there is room for is an error
                for step in steps:
                    package.run_stored(step)
        except (UserError, AnswerIsNo) as error:
            if number == len(tries) or error.slug == LONG_RUN:
                raise
            continue
        except BadOperator as error:  # of the numpy references: an index that is out of range
            if number == len(tries):
                raise ModelError("no-reference", f"the IR does not take random inputs: {error}", hint=GIVE_INPUTS) from None
            continue
        if number == len(tries) or all(_finite(e[info.name]) for e in expected for info in manifest.outputs):
            break
    if kind == KINDS[-1] and manifest.found and options.note is not None:
        options.note(f"of random inputs, only zeros stay within the bounds of {_found_of(manifest)}: {GIVE_INPUTS}")
    return steps, expected


def _found_of(manifest: Manifest) -> str:
    return ", ".join(f"{quoted(size.name)} ({size.span})" for size in manifest.sizes if size.found)


def _finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _stored(array: Array, dtype: DType) -> Array:
    """ONNX Runtime returns bf16 in its own type; here it is bits."""
    return array.view(np.uint16) if dtype is DType.BF16 and array.dtype.itemsize == 2 else array


def _together(data: bytes, layer: LayerInfo, info: TensorInfo) -> bytes:
    """The rows of a tensor without what lies between them."""
    place = next((p for p in layer.memory if p.value == info.field and p.stride_bytes), None)
    if place is None:
        return data
    return b"".join(data[at : at + place.row_bytes] for at in range(0, len(data), place.stride_bytes))


def _check_layers(
    package: LoadedPackage, steps: list[dict[str, Array]], expected: list[dict[str, Array]], options: ValidateOptions, rule: Rule
) -> tuple[LayerCheck, ...]:
    """The first step again, with the hook: every tensor that both sides have under one name."""
    manifest = package.manifest
    seen: dict[tuple[int, int], Array] = {}  # by layer and output: two may have one name in the model, in different layouts
    turn: dict[int, int] = {}

    def sink(layer: int, data: bytes) -> None:
        if not data:  # some rows of a stripe
            return
        shown = list(manifest.layers[layer].outputs)
        which = turn.get(layer, 0) % max(1, len(shown))  # of a loop, the last turn counts
        turn[layer] = which + 1
        if which < len(shown):
            data = _together(data, manifest.layers[layer], shown[which])
        if which < len(shown) and shown[which].name and len(data) == shown[which].bytes:
            info = shown[which]
            seen[layer, which] = np.frombuffer(data, info.type.dtype.numpy).reshape(info.shape)

    watch_layers(package, ordered_inputs(manifest, steps[0]), sink, options.cc)
    checks = []
    for layer in manifest.layers:
        for which, info in enumerate(layer.outputs):
            if (array := seen.get((layer.index, which))) is None or info.name not in expected[0]:
                continue
            want = np.asarray(expected[0][info.name])
            source = Path(manifest.model.source or "").suffix
            as_stored = source == ".tflite" or (source in (".keras", ".h5") and array.shape == want.shape)
            layout = "" if as_stored else info.layout  # these have NHWC in the model too
            got = _as_in_model(array, layout, want.shape)
            if got is None:
                continue
            row = rule.compare(info, got, _stored(want, DType(info.dtype)))
            if _of_torch(manifest) and DType(info.dtype).is_int and info.quant is not None and row.max_abs <= 1:
                row = replace(row, ok=True)
            checks.append(LayerCheck(layer.name, layer.op, layer.source, info.name, row, DType(info.dtype).is_int))
    return tuple(checks)


def _as_in_model(array: Array, layout: str, shape: tuple[int, ...]) -> Array | None:
    """Channels back to where the model has them. None when the tensor was changed beyond that."""
    if layout == "NHWC" and array.ndim == len(shape) and array.ndim > 2:
        moved = np.moveaxis(array, -1, 1)
        if moved.shape == shape:
            return moved
    if array.shape == shape or (array.size == int(np.prod(shape)) and _no_ones(array.shape) == _no_ones(shape)):
        return array.reshape(shape)
    return None


def _no_ones(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]


def _accuracy(manifest: Manifest, results: list[dict[str, Array]], expected: list[dict[str, Array]], labels: Array) -> Accuracy:
    labels = np.asarray(labels).reshape(-1)
    if len(labels) != len(results):
        what = f"there are {len(labels)} labels for {len(results)} samples"
        raise UserError("wrong-input", what, hint="give one label per sample, and inputs with `--steps`")
    name = manifest.outputs[0].name
    if manifest.outputs[0].type.elements < 2:
        raise UserError("wrong-input", f"output {quoted(name)} has one element, so it has no classes to compare with labels")

    def share(rows: list[dict[str, Array]]) -> float:
        return float(np.mean([is_at(int(label), row[name]) for row, label in zip(rows, labels, strict=True)]))

    return Accuracy(share(results), share(expected))
