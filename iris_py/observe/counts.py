"""The counters of a node while it works: one set for each name that it uses, and those of its requests and tunnels together.

Nothing here is behind a lock or a call in the hot paths: whoever has the object in hand adds to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.observe.histogram import Histogram
from iris_py.observe.statistics import OTHER

if TYPE_CHECKING:
    from collections.abc import Mapping


class Totals:
    """Durations of one node, in all clusters.

    Attributes:
        round_trip: How long members took to reply; all that were replied to are in it.
        queue_wait: How long requests and surveys waited until a handler was given them: all that handlers were given are in it.
        handling: How long handlers took to answer.
        survey: How long surveys took.
        broadcast_lag: How long broadcasts waited for their handler.
    """

    __slots__ = ("broadcast_lag", "handling", "queue_wait", "round_trip", "survey")

    def __init__(self) -> None:
        self.round_trip = Histogram()
        self.queue_wait = Histogram()
        self.handling = Histogram()
        self.survey = Histogram()
        self.broadcast_lag = Histogram()


#: Clusters of other clouds that are counted by name. Too small: the one that fails is hidden in the sum of the others; too
#: large: memory, of some 1 KiB each, in a program that makes up names.
FAR_NAMES_MAX: Final = 512


class FarCounts:
    """Requests that one node has made to one cluster of another cloud.

    Attributes:
        sent: Requests made.
        retries: Times that a gateway was asked again.
        cancelled: Requests that their caller gave up.
        errors: Requests that ended with an error, by its class.
        unopened: Tunnels that could not be opened, by the class of the error.
        round_trip: How long callers waited for a reply; each reply is in it.
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
    """The counters of each cluster of another cloud that a node asks; beyond ``FAR_NAMES_MAX`` names in one sum."""

    def __init__(self) -> None:
        self._by_name: dict[str, FarCounts] = {}

    def of(self, cluster: str) -> FarCounts:
        """Return the counters of a cluster, made when it is asked for the first time.

        Args:
            cluster: The name with the alias of the cloud.
        """
        counts = self._by_name.get(cluster)
        if counts is None:
            name = cluster if len(self._by_name) < FAR_NAMES_MAX else OTHER
            counts = self._by_name.setdefault(name, FarCounts())
        return counts

    def all(self) -> Mapping[str, FarCounts]:
        """Return all counters, by name."""
        return self._by_name


class RequesterCounts:
    """Requests and openings of tunnels, of one node in all clusters.

    Attributes:
        failed: Requests that ended because a handler failed.
        retries: Times that a request was given to another member.
        hedged: Times that an idempotent request was given to a second member, for the first had not answered yet.
        late: Replies that came after their request had ended.
        openings: How long members took to accept a tunnel.
        far: Requests to other clouds, which their gateways carry.
    """

    __slots__ = ("failed", "far", "hedged", "late", "openings", "retries")

    def __init__(self) -> None:
        self.failed = 0
        self.retries = 0
        self.hedged = 0
        self.late = 0
        self.openings = Histogram()
        self.far = FarTable()


class ServiceCounts:
    """Requests that one node has served in one cluster.

    Attributes:
        failed: Requests and surveys whose handler raised.
        rejected: Those that were refused, by reason; tunnels, too.
        repeated: Idempotent requests that no handler was given.
        broadcasts: Broadcasts that handlers were to be given, each once.
        broadcasts_dropped: Those of them that were dropped.
        broadcast_lag: How long some of them waited for their handler.
        queue_wait: How long each waited until a handler was given it: all that handlers were given are in it.
        handling: How long handlers took to answer.
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
        """Count everything that another one has."""
        self.failed += other.failed
        add_to(self.rejected, other.rejected)
        self.repeated += other.repeated
        self.broadcasts += other.broadcasts
        self.broadcasts_dropped += other.broadcasts_dropped
        self.broadcast_lag.add(other.broadcast_lag)
        self.queue_wait.add(other.queue_wait)
        self.handling.add(other.handling)


class SurveyCounts:
    """Surveys that one node has made in one cluster.

    Attributes:
        asked: Surveys made.
        answered: Answers that came.
        missing: Members that were asked and did not answer.
        cancelled: Surveys that their caller gave up.
        completion: How long surveys took.
    """

    __slots__ = ("answered", "asked", "cancelled", "completion", "missing")

    def __init__(self, totals: Totals) -> None:
        self.asked = 0
        self.answered = 0
        self.missing = 0
        self.cancelled = 0
        self.completion = Histogram(totals.survey)

    def add(self, other: SurveyCounts) -> None:
        """Count everything that another one has."""
        self.asked += other.asked
        self.answered += other.answered
        self.missing += other.missing
        self.cancelled += other.cancelled
        self.completion.add(other.completion)


class GroupCounts:
    """The counters of one name at one node: a cluster, or a prefix of topics.

    Args:
        totals: Where durations are counted, too.

    Attributes:
        groups: How many groups of the node have that name, one for each generation of its secret.
        sent: Requests made.
        retries: Times that one was given to another member.
        cancelled: Requests that their caller gave up.
        errors: Requests that ended with an error, by its class.
        unopened: Tunnels that could not be opened, by the class of the error.
        round_trip: How long members took to reply; all that were replied to are in it.
        broadcasts: Broadcasts sent.
        service: What was served; None before the node is a member.
        surveys: Surveys made; None before the first.
        runs: Runs of messages published.
        published: Messages published.
        received: Messages that a subscription wanted.
        gaps: Messages that did not come.
        pauses_asked: Times that a publisher was asked to wait.
        pauses_obeyed: Times that a subscriber asked this node to wait.
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
        """Return what is served, made when it is first."""
        if self.service is None:
            self.service = ServiceCounts(self._totals)
        return self.service

    def surveying(self) -> SurveyCounts:
        """Return the surveys, made when the first is."""
        if self.surveys is None:
            self.surveys = SurveyCounts(self._totals)
        return self.surveys

    def add(self, other: GroupCounts) -> None:
        """Count everything that another one has."""
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
    """The counters of each name that a node uses: those of forgotten names go on in one sum.

    Attributes:
        by_name: Of names in use.
        forgotten: Of all others together.
        has_forgotten: Whether there are any.
        totals: Durations of all of them.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.by_name: dict[str, GroupCounts] = {}
        self.forgotten = GroupCounts(self.totals)
        self.has_forgotten = False

    def sent(self) -> int:
        """Return the requests made, of all of them."""
        return self.forgotten.sent + sum([counts.sent for counts in self.by_name.values()])

    def unopened(self) -> dict[str, int]:
        """Return the tunnels that could not be opened, by the class of the error, of all of them."""
        sums = self.forgotten.unopened.copy()
        for counts in self.by_name.values():
            if counts.unopened:
                add_to(sums, counts.unopened)
        return sums

    def use(self, name: str) -> GroupCounts:
        """Return the counters of a name that is used by one group more."""
        if name == OTHER:
            self.has_forgotten = True
            return self.forgotten
        counts = self.by_name.get(name)
        if counts is None:
            counts = self.by_name[name] = GroupCounts(self.totals)
        counts.groups += 1
        return counts

    def release(self, name: str) -> None:
        """A group of a name is gone; with the last one the name is forgotten."""
        if name == OTHER:
            return
        counts = self.by_name[name]
        counts.groups -= 1
        if not counts.groups:
            del self.by_name[name]
            self.forgotten.add(counts)
            self.has_forgotten = True


def add_to(sums: dict[str, int], counts: Mapping[str, int]) -> None:
    """Add numbers to others, by name."""
    for name, count in counts.items():
        sums[name] = sums.get(name, 0) + count


def count_in(counts: dict[str, int], name: str, times: int = 1) -> None:
    """Count something in a table, by name."""
    counts[name] = counts.get(name, 0) + times
