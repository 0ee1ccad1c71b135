"""The nodes that a publisher sends to, and the sets of them that receive the same messages (docs/design.md 8.3).

Topics with equal sets of subscribers share a *route*. So the messages of a turn to a route are joined once for all its nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.groups.entries import ENTRY_BYTES, apply, contains, diff, split
from iris_py.peers.group import BODY_BYTES
from iris_py.wire.flows import encode_cast

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from iris_overlay.ids import GroupId, NodeId
    from iris_py.patterns.topic.counted_patterns import MatchCount
    from iris_py.patterns.topic.outgoing_flows import OutgoingFlow
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

#: Sets of matched tags that a route remembers. Too small: the log of matches has a copy of a set for each batch; too large:
#: memory, for a publisher whose topics have ever new tags.
MATCHES_MAX: Final = 64

#: Changed entries that are looked up one by one in the other tables of their node. Too small: a change of few entries takes the
#: packed entries of all tables apart. Too large: the first view of a table takes a look-up for each entry.
FEW_ENTRIES: Final = 64


class PublicationTarget:
    """A node with entries, as a publisher knows it.

    Attributes:
        peer: The node.
        flow: The count of messages to it.
        entries: Its packed entries, in whatever tables. Those of an absent node are the last ones known.
        counted: The counts of its counted patterns (:mod:`~iris_py.patterns.topic.counted_patterns`), and the number of matches
            before its next body.
        segments: The messages gathered for its next body, in order.
        gathered_bytes: Size of the closed segments.
    """

    __slots__ = ("_lost", "_shares", "counted", "entries", "flow", "gathered_bytes", "peer", "segments")

    def __init__(self, peer: Peer, flow: OutgoingFlow) -> None:
        self.peer = peer
        self.flow = flow
        self.entries = b""
        self.counted: dict[MatchCount, int] = {}
        self.segments: list[BodySegment] = []
        self.gathered_bytes = 0
        self._shares: dict[GroupId, bytes] = {}  # the entries in each watched table where the node is a member
        self._lost: set[GroupId] = set()  # tables that have lost the node; its entries there are the last ones known

    @property
    def is_lost(self) -> bool:
        """Whether all tables where the node has entries have lost it."""
        return all(table in self._lost for table, share in self._shares.items() if share)

    @property
    def is_gone(self) -> bool:
        """Whether the node is in no table."""
        return not self._shares

    def is_in(self, table: GroupId) -> bool:
        """Tell whether the node is in a table."""
        return table in self._shares

    def change(self, table: GroupId, added: bytes, removed: bytes) -> tuple[bytes, bytes]:
        """Change the packed entries in a table; of a table that has lost the node all entries are added anew.

        Returns:
            The packed entries that the node has now, and those that it no longer has, in any table.
        """
        before = self._shares.get(table, b"")
        if table in self._lost:
            self._lost.discard(table)
            added, removed = diff(before, added)
        self._shares[table] = apply(before, added, removed)
        return self._apply(table, added, removed)

    def lose(self, table: GroupId) -> bool:
        """Note that a table has lost the node; return whether the entries there are remembered."""
        if self._shares.get(table):
            self._lost.add(table)
            return True
        self._shares.pop(table, None)
        return False

    def drop(self, table: GroupId, *, is_lost: bool = False) -> bytes:
        """Forget the entries in a table, or only if the table has lost the node; return those that it has in no other table."""
        if is_lost and table not in self._lost:
            return b""
        self._lost.discard(table)
        return self._apply(table, b"", self._shares.pop(table, b""))[1]

    def drop_lost(self) -> bytes:
        """Forget the entries in the tables that have lost the node; return the entries, which are in no other table."""
        for table in self._lost:
            del self._shares[table]
        self._lost.clear()
        entries, self.entries = self.entries, b""
        return entries

    def _apply(self, table: GroupId, added: bytes, removed: bytes) -> tuple[bytes, bytes]:
        """Change the entries as one table has changed; return the changes that no other table hides."""
        others = [share for other, share in self._shares.items() if other != table and share]
        if others:
            added, removed = _without(added, others), _without(removed, others)
        self.entries = apply(self.entries, added, removed)
        return added, removed


def _without(entries: bytes, others: list[bytes]) -> bytes:
    """Return the packed entries that are in no other packed entries."""
    if len(entries) > FEW_ENTRIES * ENTRY_BYTES:
        hidden = set().union(*map(split, others))
        return b"".join(entry for entry in split(entries) if entry not in hidden)
    return b"".join(entry for entry in split(entries) if not any(contains(other, entry) for other in others))


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
    """The matched entries of a publication, which the log of matches keeps (``outgoing_flows.Match``).

    Attributes:
        tags: The tags of all matched entries.
    """

    __slots__ = ("_nodes", "tags")

    def __init__(self, nodes: frozenset[NodeId], tags: tuple[int, ...]) -> None:
        self._nodes = nodes
        self.tags = tags

    def tags_of(self, node: NodeId) -> Collection[int]:
        """Return the tags of all matched entries if the publication is for the node; the node ignores those of others."""
        return self.tags if node in self._nodes else ()


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

    def count_receivers(self, joined: Container[GroupId]) -> int:
        """Return the number of other nodes that receive messages; a node that gets them both ways counts twice.

        Args:
            joined: The groups of promoted entries with this node as a member.
        """
        if not self.casts:
            return len(self.present)
        return len(self.present) + sum(cast.size - (cast.group.id in joined) for cast in self.casts if cast.size is not None)

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
        """Return the parts, joined once if there are several receivers. A large payload stays apart, so the links share it."""
        if len(self.route.receivers) > 1 and len(self.parts) > 1 and len(self.parts[-1]) <= BODY_BYTES:
            self.parts = [b"".join(self.parts)]
        return self.parts
