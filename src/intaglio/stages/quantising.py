"""A float graph becomes an integer one, using the calibration data; or only its weights are narrowed."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.graph import Graph
from intaglio.options.request import Quantization, Request
from intaglio.passes import narrow, prepare
from intaglio.quantize import check, quantize
from intaglio.quantize.settings import silent
from intaglio.run.accuracy import accuracy_of, check_count, keep_accuracy, read_labels
from intaglio.run.calibration import Samples, random_samples, read_samples, samples_of
from intaglio.run.package import Package
from intaglio.stages.watch import Watch
from intaglio.stages.work import Work, need


def quantise(work: Work) -> Work:
    how, model, watch = work.request.quantization(), need(work.model), work.watch
    if how is None:
        return work
    watch.stage("quantize")
    if how.settings is None:
        return replace(work, model=replace(model, graph=narrow(model.graph, model.context)))
    graph = prepare(model.graph, model.context)
    check(graph, how.settings)
    real = how.data is not None or how.calibrate is not None
    if not real:
        watch.note("warning: no calibration data (`--calibrate`): ranges come from random inputs, which rarely resemble real ones")
    made, account = quantize(graph, _samples(how, graph), how.settings, random_data=not real, progress=watch.progress or silent)
    if work.request.labels is not None:
        check_count(read_labels(work.request.labels), account.samples)  # before the package is built
    watch.account(account)
    return replace(work, model=replace(model, graph=made, account=account))


def measure_accuracy(request: Request, package: Package, watch: Watch) -> None:
    """On the calibration data, by their labels; the package keeps it."""
    how = request.quantization()
    if request.labels is None or how is None:
        return
    found = accuracy_of(package, lambda graph: _samples(how, graph), read_labels(request.labels))
    keep_accuracy(package, found, request.sign)
    watch.accuracy(found)


def _samples(how: Quantization, graph: Graph) -> Samples:
    if how.data is not None:
        return samples_of(dict(how.data), graph, "the calibration data")
    return read_samples(how.calibrate, graph) if how.calibrate is not None else random_samples(graph)
