"""What `make bench` concludes from times: no times are measured here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from figures import Group, LayerTime, Row, error_of, geometric_mean, grouped, means, median_of_rounds, paired


def row(name: str = "net", ms: float = 2.0, macs: int = 1000, kind: str = "float", **peers: float) -> Row:
    return Row(name, kind, macs=macs, ms=ms, peers=peers)


def layer(name: str, ms: float, *nodes: str, macs: int = 0) -> LayerTime:
    return LayerTime(name, "conv", ms, nodes, macs)


def test_a_geometric_mean_is_that_of_factors_and_skips_what_is_unknown() -> None:
    assert geometric_mean([0.5, 2.0, math.nan]) == pytest.approx(1.0)
    assert math.isnan(geometric_mean([math.nan]))


def test_the_median_is_taken_over_the_rounds_of_each_runtime() -> None:
    assert median_of_rounds({"a": [3.0, 1.0, 2.0], "b": []}) == {"a": 2.0}


def test_the_best_peer_is_the_fastest_whose_outputs_are_right() -> None:
    measured = row(ncnn=0.5, openvino=3.0, onnxruntime=4.0)
    assert measured.best == "ncnn" and measured.ratio == 0.25
    measured.wrong = frozenset({"ncnn"})
    assert measured.best == "openvino" and measured.ratio == 1.5


def test_a_row_without_a_peer_or_without_us_has_no_ratio() -> None:
    failed = row(openvino=1.0)
    failed.failure = "unsupported"
    assert math.isnan(row().ratio) and math.isnan(failed.ratio)
    assert means([row(), failed]) == {}


def test_means_are_of_floats_of_small_floats_and_of_integers() -> None:
    rows = [row(openvino=2.0, macs=10**6), row(openvino=8.0, macs=10**9), row(kind="int8", openvino=6.0, macs=10**6), row()]
    found = {name: (round(mean, 6), count) for name, (mean, count) in means(rows).items()}
    assert found == {"float": (2.0, 2), "float, below 20 MMAC": (1.0, 1), "int8": (3.0, 1)}


def test_the_error_is_a_share_of_the_largest_output_whatever_their_order() -> None:
    small, large = np.asarray([0.0, 2.0]), np.asarray([[10.0, 20.0, 40.0]])
    assert error_of([small, large + 1.0], [small, large]) == pytest.approx(1 / 40)
    assert error_of([large.ravel(), small + 1.0], [small, large]) == pytest.approx(1 / 2)


def test_outputs_that_are_missing_or_no_numbers_are_not_right() -> None:
    one = np.asarray([1.0])
    assert math.isnan(error_of([one], [one, one])) and math.isnan(error_of([np.asarray([1.0, 2.0])], [one]))
    assert error_of([one * math.nan], [one]) == math.inf


def test_the_share_of_the_peak_counts_the_multiply_adds_of_floats() -> None:
    measured = row(ms=2.0, macs=1000)
    measured.peak = 1000.0
    assert measured.share_of_peak == 0.5
    measured.kind = "int8"
    assert math.isnan(measured.share_of_peak)


def test_layers_are_joined_where_both_sides_name_a_node() -> None:
    ours = [layer("a", 3.0, "conv1", macs=7), layer("b", 1.0, "conv2")]
    theirs = [layer("p", 1.0, "conv1", "relu1"), layer("q", 1.5, "conv2")]
    assert grouped(ours, theirs) == [Group("a", ("conv", "conv"), 3.0, 1.0, 7), Group("b", ("conv", "conv"), 1.0, 1.5)]


def test_layers_that_a_peer_fused_are_compared_with_all_of_ours() -> None:
    ours = [layer("a", 1.0, "conv1"), layer("b", 2.0, "add1"), layer("c", 4.0, "conv2")]
    theirs = [layer("p", 2.5, "conv1", "add1"), layer("q", 4.0, "conv2")]
    assert [(g.name, g.ours_ms, g.peer_ms) for g in grouped(ours, theirs)] == [("b", 3.0, 2.5), ("c", 4.0, 4.0)]


def test_names_agree_when_most_of_our_time_has_a_partner() -> None:
    ours = [layer("a", 3.0, "conv1"), layer("b", 1.0, "conv2")]
    assert paired(grouped(ours, [layer("p", 1.0, "conv1")]))
    assert not paired(grouped(ours, [layer("p", 1.0, "conv2"), layer("q", 9.0, "other")]))


def test_layers_that_one_side_alone_has_are_kept() -> None:
    ours = [layer("a", 1.0, "conv1"), layer("turned", 0.5, "transpose1")]
    theirs = [layer("p", 1.0, "conv1"), layer("reorder", 0.25)]
    groups = grouped(ours, theirs)
    assert [(g.name, g.ours_ms, g.peer_ms) for g in groups] == [("turned", 0.5, 0.0), ("a", 1.0, 1.0), ("reorder", 0.0, 0.25)]
