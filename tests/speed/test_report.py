"""The text of benchmarks/RESULTS.md: the best peer of every row, also where it wins, and what is missing."""

from __future__ import annotations

from figures import LayerTime, Row
from report import Machine, losses, missing, report, table

MACHINE = Machine("a processor (avx2)", 3, "time by the clock")


def lost() -> Row:
    row = Row("net", "float", macs=2_000_000, ms=2.0, error=1e-6, peers={"openvino": 1.0, "onnxruntime": 3.0}, peak=2_000_000.0)
    row.layers = [LayerTime("conv7", "conv_nhwc", 1.5, ("n7",), 2_000_000)]
    return row


def test_a_row_of_the_table_names_the_best_peer_and_marks_wrong_outputs() -> None:
    row = lost()
    row.wrong = frozenset({"openvino"})
    lines = table([row])
    assert lines[0] == "| model | MMAC | Intaglio | ONNX Runtime | OpenVINO | best peer | ratio | peak | error |"
    assert lines[2] == "| net | 2.0 | 2.000 | 3.000 | 1.000* | ONNX Runtime | 1.50 | 50 % | 1e-06 |"
    assert "not counted" in lines[-1]


def test_the_lowest_ratio_comes_first() -> None:
    won = Row("won", "float", ms=1.0, peers={"mnn": 2.0})
    alone = Row("alone", "float", ms=1.0)
    assert [line.split("|")[1].strip() for line in table([alone, won, lost()])[2:]] == ["net", "won", "alone"]


def test_a_lost_row_shows_the_layers_of_both_sides() -> None:
    row = lost()
    row.layers.append(LayerTime("b", "copy", 0.1, ("n8",)))
    row.profiles["openvino"] = [LayerTime("p", "jit_avx2", 0.5, ("n7",)), LayerTime("q", "reorder", 0.4, ("n8",))]
    text = list(losses([row]))
    assert text[0] == "### net: 0.50 against OpenVINO"
    assert "| conv7 | conv_nhwc | jit_avx2 | 2.00 | 1.5000 | 0.5000 | 1.0000 |" in text
    assert not any(line.startswith("| b ") for line in text)


def test_a_peer_that_renames_its_layers_is_shown_beside_ours() -> None:
    row = lost()
    row.profiles["openvino"] = [LayerTime("Convolution_9", "jit_avx2", 0.5, ("Convolution_9",))]
    assert "| conv7 conv_nhwc | 2.00 | 1.5000 | Convolution_9 jit_avx2 | 0.5000 |" in list(losses([row]))


def test_a_lost_row_without_a_profile_of_the_peer_shows_ours() -> None:
    text = list(losses([lost()]))
    assert "OpenVINO has no profile by layer. Our slowest layers:" in text
    assert "| conv7 | conv_nhwc | 2.00 | 1.5000 |" in text


def test_reasons_that_models_share_are_one_line() -> None:
    rows = [Row(f"net{n}", "float", ms=1.0, missing={"litert": "takes tflite files only"}) for n in range(7)]
    failed = Row("bad", "float", failure="no | kernel")
    assert list(missing([*rows, failed])) == ["- Intaglio, bad: no kernel", "- LiteRT, 7 models: takes tflite files only"]


def test_the_processor_and_the_means_stand_on_top() -> None:
    text = report([lost()], MACHINE).splitlines()
    assert text[2].startswith("Processor: a processor (avx2). Measured peak of its multiply-adds: 4 GFLOP/s")
    assert "- float: geometric mean **0.50** (1 row)" in text
