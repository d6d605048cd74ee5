"""TFLite Micro's signal operators. What is expected was computed by its own kernels (tflite-micro 0.dev20261023182759)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from support.tflite_models import ModelWriter, Tensor, all_by_reference

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
N, POINTS, CHANNELS = 24, 32, 4
BINS = POINTS // 2 + 1
Fields = dict[str, int | bool]


def custom(w: ModelWriter, name: str, fields: Fields, inputs: list[int], outputs: list[int]) -> None:
    from flatbuffers import flexbuffers

    w.operator("CUSTOM", inputs, outputs, version=1)
    w.model.operatorCodes[-1].customCode = name
    options = bytes(flexbuffers.Dumps(fields)) if fields else b""
    w.graph.operators[-1].customOptions = np.frombuffer(options, np.uint8)


def front_end(clamping: bool, points: int = POINTS) -> bytes:
    w = ModelWriter()
    w.subgraph()

    def made(shape: tuple[int, ...], dtype: str, data: Array | None = None) -> int:
        return w.tensor(Tensor(shape, dtype, data=data), f"t{len(w.graph.tensors)}")

    def short(numbers: Array) -> int:
        return made(numbers.shape, "int16", numbers.astype(np.int16))

    x = made((N,), "int16")
    windowed, scaled, bits = made((N,), "int16"), made((N,), "int16"), made((), "int32")
    spectrum, energies, sums = made((points + 2,), "int16"), made((BINS,), "uint32"), made((CHANNELS,), "uint64")
    roots, cleaned, noise, gained = (made((CHANNELS,), "uint32") for _ in range(4))
    logs = made((CHANNELS,), "int16")
    window = short(np.sin(np.pi * (np.arange(N) + 0.5) / N) * 4096)
    custom(w, "SignalWindow", {"shift": 12}, [x, window], [windowed])
    custom(w, "SignalFftAutoScale", {}, [windowed], [scaled, bits])
    custom(w, "SignalRfft", {"T": 7, "fft_length": points}, [scaled], [spectrum])
    custom(w, "SignalEnergy", {"end_index": BINS - 1, "start_index": 1}, [spectrum], [energies])
    widths, weights = np.array([1, 2, 3, 4, 5]), np.linspace(200, 4000, 15)
    firsts, starts = np.array([1, 2, 4, 7, 11]), np.array([0, 1, 3, 6, 10])
    tables = [short(t) for t in (weights, 4096 - weights, firsts, starts, widths)]
    custom(w, "SignalFilterBank", {"num_channels": CHANNELS}, [energies, *tables], [sums])
    custom(w, "SignalFilterBankSquareRoot", {}, [sums, bits], [roots])
    fields: Fields = {
        "alternate_one_minus_smoothing": 15401, "alternate_smoothing": 983, "clamping": clamping, "min_signal_remaining": 819,
        "num_channels": CHANNELS, "one_minus_smoothing": 15975, "smoothing": 409, "smoothing_bits": 10,
        "spectral_subtraction_bits": 14,
    }  # fmt: skip
    custom(w, "SignalFilterBankSpectralSubtraction", fields, [roots], [cleaned, noise])
    gains = short(np.concatenate([[32000, 31000, 30000], 30000 / (1 + np.arange(122) * 0.4)]))
    custom(w, "SignalPCAN", {"snr_shift": 6}, [cleaned, noise, gains], [gained])
    custom(w, "SignalFilterBankLog", {"input_correction_bits": 3, "output_scale": 64}, [gained], [logs])
    w.graph.inputs, w.graph.outputs = [x], [scaled, bits, spectrum, logs]
    return w.finish()


def sounds() -> list[Array]:
    rng, time = np.random.default_rng(3), np.arange(N)
    waves = [np.sin(0.7 * time) * 32767, rng.integers(-300, 300, N), rng.integers(-32768, 32768, N), np.zeros(N), 40 * np.cos(time)]
    found = [wave.astype(np.int16) for wave in waves]
    found[2][12] = -32768  # its magnitude has no i16
    return found


BITS = [0, 7, 0, 0, 9]
SPECTRA = {
    0: [282, 0, 227, 454, -566, 1272, 6357, -1960, -5853, -3922, 201, 2067, -369, 355, -49, -13, 58, 81, -32, 101, -56, 20, -7, -6,
        5, 21, -20, 24, -25, 1, -10, -7, -2, 0],
    2: [1073, 0, 439, -993, -726, -1041, -1504, 608, 595, 2671, 2416, -2772, -1104, 793, -1273, -2195, 125, 1922, -516, 689, 1009,
        -2107, -2590, 3261, 3912, -909, -2051, -537, 1663, 262, -980, -1084, -247, 0],
}  # fmt: skip
LOGS = {
    False: [[818, 908, 873, 670], [0, 248, 248, 487], [799, 805, 841, 889], [0, 0, 0, 0], [0, 0, 0, 0]],
    True: [[818, 908, 873, 670], [0, 177, 306, 487], [803, 863, 864, 889], [0, 0, 0, 0], [133, 477, 542, 177]],
}


@pytest.mark.parametrize("clamping", [False, True])
def test_sound_becomes_the_features_of_tflite_micro(clamping: bool, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(front_end(clamping))
    found = all_by_reference(tmp_path / "m.tflite", [[x] for x in sounds()])
    assert [int(step[1]) for step in found] == BITS
    assert all(found[n][2].tolist() == wanted for n, wanted in SPECTRA.items())
    assert [step[3].tolist() for step in found] == LOGS[clamping]


def test_a_package_keeps_the_noise_from_run_to_run(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(front_end(True))
    package = intaglio.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    logs = package.run_steps({"in0": np.stack(sounds())})["t11"]
    assert logs.tolist() == LOGS[True]


def test_a_transform_that_is_no_power_of_two_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(front_end(False, 30))
    with pytest.raises(ModelError, match="a power of two"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


@pytest.mark.parametrize("name", ["SignalWindow", "SignalEnergy", "SignalFilterBank", "SignalPCAN", "SignalFilterBankLog"])
def test_options_that_are_missing_are_told(name: str, tmp_path: Path) -> None:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(front_end(False)))
    w = ModelWriter()
    w.model = model
    at = [code.customCode for code in model.operatorCodes].index(name.encode())
    next(o for o in model.subgraphs[0].operators if o.opcodeIndex == at).customOptions = None
    (tmp_path / "m.tflite").write_bytes(w.finish())
    with pytest.raises(ModelError, match="its option"):
        load(tmp_path / "m.tflite", dims={}, shapes={})
