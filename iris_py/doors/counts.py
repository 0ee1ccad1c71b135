"""The counts of a door: operations and problems of its clients, connections, event streams and histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from iris_py.doors.problems import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.doors.door_table import KnownDoor

__all__ = ["DoorClusterCounts", "DoorCounts", "DoorStatistics"]


class DoorStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a door: of now, or since its start."""

    kind: str
    """The kind of the door: ``web``."""
    connections: int | None = None
    """Open connections; None if another server has the connections, as for a mounted door."""
    connections_refused: Mapping[str, int] = {}
    """Connections refused or ended by the door since its start, by reason."""
    operations: Mapping[str, int] = {}
    """Operations begun since the start, by name; those with a wrong token or beyond the rate are left out."""
    problems: Mapping[str, int] = {}
    """Problems told to clients since the start, by name."""
    streams: int = 0
    """Open event streams."""
    patterns: int = 0
    """Distinct patterns of all event streams."""
    subscriptions: int = 0
    """Subscriptions of the node for event streams, also those kept for a short time after their last stream."""
    client_messages: Mapping[str, int] = {}
    """Messages of NATS clients since the start: ``in`` from them, ``out`` to them."""
    client_bytes: Mapping[str, int] = {}
    """The bytes of these messages, likewise."""
    client_subscriptions: int | None = None
    """Subscriptions of all NATS clients; None for a web door."""
    waiting_bytes: int = 0
    """Bytes that clients have not taken."""
    received_messages: int = 0
    """Messages received since the start for event streams and histories; one for many streams counts once."""
    sent_bytes: int = 0
    """Bytes given to connections of event streams since the start."""
    dropped_messages: int = 0
    """Messages dropped since the start: by a web door because clients were too slow, by a NATS door as `losses` says."""
    losses: Mapping[str, int] = {}
    """Messages that NATS clients did not get, since the start: ``missed`` by the node of the door, ``unspeakable`` because
    their topic is no subject, or a ``reply`` to an inbox that nobody has."""
    native_requests: Mapping[str, int] = {}
    """Requests of NATS clients to native members since the start, by outcome: ``reply``, ``no_responders``, ``timeout``,
    ``error``."""
    replies: Mapping[str, int] = {}
    """Replies of NATS clients to clients of other doors since the start: sent to the ``home`` of the inbox or to ``all`` doors,
    or ``lost``."""
    streams_ended: Mapping[str, int] = {}
    """Event streams ended by the door since its start, by reason."""
    history_messages: int = 0
    """Entries of all histories."""
    history_bytes: int = 0
    """The bytes of their payloads."""
    viewers: int = 0
    """Viewers of the dashboard."""
    others: int = 0
    """Other doors of the network, of all kinds."""
    revocations: int = 0
    """Revocations that the door remembers."""


class DoorClusterCounts(NamedTuple):
    """The knowledge of a door from the cluster of all doors."""

    doors: tuple[KnownDoor, ...] = ()
    """The other doors of the network, of all kinds."""
    revocations: int = 0
    """Revocations that the door remembers."""


class DoorCounts:
    """Counts the operations of clients, and the problems that the clients are told.

    Args:
        operations: The names of all operations.

    Attributes:
        operations: The operations begun, by name.
        problems: The problems told, by name.
    """

    def __init__(self, operations: Iterable[str]) -> None:
        # All names from the start, because monitoring takes a name that appears later for a jump from nothing.
        self.operations = Counter(dict.fromkeys(operations, 0))
        self.problems = Counter(dict.fromkeys(PROBLEMS, 0))
