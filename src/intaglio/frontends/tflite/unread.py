"""What LiteRT's kernels do not read of a file, though it says what it means: their results are no yardstick then."""

from __future__ import annotations

from pathlib import Path

from intaglio.frontends.tflite.blockwise import BLOCKWISE

_INTEGERS = (7, 9)  # TensorType.INT16, INT8
_BLOCKS = "the reference kernels of LiteRT do not know scales for blocks of weights"
_COLUMNS = "LiteRT reads one scale where a matrix of `BATCH_MATMUL` has one for each column"


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
            if max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) != tflite.BuiltinOperator.BATCH_MATMUL:
                continue
            left, right = operator.Inputs(0), operator.Inputs(1)
            q = quantised[right]
            if graph.Tensors(left).Type() in _INTEGERS and q is not None and q.ScaleLength() > 1:
                return _COLUMNS
    return None
