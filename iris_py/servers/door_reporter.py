"""The reports of doors about their clients and themselves, for programs with the secret of the network."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from iris_py.doors.door_reports import ClientReport, ClientSlice, DoorFigures, UserDigest, UserSlice, clip_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.doors.counts import DoorStatistics
    from iris_py.doors.nats.clients import NatsClients
    from iris_py.servers.web.topic_streams import TopicStream, TopicStreams

__all__ = ["NatsReporter", "WebReporter"]


class NatsReporter:
    """Reports about a NATS door.

    Args:
        clients: The clients.
        read: Returns the counts of the door.
        end_reasons: The reasons for which the door ends clients, among those of refused connections.
    """

    def __init__(self, clients: NatsClients, read: Callable[[], DoorStatistics], end_reasons: tuple[str, ...]) -> None:
        self._clients = clients
        self._read = read
        self._end_reasons = end_reasons

    def clients(self, start: int, count: int) -> ClientSlice:
        """Return some clients, the one that came first first.

        Args:
            start: The place of the first client.
            count: The largest number of clients.
        """
        sessions, now = self._clients.sessions, asyncio.get_running_loop().time()
        return ClientSlice(len(sessions), tuple(each.report(now) for each in islice(sessions, start, start + count)))

    def figures(self) -> DoorFigures:
        """Return the counts of the door."""
        counts = self._read()
        ended = sum(counts.connections_refused.get(reason, 0) for reason in self._end_reasons)
        return DoorFigures(
            clients=len(self._clients.sessions),
            connections=counts.connections,
            subscriptions=counts.client_subscriptions or 0,
            messages_in=counts.client_messages["in"],
            messages_out=counts.client_messages["out"],
            refused=sum(counts.connections_refused.values()) - ended,
            ended=ended,
            dropped=counts.dropped_messages,
            waiting_bytes=counts.waiting_bytes,
        )

    def users(self, start: int, count: int) -> UserSlice:
        """Return some users in the order of their names.

        Args:
            start: The place of the first user.
            count: The largest number of users.
        """
        digests = self._clients.users.digests
        users = tuple(UserDigest(name, digest) for name, digest in islice(digests.items(), start, start + count))
        total = sha256(b"".join(sha256(name.encode()).digest() + digest for name, digest in digests.items()))
        return UserSlice(len(digests), total.digest(), users)


class WebReporter:
    """Reports about a web door. Its clients are the open event streams: other operations end at once.

    Args:
        streams: The event streams.
        read: Returns the counts of the door.
    """

    def __init__(self, streams: TopicStreams, read: Callable[[], DoorStatistics]) -> None:
        self._streams = streams
        self._read = read

    def clients(self, start: int, count: int) -> ClientSlice:
        """Return some event streams, the one that came first first.

        Args:
            start: The place of the first stream.
            count: The largest number of streams.
        """
        streams = self._streams.all
        return ClientSlice(len(streams), tuple(map(_report, islice(streams, start, start + count))))

    def figures(self) -> DoorFigures:
        """Return the counts of the door."""
        counts, streams = self._read(), self._streams.all
        return DoorFigures(
            clients=len(streams),
            connections=counts.connections,
            subscriptions=sum(len(stream.held) for stream in streams),
            messages_in=sum(counts.operations.values()),
            messages_out=counts.received_messages,
            refused=sum(counts.connections_refused.values()),
            ended=sum(counts.streams_ended.values()),
            dropped=counts.dropped_messages,
            waiting_bytes=counts.waiting_bytes,
        )

    def users(self, start: int, count: int) -> None:
        """Return None: the clients of a web door have tokens."""


def _report(stream: TopicStream) -> ClientReport:
    return ClientReport(
        user=clip_text(stream.use.grant.subject),
        subscriptions=len(stream.held),
        waiting_bytes=stream.events.window.bytes,
    )
