"""One subscription of a NATS client."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from iris_py.doors.nats.subjects import SubjectKind
from iris_py.doors.rights import covers
from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from iris_py.doors.nats.encoder import Delivery
    from iris_py.doors.nats.subjects import NatsSubject
    from iris_py.patterns.topic.names import Tokens

__all__ = ["SERVED_MAX", "ClientServices", "ClientSubscription", "DoorClient", "PatternKey"]

#: Clusters that a client serves, of the 1,024 of a door (`iris_py.servers.nats.client_clusters.CLUSTERS_MAX`). Too small: a
#: program with many services loses subscriptions; too large: few clients take the clusters of all others.
SERVED_MAX: Final = 256


class DoorClient(Protocol):
    """The client of a subscription."""

    @property
    def has_headers(self) -> bool:
        """Whether the client reads headers."""

    @property
    def hears_itself(self) -> bool:
        """Whether the client gets its own messages."""

    def write(self, data: bytes) -> None:
        """Write bytes for the client."""

    def refuse_subscription(self, subscription: ClientSubscription) -> None:
        """Tell the client about the end of a subscription."""

    def forget_subscription(self, subscription: ClientSubscription) -> None:
        """Note that a subscription has ended by its number of messages."""


class PatternKey(NamedTuple):
    """A subscription of the node, for all clients with this pattern and queue group."""

    pattern: str
    """The pattern, with ``@cloud`` for another cloud."""
    group: str
    """The queue group; empty for none."""

    @property
    def is_service(self) -> bool:
        """Whether the clients serve a cluster: with a queue group and without a wildcard, in the own cloud."""
        return bool(self.group) and not any(mark in self.pattern for mark in (ANY_TOKEN, ANY_REST, CLOUD_MARK))


class ClientServices:
    """The clusters served by a client, with the numbers of subscriptions."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def has_room(self, pattern: NatsSubject, queue: bytes) -> bool:
        """Return whether there is room for a subscription."""
        return len(self._counts) < SERVED_MAX or not _serves(pattern, queue) or pattern.name in self._counts

    def add(self, pattern: NatsSubject, queue: bytes) -> None:
        """Count a subscription."""
        if _serves(pattern, queue):
            self._counts[pattern.name] += 1

    def remove(self, pattern: NatsSubject, queue: bytes) -> None:
        """Count a subscription no longer."""
        if _serves(pattern, queue):
            self._counts[pattern.name] -= 1
            if not self._counts[pattern.name]:
                del self._counts[pattern.name]

    def clear(self) -> None:
        """Count no subscription any longer."""
        self._counts.clear()


class ClientSubscription:
    """A subscription of a client.

    Args:
        client: The client.
        sid: The client's name for the subscription.
        pattern: The pattern.
        queue: The queue group; empty for none.
        hidden: Patterns of forbidden topics.

    Attributes:
        delivered: The number of messages given to the client.
        messages_max: The number of messages after which the subscription ends; 0 for no end.
    """

    __slots__ = ("client", "delivered", "hidden", "is_open", "messages_max", "pattern", "queue", "sid")

    def __init__(
        self, client: DoorClient, sid: bytes, pattern: NatsSubject, queue: bytes, hidden: tuple[Tokens, ...] = ()
    ) -> None:
        self.client: Final = client
        self.sid: Final = sid
        self.pattern: Final = pattern
        self.queue: Final = queue
        self.hidden: Final = hidden
        self.delivered = 0
        self.messages_max = 0
        self.is_open = True

    @property
    def key(self) -> PatternKey:
        """The corresponding subscription of the node."""
        return PatternKey(self.pattern.name, self.queue.decode())

    def hears(self, topic: Tokens) -> bool:
        """Return whether the rights of the client allow a matching topic."""
        return not any(covers(each, topic) for each in self.hidden)

    def give_all(self, deliveries: list[Delivery]) -> int:
        """Write messages for a client without a largest number; return the number of messages."""
        sid, has_headers, total, texts = self.sid, self.client.has_headers, 0, []
        for delivery in deliveries:
            contents = delivery.contents
            count = len(contents)
            total += count
            if count > 1 or delivery.header_bytes > 0:
                texts.append(delivery.text(sid, has_headers=has_headers, count=count))
                continue
            content, reply = contents[0], delivery.reply  # as there, without the call and a copy of the content
            if reply:
                texts.append(b"MSG %b %b %b %d\r\n%b\r\n" % (delivery.subject, sid, reply, len(content), content))
            else:
                texts.append(b"MSG %b %b %d\r\n%b\r\n" % (delivery.subject, sid, len(content), content))
        self.delivered += total
        self.client.write(b"".join(texts))
        return total

    def give(self, delivery: Delivery) -> bool:
        """Write messages for the client, up to its number of messages.

        Returns:
            Whether the subscription had its last message.
        """
        count = len(delivery.contents)
        if self.messages_max:
            count = min(count, self.messages_max - self.delivered)
        self.delivered += count
        client = self.client
        client.write(delivery.text(self.sid, has_headers=client.has_headers, count=count))
        return self.delivered == self.messages_max


def _serves(pattern: NatsSubject, queue: bytes) -> bool:
    """Return whether a subscription serves a cluster."""
    return bool(queue) and pattern.kind is SubjectKind.TOPIC and PatternKey(pattern.name, queue.decode()).is_service
