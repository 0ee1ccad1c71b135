"""The metrics of a node: their names, labels, meaning, and sources in its statistics.

Prometheus and OpenTelemetry export the same metrics. Names follow Prometheus: base units, and ``_total`` for counters. A label
is never an id, an address or a whole topic.

The number of labels is bounded for any number of names in a network (docs/design.md 16.33). The first name with a label keeps
the label. So the subject of a series never changes, and no counter falls: counts of a name the node has forgotten stay in
its series, and are not counted again under ``_other``.
"""

from __future__ import annotations

import platform
from collections.abc import (
    Hashable,
    Sequence,
)
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from iris_py import __version__
from iris_py.build import commit
from iris_py.observe.counts import OTHER
from iris_py.observe.statistics import LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from iris_py.observe.histogram import HistogramStatistics
    from iris_py.observe.statistics import ClusterStatistics, SecurityStatistics, ServiceStatistics, Statistics, TopicStatistics

__all__ = ["BUCKETS", "Families", "Family", "HistogramValue", "Kind"]

#: Clusters with a series of their own, and as many topics: the first ones used. Too small: important clusters are in
#: ``_other``; too large: each cluster is up to 50 lines of every scrape of every node.
NAMES_MAX: Final = 32
#: Number of reasons with a label of their own, for one metric. Reasons are fixed in the code, so this bounds only mistakes: up
#: to 20 exist. Too small: reasons fall into ``_other``; too large: a mistake fills the scrape.
REASONS_MAX: Final = 24
#: Number of reasons of drops with a label of their own; some 45 exist.
DROPS_MAX: Final = 64

Key = TypeVar("Key", bound=Hashable)


class Labels:
    """Gives labels to a bounded number of names, in the order of first use; further names share the label ``_other``.

    Args:
        names_max: The number of names with a label of their own.
    """

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._names: dict[str, None] = {}

    def __call__(self, name: str) -> str:
        """Return the label of a name: the name itself, or ``_other``."""
        if name in self._names:
            return name
        if name == OTHER or len(self._names) >= self._names_max:
            return OTHER
        self._names[name] = None
        return name


class NamedTotals(Generic[Key]):
    """Adds up counters by label, so that the exported series never fall when the node forgets names.

    Args:
        labels: The labels of the names.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._last: dict[str, Mapping[Key, float]] = {}  # by label: the node's last counters
        self._moved: dict[str, dict[Key, float]] = {}  # by label: counts that the node has moved to OTHER
        self._other: dict[Key, float] = {}

    def take(self, counters: Mapping[str, Mapping[Key, float]]) -> dict[str, dict[Key, float]]:
        """Add a reading of the node's counters; return the series by label.

        Args:
            counters: The node's counters by name; the counters of forgotten names are added up under OTHER.
        """
        taking = self.begin()
        for name, numbers in counters.items():
            taking.add(name, numbers)
        return taking.finish()

    def begin(self) -> Taking[Key]:
        """Begin a reading that takes the counters name by name, because many names at once would take too long."""
        return Taking(self._labels, self._series)

    def _series(self, current: dict[str, Mapping[Key, float]], other: dict[Key, float]) -> dict[str, dict[Key, float]]:
        for label, last in self._last.items():
            now = current.get(label)
            if now is None or any(now.get(key, 0) < value for key, value in last.items()):
                _add(self._moved.setdefault(label, {}), last)  # forgotten, and perhaps used again since
        series = {label: dict(numbers) for label, numbers in current.items()}
        for label, moved in self._moved.items():
            _add(series.setdefault(label, {}), moved)
            for key, value in moved.items():
                if value:
                    other[key] = other.get(key, 0) - value
        self._last = current
        for key, value in self._other.items():  # counts just before a name is forgotten are late, never double
            other[key] = max(other.get(key, 0), value)
        self._other = other
        if other:
            series[OTHER] = other
        return series


class Taking(Generic[Key]):
    """One reading of a node's counters, name by name.

    Args:
        labels: The labels of the names.
        series: Returns the series, from the counters by label and those of all other names together.
    """

    def __init__(
        self,
        labels: Labels,
        series: Callable[[dict[str, Mapping[Key, float]], dict[Key, float]], dict[str, dict[Key, float]]],
    ) -> None:
        self._labels = labels
        self._series = series
        self._current: dict[str, Mapping[Key, float]] = {}
        self._other: dict[Key, float] = {}

    def add(self, name: str, numbers: Mapping[Key, float]) -> None:
        """Add the counters of a name to the reading."""
        label = self._labels(name)
        if label == OTHER:
            _add(self._other, {key: value for key, value in numbers.items() if value})
        else:
            self._current[label] = numbers

    def finish(self) -> dict[str, dict[Key, float]]:
        """End the reading; return the series by label."""
        return self._series(self._current, self._other)


def _add(sums: dict[Key, float], numbers: Mapping[Key, float]) -> None:
    get = sums.get
    for key, value in numbers.items():
        sums[key] = get(key, 0) + value  # also if 0: an exported series does not vanish


#: The exported buckets, by their number in :mod:`iris_py.observe.histogram`: up to 0.13, 1, 4, 16, 66 and 262 ms, 1 and 4.2 s.
#: Too few: an alert cannot tell good from bad; too many: each is a line of every scrape for each cluster.
BUCKETS: Final = (7, 10, 12, 14, 16, 18, 20, 22)

#: The label values for the outcomes of requests, by the class of the error; gateways use the same words (docs/federation.md).
#: Other errors are ``other``.
OUTCOMES: Final = {
    "CloudUnavailable": "unavailable",
    "MemberLost": "member_lost",
    "NoMembers": "no_members",
    "NotConnected": "not_connected",
    "NotExported": "not_exported",
    "Overloaded": "overloaded",
    "RemoteError": "remote_error",
    "RequestTimeout": "timeout",
    "TooManyMembersLost": "member_lost",
}

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]
LabelValues: TypeAlias = "tuple[str, ...]"
#: The key of a counter of a cluster or topic: a name, ``("outcome", X)``, or for a histogram its name with a bucket's number or
#: ``_SUM``.
_Key: TypeAlias = "str | tuple[str, str | int]"


class HistogramValue(NamedTuple):
    """The value of a histogram in one series."""

    counts: tuple[float, ...]
    """For each of ``BUCKETS`` the number of durations up to the bucket's upper bound, and the total number."""
    sum_s: float
    """The sum of all durations in seconds."""


class Family(NamedTuple):
    """A metric of a node with its series, for Prometheus and OpenTelemetry."""

    name: str
    """The name."""
    kind: Kind
    """The kind."""
    help: str
    """Its meaning, one sentence."""
    labels: tuple[str, ...]
    """The names of its labels."""
    samples: Sequence[tuple[LabelValues, float | HistogramValue]]
    """The label values and the value of each series."""


class Families:
    """Converts the statistics of one node to metrics, at each scrape, and remembers which names have labels.

    Args:
        name: The label of the node; empty for none.
    """

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._cluster_labels = Labels(NAMES_MAX)
        self._topic_labels = Labels(NAMES_MAX)
        self._clusters: NamedTotals[_Key] = NamedTotals(self._cluster_labels)
        self._topics: NamedTotals[_Key] = NamedTotals(self._topic_labels)
        self._reasons: dict[str, Labels] = {}

    def collect(self, statistics: Statistics) -> Iterator[Family]:
        """Yield the metrics singly; the caller may pause in between.

        Args:
            statistics: The present statistics of the node.
        """
        yield _one(
            "iris_build_info",
            "Versions of Iris and of Python, and the commit of Iris if known; always 1.",
            1,
            version=__version__,
            commit=commit(),
            python=_PYTHON,
        )
        text = "The name of this node, a label; always 1."
        yield Family("iris_node_info", "gauge", text, ("name",), [((self._name,), 1.0)])
        # Many names take a while. A caller that pauses after each metric should also pause meanwhile: so some names are taken
        # with each metric of the node itself.
        taking, tokens = self._clusters.begin(), dict[str, dict[_Key, float]]()
        cluster_names, topic_names = (_in_parts(names, _OF_NODE) for names in (statistics.clusters, statistics.topics))
        for family, of_clusters, of_topics in zip(self._of_node(statistics), cluster_names, topic_names, strict=True):
            for name in of_clusters:
                taking.add(name, _cluster_counters(statistics.clusters[name]))
            for name in of_topics:
                _add_topic(tokens.setdefault(name.partition(".")[0], {}), statistics.topics[name])
            yield family
        clusters = taking.finish()
        yield _outcomes(clusters)
        for name, text, key in _CLUSTER_COUNTERS:
            yield _by_name("cluster", clusters, key, name, text)
        for name, text, key in _CLUSTER_HISTOGRAMS:
            yield _histograms_by_cluster(clusters, key, name, text)
        for name, text, read in _CLUSTER_GAUGES:
            yield self._cluster_gauge(statistics.clusters, name, text, read)
        topics = self._topics.take(tokens)
        for name, text, key in _TOPIC_COUNTERS:
            yield _by_name("topic", topics, key, name, text)
        for name, text, what, keys in _SUMS:
            sums = [((label,), sum(numbers.get(key, 0.0) for numbers in clusters.values())) for label, key in keys]
            yield Family(name, "counter", text, (what,), sums)

    def _of_node(self, statistics: Statistics) -> Iterator[Family]:
        """Yield the ``_OF_NODE`` metrics that concern no single cluster or topic."""
        for name, text, number in _COUNTERS:
            yield Family(name, "counter", text, (), [((), number(statistics))])
        for name, text, what, reasons in _COUNTERS_BY_REASON:
            yield self._by_reason("counter", name, text, what, reasons(statistics))
        for name, text, number in _GAUGES:
            yield Family(name, "gauge", text, (), [((), number(statistics))])
        for name, text, what, numbers in _GAUGES_BY_NAME:
            yield self._by_reason("gauge", name, text, what, numbers(statistics))
        for name, text, histogram in _HISTOGRAMS:
            yield Family(name, "histogram", text, (), [((), _histogram(histogram(statistics)))])

    def _cluster_gauge(
        self, clusters: Mapping[str, ClusterStatistics], name: str, text: str, read: Callable[[ClusterStatistics], float | None]
    ) -> Family:
        sums: dict[str, float] = {}
        for cluster, each in clusters.items():
            value = read(each)
            if value is not None:
                label = self._cluster_labels(cluster)
                sums[label] = sums.get(label, 0) + value
        return Family(name, "gauge", text, ("cluster",), [((label,), value) for label, value in sums.items()])

    def _by_reason(self, kind: Kind, name: str, text: str, what: str, numbers: Mapping[str, float]) -> Family:
        labels = self._reasons.setdefault(name, Labels(DROPS_MAX if name == "iris_dropped_total" else REASONS_MAX))
        sums: dict[str, float] = {}
        for reason, value in numbers.items():
            label = labels(reason)
            sums[label] = sums.get(label, 0) + value
        return Family(name, kind, text, (what,), [((label,), value) for label, value in sums.items()])


def _one(name: str, text: str, value: float, **labels: str) -> Family:
    return Family(name, "gauge", text, tuple(labels), [(tuple(labels.values()), value)])


def _by_name(what: str, series: Mapping[str, Mapping[_Key, float]], key: str, name: str, text: str) -> Family:
    return Family(name, "counter", text, (what,), [((label,), numbers.get(key, 0)) for label, numbers in series.items()])


def _outcomes(clusters: Mapping[str, Mapping[_Key, float]]) -> Family:
    samples = [
        ((label, key[1]), value)
        for label, numbers in clusters.items()
        for key, value in numbers.items()
        if type(key) is tuple and key[0] == "outcome" and type(key[1]) is str
    ]
    return Family("iris_requests_total", "counter", "Finished requests of this node.", ("cluster", "outcome"), samples)


def _histograms_by_cluster(clusters: Mapping[str, Mapping[_Key, float]], key: str, name: str, text: str) -> Family:
    samples = []
    for label, numbers in clusters.items():
        if (key, _SUM) in numbers:
            counts = tuple(numbers.get(each, 0.0) for each in _KEYS[key])
            samples.append(((label,), HistogramValue(counts, numbers[key, _SUM])))
    return Family(name, "histogram", text, ("cluster",), samples)


def _cluster_counters(cluster: ClusterStatistics) -> dict[_Key, float]:
    """Return all counters of a cluster in a flat map, for addition and subtraction."""
    requests, service, broadcasts, surveys = cluster.requests, cluster.service, cluster.broadcasts, cluster.surveys
    numbers: dict[_Key, float] = {
        "retries": requests.retries,
        "broadcasts_sent": broadcasts.sent,
        "broadcasts_received": broadcasts.received,
        "broadcasts_dropped": broadcasts.dropped,
        "surveys": surveys.asked,
        "answered": surveys.answered,
        "missing": surveys.missing,
        ("outcome", "done"): requests.replied,
    }
    for error, count in requests.errors.items():
        outcome = ("outcome", OUTCOMES.get(error, "other"))
        numbers[outcome] = numbers.get(outcome, 0) + count
    _add_histogram(numbers, "round_trip", requests.round_trip)
    if service is not None:
        numbers |= {"executed": service.executed, "failed": service.failed}
        _add_histogram(numbers, "handling", service.handling)
    return numbers


def _add_histogram(numbers: dict[_Key, float], name: str, histogram: HistogramStatistics) -> None:
    if histogram.counts:
        shown = _histogram(histogram)
        numbers[name, _SUM] = shown.sum_s
        numbers.update(zip(_KEYS[name], shown.counts, strict=True))


def _add_topic(numbers: dict[_Key, float], topic: TopicStatistics) -> None:
    """Add the counters of topics to ``numbers``, which belong to their first token."""
    for key in ("published", "received", "gaps"):
        numbers[key] = numbers.get(key, 0) + getattr(topic, key)


def _in_parts(names: Iterable[str], count: int) -> Iterator[list[str]]:
    """Split names into ``count`` parts, of which the last may be empty."""
    every = list(names)
    size = -(-len(every) // count)
    return (every[number * size : (number + 1) * size] for number in range(count))


def _histogram(histogram: HistogramStatistics) -> HistogramValue:
    sums = list(accumulate(histogram.counts))
    if not sums:
        return _EMPTY
    last, shown = sums[-1], len(sums)
    return HistogramValue((*[sums[bucket] if bucket < shown else last for bucket in BUCKETS], last), histogram.sum_s)


def _served(read: Callable[[ServiceStatistics], float]) -> Callable[[ClusterStatistics], float | None]:
    return lambda each: None if each.service is None else read(each.service)


def _generations(security: SecurityStatistics) -> dict[str, float]:
    return {**dict.fromkeys(security.accepted, 0), **({security.primary: 1} if security.primary else {})}


def _oldest_s(statistics: Statistics) -> float:
    return max((each.oldest_s for each in statistics.subscriptions), default=0.0)


_PYTHON: Final = platform.python_version()
_SUM: Final = "sum"
_EMPTY: Final = HistogramValue((0.0,) * (len(BUCKETS) + 1), 0.0)

_KEYS: Final = {name: tuple((name, index) for index in range(len(BUCKETS) + 1)) for name in ("round_trip", "handling")}

_CLUSTER_COUNTERS: Final = (
    ("iris_request_retries_total", "Times that a request was sent to another member.", "retries"),
    ("iris_handled_total", "Requests and surveys passed to handlers of this node.", "executed"),
    ("iris_handler_failures_total", "Requests and surveys whose handler raised.", "failed"),
)
_CLUSTER_HISTOGRAMS: Final = (
    ("iris_request_seconds", "Seconds from sending a request to a member until its reply.", "round_trip"),
    ("iris_handler_seconds", "Seconds that handlers of this node took to answer.", "handling"),
)
_CLUSTER_GAUGES: Final[tuple[tuple[str, str, Callable[[ClusterStatistics], float | None]], ...]] = (
    ("iris_cluster_members", "Members of the cluster, as known to this node.", lambda each: each.members),
    ("iris_requests_in_flight", "Requests of this node at members now.", lambda each: each.requests.in_flight),
    (
        "iris_requests_waiting",
        "Requests of this node that wait now for a member, a link or a place.",
        lambda each: each.requests.waiting,
    ),
    ("iris_handlers_running", "Running handlers of this node.", _served(lambda service: service.running)),
    (
        "iris_handlers_limit",
        "The largest number of running handlers of this node.",
        _served(lambda service: service.concurrency),
    ),
    (
        "iris_queue_messages",
        "Requests that wait now for a handler of this node.",
        _served(lambda service: service.queued_messages),
    ),
    (
        "iris_queue_limit_messages",
        "The largest number of waiting requests; beyond it callers get Overloaded.",
        _served(lambda service: service.queue_messages),
    ),
)
_TOPIC_COUNTERS: Final = (
    ("iris_published_total", "Messages that this node published, by the first token of the topic.", "published"),
    ("iris_received_total", "Messages received by subscriptions of this node, by the first token.", "received"),
    ("iris_gaps_total", "Messages that subscriptions of this node missed, by the first token.", "gaps"),
)
_SUMS: Final[tuple[tuple[str, str, str, tuple[tuple[str, _Key], ...]], ...]] = (
    (
        "iris_broadcasts_total",
        "Broadcasts that this node sent, received for its handlers, and dropped.",
        "outcome",
        (("sent", "broadcasts_sent"), ("received", "broadcasts_received"), ("dropped", "broadcasts_dropped")),
    ),
    (
        "iris_survey_answers_total",
        "Answers to surveys of this node, and members without an answer.",
        "outcome",
        (("answered", "answered"), ("missing", "missing")),
    ),
)
_Number: TypeAlias = "Callable[[Statistics], float]"
_COUNTERS: Final[tuple[tuple[str, str, _Number], ...]] = (
    ("iris_requests_hedged_total", "Requests that were also sent to a second member.", lambda node: node.hedged),
    ("iris_requests_recalled_total", "Requests that slow members gave back for other members.", lambda node: node.recalled),
    ("iris_repeated_total", "Repeated requests, which this node had executed or was executing.", lambda node: node.repeated),
    ("iris_tunnels_opened_total", "Tunnels that this node opened.", lambda node: node.tunnels.opened),
    ("iris_tunnels_served_total", "Tunnels passed to handlers of this node.", lambda node: node.tunnels.served),
    ("iris_links_opened_total", "Opened links, dialled by either side.", lambda node: node.links.opened),
    ("iris_dials_total", "Connections that this node made.", lambda node: node.links.dialled),
    ("iris_dials_failed_total", "Failed dials.", lambda node: node.links.dials_failed),
    ("iris_link_rekeys_total", "Times that the key of one direction of a link was replaced.", lambda node: node.links.rekeys),
    (
        "iris_link_retransmissions_total",
        "TCP segments sent again on links; 0 if the system does not provide it (Linux does).",
        lambda node: node.links.retransmissions,
    ),
    ("iris_loop_stalls_total", "Times that the event loop stood still for more than 100 ms.", lambda node: node.process.stalls),
    (
        "iris_log_lines_suppressed_total",
        "Suppressed log lines, after ten of the same event and object in a minute.",
        lambda node: node.process.log_lines_suppressed,
    ),
    ("iris_process_cpu_seconds_total", "Seconds of processor time, of user and system.", lambda node: node.process.cpu_s),
)
_COUNTERS_BY_REASON: Final[tuple[tuple[str, str, str, Callable[[Statistics], Mapping[str, float]]], ...]] = (
    ("iris_dropped_total", "Messages that this node dropped.", "reason", lambda node: node.drops),
    (
        "iris_shared_given_total",
        "Messages that this node gave to members of groups of subscribers.",
        "group",
        lambda node: {name: share.given for name, share in node.shares.items()},
    ),
    (
        "iris_shared_lost_total",
        "Messages that members of groups of subscribers had not taken when they were lost; an upper bound.",
        "group",
        lambda node: {name: share.lost for name, share in node.shares.items()},
    ),
    ("iris_rejected_total", "Requests that this node refused to execute.", "reason", lambda node: node.rejected),
    ("iris_tunnels_broken_total", "Tunnels that broke.", "reason", lambda node: node.tunnels.broken),
    ("iris_links_closed_total", "Links that ended after the handshake.", "reason", lambda node: node.links.closed),
    (
        "iris_link_bytes_total",
        "Bytes on links, with all headers.",
        "direction",
        lambda node: {"sent": node.links.sent_bytes, "received": node.links.received_bytes},
    ),
    (
        "iris_link_records_total",
        "Records on links; a record is one write.",
        "direction",
        lambda node: {"sent": node.links.sent_records, "received": node.links.received_records},
    ),
    (
        "iris_questions_total",
        "Questions of other nodes about this one, answered or refused.",
        "outcome",
        lambda node: {"answered": node.questions.answered, "busy": 0, "closed": 0, **node.questions.refused},
    ),
    (
        "iris_refused_total",
        "Packets, datagrams and connections that were forged, of another network, or replayed.",
        "reason",
        lambda node: {
            "unauthentic": node.security.unauthentic,
            "replayed": node.security.replayed,
            "malformed": node.security.malformed,
            "datagram": node.security.datagrams,
            "handshake": node.security.handshakes_refused,
        },
    ),
    (
        "iris_directory_events_total",
        "Messages that the directories of groups dropped or abandoned.",
        "event",
        lambda node: node.overlay.directories,
    ),
    (
        "iris_ring_events_total",
        "Messages that the ring dropped, relayed or sent again.",
        "event",
        lambda node: node.overlay.ring,
    ),
    (
        "iris_detector_events_total",
        "Probes, suspicions and deaths of the failure detector.",
        "event",
        lambda node: node.overlay.detector,
    ),
)
_GAUGES: Final[tuple[tuple[str, str, _Number], ...]] = (
    ("iris_uptime_seconds", "Seconds since the start of the node.", lambda node: node.uptime_s),
    (
        "iris_network_nodes",
        "Estimated number of nodes of the network, including this one.",
        lambda node: node.overlay.size_estimate,
    ),
    ("iris_ring_active", "1 if the node has its place in the ring.", lambda node: int(node.overlay.is_active)),
    ("iris_roots", "Groups whose directory is on this node.", lambda node: node.overlay.roots),
    ("iris_root_members", "Members in the directories on this node.", lambda node: node.overlay.members_kept),
    ("iris_subscriptions", "Subscriptions of this node.", lambda node: len(node.subscriptions)),
    (
        "iris_subscription_queue_messages",
        "Waiting messages in the subscriptions of this node.",
        lambda node: sum(each.queued_messages for each in node.subscriptions),
    ),
    ("iris_subscription_oldest_seconds", "Waiting time of the oldest message in a subscription, in seconds.", _oldest_s),
    (
        "iris_flow_nodes_absent",
        "Dead or cut off nodes whose publications are counted for their return.",
        lambda node: node.interest.absent_nodes,
    ),
    (
        "iris_publications_held",
        "Publications that wait until this node knows their receivers.",
        lambda node: node.interest.held_messages,
    ),
    (
        "iris_publications_held_bytes",
        "Bytes of the publications that wait until this node knows their receivers.",
        lambda node: node.interest.held_bytes,
    ),
    (
        "iris_peers_other_topics",
        "Linked nodes with topics of another version: publications do not pass between them and this node.",
        lambda node: node.interest.other_versions,
    ),
    ("iris_tunnels_open", "Open tunnels.", lambda node: node.tunnels.open),
    ("iris_links", "Open links.", lambda node: node.links.open),
    ("iris_links_congested", "Links above their high watermark, so senders wait.", lambda node: node.links.congested),
    (
        "iris_peers_through_ring",
        "Peers reached through the ring, because no link to them can be opened.",
        lambda node: node.links.through_ring,
    ),
    ("iris_key_generations", "Accepted generations of the network's secret.", lambda node: node.security.generations),
    (
        "iris_loop_lateness_seconds",
        "The largest lateness of the event loop within the last minute.",
        lambda node: node.process.loop_lateness_s,
    ),
    (
        "iris_process_resident_bytes",
        "Resident memory of the process; 0 if the system does not provide it.",
        lambda node: node.process.resident_bytes,
    ),
    ("iris_process_descriptors", "Open file descriptors.", lambda node: node.process.descriptors),
    ("iris_process_descriptors_limit", "The limit of open file descriptors.", lambda node: node.process.descriptors_max),
    ("iris_process_threads", "Threads of the process.", lambda node: node.process.threads),
)
_GAUGES_BY_NAME: Final[tuple[tuple[str, str, str, Callable[[Statistics], Mapping[str, float]]], ...]] = (
    (
        "iris_link_queue_bytes",
        "Bytes that wait for links.",
        "lane",
        lambda node: {**dict.fromkeys(LANES, 0), **node.links.queued_by_lane},
    ),
    (
        "iris_shared_outstanding",
        "Messages that this node gave to members of groups of subscribers, and that they have not taken.",
        "group",
        lambda node: {name: share.outstanding for name, share in node.shares.items()},
    ),
    (
        "iris_key_generation_seals",
        "The generations of the network's secret, by public id: 1 for the sealing generation, 0 for the others.",
        "generation",
        lambda node: _generations(node.security),
    ),
    ("iris_table_entries", "Entries of each table of the ring.", "table", lambda node: node.overlay.tables),
    (
        "iris_interest_tables",
        "Tables of subscriptions that this node watches as a publisher, and those that it keeps for others as the root.",
        "table",
        lambda node: {"watched": node.interest.watched_tables, "root": node.interest.root_tables},
    ),
    (
        "iris_interest_nodes",
        "Nodes with subscriptions in the table that this node watches, and in the tables that it keeps.",
        "table",
        lambda node: {"watched": node.interest.watched_nodes, "root": node.interest.root_nodes},
    ),
    (
        "iris_interest_entries",
        "Patterns of this node, of all other nodes in the watched table, and of all nodes in the tables kept here.",
        "table",
        lambda node: {
            "own": node.interest.entries,
            "watched": node.interest.watched_entries,
            "root": node.interest.root_entries,
        },
    ),
    (
        "iris_interest_promoted",
        "Promoted patterns, whose messages go by multicast: of this node, in the watched table, in the tables kept here.",
        "table",
        lambda node: {
            "own": node.interest.promoted,
            "watched": node.interest.watched_promoted,
            "root": node.interest.root_promoted,
        },
    ),
    (
        "iris_flows",
        "Nodes whose messages from this publisher are counted, and publishers whose messages to this node are.",
        "direction",
        lambda node: {"sent": node.interest.flows, "received": node.interest.publishers},
    ),
)
_HISTOGRAMS: Final[tuple[tuple[str, str, Callable[[Statistics], HistogramStatistics]], ...]] = (
    (
        "iris_queue_wait_seconds",
        "Seconds that requests waited on this node for a handler.",
        lambda node: node.histograms.queue_wait,
    ),
    ("iris_survey_seconds", "Seconds until surveys of this node ended.", lambda node: node.histograms.survey),
    (
        "iris_delivery_lag_seconds",
        "Seconds that messages waited in subscriptions; the last message of simultaneous arrivals is measured.",
        lambda node: node.histograms.lag,
    ),
    (
        "iris_broadcast_lag_seconds",
        "Seconds that broadcasts waited for a handler of this node; one at a time is measured.",
        lambda node: node.histograms.broadcast_lag,
    ),
    ("iris_tunnel_opening_seconds", "Seconds that opening a tunnel took.", lambda node: node.histograms.tunnel_opening),
    (
        "iris_link_ping_seconds",
        "Seconds from a ping over a link until its answer.",
        lambda node: node.histograms.ping,
    ),
    (
        "iris_probe_seconds",
        "Seconds from a probe of the failure detector until its answer.",
        lambda node: node.histograms.probe,
    ),
)
_OF_NODE: Final = len(_COUNTERS) + len(_COUNTERS_BY_REASON) + len(_GAUGES) + len(_GAUGES_BY_NAME) + len(_HISTOGRAMS)
