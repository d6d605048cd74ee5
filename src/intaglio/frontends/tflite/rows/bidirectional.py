"""BIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_RNN: the layers of one direction twice, each with its operands.

    y = [forward(x), backward(x)]      as one result (`merge_outputs`) or two

Another input beside x is that of the backward layer (stacked layers without links between directions), or, with weights of its
own, is added in both (`tf.contrib.rnn.stack_bidirectional_rnn`).
"""

from __future__ import annotations

from dataclasses import replace

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.recurrent import float_lstm, float_rnn
from intaglio.frontends.tflite.walk import TFLiteCall, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.move import Concat

_NONE = -1
# Where the operands of one direction stand: weights, biases, projection; states; norms; another input and its weights.
_LSTM = (
    (0, *range(1, 18), 35, 36, *[_NONE] * 4, 39, 40, 41, 42, 43),
    (0, *range(18, 35), 37, 38, *[_NONE] * 4, 39, 44, 45, 46, 47),
)
_RNN = ((0, 1, 2, 3, 4, 9, 10), (0, 5, 6, 7, 8, 9, 11))


def _way(call: TFLiteCall, places: tuple[int, ...], other: int, crossed: bool, backward: bool) -> TFLiteCall:
    """The operator of one direction."""
    given = [call.operator.inputs[n] if 0 <= n < len(call.operator.inputs) else _NONE for n in places]
    if call.has(other) and not crossed:
        given = [n if p != other else _NONE for n, p in zip(given, places, strict=True)]
        given[0] = call.operator.inputs[other] if backward else given[0]
    return TFLiteCall(call.walk, call.graph, replace(call.operator, inputs=tuple(given)), call.values)


def _check(call: TFLiteCall, other: int) -> None:
    for n in (0, other) if call.has(other) else (0,):
        x = call.value(n)
        if x.dtype is not DType.F32 or x.type.rank != 3:
            kind = f"{x.dtype.value}{list(x.shape)}"
            raise Fault("unsupported-operator", f"layers of two directions of {kind} are not supported", "use float activations")


def _give_both(call: TFLiteCall, made: list[Value]) -> None:
    if call.options.MergeOutputs():
        call.give(call.emit(Concat(2), *made))
        return
    for n, value in enumerate(made):
        call.give(value, n)


@importer("BIDIRECTIONAL_SEQUENCE_LSTM")
def both_lstms(call: TFLiteCall) -> None:
    _check(call, 39)
    ways = [_way(call, places, 39, call.has(41), n == 1) for n, places in enumerate(_LSTM)]
    time_major = bool(call.options.TimeMajor())
    _give_both(call, [float_lstm(way, way.value(0), time_major, n == 1) for n, way in enumerate(ways)])


@importer("BIDIRECTIONAL_SEQUENCE_RNN")
def both_rnns(call: TFLiteCall) -> None:
    """LiteRT's kernel has faults that a model cannot mean; these forms are refused."""
    _check(call, 9)
    time_major, crossed = bool(call.options.TimeMajor()), call.has(10)
    if time_major and call.tensor(1).dtype is not DType.F32:
        raise Fault("unsupported-operator", "with 8-bit weights and the time first, LiteRT runs over the sequence several times")
    if call.has(9) and not crossed and not time_major:
        raise Fault("unsupported-operator", "with the batch first, LiteRT ignores the other input of the backward layer")
    ways = [_way(call, places, 9, crossed, n == 1) for n, places in enumerate(_RNN)]
    _give_both(call, [float_rnn(way, way.value(0), time_major, n == 1) for n, way in enumerate(ways)])
