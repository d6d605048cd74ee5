"""A picture of one gesture: the samples above, and below where the time goes, on the core alone and with the NPU."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from gesture import Experiment

WIDTH, LEFT, RIGHT = 860, 150, 30
AXES = (("aX", "#1b6ca8"), ("aY", "#3a9d5d"), ("aZ", "#c0392b"), ("gX", "#8fb8de"), ("gY", "#9ed5b0"), ("gZ", "#e6a8a0"))
CORE, NPU = "#5b6b7a", "#e08e1b"


def picture(made: Experiment) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 430" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="430" fill="white"/>',
        *_samples(made),
        *_times(made),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _samples(made: Experiment) -> list[str]:
    recording = made.data.test[0]
    name = made.data.names[made.data.test_labels[0]]
    across = WIDTH - LEFT - RIGHT
    lines = [f'<text x="{LEFT}" y="24" font-weight="bold">a test recording: {escape(name)}, 119 samples in one second</text>']
    for axis, (label, colour) in enumerate(AXES):
        points = " ".join(
            f"{LEFT + n * across / (len(recording) - 1):.1f},{110 - 70 * value:.1f}" for n, value in enumerate(recording[:, axis])
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        lines.append(f'<text x="{20 + 60 * (axis // 3)}" y="{80 + 22 * (axis % 3)}" fill="{colour}">{label}</text>')
    return lines


def _times(made: Experiment) -> list[str]:
    across = WIDTH - LEFT - RIGHT
    longest = max(m.time_ms for m in made.machines)
    lines = [f'<text x="{LEFT}" y="222" font-weight="bold">one recognition, {longest:.2f} ms wide</text>']
    for row, machine in enumerate(made.machines):
        top = 240 + 78 * row
        title = "core alone" if row == 0 else "core and NPU"
        lines.append(f'<text x="{LEFT - 12}" y="{top + 24}" text-anchor="end">{title}</text>')
        where = {layer.name: layer.accelerator for layer in machine.package.manifest.layers}
        at = float(LEFT)
        for layer in machine.profile.layers:
            wide = across * (layer.time_ms or 0) / longest
            colour = NPU if where[layer.name] else CORE
            lines.append(f'<rect x="{at:.1f}" y="{top}" width="{max(wide, 0.6):.1f}" height="38" fill="{colour}" stroke="white"/>')
            if wide > 60:
                lines.append(f'<text x="{at + 6:.1f}" y="{top + 24}" fill="white">{escape(layer.op)}</text>')
            at += wide
        told = f"{machine.time_ms:.3f} ms, {machine.profile.total.instructions:,} instructions of the core"
        lines.append(f'<text x="{LEFT}" y="{top + 56}" fill="#333">{told}</text>')
    lines.append(f'<rect x="{LEFT}" y="402" width="14" height="14" fill="{CORE}"/><text x="{LEFT + 20}" y="414">core</text>')
    lines.append(f'<rect x="{LEFT + 80}" y="402" width="14" height="14" fill="{NPU}"/><text x="{LEFT + 100}" y="414">NPU</text>')
    return lines
