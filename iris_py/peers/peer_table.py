"""The known nodes and the links to some of them; never two links to a peer (docs/design.md 3.8).

A node has a single :class:`~iris_py.peers.peer.Peer` while a membership view, a link or a request refers to the node. New links
are attached to the object, so all users see links come and go.

A link is *pending* from the peer's identification until both sides have confirmed. The rules that keep a second link from ever
carrying messages are in :meth:`Peers._handle_identified`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from iris_overlay.ids import NodeId
from iris_overlay.peers.vantage import put_first
from iris_py.link.events import (
    CloseReason,
    GenerationClaimed,
    GenerationsTold,
    LinkClosed,
    LinkDrained,
    LinkOpened,
    PeerIdentified,
    RankTold,
)
from iris_py.link.handshake import LinkHandshake
from iris_py.link.link import NO_LINK, Link, LinkState
from iris_py.link.record_buffers import RecordBuffers
from iris_py.observe.counts import count_in
from iris_py.observe.histogram import Histogram
from iris_py.observe.journal import Journal
from iris_py.peers.eviction import Crowd
from iris_py.peers.peer import KnownNodes, Peer
from iris_py.peers.rotation import Rotation, RotationEvent
from iris_py.wire.facts import (
    TOPIC_VERSION,
    TOPICS,
    decode_hello,
    encode_facts,
    encode_hello,
    name_in,
    named,
    topic_version_in,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_overlay.environment import Rng
    from iris_overlay.node_info import NodeInfo
    from iris_py.link.config import LinkConfig
    from iris_py.link.events import LinkEvent
    from iris_security import Identity, Keyring, NetworkKeys

#: Accepted connections without an authenticated peer (strangers); bounded because they must not exhaust descriptors and memory.
#: Beyond this bound one connection of the address with the most is evicted. Refusing new connections instead would let 256
#: silent strangers keep every node out.
HANDSHAKES_MAX = 256
#: Links to authenticated peers; lower where descriptors are few (docs/design.md 3.9). Too small: conversations with many peers
#: dial again and again, or go through the ring; too large: memory, and with ``LEAF_LINKS_SHARE`` more than the ring remembers
#: (``iris_overlay.ring.state.LINKS_MAX``).
LINKS_MAX = 3_600
#: Additional links, as a share of ``LINKS_MAX``, reserved for ring neighbours: the ring breaks without them. Too small: an
#: insider who holds all links makes a hole in the ring; too large: the bound is ineffective.
LEAF_LINKS_SHARE = 0.125
#: Ids of lost links that are remembered. Forgetting one costs its peer a keep-alive timeout if the peer dials before this side
#: notices the loss.
LOST_LINKS_MAX = 1024
#: Peers with topics of another version that are remembered as named. Too small: a peer is named again after its next link; too
#: large: memory.
OTHER_TOPICS_MAX = 1024
#: A node that leaves this soon after its link opened was a visitor, such as a command, and not a departure (seconds). Too
#: small: the nodes of commands fill the list of departures; too large: programs that ran briefly are missing from it.
VISIT_S = 10.0
#: Number of remembered addresses that did not answer a dial. A forgotten address is dialled under the primary generation.
UNANSWERED_MAX = 1024


class PeerOpened(msgspec.Struct):
    """A link to a peer has opened; the peer had none."""

    peer: Peer


class PeerClosed(msgspec.Struct):
    """The link to a peer has ended, for the given reason."""

    peer: Peer
    reason: str
    link: Link
    clean: bool
    """Whether both sides had sent CLOSE."""
    released: bool
    """Whether the peer closed the link as idle: unanswered requests were surely not executed."""
    broken: bool = False
    """Whether the connection ended unintentionally, which does not mean that the peer has ended."""
    kind: str = ""
    """The reason as a metric label."""

    @property
    def is_silent(self) -> bool:
        """Whether this side ended the link because of the peer's silence or fault, so the peer's state is unknown."""
        return not (self.broken or self.clean or self.released)


class PeerDrained(msgspec.Struct):
    """The link to a peer was congested and has room again."""

    peer: Peer


class DialSucceeded(msgspec.Struct):
    """A dialled address belongs to the node ``id`` (possibly the local node, or a node with a link)."""

    address: str
    id: NodeId


class DialFailed(msgspec.Struct):
    """A dial failed after the connection was made, before its link opened."""

    address: str
    reason: str
    refused: bool
    """Whether a peer answered but could not be authenticated."""
    broken: bool
    """Whether the connection ended before either side had confirmed it."""


class StrangerRefused(msgspec.Struct):
    """A connection to this node ended without an authenticated peer (from a stranger)."""

    host: str
    """The IP address at the other end of the connection."""
    reason: str
    has_failed: bool
    """Whether data foreign to the network arrived. Otherwise the connection only ended or stayed silent."""


PeersEvent: TypeAlias = PeerOpened | PeerClosed | PeerDrained | DialSucceeded | DialFailed | StrangerRefused | RotationEvent


class LinkCounts:
    """Counters of the dials and links of one node.

    Attributes:
        opened: Links opened, whichever side dialled.
        dialled: Connections made to others.
        dials_failed: Failed dials.
        closed: Opened links that have ended, by reason.
        received_bytes: Bytes read from ended links.
        sent_bytes: Bytes written to ended links.
        received_records: Records received over ended links.
        sent_records: Records sent over ended links.
        rekeys: Key replacements on ended links.
        round_trips: Histogram of the measured round-trip times.
    """

    __slots__ = (
        "closed",
        "dialled",
        "dials_failed",
        "opened",
        "received_bytes",
        "received_records",
        "rekeys",
        "round_trips",
        "sent_bytes",
        "sent_records",
    )

    def __init__(self) -> None:
        self.opened = 0
        self.dialled = 0
        self.dials_failed = 0
        self.closed: dict[str, int] = {}
        self.received_bytes = 0
        self.sent_bytes = 0
        self.received_records = 0
        self.sent_records = 0
        self.rekeys = 0
        self.round_trips = Histogram()

    def add(self, link: Link) -> None:
        """Add the counters of an ended link."""
        received, sent, rekeys = link.records()
        self.received_bytes += link.received_bytes
        self.sent_bytes += link.sent_bytes
        self.received_records += received
        self.sent_records += sent
        self.rekeys += rekeys


class Peers:
    """The links of one node and the peers at their other ends; never more than one link to a peer.

    Args:
        identity: The key pair behind its id.
        entropy: The source of ephemeral keys.
        config: Timeouts and queue bounds of each link.
        rng: The randomness of evictions.
        journal: Records links that open and end.
        name: The node's own name; empty for none.

    Attributes:
        refused: Accepted connections that ended without an authenticated peer.
        counts: Counters of dials and links.
        handshakes_max: Bound on accepted connections without an authenticated peer; lower where descriptors are few.
        links_max: Bound on authenticated peers, without the reserve for ring neighbours; likewise.
        rotation: The generations signed by the network's administrator.
        keyring: The secrets in use.
        known_nodes: The nodes that had a link.
        peer_by_link: The links that have not ended, each with its peer once open; for reading.
    """

    def __init__(
        self,
        local: NodeInfo,
        identity: Identity,
        keyring: Keyring,
        entropy: Callable[[int], bytes],
        config: LinkConfig,
        rng: Rng,
        journal: Journal | None = None,
        name: str = "",
    ) -> None:
        self._journal = journal or Journal()
        self.known_nodes = KnownNodes()
        self.refused = 0
        self.counts = LinkCounts()
        self.handshakes_max = HANDSHAKES_MAX
        self.links_max = LINKS_MAX
        self.rotation = Rotation(keyring, lambda event: self._events.append(event))
        self._local = local
        self._identity = identity
        self.keyring = keyring
        self._entropy = entropy
        self._config = config
        self._buffers = RecordBuffers()
        self._hello = encode_hello(local, named(name) + encode_facts({TOPICS: bytes([TOPIC_VERSION])}))
        self.peer_by_link: dict[Link, Peer | None] = {}
        self._hosts: dict[Link, str] = {}  # the address at the other end
        self._strangers = Crowd(rng)
        self._open = Crowd(rng)
        self._dialled: dict[Link, str] = {}  # until the result of the dial is known
        self._unanswered: dict[str, int] = {}  # by address: consecutive dials that connected but got no answer
        self._infos: dict[Link, NodeInfo] = {}  # of identified peers
        self._facts: dict[Link, bytes] = {}  # of identified peers with facts
        self._pending: dict[NodeId, Link] = {}  # this node's dials that await the peer's confirmation
        self._by_id: dict[NodeId, Peer] = {}  # peers with a link
        self._known: WeakValueDictionary[NodeId, Peer] = WeakValueDictionary()
        self._lost: dict[NodeId, bytes] = {}  # the id of the last link to each lost peer
        self._other_topics: dict[NodeId, None] = {}  # the peers with topics of another version that the journal has named
        self._events: list[PeersEvent] = []

    # -- commands

    def dialled(self, address: str, now: float, host: str = "") -> Link:
        """Return a new link for a connection this node has dialled.

        Args:
            address: The address the overlay wanted to dial.
            host: The IP address of the connection; by default the host of the address.
        """
        generations = self.keyring.generations
        generation = generations[self._unanswered.get(address, 0) % len(generations)]
        host = host or address.rpartition(":")[0].strip("[]")
        link = self._make_link(host, initiator=True, now=now, generation=generation)
        self._dialled[link] = address
        self.counts.dialled += 1
        return link

    def evict_stranger(self) -> Link | None:
        """If the bound on handshakes is reached, abort one to make room for another connection.

        Returns the aborted link, which the owner must handle; None if the bound is not reached.
        """
        if len(self._strangers) < self.handshakes_max:
            return None
        link = self._strangers.choose()
        link.abort("too many handshakes under way")
        return link

    def accepted(self, address: str, now: float) -> Link | None:
        """Return a new link for a connection accepted from an IP address; None if the bound on handshakes is reached."""
        if len(self._strangers) >= self.handshakes_max:
            self.refused += 1
            return None
        link = self._make_link(address, initiator=False, now=now)
        self._strangers.add(link, address)
        return link

    def find(self, id: NodeId) -> Peer | None:  # noqa: A002
        """Return the peer with an id if the peer has a link, otherwise None."""
        return self._by_id.get(id)

    def link_to(self, id: NodeId) -> Link | None:  # noqa: A002
        """Return the link to a node, possibly closing; None without a link."""
        peer = self._by_id.get(id)
        return None if peer is None else peer.link

    def known(self, id: NodeId) -> Peer | None:  # noqa: A002
        """Return the peer with an id if the node still refers to the peer, otherwise None."""
        return self._known.get(id)

    def peer(self, info: NodeInfo) -> Peer:
        """Return the peer a description names; create it if missing.

        The description updates a peer without a link. A peer with a link has described itself.
        """
        peer = self._known.get(info.id)
        if peer is None:
            peer = self._known[info.id] = Peer(info, None, label=self.known_nodes.find(info.id).name)
        elif info.addresses and peer.link is None:
            peer.info = info
        return peer

    def learn_name(self, peer: Peer, name: str) -> None:
        """Record a node's name; empty for none."""
        peer.label = name
        self.known_nodes.learn(peer.id, peer.described)

    def peer_of(self, link: Link) -> Peer | None:
        """Return the peer at the other end of an open link."""
        return self.peer_by_link.get(link)

    def links(self) -> list[Link]:
        """Return every link that has not ended."""
        return list(self.peer_by_link)

    def linked(self) -> list[Peer]:
        """Return the peers with open or closing links."""
        return list(self._by_id.values())

    def links_and_peers(self) -> list[tuple[Link, Peer | None]]:
        """Return every link that has not ended, with the peer of an open link."""
        return list(self.peer_by_link.items())

    def count_routed(self) -> int:
        """Return the number of peers reached through the ring."""
        return sum([peer.is_routed and peer.link is None for peer in self._known.values()])

    # -- the secrets

    def rekey(self, keyring: Keyring, now: float) -> list[Link]:
        """Use a new keyring; return all links, whose events the owner must handle.

        The node proves the new generations to every peer. A link to a peer that has proved no accepted generation is closed.
        After the retirement of a generation, handshakes are aborted, because they may use the retired generation.
        """
        retires = any(keyring.find(keys.key_id) is None for keys in self.keyring.generations)
        self.keyring = keyring
        self.rotation.rekey(keyring)
        self._unanswered.clear()
        accepted = {keys.key_id for keys in keyring.generations}
        for link, peer in self.peer_by_link.items():
            if peer is None:
                if retires and link.state is LinkState.HANDSHAKE:
                    link.abort("other secrets are used now")
            elif accepted.isdisjoint(link.proofs.generations):
                link.close(CloseReason.IDLE, now)
            elif link.is_open:
                self._claim_all(link)
        return list(self.peer_by_link)

    def _claim_all(self, link: Link) -> None:
        for keys in self.keyring.generations:
            if keys.key_id not in link.proofs.generations:
                link.proofs.claim(keys)

    def _handle_claim(self, link: Link, claim: GenerationClaimed) -> None:
        keys = self.keyring.find(claim.key_id)
        if keys is None:
            return  # a generation that this node does not know yet, or has retired
        is_known = keys.key_id in link.proofs.generations
        if not link.proofs.accept_claim(keys, claim.proof):
            link.abort("a forged proof of a secret")
        elif not is_known and not claim.is_answer and link.is_open:
            link.proofs.claim(keys, is_answer=True)

    # -- the bound on links

    def is_crowded_for(self, id: NodeId, *, is_leaf: bool = False) -> bool:  # noqa: A002
        """Tell whether the bound on links leaves no room for a link to another peer.

        Args:
            id: The authenticated peer. A peer with a link needs no further room.
            is_leaf: Whether the peer would be a ring neighbour.
        """
        limit = self.links_max * (1.0 + LEAF_LINKS_SHARE if is_leaf else 1.0)
        return len(self._infos) >= limit and id not in self._by_id and id not in self._pending

    def hosts(self) -> Iterator[list[Peer]]:
        """Return the linked peers by host, the host with the most peers first."""
        for links in self._open.largest():
            yield [peer for peer in map(self.peer_by_link.get, links) if peer is not None]

    def turn_away(self, link: Link, now: float) -> None:
        """End the link of a newly identified peer for lack of room."""
        self._strangers.discard(link)
        if link.initiator:
            link.abort("there is no room for another link")
        else:
            link.close(CloseReason.CROWDED, now)

    # -- in

    def handle_event(self, link: Link, event: LinkEvent, now: float) -> None:
        """Handle one event of a link."""
        if link not in self.peer_by_link:
            return
        self._journal.now = now
        if isinstance(event, PeerIdentified):
            self._handle_identified(link, event, now)
        elif isinstance(event, LinkOpened):
            self._handle_opened(link, now)
        elif isinstance(event, GenerationClaimed):
            self._handle_claim(link, event)
        elif isinstance(event, RankTold | GenerationsTold):
            self.rotation.receive(link, event)
        elif isinstance(event, LinkDrained):
            peer = self.peer_by_link[link]
            if peer is not None:
                self._events.append(PeerDrained(peer))
        elif isinstance(event, LinkClosed):
            self._handle_closed(link, event)

    # -- out

    def events_received(self) -> list[PeersEvent]:
        """Take the events, in order."""
        events, self._events = self._events, []
        return events

    # --

    def _make_link(self, host: str, *, initiator: bool, now: float, generation: NetworkKeys | None = None) -> Link:
        handshake = LinkHandshake(
            initiator=initiator,
            keyring=self.keyring,
            identity=self._identity,
            hello=self._hello,
            ephemeral_private=self._entropy(32),
            offer=self._config.offer,
            generation=generation,
        )
        link = Link(handshake=handshake, now=now, config=self._config, buffers=self._buffers)
        link.signs.round_trips = self.counts.round_trips
        self.peer_by_link[link] = None
        self._hosts[link] = host
        return link

    def _handle_identified(self, link: Link, event: PeerIdentified, now: float) -> None:
        self._strangers.discard(link)
        if link.state is LinkState.CLOSED:
            return  # it broke right after the hello and may replace no link
        hello = decode_hello(event.hello)
        if hello is None:
            link.abort("a malformed hello")
            return
        info, facts = hello
        if info.id != event.node_id:
            link.abort("a hello in the name of another node")
            return
        # The address of this connection is correct on this side; the other addresses are not verified.
        info = self._infos[link] = put_first(info, self._hosts[link])
        if facts:
            self._facts[link] = facts
        if link.initiator:
            if info.id == self._local.id or info.id in self._by_id or info.id in self._pending:
                self._dial_succeeded(link, info.id)
                link.abort("there is another link to that node")
            else:
                self._pending[info.id] = link
                link.confirm(now, replaces=self._lost.get(info.id, NO_LINK))
            return
        existing = self._by_id.get(info.id)
        if info.id == self._local.id:
            link.abort("this is the node itself")
        elif existing is not None and existing.link is not None:
            if existing.link.id == event.replaces:
                # The peer noticed the end of our link before we did.
                self._replace(existing.link)
                link.confirm(now)
            else:
                # The peer dialled while our own link to it was opening.
                link.close(CloseReason.DUPLICATE, now)
        elif info.id in self._pending and self._local.id < info.id:
            # Both nodes dialled. The peer has the larger id, so it accepts our link and its own is redundant.
            link.close(CloseReason.DUPLICATE, now)
        else:
            link.confirm(now)

    def _replace(self, link: Link) -> None:
        reason = "the peer opened another link"
        link.abort(reason)
        is_released = any(isinstance(event, LinkClosed) and event.released for event in link.events_received())
        self._forget_link(link, LinkClosed(False, reason, broken=True, released=is_released))

    def _handle_opened(self, link: Link, now: float) -> None:
        info = self._infos[link]
        if info.id in self._by_id:
            link.abort("the peer has another link to us")  # and confirmed this one nevertheless
            return
        if self._pending.get(info.id) is link:
            del self._pending[info.id]
        self._dial_succeeded(link, info.id)
        peer = self.peer_by_link[link] = self._by_id[info.id] = self.peer(info)
        peer.info, peer.link, peer.linked_at = info, link, now
        facts = self._facts.pop(link, b"")
        self.learn_name(peer, name_in(facts))
        self.counts.opened += 1
        self._journal.note_at(now, "link_opened", peer.name, node=peer.described)
        self._learn_topic_version(peer, topic_version_in(facts))
        self._open.add(link, self._hosts[link])
        self._claim_all(link)
        self.rotation.link_opened(link)
        self._events.append(PeerOpened(peer))
        if all(self.keyring.find(key_id) is None for key_id in link.proofs.generations):
            link.close(CloseReason.IDLE, now)  # its generation was retired meanwhile

    def _learn_topic_version(self, peer: Peer, version: int) -> None:
        """Record the version of a peer's topics. The journal names each peer with another version once."""
        peer.topic_version = version
        if version == TOPIC_VERSION or peer.id in self._other_topics:
            return
        if len(self._other_topics) >= OTHER_TOPICS_MAX:
            del self._other_topics[next(iter(self._other_topics))]
        self._other_topics[peer.id] = None
        detail = f"its topics are of version {version}, and those of this node of version {TOPIC_VERSION}"
        self._journal.note("topics_differ", peer.name, node=peer.described, detail=detail)

    def _handle_closed(self, link: Link, event: LinkClosed) -> None:
        info = self._infos.get(link)
        if event.duplicate and info is not None:
            self._dial_succeeded(link, info.id)
        address = self._dialled.pop(link, None)
        if address is not None:
            self.counts.dials_failed += 1
            self._remember_unanswered(address)
            self._events.append(DialFailed(address, event.reason, event.refused, event.broken))
        host = self._hosts[link]
        if info is None and not link.initiator:
            self.refused += 1
            self._events.append(StrangerRefused(host, event.reason, event.refused))
        if info is None and (event.refused or not link.initiator):
            # Without the address as a key: strangers have many, and would push out all other events.
            self._journal.note("refused", detail=f"{host}: {event.reason}")
        self._forget_link(link, event)

    def _remember_unanswered(self, address: str) -> None:
        if len(self.keyring.generations) > 1:
            self._unanswered[address] = self._unanswered.pop(address, 0) + 1
            if len(self._unanswered) > UNANSWERED_MAX:
                del self._unanswered[next(iter(self._unanswered))]

    def _forget_link(self, link: Link, event: LinkClosed) -> None:
        peer = self.peer_by_link.pop(link, None)
        self.counts.add(link)
        self._hosts.pop(link, None)
        self._strangers.discard(link)
        self._open.discard(link)
        self.rotation.link_closed(link)
        self._facts.pop(link, None)
        info = self._infos.pop(link, None)
        if info is not None and self._pending.get(info.id) is link:
            del self._pending[info.id]
        if peer is not None:
            count_in(self.counts.closed, event.counted_as)
            kind = "link_closed" if event.clean or event.released else "link_lost"
            detail = "the node leaves the network" if link.is_peer_leaving else event.reason
            self._journal.note(kind, peer.name, node=peer.described, detail=detail)
            is_visitor = self._journal.now - peer.linked_at < VISIT_S and not self._journal.departures.is_gateway(peer.name)
            if link.is_peer_leaving and not is_visitor:
                self._journal.note_leaving(peer.described, detail)
            if self._by_id.get(peer.id) is peer:
                del self._by_id[peer.id]
            peer.link = None
            self._lost.pop(peer.id, None)  # to the end of the order
            self._lost[peer.id] = link.id
            if len(self._lost) > LOST_LINKS_MAX:
                del self._lost[next(iter(self._lost))]
            self._events.append(
                PeerClosed(peer, event.reason, link, event.clean, event.released, event.broken, event.counted_as)
            )

    def _dial_succeeded(self, link: Link, id: NodeId) -> None:  # noqa: A002
        address = self._dialled.pop(link, None)
        if address is not None:
            self._unanswered.pop(address, None)
            self._events.append(DialSucceeded(address, id))
