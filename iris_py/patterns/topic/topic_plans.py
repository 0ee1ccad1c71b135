"""The receivers of the publications to a topic, and the batches of another cloud: as a publisher remembers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.wire.imported import Imported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.observe.counts import GroupCounts
    from iris_py.patterns.topic.bodies import PublicationBatch
    from iris_py.patterns.topic.counted_patterns import MatchCount
    from iris_py.patterns.topic.outgoing_shares import ShareRoute
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.patterns.topic.targets import PublicationRoute, RouteMatch
    from iris_py.patterns.topic.watched_tables import WatchedTable


class TopicPlan:
    """The receivers of the publications to a topic, until entries or subscriptions change.

    A publisher remembers thousands of plans. So plans share their matches, and a plan has no empty list of its own.

    Attributes:
        topic: The topic.
        counts: The counters of its first token.
        route: The nodes.
        match: The nodes and the tags of the matched entries.
        local: The subscriptions of this node.
        takers: The subscriptions of ``local`` that accept messages from other clouds.
        count: Number of receiving nodes.
        stem: The hash of the first token, by which entries say for which topics they are.
        tables: The tables on its way, if there are child tables or one does not report its changes.
        counted: The counts of the counted patterns that match.
        shares: The groups that get the messages, too; None without any.
    """

    __slots__ = (
        "count",
        "counted",
        "counts",
        "local",
        "match",
        "route",
        "shares",
        "stem",
        "tables",
        "takers",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        counts: GroupCounts,
        route: PublicationRoute,
        tags: tuple[int, ...],
        stem: int,
        local: list[SubscriptionQueue],
        count: int,
        tables: list[WatchedTable],
    ) -> None:
        self.topic = topic
        self.counts = counts
        self.route = route
        self.stem = stem
        self.tables: Sequence[WatchedTable] = tables or ()
        self.match: RouteMatch = route.match(tags)
        self.local: Sequence[SubscriptionQueue] = local or ()
        self.takers: Sequence[SubscriptionQueue] = [queue for queue in local if queue.takes_imported] if local else ()
        self.counted: Sequence[MatchCount] = ()
        self.shares: ShareRoute | None = None
        self.count = count

    def has_room(self) -> bool:
        """Tell whether all receivers have room: links, and subscriptions of this node that block."""
        for target in self.route.present:
            peer = target.peer
            link = peer.link
            if peer.is_full or (link is not None and link.congested):  # as `Peer.is_congested`, without the call
                return False
        return not self.local or not any(queue.is_blocking and queue.is_full for queue in self.local)


class ImportedRun:
    """A batch of publications from another cloud, and the condition for its next message.

    Attributes:
        run: The batch, which may have ended.
        next: The origin of the next message.
        count: Number of receiving nodes.
    """

    __slots__ = ("count", "next", "run")

    def __init__(self, run: PublicationBatch, imported: Imported, count: int) -> None:
        self.run = run
        self.next = following(imported)
        self.count = count


def following(imported: Imported) -> Imported:
    """Return the origin of the message that follows without a gap."""
    return Imported(imported.origin, imported.sequence, imported.number + 1, 0, imported.cloud)
