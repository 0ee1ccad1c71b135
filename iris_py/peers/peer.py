"""A peer: another node with a link and messages that wait for a link; and the descriptions that remain of past peers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.observe.node_name import NodeName
from iris_py.wire.facts import TOPIC_VERSION

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.waiting_messages import HeldMessages

#: A body of one message below this size always takes the interactive lane.
SMALL_BYTES_MAX = 31 * 1024

#: Number of nodes remembered. Too small: the death of a node is reported without its name and address; too large: memory, at
#: most some 500 bytes each.
KNOWN_NODES_MAX: Final = 4096


class Peer:
    """Another node, or the local node (without a ``link``). A single object per node while referenced.

    Attributes:
        id: The node id.
        name: The node id in hexadecimal digits, for applications.
        linked_at: Time when its last link opened (seconds).
        label: The node's name for itself; empty without a name. Any node can take any name, so no decision depends on the
            label.
        info: The node's own description.
        link: The link, possibly closing; None without a link.
        held: Messages that wait for a link; None if there are none.
        is_full: Whether too many bytes wait for a link.
        is_routed: Whether it is reached through the ring because no link is possible.
        connect_after: Time from which a link may be requested again (seconds).
        awaited: Unanswered requests and surveys of the local node, and tunnels. Invariant: the sum of ``in_flight`` of the
            peer's members, open surveys, and tunnels.
        is_dead: Whether it was found dead and has been silent since; the ring is not used either.
        is_local: Whether it is this node.
        topic_version: The version of its topics (``iris_py.wire.facts``), as its last link told.
    """

    __slots__ = (
        "__weakref__",
        "awaited",
        "connect_after",
        "held",
        "id",
        "info",
        "is_dead",
        "is_full",
        "is_local",
        "is_routed",
        "label",
        "link",
        "linked_at",
        "name",
        "topic_version",
    )

    def __init__(self, info: NodeInfo, link: Link | None, *, is_local: bool = False, label: str = "") -> None:
        self.id: NodeId = info.id
        self.name: str = info.id.hex()
        self.label = label
        self.linked_at = 0.0
        self.info = info
        self.link = link
        self.held: HeldMessages | None = None
        self.is_full = False
        self.is_routed = False
        self.connect_after = 0.0
        self.awaited = 0
        self.is_dead = False
        self.is_local = is_local
        self.topic_version = TOPIC_VERSION

    @property
    def described(self) -> NodeName:
        """The node's name, address and zone, for events and reports."""
        info = self.info
        return NodeName(self.name, info.addresses[0] if info.addresses else "", info.zone, self.label)

    @property
    def is_congested(self) -> bool:
        """Whether the queue to the peer is above the limit; senders then wait or choose another member."""
        link = self.link
        return self.is_full or (link is not None and link.congested)

    def has_room_for(self, size: int) -> bool:
        """Tell whether a message may be sent: a small message overtakes large messages."""
        link = self.link
        if self.is_full or link is None or not link.congested:
            return not self.is_full
        return size < SMALL_BYTES_MAX and not link.is_busy


class KnownNodes:
    """A bounded table of the nodes that had a link: names, addresses and zones by id, kept after the links have ended.

    Names are labels for people, never an identity: neither routing nor admission uses them. Two nodes may have the same name,
    and a node can copy another's. Displays show the id beside a name.
    """

    def __init__(self) -> None:
        self._nodes: dict[NodeId, NodeName] = {}

    def learn(self, id: NodeId, node: NodeName) -> None:  # noqa: A002
        """Remember a node's description; beyond the bound, forget the node remembered first."""
        self._nodes.pop(id, None)  # to the end of the order
        self._nodes[id] = node
        if len(self._nodes) > KNOWN_NODES_MAX:
            del self._nodes[next(iter(self._nodes))]

    def find(self, id: NodeId) -> NodeName:  # noqa: A002
        """Return the known description of a node; for an unknown node only its id."""
        return self._nodes.get(id) or NodeName(id.hex())
