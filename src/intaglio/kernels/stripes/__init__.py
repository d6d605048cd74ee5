"""Layers a few rows at a time: the order of their rows, their kernels, and the windows between them."""
