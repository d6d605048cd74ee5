"""Objects of scikit-learn, XGBoost, LightGBM and CatBoost: converted to ONNX by skl2onnx, by `boosters.py`, or by CatBoost itself.

Files of these libraries are pickles, which run code when they are read: they are never opened. Features are f32, as on the devices
that models are compiled for; skl2onnx rounds thresholds of trees so that `x <= threshold` is the same for every f32. Where the
example has whole numbers of at most 16 bits, the input has them too, and is cast.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ToolError, UserError, quoted
from intaglio.frontends.boosters import booster_model
from intaglio.frontends.converted import check_converted, has_columns, has_strings
from intaglio.frontends.estimators import converting, refuse_unknown
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.sklearn_own import FUNCTIONS, Inverse, exchanged, function_shape, target_of
from intaglio.frontends.sklearn_parts import converters
from intaglio.ir.graph import Array
from intaglio.ir.strings import is_text

FRAMEWORKS = ("xgboost", "lightgbm", "catboost", "sklearn")  # a model of the first three may be one of scikit-learn too
_OPSETS = {"": 18, "ai.onnx.ml": 3}
_TOOLS = {"sklearn": "skl2onnx", "xgboost": "Intaglio", "lightgbm": "Intaglio", "catboost": "CatBoost"}  # that convert
_STRING = 8  # TensorProto.STRING
_INT64 = 7
_FLOAT = 1
_WHOLE = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5}  # TensorProto's numbers


def save_object(
    model: Any, framework: str, example_inputs: tuple[object, ...] | None, path: Path, note: Callable[[str], None]
) -> None:
    """The object as an ONNX file."""
    while hasattr(model, "best_estimator_"):  # of a search
        model = model.best_estimator_
        framework = home_of(model)
    refuse_unknown(model)
    if framework == "sklearn" and _takes_maps(model):
        made = _of_maps(model, note)
    else:
        given: Any = example_inputs[0] if example_inputs else None
        if isinstance(given, list) and given and all(isinstance(one, str) for one in given):
            given = np.array(given)
        rows, columns = _shape(model, example_inputs if given is None else (given, *(example_inputs or ())[1:]))
        if framework != "sklearn" and has_columns(given):
            given = _numbers(given)
        made = _converted(model, framework, columns, given, path, note)
        unchanged = copy.deepcopy(made)
        _without_strings(unchanged, lambda _: None)
        flat = check_converted(model, framework, unchanged, given, _TOOLS[framework], note)
        _flatten(made, flat)
        for output in made.graph.output:
            output.type.tensor_type.ClearField("shape")  # of any number of rows
        for one in made.graph.input:
            one.type.tensor_type.shape.dim[0].dim_value = rows
        kind = str(getattr(given, "dtype", "float32"))
        if kind in _WHOLE:
            _cast_input(made, _WHOLE[kind])
        elif kind != "float32" and not has_strings(given):
            note(f"features are f32: give such arrays, `X.astype(\"float32\")`, not {kind}")
    _without_strings(made, note)
    path.write_bytes(made.SerializeToString())


def _numbers(table: Any) -> Any:
    """Boosters take a table with names as one input."""
    try:
        return table.to_numpy(np.float64 if "float64" in map(str, table.dtypes) else np.float32)
    except (TypeError, ValueError):
        what = "the example has a column that is not numbers"
        raise UserError("bad-option", what, hint="give categories as whole numbers, in training and as the example") from None


def _converted(model: Any, framework: str, columns: int, given: Any, path: Path, note: Callable[[str], None]) -> Any:
    match framework:
        case "catboost":
            return _of_catboost(model, path)
        case "xgboost" | "lightgbm":
            return converting(_TOOLS[framework], model, lambda: booster_model(model, framework, columns, note))
    if last := _ends_with_booster(model):
        return converting(_TOOLS[last], model, lambda: _of_pipeline(model, last, columns, given, note))
    return _of_sklearn(model, columns, given, note)


def _cast_input(model: Any, kind: int) -> None:
    """The input has this type, and everybody reads it as floats."""
    from onnx import helper

    given = model.graph.input[0]
    floats = f"{given.name}_as_floats"
    for node in model.graph.node:
        node.input[:] = [floats if name == given.name else name for name in node.input]
    given.type.tensor_type.elem_type = kind
    model.graph.node.insert(0, helper.make_node("Cast", [given.name], [floats], to=_FLOAT))


def _takes_maps(model: Any) -> bool:
    """Is the first step a `DictVectorizer`?"""
    steps = getattr(model, "steps", None)
    return type(steps[0][1] if steps else model).__name__ == "DictVectorizer"


def _of_maps(model: Any, note: Callable[[str], None]) -> Any:
    """With a map as the input."""
    converter = _needed("skl2onnx", "sklearn")
    types = importlib.import_module("skl2onnx.common.data_types")
    inputs = [("x", types.DictionaryType(types.StringTensorType([1]), types.FloatTensorType([1])))]
    note("the map `x` takes numbers: for a feature that is a string, give the entry `NAME=STRING` the value 1")
    return converting("skl2onnx", model, lambda: _with_plain_scores(converter, model, inputs))


def _of_catboost(model: Any, path: Path) -> Any:
    """CatBoost writes ONNX itself."""
    import onnx

    converting("CatBoost", model, lambda: model.save_model(str(path), format="onnx"))
    made = onnx.load(str(path))
    given = made.graph.input[0].name
    for node in made.graph.node:
        node.input[:] = ["x" if name == given else name for name in node.input]
    made.graph.input[0].name = "x"  # as all others call it
    loss = str((model.get_all_params() or {}).get("loss_function", "")).split(":")[0]
    if loss in ("Poisson", "Tweedie"):  # what it writes are logarithms
        _behind(made, FUNCTIONS["exp"])
    elif loss == "MultiClassOneVsAll":  # and scores as if they were of `MultiClass`
        for attribute in (one for node in made.graph.node for one in node.attribute if one.name == "post_transform"):
            attribute.s = b"LOGISTIC"
    return made


def home_of(model: Any) -> str:
    """Which of FRAMEWORKS it is of, or none, told by the classes that it derives from."""
    homes = {cls.__module__.split(".")[0] for cls in type(model).__mro__}
    return next((name for name in FRAMEWORKS if name in homes), "")


def _ends_with_booster(model: Any) -> str:
    """The framework of the last step of a pipeline, if that is a booster."""
    steps = getattr(model, "steps", None)
    home = home_of(steps[-1][1]) if steps and len(steps) > 1 else ""
    return home if home in ("xgboost", "lightgbm") else ""


def _of_pipeline(model: Any, last: str, columns: int, given: Any, note: Callable[[str], None]) -> Any:
    """Its steps, and the trees behind them."""
    from onnx import compose, helper

    head = _of_sklearn(model[:-1], columns, given, note)
    tail = compose.add_prefix(booster_model(model.steps[-1][1], last, None, note), "booster_")
    versions = {one.domain: one.version for one in (*head.opset_import, *tail.opset_import)}
    for one in (head, tail):
        one.ir_version = tail.ir_version
        del one.opset_import[:]
        one.opset_import.extend(helper.make_opsetid(domain, max(version, versions[domain])) for domain, version in versions.items())
    made = compose.merge_models(head, tail, [(head.graph.output[0].name, tail.graph.input[0].name)])
    for output in list(made.graph.output):
        _rename(made, output.name, output.name.removeprefix("booster_"))
    return made


def _of_sklearn(model: Any, columns: int, given: Any, note: Callable[[str], None]) -> Any:
    converter = _needed("skl2onnx", "sklearn")
    types = importlib.import_module("skl2onnx.common.data_types")
    inputs = [("x", types.FloatTensorType([None, columns]))]  # some converters write constants as long as a batch that is known
    if has_columns(given):
        inputs = [(str(name), _column(types, given[name].to_numpy())) for name in given.columns]
    elif has_strings(given):
        inputs = [("x", types.StringTensorType([None, columns]))]
    inner, inverse = target_of(model)
    made = converting("skl2onnx", model, lambda: _with_plain_scores(converter, exchanged(inner), inputs))
    if inverse is not None:
        _behind(made, inverse)
    for given_as, (name, _) in zip([one.name for one in made.graph.input], inputs, strict=True):
        _rename(made, given_as, name)  # names of columns as they are
    other = [f"{quoted(name)} is `{identifier(name)}`" for name, _ in inputs if identifier(name) != name]
    if other:
        note("names of columns in C: " + ", ".join(other[:20]) + (", ..." if len(other) > 20 else ""))
    if not hasattr(model, "predict_proba") and hasattr(model, "predict"):
        _rename(made, "probabilities", "scores")  # sums, votes or distances
    return made


def _behind(made: Any, inverse: Inverse) -> None:
    """The first output goes through this."""
    from onnx import helper, numpy_helper

    name = made.graph.output[0].name
    _rename(made, name, "before_inverse")
    made.graph.output[0].name = name

    def node(op: str, *inputs: str | Array, output: str = "") -> str:
        names = []
        for given in inputs:
            names.append(given if isinstance(given, str) else f"inverse_{len(made.graph.initializer)}")
            if not isinstance(given, str):
                made.graph.initializer.append(numpy_helper.from_array(np.asarray(given), names[-1]))
        output = output or f"inverse_of_{len(made.graph.node)}"
        made.graph.node.append(helper.make_node(op, names, [output]))
        return output

    node("Identity", inverse(node, "before_inverse"), output=name)


def _rename(made: Any, old: str, new: str) -> None:
    taken = {name for node in made.graph.node for name in (*node.input, *node.output)} | {one.name for one in made.graph.input}
    if old == new or new in taken | {one.name for one in made.graph.initializer}:
        return
    for node in made.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for one in (*made.graph.input, *made.graph.output):
        one.name = new if one.name == old else one.name


def _flatten(made: Any, outputs: Iterable[str]) -> None:
    """One number for each row, as the object gives them."""
    from onnx import helper, numpy_helper

    for name in outputs:
        for node in made.graph.node:
            node.output[:] = [f"{name}_in_rows" if one == name else one for one in node.output]
            node.input[:] = [f"{name}_in_rows" if one == name else one for one in node.input]
        made.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), f"{name}_shape"))
        made.graph.node.append(helper.make_node("Reshape", [f"{name}_in_rows", f"{name}_shape"], [name]))


def _column(types: Any, column: Any) -> Any:
    return types.StringTensorType([None, 1]) if is_text(column) else types.FloatTensorType([None, 1])


def _with_plain_scores(converter: Any, model: Any, inputs: list[Any]) -> Any:
    """Probabilities as a tensor, not as maps, where the model has them."""
    told = {"initial_types": inputs, "target_opset": _OPSETS, "custom_conversion_functions": converters()}
    told["custom_shape_calculators"] = {importlib.import_module("sklearn.preprocessing").FunctionTransformer: function_shape}
    try:
        return converter.convert_sklearn(model, options={"zipmap": False}, **told)
    except NameError:  # the model does not know the option
        return converter.convert_sklearn(model, **told)


def _shape(model: Any, example_inputs: tuple[object, ...] | None) -> tuple[int, int]:
    """Rows and columns of the features: those of the example, or one row."""
    if example_inputs:
        shape = tuple(int(n) for n in getattr(example_inputs[0], "shape", ()))
        if len(shape) == 1 and has_strings(example_inputs[0]):  # a text a row
            shape = (*shape, 1)
        if len(example_inputs) != 1 or len(shape) != 2:
            hint = "for instance `example_inputs=(X[:1],)`"
            raise UserError("bad-option", "`example_inputs` must be one table of features, with rows and columns", hint=hint)
        return shape
    columns = getattr(model, "n_features_in_", None)
    if columns is None:
        hint = "give `example_inputs=(X[:1],)`, and fit the model before"
        raise UserError("no-example", "the model does not say how many features it takes", hint=hint)
    return 1, int(columns)


def _needed(tool: str, framework: str) -> Any:
    try:
        return importlib.import_module(tool)
    except ImportError:
        hint = f"run `.venv/bin/pip install -e '.[{framework}]'` in the checkout"
        raise ToolError("no-framework", f"`{tool}` is needed to convert a model of `{framework}`", hint=hint) from None


def _without_strings(model: Any, note: Callable[[str], None]) -> None:
    """Classes that are strings become their index; other outputs that are strings are left out."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "classlabels_strings" and attribute.strings and node.op_type != "ZipMap":
                names = [word.decode("utf-8", "replace") for word in attribute.strings]
                numbers = "classlabels_int64s" if node.op_type.startswith("Tree") else "classlabels_ints"
                del attribute.strings[:]
                attribute.name, attribute.type = numbers, 7  # AttributeProto.INTS
                attribute.ints.extend(range(len(names)))
                for output in model.graph.output:
                    if output.name == node.output[0]:
                        output.type.tensor_type.elem_type = _INT64
                told = ", ".join(f"{n} {quoted(name)}" for n, name in enumerate(names[:20]))
                note(f"labels are the index of the class: {told}" + (", ..." if len(names) > 20 else ""))
    for output in [o for o in model.graph.output if o.type.tensor_type.elem_type == _STRING]:
        model.graph.output.remove(output)
        note(f"the output {quoted(output.name)} is left out: it is a tensor of strings")
