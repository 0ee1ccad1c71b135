"""The lines of `iris bench ... --json`. Durations are in seconds; None stands for an unavailable measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.bench.plan import BenchMachine  # noqa: TC001 - msgspec reads the annotations
from iris_py.json_lines import Line

if TYPE_CHECKING:
    from iris_py.cli.bench.latency_histogram import Durations
    from iris_py.json_lines import Lines

__all__ = [
    "LINES",
    "BenchSummary",
    "IntervalLine",
    "JoinBenchSummary",
    "Percentiles",
    "Receiver",
    "RequestsBenchSummary",
    "Side",
    "TopicsBenchSummary",
    "TunnelsBenchSummary",
    "percentiles_of",
]


class Percentiles(msgspec.Struct, kw_only=True):
    """Statistics of durations. A percentile is at most 1/128 (0.8 %) too large; all other values are exact."""

    count: int
    min_s: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    max_s: float | None = None


class Side(msgspec.Struct, kw_only=True):
    """The processes with one role in a measurement, and their processor time."""

    side: str
    """The role, such as `caller` and `member`."""
    processes: int
    cpu_s: float
    """Sum over all processes."""
    busiest_cpu: float
    """Processors used by the busiest process, which is saturated near 1."""
    cpu_us_per_message: float | None
    """Processor time of the side per message, request, block or join; None without any."""


class Receiver(msgspec.Struct, kw_only=True):
    """A receiver of the measured messages: a process of the benchmark, or a node of the running network (`--against`)."""

    id: str
    """The node id."""
    address: str
    messages: int
    """Requests executed, or blocks or messages received; with `--against` including those of other senders."""
    share: float
    """Fraction of the messages of all receivers."""
    dropped: int = 0
    """Messages that full queues of the receiver's subscriptions dropped."""


class IntervalLine(Line, tag="interval", kw_only=True):
    """The figures of one second of a measurement; the last interval may be shorter or longer."""

    second: int
    """The number of the interval, from 1."""
    seconds: float
    """Length of the interval, in seconds."""
    messages: int
    """Successful operations: replies, deliveries, blocks or joins."""
    messages_per_s: float
    bytes_per_s: float
    """Bytes of payload, in one direction."""
    errors: dict[str, int]
    """Failed operations, by the class of the error."""
    latency: Percentiles
    """Duration of operations; for topics, the lag."""


class BenchSummary(Line, kw_only=True):
    """The fields that the summaries of all `iris bench` commands share."""

    against: str | None
    """The name of `--against`; None for a private network."""
    size: int
    """Bytes of a message's payload."""
    processes: int
    """Number of processes that generated load."""
    rate: float | None
    """Wanted operations per second; None for the maximum possible."""
    seconds: float
    """Duration, without the warm-up."""
    warm_up_s: float
    is_complete: bool
    """Whether the measurement was not ended early."""
    begun: int
    """Operations begun between the end of the warm-up and the end of the measurement."""
    unbegun: int
    """With `--rate`: operations that were due and never begun."""
    errors: dict[str, int]
    """Failed operations, by the class of the error."""
    messages_per_s: float
    bytes_per_s: float
    """Bytes of payload, in one direction."""
    lateness: Percentiles | None
    """With `--rate`: delay of operations behind their intended start, included in their durations."""
    sides: list[Side]
    receivers: list[Receiver]
    """The receivers and the messages of each; with `--against` only the receivers that reported."""
    machine: BenchMachine
    warnings: list[str]
    """Reasons for caution about the figures."""


class RequestsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The results of `iris bench requests`."""

    concurrency: int
    """Maximum number of requests in flight."""
    members: int | None
    """Number of member processes; with `--against` the known members."""
    reply_size: float | None
    """Mean bytes of a reply's payload; None without replies."""
    replies: int
    round_trip: Percentiles
    """Time from the start of a request, or with `--rate` its intended start, to its reply."""


class TopicsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The results of `iris bench topics`."""

    subscribers: int | None
    """Number of subscriber processes; with `--against` the number of nodes that each message was sent to."""
    policy: str | None
    """The overflow policy of the subscriptions; None with `--against`."""
    published: int
    published_per_s: float
    delivered: int | None
    """Messages received by subscribers, in total; None with `--against`."""
    dropped: int | None
    """Messages dropped by full subscriptions, including some of the warm-up."""
    gaps: int | None
    """Messages that subscribers missed, by the numbers that publishers give to messages; includes dropped messages."""
    missing: int | None
    """Messages sent and not received: dropped or lost. None if unknown."""
    publishing: Percentiles
    """Duration of calls of `publish()`, which wait while a subscriber is full."""
    lag: Percentiles | None
    """Time from publication, or with `--rate` its intended time, to reception by a subscriber."""
    without_lag: str
    """The reason for a missing lag; empty otherwise."""


class TunnelsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The results of `iris bench tunnels`."""

    tunnels: int
    """Number of open tunnels."""
    members: int | None
    blocks: int
    sending: Percentiles
    """Duration of sending a block, which waits for credit."""
    waits: int
    """Blocks that waited for credit, because the receiver had not read enough of earlier blocks."""


class JoinBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The results of `iris bench join`."""

    concurrency: int
    members: int | None
    joins: int
    joining: Percentiles
    """Time from `connect()` to the reply to the first request."""
    connecting: Percentiles
    """Time that `connect()` took."""
    asking: Percentiles
    """Time from `connect()` returning to the reply to the request."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "bench requests": (IntervalLine, RequestsBenchSummary),
    "bench topics": (IntervalLine, TopicsBenchSummary),
    "bench tunnels": (IntervalLine, TunnelsBenchSummary),
    "bench join": (IntervalLine, JoinBenchSummary),
}


def percentiles_of(durations: Durations) -> Percentiles:
    """Return the statistics of durations in seconds."""
    count = durations.count
    if not count:
        return Percentiles(count=0)

    def seconds(duration_ns: float) -> float:
        return round(duration_ns / 1e9, 9)

    return Percentiles(
        count=count,
        min_s=seconds(durations.min_ns),
        mean_s=seconds(durations.sum_ns / count),
        p50_s=seconds(durations.percentile_ns(50)),
        p90_s=seconds(durations.percentile_ns(90)),
        p99_s=seconds(durations.percentile_ns(99)),
        p999_s=seconds(durations.percentile_ns(99.9)),
        max_s=seconds(durations.max_ns),
    )
