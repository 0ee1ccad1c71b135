"""One style for all pictures: what each script draws with, on light pages and on dark ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What a class of a shape looks like on a light page, and on a dark one. The colours of lines tell what goes there: blue is a
#: request and what is asked, green a reply and what is told, red what is lost, orange the keeper of a directory.
COLOURS: Final = (
    ("paper", "fill: #ffffff", "fill: #15181c"),
    ("text", "fill: #22272e", "fill: #dfe3e8"),
    ("small", "fill: #57606a", "fill: #a3abb5"),
    ("box", "fill: #f1f4f7; stroke: #8a97a5", "fill: #242a31; stroke: #768390"),
    ("area", "fill: none; stroke: #8a97a5", "fill: none; stroke: #768390"),
    ("faint", "stroke: #c3cbd4", "stroke: #444c56"),
    ("blue", "stroke: #1f6fb2", "stroke: #6cb6ff"),
    ("green", "stroke: #2f7d32", "stroke: #6bc46d"),
    ("red", "stroke: #b3261e", "stroke: #f47067"),
    ("node", "fill: #ffffff; stroke: #57606a", "fill: #2d333b; stroke: #a3abb5"),
    ("member", "fill: #cfe6cf; stroke: #2f7d32", "fill: #244a26; stroke: #6bc46d"),
    ("caller", "fill: #cfe2f3; stroke: #1f6fb2", "fill: #1d3f5e; stroke: #6cb6ff"),
    ("root", "fill: #fbdfb8; stroke: #b36b00", "fill: #5a3d0c; stroke: #e0a84c"),
    ("dead", "fill: #fbeceb; stroke: #b3261e", "fill: #4a1f1c; stroke: #f47067"),
    ("kill", "fill: #b3261e", "fill: #f47067"),
    ("blue-head", "fill: #1f6fb2", "fill: #6cb6ff"),
    ("green-head", "fill: #2f7d32", "fill: #6bc46d"),
)
SHAPES: Final = """
  text { font: 13px sans-serif }
  .title { font-weight: bold; font-size: 15px }
  .mono { font-family: monospace }
  .small, .kill { font-size: 11px }
  .kill { font-weight: bold }
  .faint, .blue, .green, .red { fill: none; stroke-width: 1.6 }
  .faint { stroke-width: 0.8 }
  .area { stroke-dasharray: 6 4 }
  .ask { marker-end: url(#blue) }
  .tell { marker-end: url(#green); stroke-dasharray: 6 3 }
"""


def picture(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """Return a whole picture.

    Args:
        width: In pixels.
        height: In pixels.
        title: What it shows, for those who do not see it.
        parts: The shapes, the ones behind first.
    """
    light = "".join(f"\n  .{name} {{ {look} }}" for name, look, _dark in COLOURS)
    dark = "".join(f"\n    .{name} {{ {look} }}" for name, _light, look in COLOURS)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{SHAPES}{light}\n  @media (prefers-color-scheme: dark) {{{dark}\n  }}\n</style>",
            *(arrow_head(colour) for colour in ("blue", "green")),
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def arrow_head(colour: str) -> str:
    return (
        f'<marker id="{colour}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path class="{colour}-head" d="M0 0 L10 5 L0 10 z"/></marker>'
    )


def text(x: float, y: float, words: str, kind: str = "text", anchor: str = "middle") -> str:
    """Return a line of text; its colour is that of ``text`` unless the kind has one."""
    colour = "" if {"small", "text", "kill"} & {*kind.split()} else "text "
    return f'<text class="{colour}{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def box(left: float, top: float, width: float, height: float, kind: str = "box", radius: int = 6) -> str:
    return f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}"/>'


def circle(x: float, y: float, radius: float, kind: str = "node") -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>'


def line(start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def shortened(
    start: tuple[float, float], end: tuple[float, float], by: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the ends of a line that stops short of both."""
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length * by, (y2 - y1) / length * by
    return (x1 + dx, y1 + dy), (x2 - dx, y2 - dy)


def on_ring(fraction: float, centre: tuple[float, float], radius: float) -> tuple[float, float]:
    """Return a place on a circle: 0 is at the top, and it goes round clockwise."""
    angle = fraction * 2 * math.pi - math.pi / 2
    return centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)
