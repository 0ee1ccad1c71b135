"""The receivers of the publications to a topic, and the batches of another cloud: as a publisher remembers them.

A *plan* says where the publications to a topic go. Topics that no pattern tells apart share a plan
(:mod:`iris_py.patterns.topic.alike_topics`). So most new topics have a known plan, and a look-up finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.groups import entries as packed
from iris_py.patterns.topic.alike_topics import AlikeTopics
from iris_py.patterns.topic.shapes import WILD_STEM
from iris_py.wire.imported import Imported

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.events import MemberChange
    from iris_py.observe.counts import GroupCounts
    from iris_py.patterns.topic.bodies import PublicationBatch
    from iris_py.patterns.topic.counted_patterns import MatchCount
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.outgoing_shares import ShareRoute
    from iris_py.patterns.topic.queue import SubscriptionQueue
    from iris_py.patterns.topic.targets import PublicationRoute, RouteMatch
    from iris_py.patterns.topic.watched_tables import WatchedTable


#: Topics with cached receivers, and the same number of plans. Too small: a publisher to many topics checks each name again, 0.7
#: us, or makes each plan again, 6 us, where a pattern reads the tokens that differ. Too large: memory, some 100 bytes for each
#: topic and 400 bytes for each plan.
TOPICS_MAX: Final = 2048


class TopicPlan:
    """The receivers of the publications to one or more topics, until entries or subscriptions change.

    A publisher remembers thousands of plans. So plans share their matches, and a plan has no empty list of its own.

    Attributes:
        counts: The counters of the first token.
        route: The nodes.
        match: The nodes and the tags of the matched entries.
        local: The subscriptions of this node.
        takers: The subscriptions of ``local`` that accept messages from other clouds.
        count: Number of receiving nodes.
        stem: The hash of the first token, by which entries say for which topics they are.
        tables: The tables on the way, if there are child tables or one does not report its changes.
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
    )

    def __init__(
        self,
        counts: GroupCounts,
        route: PublicationRoute,
        tags: tuple[int, ...],
        stem: int,
        local: list[SubscriptionQueue],
        count: int,
        tables: list[WatchedTable],
    ) -> None:
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


class PlanCache:
    """The plans of the topics published lately, for one publisher.

    Attributes:
        by_topic: The plans of the last topics.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicPlan] = {}
        self._alike: AlikeTopics[TopicPlan] = AlikeTopics(TOPICS_MAX)
        self._stems: dict[str, int] = {}  # of all plans, by the first token

    def find(self, topic: str, tokens: Tokens) -> TopicPlan | None:
        """Return the plan of a topic missing in ``by_topic``; None for the caller to make a plan."""
        plan = self._alike.find(tokens)
        if plan is not None:
            if len(self.by_topic) >= TOPICS_MAX:
                self.by_topic.clear()
            self.by_topic[topic] = plan
        return plan

    def find_alike(self, topic: str, tokens: Tokens) -> TopicPlan | None:
        """Return the plan of a topic, if known. The cache does not remember the topic, which may never come again."""
        return self._alike.find(tokens) or self.by_topic.get(topic)

    def add(self, topic: str, tokens: Tokens, plan: TopicPlan, bits: int) -> None:
        """Remember a new plan.

        Args:
            topic: The topic.
            tokens: The tokens of the topic.
            plan: The plan.
            bits: The positions of the deciding tokens, as in :meth:`AlikeTopics.add`.
        """
        if len(self._stems) >= TOPICS_MAX:
            self.clear()
        elif len(self.by_topic) >= TOPICS_MAX:
            self.by_topic.clear()
        self.by_topic[topic] = plan
        self._stems[tokens[0]] = plan.stem
        self._alike.add(tokens, bits, plan)

    def find_tag(self, tag: int) -> tuple[str, TopicPlan] | None:
        """Return a topic published lately with a match of a tag, and the plan."""
        return next(((topic, plan) for topic, plan in self.by_topic.items() if tag in plan.match.tags), None)

    def forget(self, stems: set[int]) -> None:
        """Forget the plans of the topics with some stems."""
        tokens = [token for token, stem in self._stems.items() if stem in stems]
        for token in tokens:
            del self._stems[token]
            self._alike.forget(token)
        if tokens:
            self.by_topic = {topic: plan for topic, plan in self.by_topic.items() if plan.stem not in stems}

    def forget_changed(self, changes: Iterable[MemberChange]) -> None:
        """Forget the plans of the topics for which known nodes may have added or removed entries."""
        both = (entries for change in changes for entries in (change.added, change.removed))
        stems = {stem for entries in both for stem, _shape, _tag in packed.unpack(entries)}
        if WILD_STEM in stems:
            self.clear()
        else:
            self.forget(stems)

    def clear(self) -> None:
        """Forget all plans."""
        self.by_topic.clear()
        self._alike.clear()
        self._stems.clear()


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
    return Imported(
        imported.origin, imported.sequence, imported.number + 1, 0, imported.cloud, is_repeated=imported.is_repeated
    )
