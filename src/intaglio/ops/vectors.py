"""Which elementwise operators a vector unit computes by itself, without libm.

Kernels run these in vectors, passes fuse them into the loops of products: both ask here, and neither imports the other.
"""

from __future__ import annotations

_NAMES = """
    add sub mul div neg abs relu reciprocal softsign silu exp log sqrt floor
    ceil round erf tanh sigmoid min max where sign prelu leaky_relu elu selu celu
    thresholded_relu hard_sigmoid hard_swish gelu softplus mish shrink clip equal less less_equal greater greater_equal
"""
VECTOR_OPERATORS = frozenset(_NAMES.split())
