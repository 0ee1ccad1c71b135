"""The counters of a working node: a set for every cluster and first token of topics in use, and totals.

Hot paths add directly to the objects, without locks or calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The name under which the counts of forgotten clusters and topics are added. A cluster or topic of this name counts there,
#: too.
OTHER: Final = "_other"


class Totals:
    """Histograms of durations at one node, over all of its clusters.

    Attributes:
        round_trip: Times from sending a request to a member until its reply.
        queue_wait: Times that requests and surveys waited for a handler.
        handling: Times that handlers took to answer.
        survey: Times that surveys took.
        broadcast_lag: Times that broadcasts waited for their handler.
    """

    __slots__ = ("broadcast_lag", "handling", "queue_wait", "round_trip", "survey")

    def __init__(self) -> None:
        self.round_trip = Histogram()
        self.queue_wait = Histogram()
        self.handling = Histogram()
        self.survey = Histogram()
        self.broadcast_lag = Histogram()


#: Clusters of other clouds with a counter of their own; further clusters share one. Too small: a failing cluster is hidden in
#: the sum of the others; too large: memory, of some 1 KiB each, in a program that invents names.
FAR_NAMES_MAX: Final = 512


class FarCounts:
    """The counters of a node's requests to one cluster of another cloud.

    Attributes:
        sent: Requests made.
        retries: Times that a request was sent to a gateway again.
        cancelled: Requests cancelled by their callers.
        errors: Requests that failed, by the class of the error.
        unopened: Tunnels that could not be opened, by the class of the error.
        round_trip: Times from the call until the reply.
    """

    __slots__ = ("cancelled", "errors", "retries", "round_trip", "sent", "unopened")

    def __init__(self) -> None:
        self.sent = 0
        self.retries = 0
        self.cancelled = 0
        self.errors: dict[str, int] = {}
        self.unopened: dict[str, int] = {}
        self.round_trip = Histogram()


class FarTable:
    """The counters of the clusters of other clouds, by name. Beyond ``FAR_NAMES_MAX``, all further clusters share a sum."""

    def __init__(self) -> None:
        self._by_name: dict[str, FarCounts] = {}

    def of(self, cluster: str) -> FarCounts:
        """Return the counters of a cluster of another cloud; create missing ones.

        Args:
            cluster: The name of the cluster with the alias of its cloud: ``databases@eu``.
        """
        counts = self._by_name.get(cluster)
        if counts is None:
            name = cluster if len(self._by_name) < FAR_NAMES_MAX else OTHER
            counts = self._by_name.setdefault(name, FarCounts())
        return counts

    def all(self) -> Mapping[str, FarCounts]:
        """Return the counters of all clusters, by name."""
        return self._by_name


class RequesterCounts:
    """The counters of all requests and tunnel openings of one node.

    Attributes:
        failed: Requests that ended because a handler failed.
        retries: Times that a request was sent to another member.
        hedged: Times that an idempotent request went to a second member because the first was slow.
        recalled: Times that a slow member gave back a request that had not begun.
        late: Replies that came after the end of their request.
        openings: Times that members took to accept a tunnel.
        far: Requests to other clouds, through gateways.
    """

    __slots__ = ("failed", "far", "hedged", "late", "openings", "recalled", "retries")

    def __init__(self) -> None:
        self.failed = 0
        self.retries = 0
        self.hedged = 0
        self.recalled = 0
        self.late = 0
        self.openings = Histogram()
        self.far = FarTable()


class ServiceCounts:
    """The counters of the requests a node serves as a member of one cluster.

    Attributes:
        failed: Requests and surveys whose handler raised an exception.
        rejected: Refused requests, surveys and tunnels, by reason.
        repeated: Repeated idempotent requests that reached no handler.
        broadcasts: Broadcasts for handlers, once for each handler.
        broadcasts_dropped: Broadcasts for handlers that were dropped.
        broadcast_lag: Waiting times of a sample of broadcasts.
        queue_wait: Times that requests and surveys waited for a handler.
        handling: Times that handlers took to answer.
    """

    __slots__ = (
        "broadcast_lag",
        "broadcasts",
        "broadcasts_dropped",
        "failed",
        "handling",
        "queue_wait",
        "rejected",
        "repeated",
    )

    def __init__(self, totals: Totals) -> None:
        self.failed = 0
        self.rejected: dict[str, int] = {}
        self.repeated = 0
        self.broadcasts = 0
        self.broadcasts_dropped = 0
        self.broadcast_lag = Histogram(totals.broadcast_lag)
        self.queue_wait = Histogram(totals.queue_wait)
        self.handling = Histogram(totals.handling, keeps_newest=True)

    def add(self, other: ServiceCounts) -> None:
        """Add all counts of another set to this one."""
        self.failed += other.failed
        add_to(self.rejected, other.rejected)
        self.repeated += other.repeated
        self.broadcasts += other.broadcasts
        self.broadcasts_dropped += other.broadcasts_dropped
        self.broadcast_lag.add(other.broadcast_lag)
        self.queue_wait.add(other.queue_wait)
        self.handling.add(other.handling)


class SurveyCounts:
    """The counters of a node's surveys of one cluster.

    Attributes:
        asked: Surveys made.
        answered: Received answers.
        missing: Members without an answer.
        cancelled: Surveys cancelled by their callers.
        completion: Times that surveys took.
    """

    __slots__ = ("answered", "asked", "cancelled", "completion", "missing")

    def __init__(self, totals: Totals) -> None:
        self.asked = 0
        self.answered = 0
        self.missing = 0
        self.cancelled = 0
        self.completion = Histogram(totals.survey)

    def add(self, other: SurveyCounts) -> None:
        """Add all counts of another set to this one."""
        self.asked += other.asked
        self.answered += other.answered
        self.missing += other.missing
        self.cancelled += other.cancelled
        self.completion.add(other.completion)


class GroupCounts:
    """The counters of one name at a node: of a cluster, or of the topics with one first token.

    Args:
        totals: The totals to add durations to.

    Attributes:
        groups: The number of groups with this name, equal to the generations of the secret.
        sent: Requests made.
        retries: Times that a request was sent to another member.
        cancelled: Requests cancelled by their callers.
        errors: Requests that failed, by the class of the error.
        unopened: Tunnels that could not be opened, by the class of the error.
        round_trip: Times from sending a request to a member until its reply.
        broadcasts: Broadcasts sent.
        service: The served requests; None before the node is a member.
        surveys: Surveys made; None before the first.
        runs: Batches of messages published.
        published: Messages published.
        received: Messages received by a subscription.
        gaps: Missing messages.
        pauses_asked: Times that this node paused a publisher.
        pauses_obeyed: Times that a subscriber paused this node.
    """

    __slots__ = (
        "_totals",
        "broadcasts",
        "cancelled",
        "errors",
        "gaps",
        "groups",
        "pauses_asked",
        "pauses_obeyed",
        "published",
        "received",
        "retries",
        "round_trip",
        "runs",
        "sent",
        "service",
        "surveys",
        "unopened",
    )

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self.groups = 0
        self.sent = 0
        self.retries = 0
        self.cancelled = 0
        self.errors: dict[str, int] = {}
        self.unopened: dict[str, int] = {}
        self.round_trip = Histogram(totals.round_trip)
        self.broadcasts = 0
        self.service: ServiceCounts | None = None
        self.surveys: SurveyCounts | None = None
        self.runs = 0
        self.published = 0
        self.received = 0
        self.gaps = 0
        self.pauses_asked = 0
        self.pauses_obeyed = 0

    def serving(self) -> ServiceCounts:
        """Return the counters of served requests; create them at the first use."""
        if self.service is None:
            self.service = ServiceCounts(self._totals)
        return self.service

    def surveying(self) -> SurveyCounts:
        """Return the counters of surveys; create them at the first use."""
        if self.surveys is None:
            self.surveys = SurveyCounts(self._totals)
        return self.surveys

    def add(self, other: GroupCounts) -> None:
        """Add all counts of another set to this one."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        add_to(self.errors, other.errors)
        add_to(self.unopened, other.unopened)
        self.round_trip.add(other.round_trip)
        if other.service is not None:
            self.serving().add(other.service)
        if other.surveys is not None:
            self.surveying().add(other.surveys)


_NUMBERS: Final = (
    *("sent", "retries", "cancelled", "broadcasts"),
    *("runs", "published", "received", "gaps", "pauses_asked", "pauses_obeyed"),
)


class CountTable:
    """The counters of all clusters, or of all first tokens of topics, of a node. Forgotten names share one sum.

    Attributes:
        by_name: The counters of names in use.
        forgotten: The sum over forgotten names.
        has_forgotten: Whether any name was forgotten.
        totals: The durations over all names.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.by_name: dict[str, GroupCounts] = {}
        self.forgotten = GroupCounts(self.totals)
        self.has_forgotten = False

    def sent(self) -> int:
        """Return the number of requests made, under all names."""
        return self.forgotten.sent + sum([counts.sent for counts in self.by_name.values()])

    def unopened(self) -> dict[str, int]:
        """Return the number of tunnels that could not be opened, by the class of the error, under all names."""
        sums = self.forgotten.unopened.copy()
        for counts in self.by_name.values():
            if counts.unopened:
                add_to(sums, counts.unopened)
        return sums

    def use(self, name: str) -> GroupCounts:
        """Return the counters of a name for a new group of this name; create missing ones."""
        if name == OTHER:
            self.has_forgotten = True
            return self.forgotten
        counts = self.by_name.get(name)
        if counts is None:
            counts = self.by_name[name] = GroupCounts(self.totals)
        counts.groups += 1
        return counts

    def release(self, name: str) -> None:
        """Handle the end of a group. With the last group of a name, move the counters of the name to the forgotten ones."""
        if name == OTHER:
            return
        counts = self.by_name[name]
        counts.groups -= 1
        if not counts.groups:
            del self.by_name[name]
            self.forgotten.add(counts)
            self.has_forgotten = True


#: First tokens of topics with counters of their own; further ones share one set. Too small: the counts of a program's topics
#: are in one sum; too large: memory, of some 1 KiB each, in a program that invents names.
TOKENS_MAX: Final = 1024


class BoundedCounts:
    """The counters of a table by the first token of a topic. Beyond ``TOKENS_MAX``, all further tokens share a sum."""

    def __init__(self, table: CountTable) -> None:
        self._table = table

    def of(self, token: str) -> GroupCounts:
        """Return the counters of the topics that begin with a token; create missing ones."""
        by_name = self._table.by_name
        counts = by_name.get(token)
        if counts is None:
            counts = self._table.use(token if len(by_name) < TOKENS_MAX else OTHER)
        return counts

    def total(self) -> GroupCounts:
        """Return the shared counters, for events without a known topic."""
        return self._table.use(OTHER)


def add_to(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add each count to the sum of the same name."""
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


def count_in(counts: dict[str, int], name: str, times: int = 1) -> None:
    """Add to the count under a name in a table."""
    counts[name] = counts.get(name, 0) + times
