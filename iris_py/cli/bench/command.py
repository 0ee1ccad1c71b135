"""The commands of `iris bench`: their options become a plan, which a :class:`Benchmark` carries out.

* :class:`Joins`: the time from `connect()` until the reply to a new node's first request.
* :class:`RequestsBench`: throughput, latency, and the cost at both sides.
* :class:`TopicsBench`: messages from publishers to subscribers, their delay, and losses.
* :class:`TunnelsBench`: bytes per second, and how often senders wait for credit.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from iris_py.cli.bench.benchmark import Benchmark
from iris_py.cli.bench.measurement import settle
from iris_py.cli.bench.plan import Payload, choose_concurrency, format_size, make_plan, parse_size
from iris_py.cli.bench.report import Fact, describe_percentiles, describe_rate
from iris_py.cli.bench.roles import STAMP
from iris_py.cli.bench.summaries import (
    JoinBenchSummary,
    RequestsBenchSummary,
    TopicsBenchSummary,
    TunnelsBenchSummary,
    percentiles_of,
)
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import TypedDict, Unpack

    import iris_py
    from iris_py.cli.bench.crew import BenchCrew
    from iris_py.cli.bench.measurement import Course
    from iris_py.cli.bench.plan import BenchPlan
    from iris_py.cli.settings import Settings

    class Common(TypedDict):
        """The options of all `iris bench` commands, named as the fields of :class:`~iris_py.cli.bench.plan.BenchPlan`."""

        seconds: float
        warm_up_s: float
        processes: int
        rate: float | None
        timeout_s: float
        as_json: bool
        path: Path | None


__all__ = [
    "Joins",
    "RequestsBench",
    "TopicsBench",
    "TunnelsBench",
    "bench_join",
    "bench_requests",
    "bench_topics",
    "bench_tunnels",
]

SIZE: Final = "1k"
#: Default size of a tunnel's blocks: the usual size of pieces of files.
BLOCK_SIZE: Final = "64k"
JOIN_SIZE: Final = "16"


class TunnelsBench(Benchmark):
    """`iris bench tunnels`: senders send blocks through tunnels, and members receive the blocks."""

    maker = "sender"
    receiver = "member"
    unit = "block"
    counted = ("member", "executed")
    timed = ("sender", "operation")

    def __init__(self, plan: BenchPlan) -> None:
        super().__init__(plan)
        if plan.against is not None:  # of a running network only the sent blocks are known
            self.counted = ("sender", "done")

    def announce(self) -> str:
        """Return the sentence part that announces the load of the tunnels."""
        how = "as fast as members take them" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        blocks = f"blocks of {format_size(len(self.plan.payload))}"
        tunnels = f"{self.plan.concurrency:,} tunnel{'s' * (self.plan.concurrency != 1)}"
        return f"{blocks} through {tunnels} to {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Open and close one tunnel to the cluster; return no complaint."""
        async with node.tunnel(self.target, timeout=self.plan.timeout_s):
            return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> TunnelsBenchSummary:
        """Return the summary of a measurement of tunnels, its last line."""
        return TunnelsBenchSummary(
            tunnels=self.plan.concurrency,
            members=self.plan.receivers if self.onlooker is None else self.onlooker.known or None,
            blocks=course.count("sender", "done", with_rest=True),
            sending=percentiles_of(course.durations("sender", "operation")),
            waits=course.count("sender", "waits", with_rest=True),
            **common,
        )

    def describe(self, summary: TunnelsBenchSummary) -> Sequence[Fact]:
        """Return the figures of tunnels in the summary as rows of text."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} intended)"
        share = f" ({summary.waits / summary.blocks:.2g} a block)" if summary.blocks else ""
        return [
            Fact("rate", f"{describe_rate(summary.messages_per_s, 'block', summary.size)}{rhythm}"),
            Fact("tunnels", f"{summary.tunnels:,}"),
            Fact("send()", describe_percentiles(summary.sending)),
            Fact("credit waits", f"{summary.waits:,}{share}"),
        ]


#: The reason why a measurement with `--against` has no lag.
NO_LAG: Final = "messages carry the time of this machine's clock, which subscribers on other machines neither read nor share"


class TopicsBench(Benchmark):
    """`iris bench topics`: publishers publish, and subscribers receive."""

    maker = "publisher"
    receiver = "subscriber"
    unit = "message"
    counted = ("subscriber", "delivered")
    timed = ("subscriber", "lag")

    def __init__(self, plan: BenchPlan) -> None:
        super().__init__(plan)
        if plan.against is not None:  # of a running network only the published messages are known during the measurement
            self.counted, self.timed = ("publisher", "done"), ("publisher", "operation")

    def announce(self) -> str:
        """Return the sentence part that announces the load of the publications."""
        how = "as fast as subscribers take them" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"messages of {format_size(len(self.plan.payload))} to the topic {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Publish one message; return a complaint if no node received it."""
        if await node.publish(self.target, self.plan.payload):
            return ""
        return (
            f"nobody subscribes to {self.target!r} in the network {self.plan.network!r}, so nothing can be received. Start a "
            f"subscriber with `iris subscribe {shlex.quote(self.target)}`, or leave --against out."
        )

    async def settle(self, crew: BenchCrew, course: Course) -> None:
        """Wait for messages on their way to the subscribers of a private network."""
        if self.plan.against is None:
            sent = course.count("publisher", "done", with_rest=True) * self.plan.receivers
            await settle(crew, course, "subscriber", ("delivered", "dropped"), sent)

    def summarize(self, course: Course, common: dict[str, Any]) -> TopicsBenchSummary:
        """Return the summary of a measurement of topics, its last line."""
        published = course.count("publisher", "done", with_rest=True)
        sent_to = course.count("publisher", "sent_to", with_rest=True)
        is_own = self.plan.against is None
        delivered, dropped, gaps = (
            course.count("subscriber", name, with_rest=True) for name in ("delivered", "dropped", "gaps")
        )
        per_s = course.count("publisher", "done") / course.seconds if course.seconds else 0.0
        return TopicsBenchSummary(
            subscribers=self.plan.receivers if is_own else round(sent_to / max(1, published)),
            policy=self.plan.policy if is_own else None,
            published=published,
            published_per_s=round(per_s, 3),
            delivered=delivered if is_own else None,
            dropped=dropped if is_own else None,
            gaps=gaps if is_own else None,
            missing=sent_to - delivered if is_own and course.is_complete else None,
            publishing=percentiles_of(course.durations("publisher", "operation")),
            lag=percentiles_of(course.durations("subscriber", "lag")) if is_own else None,
            without_lag="" if is_own else NO_LAG,
            **common,
        )

    def describe(self, summary: TopicsBenchSummary) -> Sequence[Fact]:
        """Return the figures of topics in the summary as rows of text."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} intended)"
        facts = [Fact("published", f"{describe_rate(summary.published_per_s, 'message', summary.size)}{rhythm}")]
        if summary.delivered is not None:
            missing = "" if summary.missing is None else f", {summary.missing:,} missing"
            counts = f"{summary.dropped or 0:,} dropped, {summary.gaps or 0:,} in gaps{missing}"
            facts.append(Fact("delivered", f"{describe_rate(summary.messages_per_s, 'message', summary.size)}; {counts}"))
        facts.append(Fact("sent to", f"{summary.subscribers or 0} node{'s' * (summary.subscribers != 1)}"))
        facts.append(Fact("publish()", describe_percentiles(summary.publishing)))
        lag = summary.without_lag if summary.lag is None else describe_percentiles(summary.lag)
        return [*facts, Fact("lag", lag if summary.lag is not None else f"not shown: {lag}")]


class RequestsBench(Benchmark):
    """`iris bench requests`: callers send requests to members, and wait for replies."""

    maker = "caller"
    receiver = "member"
    unit = "request"
    counted = ("caller", "done")
    timed = ("caller", "operation")

    def announce(self) -> str:
        """Return the sentence part that announces the load of the requests."""
        how = f"up to {self.plan.concurrency:,} at once" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"requests of {format_size(len(self.plan.payload))} to {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Send one request to the cluster; return no complaint."""
        await node.request(self.target, self.plan.payload, timeout=self.plan.timeout_s)
        return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> RequestsBenchSummary:
        """Return the summary of a measurement of requests, its last line."""
        replies, reply_bytes = (course.count("caller", name) for name in ("replies", "reply_bytes"))
        return RequestsBenchSummary(
            concurrency=self.plan.concurrency,
            members=self.plan.receivers if self.onlooker is None else self.onlooker.known or None,
            replies=course.count("caller", "done", with_rest=True),
            reply_size=round(reply_bytes / replies, 3) if replies else None,
            round_trip=percentiles_of(course.durations("caller", "operation")),
            **common,
        )

    def describe(self, summary: RequestsBenchSummary) -> Sequence[Fact]:
        """Return the figures of requests in the summary as rows of text."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} intended)"
        replies = "" if summary.reply_size is None else f", replies of {format_size(summary.reply_size)}"
        return [
            Fact("rate", f"{describe_rate(summary.messages_per_s, 'request', summary.size)}{rhythm}{replies}"),
            Fact("round trip", describe_percentiles(summary.round_trip)),
            Fact("under way", f"up to {summary.concurrency:,}, for {summary.seconds:.1f} s after a warm-up"),
        ]


class Joins(Benchmark):
    """`iris bench join`: nodes start, send one request and leave, repeatedly."""

    maker = "joiner"
    receiver = "member"
    unit = "join"
    counted = ("joiner", "done")
    timed = ("joiner", "operation")

    def announce(self) -> str:
        """Return the sentence part that announces the load of the joins."""
        how = f"{self.plan.concurrency:,} at a time" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"nodes that start, send a request to {self.target!r} and stop, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Send one request to the cluster; return no complaint."""
        await node.request(self.target, self.plan.payload, timeout=self.plan.timeout_s)
        return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> JoinBenchSummary:
        """Return the summary of a measurement of joins, its last line."""
        return JoinBenchSummary(
            concurrency=self.plan.concurrency,
            members=self.plan.receivers if self.onlooker is None else self.onlooker.known or None,
            joins=course.count("joiner", "done", with_rest=True),
            joining=percentiles_of(course.durations("joiner", "operation")),
            connecting=percentiles_of(course.durations("joiner", "connect")),
            asking=percentiles_of(course.durations("joiner", "request")),
            **common,
        )

    def describe(self, summary: JoinBenchSummary) -> Sequence[Fact]:
        """Return the figures of joins in the summary as rows of text."""
        return [
            Fact("joins", f"{summary.joins:,}, {summary.messages_per_s:.3g}/s, {summary.concurrency:,} at a time"),
            Fact("first answer", describe_percentiles(summary.joining)),
            Fact("connect()", describe_percentiles(summary.connecting)),
            Fact("first request", describe_percentiles(summary.asking)),
        ]


async def bench_requests(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    input_path: Path | None,
    reply: str | None,
    concurrency: int | None,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure requests, for `iris bench requests`; return the exit code."""
    payload = Payload(
        size=size, default=SIZE, path=input_path, advice="Give less, or send it in blocks: `iris bench tunnels`"
    ).read(settings, against)
    if reply is not None and against is not None:
        raise ConfigurationError(
            "--reply is only for the members of a private network; with --against the members choose their replies."
        )
    answer = None if reply is None else bytes(_reply_size(reply))
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=payload,
        reply=answer,
        concurrency=choose_concurrency(concurrency, rate=common["rate"], processes=common["processes"]),
        **common,
    )
    return await RequestsBench(plan).run()


async def bench_topics(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    policy: str | None,
    subscribers: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure topics, for `iris bench topics`; return the exit code."""
    if policy is not None and against is not None:
        raise ConfigurationError(
            "--policy is only for the subscribers of a private network; with --against the subscribers have their own policies."
        )
    plan = make_plan(
        settings,
        against=against,
        receivers=subscribers,
        receivers_option="--subscribers",
        payload=Payload(size=size, default=SIZE, bytes_min=STAMP.size).read(settings, against),
        policy=policy or "block",
        concurrency=common["processes"],
        **common,
    )
    return await TopicsBench(plan).run()


async def bench_tunnels(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    input_path: Path | None,
    tunnels: int,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure tunnels, for `iris bench tunnels`; return the exit code."""
    # Not more than a member accepts at once, whatever a node may send.
    payload = Payload(size=size, default=BLOCK_SIZE, path=input_path, bytes_max=MAX_MESSAGE_BYTES).read(settings, against)
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=payload,
        concurrency=max(tunnels, common["processes"]),
        **common,
    )
    return await TunnelsBench(plan).run()


async def bench_join(
    settings: Settings,
    *,
    against: str | None,
    size: str | None,
    concurrency: int | None,
    members: int | None,
    **common: Unpack[Common],
) -> int:
    """Measure the time from `connect()` to a node's first reply, for `iris bench join`; return the exit code."""
    plan = make_plan(
        settings,
        against=against,
        receivers=members,
        receivers_option="--members",
        payload=Payload(size=size, default=JOIN_SIZE).read(settings, against),
        concurrency=max(concurrency or 1, common["processes"]),
        **common,
    )
    return await Joins(plan).run()


def _reply_size(text: str) -> int:
    size = parse_size(text, "--reply")
    if size > MESSAGE_BYTES_LIMIT:
        raise ConfigurationError(f"--reply {text} is more than {MESSAGE_BYTES_LIMIT} bytes, the limit of a message.")
    return size
