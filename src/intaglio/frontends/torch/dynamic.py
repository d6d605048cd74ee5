"""Modules of `torch.ao.quantization.quantize_dynamic`, which torch does not export: while a model is exported, modules that compute
the same with operators that it exports are in their place.

    Linear       y = (x' - zero) * scale @ w' + b    x' = round(x / scale) + zero, in 0 .. 127: scale and zero are chosen by the
                                                     least and the largest element of x, and w' is the weight, int8
    LSTM, GRU    the same for the gates: of the inputs at once, and of the state in each step

Products of integers are computed in floats. A result differs from eager mode by rounding, and by one step of x' where x / scale
lies between two whole numbers to the last bit. Weights of half precision are multiplied with floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from intaglio.errors import ModelError, quoted

MOST_STEPS = 64  # that are written out
_SMALLEST = 6.1e-5  # torch's least scale
_TINY = 1.2e-38  # below, the reciprocal is infinite
_HOMES = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
_LINEAR, _LAYERS, _CELLS = ("Linear", "LinearReLU"), ("LSTM", "GRU"), ("LSTMCell", "GRUCell", "RNNCell")


@contextmanager
def in_floats(torch: Any, model: Any) -> Iterator[Any]:
    """The model without such modules. They are back in their places afterwards."""
    places = [*_places(model)]
    made: dict[int, Any] = {}
    try:
        for parent, name, child in places:
            if id(child) not in made:
                made[id(child)] = _replaced(torch, child, name)
            parent._modules[name] = made[id(child)]
        yield _replaced(torch, model, "model") if _is_quantised(model) else model
    finally:
        for parent, name, child in places:
            parent._modules[name] = child


def _is_quantised(module: Any) -> bool:
    return type(module).__module__.startswith(_HOMES)


def _places(module: Any) -> Iterator[tuple[Any, str, Any]]:
    """Where they are; what is inside of them belongs to them."""
    for name, child in () if _is_quantised(module) else module._modules.items():
        if child is not None and _is_quantised(child):
            yield module, name, child
        elif child is not None:
            yield from _places(child)


def _replaced(torch: Any, module: Any, name: str) -> Any:
    kind = type(module).__name__
    if ".dynamic" in type(module).__module__:
        if kind in _LINEAR:
            return _linear(torch, module)
        if kind in (*_LAYERS, *_CELLS):
            return _recurrent(torch, module)
    what = f"the module {quoted(name)} is quantised by torch in a form that it does not export ({quoted(kind)})"
    hint = "quantise with PT2E (`torchao.quantization.pt2e`), or give the float model and `--quantize int8 --calibrate DATA`"
    raise ModelError("cannot-export", what, hint=hint)


def _rounded(torch: Any, x: Any, top: int) -> Any:
    """Quantised and back."""
    low, high = torch.amin(x).clamp(max=0.0), torch.amax(x).clamp(min=0.0)
    wide = (high - low) / top
    wide = torch.where(wide < _TINY, torch.full_like(wide, 0.1), wide)
    scale, zero = wide.clamp(min=_SMALLEST), torch.round(-low / wide)
    return ((torch.round(x * (1.0 / scale)) + zero).clamp(0, top) - zero) * scale


def _top(torch: Any) -> int:
    """Most engines leave out a bit of the activations, whose products with weights would not fit."""
    return 255 if torch.backends.quantized.engine == "qnnpack" else 127


def _register(torch: Any, holder: Any, name: str, weight: Any) -> Callable[[], tuple[Any, bool]]:
    """The weight as buffers of a module; what reads it, and whether activations are quantised too."""
    import_module("torch.ao.quantization.fx._decomposed")  # registers the operators

    if not weight.is_quantized:
        holder.register_buffer(name, weight.detach().float())
        return lambda: (getattr(holder, name), False)
    holder.register_buffer(name, weight.int_repr())
    space = torch.ops.quantized_decomposed
    if weight.qscheme() in (torch.per_channel_affine, torch.per_channel_affine_float_qparams):
        holder.register_buffer(f"{name}_scale", weight.q_per_channel_scales().float())
        holder.register_buffer(f"{name}_zero", weight.q_per_channel_zero_points().long())
        axis = weight.q_per_channel_axis()

        def by_channel() -> tuple[Any, bool]:
            scale, zero = getattr(holder, f"{name}_scale"), getattr(holder, f"{name}_zero")
            return space.dequantize_per_channel(getattr(holder, name), scale, zero, axis, -128, 127, torch.int8), True

        return by_channel
    scale, zero = weight.q_scale(), weight.q_zero_point()
    return lambda: (space.dequantize_per_tensor(getattr(holder, name), scale, zero, -128, 127, torch.int8), True)


def _product(torch: Any, x: Any, weight: Callable[[], tuple[Any, bool]], bias: Any, top: int) -> Any:
    values, quantised = weight()
    return torch.nn.functional.linear(_rounded(torch, x, top) if quantised else x, values, bias)


def _linear(torch: Any, module: Any) -> Any:
    class DynamicLinear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.read = _register(torch, self, "weight", module.weight())
            self.register_buffer("bias", None if module.bias() is None else module.bias().detach())
            self.training = module.training

        def forward(self, x: Any) -> Any:
            y = _product(torch, x, self.read, self.bias, _top(torch))
            return torch.relu(y) if type(module).__name__ == "LinearReLU" else y

    return DynamicLinear()


def _cell(torch: Any, kind: str, gates: Any, hidden: Any, states: list[Any]) -> list[Any]:
    """The next states of those products with the input and with the state."""
    if kind == "LSTM":
        enter, forget, cell, leave = (gates + hidden).chunk(4, 1)
        after = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(cell)
        return [torch.sigmoid(leave) * torch.tanh(after), after]
    if kind == "GRU":
        (reset, update, new), (a, b, c) = gates.chunk(3, 1), hidden.chunk(3, 1)
        fresh, keep = torch.tanh(new + torch.sigmoid(reset + a) * c), torch.sigmoid(update + b)
        return [fresh + keep * (states[0] - fresh)]
    return [torch.relu(gates + hidden) if kind == "relu" else torch.tanh(gates + hidden)]


def _recurrent(torch: Any, module: Any) -> Any:
    kind = type(module).__name__.removesuffix("Cell")
    kind = getattr(module, "nonlinearity", kind) if kind == "RNN" else kind
    weights, biases = module.get_weight(), module.get_bias()

    class DynamicRecurrent(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.read = {name: _register(torch, self, name, weight) for name, weight in weights.items()}
            for name, bias in biases.items():
                self.register_buffer(name, None if bias is None else bias.detach())
            self.training = module.training

        def product(self, x: Any, name: str) -> Any:
            return _product(torch, x, self.read[f"weight_{name}"], getattr(self, f"bias_{name}"), _top(torch))

        def step(self, x: Any, states: list[Any], name: str) -> list[Any]:
            return _cell(torch, kind, x, self.product(states[0], f"hh{name}"), states)

        def along(self, x: Any, states: list[Any], name: str) -> tuple[Any, list[Any]]:
            gates = self.product(x, f"ih{name}")
            if x.shape[0] > MOST_STEPS:
                from torch._higher_order_ops.scan import scan

                def turn(before: list[Any], now: Any) -> tuple[list[Any], Any]:
                    after = self.step(now, before, name)
                    return after, after[0].clone()

                last, rows = scan(turn, states, gates)
                return rows, list(last)
            made = []
            for n in range(x.shape[0]):
                states = self.step(gates[n], states, name)
                made.append(states[0])
            return torch.stack(made), states

    class Layers(DynamicRecurrent):
        def forward(self, x: Any, hx: Any = None) -> Any:
            if not isinstance(x, torch.Tensor):
                raise TypeError("packed sequences of quantised layers are not supported: give a padded batch of one length")
            x = x.transpose(0, 1) if module.batch_first else x
            both = 2 if module.bidirectional else 1
            zeros = x.new_zeros((module.num_layers * both, x.shape[1], module.hidden_size))
            given = [zeros] * (1 + (kind == "LSTM")) if hx is None else list(hx) if kind == "LSTM" else [hx]
            last: list[list[Any]] = []
            for layer in range(module.num_layers):
                sides = []
                for side in range(both):
                    name = f"_l{layer}{'_reverse' if side else ''}"
                    states = [h[layer * both + side] for h in given]
                    y, after = self.along(x.flip(0) if side else x, states, name)
                    sides.append(y.flip(0) if side else y)
                    last.append(after)
                x = torch.cat(sides, 2)
            x = x.transpose(0, 1) if module.batch_first else x
            ends = tuple(torch.stack(column) for column in zip(*last, strict=True))
            return x, ends if kind == "LSTM" else ends[0]

    class Cell(DynamicRecurrent):
        def forward(self, x: Any, hx: Any = None) -> Any:
            zeros = x.new_zeros((x.shape[0], module.hidden_size))
            states = [zeros] * (1 + (kind == "LSTM")) if hx is None else list(hx) if kind == "LSTM" else [hx]
            after = self.step(self.product(x, "ih"), states, "")
            return tuple(after) if kind == "LSTM" else after[0]

    return Cell() if type(module).__name__.endswith("Cell") else Layers()
