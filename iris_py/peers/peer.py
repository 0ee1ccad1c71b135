"""Another node: the link to it, and what waits for one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.observe.node_name import NodeName

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_py.link.link import Link
    from iris_py.peers.waiting import Held

#: A body of one message below this surely takes the interactive lane.
SMALL_BYTES_MAX = 31 * 1024


class Peer:
    """Another node, or this node itself (``link`` is None and stays so). One object per node, as long as somebody holds it.

    Attributes:
        id: Its node id.
        name: The same in hexadecimal digits, as applications see it.
        linked_at: When the last link to it was opened (seconds).
        label: What the node calls itself; empty if it tells no name. Any node can take any name, so nothing depends on it.
        info: What it says of itself.
        link: The link to it, maybe closing; None if there is none.
        held: What waits for a link to it; None if nothing does.
        is_full: Whether too much waits for a link to it.
        is_routed: Whether it is reached through the ring, for no link to it can be had.
        connect_after: When a link to it may be asked for again (seconds).
        awaited: Requests and surveys of this node that it has not answered, and tunnels. Invariant: the sum of ``in_flight``
            of its members, how many surveys it is open in, and how many tunnels there are to it.
        is_dead: Whether it was found dead, and was not heard since: nothing goes through the ring to it.
        is_local: Whether it is this node.
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
    )

    def __init__(self, info: NodeInfo, link: Link | None, *, is_local: bool = False, label: str = "") -> None:
        self.id: NodeId = info.id
        self.name: str = info.id.hex()
        self.label = label
        self.linked_at = 0.0
        self.info = info
        self.link = link
        self.held: Held | None = None
        self.is_full = False
        self.is_routed = False
        self.connect_after = 0.0
        self.awaited = 0
        self.is_dead = False
        self.is_local = is_local

    @property
    def described(self) -> NodeName:
        """The node, as events and reports name it."""
        info = self.info
        return NodeName(self.name, info.addresses[0] if info.addresses else "", info.zone, self.label)

    @property
    def is_congested(self) -> bool:
        """Whether more is queued for it than should be."""
        link = self.link
        return self.is_full or (link is not None and link.congested)

    def has_room_for(self, size: int) -> bool:
        """Tell whether a message may be sent to it: one that is small passes what is large, and need not wait for that."""
        link = self.link
        if self.is_full or link is None or not link.congested:
            return not self.is_full
        return size < SMALL_BYTES_MAX and not link.is_busy
