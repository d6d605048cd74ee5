"""Small networks of many kinds, each with inputs: what people export from PyTorch, in miniature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Case = tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]
ARCHITECTURES: dict[str, Case] = {}


def architecture(
    name: str, *shapes: tuple[int, ...], whole: int = 0
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """`whole`: inputs are whole numbers below it."""

    def register(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        def inputs() -> tuple[Any, ...]:
            torch.manual_seed(1)
            return tuple(torch.randint(0, whole, s) if whole else torch.randn(s) for s in shapes)

        ARCHITECTURES[name] = (make, inputs)
        return make

    return register


def conv_bn(i: int, o: int, k: int = 3, s: int = 1, g: int = 1, act: type[nn.Module] | None = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), nn.BatchNorm2d(o)]
    if act is not None:
        layers.append(act())
    return nn.Sequential(*layers)


@architecture("mlp", (2, 12))
def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 5), nn.Softmax(-1))


@architecture("lenet", (1, 1, 28, 28))
class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 5), nn.Conv2d(4, 8, 5)
        self.fc = nn.Linear(8 * 16, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return F.log_softmax(self.fc(torch.flatten(x, 1)), dim=1)


class Block(nn.Module):
    def __init__(self, i: int, o: int, s: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.down = conv_bn(i, o, 1, s, act=None) if s > 1 or i != o else None

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


@architecture("resnet", (1, 3, 16, 16))
def resnet() -> nn.Module:
    return nn.Sequential(conv_bn(3, 4), nn.MaxPool2d(3, 2, 1), Block(4, 4, 1), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 3))  # fmt: skip


class Squeeze(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(c, 2, 1), nn.Conv2d(2, c, 1)

    def forward(self, x: Any) -> Any:
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


@architecture("mobilenet", (1, 3, 16, 16))
def mobilenet() -> nn.Module:
    return nn.Sequential(
        conv_bn(3, 8, s=2, act=nn.Hardswish), conv_bn(8, 8, 5, g=8, act=nn.ReLU6), Squeeze(8), conv_bn(8, 12, 1, act=None),
        conv_bn(12, 12, 3, 2, 12, nn.Hardswish), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


@architecture("efficientnet", (1, 3, 12, 12))
def efficientnet() -> nn.Module:
    return nn.Sequential(conv_bn(3, 8, act=nn.SiLU), conv_bn(8, 8, 3, 2, 8, nn.SiLU), Squeeze(8), conv_bn(8, 6, 1, act=None))


@architecture("densenet", (1, 4, 8, 8))
class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv_bn(4 + 3 * n, 3) for n in range(3))
        self.pool = nn.AvgPool2d(2)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return self.pool(x)


@architecture("shufflenet", (1, 8, 8, 8))
class Shuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.right = nn.Sequential(conv_bn(4, 4, 1), conv_bn(4, 4, 3, g=4, act=None))

    def forward(self, x: Any) -> Any:
        a, b = x.chunk(2, dim=1)
        y = torch.cat((a, self.right(b)), 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


@architecture("inception", (1, 4, 9, 9))
class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 3, 1), nn.Conv2d(4, 3, (1, 7), padding=(0, 3))
        self.c = nn.Conv2d(4, 2, 3, padding="same", dilation=2)

    def forward(self, x: Any) -> Any:
        pooled = F.max_pool2d(x, 3, stride=1, padding=1, ceil_mode=True)
        return torch.cat([self.a(x), self.b(x), self.c(x), pooled], dim=1)


@architecture("unet", (1, 2, 16, 16))
class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d1, self.d2, self.mid = conv_bn(2, 4), conv_bn(4, 8), conv_bn(8, 8)
        self.up, self.u1, self.u2 = nn.ConvTranspose2d(8, 8, 2, 2), conv_bn(16, 4), conv_bn(8, 4)
        self.head = nn.Conv2d(4, 1, 1)

    def forward(self, x: Any) -> Any:
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u1(torch.cat([self.up(m), b], 1))
        y = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.head(self.u2(torch.cat([y, a], 1))))


@architecture("segmentation head", (1, 4, 7, 9))
class Pyramid(nn.Module):
    """Poolings to several sizes, resized again (PSPNet)."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 2, 1) for _ in range(3))

    def forward(self, x: Any) -> Any:
        size = x.shape[2:]
        found = [x]
        for bins, conv in zip((1, 2, 3), self.convs, strict=True):
            found.append(F.interpolate(conv(F.adaptive_avg_pool2d(x, bins)), size=size, mode="bilinear", align_corners=True))
        return torch.cat(found, 1)


@architecture("super resolution", (1, 1, 6, 6))
def super_resolution() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.PReLU(8), nn.Conv2d(8, 9, 3, padding=1, padding_mode="reflect"),
                         nn.PixelShuffle(3))  # fmt: skip


class Chomp(nn.Module):
    def __init__(self, i: int, o: int, d: int) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(i, o, 3, padding=2 * d, dilation=d))
        self.cut = 2 * d

    def forward(self, x: Any) -> Any:
        return F.leaky_relu(self.conv(x)[:, :, : -self.cut], 0.1)


@architecture("tcn", (1, 4, 20))
def tcn() -> nn.Module:
    return nn.Sequential(Chomp(4, 6, 1), Chomp(6, 6, 2), Chomp(6, 3, 4))


@architecture("wavenet", (1, 2, 24))
class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(2, 4, 1)
        self.gates = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=d) for d in (1, 2, 4))
        self.out = nn.ModuleList(nn.Conv1d(4, 4, 1) for _ in range(3))

    def forward(self, x: Any) -> Any:
        x, skips = self.first(x), 0
        for gate, out, d in zip(self.gates, self.out, (1, 2, 4), strict=True):
            y = out(F.glu(gate(F.pad(x, (d, 0))), dim=1))
            skips, x = skips + y, x + y
        return F.elu(skips)


@architecture("lstm", (2, 7, 5))
class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(5, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Any) -> Any:
        y, (h, c) = self.rnn(x)
        return self.head(y[:, -1]), h, c


@architecture("bidirectional lstm", (6, 1, 4), (2, 1, 3), (2, 1, 3))
class BiLstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(4, 3, bidirectional=True)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        return self.rnn(x, (h, c))[0]


@architecture("gru", (1, 6, 4))
class Gru(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(4, 5, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Any) -> Any:
        return self.rnn(x)


@architecture("rnn cells", (3, 1, 4))
class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.LSTMCell(4, 3), nn.GRUCell(3, 3), nn.RNNCell(3, 2, nonlinearity="relu")

    def forward(self, x: Any) -> Any:
        h, c, g, r = torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 2)
        for t in range(x.shape[0]):
            h, c = self.a(x[t], (h, c))
            g = self.b(h, g)
            r = self.c(g, r)
        return r


@architecture("text classifier", (2, 9), whole=20)
class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.convs = nn.Embedding(20, 6, padding_idx=0), nn.ModuleList(nn.Conv1d(6, 4, k) for k in (2, 3))
        self.fc = nn.Linear(8, 2)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens).permute(0, 2, 1)
        return self.fc(torch.cat([F.relu(c(x)).max(dim=2)[0] for c in self.convs], 1))


@architecture("embedding bag of mean", (2, 5), whole=11)
class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fc = nn.Embedding(11, 4), nn.Linear(4, 2)

    def forward(self, tokens: Any) -> Any:
        mask = (tokens != 0).float().unsqueeze(-1)
        return self.fc((self.embed(tokens) * mask).sum(1) / mask.sum(1).clamp(min=1))


@architecture("autoencoder", (1, 1, 8, 8))
def autoencoder() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 64),
                         nn.Unflatten(1, (4, 4, 4)), nn.ConvTranspose2d(4, 1, 3, 2, 1, output_padding=1), nn.Sigmoid())  # fmt: skip


@architecture("variational encoder", (1, 6))
class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 8), nn.Linear(4, 6)

    def forward(self, x: Any) -> dict[str, Any]:
        mean, log_var = self.enc(x).chunk(2, -1)
        kl = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp(), dim=1)
        return {"x": self.dec(mean), "kl": kl, "sigma": torch.exp(0.5 * log_var)}


@architecture("generator", (1, 6))
class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(6, 32), nn.InstanceNorm2d(2, affine=True)
        self.up, self.out = nn.Upsample(scale_factor=2), nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, z: Any) -> Any:
        return torch.tanh(self.out(self.up(F.leaky_relu(self.norm(self.fc(z).view(-1, 2, 4, 4)), 0.2))))


@architecture("diffusion block", (1, 4, 6, 6), (1,))
class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv, self.time = nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3, padding=1), nn.Linear(8, 8)

    def forward(self, x: Any, t: Any) -> Any:
        speed = torch.exp(-math.log(100.0) * torch.arange(4) / 4)
        angle = t[:, None].float() * speed[None]
        scale, shift = self.time(F.silu(torch.cat([angle.sin(), angle.cos()], -1)))[:, :, None, None].chunk(2, dim=1)
        return x + self.conv(F.silu(self.norm(x) * (1 + scale) + shift))


@architecture("yolo head", (1, 6, 4, 4))
class Yolo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 2 * 7, 1)
        self.register_buffer("anchors", torch.tensor([[1.0, 2.0], [3.0, 4.0]]).view(1, 2, 1, 1, 2))

    def forward(self, x: Any) -> Any:
        n, _, h, w = x.shape
        y = self.conv(x).view(n, 2, 7, h, w).permute(0, 1, 3, 4, 2).contiguous()
        rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((columns, rows), 2).view(1, 1, h, w, 2).float()
        y = y.sigmoid()
        y[..., 0:2] = (y[..., 0:2] * 2 - 0.5 + grid) * 8
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.anchors
        return y.view(n, -1, 7)


@architecture("siamese", (1, 6), (1, 6))
class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 4))

    def forward(self, a: Any, b: Any) -> Any:
        a, b = F.normalize(self.body(a)), F.normalize(self.body(b))
        return F.cosine_similarity(a, b), torch.norm(a - b, dim=1), torch.cdist(a, b)


@architecture("graph network", (5, 3))
class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 2]]))

    def forward(self, x: Any) -> Any:
        source, target = self.edges[0], self.edges[1]
        y = self.fc(x)
        total = torch.zeros_like(y).index_add(0, target, y[source])
        degree = torch.zeros(5).scatter_add(0, target, torch.ones(6)).clamp(min=1)
        return total / degree[:, None]


@architecture("spatial transformer", (1, 1, 6, 6))
class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(36, 6)

    def forward(self, x: Any) -> Any:
        theta = self.fc(x.flatten(1)).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, [1, 1, 6, 6], align_corners=False), align_corners=False)


@architecture("3d convolution", (1, 1, 4, 6, 6))
def video() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 3, 3, padding=1), nn.BatchNorm3d(3), nn.ReLU(), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d(1),
                         nn.Flatten())  # fmt: skip


@architecture("keyword spotting", (1, 1, 20, 10))
def keywords() -> nn.Module:
    layers: list[nn.Module] = [nn.ZeroPad2d((1, 2, 4, 5)), nn.Conv2d(1, 8, (10, 4), 2), nn.BatchNorm2d(8), nn.ReLU()]
    for _ in range(2):
        layers += [conv_bn(8, 8, 3, g=8), conv_bn(8, 8, 1)]
    return nn.Sequential(*layers, nn.AvgPool2d((10, 5)), nn.Flatten(), nn.Linear(8, 12))
