"""Kernels for OpenCL devices: work-items instead of loops. Builders here are tried first; what is left is spread by proof."""
