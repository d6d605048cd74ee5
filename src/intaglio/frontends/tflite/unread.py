"""What LiteRT's kernels do not read of a file, though it says what it means: their results are no yardstick then."""

from __future__ import annotations

from pathlib import Path

from intaglio.frontends.tflite.blockwise import BLOCKWISE
from intaglio.frontends.tflite.fields import operator_number

_INT8 = 9  # TensorType
_INTEGERS = (7, _INT8)  # and INT16
_BLOCKS = "the reference kernels of LiteRT do not know scales for blocks of weights"
_COLUMNS = "LiteRT reads one scale where a matrix of `BATCH_MATMUL` has one for each column"
_SUM = "the reference kernel of LiteRT leaves the result of a `SUM` of 8 or 16 bits unset"
_SVDF = "LiteRT takes the state of an `SVDF` for one of 16 bits; 8 bits are TFLite Micro's own"
_MERGED = "LiteRT writes beyond the state of a `BIDIRECTIONAL_SEQUENCE_LSTM` that merges its outputs in batches"


def unread(path: Path) -> str | None:
    """Of a file that was read before; None: everything is read."""
    import tflite

    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    for graph in (model.Subgraphs(n) for n in range(model.SubgraphsLength())):
        quantised = [graph.Tensors(n).Quantization() for n in range(graph.TensorsLength())]
        if any(q is not None and q.DetailsType() == BLOCKWISE for q in quantised):
            return _BLOCKS
        for operator in (graph.Operators(n) for n in range(graph.OperatorsLength())):
            code = model.OperatorCodes(operator.OpcodeIndex())
            kind = operator_number(code)
            if not operator.InputsLength():  # such as VAR_HANDLE: `Inputs(0)` would read what follows in the file
                continue
            first = graph.Tensors(max(operator.Inputs(0), 0))
            if kind == tflite.BuiltinOperator.BATCH_MATMUL:
                q = quantised[operator.Inputs(1)]
                if first.Type() in _INTEGERS and q is not None and q.ScaleLength() > 1:
                    return _COLUMNS
            if kind == tflite.BuiltinOperator.SUM and first.Type() in _INTEGERS:
                return _SUM
            state = graph.Tensors(max(operator.Inputs(4), 0)) if operator.InputsLength() > 4 else first
            if kind == tflite.BuiltinOperator.SVDF and state.Type() == _INT8:
                return _SVDF
            if kind == tflite.BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM and first.ShapeLength() and first.Shape(0) > 1:
                options, table = tflite.BidirectionalSequenceLSTMOptions(), operator.BuiltinOptions()
                options.Init(table.Bytes, table.Pos)
                if options.MergeOutputs() and not options.TimeMajor():
                    return _MERGED
    return None
