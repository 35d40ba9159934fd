"""Small SVG charts by hand: axes, lines, bars. One text serves a page, light or dark, and a file that stands alone.

Colours are names (`var(--right)`); a page defines them twice, a file gets those of paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

Span = tuple[float, float]
Point = tuple[float, float]

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f4f1",
    "ink": "#1d1e22",
    "quiet": "#63656e",
    "line": "#dad8d2",
    "right": "#1c6e8c",
    "wrong": "#c4432b",
    "glass": "#9a6b00",
}
DARK = {
    "paper": "#14151a",
    "panel": "#1d1f26",
    "ink": "#e8e7e3",
    "quiet": "#9b9da7",
    "line": "#353842",
    "right": "#62b7d6",
    "wrong": "#f47d62",
    "glass": "#e0b350",
}
STYLE = """
svg.chart { font: 12px system-ui, sans-serif; fill: var(--ink); max-width: 100%; height: auto }
.chart .grid { stroke: var(--line); stroke-width: 1; fill: none }
.chart .tick { fill: var(--quiet); font-size: 11px } .chart .name { fill: var(--ink); font-size: 12px }
.chart .right { fill: var(--right) } .chart .wrong { fill: var(--wrong) } .chart .glass { fill: var(--glass) }
.chart .faint { fill-opacity: .35 } .chart .ideal { stroke: var(--quiet); stroke-dasharray: 4 4; fill: none }
.chart path.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.chart path.line.right, .chart line.right { stroke: var(--right) }
.chart path.line.wrong, .chart line.wrong { stroke: var(--wrong) }
.chart path.line.glass, .chart line.glass { stroke: var(--glass) }
.chart path.line.dashed { stroke-dasharray: 5 4 }
"""
# Characters that XML forbids, or that turn text around: names come from strangers.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def plain(text: str) -> str:
    """Text without control characters, on one line."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))


def safe(text: str) -> str:
    """The same, for HTML and SVG."""
    return escape(plain(text))


def palette(colours: dict[str, str]) -> str:
    """Colours as CSS variables."""
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


@dataclass
class Plot:
    """A rectangle with two axes, and what is drawn in it."""

    width: float
    height: float
    x: Span
    y: Span
    left: float = 48
    top: float = 22
    right: float = 10
    bottom: float = 38
    marks: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> Point:
        """Where a value is on the page."""
        across, up = (x - self.x[0]) / (self.x[1] - self.x[0]), (y - self.y[0]) / (self.y[1] - self.y[0])
        inner = self.height - self.top - self.bottom
        return self.left + across * (self.width - self.left - self.right), self.height - self.bottom - up * inner

    def axes(
        self,
        across: str,
        up: str,
        said: Callable[[float], str] = "{:g}".format,
        counted: Callable[[float], str] = "{:g}".format,
    ) -> None:
        """A grid, numbers beside it (`said` upwards, `counted` across), and the names of the axes."""
        for value in ticks(self.y):
            (x0, y), (x1, _) = self.at(self.x[0], value), self.at(self.x[1], value)
            self.marks.append(f'<path class="grid" d="M{x0:.1f} {y:.1f}H{x1:.1f}"/>')
            self.text(x0 - 6, y + 4, said(value), "tick", "end")
        for value in ticks(self.x):
            x, y = self.at(value, self.y[0])
            self.text(x, y + 16, counted(value), "tick", "middle")
        self.text(self.left, self.top - 8, up, "name", "start")
        self.text(self.width - self.right, self.height - 5, across, "name", "end")

    def line(self, points: Sequence[Point], kind: str, told: str = "") -> None:
        """A line through values, with words for the pointer; a single value is a dot."""
        places = [self.at(*point) for point in points]
        title = f"<title>{safe(told)}</title>" if told else ""
        if len(places) == 1:
            x, y = places[0]
            self.marks.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3">{title}</circle>')
        elif places:
            path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            self.marks.append(f'<path class="line {kind}" d="M{path}">{title}</path>')

    def bar(self, across: Span, up: Span, kind: str, told: str = "") -> None:
        """A rectangle between values, with words for the pointer."""
        (x0, y0), (x1, y1) = self.at(across[0], up[0]), self.at(across[1], up[1])
        title = f"<title>{safe(told)}</title>" if told else ""
        self.marks.append(
            f'<rect class="{kind}" x="{x0 + 1:.1f}" y="{min(y0, y1):.1f}" width="{max(x1 - x0 - 2, 1):.1f}" '
            f'height="{abs(y1 - y0):.1f}">{title}</rect>'
        )

    def ideal(self, points: Sequence[Point]) -> None:
        """A thin line for what would be perfect."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (self.at(*point) for point in points))
        self.marks.append(f'<path class="ideal" d="M{path}"/>')

    def text(self, x: float, y: float, words: str, kind: str, anchor: str = "start") -> None:
        """Words at a place of the page."""
        self.marks.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe(words)}</text>')

    def key(self, names: Iterable[tuple[str, str]]) -> None:
        """What the colours mean, at the right above the plot."""
        x = self.width - self.right
        for words, kind in reversed(list(names)):
            self.text(x, self.top - 8, words, f"tick {kind.partition(' ')[0]}", "end")
            x -= 7.0 * len(words) + 12


def chart(plots: Sequence[Plot], across: int, told: str) -> str:
    """Plots side by side, so many in a row, as one SVG."""
    rows = [plots[start : start + across] for start in range(0, len(plots), across)]
    parts, top = [], 0.0
    for row in rows:
        left = 0.0
        for plot in row:
            parts.append(f'<g transform="translate({left:.0f} {top:.0f})">{"".join(plot.marks)}</g>')
            left += plot.width
        top += max(plot.height for plot in row)
    width = max(sum(plot.width for plot in row) for row in rows)
    return svg(width, top, "".join(parts), told)


def svg(width: float, height: float, inside: str, told: str) -> str:
    """A drawing, with a name for who cannot see it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{safe(told)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">{inside}</svg>'
    )


def alone(drawing: str) -> str:
    """A drawing as a file: with its style and the colours of paper written out, which every viewer understands."""
    style = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], STYLE)
    head, _, rest = re.sub(r"var\(--(\w+)\)", lambda found: LIGHT[found[1]], drawing).partition(">")
    return f'{head}><style>{style}</style><rect width="100%" height="100%" fill="{LIGHT["paper"]}"/>{rest}\n'


def ticks(span: Span, about: int = 5) -> list[float]:
    """Round numbers within a span."""
    low, high = span
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]
