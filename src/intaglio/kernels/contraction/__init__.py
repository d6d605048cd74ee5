"""Convolutions and matrix products, of floats and of integers.

    Problem          what is computed: sizes, window, strides, padding, groups            problem.py, quantised.py
    gather           how operands reach the arithmetic: read where they are, as rows      gather.py, stage.py, columns.py
                     of a stage, as columns of windows (im2col), or as transformed        winograd.py, qwinograd.py,
                     patches (Winograd)                                                   patches.py, transform.py
    micro-kernel     pack, start, step, finish: what an instruction set does in a tile    micro.py; fma.py, dots.py,
                                                                                          listed.py, ...
    epilogue         what happens to a sum before it is stored                            kernels/epilogue.py, scaling.py,
                                                                                          hybrid_tiles.py

There are two sets of shared loops. `tiles.py` writes the loops around register tiles, for the gathers `Direct` and `Stage` and for
transformed patches. `columns.py` writes the loops around routines in C, for the DSP extension, MVE and plain cores, which gather
columns. A new instruction set brings instructions and, where `fma.py` and `dots.py` do not fit, a micro-kernel: no geometry, no
packing loops, no names of its own.

Other kernels share `Problem`, the numbers of a quantised contraction and the epilogue, but have loops of their own: sliding windows
(depthwise and pooling: `windows.py`, `taps.py`, the depthwise kernels of `dsp/` and `mve/`), kernels that compute one product at a
time (`plain.py`, `hybrid.py`), and the kernels of OpenCL devices (`kernels/opencl/`).
"""
