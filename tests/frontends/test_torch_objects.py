"""Modules and exported programs themselves; buffers that change; open dimensions; what `validate` compares with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commands import Intaglio

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import intaglio as package_api  # noqa: E402
from intaglio.errors import ModelError, UserError  # noqa: E402
from intaglio.frontends.torch import load, save_object  # noqa: E402
from intaglio.run.validate import ValidateOptions, validate  # noqa: E402
from support.torch_architectures import conv_bn  # noqa: E402
from support.torch_running import computed, eager, exported, graph_of, shaken  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_bn(3, 4), nn.Conv2d(4, 4, 1))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.head(torch.relu_(self.body(x)).mean((2, 3)))


def test_layers_are_named_after_modules_and_validate_compares_each(tmp_path: Path) -> None:
    module = shaken(Net())
    module.train()
    package = package_api.compile(module, example_inputs=(torch.zeros(1, 3, 6, 6),), output=tmp_path / "p")
    assert module.training  # it is left as it was
    assert package.manifest.model.source == "ir/source.pt2"
    sources = {layer.source for layer in package.manifest.layers}
    assert {"body.0.0", "body.1", "head"} <= sources
    found = validate(package, ValidateOptions(layers=True))
    assert found.ok
    assert found.reference.startswith("torch ")
    assert {"body.0.2", "relu_"} <= {check.tensor for check in found.layers}
    assert all(check.comparison.ok for check in found.layers)


def test_an_exported_program_is_a_model_too(tmp_path: Path) -> None:
    module = nn.Linear(4, 2)
    program = torch.export.export(module, (torch.zeros(1, 4),))
    package = package_api.compile(program, output=tmp_path / "p", library_only=True)
    x = torch.ones(1, 4)
    assert np.allclose(package.run({"in0": x.numpy()})["linear"], eager(module, (x,))[0], atol=1e-6)


def test_an_operator_without_a_row_is_decomposed_by_torch(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.entr(x.abs() + 0.1) + nn.functional.huber_loss(x, x * 0.5)

    module, x = Odd(), torch.randn(2, 3)
    with pytest.raises(ModelError, match=r"huber_loss|entr"):
        graph_of(exported(module, (x,), tmp_path / "m.pt2"))
    package = package_api.compile(module, example_inputs=(x,), output=tmp_path / "p", library_only=True)
    assert np.allclose(next(iter(package.run({"in0": x.numpy()}).values())), eager(module, (x,))[0], atol=1e-6)


@pytest.mark.slow
def test_what_a_row_refuses_is_decomposed_too(tmp_path: Path) -> None:
    class Projected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(4, 6, proj_size=3)

        def forward(self, x: Any) -> Any:
            return self.rnn(x)[0]

    module, x = Projected(), torch.randn(3, 1, 4)
    package = package_api.compile(module, example_inputs=(x,), output=tmp_path / "p", library_only=True)
    assert np.allclose(next(iter(package.run({"in0": x.numpy()}).values())), eager(module, (x,))[0], atol=1e-5)


class Writes(nn.Module):
    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: Any) -> Any:
        if self.whole:
            return x.sub_(1).relu_() * 2
        x[0] = 1
        return x * 2


def test_an_input_that_is_overwritten_is_left_alone_with_a_note(tmp_path: Path) -> None:
    path = exported(Writes(True), (torch.zeros(3),), tmp_path / "m.pt2")
    graph, notes = load(path, dims={}, shapes={})
    assert "changes its input `x`" in notes[0]
    assert computed(graph, (torch.tensor([0.0, 2.0, 3.0]),))[0].tolist() == [0.0, 2.0, 4.0]


def test_an_input_that_is_used_as_a_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        graph_of(exported(Writes(False), (torch.zeros(3),), tmp_path / "m.pt2"))
    assert "looks like a state" in caught.value.message
    with pytest.raises(ModelError) as caught:
        graph_of(exported(Writes(True), (torch.zeros(3),), tmp_path / "m.pt2", core=True))
    assert "changes its input" in caught.value.message


@pytest.mark.parametrize(
    ("model", "slug"),
    [(nn.Linear(2, 2), "no-example"), (torch.zeros(3), "not-a-model"), (3, "not-a-model"), ({"a": 1}, "not-a-model")],
)
def test_objects_that_cannot_be_compiled(model: object, slug: str) -> None:
    with pytest.raises(UserError) as caught:
        package_api.compile(model)
    assert caught.value.slug == slug


def test_a_module_that_torch_does_not_export() -> None:
    class Branches(nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError) as caught:
        package_api.compile(Branches(), example_inputs=(torch.zeros(3),))
    assert caught.value.slug == "cannot-export"


# State --------------------------------------------------------------------------------------------------------------------


class Remembers(nn.Module):
    """A recurrent state, the last three inputs, and a counter that does not start at one number everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("h", torch.full((1, 4), 0.5))
        self.register_buffer("past", torch.zeros(1, 3, 4))
        self.register_buffer("count", torch.tensor([1.0, 2.0]), persistent=False)

    def forward(self, x: Any) -> Any:
        self.h.copy_(torch.tanh(self.fc(x) + self.h))
        self.past[:, :2] = self.past[:, 1:].clone()
        self.past[:, 2] = x
        self.count += 1
        return self.h * 2, self.past.mean(1), self.count * 1


@pytest.mark.parametrize("core", [False, True], ids=["changed in place", "functional"])
def test_buffers_that_change_are_states(core: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Remembers()
    x = torch.randn(4, 1, 4)
    path = exported(module, (x[0],), tmp_path / "m.pt2", core=core)
    package = package_api.compile(path, output=tmp_path / "p")
    assert {state.input for state in package.manifest.states} == {"h", "past", "count", "started"}
    for step in x:
        got = package.run({"x": step.numpy()})
        for result, want in zip(got.values(), eager(module, (step,)), strict=True):
            assert np.allclose(result, want, atol=1e-6)
    assert package.validate().ok


# Shapes -------------------------------------------------------------------------------------------------------------------


class Open(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(x.shape[0] * 2, -1) + torch.arange(x.shape[1] // 2)


@pytest.fixture(name="open_file")
def _open_file(tmp_path: Path) -> Path:
    program = torch.export.export(
        Open(), (torch.zeros(3, 8),), dynamic_shapes=({0: torch.export.Dim("n"), 1: 2 * torch.export.Dim("half", min=2)},)
    )
    torch.export.save(program, str(tmp_path / "m.pt2"))
    return tmp_path / "m.pt2"


def test_open_dimensions_are_as_in_the_example_and_said(open_file: Path) -> None:
    graph, notes = load(open_file, dims={}, shapes={})
    assert graph.inputs[0].shape == (3, 8)
    assert "as in the example" in notes[0]


def test_open_dimensions_are_pinned(open_file: Path) -> None:
    graph, notes = load(open_file, dims={}, shapes={"in0": (5, 12)})
    assert notes == []
    x = torch.randn(5, 12)
    assert np.allclose(computed(graph, (x,))[0], eager(Open(), (x,))[0])


def test_a_fixed_dimension_cannot_be_pinned(tmp_path: Path) -> None:
    path = exported(nn.Linear(4, 2), (torch.zeros(1, 4),), tmp_path / "m.pt2")
    with pytest.raises(ModelError) as caught:
        load(path, dims={}, shapes={"in0": (2, 4)})
    assert caught.value.slug == "shape-mismatch"


# Commands -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_float_model_is_quantised_here(intaglio: Intaglio, tmp_path: Path) -> None:
    module = shaken(Net())
    path = exported(module, (torch.zeros(1, 3, 6, 6),), tmp_path / "m.pt2")
    np.savez(tmp_path / "x.npz", in0=np.random.default_rng(0).standard_normal((8, 1, 3, 6, 6)).astype(np.float32))
    said = intaglio("compile", path, "-o", tmp_path / "p", "--quantize", "int8", "--calibrate", tmp_path / "x.npz")
    assert said.code == 0, said.err
    told = intaglio("validate", tmp_path / "p")
    assert told.code == 0
    assert "to the float model" in told.out + told.err


@pytest.mark.slow
def test_validate_runs_a_decomposed_program_too(tmp_path: Path) -> None:
    """Core ATen has views that depend on the order in memory, which `clone` sets before."""

    class Turned(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 1).reshape(2, -1)

    package = package_api.compile(exported(Turned(), (torch.zeros(2, 3, 4),), tmp_path / "m.pt2", core=True), output=tmp_path / "p")
    result = package.validate()
    assert result.ok
    assert result.reference.startswith("torch ")


def test_complex_outputs_are_refused(tmp_path: Path) -> None:
    class Spectrum(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x)

    with pytest.raises(ModelError) as caught:
        graph_of(exported(Spectrum(), (torch.zeros(8),), tmp_path / "m.pt2"))
    assert caught.value.slug == "unsupported-type"


def test_attention_is_exported_without_gradients_too(tmp_path: Path) -> None:
    """Where nothing is trained, torch takes a fused operator for a whole layer."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    for parameter in layer.parameters():
        parameter.requires_grad_(False)
    x = torch.randn(1, 5, 8)
    with torch.no_grad():
        graph = graph_of(exported(layer, (x,), tmp_path / "m.pt2"))
    assert np.allclose(computed(graph, (x,))[0], eager(layer, (x,))[0], atol=1e-5)
    assert math.isfinite(float(computed(graph, (x,))[0].sum()))


def test_outputs_of_a_dictionary_have_its_keys(tmp_path: Path) -> None:
    class Both(nn.Module):
        def forward(self, x: Any) -> dict[str, Any]:
            return {"feat": torch.relu(x), "mean": x.mean(1)}

    package = package_api.compile(Both(), example_inputs=(torch.ones(2, 3),), output=tmp_path / "p", library_only=True)
    assert [info.name for info in package.manifest.outputs] == ["feat", "mean"]
    got = package.run({"in0": np.asarray([[1, -2, 4], [0, 0, 3]], np.float32)})
    assert got["feat"].tolist() == [[1, 0, 4], [0, 0, 3]] and got["mean"].tolist() == [1, 1]


def test_a_layer_before_a_change_of_layout_is_compared_in_its_own(tmp_path: Path) -> None:
    """The last sum of a residual network and its turned copy have one name in the model."""

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Conv2d(n, 8, 3, padding=1) for n in (3, 8))

        def forward(self, x: Any) -> Any:
            x = self.a(x)
            return torch.relu(x + self.b(x))

    package = package_api.compile(Residual().eval(), example_inputs=(torch.randn(1, 3, 8, 8),), output=tmp_path / "p")
    result = package.validate(layers=True)
    assert result.ok and result.first_bad_layer is None
    assert len(result.layers) >= 3


class Decoder(nn.Module):
    """Down by a stride and up again, by a factor and to a size."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, 2, 1), nn.Upsample(scale_factor=2)

    def forward(self, x: Any) -> Any:
        small = self.down(x)
        size = (small.shape[2] * 2, small.shape[3] * 2)
        return self.up(small) + nn.functional.interpolate(small, size=size, mode="bilinear")


@pytest.mark.slow
def test_pictures_of_any_size_are_enlarged(tmp_path: Path) -> None:
    sizes = {2: torch.export.Dim.DYNAMIC(min=4, max=20), 3: torch.export.Dim.DYNAMIC(min=4, max=16)}
    module = Decoder().eval()
    program = torch.export.export(module, (torch.zeros(1, 3, 12, 14),), dynamic_shapes=(sizes,))
    package = package_api.compile(program, output=tmp_path / "p", shapes={"in0": (1, 3, "..", "..")})
    for height, width in ((4, 4), (13, 7), (20, 16)):
        x = torch.rand(1, 3, height, width)
        (got,) = package.run({"x": x.numpy()}).values()
        np.testing.assert_allclose(got, module(x).detach().numpy(), atol=1e-5)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):  # type: ignore[no-untyped-def]
        for _ in range(2):
            x = x * 0.5
        return torch.softmax(self.layer(x), -1)


@pytest.mark.parametrize("how", ["traced", "scripted"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_model_that_was_loaded_is_converted(how: str, tmp_path: Path) -> None:
    module, x = shaken(Gate()).eval(), torch.randn(1, 4)
    made = torch.jit.trace(module, x) if how == "traced" else torch.jit.script(module)
    made.save(tmp_path / "m.pt")
    with pytest.raises(ModelError, match="TorchScript") as caught:
        load(tmp_path / "m.pt", dims={}, shapes={})
    assert "torch.jit.load" in (caught.value.hint or "")
    package = package_api.compile(torch.jit.load(tmp_path / "m.pt"), example_inputs=(x,), output=tmp_path / "p")
    (got,) = package.run({"in0": x.numpy()}).values()
    assert np.allclose(got, module(x).detach().numpy(), atol=1e-6)


class Repeats(nn.Module):
    def forward(self, x: Tensor, count: int) -> Tensor:
        for _ in range(count):
            x = x - 1 if bool(x.sum() > 0) else x * 2
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript_with_a_loop_is_refused_with_a_hint(tmp_path: Path) -> None:
    model = torch.jit.script(Repeats())
    with pytest.raises(ModelError, match="torch does not convert the TorchScript module") as caught:
        save_object(model, (torch.ones(3), 2), tmp_path / "m.pt2")
    assert "report a bug" not in caught.value.message
    assert "only traced modules" in caught.value.hint


def test_what_erf_leaves_of_one_has_all_digits(tmp_path: Path) -> None:
    class Left(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.erfc(x), torch.special.erfc(-x)

    x = torch.tensor([3.0, 3.5, 4.0, 5.0, 9.0])
    package = package_api.compile(Left(), example_inputs=(x,), output=tmp_path / "p", library_only=True, cflags="-O0")
    for got, want in zip(package.run({"in0": x.numpy()}).values(), (torch.erfc(x), torch.erfc(-x)), strict=True):
        assert np.allclose(got, want.numpy(), rtol=1e-6, atol=0)


class Applied(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


NAN = math.nan


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("kind", [torch.float32, torch.int32])
def test_the_largest_up_to_each_element(name: str, kind: Any, tmp_path: Path) -> None:
    x = torch.tensor([[3, 1, 3, -2, 5, 5, 0], [0, -4, NAN, 7, -7, NAN, 9]])
    x = torch.nan_to_num(x).to(kind) if kind is torch.int32 else x
    module = Applied(lambda x: (*getattr(torch, name)(x, 1), *getattr(torch, name)(x, 0)))
    made = computed(graph_of(exported(module, (x,), tmp_path / "m.pt2")), (x,))
    for got, want in zip(made, eager(module, (x,)), strict=True):
        assert np.array_equal(got, want, equal_nan=want.dtype.kind == "f")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("more", [{}, {"include_last_offset": True}, {"padding_idx": 2}])
def test_bags_of_an_embedding_begin_where_an_input_says(mode: str, more: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.EmbeddingBag(5, 3, mode=mode, **more).eval()  # type: ignore[arg-type, unused-ignore]
    nn.init.normal_(module.weight)
    indices, offsets = torch.tensor([1, 2, 4, 2, 0, 3]), torch.tensor([0, 2, 2, 6 if "include_last_offset" in more else 5])
    graph = graph_of(exported(module, (indices, offsets), tmp_path / "m.pt2"))
    for starts in (offsets, torch.tensor([0, 1, 4, 6 if "include_last_offset" in more else 4])):
        (got,), (want,) = computed(graph, (indices, starts)), eager(module, (indices, starts))
        assert np.allclose(got, want, atol=1e-6)


def test_rows_of_a_bag_have_weights(tmp_path: Path) -> None:
    module, given = nn.EmbeddingBag(5, 3, mode="sum").eval(), (torch.tensor([[1, 2], [4, 0]]), torch.tensor([[0.5, -1], [2, 3]]))
    wrapped = Applied(lambda indices, shares: module(indices, per_sample_weights=shares))
    graph = graph_of(exported(wrapped, given, tmp_path / "m.pt2"))
    assert np.allclose(computed(graph, given)[0], eager(wrapped, given)[0], atol=1e-6)
