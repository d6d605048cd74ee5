"""The C project: header, layers, weights, manifest, archive. Written from a template around the kernels."""
