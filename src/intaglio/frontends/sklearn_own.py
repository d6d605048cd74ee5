"""Estimators that skl2onnx does not have: written as others that it has, or as a few nodes.

    KBinsDiscretizer("onehot")        "onehot-dense": the same numbers
    KernelRidge                       a support vector regressor with all rows as vectors
    FunctionTransformer(np.log1p)     the functions of FUNCTIONS
    TransformedTargetRegressor        its regressor, and the inverse of a function or a scaler
    SGDClassifier("modified_huber")   labels by the largest score
    EllipticEnvelope                  the distance as a product with the precision
    NearestCentroid                   distances as products with the centroids
    RegressorChain, ClassifierChain   their estimators one after the other
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.ir.graph import Array

Converter = Callable[[Any, Any, Any], None]  # scope, operator, container
Node = Callable[..., str]  # an operator, the names or numbers of its inputs, `output=` and attributes; its output


def _alone(op: str) -> Callable[[Node, str], str]:
    return lambda node, x: node(op, x)


FUNCTIONS: dict[str, Callable[[Node, str], str]] = {
    "log1p": lambda node, x: node("Log", node("Add", x, np.float32(1))),
    "expm1": lambda node, x: node("Sub", node("Exp", x), np.float32(1)),
    "square": lambda node, x: node("Mul", x, x),
    "log2": lambda node, x: node("Mul", node("Log", x), np.float32(1 / np.log(2))),
    "log10": lambda node, x: node("Mul", node("Log", x), np.float32(1 / np.log(10))),
    **{
        name: _alone(op)
        for name, op in (
            ("log", "Log"), ("exp", "Exp"), ("sqrt", "Sqrt"), ("abs", "Abs"), ("absolute", "Abs"), ("negative", "Neg"),
            ("sign", "Sign"), ("floor", "Floor"), ("ceil", "Ceil"),
            ("sin", "Sin"), ("cos", "Cos"), ("tanh", "Tanh"), ("reciprocal", "Reciprocal"),
        )
    },
}  # fmt: skip
Inverse = Callable[[Node, str], str]


def _function(owner: str, function: Any) -> Inverse:
    name = getattr(function, "__name__", "")
    if name in FUNCTIONS and function is getattr(np, name):
        return FUNCTIONS[name]
    hint = "supported functions of numpy: " + ", ".join(quoted(one) for one in FUNCTIONS)
    raise ModelError("cannot-export", f"{quoted(owner)} with {quoted(str(name or function))} is not supported", hint=hint)


def drawing(scope: Any, container: Any) -> Node:
    """What adds nodes and constants where skl2onnx converts."""
    numpy_helper = importlib.import_module("onnx").numpy_helper

    def node(op: str, *inputs: str | Array, output: str = "", **attributes: Any) -> str:
        names = []
        for given in inputs:
            name = given if isinstance(given, str) else str(scope.get_unique_variable_name("constant"))
            names.append(name)
            if not isinstance(given, str):
                array = np.asarray(given)
                kind = numpy_helper.from_array(array).data_type
                container.add_initializer(name, kind, list(array.shape), array.reshape(-1).tolist())
        output = output or str(scope.get_unique_variable_name(op.lower()))
        container.add_node(op, names, output, name=scope.get_unique_operator_name(op), **attributes)
        return output

    return node


def _features(node: Node, operator: Any) -> str:
    floats = [node("Cast", one.full_name, to=1) for one in operator.inputs]  # TensorProto.FLOAT
    return floats[0] if len(floats) == 1 else node("Concat", *floats, axis=1)


_KERNELS = ("linear", "rbf", "poly", "polynomial", "sigmoid")


# Estimators as others ---------------------------------------------------------------------------------------------------------


def exchanged(model: Any) -> Any:
    """The model with estimators that skl2onnx has. The object of the user stays as it is."""
    name, made = type(model).__name__, copy.copy(model)
    if name == "KBinsDiscretizer" and model.encode == "onehot":
        made.encode = "onehot-dense"
        made._encoder = copy.copy(model._encoder)
        made._encoder.sparse_output = False
    elif name == "KernelRidge" and model.kernel in _KERNELS and model.dual_coef_.ndim == 1:
        made = _support_vectors(model)
    elif name == "Pipeline":
        made.steps = [(step, exchanged(one)) for step, one in model.steps]
    elif name == "FeatureUnion":
        made.transformer_list = [(part, exchanged(one)) for part, one in model.transformer_list]
    elif name == "ColumnTransformer":
        made.transformers_ = [(part, exchanged(one), columns) for part, one, columns in model.transformers_]
    else:
        return model
    return made


def _support_vectors(model: Any) -> Any:
    svm = importlib.import_module("sklearn.svm")
    gamma = 1.0 / model.X_fit_.shape[1] if model.gamma is None else float(model.gamma)
    kernel = "poly" if model.kernel == "polynomial" else model.kernel
    made = svm.SVR(kernel=kernel, degree=model.degree, coef0=model.coef0, gamma=gamma).fit(model.X_fit_[:2], [0.0, 1.0])
    rows = np.asarray(model.X_fit_, np.float64)
    made.support_, made.support_vectors_ = np.arange(len(rows), dtype=np.int32), rows
    made.dual_coef_ = made._dual_coef_ = np.asarray(model.dual_coef_, np.float64).reshape(1, -1)
    made.intercept_ = made._intercept_ = np.zeros(1)
    made._gamma, made._n_support = gamma, np.array([len(rows), 0], np.int32)
    return made


def target_of(model: Any) -> tuple[Any, Inverse | None]:
    """The regressor of a `TransformedTargetRegressor`, alone or as the last step, and what its results go through."""
    steps = getattr(model, "steps", None)
    last = steps[-1][1] if steps else model
    if type(last).__name__ != "TransformedTargetRegressor":
        return model, None
    inner = last.regressor_
    if steps:
        model = copy.copy(model)
        model.steps = [*steps[:-1], (steps[-1][0], inner)]
    return model if steps else inner, _inverse(last.transformer_)


def _inverse(transformer: Any) -> Inverse:
    match type(transformer).__name__:
        case "FunctionTransformer":
            if transformer.inverse_func is None:
                return lambda _, x: x
            return _function("TransformedTargetRegressor", transformer.inverse_func)
        case "StandardScaler":
            scale = 1.0 if transformer.scale_ is None else transformer.scale_
            offset = 0.0 if transformer.mean_ is None else transformer.mean_
        case "MinMaxScaler":
            scale, offset = 1 / transformer.scale_, -transformer.min_ / transformer.scale_
        case name:
            what = f"`TransformedTargetRegressor` with {quoted(name)} is not supported"
            raise ModelError("cannot-export", what, hint="use a `StandardScaler`, a `MinMaxScaler` or a function of numpy")
    return lambda node, x: node("Add", node("Mul", x, np.float32(scale)), np.float32(offset))


# Estimators as nodes ----------------------------------------------------------------------------------------------------------


def function_transformer(usual: Converter) -> Converter:
    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        if model.func is None:
            usual(scope, operator, container)
            return
        if model.kw_args:
            raise ModelError("cannot-export", "`FunctionTransformer` with `kw_args` is not supported", hint="leave them out")
        node = drawing(scope, container)
        result = _function("FunctionTransformer", model.func)(node, _features(node, operator))
        node("Identity", result, output=operator.outputs[0].full_name)

    return convert


def function_shape(operator: Any) -> None:
    types = importlib.import_module("skl2onnx.common.data_types")
    widths = [one.type.shape[1] for one in operator.inputs]
    operator.outputs[0].type = types.FloatTensorType([None, None if None in widths else sum(widths)])


def modified_huber(usual: Converter) -> Converter:
    """Probabilities are clipped, so that several may be the largest: scikit-learn's labels follow the scores."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        if model.loss != "modified_huber" or model.classes_.dtype.kind not in "iub" or len(model.classes_) == 2:
            usual(scope, operator, container)
            return
        label = operator.outputs[0].full_name
        other = scope.get_unique_variable_name("label_of_probabilities")
        add = container.add_node

        def add_renamed(op: str, inputs: Any, outputs: Any, *given: Any, **attributes: Any) -> Any:
            names = [outputs] if isinstance(outputs, str) else outputs
            return add(op, inputs, [other if name == label else name for name in names], *given, **attributes)

        container.add_node = add_renamed
        try:
            usual(scope, operator, container)
        finally:
            del container.add_node
        node = drawing(scope, container)
        weights = model.coef_.T.astype(np.float32), model.intercept_.astype(np.float32)
        scores = node("Add", node("MatMul", _features(node, operator), weights[0]), weights[1])
        best = node("ArgMax", scores, axis=1, keepdims=0)
        node("Gather", model.classes_.astype(np.int64), best, output=label)

    return convert


def elliptic_envelope(scope: Any, operator: Any, container: Any) -> None:
    model, node = operator.raw_operator, drawing(scope, container)
    away = node("Sub", _features(node, operator), model.location_.astype(np.float32))
    # A root of the precision: the distance is a sum of squares.
    values, vectors = np.linalg.eigh(model.get_precision())
    root = vectors * np.sqrt(np.maximum(values, 0))
    along = node("MatMul", away, root.astype(np.float32))
    distance = node("ReduceSum", node("Mul", along, along), np.array([1], np.int64), keepdims=1)
    score = operator.outputs[1].full_name
    node("Sub", np.float32(-model.offset_), distance, output=score)
    outside = node("Less", score, np.float32(0))
    node("Where", outside, np.int64(-1), np.int64(1), output=operator.outputs[0].full_name)


def outlier_shape(operator: Any) -> None:
    for one in operator.outputs:
        one.type.shape = [None, 1]


def nearest_centroid(scope: Any, operator: Any, container: Any) -> None:
    model, node = operator.raw_operator, drawing(scope, container)
    if model.metric != "euclidean" or model.classes_.dtype.kind not in "iub":
        what = "`NearestCentroid` with a metric other than `euclidean`, or with classes that are no whole numbers, is not supported"
        raise ModelError("cannot-export", what, hint="use a `KNeighborsClassifier`")
    centre = model.centroids_.mean(axis=0)
    x = node("Sub", _features(node, operator), centre.astype(np.float32))
    spread = getattr(model, "within_class_std_dev_", None)
    if spread is None:
        raise ModelError("cannot-export", "`NearestCentroid` needs scikit-learn 1.6 or newer", hint="fit the model with that")
    spread = np.where(spread != 0, spread, 1.0)
    prior = model.class_prior_

    def scores(scale: Array, more: Array) -> str:
        """-|x - c|^2 of scaled features, without |x|^2, which all classes have in common."""
        c = (model.centroids_ - centre) / scale
        return node("Add", node("MatMul", x, (2 * c / scale).T.astype(np.float32)), (more - (c * c).sum(axis=1)).astype(np.float32))

    likely = scores(spread, 2 * np.log(prior))
    equal = bool(np.isclose(prior, 1 / len(prior)).all())
    best = node("ArgMax", scores(np.ones_like(spread), np.zeros(len(prior))) if equal else likely, axis=1, keepdims=0)
    node("Gather", model.classes_.astype(np.int64), best, output=operator.outputs[0].full_name)
    node("Softmax", likely, axis=1, output=operator.outputs[1].full_name)


def chain(scope: Any, operator: Any, container: Any) -> None:
    """Each estimator reads the features and what those before it say."""
    algebra = importlib.import_module("skl2onnx.algebra.onnx_ops")
    sub = importlib.import_module("skl2onnx.algebra.onnx_operator").OnnxSubEstimator
    model, version = operator.raw_operator, container.target_opset
    method = getattr(model, "chain_method_", "predict")
    if method not in ("predict", "predict_proba") or len(operator.inputs) != 1:
        what = f"{quoted(type(model).__name__)} with `chain_method={method!r}` is not supported"
        raise ModelError("cannot-export", what, hint="use `predict` or `predict_proba`, and a table without names")
    options = {} if len(operator.outputs) == 1 else {"options": {"zipmap": False}}
    x, told = operator.inputs[0], []
    column = np.array([-1, 1], np.int64)
    for estimator in model.estimators_:
        made = sub(estimator, x, op_version=version, **options)
        first = algebra.OnnxReshape(made[0] if options else made, column, op_version=version)
        told.append((first, made[1] if options else None))
        feature = first
        if method == "predict_proba":
            feature = algebra.OnnxGather(made[1], np.array([1], np.int64), axis=1, op_version=version)
        feature = algebra.OnnxCast(feature, to=1, op_version=version)
        x = algebra.OnnxConcat(x, feature, axis=1, op_version=version)
    order = np.argsort(model.order_)
    for n, output in enumerate(operator.outputs):
        parts = [told[k][0] for k in order]
        if n:
            second = np.array([1], np.int64)
            parts = [algebra.OnnxGather(told[k][1], second, axis=1, op_version=version) for k in order]
        joined = algebra.OnnxConcat(*parts, axis=1, op_version=version, output_names=[output])
        joined.add_to(scope=scope, container=container)


def chain_shape(operator: Any) -> None:
    for one in operator.outputs:
        one.type.shape = [None, len(operator.raw_operator.estimators_)]


def register() -> None:
    """Estimators without a converter get one, where skl2onnx looks them up."""
    skl2onnx = importlib.import_module("skl2onnx")
    names = importlib.import_module("skl2onnx._supported_operators").sklearn_operator_name_map
    for module, name, shape, converter in _OWN:
        one = getattr(importlib.import_module(f"sklearn.{module}"), name)
        if one not in names:
            skl2onnx.update_registered_converter(one, f"Intaglio{name}", shape, converter)


def classifier_shape(operator: Any) -> None:
    operator.outputs[0].type.shape = [None]
    operator.outputs[1].type.shape = [None, len(operator.raw_operator.classes_)]


_OWN: tuple[tuple[str, str, Callable[[Any], None], Converter], ...] = (
    ("covariance", "EllipticEnvelope", outlier_shape, elliptic_envelope),
    ("neighbors", "NearestCentroid", classifier_shape, nearest_centroid),
    ("multioutput", "RegressorChain", chain_shape, chain),
    ("multioutput", "ClassifierChain", chain_shape, chain),
)
