"""Networks with attention, and others that are drawn like them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from support.torch_architectures import architecture


@architecture("transformer encoder", (1, 5, 8))
def encoder() -> nn.Module:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu"), 2, enable_nested_tensor=False
    )


@architecture("transformer decoder", (4, 1, 8), (3, 1, 8))
class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 12, norm_first=True)

    def forward(self, x: Any, memory: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(4)
        return self.layer(x, memory, tgt_mask=mask)


@architecture("multihead attention", (1, 6, 8))
class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.attention(x, x, x)


@architecture("gpt", (1, 6), whole=13)
class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(13, 8), nn.Embedding(10, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        n, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t))
        q, k, v = self.qkv(self.norm(x)).split(8, dim=2)
        q, k, v = (y.view(n, t, 2, 4).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, 8))
        return self.head(x)


@architecture("llama block", (1, 5, 8))
class Llama(nn.Module):
    """RMS normalisation, rotary positions, grouped queries, a gated feed-forward."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(8)
        self.q, self.k, self.v = nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
        self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
        angle = torch.outer(torch.arange(5.0), 1 / 100 ** (torch.arange(0, 4, 2) / 4))
        self.register_buffer("cos", torch.cat([angle.cos()] * 2, -1), persistent=False)
        self.register_buffer("sin", torch.cat([angle.sin()] * 2, -1), persistent=False)

    def turn(self, x: Any) -> Any:
        a, b = x[..., :2], x[..., 2:]
        return x * self.cos + torch.cat((-b, a), dim=-1) * self.sin

    def forward(self, x: Any) -> Any:
        y = self.norm(x)
        q = self.turn(self.q(y).view(1, 5, 2, 4).transpose(1, 2))
        k = self.turn(self.k(y).view(1, 5, 1, 4).transpose(1, 2)).expand(1, 2, 5, 4)
        v = self.v(y).view(1, 5, 1, 4).transpose(1, 2).repeat_interleave(2, dim=1)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(4)
        scores = scores.masked_fill(torch.triu(torch.ones(5, 5, dtype=torch.bool), 1), float("-inf"))
        x = x + (torch.softmax(scores.float(), -1).type_as(q) @ v).transpose(1, 2).flatten(2)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))


@architecture("vision transformer", (1, 3, 8, 8))
class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.cls = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        return self.layer(x)[:, 0]


@architecture("swin windows", (1, 8, 8, 4))
class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(4, 12), nn.Parameter(torch.randn(49, 2))
        at = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")).flatten(1)
        apart = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0) + 3
        self.register_buffer("index", apart[..., 0] * 7 + apart[..., 1])

    def forward(self, x: Any) -> Any:
        x = torch.roll(x, (-2, -2), (1, 2))
        w = x.view(1, 2, 4, 2, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(4, 16, 4)
        q, k, v = self.qkv(w).reshape(4, 16, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.bias[self.index.view(-1)].view(16, 16, 2).permute(2, 0, 1)
        y = F.softmax(q @ k.mT * 2**-0.5 + bias.unsqueeze(0), dim=-1) @ v
        y = y.transpose(1, 2).reshape(1, 2, 2, 4, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(1, 8, 8, 4)
        return torch.roll(y, (2, 2), (1, 2))


@architecture("convnext", (1, 4, 8, 8))
class ConvNext(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.depth, self.norm = nn.Conv2d(4, 4, 7, padding=3, groups=4), nn.LayerNorm(4)
        self.one, self.two, self.gamma = nn.Linear(4, 8), nn.Linear(8, 4), nn.Parameter(torch.full((4,), 0.3))

    def forward(self, x: Any) -> Any:
        y = self.depth(x).permute(0, 2, 3, 1)
        y = self.gamma * self.two(F.gelu(self.one(self.norm(y)), approximate="tanh"))
        return x + y.permute(0, 3, 1, 2)


@architecture("mlp mixer", (1, 6, 4))
class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels, self.norm = nn.Linear(6, 6), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: Any) -> Any:
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return (x + self.channels(F.mish(x))).mean(1)


@architecture("einsum attention", (1, 4, 6))
class EinsumAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 6, 2, 3))

    def forward(self, x: Any) -> Any:
        q, k, v = torch.einsum("ntc,pchd->pnthd", x, self.w)
        scores = torch.einsum("nthd,nshd->nhts", q, k)
        return torch.einsum("nhts,nshd->nthd", scores.softmax(-1), v).flatten(-2)
