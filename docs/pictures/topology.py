"""Draw what `iris topology --svg` draws: a ring of simulated nodes in three zones, each with links to its neighbours.

``python docs/pictures/topology.py`` writes the SVG beside it. The nodes have joined one after the other, as real ones do, and
the shapes are those of the command.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from iris_py import NodeReports
from iris_py.overview.topology import TopologyNodeLine
from iris_py.overview.topology import draw as draw_topology
from iris_py.testing.cores.pastry import PastrySimulation

TARGET: Final = Path(__file__).with_name("topology.svg")

SEED: Final = 11
NODES: Final = 60
ZONES: Final = ("eu/a", "eu/b", "us")
#: Every how many-th node serves a cluster.
CLUSTERS: Final = {"databases": 7, "upper": 4}


def draw() -> str:
    """Return the picture as SVG."""
    simulation = PastrySimulation(SEED)
    simulation.grow(NODES, over_s=5.0)
    simulation.run_for(3.0)
    nodes = [
        TopologyNodeLine(
            id=node.info.id.hex(),
            name="",
            address=f"10.0.{number % 3}.{1 + number // 3}:4711",
            zone=ZONES[number % 3],
            version="",
            clusters=[name for name, every in CLUSTERS.items() if number % every == 0],
            links=sorted(info.id.hex() for info in node.pastry.leaves()),
            state="told",
        )
        for number, node in enumerate(simulation.live())
    ]
    picture, _drawn = draw_topology(nodes, NodeReports(), network="example", by="zone", nodes_max=NODES)
    return picture


if __name__ == "__main__":
    TARGET.write_text(draw())
