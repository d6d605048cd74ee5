"""Importing this registers a row for every TFLite operator that is supported."""

from intaglio.frontends.tflite.rows import convolution, elementwise, recurrent, reduction, shaping, variables

__all__ = ["convolution", "elementwise", "recurrent", "reduction", "shaping", "variables"]
