"""NAME_vectors.h: the test vectors of `test/` as C arrays, for the self-test on a device. For a network `kws`:

    #define KWS_VECTORS 1
    static const unsigned char kws_vector_in0[490] = { ... };     the bytes of the tensor
    static const unsigned char kws_vector_out0[12] = { ... };
    #define KWS_TOLERANCE_0 1e-04f                                absolute, for outputs of floats

Where there are none, KWS_VECTORS is 0 and a comment says why.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intaglio.errors import UserError, printable, quoted
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import widen
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.package.tolerance import share

MOST_BYTES = 64 << 10  # more is rarely worth a device's flash


def write_selftest(manifest: Manifest, folder: Path, *, without: bool = False) -> str:
    """Write the header. Returns why it has no vectors, or nothing."""
    size = sum(info.bytes for info in (*manifest.inputs, *manifest.outputs))
    reason = ""
    if without:
        reason = "the board's flash has no room for the test vectors"
    elif not (folder / "test" / "vectors.json").is_file():
        reason = "the package has no test vectors"
    elif size > MOST_BYTES:
        reason = f"test vectors of {size} bytes are too large for a device (at most {MOST_BYTES})"
    upper = manifest.name.upper()
    lines = [f"/* Test vectors of {manifest.name}, as in test/. */", f"#define {upper}_VECTORS {0 if reason else 1}"]
    if reason:
        lines.append(f"/* {reason} */")
    else:
        for stem, infos in (("in", manifest.inputs), ("out", manifest.outputs)):
            for index, info in enumerate(infos):
                array = stored_vector(folder / "test" / f"{stem}{index}.npy")
                lines += ["", *_array(f"{manifest.name}_vector_{stem}{index}", np.ascontiguousarray(array))]
                if stem == "out" and DType(info.dtype).is_float:
                    lines.append(f"#define {upper}_TOLERANCE_{index} {_tolerance(array, info)}")
    (folder / "src" / f"{manifest.name}_vectors.h").write_text("\n".join([*lines, ""]), encoding="ascii")
    return reason


def stored_vector(path: Path) -> Array:
    """A test vector of a package, which somebody may have damaged."""
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, EOFError, OSError) as error:
        hint = "compile the model again; `intaglio verify` lists what has changed"
        what = f"the test vector {quoted(path.name)} is damaged: {printable(str(error), 120)}"
        raise UserError("bad-package", what, hint=hint) from None


def _array(name: str, array: Array) -> list[str]:
    data = array.tobytes() or b"\0"
    rows = [", ".join(str(byte) for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
    start = f"static const __attribute__((aligned(8))) unsigned char {name}[{len(data)}] = {{"
    return [start, *(f"    {row}," for row in rows), "};"]


def _tolerance(array: Array, info: TensorInfo) -> str:
    """Absolute: a share of the largest value that the reference gives."""
    dtype = DType(info.dtype)
    real = widen(array, dtype).astype(np.float64)
    finite = np.abs(real[np.isfinite(real)])
    largest = max(float(finite.max(initial=0.0)), 1e-6)
    return f"{share(dtype, info.rounded) * largest:.6e}{'' if dtype is DType.F64 else 'f'}"
