"""Packed sequences, which torch does not export: their sizes are data. While a module is exported they are padded ones.

    pack_padded_sequence(x, lengths)     rows of x, one time after the other, all of them: [time * batch, features]
    LSTM, GRU, RNN                       `intaglio::packed_rnn`, an operator of ours: each sequence ends at its length, is read
                                         backwards from there, and its last states are those of then
    pad_packed_sequence(y)               rows of y; those behind a length are `padding_value`

The result has as many steps as `x`; that of torch has as many as the longest sequence, if `total_length` is not given.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_SCHEMA = (
    "packed_rnn(Tensor input, Tensor lengths, Tensor[] hx, Tensor[] params, str kind, bool has_biases, int num_layers, "
    "bool bidirectional) -> (Tensor, Tensor, Tensor)"
)
_LIBRARIES: list[Any] = []  # registered once


def packed_rnn(torch: Any) -> Any:
    """Our operator, as torch computes it."""
    if not _LIBRARIES:
        library = torch.library.Library("intaglio", "FRAGMENT")
        library.define(_SCHEMA)
        library.impl("packed_rnn", _eager, "CompositeExplicitAutograd")
        torch.library.register_fake("intaglio::packed_rnn", _shapes, lib=library)
        _LIBRARIES.append(library)
    return torch.ops.intaglio.packed_rnn


def _eager(
    x: Any, lengths: Any, hx: Any, params: Any, kind: str, has_biases: bool, num_layers: int, bidirectional: bool
) -> tuple[Any, Any, Any]:
    import torch
    from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

    packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
    states = [h.index_select(1, packed.sorted_indices) for h in hx]
    given = states if kind == "lstm" else states[0]
    function = getattr(torch._VF, kind)
    y, *last = function(packed.data, packed.batch_sizes, given, params, has_biases, num_layers, 0.0, False, bidirectional)
    whole = PackedSequence(y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices)
    padded, _ = pad_packed_sequence(whole, total_length=x.shape[0])
    last = [state.index_select(1, packed.unsorted_indices) for state in last]
    return padded, last[0], last[-1].clone()


def _shapes(
    x: Any, lengths: Any, hx: Any, params: Any, kind: str, has_biases: bool, num_layers: int, bidirectional: bool
) -> tuple[Any, Any, Any]:
    time, batch, _ = x.shape
    hidden = hx[0].shape[2]
    return x.new_empty((time, batch, (1 + bidirectional) * hidden)), hx[0].new_empty(hx[0].shape), hx[0].new_empty(hx[0].shape)


def _found(row: tuple[Any, Any, int, int] | None) -> tuple[Any, Any, int, int]:
    assert row is not None
    return row


@contextmanager
def padded_sequences(torch: Any) -> Iterator[None]:
    """Packed sequences are padded ones, as long as this lasts."""
    operator = packed_rnn(torch)
    known: list[tuple[Any, Any, int, int]] = []  # what stands for sizes of batches: lengths, the steps, the batch

    def of(sizes: object) -> tuple[Any, Any, int, int] | None:
        return next((row for row in known if row[0] is sizes), None)

    def pack(x: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
        x = x.transpose(0, 1) if batch_first else x
        steps = torch.arange(x.shape[0], device=lengths.device)
        sizes = (lengths.reshape(1, -1) > steps.reshape(-1, 1)).sum(1)
        known.append((sizes, lengths, x.shape[0], x.shape[1]))
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), sizes

    def pad(data: Any, sizes: Any, batch_first: bool, value: float, total: int) -> tuple[Any, Any]:
        _, lengths, time, batch = _found(of(sizes))
        rows = data.reshape(time, batch, *data.shape[1:])
        counts = lengths.reshape(1, -1) > torch.arange(time, device=lengths.device).reshape(-1, 1)
        rows = torch.where(counts.reshape(time, batch, *[1] * (data.dim() - 1)), rows, torch.full_like(rows, value))
        if total > time:
            rows = torch.cat([rows, rows.new_full((total - time, *rows.shape[1:]), value)])
        return rows.transpose(0, 1) if batch_first else rows, lengths

    def run(
        kind: str, data: Any, sizes: Any, hx: Any, params: Any, biases: bool, layers: int, dropout: float, train: bool, both: bool
    ) -> tuple[Any, ...]:
        _, lengths, time, batch = _found(of(sizes))
        hx = list(hx) if kind == "lstm" else [hx]
        if kind == "lstm" and hx[0].shape[2] != hx[1].shape[2]:
            raise ValueError("an LSTM with a projection of a packed sequence is not supported")
        y, h, c = operator(data.reshape(time, batch, data.shape[1]), lengths, hx, params, kind, biases, layers, both)
        y = y.reshape(time * batch, y.shape[2])
        return (y, h, c) if kind == "lstm" else (y, h)

    class Padded(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = getattr(function, "__name__", ""), kwargs or {}
            if name == "_pack_padded_sequence":
                return pack(*args, **kwargs)
            if name == "_pad_packed_sequence" and of(args[1]):
                return pad(*args, **kwargs)
            if name in KINDS and len(args) > 1 and of(args[1]):
                return run(name, *args, **kwargs)
            if name == "__getitem__" and type(args[1]) is int and args[1] == 0 and (found := of(args[0])):
                return found[3]
            return function(*args, **kwargs)

    with Padded():
        yield
