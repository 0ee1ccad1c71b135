"""The lines of `iris bench ... --json`. Durations are in seconds; None is what could not be measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.bench.plan import Machine  # noqa: TC001 - msgspec reads the annotations
from iris_py.cli.output import Line

if TYPE_CHECKING:
    from iris_py.cli.bench.percentiles import Durations
    from iris_py.cli.output import Lines

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
    """Durations. A percentile is at most 1/128 (0.8 %) larger than the real one; the others are exact."""

    count: int
    min_s: float | None = None
    mean_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    p99_s: float | None = None
    p999_s: float | None = None
    max_s: float | None = None


class Side(msgspec.Struct, kw_only=True):
    """The processes of one side, and the processor time that they used."""

    side: str
    """Their part, such as `caller` and `member`."""
    processes: int
    cpu_s: float
    """All of them together."""
    busiest_cpu: float
    """Processors that the busiest of them used: near 1, it could do no more."""
    cpu_us_per_message: float | None
    """Processor time of the side for each message, request, block or join; None if there was none."""


class Receiver(msgspec.Struct, kw_only=True):
    """A process, or with `--against` a node, that received something."""

    id: str
    """The id of its node."""
    address: str
    messages: int
    """Requests that it executed, blocks or messages that it was given; with `--against` also of others."""
    share: float
    """Its part of all."""
    dropped: int = 0
    """Messages that its subscriptions have dropped."""


class IntervalLine(Line, tag="interval", kw_only=True):
    """A second of the measurement, or what was left of it."""

    second: int
    """Counts up from 1."""
    seconds: float
    """How long it was."""
    messages: int
    """Operations that ended well in it: replies, deliveries, blocks or joins."""
    messages_per_s: float
    bytes_per_s: float
    """Bytes of payload, one way."""
    errors: dict[str, int]
    """Operations that failed in it, by the class of the error."""
    latency: Percentiles
    """How long each took; of topics, the lag."""


class BenchSummary(Line, kw_only=True):
    """The common part of all ends."""

    against: str | None
    """The name that was asked for in a network that runs; None for a private network."""
    size: int
    """Bytes of the payload of a message."""
    processes: int
    """Processes that made the load."""
    rate: float | None
    """How much was to begin per second; None for as much as went."""
    seconds: float
    """How long it took, without the warm-up."""
    warm_up_s: float
    is_complete: bool
    """Whether nobody ended it early."""
    begun: int
    """Operations that began in that time."""
    unbegun: int
    """With `--rate`: those that nobody came to before the end."""
    errors: dict[str, int]
    """Operations that failed, by the class of the error."""
    messages_per_s: float
    bytes_per_s: float
    """Bytes of payload, one way."""
    lateness: Percentiles | None
    """With `--rate`: how much later than intended operations began. It is a part of their durations."""
    sides: list[Side]
    receivers: list[Receiver]
    """The receivers, and how much each received; with `--against` those that let themselves be asked."""
    machine: Machine
    warnings: list[str]
    """The reasons why the figures say less than they seem to."""


class RequestsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The end of a measurement of requests."""

    concurrency: int
    """Requests that were under way at once, at most."""
    members: int | None
    """Member processes; with `--against` the members that were known."""
    reply_size: float | None
    """Bytes of the payload of a reply, on the average; None if there was none."""
    replies: int
    round_trip: Percentiles
    """From when a request began, or with `--rate` was to begin, until its reply was there."""


class TopicsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The end of a measurement of topics."""

    subscribers: int | None
    """Subscriber processes; with `--against` the nodes that a message was sent to."""
    policy: str | None
    """The policy of the subscriptions when they are full; None with `--against`."""
    published: int
    published_per_s: float
    delivered: int | None
    """Messages that subscribers took, in all; None with `--against`."""
    dropped: int | None
    """Messages that subscriptions dropped, for they were full; also some of the warm-up."""
    gaps: int | None
    """Messages that subscribers saw missing in the numbers of a publisher, those that were dropped among them."""
    missing: int | None
    """Messages that were sent and not taken: dropped, or lost. None where that cannot be told."""
    publishing: Percentiles
    """How long each call of `publish()` took: it waits while a subscriber is full."""
    lag: Percentiles | None
    """From when a message was published, or with `--rate` was to be, until a subscriber took it."""
    without_lag: str
    """The reason why there is no lag; empty if there is."""


class TunnelsBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The end of a measurement of tunnels."""

    tunnels: int
    """Tunnels that were open at once."""
    members: int | None
    blocks: int
    sending: Percentiles
    """How long sending a block took: it waits while the other side has not taken enough."""
    waits: int
    """Blocks that had to wait for credit, because the other side had not taken enough of what was sent before."""


class JoinBenchSummary(BenchSummary, tag="summary", kw_only=True):
    """The end of a measurement of joins."""

    concurrency: int
    members: int | None
    joins: int
    joining: Percentiles
    """From `connect()` until the first request was answered."""
    connecting: Percentiles
    """The part of it until `connect()` had returned."""
    asking: Percentiles
    """The part of it that the request took."""


#: What `--json` prints, by command.
LINES: Final[Lines] = {
    "bench requests": (IntervalLine, RequestsBenchSummary),
    "bench topics": (IntervalLine, TopicsBenchSummary),
    "bench tunnels": (IntervalLine, TunnelsBenchSummary),
    "bench join": (IntervalLine, JoinBenchSummary),
}


def percentiles_of(durations: Durations) -> Percentiles:
    """Return what is told of durations."""
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
