"""The page of the door itself: its clients and their event streams, operations, problems, connections and histories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.doors.counts import DoorStatistics
from iris_py.servers.web.dashboard.page_head import DETAILS_MAX, PageHead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_py.doors.door_table import KnownDoor
    from iris_py.servers.web.dashboard.page_head import HeadMaker
    from iris_py.servers.web.topic_streams import TopicStreams

__all__ = ["DoorMonitor", "DoorPage"]

#: Age of a reading up to which the next one gives rates (seconds). Older ones would give means over minutes without viewers.
READING_S_MAX: Final = 10.0


class PageCount(msgspec.Struct, kw_only=True):
    """A counter of the door."""

    name: str
    count: int
    """Since the start of the door."""
    per_s: float | None
    """Now; None before the second reading."""


class PageClient(msgspec.Struct, kw_only=True):
    """The event streams of one subject."""

    subject: str
    streams: int
    waiting_messages: int
    """Messages that wait for its connections."""
    waiting_bytes: int
    dropped: int
    """Messages dropped from its open streams, because they were too slow."""
    is_late: bool
    """Whether a stream has lost messages that its client has not been told yet."""


class PageHistory(msgspec.Struct, kw_only=True):
    """A history."""

    pattern: str
    messages: int
    bytes: int
    topics: int
    """Topics whose newest message is kept besides; 0 without ``last``."""
    oldest_s: float | None
    """The age of the oldest message; None without messages."""
    seconds_max: int
    messages_max: int
    bytes_max: int
    repeated: int
    """Messages dropped as repetitions since the start."""


class PageDoor(msgspec.Struct, kw_only=True):
    """Another door of the network."""

    node: str
    """The id of its node."""
    name: str
    """The label of the node; empty without one, or if the node has not answered."""
    kind: str
    """The kind of its clients: ``web``, or ``nats``."""
    address: str
    """The address for clients; empty if another server listens for the door."""
    version: str
    is_draining: bool
    """Whether the door closes."""


class DoorPage(msgspec.Struct, kw_only=True):
    """The door."""

    head: PageHead

    door: DoorStatistics
    operations: list[PageCount]
    """Operations by name, the most frequent first; those that no client has asked for are left out."""
    problems: list[PageCount]
    """Problems told to clients, likewise."""
    refused: list[PageCount]
    """Connections refused or ended by the door, by reason, likewise."""
    received_per_s: float | None
    """Messages received for event streams and histories."""
    sent_per_s: float | None
    """Bytes given to connections of event streams."""
    dropped_per_s: float | None
    """Messages dropped because clients were too slow."""
    clients: list[PageClient]
    """The clients with event streams, those with most waiting bytes first; 200 at most."""
    clients_total: int
    """The number of all clients with event streams."""
    doors: list[PageDoor]
    """The other doors of the network; 200 at most."""
    items: list[PageHistory]
    """The histories."""


class DoorMonitor:
    """Reads the counts of the door with the network, so that its page has rates.

    Args:
        read: Returns the counts.
        streams: The event streams.
        doors: Returns the other doors of the network.
    """

    def __init__(
        self,
        read: Callable[[], DoorStatistics],
        streams: TopicStreams,
        doors: Callable[[], Sequence[KnownDoor]] = tuple,
    ) -> None:
        self._read = read
        self._streams = streams
        self._doors = doors
        self._first: tuple[float, DoorStatistics] | None = None
        self._last: tuple[float, DoorStatistics] | None = None

    def take(self, now: float) -> None:
        """Read the counts.

        Args:
            now: The time (seconds).
        """
        is_recent = self._last is not None and now - self._last[0] <= READING_S_MAX
        self._first = self._last if is_recent else None
        self._last = now, self._read()

    def page(self, head: HeadMaker, now: float) -> DoorPage:
        """Return the page.

        Args:
            head: Makes the head.
            now: The time (seconds).
        """
        at, last = self._last or (now, self._read())
        first_at, first = self._first or (at, last)
        elapsed_s = at - first_at

        def per_s(read: Callable[[DoorStatistics], int]) -> float | None:
            return (read(last) - read(first)) / elapsed_s if elapsed_s > 0 else None

        def counts(read: Callable[[DoorStatistics], Mapping[str, int]]) -> list[PageCount]:
            rows = [
                PageCount(name=name, count=count, per_s=per_s(lambda door, name=name: read(door).get(name, 0)))  # type: ignore[misc]
                for name, count in read(last).items()
                if count
            ]
            return sorted(rows, key=lambda row: (-row.count, row.name))

        clients = self._clients()
        names = {seen.node.id: seen.node.name for seen in head.view.seen}
        histories = [
            PageHistory(
                pattern=history.settings.pattern,
                messages=history.count,
                bytes=history.bytes + history.last_bytes,
                topics=len(history.last_topics()),
                oldest_s=history.oldest_s(now),
                seconds_max=history.settings.seconds,
                messages_max=history.settings.messages,
                bytes_max=history.settings.bytes,
                repeated=history.repeated,
            )
            for history in self._streams.histories
        ]
        return DoorPage(
            head=head.head(len(histories)),
            door=last,
            operations=counts(lambda door: door.operations),
            problems=counts(lambda door: door.problems),
            refused=counts(lambda door: door.connections_refused),
            received_per_s=per_s(lambda door: door.received_messages),
            sent_per_s=per_s(lambda door: door.sent_bytes),
            dropped_per_s=per_s(lambda door: door.dropped_messages),
            clients=clients[:DETAILS_MAX],
            clients_total=len(clients),
            doors=[
                PageDoor(
                    node=node,
                    name=names.get(node, ""),
                    kind=door.kind,
                    address=door.address,
                    version=door.version,
                    is_draining=door.is_draining,
                )
                for node, door in self._doors()[:DETAILS_MAX]
            ],
            items=histories,
        )

    def _clients(self) -> list[PageClient]:
        """Return the clients with event streams, those with most waiting bytes first."""
        found: dict[str, PageClient] = {}
        for stream in self._streams.all:
            subject = stream.use.grant.subject
            client = found.get(subject)
            if client is None:
                client = found[subject] = PageClient(
                    subject=subject, streams=0, waiting_messages=0, waiting_bytes=0, dropped=0, is_late=False
                )
            window = stream.events.window
            client.streams += 1
            client.waiting_messages += len(window)
            client.waiting_bytes += window.bytes
            client.dropped += window.dropped
            client.is_late = client.is_late or bool(window.missed)
        return sorted(found.values(), key=lambda client: (-client.waiting_bytes, -client.dropped, client.subject))
