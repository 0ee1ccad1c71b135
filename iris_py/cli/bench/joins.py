"""`iris bench join`: how long it takes from `connect()` until the first request of a new node is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.cli.bench.benchmark import Benchmark
from iris_py.cli.bench.lines import JoinBenchSummary, percentiles_of
from iris_py.cli.bench.report import Fact, describe_percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iris_py
    from iris_py.cli.bench.measuring import Course

__all__ = ["Joins"]


class Joins(Benchmark):
    """Nodes start, ask once, and go, again and again."""

    maker = "joiner"
    receiver = "member"
    unit = "join"
    counted = ("joiner", "done")
    timed = ("joiner", "operation")

    def announce(self) -> str:
        """Return what is done to a network that runs."""
        how = f"{self.plan.concurrency:,} at a time" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"nodes that start, ask {self.target!r} and go, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Ask once."""
        await node.request(self.target, self.plan.payload, timeout=self.plan.timeout_s)
        return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> JoinBenchSummary:
        """Return the last line."""
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
        """Return what is said of it to people."""
        return [
            Fact("joins", f"{summary.joins:,}, {summary.messages_per_s:.3g}/s, {summary.concurrency:,} at a time"),
            Fact("first answer", describe_percentiles(summary.joining)),
            Fact("connect()", describe_percentiles(summary.connecting)),
            Fact("first request", describe_percentiles(summary.asking)),
        ]
