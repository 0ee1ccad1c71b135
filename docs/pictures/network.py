"""Draw the idea of Iris: a program sends a request to a cluster by its name, and some nodes serve the cluster.

``python docs/pictures/network.py`` writes the SVG beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drawing import box, circle, line, on_ring, picture, shortened, text

TARGET: Final = Path(__file__).with_name("network.svg")

WIDTH: Final = 820
HEIGHT: Final = 300
CENTRE: Final = (560.0, 150.0)
RADIUS: Final = 105.0
NODES: Final = 12
#: Which of the nodes, clockwise from the top, serve the cluster, and which one is the program that asks.
MEMBERS: Final = (1, 3, 5)
ANSWERS: Final = 3
CALLER: Final = 9
OTHERS: Final = {7: "caches"}


def draw() -> str:
    """Return the picture as SVG."""
    places = [on_ring(number / NODES, CENTRE, RADIUS) for number in range(NODES)]
    parts = [circle(*CENTRE, RADIUS, "area")]
    caller = places[CALLER]
    parts.append(line(*shortened(caller, places[ANSWERS], 14), "blue ask"))
    for number, (x, y) in enumerate(places):
        kind = "caller" if number == CALLER else "member" if number in MEMBERS else "node"
        parts.append(circle(x, y, 10, kind))
    parts.append(text(CENTRE[0] + RADIUS + 24, CENTRE[1] - 4, "the cluster", anchor="start"))
    parts.append(text(CENTRE[0] + RADIUS + 24, CENTRE[1] + 13, '"databases"', "mono", anchor="start"))
    for number, name in OTHERS.items():
        x, y = places[number]
        parts.append(text(x - 16, y + 12, f'"{name}"', "small mono", anchor="end"))
    parts += [box(24, 92, 330, 116)]
    code = ("async with iris.connect() as node:", "    await node.request(", '        "databases", b"SELECT 1")')
    parts.append(text(40, 116, "a program, on any machine", "small", anchor="start"))
    for number, words in enumerate(code):
        parts.append(
            text(40, 142 + 20 * number, words, "mono", anchor="start").replace("<text ", '<text xml:space="preserve" ')
        )
    parts.append(line((354, 150), shortened((354, 150), caller, 14)[1], "faint"))
    parts.append(text(CENTRE[0], CENTRE[1] - 28, "one member answers:", "small"))
    parts.append(text(CENTRE[0], CENTRE[1] - 12, "the least loaded, near members first", "small"))
    parts.append(text(CENTRE[0], HEIGHT - 16, "nodes: no broker, no server list; all links encrypted", "small"))
    return picture(WIDTH, HEIGHT, "A program sends a request to a cluster by its name, and a member answers", parts)


if __name__ == "__main__":
    TARGET.write_text(draw())
