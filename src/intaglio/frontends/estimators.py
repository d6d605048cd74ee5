"""What is said of estimators that are refused: in the words of their library, with the option that is the cause.

Converters leave some options out, or write operators that no runtime has. The rows of REFUSED name those that are known; all others
are found when the converted model is read or compared, and the message says which estimators it was made of.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from intaglio.errors import IntaglioError, ModelError, quoted

_BEFORE = "do it before the model, in your application"
_INDICATOR = ("with `add_indicator=True` is not supported", "train without it, or " + _BEFORE)
_BOOSTER = "a booster may be the model itself, or the last step of a pipeline"
_OWN = "compute this part in your application, or use another estimator"


def _set(option: str) -> Callable[[Any], bool]:
    return lambda model: bool(getattr(model, option, False))


def _always(model: Any) -> bool:
    return True


def _several(model: Any) -> bool:
    return str((model.get_all_params() if model.is_fitted() else {}).get("loss_function", "")).startswith("Multi")


def _isotonic(model: Any) -> bool:
    return bool(model.method == "isotonic")


# Class, when, what, hint.
REFUSED: tuple[tuple[str, Callable[[Any], bool], str, str], ...] = (
    ("SimpleImputer", _set("add_indicator"), *_INDICATOR),
    ("IterativeImputer", _always, "is not supported", "replace missing values with `SimpleImputer`, or " + _BEFORE),
    ("KNNImputer", _always, "is not supported", "replace missing values with `SimpleImputer`, or " + _BEFORE),
    ("GaussianProcessClassifier", _always, "is not supported: it solves equations for each row", "use another classifier"),
    ("CalibratedClassifierCV", _isotonic, "with `method='isotonic'` is not supported", "use `method='sigmoid'`"),
    ("CatBoostRegressor", _several, "with several targets is not supported: CatBoost writes them as classes", "train one for each"),
)


def parts(model: Any) -> Iterator[Any]:
    """The estimator, and those inside of it."""
    seen: set[int] = set()
    pending = [model]
    while pending:
        one = pending.pop()
        if isinstance(one, (list, tuple)):
            pending += reversed(one)
        elif isinstance(one, np.ndarray):
            pending += reversed(one.reshape(-1).tolist()) if one.dtype.kind == "O" else []
        elif hasattr(one, "get_params") and not isinstance(one, type) and id(one) not in seen:
            seen.add(id(one))
            yield one
            inner = list(vars(one).values())
            pending += [v for value in reversed(inner) for v in (value.values() if isinstance(value, dict) else (value,))]


def names(model: Any) -> str:
    """The classes of an estimator and of those inside of it."""
    found = dict.fromkeys(type(one).__name__ for one in parts(model))
    told = ", ".join(quoted(name) for name in list(found)[1:6]) + (", ..." if len(found) > 6 else "")
    return quoted(type(model).__name__) + (f" (of {told})" if told else "")


def refuse_unknown(model: Any) -> None:
    """Raises where an estimator has a row above."""
    for one in parts(model):
        for name, when, what, hint in REFUSED:
            if type(one).__name__ == name and when(one):
                raise ModelError("cannot-export", f"{quoted(name)} {what}", hint=hint)


def converting(tool: str, model: Any, convert: Callable[[], Any]) -> Any:
    """The result, or an error that says why the tool does not convert the model."""
    try:
        return convert()
    except IntaglioError:
        raise
    except Exception as error:  # converters raise of many kinds
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        unknown = re.search(r"(?:for type|model type|object type|^) ?'?<class '([\w.]+)'>", str(error))
        if unknown is not None:
            what = f"has no converter for {quoted(unknown[1].rsplit('.', 1)[-1])}"
            if unknown[1].startswith(("xgboost.", "lightgbm.")):
                what += f" inside of {quoted(type(model).__name__)}"
                raise ModelError("cannot-export", f"`{tool}` {what}", hint=_BOOSTER) from None
        else:
            said = lines[0] if lines else type(cause).__name__
            what = f"does not convert the model: {quoted(said if len(said.split()) > 1 else repr(cause), 300)}"
        hint = "a model has to be fitted" if _unfitted(model) else _OWN
        raise ModelError("cannot-export", f"`{tool}` {what}", hint=hint) from None


def _unfitted(model: Any) -> bool:
    try:
        importlib.import_module("sklearn.utils.validation").check_is_fitted(model)
    except Exception as error:  # others than this: it cannot be told
        return type(error).__name__ == "NotFittedError"
    return False


def reading(tool: str, model: Any, read: Callable[[], Any]) -> Any:
    """The result, or an error about the estimator in place of one about a node that its user has never seen."""
    try:
        return read()
    except IntaglioError as error:
        what = f"{names(model)} is not supported as `{tool}` converts it: {error.message}"
        raise ModelError("cannot-export", what, hint=_OWN) from None
