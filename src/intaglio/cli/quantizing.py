"""The report of a quantisation, as a table and sentences."""

from __future__ import annotations

from intaglio.cli.terminal import note, print_table, say
from intaglio.errors import counted
from intaglio.quantize.settings import Account

_MOST_ROWS = 40
_SPELLED = {"equalized": "equalised"}  # the key in JSON, as printed


def print_account(account: Account) -> None:
    """A table of layers, the method, and the error of the outputs."""
    rows = account.layers
    shown = rows if len(rows) <= _MOST_ROWS else sorted(sorted(rows, key=lambda r: -r.alone)[:_MOST_ROWS], key=lambda r: r.number)
    if shown:
        table = [[str(r.number), _short(r.name), r.op[:12], r.stored, f"{r.alone:.2e}", f"{r.accumulated:.2e}"] for r in shown]
        print_table(["layer", "name", "op", "stored", ">error alone", ">accumulated"], table)
        if len(shown) < len(rows):
            say(f"the {len(shown)} layers of {len(rows)} that add the most error; all are in ir/quantization.json")
    tried = ", ".join(f"{_SPELLED.get(name, name)} {error:.2g}" for name, error in account.tried.items())
    data = "random inputs" if account.random_data else counted(account.samples, "sample")
    say(f"quantised to {account.scheme} with {data}; ranges by {account.ranges} (error at the outputs: {tried})")
    done = [f"{counted(account.equalized, 'pair')} of layers equalised"] if account.equalized else []
    done += [f"{counted(account.corrected, 'bias')} corrected"] if account.corrected else []
    done += [f"{counted(len(account.kept), 'layer')} kept wider"] if account.kept else []
    if done:
        say(", ".join(done))
    for out in account.outputs:
        say(f"output {out.name}: cosine {out.cosine:.5f}, relative error {out.relative:.3g}, largest difference {out.largest:.3g}")
    for text in [*account.notes, *([account.advice] if account.advice else [])]:
        say(text)
    if account.layers and all(row.stored == "f32" for row in account.layers):
        note("warning: no layer is computed in integers")


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"...{name[-41:]}"
