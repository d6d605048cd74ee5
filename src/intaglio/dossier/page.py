"""A dossier as one HTML file: plain tables, no script, good to print."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from intaglio.dossier.coverage import percent
from intaglio.dossier.facts import Dossier
from intaglio.dossier.memory import bytes_of

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;color:#1a1a1a;max-width:1100px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;margin:0 0 .3rem}h2{font-size:1.2rem;margin:2.2rem 0 .5rem;border-bottom:2px solid #264653;padding-bottom:.2rem}
table{border-collapse:collapse;width:100%;margin:.6rem 0;font-size:12.5px}
th{background:#eef2f4;text-align:left;font-weight:600}th,td{border:1px solid #c9d2d6;padding:3px 7px;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code{font:12px/1.4 ui-monospace,monospace;word-break:break-word}p{margin:.4rem 0}.sub{color:#55636a}
.ok{color:#1b7340;font-weight:600}.no{color:#b3261e;font-weight:600}nav a{margin-right:1rem;white-space:nowrap}
@media print{body{max-width:none;margin:0;font-size:11px}h2{break-after:avoid}tr{break-inside:avoid}nav{display:none}}
"""
SECTIONS = (
    ("identity", "Package"), ("requirements", "Requirements"), ("trace", "Trace"), ("numerics", "Errors"), ("memory", "Memory"),
    ("time", "Time"), ("code", "Code"), ("tests", "Tests"), ("tools", "Tools"), ("limits", "Limits"),
)  # fmt: skip
Cell = str | int | float | None


def page(d: Dossier) -> str:
    name = html.escape(d.manifest.name)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Dossier: {name}</title><style>{STYLE}</style></head><body>",
        f"<h1>Dossier: {name} for {html.escape(d.manifest.target)}</h1>",
        "<p class=sub>Evidence for a certification file. Written by Intaglio from the package itself.</p>",
        "<nav>" + "".join(f"<a href='#{key}'>{title}</a>" for key, title in SECTIONS) + "</nav>",
        _identity(d), _requirements(d), _trace(d), _numerics(d), _memory(d), _time(d), _code(d), _tests(d), _tools(d),
        _head("limits", "Known limits"), _list(d.limits), "</body></html>\n",
    ]  # fmt: skip
    return "\n".join(parts)


def _list(texts: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>"


def _head(key: str, title: str) -> str:
    return f"<h2 id={key}>{html.escape(title)}</h2>"


def _table(titles: Sequence[str], rows: Iterable[Sequence[Cell]], code: Sequence[int] = ()) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    body = []
    for row in rows:
        cells = []
        for n, cell in enumerate(row):
            text = (
                "" if cell is None else f"{cell:,}" if isinstance(cell, int) else f"{cell:.3g}" if isinstance(cell, float) else cell
            )
            shown = html.escape(text)
            kind = " class=n" if isinstance(cell, (int, float)) else ""
            cells.append(f"<td{kind}>{f'<code>{shown}</code>' if n in code and shown else shown}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _verdict(good: bool, yes: str, no: str) -> str:
    return f"<p class={'ok' if good else 'no'}>{html.escape(yes if good else no)}</p>"


def _identity(d: Dossier) -> str:
    m = d.manifest
    rows: list[tuple[Cell, ...]] = [
        ("model", f"{m.model.file}"), ("SHA-256 of the model", m.model.sha256), ("target", m.target), ("Intaglio", m.intaglio),
        ("options", ", ".join(f"{key}={value}" for key, value in sorted(m.options.items())) or "none"),
        ("SHA-256 of manifest.json", d.manifest_digest), ("binary", d.binary or "none"), ("SHA-256 of the binary", d.binary_digest),
        ("files", f"{len(m.files)}, each with its SHA-256 in manifest.json"),
        ("inputs", "; ".join(f"{t.name}: {t.dtype}[{t.shape_text}]" for t in m.inputs)),
        ("outputs", "; ".join(f"{t.name}: {t.dtype}[{t.shape_text}]" for t in m.outputs)),
        ("layers", f"{len(m.layers)}, {sum(layer.macs for layer in m.layers):,} multiply-adds"),
    ]  # fmt: skip
    told = _verdict(
        d.whole, "All files are as the manifest lists them.", "Files differ from the manifest: this is not the package as written."
    )
    return _head("identity", "Package and model") + told + _table(("what", "value"), rows, (1,))


def _requirements(d: Dossier) -> str:
    text = (
        "<p>A layer has to compute what its operator means. The meaning is a function in numpy; integers have to be equal bit for "
        "bit, floats within the bounds below.</p>"
    )
    rows = [(r.op, r.meaning, r.reference, r.layers) for r in d.requirements]
    return (
        _head("requirements", "Requirements: what each operator means")
        + text
        + _table(("operator", "meaning", "reference", "uses"), rows, (0, 2))
    )


def _trace(d: Dossier) -> str:
    rows = []
    for t in d.trace.layers:
        place = t.place
        lines = "" if place is None else f"{place.file}:{place.first_line}-{place.last_line}"
        address = "" if place is None or not place.address else f"{place.address:#010x}, {place.bytes:,} bytes"
        rows.append((t.layer, t.nodes, t.ir, ", ".join(t.passes), "" if place is None else place.function, lines, address))
    back = [(name, ", ".join(map(str, numbers))) for name, numbers in d.trace.functions]
    text = _head("trace", "Trace, forwards: model node, IR, passes, C, addresses")
    text += _table(("layer", "node of the model", "IR", "passes", "C function", "lines", "address"), rows, (2, 4, 5, 6))
    text += "<h3>Backwards: C function to layers</h3>" + _table(("C function", "layers"), back, (0,))
    if d.trace.nodes:
        left = ", ".join(d.trace.left_out) or "none"
        text += (
            f"<p>Of {d.trace.nodes} named nodes of the model, these have no layer of their own: <code>{html.escape(left)}</code>. "
        )
        text += "They were folded into constants or joined with a neighbour by the passes above.</p>"
    return text


def _numerics(d: Dossier) -> str:
    rows = [
        (b.layer, b.name, b.largest if b.kind == "bounded" else None, b.bound if b.kind == "bounded" else None,
         b.relative if b.kind == "bounded" else None, "" if b.kind == "bounded" else b.kind)
        for b in d.numerics
    ]  # fmt: skip
    text = (
        "<p>For every order of sums and products, on the test vectors: the largest distance of any correct f32 computation from "
        "the real numbers. Computed from the graph, not measured (decision 0040).</p>"
    )
    return (
        _head("numerics", "Numeric error bounds")
        + text
        + _table(("layer", "name", "largest value", "error at most", "relative", ""), rows)
    )


def _memory(d: Dossier) -> str:
    m, proof = d.manifest, d.memory
    text = _head("memory", "Memory map and stack")
    stack = None if m.firmware is None else m.firmware.stack_bytes
    rows: list[tuple[Cell, ...]] = [
        ("arena", m.memory.arena_bytes), ("of that, state between runs", m.memory.state_bytes), ("weights", m.memory.weight_bytes),
    ]  # fmt: skip
    if m.firmware is not None:
        rows += [("stack of one inference, at most", "no bound" if stack is None else stack), ("flash", m.firmware.flash_bytes)]
        rows += [("RAM", m.firmware.ram_bytes)]
    text += _table(("what", "bytes"), rows)
    good = f"Proven: of {proof.pairs:,} pairs of buffers, none that live together overlap, except on purpose."
    good += " The compiler's checker agrees. Inputs and outputs are the caller's: they must not overlap."
    bad = f"Not proven: {', '.join(f'{a} and {b}' for a, b in proof.overlapping[:5]) or proof.checked}"
    text += _verdict(proof.ok, good, bad)
    text += _table(
        ("buffer", "region", "from", "to", "layers"),
        [(b.value, *bytes_of(b), f"{b.first_layer} to {b.last_layer}") for b in proof.buffers],
    )
    if proof.shared:
        text += "<h3>Shared on purpose</h3>" + _table(
            ("buffer", "with", "why"), [(s.first, s.second, s.reason) for s in proof.shared]
        )
    return text


def _time(d: Dossier) -> str:
    t = d.timing
    text = _head("time", "Bound of the execution time")
    if t.reason:
        return text + f"<p>None: {html.escape(t.reason)}.</p>"
    text += f"<p>Cycles of a {html.escape(t.core)} at zero wait states: the way through the machine code that costs most.</p>"
    rows: list[tuple[Cell, ...]] = [
        (b.layer, b.name, b.observed, b.cycles if b.cycles is not None else "no bound", _above(b.cycles, b.observed), b.reason)
        for b in t.layers
    ]
    rows.append(("", "total", t.observed, t.total if t.total is not None else "no bound", _above(t.total, t.observed), ""))
    text += _table(("layer", "name", "observed, cycles", "bound, cycles", "above", ""), rows)
    told = (
        f"<p>The observed total is the most of {t.inputs:,} runs on inputs made to be bad: small, large, saturating, constant.</p>"
    )
    return text + (told if t.inputs else "")


def _above(bound: int | None, observed: int) -> str:
    return "" if bound is None or not observed else f"{100 * (bound / observed - 1):.1f} %"


def _code(d: Dossier) -> str:
    text = _head("code", "Code: what a reviewer asks")
    if not d.kernels:
        return text + "<p>The package has no IR file to read the loops from.</p>"
    bad = [k for k in d.kernels if not k.facts.sound]
    good = (
        f"All {sum(k.facts.loops for k in d.kernels):,} loops of {len(d.kernels)} kernels have bounds that no data changes, and "
        "every index that depends on data is checked or limited."
    )
    text += _verdict(not bad, good, f"Not shown for: {', '.join(k.function for k in bad)}")
    text += "<p>No recursion, no heap, no pointers to functions: the language that kernels are written in cannot say these.</p>"
    rows = [
        (k.function, k.facts.loops, "; ".join(k.facts.unbounded) or "none changes", "; ".join(k.facts.indices) or "none")
        for k in d.kernels
    ]
    return text + _table(("kernel", "loops", "bounds that depend on data", "indices that depend on data"), rows, (0,))


def _tests(d: Dossier) -> str:
    text = _head("tests", "Tests and coverage")
    if d.validation is None:
        text += f"<p>Comparison with the reference: {html.escape(d.validation_note)}.</p>"
    else:
        text += _verdict(
            d.validation.ok, "Outputs and layers agree with the reference.", "Outputs or layers differ from the reference."
        )
        outputs = [(o.name, o.max_abs, o.max_rel, o.mismatches) for o in d.validation.outputs]
        text += _table(("output", "largest error", "relative", "integers that differ"), outputs)
    c = d.coverage
    if c.reason:
        return text + f"<p>Coverage: none: {html.escape(c.reason)}.</p>"
    rows: list[tuple[Cell, ...]] = [
        (f.file, f.lines, f.ran, f"{100 * f.ran / max(1, f.lines):.1f} %", f.branches, f.taken, _spans(f.missing)) for f in c.files
    ]
    text += _table(("file", "lines", "ran", "statements", "branches", "taken", "lines that did not run"), rows, (0, 6))
    shares = f"Statements {percent(c.statement_share)}, branches {percent(c.branch_share)}"
    text += f"<p>{shares}, {c.runs} runs, {html.escape(c.compiler)}.</p>"
    if c.conditions is None:
        return text + "<p>MC/DC: not measured: it needs gcc 14 or later, or clang 18 or later with llvm-cov.</p>"
    if c.conditions_by:
        others = ", ".join(html.escape(f"{file}:{line}") for file, line in c.undecided)
        others = f" Others, which the geometry of this network decides or which no run reached: {others}." if others else ""
        alone = f"MC/DC: {c.covered} of {c.conditions} conditions decide alone, {html.escape(c.conditions_by)}."
        return f"{text}<p>{alone}{others}</p>"
    return text + f"<p>MC/DC: {c.covered} of {c.conditions} outcomes of conditions.</p>"


def _spans(numbers: Sequence[int]) -> str:
    spans: list[list[int]] = []
    for n in numbers:
        if spans and spans[-1][1] == n - 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:12]]
    return ", ".join(shown) + (f" and {len(spans) - 12} more" if len(spans) > 12 else "")


def _tools(d: Dossier) -> str:
    return _head("tools", "Tools") + _table(("tool", "version", "SHA-256"), [(t.name, t.version, t.digest) for t in d.tools], (2,))
