"""A memory plan as a picture: time across, addresses up, one colour per buffer. An SVG file that needs nothing else.

8 KB ┤      ┌───────┐
     │      │ conv2 │┌──────┐
4 KB ┤┌─────┴───────┤│ pool │
     ││    conv1    ││      │
   0 ┼┴─────────────┴┴──────┴─
      conv1  conv2   pool
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from intaglio.memory.ladder import Peak
from intaglio.memory.lifetimes import Buffer

_LEFT, _TOP, _RIGHT, _BOTTOM = 84, 74, 28, 168
_HEIGHT = 460  # of the arena
_CHARACTER = 6.7  # width at 11 px
_FONT = "font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\""


@dataclass(frozen=True, slots=True)
class Picture:
    """What to draw. `layers` are names in order; buffers may live one step longer, until the caller has read the outputs."""

    title: str
    subtitle: str
    layers: list[str]
    buffers: list[Buffer]
    arena_bytes: int
    state_bytes: int
    peak: Peak | None


def draw(picture: Picture) -> str:
    scale = _Scale(picture)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {scale.full_width} {_TOP + _HEIGHT + _BOTTOM}" '
        f'width="{scale.full_width}" height="{_TOP + _HEIGHT + _BOTTOM}" {_FONT} font-size="11">',
        f"<title>{escape(picture.title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="28" font-size="17" font-weight="600" fill="#1f2328">{escape(picture.title)}</text>',
        f'<text x="{_LEFT}" y="47" font-size="12" fill="#59636e">{escape(picture.subtitle)}</text>',
        *_grid(picture, scale),
        *_state(picture, scale),
        *(part for n, buffer in enumerate(_in_time(picture.buffers)) for part in _box(buffer, n, picture, scale)),
        *_peak(picture, scale),
        *_layers(picture, scale),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Scale:
    def __init__(self, picture: Picture) -> None:
        self.steps = max([len(picture.layers), *(b.last + 1 for b in picture.buffers)])
        self.step = max(6.0, min(90.0, 1000 / max(self.steps, 1)))
        self.bytes = max(picture.arena_bytes, 1)
        self.full_width = round(_LEFT + max(self.steps * self.step, 420) + _RIGHT)

    def x(self, step: float) -> float:
        return round(_LEFT + step * self.step, 2)

    def y(self, offset: float) -> float:
        return round(_TOP + _HEIGHT * (1 - offset / self.bytes), 2)


def _in_time(buffers: list[Buffer]) -> list[Buffer]:
    return sorted(buffers, key=lambda b: (b.first, b.offset, b.name))


def _grid(picture: Picture, scale: _Scale) -> list[str]:
    """Lines at round addresses, and one at the end of the arena."""
    right = scale.x(scale.steps)
    unit = 1
    while picture.arena_bytes / unit > 8:
        unit *= 2
    lines = [
        f'<line x1="{_LEFT}" x2="{right}" y1="{scale.y(at)}" y2="{scale.y(at)}" stroke="#d9dee3"/>'
        f'<text x="{_LEFT - 8}" y="{scale.y(at) + 4}" text-anchor="end" fill="#59636e">{_size(at)}</text>'
        for at in range(0, picture.arena_bytes + 1, unit)
        if at == 0 or abs(scale.y(at) - _TOP) > 14
    ]
    return [
        *lines,
        f'<line x1="{_LEFT}" x2="{right}" y1="{_TOP}" y2="{_TOP}" stroke="#1f2328" stroke-dasharray="5 3"/>',
        f'<text x="{_LEFT - 8}" y="{_TOP + 4}" text-anchor="end" font-weight="600" fill="#1f2328">{picture.arena_bytes:,}</text>',
    ]


def _size(size: int) -> str:
    """Round numbers of bytes, as labels: `512`, `16 KB`, `1.5 MB`."""
    for unit, word in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size / unit:g} {word}"
    return str(size)


def _state(picture: Picture, scale: _Scale) -> list[str]:
    if not picture.state_bytes:
        return []
    top, height = scale.y(picture.state_bytes), scale.y(0) - scale.y(picture.state_bytes)
    label = f'<text x="{_LEFT + 6}" y="{top + height / 2 + 4}" fill="#59636e">state</text>' if height >= 13 else ""
    return [
        f'<g><title>state, {picture.state_bytes:,} bytes, kept between runs</title><rect x="{_LEFT}" y="{top}" '
        f'width="{scale.x(scale.steps) - _LEFT}" height="{height}" fill="#e6e8eb" stroke="#9aa4ae"/>{label}</g>'
    ]


def _box(buffer: Buffer, number: int, picture: Picture, scale: _Scale) -> list[str]:
    left, right = scale.x(buffer.first), scale.x(buffer.last + 1)
    top, bottom = scale.y(buffer.offset + buffer.bytes), scale.y(buffer.offset)
    width, height = right - left, bottom - top
    hue = number * 137.508 % 360  # the golden angle: neighbours in time are far apart
    light = 88 if buffer.scratch_of >= 0 else 78
    dashes = ' stroke-dasharray="3 2"' if buffer.scratch_of >= 0 else ""
    when = f"layers {buffer.first} to {buffer.last}" if buffer.first != buffer.last else f"layer {buffer.first}"
    return [
        f"<g><title>{escape(buffer.name)}: {buffer.bytes:,} bytes at {buffer.offset:,}, {when}</title>"
        f'<rect x="{left}" y="{top}" width="{width:.2f}" height="{height:.2f}" rx="{min(2.0, height / 4):.2f}" '
        f'fill="hsl({hue:.0f} 62% {light}%)" stroke="hsl({hue:.0f} 45% 42%)" stroke-width="{min(1.0, height / 3):.2f}"{dashes}/>'
        f"{_name(buffer.name, left, top, width, height)}</g>"
    ]


def _name(name: str, left: float, top: float, width: float, height: float) -> str:
    """Across where all of it fits, else upwards, else cut where more of it can be read; not at all in what is too small."""
    x, y = left + width / 2, top + height / 2
    across = int((width - 6) / _CHARACTER) if height >= 13 else 0
    along = int((height - 6) / _CHARACTER) if width >= 13 else 0
    if max(across, along) < min(len(name), 6):
        return ""
    if across >= min(len(name), along):
        return f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="#1f2328">{escape(_cut(name, across))}</text>'
    turn, text = f"rotate(-90 {x:.1f} {y:.1f})", escape(_cut(name, along))
    return f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" fill="#1f2328" transform="{turn}">{text}</text>'


def _cut(name: str, most: int) -> str:
    """The end of a long name tells more than its start: `…/conv2/Relu`."""
    return name if len(name) <= most else "…" + name[len(name) - most + 1 :]


def _peak(picture: Picture, scale: _Scale) -> list[str]:
    if picture.peak is None:
        return []
    layer = picture.peak.layer
    left, right = scale.x(layer), scale.x(layer + 1)
    name = picture.layers[layer] if layer < len(picture.layers) else "the end"
    total = picture.state_bytes + picture.peak.bytes
    text = f"peak: {total:,} bytes alive in layer {layer}, {_cut(name, 40)}"
    anchor, x = ("start", left) if left < scale.full_width / 2 else ("end", right)
    return [
        f'<rect x="{left}" y="{_TOP - 6}" width="{right - left:.2f}" height="{_HEIGHT + 10}" fill="none" stroke="#cf222e" '
        'stroke-width="2" rx="3"/>',
        f'<text x="{x}" y="{_TOP - 11}" text-anchor="{anchor}" font-weight="600" fill="#cf222e">{escape(text)}</text>',
    ]


def _layers(picture: Picture, scale: _Scale) -> list[str]:
    """Names below, upwards; only some where they would touch. The layer of the peak always has its own."""
    every = max(1, round(14 / scale.step + 0.49))
    peak = -1 if picture.peak is None else picture.peak.layer
    near = [n for n in range(0, len(picture.layers), every) if n == peak or abs(n - peak) >= every]
    shown = sorted({*near, *([peak] if 0 <= peak < len(picture.layers) else [])})
    y = _TOP + _HEIGHT + 12
    labels = []
    for n in shown:
        x = scale.x(n + 0.5)
        ink, weight = ("#cf222e", ' font-weight="600"') if n == peak else ("#59636e", "")
        text = escape(f"{n} {_cut(picture.layers[n], 17)}")
        turn = f"rotate(-90 {x} {y}) translate(0 4)"
        labels.append(f'<text x="{x}" y="{y}" text-anchor="end" fill="{ink}"{weight} transform="{turn}">{text}</text>')
    return labels
