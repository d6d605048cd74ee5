"""Kernels: loop IR, builders per operator family, instruction records, the interpreter and the C printer."""

from intaglio.kernels import (
    contract,
    conv,
    detection,
    dsp,
    elementwise,
    hybrid,
    index,
    integer_conv,
    integer_elementwise,
    integer_pool,
    integer_window,
    matmul,
    movement,
    mve,
    normalize,
    offload,
    quantised,
    quantised_expressions,
    quantised_real,
    quantised_recurrent,
    quantised_rows,
    recurrent,
    reduce,
    resample,
    sample,
    window,
    window_general,
)
from intaglio.kernels.lower import lower
from intaglio.kernels.program import Program

__all__ = ["Program", "lower"]
_BUILDERS = (  # importing registers; the fast path of an operator stands before the general one
    dsp, mve, window, conv, window_general, matmul, elementwise, movement, reduce, normalize, index, resample, integer_conv,
    integer_elementwise, integer_pool, integer_window, quantised, quantised_real, quantised_recurrent, quantised_rows,
    quantised_expressions, detection, hybrid, sample, recurrent, contract,
    offload,
)  # fmt: skip
