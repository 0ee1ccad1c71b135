"""What a node holds of one name: its keys, its view of the members, and the messages on their way to each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.balancer import MemberLoad
from overlay.ids import GroupId
from security import GroupOpener, GroupSealer, multicast_associated, unicast_associated

if TYPE_CHECKING:
    from iris_py.link import Link
    from overlay.ids import NodeId
    from overlay.messages import NodeInfo
    from security import GroupKeys

#: A body is sealed when it has grown to this, so that packet and frame headers still fit one record of 32 KiB.
BODY_BYTES = 31 * 1024


class Peer:
    """Another node that this one has a link to, or this node itself (``link`` is None and stays so).

    Attributes:
        id: Its node id.
        info: What it says of itself.
        link: The open link to it; None once that is lost.
    """

    __slots__ = ("id", "info", "link")

    def __init__(self, info: NodeInfo, link: Link | None) -> None:
        self.id: NodeId = info.id
        self.info = info
        self.link = link

    @property
    def is_congested(self) -> bool:
        """Whether more is queued for it than should be."""
        link = self.link
        return link is not None and link.congested


class Member(MemberLoad):
    """One node in the view of a cluster, and what we know of its load."""

    __slots__ = ("peer",)

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer


class Channel:
    """Messages to one peer under one group's key, gathered until the next flush and then sealed together."""

    __slots__ = ("associated", "group", "parts", "parts_bytes", "peer")

    def __init__(self, group: Group, peer: Peer, associated: bytes) -> None:
        self.group = group
        self.peer = peer
        self.associated = associated
        self.parts: list[bytes] = []
        self.parts_bytes = 0


class Group:
    """One name.

    Attributes:
        name: The name that the application uses.
        id: The group id that the overlay knows.
        members: The view; None until the overlay has given the first one.
        sequence: The number of the last broadcast of this node.
        channels: The channel to each peer.
        cast_parts: Broadcasts gathered until the next flush, and sealed once for all members.
        cast_bytes: Their size.
        last_used: When the application last used it (seconds); idle groups are forgotten.
    """

    def __init__(self, name: str, keys: GroupKeys, local: NodeId, epoch: int) -> None:
        self.name = name
        self.keys = keys
        self.id = GroupId(keys.group_id)
        self.members: list[Member] | None = None
        self.sequence = 0
        self.channels: dict[NodeId, Channel] = {}
        self.cast_parts: list[bytes] = []
        self.cast_bytes = 0
        self.last_used = 0.0
        self._local = local
        self._sealer = GroupSealer(keys, local, epoch)
        self._opener = GroupOpener(keys)
        self._multicast = multicast_associated(self.id, local)
        self._unicast_from: dict[NodeId, bytes] = {}

    @property
    def epoch(self) -> int:
        """The epoch that is being sealed under; it grows by itself."""
        return self._sealer.epoch

    def channel(self, peer: Peer) -> Channel:
        """Return the channel to a peer, made when it is first used."""
        channel = self.channels.get(peer.id)
        if channel is None or channel.peer is not peer:
            channel = self.channels[peer.id] = Channel(self, peer, unicast_associated(self.id, self._local, peer.id))
        return channel

    def seal(self, channel: Channel) -> tuple[bytes, bytes]:
        """Take what a channel gathered and seal it for its peer: (nonce, sealed body)."""
        parts, channel.parts, channel.parts_bytes = channel.parts, [], 0
        return self._sealer.seal(b"".join(parts), channel.associated)

    def seal_cast(self) -> tuple[bytes, bytes]:
        """Take the gathered broadcasts and seal them for every member: (nonce, sealed body)."""
        parts, self.cast_parts, self.cast_bytes = self.cast_parts, [], 0
        return self._sealer.seal(b"".join(parts), self._multicast)

    def open_unicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that was sealed for this node.

        Raises:
            AuthenticationError: It was not, or not by that sender.
            ReplayError: It was opened before.
        """
        associated = self._unicast_from.get(sender)
        if associated is None:
            associated = self._unicast_from[sender] = unicast_associated(self.id, sender, self._local)
        return self._opener.open(sender, nonce, sealed, associated)

    def open_multicast(self, sender: NodeId, nonce: bytes, sealed: bytes | memoryview) -> bytes:
        """Open a body that was sealed for every member. Raises as :meth:`open_unicast` does."""
        return self._opener.open(sender, nonce, sealed, multicast_associated(self.id, sender))

    def forget_peer(self, peer: NodeId) -> None:
        """Drop what was cached for a peer that is gone; its replay window stays."""
        self.channels.pop(peer, None)
        self._unicast_from.pop(peer, None)
