"""Draw a ring of simulated nodes: whom one of them knows, and the way of a message from another one to the root of a key.

``python docs/pictures/ring.py`` writes the SVG beside it. The nodes have joined one after the other, as real ones do; nothing
is given to them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drawing import circle, line, on_ring, picture, shortened, text

from iris_overlay.ids import ID_BYTES, position
from iris_py.testing.cores.pastry import PastrySimulation

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.ring.events import Delivered
    from iris_py.testing.cores.pastry_watch import SimulatedPastry

TARGET: Final = Path(__file__).with_name("ring.svg")

SEED: Final = 7
NODES: Final = 100
#: Messages that are sent. Of those with the most hops the one that goes farthest round is drawn.
LOOKUPS: Final = 200
WIDTH: Final = 820
HEIGHT: Final = 470
RADIUS: Final = 170.0
LEFT: Final = (210.0, 235.0)
RIGHT: Final = (610.0, 235.0)


class Simulation(PastrySimulation):
    """A simulation that keeps what is delivered, and where."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.delivered: list[tuple[SimulatedPastry, Delivered]] = []

    def _check_delivery(self, node: SimulatedPastry, event: Delivered) -> None:
        super()._check_delivery(node, event)
        self.delivered.append((node, event))


def place(node: bytes, centre: tuple[float, float], radius: float = RADIUS) -> tuple[float, float]:
    """Return where an id is on a circle."""
    return on_ring(position(node) / (1 << (8 * ID_BYTES)), centre, radius)


def draw() -> str:
    """Return the picture as SVG."""
    simulation = Simulation(SEED)
    simulation.grow(NODES, over_s=5.0)
    for _ in range(LOOKUPS):
        simulation.lookup(simulation.random_active())
    simulation.run_for(3.0)
    nodes = simulation.live()
    parts = [circle(*centre, RADIUS, "area") for centre in (LEFT, RIGHT)]
    parts += knowledge(nodes[0], nodes)
    ways = [passed(simulation, root, event) for root, event in simulation.delivered]
    parts += way(*max(ways, key=lambda each: (len(each[0]), length(each[0]))), nodes)
    return picture(WIDTH, HEIGHT, f"A ring of {len(nodes)} nodes: whom one knows, and the way of a message to a key", parts)


def passed(simulation: Simulation, root: SimulatedPastry, event: Delivered) -> tuple[list[NodeId], bytes]:
    """Return the nodes that a message was at, from its source to the root, and its key."""
    source = simulation.issued[int(event.payload)][0]
    return [source, *[node for node in event.path if node != source], root.info.id], event.key


def length(nodes: list[NodeId]) -> float:
    """Return how long a way is in the picture."""
    places = [place(node, RIGHT) for node in nodes]
    return sum(math.dist(one, other) for one, other in pairwise(places))


def knowledge(node: SimulatedPastry, nodes: list[SimulatedPastry]) -> list[str]:
    """Draw whom a node knows: its neighbours, and others at growing distances."""
    own = place(node.info.id, LEFT)
    leaves = {info.id for info in node.pastry.leaves()}
    known = {info.id for info in node.pastry.known()} - leaves
    parts = [line(*shortened(own, place(other, LEFT), 6), "faint") for other in sorted(known)]
    for other in sorted(each.info.id for each in nodes):
        kind = "caller" if other == node.info.id else "member" if other in leaves else "root" if other in known else "node"
        parts.append(circle(*place(other, LEFT), 7 if kind == "caller" else 4.5, kind))
    parts.append(text(LEFT[0], 30, f"Whom one of {len(nodes)} nodes knows", "title"))
    parts.append(text(LEFT[0], HEIGHT - 34, f"blue: itself; green: its {len(leaves)} neighbours;", "small"))
    parts.append(
        text(LEFT[0], HEIGHT - 18, f"orange: {len(known)} others, which share ever longer beginnings of its id", "small")
    )
    return parts


def way(hops: list[NodeId], key: bytes, nodes: list[SimulatedPastry]) -> list[str]:
    """Draw the way of a message."""
    parts = [circle(*place(each.info.id, RIGHT), 4.5, "node") for each in nodes]
    for hop, (one, other) in enumerate(pairwise(hops), 1):
        start, end = place(one, RIGHT), place(other, RIGHT)
        parts.append(line(*shortened(start, end, 8), "blue ask"))
        middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
        parts.append(text(middle[0] + 8, middle[1] - 6, str(hop), "small"))
    parts += [circle(*place(each, RIGHT), 6, "node") for each in hops[1:-1]]
    parts.append(circle(*place(hops[0], RIGHT), 7, "caller"))
    parts.append(circle(*place(hops[-1], RIGHT), 7, "root"))
    inner, outer = place(key, RIGHT, RADIUS + 8), place(key, RIGHT, RADIUS + 22)
    parts.append(line(outer, inner, "red"))
    parts.append(text(RIGHT[0], 30, f"A message to a key: {len(hops) - 1} hops", "title"))
    parts.append(text(RIGHT[0], HEIGHT - 34, "blue: who asks; red: the key, as the hash of a cluster's name;", "small"))
    parts.append(text(RIGHT[0], HEIGHT - 18, "orange: its root, the node nearest to it, which keeps the directory", "small"))
    return parts


if __name__ == "__main__":
    TARGET.write_text(draw())
