"""The nodes that a publisher sends to, and the sets of them that receive the same messages (docs/design.md 8.3).

Topics with equal sets of subscribers share a *route*. So the messages of a turn to a route are joined once for all its nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from iris_overlay.ids import NodeId
    from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
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
        targets: The targets, including absent ones.
        flows: Their flows.
        nodes: Their ids.
        present: The targets to send to.
        version: The version of the publisher's knowledge behind ``present``.
    """

    __slots__ = ("_matches", "flows", "nodes", "present", "targets", "version")

    def __init__(self, targets: tuple[PublicationTarget, ...]) -> None:
        self.targets = targets
        self.flows = [target.flow for target in targets]
        self.nodes = frozenset(target.peer.id for target in targets)
        self.present: list[PublicationTarget] = []
        self.version = -1
        self._matches: dict[tuple[int, ...], RouteMatch] = {}

    def refresh(self, version: int) -> None:
        """Find the targets that are present."""
        if self.version != version:
            self.version = version
            self.present = [target for target in self.targets if not target.flow.is_absent]

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
        used: The largest size of the earlier segments in a body with this one.
        is_long: Whether it is a lengthened batch.
    """

    __slots__ = ("is_long", "parts", "route", "size", "used")

    def __init__(self, route: PublicationRoute, used: int) -> None:
        self.route = route
        self.parts: list[bytes] = []
        self.size = 0
        self.used = used
        self.is_long = False

    def joined(self) -> list[bytes]:
        """Return the parts, joined once if there are several receivers."""
        if len(self.route.present) > 1 and len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts
