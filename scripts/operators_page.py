"""Write docs/reference/operators.md: what each front end does with every operator of its format. `python scripts/operators_page.py`

The operators are those of the installed libraries (onnx, onnxruntime, the TFLite schema, Keras) and the rows of the front ends
themselves. How exact a result is follows from what an operator does: see `KINDS`."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "operators.md"
EXACT, BOUND, BOUNDED, RANDOM, REFUSED = "exact", "within a bound", "bounded", "random", "refused"
KINDS = {
    EXACT: "moves data, compares, or computes whole numbers or strings: the same bits as the reference",
    BOUND: "computes floats: within 1e-4 of the largest value, or 4 times the model's own noise; integer forms are exact",
    BOUNDED: "finds as many results as there are: exact, with room for a largest number (`--max`)",
    RANDOM: "draws numbers from a generator with a seed, or takes them as an input (`--random input`)",
    REFUSED: "ends the compile with a message that says why, and what to do",
}
# Names without case and underscores, so that a row serves all formats.
_MOVES = """
identity reshape flatten squeeze unsqueeze transpose permute concat concatenate gather gathernd gatherelements slice
stridedslice expand broadcastto tile split splitv splittosequence pad padv2 mirrorpad pack unpack stack unbind unfold
depthtospace spacetodepth reverse reversev2 reversesequence flip roll compress scatter scatternd scatterelements where select
selectv2 shape size rank constant constantofshape fill eyelike onehot range trilu sequenceat sequenceconstruct sequenceempty
sequenceerase sequenceinsert sequencelength sequencemap concatfromsequence optional optionalgetelement optionalhaselement if
loop scan while call callonce tensorscatter spacetobatchnd batchtospacend maxunpool centercroppad bitcast view clone copy detach
contiguous chunk narrow t cat expanddims dynamicupdateslice embeddinglookup embedding identityn stopgradient assignvariable
readvariable varhandle permutedims repeatvector cropping1d cropping2d cropping3d zeropadding1d zeropadding2d zeropadding3d
permute upsampling1d inputlayer zeros ones arange full tril triu diag diagonal movedim swapaxes zeroslike oneslike fulllike
matrixdiag matrixsetdiag sparsetodense hashtablelookup maxunpooling2d litertmaxunpooling2d broadcastindim iota dynamicslice
optimizationbarrier composite bitcastconvert centercrop pipeline
"""
_WHOLE = """
and or xor not equal greater greaterorequal less lessorequal notequal logicaland logicalor logicalnot bitwiseand bitwiseor
bitwisexor bitwisenot bitshift isnan isinf argmax argmin max min maximum minimum sign abs neg relu clip reducemax reducemin
reduceany reduceall maxpool maxpool2d globalmaxpool floor ceil round convinteger matmulinteger qlinearconv qlinearmatmul
stringconcat stringnormalizer stringsplit regexfullmatch labelencoder categorymapper onehotencoder binarizer
arrayfeatureextractor floordiv floormod sort argsort rightshift quantizelinear dequantizelinear dynamicquantizelinear relu6
relun1to1 hardmax topk topkv2 eq ne lt le gt ge any all amax amin maxpooling1d maxpooling2d maxpooling3d globalmaxpooling1d
globalmaxpooling2d globalmaxpooling3d bucketize isfinite unsortedsegmentmax unsortedsegmentmin nonmaxsuppressionv4
nonmaxsuppressionv5 threshold bitwiseleftshift bitwiserightshift broadcastargs segmentids compare clamp negate shiftleft
signalwindow signalfftautoscale signalenergy signalfilterbank signalfilterbanksquareroot signalfilterbankspectralsubtraction
signalpcan signalfilterbanklog dictvectorizer castmap maxroipool mulinteger reducesuminteger matmulinteger16 unfoldtensor sampleop
torchembedding isallfinite murmurhash3 ngramrepeatblock maxpoolwithmask shiftrightlogical shiftrightarithmetic popcnt
countleadingzeros roundnearestafz integerlookup stringlookup categoryencoding discretization
hashtable hashtablefind hashtableimport hashtablesize adaptivemaxpooling1d adaptivemaxpooling2d adaptivemaxpooling3d
"""
_FOUND = "nonzero unique nonmaxsuppression range compress stringsplit where"
_DRAWN = "randomnormal randomnormallike randomuniform randomuniformlike randomstandardnormal bernoulli multinomial"
# Of PyTorch, whose words mean something else in other formats.
_DRAWN_THERE = "rand randlike randn randnlike randint randintlike randperm normal normalfunctional uniform exponential"
_COUNTED = "nonzero nonzeronumpy argwhere maskedselect unique unique2 uniquedim uniqueconsecutive uniquedimconsecutive bincount"
# The operations of StableHLO as its dialect of 2026 has them, without those of several devices.
_STABLEHLO = """
abs add and atan2 batch_norm_inference batch_norm_training bitcast_convert broadcast_in_dim case cbrt ceil cholesky clamp compare
complex composite concatenate constant convert convolution cosine count_leading_zeros custom_call divide dot_general
dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad dynamic_reshape dynamic_slice dynamic_update_slice
exponential exponential_minus_one fft floor gather if imag iota is_finite log log_plus_one logistic map maximum minimum multiply
negate not optimization_barrier or pad popcnt power real reduce reduce_precision reduce_window remainder reshape reverse rng
rng_bit_generator round_nearest_afz round_nearest_even rsqrt scatter select select_and_scatter shift_left shift_right_arithmetic
shift_right_logical sign sine slice sort sqrt subtract tan tanh transpose triangular_solve uniform_dequantize uniform_quantize while
xor
"""


def _plain(name: str) -> str:
    plain = name.rpartition(":")[2].partition(".")[0].replace("_", "").lower()
    return plain.removeprefix("stablehlo").removeprefix("custom ")


def kind_of(name: str, found: Iterable[str] = (), drawn: Iterable[str] = ()) -> str:
    """`found`: operators of this front end whose results may be found in data; `drawn`: those that draw numbers."""
    plain = _plain(name)
    if plain in found:
        return BOUNDED
    if plain in (*_DRAWN.split(), *drawn):
        return RANDOM
    return EXACT if plain in _MOVES.split() or plain in _WHOLE.split() else BOUND


def only_refuses(row: Callable[..., object]) -> bool:
    """Does a row do nothing but say why not?"""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(row))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    body = tree.body if isinstance(tree, ast.FunctionDef) else []
    said = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return bool(said) and all(isinstance(s, ast.Raise) for s in said)


# What there is --------------------------------------------------------------------------------------------------------------


def onnx_rows() -> dict[str, str]:
    import onnx

    from intaglio.cli.operators import onnx_operators
    from intaglio.frontends.onnx.call import TABLE

    known = set(onnx_operators())
    refusing = {f"{d}:{n}" if d else n for (d, n), row in TABLE.items() if only_refuses(row)} - {"StringConcat", "StringNormalizer"}
    refusing -= {"StringSplit", "RegexFullMatch"}  # of operands that are no strings
    schemas: list[Any] = list(onnx.defs.get_all_schemas())
    every = {f"{s.domain}:{s.name}" if s.domain else s.name for s in schemas if not s.deprecated} | known
    own = sorted(name for name in every if "microsoft" not in name)
    return {n: REFUSED if n not in known or n in refusing else kind_of(n, _FOUND.split()) for n in own}


def microsoft_rows() -> dict[str, str]:
    from onnxruntime.capi import onnxruntime_pybind11_state as runtime

    from intaglio.cli.operators import onnx_operators

    known = {n.partition(":")[2] for n in onnx_operators() if n.startswith("com.microsoft:")}
    every = {s.name for s in runtime.get_all_operator_schema() if s.domain == "com.microsoft"} | known
    return {name: kind_of(name) if name in known else REFUSED for name in sorted(every)}


def tflite_rows() -> dict[str, str]:
    import tflite

    from intaglio.cli.operators import tflite_operators
    from intaglio.frontends.tflite.walk import ROWS

    known = set(tflite_operators())
    every = {n for n in vars(tflite.BuiltinOperator) if n.isupper() and n not in ("CUSTOM", "DELEGATE")} | known
    every = {n for n in every if not n.startswith("PLACEHOLDER")}
    return {n: REFUSED if n not in known or only_refuses(ROWS[n]) else kind_of(n, ("unique",)) for n in sorted(every)}


def torch_rows() -> dict[str, str]:
    from intaglio.cli.operators import torch_operators
    from intaglio.frontends.torch.call import TABLE
    from intaglio.frontends.torch.rows.spectrum import MATHS

    known = torch_operators()  # fills the table
    refusing = {name.removeprefix("aten.") for name, row in TABLE.items() if only_refuses(row)} - set(MATHS)
    return {name: REFUSED if name in refusing else kind_of(name, _COUNTED.split(), _DRAWN_THERE.split()) for name in known}


def keras_rows() -> dict[str, str]:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    from intaglio.frontends.keras.config import MODELS
    from intaglio.frontends.keras.walk import LAYERS, fill_tables

    fill_tables()
    base = keras.layers.Layer
    public = {n for n, c in vars(keras.layers).items() if inspect.isclass(c) and issubclass(c, base) and c is not base}
    known = set(LAYERS) | (public & set(MODELS)) | {n for n in public if vars(keras.layers)[n].__name__ in LAYERS}
    refusing = {name for name, row in LAYERS.items() if only_refuses(row)}
    return {name: REFUSED if name not in known or name in refusing else kind_of(name) for name in sorted(public | known)}


def jax_rows() -> dict[str, str]:
    from importlib import import_module

    from intaglio.frontends import stablehlo
    from intaglio.frontends.jax.complex_numbers import MATHS
    from intaglio.frontends.jax.walk import ROW_FILES, ROWS

    for rows in ROW_FILES:
        import_module(f"intaglio.frontends.jax.{rows}")
    every = set(_STABLEHLO.split()) | set(ROWS)
    plain = {"not", *stablehlo.UNARY, *stablehlo.WRITTEN_OUT, *MATHS}
    known = set(ROWS) | {n for n in every if stablehlo.is_binary(n) or n in plain}
    return {name: kind_of(name) if name in known else REFUSED for name in sorted(every)}


FRONT_ENDS: Mapping[str, tuple[str, Callable[[], dict[str, str]]]] = {
    "ONNX": ("All operators of onnx's newest opsets, with `ai.onnx.ml` and training.", onnx_rows),
    "ONNX Runtime": ("`com.microsoft`: every operator that ONNX Runtime has a schema for, GPUs included.", microsoft_rows),
    "TFLite": ("All built-in operators of the schema, and custom ones that have a row.", tflite_rows),
    "PyTorch": ("ATen operators that have a row; others are refused by name.", torch_rows),
    "Keras": ("Layers of `keras.layers`, and rows for those of Keras 2.", keras_rows),
    "JAX": ("Operations of StableHLO, which `jax.export` writes.", jax_rows),
}


def page() -> str:
    found = {title: rows() for title, (_, rows) in FRONT_ENDS.items()}
    lines = [
        "# Operators",
        "",
        "Generated by `scripts/operators_page.py` from the tables of the front ends and the operators of the installed libraries.",
        "[Conformance](onnx-conformance.md) has the results of ONNX's own tests, [exactness](exactness.md) what is equal to what.",
        "",
        *(f"- **{kind}**: {text}." for kind, text in KINDS.items()),
        "",
        "| front end | operators | " + " | ".join(KINDS) + " |",
        "| --- | ---: |" + " ---: |" * len(KINDS),
    ]
    for title, rows in found.items():
        counts = [sum(kind == k for k in rows.values()) for kind in KINDS]
        lines.append(f"| {title} | {len(rows)} | " + " | ".join(map(str, counts)) + " |")
    for title, rows in found.items():
        lines += part(title, rows)
    return "\n".join(lines) + "\n"


def part(title: str, rows: Mapping[str, str]) -> list[str]:
    """What the page says of one front end."""
    lines = ["", f"## {title}", "", FRONT_ENDS[title][0]]
    for kind in KINDS:
        names = [f"`{name}`" for name, k in rows.items() if k == kind]
        if names:
            text = textwrap.fill(" ".join(names), 130, break_long_words=False, break_on_hyphens=False)
            lines += ["", f"**{kind}** ({len(names)}):", text]
    return lines


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
