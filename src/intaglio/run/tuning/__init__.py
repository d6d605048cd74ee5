"""Kernels of this processor, measured.

layers     what a layer is called in a database: operator, attributes, shapes and types
database   times by processor and layer, in a text file
trial      one layer as a program with all ways to compute it, built and timed
search     the layers of a model, one after the other
"""
