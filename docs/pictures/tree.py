"""Draw the tree down which a broadcast goes to a large cluster, as the nodes of a simulation have built it.

``python docs/pictures/tree.py`` writes the SVG beside it.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from drawing import circle, line, picture, shortened, text

from iris_overlay.ids import GroupId
from iris_py.testing.cores.groups import GroupSimulation

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId

TARGET: Final = Path(__file__).with_name("tree.svg")

SEED: Final = 3
MEMBERS: Final = 150
OTHERS: Final = 10
GROUP: Final = GroupId(bytes(range(16)))
WIDTH: Final = 820
HEIGHT: Final = 330
ROWS: Final = (60, 120, 190, 270)
MARGIN: Final = 20


def parents() -> tuple[NodeId, dict[NodeId, NodeId], int]:
    """Let a node broadcast to a large group; return the root, the parent of each member, and how often it was received."""
    simulation = GroupSimulation(SEED)
    simulation.start_node()
    simulation.run_for(2.0)
    for _ in range(MEMBERS + OTHERS - 1):
        simulation.start_node()
    simulation.run_for(3.0)
    nodes = list(simulation.nodes.values())
    for node in nodes[OTHERS:]:
        simulation.join(node, GROUP)
    simulation.run_for(8.0)
    simulation.cast(nodes[0], GROUP, b"to every member")
    simulation.run_for(3.0)
    (root,) = simulation.directories(GROUP)
    found = {node.info.id: parent for node in nodes if (parent := node.layer._casts._parents.get(GROUP)) is not None}
    return root.info.id, found, sum(len(node.casts) for node in nodes)


def spread(row: list[NodeId], inner: list[NodeId]) -> list[NodeId]:
    """Return a row with its inner nodes at even distances, so that few lines cross."""
    outer = [node for node in row if node not in inner]
    for number, node in enumerate(inner):
        outer.insert(round((number + 0.5) * len(row) / len(inner)), node)
    return outer


def draw() -> str:
    """Return the picture as SVG."""
    root, above, received = parents()
    below: dict[NodeId, list[NodeId]] = defaultdict(list)
    for child in sorted(above):
        below[above[child]].append(child)
    below[root] = spread(below[root], [child for child in below[root] if below.get(child)])
    rows = [[root], below[root], [child for each in below[root] for child in below[each]]]
    places: dict[NodeId, tuple[float, float]] = {}
    for row, y in zip(reversed(rows), reversed(ROWS[1:]), strict=True):
        gap = (WIDTH - 2 * MARGIN) / max(1, len(row))
        for number, node in enumerate(row):
            places.setdefault(node, (MARGIN + gap * (number + 0.5), y))
    sender = (MARGIN + 60.0, float(ROWS[0]))
    parts = [text(WIDTH / 2, 28, f"A broadcast to {received} members of a cluster", "title")]
    parts.append(line(*shortened(sender, places[root], 10), "blue ask"))
    parts += [line(places[above[child]], places[child], "green faint" if child in rows[2] else "green") for child in above]
    parts.append(circle(*sender, 8, "caller"))
    parts.append(text(sender[0] + 14, sender[1] + 4, "the sender: one message, signed", anchor="start"))
    for node, (x, y) in places.items():
        parts.append(circle(x, y, 8 if node == root else 5 if below.get(node) else 3, "root" if node == root else "member"))
    parts.append(text(places[root][0] + 14, ROWS[1] - 2, "the root of the name", anchor="start"))
    inner = sum(bool(below.get(child)) for child in below[root])
    words = (
        f"the root sends to {len(below[root])} members, of which {inner} pass it on; every member checks the sender's signature"
    )
    parts.append(text(WIDTH / 2, HEIGHT - 20, words, "small"))
    return picture(WIDTH, HEIGHT, f"A broadcast goes from the root down a tree of {received} members", parts)


if __name__ == "__main__":
    TARGET.write_text(draw())
