"""What a module takes and returns beside tensors and tuples of them: named tuples (`x.topk(2)`), dictionaries, lists, dataclasses.

A program has its results in a row. In the file they are a dictionary, with the names of fields where there are some:

    (x.max(1), {"a": y, "b": [z, w]}, v)   ->   {"values", "indices", "a", "b_0", "b_1", "sin"}

torch does not write classes that it has no name for, and it does not export dataclasses that are not registered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

_PLAIN = ("builtins.tuple", "builtins.list", "builtins.dict")


@contextmanager
def fields_as_dictionaries(model: Any) -> Iterator[None]:
    """While it is exported, dataclasses among its results are dictionaries of their fields."""
    from torch.utils import _pytree

    def plain(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type) and type(value) not in _pytree.SUPPORTED_NODES:
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        if type(value) in (tuple, list):
            return type(value)(plain(item) for item in value)
        return {key: plain(item) for key, item in value.items()} if type(value) is dict else value

    hook = model.register_forward_hook(lambda module, args, result: plain(result))
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def rows_of_tensors(program: Any) -> Iterator[None]:
    """While it is saved, an exported program has structures that every torch can read again."""
    signature = program.module_call_graph[0].signature
    before = (signature.in_spec, signature.out_spec)
    try:
        results = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
        signature.in_spec, signature.out_spec = _inputs(before[0]), _outputs(before[1], results)
        yield
    finally:
        signature.in_spec, signature.out_spec = before


def _inputs(spec: Any) -> Any:
    from torch.utils import _pytree

    return spec if _is_plain(spec) else _pytree.tree_structure(((0,) * spec.num_leaves, {}))


def _outputs(spec: Any, results: Sequence[str]) -> Any:
    from torch.utils import _pytree

    told = [*_names(spec, ())]
    flat = all(child.num_children == 0 for child in _children(spec))
    if len(told) != len(results) or (_is_plain(spec) and (flat or not any(told))):
        return spec
    made: dict[str, int] = {}
    for name, otherwise in zip(told, results, strict=True):
        stem, n = name or otherwise, 1
        fresh = stem
        while fresh in made:
            n += 1
            fresh = f"{stem}_{n}"
        made[fresh] = 0
    return _pytree.tree_structure(made)


def _is_plain(spec: Any) -> bool:
    kind = spec.type
    known = kind is None or f"{kind.__module__}.{kind.__qualname__}" in _PLAIN
    return known and all(map(_is_plain, _children(spec)))


def _names(spec: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Of every leaf: the fields on the way to it, and places in lists that are fields. Nothing where there are none."""
    children = _children(spec)
    if not children:
        if spec.type is None:
            yield "_".join(path)
        return
    keys = _keys(spec, len(children))
    for n, child in enumerate(children):
        key = keys[n] if keys else str(n) if path else ""
        yield from _names(child, (*path, key) if key else path)


def _keys(spec: Any, count: int) -> list[str]:
    """The names of the fields of one structure."""
    context = spec.context[1] if spec.type is defaultdict else spec.context
    if isinstance(context, (list, tuple)) and context and isinstance(context[0], (list, tuple)):
        context = context[0]  # of a dataclass: the names of its fields, and of those that are None
    told = (
        getattr(context, "_fields", None)  # a named tuple
        or (context if isinstance(context, (list, tuple)) else None)
        or getattr(spec.type, "__match_args__", None)  # what `max` and `topk` return
    )
    return [str(key) for key in told] if told is not None and len(told) == count else []


def _children(spec: Any) -> list[Any]:
    return list(spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs)
