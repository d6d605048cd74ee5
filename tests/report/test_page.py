"""The page: one file, nothing from a network, nothing in it that a name could break; and what a browser makes of it."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from intaglio.report.code import Code, code_of
from intaglio.report.facts import Facts, Figure
from intaglio.report.gather import Wanted, gather
from intaglio.report.page import page, script_json
from intaglio.run.package import Package
from support.commands import Intaglio

MOST_BYTES = 300_000  # without data
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)


@pytest.fixture(scope="module")
def facts(digits: Path) -> Facts:
    return gather(digits, Wanted(), lambda _: None)


@pytest.fixture(scope="module")
def text(facts: Facts, digits: Path) -> str:
    return page(facts, *code_of(Package(digits)))


def data(text: str, name: str) -> str:
    found = re.search(rf'<script id="{name}" type="[a-z/]+">(.*?)</script>', text, re.S)
    assert found is not None
    return found[1]


def test_the_page_has_its_data_and_asks_for_nothing_else(text: str, facts: Facts) -> None:
    told = json.loads(data(text, "facts"))
    assert told["name"] == "digits" and len(told["layers"]) == len(facts.layers)
    code = json.loads(gzip.decompress(base64.b64decode(data(text, "code"))))
    assert all(layer["function"] in code for layer in told["layers"])
    around = text.replace(data(text, "facts"), "").replace(data(text, "code"), "")
    assert len(around.encode()) < MOST_BYTES
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//|@import|url\(|fetch\(|XMLHttpRequest""", around)


def test_figures_read_as_in_the_terminal(facts: Facts) -> None:
    told = json.loads(data(page(replace(facts, figures=(Figure("accuracy", "accuracy", 0.98, "", "measured"),)), {}), "facts"))
    assert [figure["text"] for figure in told["figures"]] == ["98.00 %"]


def test_names_cannot_leave_their_place(facts: Facts) -> None:
    evil = "</script><script>alert(1)</script><!-- & \u2028 @FACTS@ @CODE@"
    hostile = replace(facts, name=evil, layers=(replace(facts.layers[0], name=evil, source=evil), *facts.layers[1:]))
    text = page(hostile, {evil: Code(evil, evil)})
    assert text.count("<script") == 4 and text.count("</script>") == 4 and "alert(1)</script>" not in text
    assert json.loads(data(text, "facts"))["name"] == evil
    assert "<title>&lt;/script&gt;" in text


def test_numbers_that_json_does_not_have() -> None:
    assert script_json({"a": [float("nan"), float("inf"), 1.5]}) == '{"a":[null,null,1.5]}'


def test_the_command_writes_it_and_replaces_only_pages(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    said = intaglio("report", digits, digits, "-o", path, "--no-run")
    assert said.code == 0 and f"report: {path}" in said.out
    assert json.loads(data(path.read_text(), "other"))["layers"] == []
    assert intaglio("report", digits, "-o", path, "--no-run").code == 0
    path.write_text("my thesis")
    refused = intaglio("report", digits, "-o", path, "--no-run")
    assert refused.code == 2 and "error[output-exists]" in refused.err and path.read_text() == "my thesis"
    assert "error[output-exists]" in intaglio("report", digits, "-o", tmp_path, "--no-run").err
    assert "error[not-a-package]" in intaglio("report", tmp_path, "-o", tmp_path / "other.html").err


def test_the_first_of_two_is_before_as_in_compare(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    shutil.copytree(digits, later)
    told = intaglio("report", digits, later, "-o", tmp_path / "r.html", "--no-run", "--json")
    assert told.code == 0
    page = json.loads(data((tmp_path / "r.html").read_text(), "other"))
    compared = intaglio("compare", digits, later, "--no-run", "--json").json
    assert (page["before"], page["after"]) == (compared["before"], compared["after"])
    assert page["before"].startswith(f"{digits}: ") and page["after"].startswith(f"{later}: ")


def test_as_json(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    told = intaglio("report", digits, "-o", tmp_path / "r.html", "--no-run", "--json").json
    assert told["name"] == "digits" and told["regions"][0]["bytes"] and told["budgets"] == []


def large(facts: Facts, count: int) -> Facts:
    """As many layers in a chain with branches."""
    layers = tuple(replace(facts.layers[n % len(facts.layers)], index=n, name=f"layer{n}", label=f"layer{n}") for n in range(count))
    nodes = tuple(replace(facts.nodes[1], label=f"layer{n}", layer=n, x=float(n % 7), y=n) for n in range(count))
    edges = tuple((max(0, n - 1 - n % 3), n) for n in range(1, count))
    blocks = tuple(replace(facts.blocks[0], layer=n, first=n, last=n) for n in range(count))
    region = replace(facts.regions[0], live=(1,) * count, peak=count // 2)
    return replace(facts, layers=layers, nodes=nodes, edges=edges, blocks=blocks, regions=(region,))


def in_browser(path: Path, *flags: str) -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", *flags]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
@pytest.mark.parametrize("size", ["1280,900", "390,900"])
def test_a_browser_draws_every_part(text: str, size: str, tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text(text)
    dom = in_browser(tmp_path / "r.html", f"--window-size={size}")
    assert 'data-ready="yes"' in dom
    for part in ("overview", "memory", "layers", "graph-section", "numerics", "passes", "use"):
        assert f'<section id="{part}">' in dom
    assert dom.count('<tr tabindex="0"') >= 6 and dom.count('class="block"') >= 5


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_two_thousand_layers_are_drawn(facts: Facts, tmp_path: Path) -> None:
    (tmp_path / "r.html").write_text(page(large(facts, 2000), {}))
    dom = in_browser(tmp_path / "r.html")
    assert 'data-ready="yes"' in dom and "2000 of 2000 layers" in dom


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_files_for_perfetto_and_model_explorer(text: str, facts: Facts, tmp_path: Path) -> None:
    """The Trace Event format: complete events in microseconds. Model Explorer: values by the names of tensors, without a graph."""
    calls = "for (const part of ['trace', 'overlay']) document.body.append(el('pre', { id: 'made-' + part }, window[part]()));"
    (tmp_path / "r.html").write_text(text.replace("</body>", f"<script>{calls}</script></body>"))
    dom = in_browser(tmp_path / "r.html")
    trace, overlay = (
        json.loads(html.unescape(dom.split(f'<pre id="made-{part}">')[1].split("</pre>")[0])) for part in ("trace", "overlay")
    )
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(facts.layers) and trace["traceEvents"][0]["ph"] == "M"
    assert all({"name", "cat", "ts", "dur", "pid", "tid"} <= event.keys() for event in events)
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1e-6 for before, after in pairwise(events))
    assert set(overlay) == {"name", "results", "gradient"} and len(overlay["results"]) == len({x.source for x in facts.layers})
    assert all(isinstance(one["value"], float | int) for one in overlay["results"].values())
