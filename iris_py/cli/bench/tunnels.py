"""`iris bench tunnels`: how many bytes a second go through tunnels, and how often a sender has to wait for credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_py.cli.bench.benchmark import Benchmark
from iris_py.cli.bench.lines import TunnelsBenchSummary, percentiles_of
from iris_py.cli.bench.report import Fact, describe_percentiles, describe_rate
from iris_py.cli.bench.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iris_py
    from iris_py.cli.bench.measuring import Course
    from iris_py.cli.bench.plan import Plan

__all__ = ["Tunnels"]


class Tunnels(Benchmark):
    """Senders send blocks through tunnels, and members take them."""

    maker = "sender"
    receiver = "member"
    unit = "block"
    counted = ("member", "executed")
    timed = ("sender", "operation")

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        if plan.against is not None:  # of others only what was sent is known
            self.counted = ("sender", "done")

    def announce(self) -> str:
        """Return what is done to a network that runs."""
        how = "as fast as members take them" if self.plan.rate is None else f"{self.plan.rate:g} a second"
        blocks = f"blocks of {format_size(len(self.plan.payload))}"
        tunnels = f"{self.plan.concurrency:,} tunnel{'s' * (self.plan.concurrency != 1)}"
        return f"{blocks} through {tunnels} to {self.target!r}, {how}"

    async def probe(self, node: iris_py.Node) -> str:
        """Open a tunnel once."""
        async with node.tunnel(self.target, timeout=self.plan.timeout_s):
            return ""

    def summarize(self, course: Course, common: dict[str, Any]) -> TunnelsBenchSummary:
        """Return the last line."""
        return TunnelsBenchSummary(
            tunnels=self.plan.concurrency,
            members=self.plan.receivers if self.onlooker is None else self.onlooker.known or None,
            blocks=course.count("sender", "done", with_rest=True),
            sending=percentiles_of(course.durations("sender", "operation")),
            waits=course.count("sender", "waits", with_rest=True),
            **common,
        )

    def describe(self, summary: TunnelsBenchSummary) -> Sequence[Fact]:
        """Return what is said of it to people."""
        rhythm = "" if summary.rate is None else f" (of {summary.rate:g} that were wanted)"
        share = f" ({summary.waits / summary.blocks:.2g} a block)" if summary.blocks else ""
        return [
            Fact("rate", f"{describe_rate(summary.messages_per_s, 'block', summary.size)}{rhythm}"),
            Fact("tunnels", f"{summary.tunnels:,}"),
            Fact("send()", describe_percentiles(summary.sending)),
            Fact("credit waits", f"{summary.waits:,}{share}"),
        ]
