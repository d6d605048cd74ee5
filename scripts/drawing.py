"""A few shapes as SVG, readable on light and dark pages: what `concept_pictures.py` draws with.

Text is never wider than its box: widths are estimated from the number of characters, and `box` refuses text that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

STYLE = """
  svg { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 15px; }
  .page { fill: #ffffff; } .ink { fill: #1b1f24; } .soft { fill: #57606a; }
  .mono { font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; font-size: 13.5px; }
  .bold { font-weight: 600; } .small { font-size: 13px; }
  .box { stroke-width: 1.5; } .line { stroke: #57606a; stroke-width: 1.5; fill: none; } .tip { fill: #57606a; }
  .dashed { stroke-dasharray: 5 4; }
  .grey { fill: #f3f4f6; stroke: #8c959f; } .blue { fill: #ddeaff; stroke: #2f6fd0; } .green { fill: #d9f2e0; stroke: #2c8a4b; }
  .amber { fill: #fdebc8; stroke: #b57a11; } .violet { fill: #ebe2fb; stroke: #7a52c4; } .red { fill: #fbdfdc; stroke: #c2463a; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; } .ink { fill: #e6edf3; } .soft { fill: #a3adb8; }
    .line { stroke: #a3adb8; } .tip { fill: #a3adb8; }
    .grey { fill: #1c2129; stroke: #6e7681; } .blue { fill: #14294a; stroke: #5b93ea; } .green { fill: #12311d; stroke: #4cb06d; }
    .amber { fill: #3a2a0a; stroke: #d29a35; } .violet { fill: #2a1f45; stroke: #a384e0; } .red { fill: #42201d; stroke: #e0716a; }
  }
"""
SANS, MONO, SMALL = 8.3, 8.2, 7.2  # an upper estimate of the width of a character, in pixels


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text in a box."""

    text: str
    kind: str = ""  # of bold, mono, small, soft

    @property
    def width(self) -> float:
        return len(self.text) * (MONO if "mono" in self.kind else SMALL if "small" in self.kind else SANS)


@dataclass(slots=True)
class Picture:
    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        ink = "soft" if "soft" in kind else "ink"
        names = " ".join([ink, *(k for k in kind.split() if k != "soft")])
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{names}" text-anchor="{anchor}">{escape(words)}</text>')

    def box(self, x: float, y: float, w: float, h: float, colour: str, lines: list[Line | str], anchor: str = "middle") -> None:
        """A rectangle with its lines of text in the middle, or at the left edge (`start`)."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" class="box {colour}"/>')
        step = 20
        top = y + h / 2 - step * (len(lines) - 1) / 2 + 5
        for i, line in enumerate(Line(line) if isinstance(line, str) else line for line in lines):
            if line.width > w - 12 or len(lines) * step > h:
                raise ValueError(f"{line.text!r} does not fit a box of {w:g} x {h:g}")
            self.text(x + w / 2 if anchor == "middle" else x + 10, top + i * step, line.text, line.kind, anchor)

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through the points, with a tip at the last one."""
        (x0, y0), (x1, y1) = points[-2:]
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        ends = [*points[:-1], (x1 - 7 * ux, y1 - 7 * uy)]
        path = " ".join(f"{x:g},{y:g}" for x, y in ends)
        self.parts.append(f'<polyline points="{path}" class="line{" dashed" if dashed else ""}"/>')
        sides = [(x1, y1), (x1 - 9 * ux - 5 * uy, y1 - 9 * uy + 5 * ux), (x1 - 9 * ux + 5 * uy, y1 - 9 * uy - 5 * ux)]
        self.parts.append(f'<polygon points="{" ".join(f"{x:g},{y:g}" for x, y in sides)}" class="tip"/>')

    def rule(self, x0: float, y0: float, x1: float, y1: float, *, dashed: bool = False) -> None:
        self.parts.append(f'<line x1="{x0:g}" y1="{y0:g}" x2="{x1:g}" y2="{y1:g}" class="line{" dashed" if dashed else ""}"/>')

    def svg(self) -> str:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"><title>{escape(self.title)}</title>'
        page = f'<rect width="{self.width}" height="{self.height}" class="page"/>'
        return "\n".join([head, f"<style>{STYLE}</style>", page, *self.parts, "</svg>", ""])
