"""Run as a program, with the sanitizers loaded first: calls every kernel of a library once and compares with the reference.

`kernel_sanitized.py LIBRARY ISA`; beside the library, a .json file names the case of each kernel."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from support.kernel_quick import ALL
from support.kernel_running import TARGETS, assert_close, call_compiled, prepare


def main(path: str, isa: str) -> None:
    library = ctypes.CDLL(path)
    order = json.loads(Path(path).with_suffix(".json").read_text())  # the names of the cases, k0 first
    assert set(order) <= set(ALL), "the cases changed since the library was built"
    for n, name in enumerate(order):
        call = prepare(ALL[name], TARGETS[isa])
        call.lowered.kernel.name = f"k{n}"
        print(name, flush=True)
        assert call_compiled(library, call) == 0, name
        shapes = [out.shape for out in ALL[name].node().outputs]
        results = [call.arrays[at].reshape(shape) for at, shape in zip(call.outputs, shapes, strict=True)]
        assert_close(ALL[name], results, ALL[name].expected())
    print(f"{len(order)} kernels")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
