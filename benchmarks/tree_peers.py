"""The C that other tools write for a fitted forest, and what calls it: one row of features in `row_x`, its class in `row_class`
(or its value in `row_value`).

A peer that cannot take a model raises `Refused`. None of their code is kept.
"""

from __future__ import annotations

import importlib.metadata
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROW = "void row(void)\n"
HEAD = """#include <stdint.h>
#include <stddef.h>
extern {kind} row_x[{features}];
extern int32_t row_class;
extern float row_value;
void row(void);
"""
LARGEST = """    {{
        int32_t best = 0, n;
        for (n = 1; n < {classes}; n++)
            if (scores[n] > scores[best])
                best = n;
        row_class = best;
    }}
"""


class Refused(Exception):
    """Why this tool does not take this model."""


@dataclass(frozen=True)
class Forest:
    """A fitted model and what its rows are; `whole`: features are whole numbers of 16 bits."""

    label: str
    model: Any
    features: int
    classes: int  # 1: one number
    whole: bool = False

    @property
    def kind(self) -> str:
        return "int16_t" if self.whole else "float"

    def head(self) -> str:
        return HEAD.format(kind=self.kind, features=self.features)


@dataclass(frozen=True)
class Written:
    """Files by name, `.c` or `.cpp`; among them `row.c` or `row.cpp`, which has `row`."""

    files: dict[str, str] = field(default_factory=dict)


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def emlearn_inline(forest: Forest) -> Written:
    """Votes of whole trees, as the tool writes them."""
    return _emlearn(forest, "inline")


def emlearn_alone(forest: Forest) -> Written:
    return _emlearn(forest, "inline", alone=True)


def emlearn_loadable(forest: Forest) -> Written:
    return _emlearn(forest, "loadable")


def _emlearn(forest: Forest, method: str, *, alone: bool = False) -> Written:
    import emlearn

    if forest.classes == 1 or not hasattr(forest.model, "estimators_") or "Boosting" in type(forest.model).__name__:
        raise Refused("it takes forests of votes")
    if method == "loadable" and not forest.whole:
        raise Refused("its tables hold features of 16 bits")
    made = emlearn.convert(forest.model, method=method, dtype=forest.kind)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "em.h"
        made.save(name="em", file=str(path), format="c")
        text = path.read_text()
    text = _without_probabilities(text) if alone else text
    include = Path(emlearn.includedir)
    headers = {p.name: p.read_text() for p in include.glob("eml_*.h")} if method == "loadable" else {}
    body = f"    row_class = em_predict(row_x, {forest.features});\n"
    return Written({**headers, "em.h": text, "row.c": f'{forest.head()}#include "em.h"\n{ROW}{{\n{body}}}\n'})


def _without_probabilities(text: str) -> str:
    """`em_predict_proba` is a second caller of the trees, so that a compiler does not put them into one. Without it, the tool is
    faster, and small forests are smaller."""
    at = re.search(r"^\s*int em_predict_proba\(", text, re.M)
    if at is None:
        return text
    depth, end = 0, len(text)
    for brace in re.finditer(r"[{}]", text[at.start() :]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            end = at.start() + brace.end()
            break
    return text[: at.start()] + text[end:]


def m2cgen(forest: Forest) -> Written:
    import m2cgen as tool

    try:
        text = tool.export_to_c(forest.model)
    except (NotImplementedError, AttributeError, ValueError, KeyError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from None
    copy = _copied(forest, "double")
    if forest.classes == 1:
        body = f"{copy}    row_value = (float)score(x);\n"
    else:
        body = f"{copy}    double scores[{forest.classes}];\n    score(x, scores);\n" + LARGEST.format(classes=forest.classes)
    return Written({"model.c": text, "row.c": _calling(forest, text, body)})


def _copied(forest: Forest, kind: str) -> str:
    return f"    {kind} x[{forest.features}];\n    for (int i = 0; i < {forest.features}; i++)\n        x[i] = row_x[i];\n"


def _calling(forest: Forest, text: str, body: str) -> str:
    declared = "double score(double *input);" if "double score(" in text else "void score(double *input, double *output);"
    return f"{forest.head()}{declared}\n{ROW}{{\n{body}}}\n"


def micromlgen(forest: Forest) -> Written:
    from micromlgen import port

    if forest.classes == 1:
        raise Refused("it takes classifiers")
    try:
        text = port(forest.model)
    except Exception as error:  # whatever its templates raise
        raise Refused(f"{type(error).__name__}: {error}") from None
    if not text:
        raise Refused("it writes nothing for this model")
    name = re.search(r"class (\w+) \{", text)
    assert name is not None
    copy, x = "", "row_x"
    if forest.whole:
        copy, x = _copied(forest, "float"), "x"
    head = forest.head().replace("extern ", 'extern "C" ').replace("void row", 'extern "C" void row')
    body = f"{copy}    Eloquent::ML::Port::{name[1]} model;\n    row_class = model.predict({x});\n"
    return Written({"cstdarg": "#include <stdarg.h>\n", "model.h": text.replace("#pragma once", ""),
                    "row.cpp": f'{head}#include "model.h"\n{ROW}{{\n{body}}}\n'})  # fmt: skip


def treelite(forest: Forest) -> Written:
    return _treelite(forest, 0)


def treelite_quantised(forest: Forest) -> Written:
    """`quantize`: features become the numbers of thresholds by binary search."""
    return _treelite(forest, 1)


def _treelite(forest: Forest, quantize: int) -> Written:
    import tl2cgen
    import treelite as library

    model = library.sklearn.import_model(forest.model)
    with tempfile.TemporaryDirectory() as folder:
        tl2cgen.generate_c_code(model, dirpath=folder, params={"quantize": quantize, "parallel_comp": 0})
        files = {p.name: p.read_text() for p in Path(folder).iterdir() if p.suffix in (".c", ".h")}
    result = re.search(r"void predict\(union Entry\* data, int pred_margin, (\w+)\* result\)", files["header.h"])
    assert result is not None
    width = forest.classes if forest.classes != 2 or "RandomForest" in type(forest.model).__name__ else 1
    fill = f"""    union Entry data[{forest.features}];
    {result[1]} scores[{width}] = {{0}};
    for (size_t i = 0; i < {forest.features}; i++)
        data[i].fvalue = row_x[i];
    predict(data, 0, scores);
"""
    if forest.classes == 1:
        fill += "    row_value = (float)scores[0];\n"
    elif width == 1:
        fill += "    row_class = scores[0] > 0.5;\n"
    else:
        fill += LARGEST.format(classes=width)
    text = f'{forest.head()}#include "header.h"\n{ROW}{{\n{fill}}}\n'
    return Written({**files, "row.c": text})


PEERS: dict[str, tuple[str, Callable[[Forest], Written]]] = {
    "emlearn, inline": ("emlearn", emlearn_inline),
    "emlearn, `predict` alone": ("emlearn", emlearn_alone),
    "emlearn, loadable": ("emlearn", emlearn_loadable),
    "m2cgen": ("m2cgen", m2cgen),
    "micromlgen": ("micromlgen", micromlgen),
    "treelite": ("tl2cgen", treelite),
    "treelite, quantised": ("tl2cgen", treelite_quantised),
}
