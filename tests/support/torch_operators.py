"""ATen operators by family: each row is a function of a few tensors. A family is exported as one module."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Row = Callable[..., Any]
A, B, N = (2, 3, 4), (3, 4), (2, 3, 4)


def tensors(*shapes: tuple[int, ...], whole: int = 0) -> tuple[Any, ...]:
    torch.manual_seed(3)
    return tuple(torch.randint(-whole, whole, s) if whole else torch.randn(s) for s in shapes)


UNARY: dict[str, Row] = {
    name: getattr(torch, name)
    for name in (
        "exp",
        "sin",
        "cos",
        "tan",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "erf",
        "erfc",
        "sigmoid",
        "tanh",
        "relu",
        "abs",
        "neg",
        "sign",
        "floor",
        "ceil",
        "round",
        "trunc",
        "frac",
        "square",
        "expm1",
        "exp2",
        "isnan",
        "isinf",
        "isfinite",
        "sinc",
        "deg2rad",
        "logical_not",
        "signbit",
        "nan_to_num",
        "positive",
        "reciprocal",
        "selu",
        "celu",
    )
}
UNARY |= {
    "log": lambda x: torch.log(x.abs() + 1),
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 1).rsqrt(),
    "log1p": lambda x: torch.log1p(x.abs()),
    "log2": lambda x: torch.log2(x.abs() + 1),
    "log10": lambda x: torch.log10(x.abs() + 1),
    "asin": lambda x: torch.asin(x.tanh()),
    "acos": lambda x: torch.acos(x.tanh()),
    "atanh": lambda x: torch.atanh(x.tanh()),
    "acosh": lambda x: torch.acosh(x.abs() + 1),
    "logit": lambda x: torch.logit(x.sigmoid(), eps=1e-3),
    "relu6": F.relu6,
    "hardtanh": lambda x: F.hardtanh(x, -0.5, 0.7),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softsign": F.softsign,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 2.0),
    "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "rrelu": lambda x: F.rrelu(x),
    "glu": lambda x: F.glu(x),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "clamp_tensor": lambda x: torch.clamp(x, min=x * 0.5),
    "dropout": lambda x: F.dropout(x, training=False),
    "prelu_one": lambda x: F.prelu(x, torch.tensor([0.3])),
    "pow2": lambda x: x**2,
    "pow3": lambda x: x**3,
    "pow_half": lambda x: x.abs() ** 0.5,
    "rpow": lambda x: 2.0**x,
    "round_decimals": lambda x: torch.round(x, decimals=1),
}

BINARY: dict[str, Row] = {
    name: getattr(torch, name)
    for name in (
        "add",
        "sub",
        "mul",
        "div",
        "maximum",
        "minimum",
        "fmax",
        "fmin",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "remainder",
        "fmod",
        "atan2",
        "hypot",
        "logical_and",
        "logical_or",
        "logical_xor",
        "floor_divide",
    )
}
BINARY |= {
    "add_alpha": lambda a, b: torch.add(a, b, alpha=2),
    "sub_alpha": lambda a, b: torch.sub(a, b, alpha=0.5),
    "rsub": lambda a, b: 1 - a,
    "rsub_alpha": lambda a, b: torch.rsub(a, b, alpha=3),
    "rdiv": lambda a, b: 1 / (a.abs() + 1),
    "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "pow": lambda a, b: torch.pow(a.abs() + 0.1, b),
    "where": lambda a, b: torch.where(a > b, a, b),
    "where_scalar": lambda a, b: torch.where(a > 0, a, 0.0),
    "addcmul": lambda a, b: torch.addcmul(a, b, b, value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, b.abs() + 1),
    "lerp": lambda a, b: torch.lerp(a, b.expand_as(a), 0.3),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, -1.0),
    "int_div": lambda a, b: (a * 10).int() // 3,
    "int_mod": lambda a, b: (a * 10).long() % 3,
    "promote": lambda a, b: (a * 10).int() * 2.5,
    "bools": lambda a, b: (a > 0) + (b > 0),
    "bits": lambda a, b: (a * 10).int() & 3 | 8,
    "not": lambda a, b: ~(a > 0),
    "xor": lambda a, b: (a > 0) ^ (b > 0),
    "invert": lambda a, b: ~(a * 10).int(),
    "double": lambda a, b: a.double() + b,
    "half": lambda a, b: (a.half() * 2).float(),
    "byte": lambda a, b: (a.abs() * 10).to(torch.uint8) + 1,
    "type_as": lambda a, b: (a > 0).type_as(b),
    "zero_dim": lambda a, b: a * torch.tensor(2, dtype=torch.int64),
    "true_int_div": lambda a, b: (a * 10).int() / 4,
    "shift": lambda a, b: (a * 10).int() << 2,
    "float_power": lambda a, b: torch.float_power(a.abs() + 0.1, 0.3).float(),
}

SHAPING: dict[str, Row] = {
    "view": lambda x: x.view(6, 4),
    "view_minus": lambda x: x.view(2, -1),
    "reshape": lambda x: x.reshape(-1),
    "flatten": lambda x: x.flatten(1),
    "unflatten": lambda x: x.unflatten(2, (2, -1)),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze_dim": lambda x: x[:1].squeeze(0),
    "squeeze_dims": lambda x: x[:1, :1].squeeze((0, 1)),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(-1, 0),
    "t": lambda x: x[0].t(),
    "mT": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, -1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "expand": lambda x: x[:, :1].expand(-1, 5, 4),
    "repeat": lambda x: x.repeat(2, 1, 1, 3),
    "tile": lambda x: x.tile(2),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "cat": lambda x: torch.cat([x, x * 2], -1),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "hstack": lambda x: torch.hstack([x, x]),
    "vstack": lambda x: torch.vstack([x, x]),
    "chunk": lambda x: torch.chunk(x, 3, -1),
    "split": lambda x: torch.split(x, 2, 1),
    "split_sizes": lambda x: torch.split(x, [1, 3], 2),
    "tensor_split": lambda x: torch.tensor_split(x, 3, 2),
    "unbind": lambda x: torch.unbind(x, 1),
    "select": lambda x: x.select(1, -1),
    "slice": lambda x: x[:, 1:, ::2],
    "slice_end": lambda x: x[..., -2:],
    "narrow": lambda x: x.narrow(2, 1, 2),
    "flip": lambda x: x.flip(0, 2),
    "roll": lambda x: x.roll(1, -1),
    "roll_flat": lambda x: x.roll(5),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
    "pad_negative": lambda x: F.pad(x, (-1, 1)),
    "pad_reflect": lambda x: F.pad(x, (2, 1), mode="reflect"),
    "pad_replicate": lambda x: F.pad(x, (2, 1), mode="replicate"),
    "pad_circular": lambda x: F.pad(x, (2, 1), mode="circular"),
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "diag": lambda x: torch.diag(x[0, 0]),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "im2col": lambda x: F.unfold(x.unsqueeze(0), (2, 2), padding=1),
    "fold": lambda x: F.fold(x.reshape(1, 4, 6), (3, 4), (2, 2)),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x.reshape(1, 1, 4, 6), 2),
    "channel_shuffle": lambda x: F.channel_shuffle(x.reshape(1, 6, 2, 2), 3),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, 1], indexing="xy"),
    "broadcast": lambda x: torch.broadcast_tensors(x, x[:1, :1]),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 0, 1, 1, 3),
    "select_scatter": lambda x: x.select_scatter(x[0] * 0, 0, 1),
    "rot90": lambda x: torch.rot90(x, 1, (0, 1)),
    "diff": lambda x: torch.diff(x),
    "kron": lambda x: torch.kron(x[0], x[1]),
    "contiguous": lambda x: x.permute(1, 0, 2).contiguous(),
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach() + 1,
}

INDEXING: dict[str, Row] = {
    "embedding": lambda x, i: F.embedding(i, x.view(6, 4)),
    "index": lambda x, i: x.view(6, 4)[i],
    "index_two": lambda x, i: x[i % 2, i % 3],
    "index_apart": lambda x, i: x[i % 2, :, i % 4],
    "index_end": lambda x, i: x[:, :, i % 4],
    "index_middle": lambda x, i: x[:, i % 3, i % 4],
    "index_select": lambda x, i: x.index_select(2, i % 4),
    "gather": lambda x, i: x.view(6, 4).gather(1, (i % 4).view(5, 1)),
    "take_along": lambda x, i: torch.take_along_dim(x, x.argsort(-1), -1),
    "take": lambda x, i: torch.take(x, i),
    "mask_constant": lambda x, i: x[:, torch.tensor([True, False, True])],
    "scatter": lambda x, i: x[0].scatter(1, (i % 4)[:3].view(3, 1), 9.0),
    "scatter_add": lambda x, i: torch.zeros(7).scatter_add(0, i, x.view(-1)[:5]),
    "index_add": lambda x, i: x.view(6, 4).index_add(0, i[:2] % 6, x[0, :2]),
    "index_copy": lambda x, i: x.view(6, 4).index_copy(0, torch.tensor([1, 3]), x[0, :2]),
    "index_fill": lambda x, i: x.index_fill(1, torch.tensor([0, 2]), 5.0),
    "index_put": lambda x, i: x.index_put((torch.tensor([0, 1]), torch.tensor([1, 2])), torch.tensor(7.0)),
    "index_put_mask": lambda x, i: x.masked_fill(x > 0, 1.0).index_put((x < 0,), torch.tensor(3.0)),
    "one_hot": lambda x, i: F.one_hot(i, 7),
    "topk": lambda x, i: torch.topk(x, 2, -1),
    "sort": lambda x, i: torch.sort(x, 1, descending=True),
    "argsort": lambda x, i: x.argsort(2),
    "arange": lambda x, i: torch.arange(0, 6, 2) + i[0],
    "arange_float": lambda x, i: torch.arange(0, 1, 0.25) * x[0, 0],
    "linspace": lambda x, i: torch.linspace(0, 1, 4) * x,
    "zeros": lambda x, i: torch.zeros(2, 3, 4) + x,
    "full_like": lambda x, i: torch.full_like(x, 2.5) * x,
    "new_ones": lambda x, i: x.new_ones(4) * x,
    "eye": lambda x, i: torch.eye(4) @ x[0].t(),
    "median": lambda x, i: torch.median(x, 1),
    "kthvalue": lambda x, i: torch.kthvalue(x, 2, 2),
    "bucketize": lambda x, i: torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
    "tril_mask": lambda x, i: x[0, :, :3].masked_fill(torch.ones(3, 3).tril() == 0, 0),
    "hann": lambda x, i: torch.hann_window(4) * x,
    "scatter_reduce": lambda x, i: torch.zeros(7).scatter_reduce(0, i, x.view(-1)[:5], "amax"),
}

REDUCTION: dict[str, Row] = {
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1),
    "sum_dims": lambda x: x.sum((0, 2), keepdim=True),
    "sum_int": lambda x: (x * 10).int().sum(0),
    "mean": lambda x: x.mean(),
    "mean_dim": lambda x: x.mean(-1),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax((1, 2)),
    "amin": lambda x: x.amin(0),
    "max": lambda x: x.max(),
    "max_dim": lambda x: x.max(1),
    "min_dim": lambda x: x.min(-1, keepdim=True),
    "argmax": lambda x: x.argmax(),
    "argmax_dim": lambda x: x.argmax(1, keepdim=True),
    "argmin": lambda x: x.argmin(2),
    "any": lambda x: (x > 1).any(1),
    "all": lambda x: (x > -2).all(),
    "var": lambda x: x.var(1),
    "var_biased": lambda x: x.var(-1, unbiased=False),
    "std": lambda x: x.std(),
    "var_mean": lambda x: torch.var_mean(x, (1, 2)),
    "norm": lambda x: x.norm(),
    "norm1": lambda x: x.norm(1, dim=1),
    "norm_inf": lambda x: torch.linalg.vector_norm(x, math.inf, 1),
    "norm3": lambda x: torch.linalg.vector_norm(x, 3, 1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "softmin": lambda x: F.softmin(x, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(2),
    "count_nonzero": lambda x: (x > 0).count_nonzero(1),
    "aminmax": lambda x: torch.aminmax(x, dim=1),
    "softmax_half": lambda x: x.softmax(-1, dtype=torch.float64),
    "argmax_last": lambda x: torch.argmax(x, dim=-1),
    "mean_int": lambda x: (x * 10).int().float().mean(),
}

PRODUCTS: dict[str, Row] = {
    "matmul": lambda a, b: a @ b.t(),
    "batched": lambda a, b: a @ a.mT,
    "vector": lambda a, b: a @ b[0],
    "vectors": lambda a, b: b[0] @ b[1],
    "mm": lambda a, b: torch.mm(b, b.t()),
    "bmm": lambda a, b: torch.bmm(a, a.mT),
    "addmm": lambda a, b: torch.addmm(b[:, :3], b, b.t(), beta=0.5, alpha=2),
    "addmm_plain": lambda a, b: torch.addmm(b[0, :3], b, b.t()),
    "baddbmm": lambda a, b: torch.baddbmm(a[:, :, :3], a, a.mT),
    "linear": lambda a, b: F.linear(a, b, b[:, 0]),
    "linear_plain": lambda a, b: F.linear(a[0, 0], b),
    "outer": lambda a, b: torch.outer(b[0], b[1]),
    "einsum": lambda a, b: torch.einsum("nij,kj->nik", a, b),
    "einsum_dots": lambda a, b: torch.einsum("...ij,...kj->...ik", a, a),
    "mv": lambda a, b: torch.mv(b, b[0]),
    "dot": lambda a, b: torch.dot(b[0], b[1]),
    "cosine": lambda a, b: F.cosine_similarity(a, b.expand_as(a), dim=-1),
    "cdist": lambda a, b: torch.cdist(a, a * 0.5),
    "bilinear": lambda a, b: F.bilinear(b, b, torch.ones(2, 4, 4)),
    "cross": lambda a, b: torch.linalg.cross(b[:, :3], b[:, 1:]),
    "tensordot": lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])),
    "layer_norm": lambda a, b: F.layer_norm(a, (3, 4), b),
    "rms_norm": lambda a, b: F.rms_norm(a, (4,), b[0]),
    "group_norm": lambda a, b: F.group_norm(a, 3),
    "instance_norm": lambda a, b: F.instance_norm(a),
    "batch_norm": lambda a, b: F.batch_norm(a, b[:, 0], b[:, 1].abs() + 1),
    "sdpa": lambda a, b: F.scaled_dot_product_attention(a, a, a, attn_mask=b[:, :3] > 0.2 + torch.eye(3) - 2),
    "sdpa_scale": lambda a, b: F.scaled_dot_product_attention(a, a * 2, a, scale=0.3),
    "local_response": lambda a, b: F.local_response_norm(a, 2),
    "pairwise": lambda a, b: F.pairwise_distance(a[0], b),
}

WINDOWS: dict[str, Row] = {
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool_ceil": lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True),
    "max_pool_dilated": lambda x: F.max_pool2d(x, 2, 1, dilation=2),
    "max_pool_indices": lambda x: F.max_pool2d(x, 2, return_indices=True),
    "max_unpool": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "avg_pool_exclude": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "avg_pool_ceil": lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    "avg_pool_divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "avg_ceil_pad": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 2)),
    "adaptive_none": lambda x: F.adaptive_avg_pool2d(x, (None, 1)),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, (3, 4)),
    "lp_pool": lambda x: F.lp_pool2d(x, 2, 2),
    "unbatched": lambda x: F.conv2d(x[0], torch.ones(2, 4, 2, 2)),
    "pool1d": lambda x: F.max_pool1d(x[0], 2),
    "avg1d": lambda x: F.avg_pool1d(x[:, :, 0], 2),
    "adaptive1d": lambda x: F.adaptive_avg_pool1d(x[0], 2),
    "conv_same": lambda x: F.conv2d(x, torch.ones(2, 4, 2, 3), padding="same"),
    "conv_groups": lambda x: F.conv2d(x, torch.ones(4, 2, 2, 2), torch.arange(4.0), groups=2, stride=(1, 2), dilation=2),
    "conv1d": lambda x: F.conv1d(x[:, :, 0], torch.ones(3, 4, 3), padding=1),
    "conv_transpose": lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3), stride=2, padding=1, output_padding=1),
    "conv_transpose_groups": lambda x: F.conv_transpose2d(x, torch.ones(4, 1, 2, 2), groups=2),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x[:, :, 0], torch.ones(4, 2, 3)),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "nearest_size": lambda x: F.interpolate(x, size=(9, 5)),
    "nearest_exact": lambda x: F.interpolate(x, size=(9, 5), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "bilinear_corners": lambda x: F.interpolate(x, size=(4, 9), mode="bilinear", align_corners=True),
    "bilinear_recompute": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
    "linear1d": lambda x: F.interpolate(x[:, :, 0], scale_factor=2, mode="linear"),
    "grid": lambda x: F.grid_sample(x, torch.tanh(x[:, :2].permute(0, 2, 3, 1)), align_corners=True),
    "grid_border": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), padding_mode="border", align_corners=False),
    "down": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "up_bicubic_corners": lambda x: F.interpolate(x, size=(5, 8), mode="bicubic", align_corners=True),
}


def written(x: Any) -> Any:
    y = x.clone()
    y[:, 1] = 5.0
    y[..., 2:].mul_(3)
    return y


def strided(x: Any) -> Any:
    y = x * 1
    y[:, :, ::2] += 1
    y.transpose(0, 1)[1].zero_()
    return y


def masked(x: Any) -> Any:
    y = x.clone()
    y[x > 0] = 2.0
    return y


def aliased(x: Any) -> Any:
    y = x + 1
    flat = y.view(-1)
    flat.add_(1)
    copy = y.permute(1, 0, 2).contiguous()
    copy.relu_()
    return y, flat, copy


def grown(x: Any) -> Any:
    y = torch.zeros(2, 5, 4)
    y[:, 1:4] = x
    y[0, 0, 0] = 7
    y[1].fill_(2)
    return y


def listed(x: Any) -> Any:
    y = x.clone()
    a, b = y.chunk(2, -1)
    a.copy_(b)
    y.clamp_(-1, 1).sub_(0.5).div_(2)
    return y, a, b


def unused(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
    return y + 1


WRITING: dict[str, Row] = {
    "written": written,
    "strided": strided,
    "masked": masked,
    "aliased": aliased,
    "grown": grown,
    "listed": listed,
    "no_grad": unused,
    "relu_": lambda x: torch.relu_(x * 1),
    "masked_fill_": lambda x: (x * 1).masked_fill_(x > 0, 0.0),
    "scatter_": lambda x: torch.zeros(2, 3, 4).scatter_(2, x.argsort(-1), x),
    "index_fill_": lambda x: (x * 1).index_fill_(1, torch.tensor([0]), 1.0),
    "hidden": lambda x: torch.nn.functional.hardswish(x * 1, inplace=True),
    "setitem": lambda x: torch.zeros(4).index_put_((torch.tensor([1, 2]),), x[0, 0, :2]),
}

SPECTRA: dict[str, Row] = {
    "stft": lambda x: torch.stft(x, 16, 4, 12, torch.hann_window(12), return_complex=True).abs(),
    "stft_plain": lambda x: torch.view_as_real(
        torch.stft(x, 16, window=torch.ones(16), normalized=True, center=False, return_complex=True)
    ),
    "power": lambda x: torch.stft(x, 8, 8, window=torch.ones(8), return_complex=True).abs().pow(2).mT,
    "rfft": lambda x: torch.fft.rfft(x).real,
    "rfft_axis": lambda x: torch.fft.rfft(x, dim=0, norm="ortho").imag,
    "fft": lambda x: torch.fft.fft(x).abs(),
    "fft2": lambda x: torch.fft.fft2(x).abs(),
    "fft of waves": lambda x: torch.fft.ifft(torch.fft.fft(x)[:, :20], n=24, norm="forward").real,
    "ifft of numbers": lambda x: torch.view_as_real(torch.fft.ifft2(x.reshape(2, 8, 8))),
    "rfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x.reshape(2, 8, 8)) * 2, s=(8, 9)),
    "fftn": lambda x: torch.fft.ifftn(torch.fft.fftn(x.reshape(2, 4, 16), norm="ortho"), dim=(0, 2)).imag,
    "hfft": lambda x: (torch.fft.hfft(torch.fft.ihfft(x)), torch.fft.ihfft(x, n=70).imag + 0),
    "padded": lambda x: torch.fft.rfft(x, n=80).real,
    "complex": lambda x: torch.fft.fft(x.to(torch.complex64)).imag,
    "bits": lambda x: x.view(torch.int32) + 1,
    "angle": lambda x: torch.angle(torch.fft.rfft(x)[:, 1:5]),
    "filtered": lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.linspace(1, 0, 33)),
    "rotary": lambda x: torch.view_as_real(
        torch.view_as_complex(x.view(2, 32, 2)) * torch.polar(torch.ones(32), torch.arange(32.0))
    ),
}

FAMILIES: dict[str, tuple[dict[str, Row], tuple[Any, ...]]] = {
    "unary": (UNARY, tensors(A)),
    "binary": (BINARY, tensors(A, B)),
    "shaping": (SHAPING, tensors(A)),
    "indexing": (INDEXING, (tensors(A)[0], torch.tensor([3, 0, 5, 1, 4]))),
    "reduction": (REDUCTION, tensors(A)),
    "products": (PRODUCTS, tensors(A, B)),
    "windows": (WINDOWS, tensors((1, 4, 7, 6))),
    "writing": (WRITING, tensors(A)),
    "spectra": (SPECTRA, tensors((2, 64))),
}


class Family(torch.nn.Module):
    """All rows at once, as outputs in order."""

    def __init__(self, rows: dict[str, Row]) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, *inputs: Any) -> Any:
        found = {name: call(*inputs) for name, call in self.rows.items()}
        return {name: tuple(value) if isinstance(value, tuple | list) else value for name, value in found.items()}
