"""Modules that torch has quantised dynamically, as objects."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import intaglio  # noqa: E402
from intaglio.errors import ModelError  # noqa: E402
from intaglio.frontends.torch import load, save_object  # noqa: E402
from support.torch_running import computed  # noqa: E402

if torch.backends.quantized.engine not in ("x86", "fbgemm"):
    pytest.skip("results of other engines have other steps", allow_module_level=True)
MOST_WRONG = 1e-6  # of the largest value


def quantised(module: Any, dtype: Any = None, by_channel: bool = False) -> Any:
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    torch.manual_seed(2)
    for weight in module.parameters():
        nn.init.normal_(weight, std=0.5)
    kinds = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
    chosen: Any = dict.fromkeys(kinds, per_channel_dynamic_qconfig) if by_channel else set(kinds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize_dynamic(module.eval(), chosen, dtype=dtype or torch.qint8)


class Cells(nn.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru, self.rnn = nn.LSTMCell(8, 4), nn.GRUCell(8, 4), nn.RNNCell(8, 4, nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        h, c = self.lstm(x)
        return h, c, self.gru(x, h), self.rnn(x)


STEPS = (2, 2, 8)
MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: quantised(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3, bias=False))), (4, 8)),
    "by channel": (lambda: quantised(nn.Sequential(nn.Linear(8, 6)), by_channel=True), (2, 4, 8)),
    "half": (lambda: quantised(nn.Sequential(nn.Linear(8, 6)), torch.float16), (4, 8)),
    "alone": (lambda: quantised(nn.Sequential(nn.Linear(8, 6)))[0], (4, 8)),
    "lstm": (lambda: quantised(nn.Sequential(nn.LSTM(8, 4, bidirectional=True))), STEPS),
    "lstm of halves": (lambda: quantised(nn.Sequential(nn.LSTM(8, 4)), torch.float16), STEPS),
    "gru": (lambda: quantised(nn.Sequential(nn.GRU(8, 4, 2, batch_first=True))), STEPS),
    "cells": (lambda: quantised(Cells()), (3, 8)),
}


@pytest.mark.parametrize("kind", list(MODELS))
def test_results_are_those_of_eager_mode(kind: str, tmp_path: Path) -> None:
    make, shape = MODELS[kind]
    module, x = make(), torch.randn(shape)
    before = list(module.modules())
    save_object(module, (x,), tmp_path / "m.pt2")
    assert list(module.modules()) == before  # it is left as it was
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    for given in (x, torch.zeros(shape), x.abs() * 1e-5, -x.abs() * 3):
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(module(given))
        made = computed(graph, (given,))
        assert len(made) == len(wanted)
        for a, b in zip(made, wanted, strict=True):
            assert np.abs(a - b.numpy()).max() <= MOST_WRONG * max(1.0, float(b.abs().max()))


@pytest.mark.slow
def test_many_steps_are_a_loop(tmp_path: Path) -> None:
    module, x = quantised(nn.Sequential(nn.LSTM(8, 4))), torch.randn(100, 1, 8)
    package = intaglio.compile(module, example_inputs=(x,), output=tmp_path / "p")
    with torch.no_grad():
        wanted = module(x)[0].numpy()
    assert np.abs(package.run({"in0": x.numpy()})[package.manifest.outputs[0].name] - wanted).max() < 1e-5
    assert package.validate().ok


def test_other_quantised_modules_are_refused(tmp_path: Path) -> None:
    module = nn.Sequential(torch.ao.nn.quantized.Linear(4, 2))
    with pytest.raises(ModelError, match="in a form that it does not export") as caught:
        save_object(module, (torch.zeros(1, 4),), tmp_path / "m.pt2")
    assert "PT2E" in caught.value.hint
