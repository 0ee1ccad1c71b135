"""`iris bench topics`: how many messages go from publishers to subscribers, how late, and how many do not."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from iris_py.cli.bench.benchmark import Benchmark
from iris_py.cli.bench.lines import TopicsBenchSummary, percentiles_of
from iris_py.cli.bench.measuring import settle
from iris_py.cli.bench.report import Fact, describe_percentiles, describe_rate
from iris_py.cli.bench.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iris_py
    from iris_py.cli.bench.crew import Crew
    from iris_py.cli.bench.measuring import Course
    from iris_py.cli.bench.plan import Plan

__all__ = ["Topics"]

#: The reason why `--against` shows no lag.
NO_LAG: Final = (
    "the time that stands in a message is that of this machine's clock, and subscribers of others neither read it nor have the "
    "same clock"
)


class Topics(Benchmark):
    """Publishers publish, and subscribers take what comes."""

    maker = "publisher"
    receiver = "subscriber"
    unit = "message"
    counted = ("subscriber", "delivered")
    timed = ("subscriber", "lag")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.against is not None:  # of others only what was published is known while it goes on
            self.counted, self.timed = ("publisher", "done"), ("publisher", "operation")

    def announce(self) -> str:
        """Return what is done to a network that runs."""
        how = "as fast as subscribers take them" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"messages of {format_size(len(self.plan.payload))} to the topic {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Publish once."""
        if await node.publish(self.target, self.plan.payload):
            return ""
        return (
            f"nobody subscribes to {self.target!r} in the network {self.plan.network!r}, so nothing can be received. Start a "
            f"subscriber with `iris subscribe {shlex.quote(self.target)}`, or leave --against out."
        )

    async def settle(self, crew: Crew, course: Course) -> None:
        """Wait for what is under way to subscribers."""
        if self.plan.against is None:
            sent = course.count("publisher", "done", with_rest=True) * self.plan.receivers
            await settle(crew, course, "subscriber", ("delivered", "dropped"), sent)

    def summarize(self, course: Course, common: dict[str, Any]) -> TopicsBenchSummary:
        """Return the last line."""
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
        """Return what is said of it to people."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} that were wanted)"
        facts = [Fact("published", f"{describe_rate(summary.published_per_s, 'message', summary.size)}{rhythm}")]
        if summary.delivered is not None:
            missing = "" if summary.missing is None else f", {summary.missing:,} missing"
            counts = f"{summary.dropped or 0:,} dropped, {summary.gaps or 0:,} in gaps{missing}"
            facts.append(Fact("delivered", f"{describe_rate(summary.messages_per_s, 'message', summary.size)}; {counts}"))
        facts.append(Fact("sent to", f"{summary.subscribers or 0} node{'s' * (summary.subscribers != 1)}"))
        facts.append(Fact("publish()", describe_percentiles(summary.publishing)))
        lag = summary.without_lag if summary.lag is None else describe_percentiles(summary.lag)
        return [*facts, Fact("lag", lag if summary.lag is not None else f"not shown: {lag}")]
