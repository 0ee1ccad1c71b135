"""The doors of a network, by their own reports: clients, rates of messages, and clients that the doors refused or ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_py.doors.door_table import DOORS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.doors.door_messages import DoorAnnouncement, DoorStatus
    from iris_py.doors.door_reports import DoorFigures

__all__ = ["DoorLoad", "DoorReadings"]


@dataclass(frozen=True, slots=True)
class DoorLoad:
    """A door in the table of doors."""

    node: str
    """The id of its node."""
    door: DoorAnnouncement
    figures: DoorFigures
    in_per_s: float | None
    """Messages or operations of clients per second; None before the second answer."""
    out_per_s: float | None
    """Messages to clients per second, likewise."""
    lost_per_s: float | None
    """Refused or ended clients, and messages that were lost at the door, per second; likewise."""


class DoorReadings:
    """The doors of a network that are asked repeatedly.

    Attributes:
        loads: The doors, by their last answers.
    """

    def __init__(self) -> None:
        self.loads: tuple[DoorLoad, ...] = ()
        self._at = 0.0

    def take(self, statuses: Iterable[tuple[str, DoorStatus]], now: float) -> None:
        """Take the answers of all doors. A door without an answer is left out.

        Args:
            statuses: The ids of the nodes, and their answers.
            now: The time (seconds).
        """
        elapsed_s, before = now - self._at, {load.door.id: load.figures for load in self.loads}
        self.loads = tuple(
            _load(node, status, before.get(status.door.id), elapsed_s) for node, status in [*statuses][:DOORS_MAX]
        )
        self._at = now


def _load(node: str, status: DoorStatus, before: DoorFigures | None, elapsed_s: float) -> DoorLoad:
    now = status.figures

    def per_s(last: int, first: int) -> float:
        return max(0, last - first) / elapsed_s

    if before is None or elapsed_s <= 0.0:
        return DoorLoad(node, status.door, now, None, None, None)
    return DoorLoad(
        node,
        status.door,
        now,
        per_s(now.messages_in, before.messages_in),
        per_s(now.messages_out, before.messages_out),
        per_s(now.refused + now.ended + now.dropped, before.refused + before.ended + before.dropped),
    )
