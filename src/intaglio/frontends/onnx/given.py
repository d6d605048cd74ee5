"""Inputs and outputs of a model that are no tensors: sequences, optionals and maps, whose members are tensors of their own.

    input s: seq(tensor(float))     with `--length s=2`:    inputs s.0, s.1
    input m: map(string, float)     with `--length m=8`:    inputs m_keys: string[8], m_values: float[8]
    output y: seq(tensor(float))    of three tensors:       outputs y.0, y.1, y.2

How many members a sequence has, and a map at most, is known when it is compiled. An optional is there unless `--length` says 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.onnx.call import Absent, Entries, Item, Items, Texts, texts
from intaglio.frontends.onnx.pinning import Declared, declared
from intaglio.frontends.onnx.tensors import stored_as
from intaglio.frontends.onnx.walk import Walk
from intaglio.ir.graph import Value
from intaglio.ir.strings import USUAL_BYTES
from intaglio.ir.types import DType, Layout, Shape, TensorType
from intaglio.ops.strings import TextTrim

MOST_MEMBERS = 4096
MOST_BYTES = 1 << 16  # of a string


@dataclass(frozen=True, slots=True)
class Form:
    """What an input is made of: a tensor (`leaf`), a list of members, or nothing. Those of a map are its keys and its values."""

    leaf: Declared | None = None
    code: int = 0  # the element type of the tensor, as ONNX numbers it
    members: tuple[Form, ...] | None = None
    kind: int = 0  # the element type of members, where there are none
    map: bool = False

    def leaves(self) -> list[tuple[Declared, int]]:
        if self.leaf is not None:
            return [(self.leaf, self.code)]
        return [found for member in self.members or () for found in member.leaves()]

    def item(self, values: Mapping[str, Item]) -> Item:
        """The input as operators see it, of what its tensors are."""
        if self.leaf is not None:
            return values[self.leaf.name]
        if self.members is None:
            return Absent()
        if self.map:
            return Entries(*(member.item(values) for member in self.members))
        return Items([member.item(values) for member in self.members], stored_as(self.kind))


def forms_of(infos: list[Any], lengths: Mapping[str, int], file: str) -> list[Form]:
    """The inputs, with as many members as `lengths` says."""
    _check_lengths(infos, lengths, file)
    forms = [_form(info, info.name, info.type, lengths, file) for info in infos]
    named: set[str] = set()
    for name in (leaf.name for form in forms for leaf, _ in form.leaves()):
        if name in named:
            what = f"two inputs would be called {quoted(name)}: one of the model, and a part of a sequence or a map"
            raise ModelError("bad-graph", what, where=file, hint="rename one of them in the model")
        named.add(name)
    return forms


def _check_lengths(infos: list[Any], lengths: Mapping[str, int], file: str) -> None:
    several = {info.name for info in infos if info.type.WhichOneof("value") in ("sequence_type", "optional_type", "map_type")}
    for name, length in lengths.items():
        if name not in several:
            near = get_close_matches(name, several, 1)
            hint = f"did you mean {quoted(near[0])}?" if near else "`--length` is for inputs that are sequences, optionals or maps"
            what = f"the model has no sequence {quoted(name)} among its inputs"
            raise ModelError("unknown-input", what, where=file, hint=hint)
        if length > MOST_MEMBERS:
            what = f"`--length {name}={length}` is more than {MOST_MEMBERS} members"
            raise ModelError("too-large", what, where=file, hint="each member is an input of its own; give fewer")


def _form(info: Any, name: str, type_: Any, lengths: Mapping[str, int], file: str) -> Form:
    match type_.WhichOneof("value"):
        case "optional_type":
            inner = type_.optional_type.elem_type
            if lengths.get(info.name) == 0:
                return Form()
            if inner.WhichOneof("value") == "tensor_type" and lengths.get(info.name, 1) != 1:
                what = f"`--length {info.name}={lengths[info.name]}`: an optional tensor is there (1) or not (0)"
                raise ModelError("bad-option", what, where=file, hint=f"give `--length {info.name}=0` or omit it")
            return _form(info, name, inner, lengths, file)
        case "sequence_type":
            inner = type_.sequence_type.elem_type
            if info.name not in lengths:
                hint = f"give `--length {info.name}=N`; its members are the inputs {quoted(f'{info.name}.0')}, ..."
                what = f"the number of members of the sequence {quoted(info.name)} is not known at compile time"
                raise ModelError("dynamic-dimension", what, where=file, hint=hint)
            count = lengths[info.name]
            members = tuple(_form(info, f"{name}.{n}", inner, lengths, file) for n in range(count))
            return Form(members=members, kind=inner.tensor_type.elem_type)
        case "map_type" if name == info.name and type_.map_type.value_type.WhichOneof("value") == "tensor_type":
            return _map(info, name, type_.map_type, lengths, file)
        case "tensor_type" if info.type.WhichOneof("value") == "tensor_type":
            return Form(declared(info, file), type_.tensor_type.elem_type)
        case "tensor_type":
            renamed = _named(info, name)
            renamed.type.CopyFrom(type_)
            for dim in renamed.type.tensor_type.shape.dim:  # members may differ: each has symbols of its own
                if dim.dim_param:
                    dim.dim_param += name[len(info.name) :]
            return Form(declared(renamed, file), type_.tensor_type.elem_type)
        case _:
            return Form(declared(info, file))  # says what is wrong with it


def _named(info: Any, name: str) -> Any:
    new = type(info)()
    new.name = name
    return new


def _map(info: Any, name: str, map_: Any, lengths: Mapping[str, int], file: str) -> Form:
    count = lengths.get(name, 0)
    if count < 1:
        what = f"the largest number of entries of the map {quoted(name)} is not known at compile time"
        hint = f"give `--length {name}=N`; its entries are the inputs {quoted(f'{name}_keys')} and {quoted(f'{name}_values')}"
        raise ModelError("dynamic-dimension", what, where=file, hint=hint)
    members = []
    for part, code in (("keys", map_.key_type), ("values", map_.value_type.tensor_type.elem_type)):
        tensor = _named(info, f"{name}_{part}")
        tensor.type.tensor_type.elem_type = code
        tensor.type.tensor_type.shape.dim.add().dim_value = count
        members.append(Form(declared(tensor, file), code))
    return Form(members=tuple(members), map=True)


def flat(name: str, item: Item) -> list[tuple[str, Item]]:
    """An output as tensors by name; what is none stays as it is."""
    if isinstance(item, Items):
        return [found for n, member in enumerate(item.values) for found in flat(f"{name}.{n}", member)]
    return [(name, item)]


def text_input(walk: Walk, item: Declared, shape: Shape) -> Value:
    """An input of strings, as bytes."""
    width = USUAL_BYTES
    if item.name in walk.most:
        walk.most_used.add(item.name)
        width = walk.most[item.name]
    else:
        name = item.name
        walk.notes.append(f"strings of the input {quoted(name)} have at most {width} bytes; `--max {name}=N` changes that")
    if width > MOST_BYTES:
        what = f"`--max {item.name}={width}`: strings have at most {MOST_BYTES} bytes"
        raise ModelError("too-large", what, where=walk.file, hint="give a smaller number")
    return Value("", TensorType(DType.U8, (*shape, width), Layout.TEXT), item.name)


def trimmed(walk: Walk, value: Value) -> Texts:
    """Whatever an application left behind the end of a string is zeros from here on."""
    return texts(walk.emit(TextTrim(), [value])[0])
