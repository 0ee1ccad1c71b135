"""The nodes that a publisher sends to, and the sets of them that receive the same messages (docs/design.md 8.3).

Topics with equal sets of subscribers share a *route*. So the messages of a turn to a route are joined once for all its nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.wire.flows import encode_cast

if TYPE_CHECKING:
    from collections.abc import Collection

    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

#: Sets of matched tags that a route remembers. Too small: the log of matches has a copy of a set for each batch; too large:
#: memory, for a publisher whose topics have ever new tags.
MATCHES_MAX: Final = 64


class PublicationTarget:
    """A node with entries, as a publisher knows it.

    Attributes:
        peer: The node.
        flow: The count of messages to it.
        entries: Its packed entries. Those of an absent node are the last ones known.
        segments: The messages gathered for its next body, in order.
        gathered_bytes: Size of the closed segments.
    """

    __slots__ = ("entries", "flow", "gathered_bytes", "peer", "segments")

    def __init__(self, peer: Peer, flow: OutgoingFlow) -> None:
        self.peer = peer
        self.flow = flow
        self.entries = b""
        self.segments: list[BodySegment] = []
        self.gathered_bytes = 0


class CastCount:
    """The count of messages to the group of a promoted entry.

    Attributes:
        count: Number of publications that matched the entry since its promotion.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class CastTarget:
    """The group of a promoted entry, as a publisher knows it (docs/design.md 8.10).

    Attributes:
        entries: The packed entry.
        tag: The tag of the entry.
        flow: The count of messages to it.
        holders: Number of nodes that have the entry in the table, and so get its messages directly, too.
        direct: The number of the last publication sent directly for the entry; 0 for none.
        size: Number of members; None before the first view.
        segments: The messages gathered for its next bodies, in order.
        gathered_bytes: Size of the closed segments.
    """

    __slots__ = ("_group", "_sent", "direct", "entries", "flow", "gathered_bytes", "holders", "segments", "size", "tag")

    def __init__(self, entry: bytes, tag: int, direct: int) -> None:
        self.entries = entry
        self.tag = tag
        self.flow = CastCount()
        self.holders = 0
        self.direct = direct
        self.size: int | None = None
        self._group: Group | None = None
        self.segments: list[BodySegment] = []
        self.gathered_bytes = 0
        self._sent = 0  # messages in the bodies sent so far

    @property
    def is_watched(self) -> bool:
        """Whether the publisher watches the group."""
        return self._group is not None

    @property
    def group(self) -> Group:
        """The group, which the publisher watches. Most nodes publish to few patterns, and each group costs keys."""
        assert self._group is not None
        return self._group

    @group.setter
    def group(self, group: Group) -> None:
        self._group = group

    def take_body(self, bytes_max: int) -> bytes:
        """Take the next body: CAST and segments, at most some bytes or one segment."""
        parts = [encode_cast(self.direct, self._sent)]
        size, taken = 0, 0
        for segment in self.segments:
            if taken and size + segment.size > bytes_max:
                break
            parts += segment.joined()
            size += segment.size
            taken += 1
            self._sent += segment.count
        del self.segments[:taken]
        self.gathered_bytes -= size
        return b"".join(parts)


#: A receiver of messages: a node, or the group of a promoted entry.
AnyTarget: TypeAlias = PublicationTarget | CastTarget


class RouteMatch:
    """The matched entries of a publication, which the log of matches keeps (``outgoing_flows.Match``)."""

    __slots__ = ("_nodes", "_tags")

    def __init__(self, nodes: frozenset[NodeId], tags: tuple[int, ...]) -> None:
        self._nodes = nodes
        self._tags = tags

    def tags_of(self, node: NodeId) -> Collection[int]:
        """Return the tags of all matched entries if the publication is for the node; the node ignores those of others."""
        return self._tags if node in self._nodes else ()


class PublicationRoute:
    """A set of targets.

    Attributes:
        flows: The counts of all targets, including absent ones.
        nodes: The ids of the nodes.
        casts: The groups of promoted entries.
        present: The nodes to send to.
        receivers: The nodes and groups to send to.
        version: The version of the publisher's knowledge behind ``present``.
    """

    __slots__ = ("_matches", "_targets", "casts", "flows", "nodes", "present", "receivers", "version")

    def __init__(self, targets: tuple[AnyTarget, ...]) -> None:
        self._targets = [target for target in targets if isinstance(target, PublicationTarget)]
        self.casts = [target for target in targets if isinstance(target, CastTarget)]
        self.flows = [target.flow for target in targets]
        self.nodes = frozenset(target.peer.id for target in self._targets)
        self.present: list[PublicationTarget] = []
        self.receivers: list[AnyTarget] = []
        self.version = -1
        self._matches: dict[tuple[int, ...], RouteMatch] = {}

    def refresh(self, version: int) -> None:
        """Find the targets that are present."""
        if self.version != version:
            self.version = version
            self.present = [target for target in self._targets if not target.flow.is_absent]
            self.receivers = [*self.present, *self.casts]

    def match(self, tags: tuple[int, ...]) -> RouteMatch:
        """Return the match of publications to this route under some tags."""
        match = self._matches.get(tags)
        if match is None:
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            match = self._matches[tags] = RouteMatch(self.nodes, tags)
        return match


class BodySegment:
    """Consecutive messages to one route.

    Attributes:
        route: The receivers.
        parts: The encoded messages, in parts.
        size: Size of ``parts``.
        count: Number of publications in them.
        used: The largest size of the earlier segments in a body with this one.
        is_long: Whether it is a lengthened batch.
    """

    __slots__ = ("count", "is_long", "parts", "route", "size", "used")

    def __init__(self, route: PublicationRoute, used: int) -> None:
        self.route = route
        self.parts: list[bytes] = []
        self.size = 0
        self.count = 0
        self.used = used
        self.is_long = False

    def joined(self) -> list[bytes]:
        """Return the parts, joined once if there are several receivers."""
        if len(self.route.receivers) > 1 and len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts
