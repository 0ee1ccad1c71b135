"""`iris bench requests`: how many requests go through, how long each takes, and what that costs both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.cli.bench.benchmark import Benchmark
from iris_py.cli.bench.lines import RequestsBenchSummary, percentiles_of
from iris_py.cli.bench.report import Fact, describe_percentiles, describe_rate
from iris_py.cli.bench.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iris_py
    from iris_py.cli.bench.measuring import Course

__all__ = ["Requests"]


class Requests(Benchmark):
    """Callers ask members, and wait for the reply."""

    maker = "caller"
    receiver = "member"
    unit = "request"
    counted = ("caller", "done")
    timed = ("caller", "operation")

    def announce(self) -> str:
        """Return what is done to a network that runs."""
        how = f"up to {self.plan.concurrency:,} at once" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        return f"requests of {format_size(len(self.plan.payload))} to {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Ask once."""
        await node.request(self.target, self.plan.payload, timeout=self.plan.timeout_s)
        return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> RequestsBenchSummary:
        """Return the last line."""
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
        """Return what is said of it to people."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} that were wanted)"
        replies = "" if summary.reply_size is None else f", replies of {format_size(summary.reply_size)}"
        return [
            Fact("rate", f"{describe_rate(summary.messages_per_s, 'request', summary.size)}{rhythm}{replies}"),
            Fact("round trip", describe_percentiles(summary.round_trip)),
            Fact("under way", f"up to {summary.concurrency:,}, for {summary.seconds:.1f} s after a warm-up"),
        ]
