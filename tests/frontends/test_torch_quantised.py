"""Models that PT2E has quantised: integers here, within one step of eager."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchao")

from torch import nn  # noqa: E402

import intaglio  # noqa: E402
from intaglio.passes.absorb import absorbed  # noqa: E402
from support.torch_architectures import Block, conv_bn  # noqa: E402
from support.torch_running import computed, graph_of, shaken  # noqa: E402


def quantised(module: Any, inputs: tuple[Any, ...], path: Path, *, per_channel: bool = True) -> tuple[Any, float]:
    """The converted module, saved, and the step of its output."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

        quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel))
        prepared = prepare_pt2e(torch.export.export(shaken(module).eval(), inputs).module(), quantizer)
        for _ in range(4):
            prepared(*[torch.randn_like(x) for x in inputs])
        converted = convert_pt2e(prepared)
        program = torch.export.export(converted, inputs)
        torch.export.save(program, str(path))
        logging.disable(logging.NOTSET)
    steps = [n.args[1] for n in program.graph.nodes if "dequantize_per_tensor" in str(n.target)]
    return converted, float(steps[-1])


class Concat(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        return self.c(torch.cat([torch.relu(self.a(x)), self.b(x)], 1))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], set[str]]] = {
    "cnn": (
        lambda: nn.Sequential(conv_bn(3, 8), conv_bn(8, 8, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
        (1, 3, 12, 12),
        {"qconv", "qmatmul"},
    ),
    "residual": (lambda: nn.Sequential(conv_bn(3, 4), Block(4, 4, 1), Block(4, 8, 2)), (1, 3, 8, 8), {"qconv"}),
    "depthwise": (
        lambda: nn.Sequential(conv_bn(3, 8, s=2, act=nn.ReLU6), conv_bn(8, 8, g=8, act=nn.ReLU6), conv_bn(8, 4, 1, act=None)),
        (1, 3, 12, 12),
        {"qconv"},
    ),
    "mlp": (lambda: nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4)), (2, 10), {"qmatmul"}),
    "average pool": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3)), (1, 3, 12, 12), {"qconv"},
    ),
    "max pool": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3)), (1, 3, 12, 12), {"qconv"},
    ),
    "concat": (Concat, (1, 3, 6, 6), {"qconv"}),
}  # fmt: skip


@pytest.mark.parametrize("per_channel", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("name", NETWORKS)
def test_integers_are_within_one_step_of_eager(name: str, per_channel: bool, tmp_path: Path) -> None:
    make, shape, wanted = NETWORKS[name]
    torch.manual_seed(0)
    converted, step = quantised(make(), (torch.zeros(shape),), tmp_path / "m.pt2", per_channel=per_channel)
    graph, _ = absorbed(graph_of(tmp_path / "m.pt2"))
    kinds = Counter(node.op.NAME for node in graph.nodes)
    assert wanted <= set(kinds)
    assert not set(kinds) & {"conv", "matmul", "reduce", "average_pool", "concat" if name != "concat" else ""}
    assert kinds["quantize"] == 1 + kinds["add"]  # of the input, and of sums, which are one loop from integers to integers
    differ = total = 0
    for _ in range(10):
        x = torch.randn(shape)
        got, want = computed(graph, (x,))[0], np.asarray(converted(x).detach())
        apart = np.abs(got - want) / step
        assert apart.max() < 1.01
        differ, total = differ + int((apart > 0.5).sum()), total + apart.size
    assert differ <= 0.03 * total


@pytest.mark.slow
def test_the_package_validates_against_eager(tmp_path: Path) -> None:
    make, shape, _ = NETWORKS["cnn"]
    torch.manual_seed(0)
    converted, step = quantised(make(), (torch.zeros(shape),), tmp_path / "m.pt2")
    package = intaglio.compile(tmp_path / "m.pt2", output=tmp_path / "p")
    result = package.validate()
    assert result.ok
    assert result.reference.startswith("torch ")
    x = torch.randn(shape)
    got = next(iter(package.run({"in0": x.numpy()}).values()))
    assert np.abs(got - converted(x).detach().numpy()).max() < 1.01 * step
