"""Importing this registers a row for every TFLite operator that is supported."""

from intaglio.frontends.tflite.rows import (
    control,
    convolution,
    detection,
    elementwise,
    indexing,
    products,
    recurrent,
    reduction,
    shaping,
    spectrum,
    svdf,
    variables,
)

__all__ = [
    "control", "convolution", "detection", "elementwise", "indexing", "products", "recurrent", "reduction", "shaping", "spectrum",
    "svdf", "variables",
]  # fmt: skip
