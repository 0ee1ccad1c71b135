"""The page of findings: the checks of `iris doctor` that need no machine, executed when a viewer asks.

An examination is a node that joins the network for some seconds and asks the other nodes. Its cost is bounded: at most one at a
time and one in `PAUSE_S` for all viewers, with a bounded number of nodes, clusters and members, and a deadline.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.doctor.check import FindingStatus
from iris_py.doctor.companion import CompanionSurroundings, examine_network
from iris_py.doctor.examination import DoctorSummary, line_of
from iris_py.doors.problems import DoorRefusal
from iris_py.logs import EventLogger
from iris_py.servers.web.dashboard.page_head import PageHead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.doctor.check import DoctorCheck
    from iris_py.doctor.network_surroundings import NetworkSurroundings
    from iris_py.servers.web.dashboard.page_head import HeadMaker

__all__ = ["CLUSTERS_MAX", "Examinations", "FindingsPage"]

logger = EventLogger("iris_py.servers")

#: Time from the beginning of an examination to that of the next (seconds). Too small: viewers disturb the network; too large:
#: whoever mends a fault waits to see that it is gone.
PAUSE_S: Final = 30.0
#: Clusters of one examination, those with the most requests. Too small: clusters stay unexamined; too large: an examination
#: takes more than a second for each.
CLUSTERS_MAX: Final = 16
#: Time after which an examination is given up (seconds). Too small: a network with silent nodes is never examined; too large:
#: viewers wait for nothing.
EXAMINATION_S_MAX: Final = 90.0


class PageFinding(msgspec.Struct, kw_only=True):
    """The finding of a check."""

    check: str
    """The name of the check, as for `iris doctor --only`."""
    cluster: str
    """The examined cluster; empty for a check of the network."""
    status: str
    """``ok``, ``warning``, ``FAULT`` or ``skipped``."""
    cause: str
    """The state; for a fault, the defect."""
    advice: str
    """The remedy; empty if none is needed."""
    hints: tuple[str, ...]
    """Commands that show details or apply the remedy."""
    seconds: float
    """Duration of the check."""


class FindingsPage(msgspec.Struct, kw_only=True):
    """The findings of the last examination, also of one under way."""

    head: PageHead

    state: str
    """``none`` before the first examination, ``running``, ``done``, or ``failed``: it was not finished."""
    step: str
    """The check under way; empty unless ``running``."""
    step_number: int
    """The number of the check under way, from 1."""
    steps: int
    """The number of all checks."""
    began_unix_s: float
    """The beginning of the examination, in seconds since 1970; 0 before the first."""
    wait_s: float
    """The time until the next one may begin (seconds)."""
    clusters_left_out: int
    """Clusters without a check, because the network has too many."""
    summary: DoctorSummary
    """The number of findings by status."""
    items: list[PageFinding]


class Examinations:
    """Examines the network when a viewer asks.

    Args:
        node: The node of the door.
        observe: Returns the network to examine, given the node.

    Attributes:
        node_id: The id of the node that made the last examination; empty without one. That it is gone is no fault.
    """

    def __init__(self, node: Node, observe: Callable[[Node], NetworkSurroundings] = CompanionSurroundings) -> None:
        self.node_id = ""
        self._node = node
        self._observe = observe
        self._task: asyncio.Task[None] | None = None
        self._began_at = -math.inf
        self._began_unix_s = 0.0
        self._state = "none"
        self._step, self._number, self._count = "", 0, 0
        self._clusters_left_out = 0
        self._findings: list[PageFinding] = []

    def begin(self, clusters: Sequence[str]) -> None:
        """Begin an examination.

        Args:
            clusters: The clusters of the network, those with the most requests first.

        Raises:
            DoorRefusal: An examination is under way, or the last one has begun a short time ago.
        """
        loop = asyncio.get_running_loop()
        if wait_s := self._wait_s(loop.time()):
            raise DoorRefusal("too-many", retry_after_s=wait_s)
        self._began_at, self._began_unix_s = loop.time(), time.time()
        self._state, self._findings = "running", []
        self._clusters_left_out = max(0, len(clusters) - CLUSTERS_MAX)
        self._task = loop.create_task(self._examine(clusters[:CLUSTERS_MAX]))

    def close(self) -> None:
        """End an examination under way. Harmless if repeated."""
        if self._task is not None:
            self._task.cancel()

    def page(self, head: HeadMaker, now: float) -> FindingsPage:
        """Return the page.

        Args:
            head: Makes the head.
            now: The time (seconds).
        """
        counts = Counter(finding.status for finding in self._findings)
        return FindingsPage(
            head=head.head(len(self._findings)),
            state=self._state,
            step=self._step,
            step_number=self._number,
            steps=self._count,
            began_unix_s=self._began_unix_s,
            wait_s=math.ceil(self._wait_s(now)),
            clusters_left_out=self._clusters_left_out,
            summary=DoctorSummary(
                ok=counts[FindingStatus.OK],
                warnings=counts[FindingStatus.WARNING],
                faults=counts[FindingStatus.FAULT],
                skipped=counts[FindingStatus.SKIPPED],
            ),
            items=list(self._findings),
        )

    def _wait_s(self, now: float) -> float:
        """Return the time until the next examination may begin (seconds)."""
        is_running = self._task is not None and not self._task.done()
        return max(0.0, self._began_at + PAUSE_S - now, 1.0 if is_running else 0.0)

    async def _examine(self, clusters: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(EXAMINATION_S_MAX), self._observe(self._node) as surroundings:
                async for cluster, examined in examine_network(surroundings, clusters, self._note_step):
                    self.node_id = surroundings.node_id
                    line = line_of(examined)
                    self._findings.append(
                        PageFinding(
                            check=line.check,
                            cluster=cluster,
                            status=line.status,
                            cause=line.cause,
                            advice=line.advice,
                            hints=line.hints,
                            seconds=line.seconds,
                        )
                    )
            self._state = "done"
        except TimeoutError:
            self._state = "failed"
            logger.warning("examination_cut", "an examination of the network was given up after %d s", EXAMINATION_S_MAX)
        except Exception as exc:
            self._state = "failed"
            logger.error("examination_failed", "an examination of the network failed", error=exc)
        finally:
            self._step = ""

    def _note_step(self, check: DoctorCheck, number: int, count: int) -> None:
        self._step, self._number, self._count = check.summary, number, count
