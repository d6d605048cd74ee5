"""An exported program as plain records: what `models/model.json` says, checked, with its weights as arrays.

A reader of our own, so that no torch is needed, files of other torch versions are read alike, and nothing can run."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, printable, quoted
from intaglio.frontends.emitting import MAX_ELEMENTS, MAX_FOLDED_BYTES
from intaglio.frontends.torch.archive import AGAIN, Archive, open_archive
from intaglio.ir.graph import Array
from intaglio.ir.types import MAX_RANK, DType

DTYPES = {
    1: DType.U8, 2: DType.I8, 3: DType.I16, 4: DType.I32, 5: DType.I64, 6: DType.F16, 7: DType.F32, 8: DType.F64,
    12: DType.BOOL, 13: DType.BF16, 28: DType.U16, 34: DType.U32, 35: DType.U64,
}  # fmt: skip
STRIDED = 7
MOST_NODES = 200_000


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor or a number that another node makes, by name."""

    name: str


COMPLEX = {9: DType.F16, 10: DType.F32, 11: DType.F64}  # element types of pairs, and of their parts


@dataclass(frozen=True, slots=True)
class Kind:
    """An element type, by torch's number for it."""

    code: int

    @property
    def dtype(self) -> DType | None:
        return DTYPES.get(self.code)


@dataclass(frozen=True, slots=True)
class Aside:
    """An argument that says where or how something is stored, which changes no result: device, layout, memory format."""

    about: str
    code: int = 0  # of a memory format


Argument = Any  # Ref, Kind, Aside, GraphRecord, number, text, None, or a list of these


@dataclass(frozen=True, slots=True)
class Size:
    """A dimension that is open in the file."""

    symbol: str  # of a plain symbol; empty for an expression of some
    hint: int | None  # what it was in the example
    formula: str = ""  # of an expression


@dataclass(frozen=True, slots=True)
class Meta:
    dtype: DType | None
    sizes: tuple[int | Size, ...]
    contiguous: bool = True  # elements lie in memory in row-major order


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node. `outputs` are names: None for a result that is none, a list for a list of tensors."""

    target: str
    arguments: dict[str, Argument]
    outputs: tuple[str | tuple[str, ...] | None, ...]
    name: str
    module: str  # path of the module it comes from
    leaf: bool  # the module is one of torch's own
    positional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphRecord:
    inputs: tuple[str, ...]
    outputs: tuple[Argument, ...]
    calls: tuple[NodeRecord, ...]
    metas: dict[str, Meta]
    symbols: dict[str, str] = field(default_factory=dict)  # of whole numbers that nodes compute: the symbol that stands for one


@dataclass(slots=True)
class Program:
    file: str
    graph: GraphRecord
    inputs: list[str]  # of the user, in order
    fixed: dict[str, Argument]  # inputs that are numbers or None
    weights: dict[str, tuple[str, str]]  # name in the graph: (kind, name in the module); kind parameter, buffer, constant
    outputs: list[tuple[str, Argument]]  # (name, what)
    mutations: list[tuple[str, str]]  # (buffer as named in the graph, its next value)
    torch_version: str
    ranges: dict[str, tuple[int | None, int | None]]
    _archive: Archive
    _payloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    _loaded: dict[tuple[Any, ...], Array] = field(default_factory=dict)

    def tensor(self, name: str) -> tuple[Array, DType]:
        """The array of a parameter, buffer or constant; two names of one tensor give one array."""
        kind, path = self.weights[name]
        return _payload(self, kind, path)


def read_program(path: Path) -> Program:
    archive = open_archive(path)
    names = sorted(n for n in archive.entries if n.startswith("models/") and n.endswith(".json"))
    if len(names) > 1 and "models/model.json" not in names:
        raise archive.fault("unsupported-format", f"the archive holds {len(names)} programs", "save one program per file")
    name = "models/model.json" if "models/model.json" in names else names[0]
    order = archive.entries.get("byteorder")
    if order is not None and archive.content("byteorder", 64).strip() != b"little":
        raise archive.fault("unsupported-format", "the weights are stored in big-endian order", "export it on another machine")
    data = archive.json(name)
    stem = name.removeprefix("models/").removesuffix(".json")
    try:
        program = _program(archive, data)
        for kind, folder in (("weights", "weights"), ("constants", "constants")):
            config = f"data/{folder}/{stem}_{kind}_config.json"
            if config in archive.entries:
                program._payloads[kind] = dict(_mapping(_mapping(archive.json(config))["config"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
        version = data.get("schema_version") if isinstance(data, dict) else None
        told = f" (schema {quoted(str(version), 60)})" if version else ""
        reason = f"the program in {quoted(name)} differs from what torch writes{told}: {quoted(str(error), 120)}"
        raise archive.fault("bad-archive", reason) from None
    for kind in ("weights", "constants"):
        if kind not in program._payloads and f"data/{kind}/{stem}.pt" in archive.entries:
            reason = f"the {kind} are pickled in {quoted(f'data/{kind}/{stem}.pt')}; pickles are never opened"
            raise archive.fault("pickled-weights", reason, f"with torch 2.9 or newer, {AGAIN}")
    return program


def _program(archive: Archive, data: Any) -> Program:
    module = _mapping(data)["graph_module"]
    graph = _graph(_mapping(_mapping(module)["graph"]), 0)
    signature = _mapping(module["signature"])
    program = Program(
        archive.file, graph, [], {}, {}, [], [], str(data.get("torch_version", "")), _ranges(data.get("range_constraints")), archive
    )
    placed: dict[str, str] = {}
    for spec in _sequence(signature["input_specs"]):
        kind, body = _union(spec)
        match kind:
            case "user_input":
                argument = _argument(body["arg"], 0)
                if isinstance(argument, Ref):
                    program.inputs.append(argument.name)
            case "parameter":
                program.weights[_name(body["arg"])] = ("parameter", _text(body["parameter_name"]))
            case "buffer":
                name = _name(body["arg"])
                program.weights[name] = ("buffer" if body.get("persistent", True) else "passing", _text(body["buffer_name"]))
                placed[_text(body["buffer_name"])] = name
            case "tensor_constant":
                program.weights[_name(body["arg"])] = ("constant", _text(body["tensor_constant_name"]))
            case "constant_input":
                program.fixed[_text(body["name"])] = _argument(body["value"], 0)
            case "token":
                program.fixed[_name(body["arg"])] = None
            case _:
                raise archive.fault("unsupported-operator", f"the program holds an object of a class ({quoted(kind)})",
                                    "objects of custom classes are pickled; register their tensors as buffers")  # fmt: skip
    keys = _output_keys(module)
    for spec in _sequence(signature["output_specs"]):
        kind, body = _union(spec)
        match kind:
            case "user_output":
                argument, position = _argument(body["arg"], 0), len(program.outputs)
                name = argument.name if isinstance(argument, Ref) else f"out{position}"
                program.outputs.append((keys[position] if position < len(keys) else name, argument))
            case "buffer_mutation":
                program.mutations.append((placed[_text(body["buffer_name"])], _name(body["arg"])))
            case "user_input_mutation":
                shown = quoted(_text(body["user_input_name"]))
                raise archive.fault("unsupported-operator", f"the model changes its input {shown}",
                                    "return the new value, or `clone()` the input before changing it")  # fmt: skip
            case "token":
                pass
            case _:
                raise archive.fault("unsupported-operator", f"the program is for training ({quoted(kind)})",
                                    "export it with `model.eval()`, without a loss")  # fmt: skip
    return program


def _output_keys(module: dict[str, Any]) -> list[str]:
    """The keys of a model that returns a dictionary of tensors; none for others."""
    calls = module.get("module_call_graph") or [{}]
    signature = calls[0].get("signature") if isinstance(calls[0], dict) else None
    try:
        _, spec = json.loads(signature["out_spec"]) if signature else (0, {})
        if spec.get("type") == "builtins.dict" and not any(child["children_spec"] for child in spec["children_spec"]):
            keys = json.loads(spec["context"])
            return keys if isinstance(keys, list) and all(isinstance(key, str) and key for key in keys) else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass  # names are a courtesy: the nodes have their own
    return []


def _graph(data: dict[str, Any], depth: int) -> GraphRecord:
    if depth > 16:
        raise ValueError("graphs are nested too deeply")
    nodes = _sequence(data["nodes"])
    if len(nodes) > MOST_NODES:
        raise ValueError(f"there are {len(nodes)} nodes")
    metas = {_text(name): _meta(_mapping(meta)) for name, meta in _mapping(data["tensor_values"]).items()}
    inputs = [_argument(a, depth) for a in _sequence(data["inputs"])]
    outputs = tuple(_argument(a, depth) for a in _sequence(data["outputs"]))
    calls = tuple(_call(_mapping(node), index, depth) for index, node in enumerate(nodes))
    numbers = _mapping(data.get("sym_int_values") or {})
    symbols = {_text(name): found.symbol for name, size in numbers.items() if isinstance(found := _number(size), Size)}
    return GraphRecord(tuple(a.name for a in inputs if isinstance(a, Ref)), outputs, calls, metas, symbols)


def _call(node: dict[str, Any], index: int, depth: int) -> NodeRecord:
    arguments: dict[str, Argument] = {}
    positional = []
    for given in _sequence(node["inputs"]):
        name = _text(given["name"]) or f"_{len(arguments)}"
        if name in arguments:
            raise ValueError(f"the argument {name} is given twice")
        arguments[name] = _argument(given["arg"], depth)
        if given.get("kind", 1) != 2:
            positional.append(name)
    outputs = tuple(_result(o) for o in _sequence(node["outputs"]))
    metadata = node.get("metadata") or {}
    module, leaf = _module(str(_mapping(metadata).get("nn_module_stack", "")))
    told = node.get("name")
    first = next((o if isinstance(o, str) else o[0] for o in outputs if o), f"node_{index}")
    name = told if isinstance(told, str) and told else first
    return NodeRecord(_text(node["target"]), arguments, outputs, name, module, leaf, tuple(positional))


def _module(stack: str) -> tuple[str, bool]:
    """`layer1.0.conv1` out of `L__self__,,my.Net;L__self___layer1,layer1,...`, and whether that is a module of torch's own."""
    last = stack.rsplit(";", 1)[-1].split(",", 2)
    if len(last) < 3 or last[1].startswith("_empty_nn_module_stack"):
        return "", False
    path = re.sub(r"^L\['self'\]\.?|^L__self__\.?", "", last[1])
    return printable(path.split("@")[0], 200), last[2].startswith("torch.nn.modules.")


def _result(data: Any) -> str | tuple[str, ...] | None:
    argument = _argument(data, 0)
    if argument is None:
        return None
    if isinstance(argument, Ref):
        return argument.name
    if isinstance(argument, list):
        return tuple(a.name if isinstance(a, Ref) else "" for a in argument)
    return None


def _argument(data: Any, depth: int) -> Argument:
    kind, body = _union(data)
    match kind:
        case "as_none":
            return None
        case "as_tensor":
            return Ref(_name(body))
        case "as_tensors":
            return [Ref(_name(t)) for t in _sequence(body)]
        case "as_optional_tensor":
            return _argument(body, depth)
        case "as_optional_tensors" | "as_sym_ints" | "as_sym_floats" | "as_sym_bools":
            return [_symbolic(t) for t in _sequence(body)]
        case "as_nested_tensors":
            return [[Ref(_name(t)) for t in _sequence(row)] for row in _sequence(body)]
        case "as_sym_int" | "as_sym_float" | "as_sym_bool":
            return _symbolic(body)
        case "as_int" | "as_bool" | "as_string" | "as_ints" | "as_bools" | "as_strings":
            return _plain(body, kind)
        case "as_float":
            return _real(body)
        case "as_floats":
            return [_real(v) for v in _sequence(body)]
        case "as_int_lists" | "as_float_lists":
            return [[_real(v) if kind == "as_float_lists" else _plain(v, "as_int") for v in _sequence(row)] for row in body]
        case "as_scalar_type":
            return Kind(_plain(body, "as_int"))
        case "as_memory_format":
            return Aside(kind, _plain(body, "as_int"))
        case "as_device" | "as_layout":
            return Aside(kind)
        case "as_graph":
            return _graph(_mapping(body["graph"]), depth + 1)
        case "as_operator":
            return _text(body)
        case _:
            return Aside(kind)


def _symbolic(data: Any) -> Argument:
    kind, body = _union(data)
    match kind:
        case "as_name":
            return Ref(_text(body))
        case "as_tensor":
            return Ref(_name(body))
        case "as_none":
            return None
        case _:
            return _real(body) if kind == "as_float" else _plain(body, kind)


def _plain(body: Any, kind: str) -> Any:
    """A number or text, or a list of them, of the very type that the union says."""
    wanted: type = {"int": int, "bool": bool, "string": str}[kind.removeprefix("as_").removesuffix("s")]
    for value in _sequence(body) if kind.endswith("s") else [body]:
        if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
            raise TypeError(f"{kind} holds {printable(repr(value), 40)}")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError("a number is too large")
    return body


def _real(body: Any) -> float:
    words = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    if isinstance(body, str) and body in words:
        return words[body]
    if isinstance(body, bool) or not isinstance(body, int | float):
        raise TypeError(f"as_float holds {printable(repr(body), 40)}")
    return float(body)


def _meta(data: dict[str, Any]) -> Meta:
    sizes = tuple(_size(s) for s in _sequence(data["sizes"]))
    strides = [_size(s) for s in _sequence(data.get("strides", []))]
    dtype = DTYPES.get(data["dtype"]) if isinstance(data["dtype"], int) else None
    return Meta(dtype, sizes, _in_order(sizes, strides))


def _in_order(sizes: tuple[int | Size, ...], strides: list[int | Size]) -> bool:
    step = 1
    for size, stride in reversed(list(zip(sizes, strides, strict=False))):
        size, stride = (n if isinstance(n, int) else n.hint or 1 for n in (size, stride))
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _size(data: Any) -> int | Size:
    kind, body = _union(data)
    if kind == "as_int":
        size = _plain(body, "as_int")
        if not 0 <= size <= 2**62:
            raise ValueError(f"a dimension of {size}")
        return int(size)
    text = _text(body["expr_str"])
    symbol = re.fullmatch(r"Symbol\('(\w+)'.*\)|(\w+)", text)
    hint = body.get("hint")
    value = None if hint is None else hint.get("as_int")
    plain = symbol is not None and text.count("Symbol") <= 1
    known = value if isinstance(value, int) and value >= 0 else None
    return Size((symbol[1] or symbol[2]) if plain and symbol else "", known, "" if plain else text)


def _number(data: Any) -> int | Size:
    """A number that a node computes, which may be negative."""
    kind, body = _union(data)
    return int(_plain(body, "as_int")) if kind == "as_int" else _size(data)


def _ranges(data: Any) -> dict[str, tuple[int | None, int | None]]:
    """Bounds of symbols, where there are any: numbers beyond 2**62 stand for infinity."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for name, span in _mapping(data or {}).items():
        low, high = (_mapping(span).get(key) for key in ("min_val", "max_val"))
        known = [n if isinstance(n, int) and not isinstance(n, bool) and abs(n) < 2**62 else None for n in (low, high)]
        found[name] = (known[0], known[1])
    return found


# Weights ------------------------------------------------------------------------------------------------------------


def _payload(program: Program, kind: str, path: str) -> tuple[Array, DType]:
    archive = program._archive
    what = f"the {'constant' if kind in ('constant', 'passing') else kind} {quoted(path)}"
    for folder in ("weights", "constants") if kind in ("parameter", "buffer") else ("constants", "weights"):
        entry = program._payloads.get(folder, {}).get(path)
        if entry is not None:
            break
    else:
        raise archive.fault("missing-weights", f"{what} is not in the archive")
    try:
        pickled, meta, file = entry["use_pickle"], entry["tensor_meta"], _text(entry["path_name"])
        if pickled is not False or meta is None:
            raise archive.fault("pickled-weights", f"{what} is pickled; pickles are never opened",
                                "tensors of custom classes are pickled: export the model with plain tensors")  # fmt: skip
        code = meta["dtype"]
        sizes = [_plain(_union(s)[1], "as_int") for s in _sequence(meta["sizes"])]
        strides = [_plain(_union(s)[1], "as_int") for s in _sequence(meta["strides"])]
        offset = _plain(_union(meta["storage_offset"])[1], "as_int")
        layout = meta.get("layout", STRIDED)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise archive.fault("bad-archive", f"{what} is described wrongly: {quoted(str(error), 120)}") from None
    dtype = DTYPES.get(code) if isinstance(code, int) else None
    if dtype is None or layout != STRIDED:
        raise archive.fault("unsupported-type", f"{what} has an element type or a layout that is not supported")
    key = (folder, file, dtype, tuple(sizes), tuple(strides), offset)
    if key not in program._loaded:
        data = archive.storage(f"data/{folder}/{file}") if math.prod(sizes) else b""
        program._loaded[key] = _strided(archive, what, data, dtype, sizes, strides, offset)
    return program._loaded[key], dtype


def _strided(archive: Archive, what: str, data: bytes, dtype: DType, sizes: list[int], strides: list[int], offset: int) -> Array:
    """A copy in row-major order. Every element lies within the storage, or this is an error."""
    elements = math.prod(sizes)
    if len(sizes) != len(strides) or len(sizes) > MAX_RANK or min([0, offset, *sizes, *strides]) < 0:
        raise archive.fault("bad-tensor", f"{what} has the sizes {sizes[:9]}, strides {strides[:9]} and offset {offset}")
    if elements == 0:
        return np.zeros(sizes, dtype.numpy)
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    stored = len(data) // dtype.bytes
    if last >= stored:
        raise archive.fault("bad-tensor", f"{what} extends to element {last}; the archive has {stored}")
    if elements > MAX_ELEMENTS or elements * dtype.bytes > max(MAX_FOLDED_BYTES, len(data)):
        raise archive.fault("too-large", f"{what} of {sizes} repeats its storage too often")
    flat = np.frombuffer(data, dtype.numpy, stored)
    if dtype is DType.BOOL:
        flat = np.frombuffer(data, np.uint8, stored) != 0
    steps = [s * flat.itemsize for s in strides]
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(flat[offset:], sizes, steps)).reshape(sizes)


# JSON ---------------------------------------------------------------------------------------------------------------


def _union(data: Any) -> tuple[str, Any]:
    items = _mapping(data)
    if len(items) != 1:
        raise ValueError(f"a union of {len(items)} values")
    return next(iter(items.items()))


def _mapping(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"{printable(repr(data), 40)} where an object is expected")
    return data


def _sequence(data: Any) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError(f"{printable(repr(data), 40)} where a list is expected")
    return data


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError(f"{printable(repr(data), 40)} where text is expected")
    return data


def _name(data: Any) -> str:
    return _text(_mapping(data)["name"])


def bad_program(file: str, reason: str) -> ModelError:
    return ModelError("bad-graph", reason, where=file, hint=AGAIN)
