"""The doors of a network, by their own reports: clients, rates of messages, and clients that the doors refused or ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_py.doors.door_table import DOORS_MAX
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.overview.units import format_bytes, format_count, format_counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_py.doors.door_messages import DoorAnnouncement, DoorStatus
    from iris_py.doors.door_reports import DoorFigures

__all__ = ["DoorLine", "DoorLoad", "DoorReadings", "door_lines", "say_doors"]


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


class DoorLine(Line, tag="door", kw_only=True):
    """A door of the network."""

    node: str
    """The id of its node."""
    door_kind: str
    """The kind of clients: ``web``, or ``nats``."""
    address: str
    """The address for clients; empty if another server listens for the door."""
    version: str
    """The version of Iris."""
    is_draining: bool
    """Whether the door closes, and clients should use another door."""
    clients: int
    """Connected clients of NATS, or open event streams."""
    subscriptions: int
    """Subscriptions of all clients."""
    in_per_s: float | None
    """Messages or operations of clients per second; null without two answers."""
    out_per_s: float | None
    """Messages to clients per second, likewise."""
    lost_per_s: float | None
    """Refused or ended clients, and messages that were lost at the door, per second, likewise."""
    refused: int
    """Connections refused before their first operation since the start of the door."""
    ended: int
    """Clients ended by the door since its start, for their mistakes or their slowness."""
    dropped: int
    """Messages that were lost at the door since its start."""
    waiting_bytes: int
    """Bytes that clients have not taken."""


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


def door_lines(loads: Iterable[DoorLoad]) -> list[DoorLine]:
    """Return a line for each door, the door with most clients first."""
    lines = [
        DoorLine(
            node=load.node,
            door_kind=load.door.kind,
            address=load.door.address,
            version=load.door.version,
            is_draining=load.door.is_draining,
            clients=load.figures.clients,
            subscriptions=load.figures.subscriptions,
            in_per_s=_rounded(load.in_per_s),
            out_per_s=_rounded(load.out_per_s),
            lost_per_s=_rounded(load.lost_per_s),
            refused=load.figures.refused,
            ended=load.figures.ended,
            dropped=load.figures.dropped,
            waiting_bytes=load.figures.waiting_bytes,
        )
        for load in loads
    ]
    return sorted(lines, key=lambda line: (-line.clients, line.door_kind, line.address, line.node))


def say_doors(lines: Iterable[DoorLine]) -> list[str]:
    """Return a text about each door; the counts since its start only if something was refused, ended or lost."""
    return [", ".join(_say_door(line)) for line in lines]


def _say_door(line: DoorLine) -> Iterator[str]:
    yield f"{one_line(line.door_kind)} at {one_line(line.address) or line.node[:8]}: {format_counted(line.clients, 'client')}"
    for rate, way in ((line.in_per_s, "in"), (line.out_per_s, "out")):
        if rate is not None:
            yield f"{format_count(rate)}/s {way}"
    if line.waiting_bytes:
        yield f"{format_bytes(line.waiting_bytes)} waiting"
    for count, what in ((line.refused, "refused"), (line.ended, "ended"), (line.dropped, "lost")):
        if count:
            yield f"{format_count(count)} {what}"
    if line.is_draining:
        yield "closing"


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)
