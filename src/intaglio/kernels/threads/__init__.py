"""Kernels in parts, for several threads (`--threads`): `split.py`."""
