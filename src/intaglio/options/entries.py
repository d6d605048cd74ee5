"""What each of several entry points is compiled from, and how: words of the command line, or keywords.

    a.onnx b.onnx --entry a=encode --entry b=step       two models
    model.onnx --dim T=32,128                           one model for two sizes: `T32` and `T128`
    model.tflite [--entry encode=encode]                signatures of one file: all, or those that are named
    --dim step:T=1                                      of the entry point `step` alone
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.frontends.reading import signatures
from intaglio.ir.spans import Span

OWN = ("dims", "shapes", "most", "states")  # options whose words may start with `ENTRY:`
OWN_KEYWORDS = ("dims", "shapes", "max", "states")


def several(models: Sequence[Path], words: Mapping[str, object], named: Sequence[str]) -> bool:
    if len(models) > 1 or bool(named) or has_lists(words):
        return True
    return words.get("signature") is None and bool(signatures(models[0]))


def has_lists(words: Mapping[str, object]) -> bool:
    """`--dim T=32,128`"""
    return any(_listed(word) for word in _texts(words.get("dims")))


def entry_words(
    models: Sequence[Path], words: Mapping[str, object], named: Sequence[str]
) -> dict[str, tuple[Path, dict[str, object]]]:
    """By entry point: the model, and its own words."""
    found: dict[str, tuple[Path, dict[str, object]]] = {}
    names = _names(models, named, words.get("signature") is None)
    given = {entry for entry, _, _ in names}
    for entry, model, signature in names:
        own = {**words, **{key: _own(_texts(words.get(key)), entry, given) for key in OWN if words.get(key)}, "name": None}
        own |= {"signature": signature} if signature is not None else {}
        lists = [word for word in _texts(own.get("dims")) if _listed(word)]
        for chosen in product(*(_each(word) for word in lists)):
            rest = [word for word in _texts(own.get("dims")) if not _listed(word)]
            sizes = "_".join(_sized(*word.split("=", 1)) for word in chosen)
            alone = len(names) == 1 and not named
            name = entry if not chosen else sizes if alone else f"{entry}_{sizes}"
            if name in found:
                raise UserError("bad-option", f"two entry points are called {quoted(name)}", hint="name them with `--entry`")
            found[name] = model, {**own, "dims": [*rest, *chosen] or None}
    return found


def entry_keywords(
    models: str | Path | Mapping[str, object], options: Mapping[str, object]
) -> dict[str, tuple[Path, dict[str, object]]]:
    """The same for keywords of `intaglio.compile_entries`. Options of an entry point win; `dims` and the like are joined.
    `{"encode:sound": (9, 64)}` is for one."""
    found: dict[str, tuple[Path, dict[str, object]]] = {}
    alone = not isinstance(models, Mapping)
    if models == {}:
        raise UserError("bad-option", "there are no models", hint='use `{"encode": "encoder.onnx", "step": "decoder.onnx"}`')
    for entry, model in {"": models}.items() if not isinstance(models, Mapping) else models.items():
        own = dict(model) if isinstance(model, Mapping) else {"model": model}
        path = own.pop("model", None)
        if not isinstance(path, (str, Path)):
            what = f"the entry point {quoted(entry)} has no model file" if entry else f"{quoted(repr(path))} is no model file"
            raise UserError("bad-option", what, hint='use `{"encode": "encoder.onnx"}`')
        given = {key: value for key, value in {**options, **own}.items() if key not in ("name", "force")}
        keys = signatures(Path(path)) if alone and given.get("signature") is None else []
        points = set(keys) if isinstance(models, (str, Path)) else set(models)
        for key in keys or [""]:
            base = key or entry
            mine = {word: _of_one(_mapping(options.get(word)), base, points) | _mapping(own.get(word)) for word in OWN_KEYWORDS}
            here = given | {word: table for word, table in mine.items() if isinstance(given.get(word), Mapping)}
            for sizes, made in each_of_lists(mine["dims"]).items():
                name = "_".join(filter(None, (base, sizes)))
                wanted = {**here, **({"dims": made} if made else {}), **({"signature": key} if key else {})}
                found[name or Path(path).stem] = Path(path), wanted
    return found


def _of_one(table: dict[str, object], entry: str, entries: set[str]) -> dict[str, object]:
    """What is for all, and what is for this entry point, which wins."""
    parts = {key: key.partition(":") if isinstance(key, str) else ("", "", "") for key in table}
    for_one = [key for key, (first, colon, _) in parts.items() if colon and first in entries]
    shared = {key: value for key, value in table.items() if key not in for_one}
    return shared | {parts[key][2]: table[key] for key in for_one if parts[key][0] == entry}


def each_of_lists(dims: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """`{"T": [32, 128], "N": 1}` as what each entry point has, by the end of its name: `T32`, `T128`. Without lists: one, ``."""
    lists = {name: size for name, size in dims.items() if isinstance(size, list)}
    for name, listed in lists.items():
        _once(name, listed)
    found: dict[str, dict[str, object]] = {}
    for chosen in product(*lists.values()):
        sizes = "_".join(_sized(name, _size_text(size)) for name, size in zip(lists, chosen, strict=True))
        found[sizes] = {**dims, **dict(zip(lists, chosen, strict=True))}
    return found


def _size_text(size: object) -> str:
    return str(Span(*size)) if isinstance(size, tuple) else str(size)


def _sized(name: str, size: str) -> str:
    """`T` of `1..8` as a part of a name: `T1to8`; `s27` of 1: `s27_1`."""
    return f"{name}{'_' if name[-1:].isdigit() else ''}{size.replace('..', 'to').replace(':', 'by')}"


def _mapping(given: object) -> dict[str, object]:
    return dict(given) if isinstance(given, Mapping) else {}


def _names(models: Sequence[Path], named: Sequence[str], open: bool) -> list[tuple[str, Path, str | None]]:
    """`--entry encoder.onnx=encode`, by the name of the file with or without its ending; others are called after their file. One
    file may have several names, and be given once or as often. Of a file with several signatures (`open`: none is chosen),
    `--entry` names those that are wanted: `SIGNATURE=NAME`, or `FILE:SIGNATURE=NAME`. Without it, all are, under their names."""
    asked: list[tuple[str, str]] = []
    for word in named:
        file, equals, entry = word.partition("=")
        if not equals or not file or not entry:
            what = f"`--entry {quoted(word)[1:-1]}` is not of the form MODEL=NAME"
            raise UserError("bad-option", what, hint="e.g. `--entry encoder=encode`")
        asked.append((file, entry))

    def taken(words: Sequence[str], first: bool = False) -> list[str]:
        """The names that are asked for by these words, or the first of them."""
        mine = [pair for pair in asked if pair[0] in words][: 1 if first else None]
        for pair in mine:
            asked.remove(pair)
        return [entry for _, entry in mine]

    found: list[tuple[str, Path, str | None]] = []
    known: list[str] = []
    for n, model in enumerate(models):
        keys = signatures(model) if open else []
        files = (str(model), model.name, model.stem)
        known += keys or [model.name]
        if not keys:
            found += [(name, model, None) for name in taken(files, model in models[n + 1 :]) or [model.stem]]
            continue
        wanted = {key: taken([key, *(f"{file}:{key}" for file in files)]) for key in keys}
        found += [(name, model, key) for key, names in wanted.items() for name in names]
        found += [(key, model, key) for key in keys if not any(wanted.values())]
    if asked:
        what = f"`--entry` names {quoted(asked[0][0])}, which is no model here"
        raise UserError("bad-option", what, hint=f"models and signatures: {', '.join(map(quoted, known))}")
    return found


def _texts(given: object) -> list[str]:
    return [str(word) for word in given] if isinstance(given, (list, tuple)) else []


def _own(words: list[str], entry: str, entries: set[str]) -> list[str]:
    """Those of all, and those that are meant for this one."""
    found = []
    for word in words:
        first, colon, rest = word.partition(":")
        if not colon or "=" in first or first not in entries:
            found.append(word)
        elif first == entry:
            found.append(rest)
    return found


def _listed(word: str) -> bool:
    return "," in word.partition("=")[2]


def _each(word: str) -> list[str]:
    name, _, sizes = word.partition("=")
    full = ",".join(size for size in sizes.split(",") if size.strip())
    if full != sizes:
        what = f"the list of sizes in `--dim {quoted(word)[1:-1]}` has an empty place"
        raise UserError("bad-option", what, hint=f"write `--dim {name}={full or 'N'}`")
    _once(name, sizes.split(","))
    return [f"{name}={size}" for size in sizes.split(",")]


def _once(name: str, sizes: Sequence[object]) -> None:
    if not sizes or (twice := next((size for n, size in enumerate(sizes) if size in sizes[:n]), None)) is not None:
        what = f"the list of sizes of {quoted(name)} " + (f"has {quoted(str(twice))} twice" if sizes else "is empty")
        raise UserError("bad-option", what, hint="each size, or range, gets an entry point: list it once")
