"""Known architectures with random weights, exported to ONNX by PyTorch: what people compile, without anybody's weights.

    .venv/bin/python benchmarks/speed/architectures.py FOLDER [PATTERN]        writes those whose names match

Image networks are timm's, the others plain PyTorch. Weights are random; statistics of the batch norms are those of random data, so
that activations keep their range through the network: networks that stay near zero or overflow would be measured on denormals, and
could not be quantised. Files that exist are kept.
"""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

Shape = tuple[int, ...]
OPSET = 18


@dataclass(frozen=True, slots=True)
class Architecture:
    name: str
    shape: Shape
    make: Callable[[], nn.Module]
    tokens: int = 0  # inputs are numbers of words below this


class Dense(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


class LeNet5(nn.Sequential):
    def __init__(self) -> None:
        first = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        second = (nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        head = (nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))
        super().__init__(*first, *second, *head)


class DsCnn(nn.Sequential):
    """Keyword spotting as in MLPerf Tiny: 49x10 features, four separable convolutions of 64 channels."""

    def __init__(self) -> None:
        def unit(*convolution: nn.Module) -> tuple[nn.Module, ...]:
            return (*convolution, nn.BatchNorm2d(64), nn.ReLU())

        layers = [nn.ZeroPad2d((1, 1, 4, 5)), *unit(nn.Conv2d(1, 64, (10, 4), 2, bias=False))]
        for _ in range(4):
            layers += unit(nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False))
            layers += unit(nn.Conv2d(64, 64, 1, bias=False))
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12), nn.Softmax(-1))


class Recurrent(nn.Module):
    """Two layers of 128 over 50 steps of 40 features, and a classifier on the last step."""

    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.cells = cell(40, 128, num_layers=2, batch_first=False)
        self.head = nn.Linear(128, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps, _ = self.cells(x)
        last: torch.Tensor = self.head(steps[-1])
        return last


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.attended, self.normed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow, self.gelu = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        q, k, v = (p(x).view(batch, tokens, self.heads, self.size).transpose(1, 2) for p in (self.query, self.key, self.value))
        scores = torch.softmax(q @ k.transpose(-1, -2) / self.size**0.5, dim=-1)
        x = self.attended(x + self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, width)))
        y: torch.Tensor = self.normed(x + self.narrow(self.gelu(self.wide(x))))
        return y


class Bert(nn.Module):
    """Six layers of width 384 with 12 heads (MiniLM-L6); word numbers in, the vector of the first token out."""

    def __init__(self, words: int = 30522, tokens: int = 128, width: int = 384, layers: int = 6) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(*(BertLayer(width, 12) for _ in range(layers)))
        self.pool = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(self.norm(self.words(x) + self.places))
        return torch.tanh(self.pool(y[:, 0]))


_DECLARED: list[torch.library.Library] = []  # a declaration lives as long as its object


def _need_torchvision() -> None:
    """timm imports torchvision, whose wheel may not load its operators beside a PyTorch for processors alone. No network here uses
    one: a declaration of each that is missed is enough."""
    while True:
        try:
            import torchvision  # noqa: F401

            return
        except RuntimeError as error:
            missed = re.search(r"operator torchvision::(\w+) does not exist", str(error))
            if missed is None:
                raise
            for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
                del sys.modules[name]
            _DECLARED.append(torch.library.Library("torchvision", "FRAGMENT"))
            _DECLARED[-1].define(f"{missed[1]}(Tensor x) -> Tensor")


def from_timm(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        _need_torchvision()
        import timm

        model: nn.Module = timm.create_model(name, pretrained=False)
        return model

    return make


def image(name: str, timm_name: str = "", size: int = 224) -> Architecture:
    return Architecture(name, (1, 3, size, size), from_timm(timm_name or name))


ARCHITECTURES = (
    Architecture("lenet5", (1, 1, 28, 28), LeNet5),
    Architecture("mlp", (1, 784), Dense),
    Architecture("ds_cnn", (1, 1, 49, 10), DsCnn),
    Architecture("lstm", (50, 1, 40), lambda: Recurrent(nn.LSTM)),
    Architecture("gru", (50, 1, 40), lambda: Recurrent(nn.GRU)),
    image("mobilenetv3_small", "mobilenetv3_small_100"),
    image("regnety_002"),
    image("mobilenetv2", "mobilenetv2_100"),
    image("efficientnet_b0"),
    image("efficientnet_lite0"),
    image("mobilevit_xxs", size=256),
    image("convnext_atto"),
    image("fastvit_t8", size=256),
    image("repvgg_a0"),
    image("vit_tiny", "vit_tiny_patch16_224"),
    Architecture("bert", (1, 128), Bert, tokens=30522),
    image("resnet18"),
    image("densenet121"),
    image("resnet50"),
    image("swin_tiny", "swin_tiny_patch4_window7_224"),
    image("inception_v3", size=299),
)
ONLY_COMPILED = (image("vgg11"),)  # large weights: a question of compile time


def sample(architecture: Architecture, batch: int = 1) -> torch.Tensor:
    shape = (batch, *architecture.shape[1:]) if architecture.shape[0] == 1 else architecture.shape
    random = torch.Generator().manual_seed(3)
    if architecture.tokens:
        return torch.randint(architecture.tokens, shape, generator=random)
    return torch.randn(shape, generator=random)


def settled(architecture: Architecture) -> nn.Module:
    """The network with random weights, batch norms as after training on random data, in the form that is deployed."""
    torch.manual_seed(7)
    model = architecture.make()
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    with torch.no_grad():
        for norm in norms:  # some start at zero, which would remove a branch
            norm.weight.uniform_(0.7, 1.3)
            norm.bias.normal_(0.0, 0.1)
            norm.momentum = None
        for name, parameter in model.named_parameters():
            if name.rpartition(".")[2].startswith("gamma"):  # scales of layers, 1e-6 before training
                parameter.uniform_(0.05, 0.15)
            elif not parameter.any():  # biases, which the exporter would leave out
                parameter.normal_(0.0, 0.02)
        if norms:
            model.train()(sample(architecture, batch=4))
        if architecture.name in ("repvgg_a0", "fastvit_t8"):  # branches are joined before these are deployed
            from timm.utils.model import reparameterize_model

            model = reparameterize_model(model.eval())
    return model.eval()


def write(architecture: Architecture, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            settled(architecture), (sample(architecture),), dynamo=True, opset_version=OPSET, input_names=["input"],
            output_names=["output"], verbose=False,
        )  # fmt: skip
        assert program is not None
        program.save(str(unfinished))
    unfinished.rename(path)


def write_all(folder: Path, only: str = ".") -> list[Path]:
    paths = []
    for architecture in (*ARCHITECTURES, *ONLY_COMPILED):
        path = folder / f"{architecture.name}.onnx"
        if re.search(only, architecture.name):
            if not path.exists():
                print(f"writing {path.name}", file=sys.stderr, flush=True)
                write(architecture, path)
            paths.append(path)
    return paths


if __name__ == "__main__":
    write_all(Path(sys.argv[1]), *sys.argv[2:3])
