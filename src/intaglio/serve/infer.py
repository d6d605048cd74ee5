"""A request of the REST form: JSON, with or without raw tensors behind it. And its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from intaglio.errors import quoted
from intaglio.ir.graph import Array
from intaglio.serve.refusals import Refused
from intaglio.serve.tensors import Port, dtype_of, from_bytes, from_numbers, shape_of, widened

HEADER = "inference-header-content-length"
KEYS = ("id", "inputs", "outputs", "parameters")
KNOWN = ("binary_data_output", "sequence_id", "sequence_start", "sequence_end")
LISTED = 256  # inputs or outputs in a request at most


@dataclass(frozen=True, slots=True)
class Question:
    """`raw`: outputs that are wanted as bytes; None: all of them."""

    id: str
    inputs: dict[str, Array]
    outputs: tuple[str, ...]
    raw: frozenset[str] | None
    ignored: tuple[str, ...] = ()  # parameters that mean nothing here


def read_question(body: bytes | memoryview, json_bytes: int | None) -> Question:
    """`json_bytes`: how long the JSON at the start is, where tensors follow it."""
    if json_bytes is not None and not 0 < json_bytes <= len(body):
        raise Refused(400, f"`{HEADER}` is {json_bytes}, the body has {len(body)} bytes")
    try:
        asked = orjson.loads(body if json_bytes is None else body[:json_bytes])
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"the request is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise Refused(400, "the request is not a JSON object")
    inputs = _arrays(asked.get("inputs"), memoryview(body)[json_bytes or len(body) :])
    outputs, raw = _wanted(asked)
    ignored = ignored_of({**_parameters(asked), **{key: True for key in asked if key not in KEYS}})
    return Question(_text(asked.get("id", ""), "id"), inputs, outputs, raw, ignored)


def ignored_of(parameters: Mapping[str, object]) -> tuple[str, ...]:
    """A client that means a sequence believes in a state, which is not kept."""
    for name, value in parameters.items():
        if name.startswith("sequence_") and value not in (0, "", False, None):
            raise Refused(400, f"the parameter {quoted(name)} is not supported: no state is kept between requests")
    return tuple(name for name in parameters if name not in KNOWN)


def _arrays(listed: object, rest: memoryview) -> dict[str, Array]:
    if not isinstance(listed, list) or len(listed) > LISTED:
        raise Refused(400, "the request has no list `inputs`")
    found: dict[str, Array] = {}
    for one in listed:
        if not isinstance(one, dict):
            raise Refused(400, "an input is not a JSON object")
        name = _text(one.get("name"), "name")
        if name in found:
            raise Refused(400, f"input {quoted(name)} is given twice")
        dtype, shape = dtype_of(one.get("datatype"), name), shape_of(one.get("shape"), name)
        size = _parameters(one).get("binary_data_size")
        if size is None:
            found[name] = from_numbers(one.get("data"), dtype, shape, name)
            continue
        if type(size) is not int or not 0 <= size <= len(rest):
            raise Refused(400, f"input {quoted(name)} needs {quoted(str(size))} bytes, {len(rest)} are left in the body")
        if "data" in one:
            raise Refused(400, f"input {quoted(name)} has both `data` and `binary_data_size`")
        found[name] = from_bytes(rest[:size], dtype, shape, name)
        rest = rest[size:]
    if len(rest):
        raise Refused(400, f"{len(rest)} bytes of the body belong to no input")
    return found


def _wanted(asked: Mapping[str, object]) -> tuple[tuple[str, ...], frozenset[str] | None]:
    listed = asked.get("outputs", [])
    if not isinstance(listed, list) or len(listed) > LISTED:
        raise Refused(400, "`outputs` is not a list")
    every = _parameters(asked).get("binary_data_output", False)
    names, raw = [], set()
    for one in listed:
        if not isinstance(one, dict):
            raise Refused(400, "an output is not a JSON object")
        names.append(_text(one.get("name"), "name"))
        told = _parameters(one)
        if "classification" in told:
            raise Refused(400, "the parameter `classification` is not supported")
        if told.get("binary_data", every):
            raw.add(names[-1])
    if len(set(names)) != len(names):
        raise Refused(400, "an output is asked for twice")
    return tuple(names), None if every and not names else frozenset(raw)


def _parameters(table: Mapping[str, object]) -> Mapping[str, object]:
    found = table.get("parameters")
    if found is not None and not isinstance(found, dict):
        raise Refused(400, "`parameters` is not a JSON object")
    return found or {}


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > 1000:
        raise Refused(400, f"`{what}` is not a text")
    return value


def answer(question: Question, model: tuple[str, str], results: Sequence[tuple[Port, Array]]) -> tuple[list[bytes], int | None]:
    """The parts of the body; and how long its JSON is, where tensors follow."""
    rows: list[dict[str, object]] = []
    tail: list[bytes] = []
    for port, array in results:
        row = _row(port, array)
        if question.raw is None or port.name in question.raw:
            content = array.tobytes()
            row["parameters"] = {"binary_data_size": len(content)}
            tail.append(content)
        else:
            row["data"] = widened(array, port.datatype).reshape(-1)
        rows.append(row)
    told: dict[str, object] = {"model_name": model[0], "model_version": model[1], "outputs": rows}
    if question.id:
        told["id"] = question.id
    head = orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY)
    return [head, *tail], len(head) if tail else None


def _row(port: Port, array: Array) -> dict[str, object]:
    return {"name": port.name, "datatype": port.datatype, "shape": list(array.shape)}


__all__ = ["HEADER", "Question", "answer", "ignored_of", "read_question"]
