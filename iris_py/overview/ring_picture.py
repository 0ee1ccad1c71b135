"""A picture of a network as SVG: the nodes on a circle at the angles of their ids, as on the ring, with links as chords.

Colours show groups, which are zones or clusters, on light and on dark pages. A network with too many nodes to distinguish is
drawn by groups: a circle for each, and a chord for all links between two groups.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from xml.etree.ElementTree import Element

__all__ = ["NodePosition", "draw_groups", "draw_nodes", "links_of"]

WIDTH: Final = 1000
HEIGHT: Final = 850
CENTRE: Final = (390.0, 455.0)
RADIUS: Final = 290.0
LEGEND_LEFT: Final = 765.0
#: Maximum number of nodes for each radius of dots, in pixels.
DOTS: Final = ((100, 6.0), (250, 4.5), (math.inf, 2.8))
#: Room for outer rows of dots, where ids are too near to each other for the size of dots (pixels). Dots beyond it hide others.
ROWS_ROOM: Final = 40.0
#: Radius of the circle of groups, radius of the largest group, and the minimum room of a group with its name beside it.
GROUPS_RADIUS: Final = 225.0
GROUP_MAX: Final = 56.0
GROUP_NAMED_MIN: Final = 24.0
#: Maximum number of links for each opacity: many links must not hide a few, and a few must be visible.
STRENGTHS: Final = ((100, 0.7), (600, 0.45), (2000, 0.28), (math.inf, 0.15))
#: Room for the id of a node beside the next, in pixels: where nodes are nearer to each other, one of them has no id.
LABEL_HEIGHT: Final = 10.0
#: Maximum length of a group's name in the legend.
NAME_MAX: Final = 26
#: Digits of an id, as elsewhere on the command line.
ID_DIGITS: Final = 8
_RING: Final = 1 << 128

#: The colours of groups on light and on dark pages, the largest group first. More than ten cannot be distinguished.
COLOURS: Final = (
    ("#1f6fb2", "#6cb6ff"),
    ("#d9730d", "#f0a35e"),
    ("#2f7d32", "#6bc46d"),
    ("#b3261e", "#f47067"),
    ("#7b4fb5", "#b794f4"),
    ("#0f8a8a", "#4fd1d1"),
    ("#c2418f", "#f08cc5"),
    ("#8a5a2b", "#c9a27a"),
    ("#7d7d00", "#d0d04a"),
    ("#4b5bd1", "#94a0ff"),
)
_OTHER: Final = ("#57606a", "#a3abb5")
#: Styles that differ between light and dark pages: selector, property, and both colours.
_LOOKS: Final = (
    ("text", "fill", "#22272e", "#dfe3e8"),
    (".small, .id", "fill", "#57606a", "#a3abb5"),
    (".paper", "fill", "#ffffff", "#15181c"),
    (".ring, .between, .silent circle", "stroke", "#8a97a5", "#768390"),
    (".node circle", "stroke", "#ffffff", "#15181c"),
    (".node:hover circle", "stroke", "#22272e", "#dfe3e8"),
)
#: Common styles. CSS variables would be shorter, but most programs other than browsers do not know them.
_SHAPES: Final = """
  text { font: 13px sans-serif }
  .title { font-weight: bold; font-size: 16px }
  .small { font-size: 12px }
  .id { font: 9px monospace }
  .ring { fill: none; stroke-width: 0.8; stroke-dasharray: 3 4 }
  .link { fill: none; stroke-width: 1 }
  .node circle { stroke-width: 1.5 }
  .silent circle { stroke-dasharray: 2.5 2 }
"""


@dataclass(frozen=True, slots=True)
class NodePosition:
    """A node to be drawn in the picture.

    Attributes:
        id: The node id, 32 hexadecimal digits.
        group: The group that determines the colour; empty without a group.
        words: The description of the node, by line.
        links: The ids of the nodes it has links to.
        is_known: Whether the node itself has answered; reports of other nodes are drawn in any case.
    """

    id: str
    group: str
    words: tuple[str, ...]
    links: frozenset[str]
    is_known: bool = True


def links_of(places: Sequence[NodePosition]) -> set[tuple[str, str]]:
    """Return each link between two drawn nodes once, even if only a single end reports the link."""
    there = {place.id for place in places}
    return {(min(place.id, link), max(place.id, link)) for place in places for link in place.links & there if link != place.id}


def draw_nodes(places: Sequence[NodePosition], title: str, notes: Sequence[str] = ()) -> str:
    """Draw nodes and their links; return the picture as SVG.

    Args:
        places: The nodes.
        title: The title.
        notes: Remarks, by line, for example about missing nodes.
    """
    sizes = Counter(place.group for place in places)
    colours = _colours_of(sizes)
    links = links_of(places)
    picture = _begin(title, notes, colours, len(links))
    _circle(picture, "ring", CENTRE, RADIUS)
    radius = next(radius for most, radius in DOTS if len(places) <= most)
    spots = _spots_of(places, radius)
    _draw_links(picture, links, {place.id: place.group for place in places}, spots, colours)
    for place in places:
        kind = "" if place.is_known else " silent"
        _dot(picture, f"node c{colours[place.group]}{kind}", _on_ring(*spots[place.id]), radius, place.words)
    _draw_ids(picture, spots, radius)
    _draw_legend(picture, sizes, colours, sum(not place.is_known for place in places))
    return _text_of(picture)


def draw_groups(places: Sequence[NodePosition], title: str, notes: Sequence[str] = ()) -> str:
    """Draw groups of nodes and the links between groups; return the picture as SVG. Arguments as for :func:`draw_nodes`."""
    sizes = Counter(place.group for place in places)
    colours = _colours_of(sizes)
    picture = _begin(title, notes, colours, 0)
    group_of = {place.id: place.group for place in places}
    links = Counter(tuple(sorted((group_of[one], group_of[other]))) for one, other in links_of(places))
    names = sorted(sizes)
    spots = {name: (2 * math.pi * number / len(names), GROUPS_RADIUS) for number, name in enumerate(names)}
    most = max((count for (one, other), count in links.items() if one != other), default=1)
    for one, other in combinations(names, 2):
        if count := links[one, other]:
            path = _path(picture, "link between", _chord(spots[one], spots[other]))
            path.set("style", f"stroke-width: {1 + 11 * math.sqrt(count / most):.1f}")
            _add(path, "title", text=f"{_name_of(one)} - {_name_of(other)}: {count:,} links")
    room = min(GROUP_MAX, GROUPS_RADIUS * math.sin(math.pi / max(2, len(names))))
    largest = max(sizes.values(), default=1)
    for name in names:
        words = (_name_of(name), f"{sizes[name]:,} nodes", f"{links[name, name]:,} links among them")
        radius = max(3.0, room * math.sqrt(sizes[name] / largest))
        (x, y), colour = _on_ring(*spots[name]), f"node c{colours[name]}"
        _dot(picture, colour, (x, y), radius, words)
        if room >= GROUP_NAMED_MIN:
            beside = y - radius - 24 if y < CENTRE[1] else y + radius + 16
            _write(picture, "", (x, beside), words[0], "middle")
            _write(picture, "small", (x, beside + 15), words[1], "middle")
    _draw_legend(picture, sizes, colours, 0)
    return _text_of(picture)


def _colours_of(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the number of the colour of each group. Small groups beyond the last colour, and nodes without a group, share the
    last.
    """
    order = sorted((name for name in sizes if name), key=lambda name: (-sizes[name], name))
    return {name: min(number, len(COLOURS)) for number, name in enumerate(order)} | {"": len(COLOURS)}


def _begin(title: str, notes: Sequence[str], colours: Mapping[str, int], links: int) -> Element:
    picture = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "width": str(WIDTH),
            "height": str(HEIGHT),
            "role": "img",
        },
    )
    _add(picture, "title", text=one_line(title))
    _add(picture, "style", text=_style_of(sorted(set(colours.values())), links))
    _add(picture, "rect", {"class": "paper", "width": str(WIDTH), "height": str(HEIGHT), "rx": "8"})
    _write(picture, "title", (24.0, 34.0), title)
    for number, note in enumerate(notes):
        _write(picture, "small", (24.0, 56.0 + 17 * number), note)
    return picture


def _style_of(used: Sequence[int], links: int) -> str:
    """Return the CSS of a picture, for the used colours only."""
    strength = next(strength for most, strength in STRENGTHS if links <= most)
    looks = list(_LOOKS)
    for number in used:
        light, dark = (*COLOURS, _OTHER)[number]
        looks.append((f".c{number} circle, .c{number}.key", "fill", light, dark))
        looks.append((f".c{number}.link, .c{number}.silent circle", "stroke", light, dark))
    looks.append((".silent circle", "fill", *_LOOKS[2][2:]))
    lights = "".join(f"\n  {what} {{ {how}: {light} }}" for what, how, light, _dark in looks)
    darks = "".join(f"\n    {what} {{ {how}: {dark} }}" for what, how, _light, dark in looks)
    return f"{_SHAPES}  .link {{ stroke-opacity: {strength} }}{lights}\n  @media (prefers-color-scheme: dark) {{{darks}\n  }}\n"


def _spots_of(places: Sequence[NodePosition], radius: float) -> dict[str, tuple[float, float]]:
    """Return the angle of each node, and the distance from the centre. Near nodes are moved outwards while room is left."""
    spots: dict[str, tuple[float, float]] = {}
    size = 2 * radius + 1
    ends = [-math.inf] * (1 + int(ROWS_ROOM / size))  # the last angle in use, by row
    for place in sorted(places, key=lambda each: each.id):
        angle = _angle(place.id)
        free = (row for row in range(len(ends)) if (angle - ends[row]) * RADIUS >= size)
        row = next(free, len(ends) - 1)
        ends[row] = angle
        spots[place.id] = angle, RADIUS + row * size
    return spots


def _draw_links(
    picture: Element,
    links: Collection[tuple[str, str]],
    group_of: Mapping[str, str],
    spots: Mapping[str, tuple[float, float]],
    colours: Mapping[str, int],
) -> None:
    """Draw all links. All links of a colour form a single shape, because a picture may have thousands of links."""
    shapes: dict[str, list[str]] = {"link between": []}
    for one, other in sorted(links):
        kind = f"link c{colours[group_of[one]]}" if group_of[one] == group_of[other] else "link between"
        shapes.setdefault(kind, []).append(_chord(spots[one], spots[other]))
    for kind, chords in shapes.items():
        if chords:
            _path(picture, kind, "".join(chords))


def _draw_ids(picture: Element, spots: Mapping[str, tuple[float, float]], radius: float) -> None:
    """Write the first digits of ids around the circle where there is room, starting with the outer rows."""
    taken: list[float] = []
    for id_, (angle, distance) in sorted(spots.items(), key=lambda spot: (-spot[1][1], spot[0])):
        apart = (abs(angle - other) for other in taken)
        is_free = all(min(gap, 2 * math.pi - gap) * RADIUS >= LABEL_HEIGHT for gap in apart)
        is_covered = any(
            0 < abs(angle - other) * RADIUS < radius + LABEL_HEIGHT / 2 and distance < row for other, row in spots.values()
        )
        if not is_free or is_covered:
            continue
        taken.append(angle)
        x, y = _on_ring(angle, distance + radius + 4)
        is_left = angle > math.pi
        turn = math.degrees(angle) + (90.0 if is_left else -90.0)
        label = _write(picture, "id", (x, y), id_[:ID_DIGITS], "end" if is_left else "start")
        label.set("dominant-baseline", "central")
        label.set("transform", f"rotate({turn:.1f} {x:.1f} {y:.1f})")


def _draw_legend(picture: Element, sizes: Mapping[str, int], colours: Mapping[str, int], silent: int) -> None:
    y = CENTRE[1] - RADIUS
    shown = [name for name in colours if colours[name] < len(COLOURS)]
    others = [name for name in colours if colours[name] == len(COLOURS) and name]
    rows = [(f"c{colours[name]} key", f"{_name_of(name)}: {sizes[name]:,}") for name in shown]
    if others:
        rows.append((f"c{len(COLOURS)} key", f"{len(others):,} others: {sum(sizes[name] for name in others):,}"))
    if nowhere := sizes.get("", 0):
        rows.append((f"c{len(COLOURS)} key", f"{_name_of('')}: {nowhere:,}"))
    for kind, words in rows:
        _circle(picture, kind, (LEGEND_LEFT + 6, y - 4), 6.0)
        _write(picture, "", (LEGEND_LEFT + 22, y), words)
        y += 24
    if silent:
        _circle(_add(picture, "g", {"class": "silent"}), "", (LEGEND_LEFT + 6, y - 4), 5.5)
        _write(picture, "", (LEGEND_LEFT + 22, y), f"did not report: {silent:,}")
        y += 24
    _path(picture, "link between", f"M{LEGEND_LEFT} {y + 8}h12")
    _write(picture, "small", (LEGEND_LEFT + 22, y + 12), "a link between two of these")


def _name_of(group: str) -> str:
    name = one_line(group) or "in none of these"
    return name if len(name) <= NAME_MAX else f"{name[: NAME_MAX - 3]}..."


def _angle(id_: str) -> float:
    """Return the angle of an id on the ring: 0 at the top, clockwise."""
    return int(id_, 16) / _RING * 2 * math.pi


def _on_ring(angle: float, radius: float) -> tuple[float, float]:
    return CENTRE[0] + radius * math.sin(angle), CENTRE[1] - radius * math.cos(angle)


def _chord(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return the path between two points, bent towards the centre: a short link also lies within the circle."""
    half = abs(start[0] - end[0]) / 2
    middle = (start[0] + end[0]) / 2
    if half > math.pi / 2:
        half, middle = math.pi - half, middle + math.pi
    depth = 0.95 * min(start[1], end[1]) * math.cos(half) ** 2
    (x1, y1), (x2, y2), (x, y) = _on_ring(*start), _on_ring(*end), _on_ring(middle, depth)
    return f"M{x1:.1f} {y1:.1f}Q{x:.1f} {y:.1f} {x2:.1f} {y2:.1f}"


def _dot(picture: Element, kind: str, where: tuple[float, float], radius: float, words: Sequence[str]) -> None:
    group = _add(picture, "g", {"class": kind})
    _add(group, "title", text="\n".join(map(one_line, words)))
    _circle(group, "", where, radius)


def _circle(parent: Element, kind: str, where: tuple[float, float], radius: float) -> Element:
    shape = {"cx": f"{where[0]:.1f}", "cy": f"{where[1]:.1f}", "r": f"{radius:.1f}"}
    return _add(parent, "circle", ({"class": kind} if kind else {}) | shape)


def _path(parent: Element, kind: str, way: str) -> Element:
    return _add(parent, "path", {"class": kind, "d": way})


def _write(parent: Element, kind: str, where: tuple[float, float], words: str, anchor: str = "start") -> Element:
    place = {"x": f"{where[0]:.1f}", "y": f"{where[1]:.1f}"}
    if anchor != "start":
        place["text-anchor"] = anchor
    return _add(parent, "text", ({"class": kind} if kind else {}) | place, text=one_line(words))


def _add(parent: Element, tag: str, attributes: Mapping[str, str] | None = None, *, text: str | None = None) -> Element:
    element = ElementTree.SubElement(parent, tag, dict(attributes or {}))
    element.text = text
    return element


def _text_of(picture: Element) -> str:
    ElementTree.indent(picture, space=" ")
    return ElementTree.tostring(picture, encoding="unicode") + "\n"
