"""Convolutions, matrix products and everything that is one: floats, bytes, hybrids, depthwise, grouped, on every target.

    Problem          what is computed: sizes, window, strides, padding, groups            problem.py, quantised.py
    gather           how operands come to the arithmetic: where they are, as rows of a    gather.py, stage.py
                     stage, as columns of windows, or as sliding windows
    MicroKernel      pack, start, step, finish: what an instruction set does in a tile    micro.py; fma.py, dots.py, ...
    epilogue         what happens to a sum before it is stored                            kernels/epilogue.py, scaling of integers

`tiles.py` writes the loops around a tile for any gather and micro-kernel. A new instruction set brings instructions and, where
`fma.py` and `dots.py` do not fit, a micro-kernel: no geometry, no packing loops, no names of its own.
"""
