"""Liveness of the other nodes: choose the nodes for the detector to watch, and act on its verdicts.

A broken link is no death, but a reason for an immediate check: the peer is dialled again and pinged. A refused dial proves the
end of the process if a dial from here has reached it before, or its link just broke. Otherwise the address may be wrong, for
example the address of a container on another machine, or one not forwarded by an address translator. Then the node is asked
through the ring, where neighbours with links to it can pass on the question. The detector judges silence. A silent node becomes
a candidate for dials, because it may be paused or beyond a partition.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.detector.config import CHECKS_MAX
from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Alive, Contact, Dead, Pinged, Suspected
from iris_overlay.events import PeerDied, PeerSuspected
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.addresses import numeric_address
from iris_overlay.peers.silence_search import SilenceSearch
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.config import OverlayConfig
    from iris_overlay.detector.events import DetectorEvent
    from iris_overlay.environment import Rng
    from iris_overlay.events import Event
    from iris_overlay.groups.layer import GroupLayer
    from iris_overlay.ids import NodeId
    from iris_overlay.peers.contacts import Contacts
    from iris_overlay.peers.dialler import Dialler
    from iris_overlay.peers.vantage import Vantage
    from iris_overlay.ring.pastry import Pastry

#: The time during which a death is not reported again, because several sources report it: a link, a refused dial, the detector.
BURIED_S: Final = 5.0

#: The largest number of deaths remembered for `BURIED_S`; beyond it the oldest is forgotten, and at worst reported again.
BURIED_MAX: Final = 512


#: The time for a node with a possibly wrong address to answer through the ring. Too small: a node across an ocean counts as
#: dead until it answers; too large: a node that joins beside a dead one waits for that time.
DOUBT_S: Final = 0.3

#: The largest number of nodes with a possibly wrong address that are being asked; beyond it the detector has to find their
#: deaths.
DOUBTED_MAX: Final = 512


def is_loopback(info: NodeInfo) -> bool:
    """Return whether a node listens on loopback: on each machine its address means another node."""
    found = next((each for each in map(numeric_address, info.addresses) if each is not None), None)
    return found is not None and found[0].is_loopback


class Liveness:
    """Have the failure detector watch the nodes that matter to the ring, and report deaths to all components."""

    def __init__(
        self,
        local: NodeInfo,
        config: OverlayConfig,
        rng: Rng,
        ring: Pastry,
        groups: GroupLayer,
        contacts: Contacts,
        dialler: Dialler,
        vantage: Vantage,
    ) -> None:
        self.events: list[Event] = []
        self.detector = Detector(local.id, config.detector, rng)
        self._config = config
        self._ring = ring
        self._groups = groups
        self._contacts = contacts
        self._dialler = dialler
        self._vantage = vantage
        self._is_local_loopback = is_loopback(local)
        self._known: dict[NodeId, tuple[NodeInfo, Contact]] = {}
        # Nodes with a broken link, until the outcome of their check; most are not known to the ring.
        self._checked: dict[NodeId, NodeInfo] = {}
        # Nodes whose possibly wrong address refused a dial, until they answer through the ring or count as dead.
        self._doubted: dict[NodeId, NodeInfo] = {}
        self._doubts: DeadlineTable[NodeId] = DeadlineTable()
        self._buried: dict[NodeId, float] = {}
        # Dead nodes whose processes are certainly gone.
        self._gone: dict[NodeId, None] = {}
        self._refresh_at: float | None = None
        self._silence_search = SilenceSearch(rng)

    def refresh(self, now: float) -> None:
        """Set the nodes for the detector to watch: right-hand neighbour, leaf set, roots of own groups, and table."""
        ring = self._ring
        known: dict[NodeId, tuple[NodeInfo, Contact]] = {}
        for info in (*ring.leaves(), *self._groups.roots(), *ring.known()):
            if info.id not in known:
                old = self._known.get(info.id)
                has_several = len(info.addresses) > 1  # a link may have shown another address to be right
                if old is None or old[0] is not info or has_several:
                    old = info, Contact(info.id, self._vantage.datagram_address(info))
                known[info.id] = old
        self._known = known
        right = ring.right_neighbour()
        neighbour = known[right.id][1] if right is not None else None
        self.detector.set_contacts(neighbour, [contact for _, contact in known.values()], now)
        self._refresh_at = now + self._config.contacts_refresh_s

    def leaves_added(self, added: list[NodeInfo], now: float) -> None:
        """Believe new leaves alive; check dead ones, because old messages through the ring look like a sign of life."""
        for info in added:
            self._unbury(info.id)
            self.detector.returned(info.id, now)

    def link_opened(self, peer: NodeId, now: float) -> None:
        """Believe a peer alive, because it has a new link."""
        self._unbury(peer)
        self.detector.heard_from(peer, now)

    def heard_from(self, peer: NodeId, now: float) -> None:
        """Believe a peer alive, because a message came over its link."""
        if self._buried or self._doubted:
            self._unbury(peer)
        self.detector.heard_from(peer, now)

    def link_broke(self, info: NodeInfo, now: float) -> None:
        """Check at once whether the peer of a broken link lives."""
        self._checked.pop(info.id, None)
        if len(self._checked) >= CHECKS_MAX:
            del self._checked[next(iter(self._checked))]
        self._checked[info.id] = info
        self._ring.peer_doubtful(info.id, True, now)
        self.detector.check(Contact(info.id, self._vantage.datagram_address(info)), now)
        self._contacts.connect(info, now)

    def refused(self, info: NodeInfo, now: float) -> bool:
        """Judge a node after a refused dial; return whether the node is dead. Ask through the ring if in doubt."""
        if is_loopback(info) and not self._is_local_loopback:
            return False  # That was the local machine.
        if not (self._contacts.has_reached(info.id) or info.id in self._checked):
            self._doubt(info, now)
            return False
        self.detector.refused(info.id, now)
        self.bury(info, now, is_silent=False)
        return True

    def _doubt(self, info: NodeInfo, now: float) -> None:
        """Ask a node with a possibly wrong address for a sign of life through the ring."""
        peer = info.id
        if peer not in self._doubted and peer not in self._buried and len(self._doubted) < DOUBTED_MAX:
            self._doubted[peer] = info
            self._doubts.set(peer, now + DOUBT_S)
            self._ring.ask(info, now)

    def left(self, peer: NodeId, now: float) -> None:
        """Tell the other components of the departure of a node, which the ring knows already."""
        self._dialler.forget(peer)
        self._contacts.peer_dead(peer, now)
        self._groups.peer_dead(peer, now)

    def handle_detector(self, event: DetectorEvent, now: float) -> None:
        """Act on a verdict of the failure detector: doubt, believe, probe or bury a node."""
        ring = self._ring
        if isinstance(event, Suspected):
            ring.peer_doubtful(event.peer, True, now)
            self.events.append(PeerSuspected(event.peer))
            # Where a firewall drops datagrams, only the link or the ring shows that the peer lives. Ask even a peer unknown to
            # the ring: it may have an idle link, and the detector would declare it dead.
            ring.ask(self._info_of(event.peer), now)
        elif isinstance(event, Alive):
            self._checked.pop(event.peer, None)
            ring.peer_doubtful(event.peer, False, now)
            if event.rtt_s is not None:
                ring.rtt_measured(event.peer, event.rtt_s, now)
        elif isinstance(event, Pinged):
            # This node is in the peer's leaf set, but not the reverse: its death was a mistake, or a probe was lost.
            known = ring.find(event.peer)
            host, port = event.source
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            ring.meet(known or NodeInfo(event.peer, (address,)), now)
        elif isinstance(event, Dead):
            info = self._info_of(event.peer)
            self._checked.pop(event.peer, None)
            if not ring.has_left(event.peer):
                self.bury(info, now, is_silent=True)

    def bury(self, info: NodeInfo, now: float, *, is_silent: bool) -> None:
        """Report the death of a node to all components."""
        peer = info.id
        if now - self._buried.get(peer, -inf) < BURIED_S:
            return
        self._unbury(peer)
        if len(self._buried) >= BURIED_MAX:
            self._unbury(next(iter(self._buried)))
        self._buried[peer] = now
        if not is_silent:
            self._gone[peer] = None
        self._ring.peer_dead(peer, now)
        self._contacts.peer_dead(peer, now)
        self._groups.peer_dead(peer, now)
        self.events.append(PeerDied(peer, is_silent))
        if is_silent:
            self._dialler.look_for(info, now)
            self._ask_others(peer, now)
        else:
            self._dialler.forget(peer)

    def _info_of(self, peer: NodeId) -> NodeInfo:
        """Return the info of a node reported by the detector; at least its id."""
        info = self._ring.find(peer) or self._checked.get(peer)
        if info is not None:
            return info
        known = self._known.get(peer)
        return NodeInfo(peer, ()) if known is None else known[0]

    def _ask_others(self, silent: NodeId, now: float) -> None:
        """Probe other nodes at once: a silent node may be the first of many."""
        ring = self._ring
        leaves, roots, table = ([info.id for info in each] for each in (ring.leaves(), self._groups.roots(), ring.known()))
        self.detector.look_at(self._silence_search.whom(silent, leaves, roots, table, now), silent, now)

    def _unbury(self, peer: NodeId) -> None:
        self._buried.pop(peer, None)
        self._gone.pop(peer, None)
        if self._doubted.pop(peer, None) is not None:
            self._doubts.cancel(peer)

    def wanted(self, info: NodeInfo, now: float) -> bool:
        """Check the node to which the owner wants a link. Return False and report the death if the node is dead.

        The owner may not know of the death: the node was not in use then, and a root after a standstill has named it again. A
        silent node may be back, and is checked; without an answer, the death is reported again.
        """
        peer = info.id
        if now - self._buried.get(peer, -inf) >= BURIED_S:
            return True
        if peer in self._gone:
            self._groups.peer_dead(peer, now)
            self.events.append(PeerDied(peer, is_silent=False))
            return False
        del self._buried[peer]
        self._checked.pop(peer, None)
        if len(self._checked) >= CHECKS_MAX:
            del self._checked[next(iter(self._checked))]
        self._checked[peer] = info
        self.detector.check(Contact(peer, self._vantage.datagram_address(info)), now)
        return True

    def is_buried(self, peer: NodeId) -> bool:
        """Return whether a death was reported and no sign of life followed."""
        return peer in self._buried

    def handle_timeout(self, now: float) -> None:
        """Act on the deadlines that have passed; harmless if early."""
        if self._refresh_at is not None and now >= self._refresh_at:
            self.refresh(now)
        self.detector.handle_timeout(now)
        for peer in self._doubts.expired(now):
            info = self._doubted.pop(peer)
            self.detector.refused(peer, now)
            self.bury(info, now, is_silent=True)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        probes = self.detector.deadline()
        if self._doubted:
            return min([at for at in (probes, self._doubts.deadline(), self._refresh_at) if at is not None], default=None)
        return self._refresh_at if probes is None or (self._refresh_at is not None and self._refresh_at < probes) else probes
