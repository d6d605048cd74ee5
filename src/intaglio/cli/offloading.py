"""What went to accelerators and why, for `compile --explain`."""

from __future__ import annotations

from intaglio.cli.terminal import bytes_text, count_text, print_table, say
from intaglio.errors import counted
from intaglio.passes.offload import Offloaded


def short(text: str, most: int) -> str:
    """The end of a long name says more than its start."""
    return text if len(text) <= most else "…" + text[-(most - 1) :]


def print_offloaded(made: Offloaded, *, explain: bool) -> None:
    if explain:
        rows = []
        for sent in made.sent:
            cost = sent.cost
            parts = f"{count_text(int(cost.cycles))}+{count_text(int(cost.transfer_cycles))}+{count_text(int(cost.launch_cycles))}"
            what = f"{'+'.join(dict.fromkeys(sent.patterns))}: {short(', '.join(sent.layers), 24)}"
            rows.append([sent.place, what, parts, bytes_text(cost.bytes), count_text(int(sent.core_cycles))])
        headings = ["where", "what", ">compute+transfer+launch", ">moved", ">on the core"]
        print_table(headings, rows, title="cycles by the model of costs: accelerators, compared with the core")
        kept = [[short(k.layer, 24), k.op[:14], count_text(int(k.cycles)), "; ".join(k.reasons)] for k in made.kept if k.cycles]
        if kept:
            print_table(["stays on the core", "op", ">cycles", "because"], kept)
    names = ", ".join(sorted({sent.place.rsplit(".", 1)[0] for sent in made.sent})) or "no accelerator"
    layers = sum(len(sent.ops) for sent in made.sent)
    proof = "" if made.proven else ", not proven optimal"
    less = f"about {100 * made.overlapped_cycles / made.core_cycles:.0f} % of the core's cycles alone" if made.core_cycles else ""
    say(
        f"{names}: {layers} of {layers + len(made.kept)} operators in {counted(len(made.sent), 'region')}; "
        f"{less}, by the model of costs{proof}"
    )
    hidden = made.cycles - made.overlapped_cycles
    if hidden > 0.005 * made.cycles:
        say(f"{100 * hidden / made.cycles:.0f} % of the cycles are of a core at work beside an accelerator")
