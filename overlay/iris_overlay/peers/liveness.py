"""Liveness of the other nodes: the detector is fed with those that matter, and its verdicts are acted upon.

A broken link is no death, but a reason to look at once: the peer is dialled again and asked by datagram. A refused dial is
proof that the process is gone where a dial from here has reached it before, or its link just broke. Else the address may be
wrong: that of a container on another machine, or one that an address translator passes on to nobody. So the node is asked
through the ring, where those answer that have links to their neighbours. Silence is for the detector to judge, and who fell
silent is looked for, since it may only stand still, or be beyond a partition.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.detector.config import CHECKS_MAX
from iris_overlay.detector.detector import Detector
from iris_overlay.detector.events import Alive, Contact, Dead, Pinged, Suspected
from iris_overlay.events import PeerDied, PeerSuspected
from iris_overlay.messages import NodeInfo
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
    from iris_overlay.peers.dialling import Dialler
    from iris_overlay.peers.vantage import Vantage
    from iris_overlay.ring.pastry import Pastry

#: For how long a death is not reported again. It comes from several sides at once: a link, a refused dial, the detector.
BURIED_S: Final = 5.0

#: Deaths remembered for that; the oldest is forgotten first, and then at worst reported again.
BURIED_MAX: Final = 512


#: How long a node that may have a wrong address has to answer through the ring. Too small: one across an ocean is taken for
#: dead until it answers; too large: who joins beside one that is gone waits as long.
DOUBT_S: Final = 0.3

#: Nodes that are in doubt in this way; further ones are left to the detector.
DOUBTED_MAX: Final = 512


def is_loopback(info: NodeInfo) -> bool:
    """Return whether a node listens on loopback: its address means another node on each machine."""
    found = next((each for each in map(numeric_address, info.addresses) if each is not None), None)
    return found is not None and found[0].is_loopback


class Liveness:
    """Watch those who matter to the ring, and bury the dead everywhere."""

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
        # Whose link broke, until it is known whether they live: most of them the ring does not know.
        self._checked: dict[NodeId, NodeInfo] = {}
        # Whose address refused a dial and may be wrong, until they answer through the ring or are dead.
        self._doubted: dict[NodeId, NodeInfo] = {}
        self._doubts: DeadlineTable[NodeId] = DeadlineTable()
        self._buried: dict[NodeId, float] = {}
        # Those of them whose processes are surely gone.
        self._gone: dict[NodeId, None] = {}
        self._refresh_at: float | None = None
        self._silence_search = SilenceSearch(rng)

    def refresh(self, now: float) -> None:
        """Tell the detector whom to watch: the right-hand neighbour, the leaf set, the roots of own groups, the table."""
        ring = self._ring
        known: dict[NodeId, tuple[NodeInfo, Contact]] = {}
        for info in (*ring.leaves(), *self._groups.roots(), *ring.known()):
            if info.id not in known:
                old = self._known.get(info.id)
                has_several = len(info.addresses) > 1  # another one may have been shown to be right meanwhile
                if old is None or old[0] is not info or has_several:
                    old = info, Contact(info.id, self._vantage.datagram_address(info))
                known[info.id] = old
        self._known = known
        right = ring.right_neighbour()
        neighbour = known[right.id][1] if right is not None else None
        self.detector.set_contacts(neighbour, [contact for _, contact in known.values()], now)
        self._refresh_at = now + self._config.contacts_refresh_s

    def leaves_added(self, added: list[NodeInfo], now: float) -> None:
        """Handle new leaves. What the dead sent through the ring comes late, and looks like a sign of life: so look again."""
        for info in added:
            self._unbury(info.id)
            self.detector.returned(info.id, now)

    def link_opened(self, peer: NodeId, now: float) -> None:
        """Handle a sign of life, at the latest."""
        self._unbury(peer)
        self.detector.heard_from(peer, now)

    def heard_from(self, peer: NodeId, now: float) -> None:
        """Handle that a message came over a link."""
        if self._buried or self._doubted:
            self._unbury(peer)
        self.detector.heard_from(peer, now)

    def link_broke(self, info: NodeInfo, now: float) -> None:
        """Look at once whether a peer whose link broke lives."""
        self._checked.pop(info.id, None)
        if len(self._checked) >= CHECKS_MAX:
            del self._checked[next(iter(self._checked))]
        self._checked[info.id] = info
        self._ring.peer_doubtful(info.id, True, now)
        self.detector.check(Contact(info.id, self._vantage.datagram_address(info)), now)
        self._contacts.connect(info, now)

    def refused(self, info: NodeInfo, now: float) -> bool:
        """Handle that nobody listens where a node did; return whether it is dead."""
        if is_loopback(info) and not self._is_local_loopback:
            return False  # That was our own machine.
        if not (self._contacts.has_reached(info.id) or info.id in self._checked):
            self._doubt(info, now)
            return False
        self.detector.refused(info.id, now)
        self.bury(info, now, is_silent=False)
        return True

    def _doubt(self, info: NodeInfo, now: float) -> None:
        """Have a node whose address may be wrong show through the ring that it lives."""
        peer = info.id
        if peer not in self._doubted and peer not in self._buried and len(self._doubted) < DOUBTED_MAX:
            self._doubted[peer] = info
            self._doubts.set(peer, now + DOUBT_S)
            self._ring.ask(info, now)

    def left(self, peer: NodeId, now: float) -> None:
        """Handle that a node left: the ring knows already."""
        self._dialler.forget(peer)
        self._contacts.peer_dead(peer, now)
        self._groups.peer_dead(peer, now)

    def handle_detector(self, event: DetectorEvent, now: float) -> None:
        """Handle a verdict."""
        ring = self._ring
        if isinstance(event, Suspected):
            ring.peer_doubtful(event.peer, True, now)
            self.events.append(PeerSuspected(event.peer))
            # Where a firewall drops datagrams, only the link tells, or the ring. That may not know the peer any more, if there
            # was an idle link to it; it is asked nevertheless, or the detector would take it for dead.
            ring.ask(self._info_of(event.peer), now)
        elif isinstance(event, Alive):
            self._checked.pop(event.peer, None)
            ring.peer_doubtful(event.peer, False, now)
            if event.rtt_s is not None:
                ring.rtt_measured(event.peer, event.rtt_s, now)
        elif isinstance(event, Pinged):
            # Its leaf set has us, and ours does not have it: its death was a mistake, or a probe was lost.
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
        """Tell everybody here that a node is dead."""
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
        """Return what is known of a node that the detector speaks of; perhaps nothing but its id."""
        info = self._ring.find(peer) or self._checked.get(peer)
        if info is not None:
            return info
        known = self._known.get(peer)
        return NodeInfo(peer, ()) if known is None else known[0]

    def _ask_others(self, silent: NodeId, now: float) -> None:
        """Ask others at once whether they live: who fell silent may be the first of many."""
        ring = self._ring
        leaves, roots, table = ([info.id for info in each] for each in (ring.leaves(), self._groups.roots(), ring.known()))
        self.detector.look_at(self._silence_search.whom(silent, leaves, roots, table, now), silent, now)

    def _unbury(self, peer: NodeId) -> None:
        self._buried.pop(peer, None)
        self._gone.pop(peer, None)
        if self._doubted.pop(peer, None) is not None:
            self._doubts.cancel(peer)

    def wanted(self, info: NodeInfo, now: float) -> bool:
        """Handle that the owner wants a link to a node. Return False if that is dead, which is reported then.

        Its death may be known, and yet the owner not: nothing had to do with the node then, and a root that stood still has
        named it again. Who fell silent may be back, and is looked at: if it is not, its death is reported once more.
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
        """Return whether a death was reported, and no sign of life came since."""
        return peer in self._buried

    def handle_timeout(self, now: float) -> None:
        """Do what is due; harmless if early."""
        if self._refresh_at is not None and now >= self._refresh_at:
            self.refresh(now)
        self.detector.handle_timeout(now)
        for peer in self._doubts.expired(now):
            info = self._doubted.pop(peer)
            self.detector.refused(peer, now)
            self.bury(info, now, is_silent=True)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        deadlines = (self.detector.deadline(), self._doubts.deadline(), self._refresh_at)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)
