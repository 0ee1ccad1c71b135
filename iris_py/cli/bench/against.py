"""The other side of `iris bench --against`: members and subscribers of a network that runs, asked before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py import NodeName
from iris_py.cli.bench.lines import Receiver
from iris_py.cli.lists import overlaps

if TYPE_CHECKING:
    from iris_py import Node, NodeReport
    from iris_py.observe.statistics import SubscriptionStatistics

__all__ = ["Onlooker"]

#: How long to wait for what others say of themselves. Too small: busy members seem to say nothing; too large: one that has
#: gone holds up the end.
ASK_S: Final = 5.0


class Onlooker:
    """Asks the nodes that receive the load how they are, with a node that does nothing else.

    Args:
        node: The node.
        name: The cluster, or the topic.
        is_topic: Which of both.

    Attributes:
        known: How many receive it, as far as that is known.
    """

    def __init__(self, node: Node, name: str, *, is_topic: bool) -> None:
        self._node = node
        self._name = name
        self._is_topic = is_topic
        self._targets: list[NodeName] = []
        self._first: dict[str, NodeReport] | None = None
        self._both: list[tuple[NodeReport, NodeReport]] = []
        self.known = 0

    @property
    def silent(self) -> int:
        """How many of those that were to be asked have not said both times how they are."""
        return len(self._targets) - len(self._both)

    async def find(self) -> None:
        """Find out who will receive the load."""
        if self._is_topic:
            found = await self._node.ask_nodes("subscriptions", timeout=ASK_S)
            self._targets = [each.node for each in found.reports if self._delivers(each)]
            self.known = len(self._targets)
        elif "@" not in self._name:  # of another cloud, members are its own business
            members = self._node.members(self._name)
            self._targets = [NodeName(each.id, each.address, each.zone) for each in await members]
            self.known = members.total

    async def look(self) -> None:
        """Ask them how they are: the first time is before, any other one after."""
        if not self._targets:
            return
        parts = ("process", "subscriptions") if self._is_topic else ("process", "clusters")
        cluster = "" if self._is_topic else self._name
        found = await self._node.ask_nodes(*parts, nodes=self._targets, cluster=cluster, timeout=ASK_S)
        reports = {each.node.id: each for each in found.reports}
        if self._first is None:
            self._first = reports
        else:
            first = self._first
            self._both = [(first[node], last) for node, last in reports.items() if node in first]

    def cpu_s(self) -> list[float]:
        """Return the processor time that the process of each one used meanwhile, whatever for."""
        return [max(0.0, last.statistics.process.cpu_s - first.statistics.process.cpu_s) for first, last in self._both]

    def receivers(self) -> list[Receiver]:
        """Return how much each one received meanwhile, from whomever."""
        count = self._delivered if self._is_topic else _executed
        return [
            Receiver(
                id=last.node.id,
                address=last.node.address,
                messages=max(0, count(last) - count(first)),
                share=0.0,
                dropped=max(0, self._dropped(last) - self._dropped(first)),
            )
            for first, last in self._both
        ]

    def _delivers(self, report: NodeReport) -> list[SubscriptionStatistics]:
        """Return the subscriptions of a node that the load is for."""
        subscriptions = report.statistics.subscriptions if self._is_topic else ()
        return [each for each in subscriptions if overlaps(each.pattern, self._name)]

    def _delivered(self, report: NodeReport) -> int:
        return sum(each.delivered for each in self._delivers(report))

    def _dropped(self, report: NodeReport) -> int:
        return sum(sum(each.dropped.values()) for each in self._delivers(report))


def _executed(report: NodeReport) -> int:
    return sum(each.service.executed for each in report.statistics.clusters.values() if each.service is not None)
