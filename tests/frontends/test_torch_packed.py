"""Packed sequences around recurrent layers: padded ones with lengths in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence  # noqa: E402

import intaglio  # noqa: E402
from intaglio.frontends.torch import load, save_object  # noqa: E402
from support.torch_running import computed  # noqa: E402


class Tagger(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self, kind: Any, batch_first: bool = True, sort: bool = False, scaled: bool = False, **options: Any) -> None:
        super().__init__()
        self.rnn = kind(3, 4, batch_first=batch_first, **options)
        self.batch_first, self.sort, self.scaled = batch_first, sort, scaled

    def forward(self, x: Any, lengths: Any) -> Any:
        packed = pack_padded_sequence(x, lengths, self.batch_first, enforce_sorted=not self.sort)
        y, last = self.rnn(packed)
        if self.scaled:  # of the steps that there are
            y = PackedSequence(torch.relu(y.data) + 1, y.batch_sizes, y.sorted_indices, y.unsorted_indices)
        made, counts = pad_packed_sequence(y, self.batch_first, padding_value=-2.0, total_length=5)
        return made, counts, last


KINDS: dict[str, tuple[Any, list[int]]] = {
    "lstm": (lambda: Tagger(nn.LSTM), [5, 3, 1]),
    "unsorted": (lambda: Tagger(nn.LSTM, sort=True), [2, 5, 1]),
    "both ways": (lambda: Tagger(nn.LSTM, bidirectional=True, num_layers=2, sort=True), [1, 4, 3]),
    "gru": (lambda: Tagger(nn.GRU, batch_first=False, bidirectional=True), [5, 2, 2]),
    "rnn": (lambda: Tagger(nn.RNN, sort=True, nonlinearity="relu", bias=False), [3, 3, 5]),
    "scaled": (lambda: Tagger(nn.GRU, sort=True, scaled=True), [4, 1, 2]),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_packed_sequences_are_those_of_torch(kind: str, tmp_path: Path) -> None:
    make, counts = KINDS[kind]
    torch.manual_seed(1)
    module, lengths = make().eval(), torch.tensor(counts)
    x = torch.randn((3, 5, 3) if module.batch_first else (5, 3, 3))
    save_object(module, (x, torch.tensor([5, 4, 3])), tmp_path / "m.pt2")
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(x, lengths))
    made = computed(graph, (x, lengths))
    assert len(made) == len(wanted)
    assert all(np.allclose(a, b.numpy(), atol=1e-6) for a, b in zip(made, wanted, strict=True))


@pytest.mark.slow
def test_validate_compares_with_packed_sequences_of_torch(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = Tagger(nn.LSTM, sort=True, bidirectional=True).eval()
    x, lengths = torch.randn(2, 5, 3), torch.tensor([5, 3])
    package = intaglio.compile(module, example_inputs=(x, lengths), output=tmp_path / "p")
    given = {"in0": x.numpy(), "in1": np.array([2, 4])}
    result = package.validate(inputs=given)
    assert result.ok and result.reference.startswith("torch ")
