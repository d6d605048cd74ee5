"""The JSON schema of `intaglio.toml`, for editors: made from the options, so that it has all of them."""

from __future__ import annotations

from intaglio.options import kinds
from intaglio.options.request import OPTIONS, Option
from intaglio.project.file import KEYWORDS
from intaglio.project.fleet import JOBS
from intaglio.project.products import KINDS
from intaglio.report.budgets import KNOWN, SIZES

_TEXT: dict[str, object] = {"type": "string"}
_SIZE: dict[str, object] = {"oneOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
_TEXTS: dict[str, object] = {"type": "array", "items": _TEXT}


def schema() -> dict[str, object]:
    options: dict[str, object] = {o.keyword: _of(o) for o in OPTIONS if o.keyword in KEYWORDS}
    budget: dict[str, object] = {key: _SIZE if key in SIZES else {"type": "number", "minimum": 0} for key in KNOWN}
    own: dict[str, object] = {
        "model": {**_TEXT, "description": "A name below `models`."},
        "entries": {
            "type": "object", "additionalProperties": _TEXT, "minProperties": 1,
            "description": "Instead of `model`: entry points that share weights, by name, with their models.",
        },
        "output": {**_TEXT, "description": "Folder of the package. Default: build/NAME."},
        "report": {**_TEXT, "description": "HTML page to write."},
        "make": {"type": "array", "items": {"enum": list(KINDS)}, "description": "Files to hand out, made of the package."},
        "dist": {**_TEXT, "description": "Folder of these files. Default: dist."},
        "version": {**_TEXT, "description": "Version of these files; inside of them too, unless signed. Default: 0.1.0."},
        "vendor": {**_TEXT, "description": "Vendor of a CMSIS-Pack."},
        "budget": {"oneOf": [_TEXT, _table(budget)], "description": "What it may need at most, or a budget file."},
    }
    model: dict[str, object] = {
        "source": {**_TEXT, "description": "The model file."},
        "sha256": {**_TEXT, "pattern": "^[0-9a-fA-F]{64}$"},
    }
    many: dict[str, object] = {
        "models": {**_TEXTS, "description": "Names or patterns. Default: all."},
        "boards": {**_TEXTS, "description": "Names or patterns of boards, or board files."},
        "targets": _TEXTS,
        "jobs": {"type": "array", "items": {"enum": list(JOBS)}},
        "quick": {"type": "boolean", "description": "fit: estimate code, stack and time; build and emulate nothing."},
        "store": {**_TEXT, "description": "Folder of the results. Default: build/fleet."},
        "retries": {"type": "integer", "minimum": 0, "maximum": 100},
        "timeout": {"type": "number", "description": "Seconds of one job."},
        "budget": {"oneOf": [_TEXT, _table(budget)]},
        "variants": {"type": "object", "additionalProperties": _table(options)},
        "cluster": {"type": "object", "additionalProperties": {"type": "object"}},
    }
    linked: dict[str, object] = {"packages": {**_TEXTS, "minItems": 2}, "output": _TEXT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "intaglio.toml",
        **_table(
            {
                "defaults": _table(options),
                "models": {"type": "object", "additionalProperties": _table({**model, **options}, "source")},
                "packages": {"type": "object", "additionalProperties": _table({**own, **options})},
                "firmware": {"type": "object", "additionalProperties": _table(linked, "packages")},
                "fleet": _table(many),
            },
            "models",
        ),
    }


def _table(properties: dict[str, object], *required: str) -> dict[str, object]:
    made: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": list(required)} if required else made


def _of(option: Option) -> dict[str, object]:
    found = _KINDS.get(id(option.kind), _TEXT)
    return {**found, "description": option.help}


_KINDS: dict[int, dict[str, object]] = {
    id(kinds.WHOLE): {"type": "integer"},
    id(kinds.NUMBER): {"type": "number"},
    id(kinds.FLAG): {"type": "boolean"},
    id(kinds.SIZE): _SIZE,
    id(kinds.ADDRESS): {"type": ["integer", "string"]},
    id(kinds.FLAGS): {"type": ["array", "string"]},
    id(kinds.OPERATORS): {"type": ["array", "string"]},
    id(kinds.NAMES): {"type": ["array", "string"]},
    id(kinds.TEXTS): {"type": ["array", "string"]},
    id(kinds.SET): {"type": ["array", "string"]},
    id(kinds.DEVICES): {"type": ["array", "string"]},
    id(kinds.LABELS): {"oneOf": [_TEXT, {"type": "array", "items": {"type": "integer"}}]},
    id(kinds.DIMS): {"type": ["object", "string"]},  # the sizes in it are numbers, ranges as text, or lists of these
    id(kinds.SHAPES): {"type": ["object", "string"]},
    id(kinds.STATES): {"type": ["object", "string"]},
}

__all__ = ["schema"]
