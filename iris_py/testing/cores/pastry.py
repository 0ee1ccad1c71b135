"""A network of rings with a virtual clock: only `Pastry`, a heap of events, no sockets.

One seed determines all random choices. The simulation knows the true root of each key, and counts deliveries elsewhere,
repeated deliveries and losses::

    simulation = PastrySimulation(seed=7)
    simulation.grow(1000, over_s=50.0)
    simulation.lookup_all(10_000, over_s=10.0)
    print(simulation.figures())
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_overlay.ids import ID_BYTES, is_nearer, position
from iris_overlay.ring.events import Delivered, Undeliverable
from iris_py.testing.cores.pastry_network import PastryNetwork

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.ring.config import PastryConfig
    from iris_py.testing.cores.pastry_watch import SimulatedPastry

#: The fastest growth of a ring, as a fraction of its size per second: a ring doubles in 14 s. At 10,000 nodes, 500 join per
#: second, each within half a second. No node is given knowledge that it did not learn.
GROWTH_PER_S: Final = 0.05

#: Nodes per second in a small ring.
GROWTH_PER_S_MIN: Final = 20.0


class PastrySimulation(PastryNetwork):
    """Simulates rings: routes messages while nodes come and go, and checks the arrival at the true root of the key."""

    def __init__(
        self,
        seed: int,
        config: PastryConfig | None = None,
        *,
        width_s: float = 0.04,
        silence_s: float = 2.5,
        zones: int = 0,
        loss: float = 0.0,
        has_detectors: bool = False,
    ) -> None:
        """Create an empty network: see `PastryNetwork`."""
        super().__init__(
            seed, config, width_s=width_s, silence_s=silence_s, zones=zones, loss=loss, has_detectors=has_detectors
        )
        self.issued: dict[int, tuple[NodeId, float]] = {}
        self.arrived: Counter[int] = Counter()
        self.hops: list[int] = []
        self.delays: list[float] = []
        self.directs: list[float] = []  # The delay without a ring, for each of the delays.
        self.wrong: list[tuple[float, int, int]] = []  # Time, node that received, and node that should have.
        self.undeliverable = 0

    def lookup(self, source: SimulatedPastry, key: bytes | None = None) -> int:
        """Route a new message from a node to a key; return the number of the message."""
        number = len(self.issued)
        self.issued[number] = (source.info.id, self.now)
        source.pastry.route(key or self.rng.randbytes(ID_BYTES), b"%d" % number, self.now)
        self.apply(source)
        return number

    def lookup_all(self, count: int, over_s: float, settle_s: float = 5.0) -> None:
        """Route messages from random nodes to random keys, and wait for them."""
        self.begin_lookups(count, over_s)
        self.run_for(over_s + settle_s)

    def begin_lookups(self, count: int, over_s: float) -> None:
        """Schedule messages from random nodes to random keys, without waiting."""
        if count:
            self.at(self.now + over_s / count, self._lookup_again, self.now, 1, count, over_s)

    def begin_growth(self, count: int) -> None:
        """Schedule the start of nodes up to a total, each through a random active node; see GROWTH_PER_S."""
        if not self.nodes:
            self.start_node()
        if len(self.nodes) < count:
            rate = max(GROWTH_PER_S_MIN, GROWTH_PER_S * len(self.nodes))
            self.at(self.now + self.rng.expovariate(rate), self._grow, count)

    def churn(self, mean_session_s: float, for_s: float, lookups_per_s: float, crash_part: float = 0.8) -> None:
        """Replace nodes at random times, with a constant number of nodes, while messages are routed."""
        self.begin_churn(mean_session_s, for_s, crash_part)
        self.begin_lookups(int(lookups_per_s * for_s), for_s)
        self.run_for(for_s)

    def begin_churn(self, mean_session_s: float, for_s: float, crash_part: float = 0.8) -> None:
        """Schedule the replacement of nodes at random times. Half of the crashes are silent (detected only by silence)."""
        end = self.now + for_s
        for node in self.live():
            self.at(
                self.now + self.rng.expovariate(1 / mean_session_s), self._end_session, node, mean_session_s, end, crash_part
            )

    def true_root(self, key: bytes, side: int = 0) -> SimulatedPastry:
        """Return the active node nearest to a key."""
        places = self._active[side]
        index = bisect_left(places, position(key))
        best = places[index % len(places)]
        if is_nearer(position(key), places[index - 1], best):
            best = places[index - 1]
        return self._at_position(best)

    def misplaced(self, side: int = 0) -> list[SimulatedPastry]:
        """Return the nodes whose leaf set is wrong, found by sorting all nodes."""
        places, half = self._active[side], self.config.leaf_half
        wrong = [node for node in self.live() if node.side == side and not node.pastry.is_active]
        for index, place in enumerate(places):
            around = [places[(index + step) % len(places)] for step in range(-half, half + 1)]
            node = self._at_position(place)
            if {position(info.id) for info in node.pastry.leaves()} != {*around} - {place}:
                wrong.append(node)
        return wrong

    def lost(self) -> list[int]:
        """Return the numbers of the messages that were lost although their source still lives."""
        return [number for number, (source, _) in self.issued.items() if not self.arrived[number] and self.nodes[source].is_up]

    def figures(self) -> dict[str, float]:
        """Return the measurements of the simulation by name."""
        live = self.live()
        sizes = [len(node.pastry.known()) for node in live]
        joins = [node.active_at - node.started_at for node in self.nodes.values() if node.active_at is not None]
        return {
            "nodes": len(live),
            "hops_mean": sum(self.hops) / max(1, len(self.hops)),
            "hops_max": max(self.hops, default=0),
            "delay_mean_s": sum(self.delays) / max(1, len(self.delays)),
            "delay_max_s": max(self.delays, default=0.0),
            "entries_mean": sum(sizes) / max(1, len(sizes)),
            "entries_max": max(sizes, default=0),
            "join_mean_s": sum(joins) / max(1, len(joins)),
            "join_max_s": max(joins, default=0.0),
            "lookups": len(self.issued),
            "wrong": len(self.wrong),
            "repeated": sum(count - 1 for count in self.arrived.values() if count > 1),
            "lost": len(self.lost()),
            "undeliverable": self.undeliverable,
            "messages": self.sent.total(),
            "bytes": self.bytes_sent,
        }

    def _handle(self, node: SimulatedPastry, event: object) -> None:
        if isinstance(event, Delivered):
            self._check_delivery(node, event)
        elif isinstance(event, Undeliverable):
            self.undeliverable += 1
        else:
            super()._handle(node, event)

    def _check_delivery(self, node: SimulatedPastry, event: Delivered) -> None:
        number = int(event.payload)
        root = self.true_root(event.key, node.side)
        if root is not node:
            self.wrong.append((self.now, node.index, root.index))
        self.arrived[number] += 1
        self.hops.append(len(event.path))
        source, issued_at = self.issued[number]
        self.delays.append(self.now - issued_at)
        self.directs.append(self.latency_s(self.nodes[source], node) if source != node.info.id else 0.0)

    def _end_session(self, node: SimulatedPastry, mean_s: float, end: float, crash_part: float) -> None:
        if self.now >= end or not node.is_up:
            return
        if self.rng.random() < crash_part:
            self.crash(node, is_silent=self.rng.random() < 0.5)
        else:
            self.leave(node)
        new = self.start_node([self.random_active()])
        self.at(self.now + self.rng.expovariate(1 / mean_s), self._end_session, new, mean_s, end, crash_part)

    def _lookup_again(self, begun_at: float, number: int, count: int, over_s: float) -> None:
        if self.has_active():
            self.lookup(self.random_active())
        if number < count:
            self.at(begun_at + over_s * (number + 1) / count, self._lookup_again, begun_at, number + 1, count, over_s)

    def _grow(self, count: int) -> None:
        if self.has_active():
            self.start_node([self.random_active()])
        self.begin_growth(count)
