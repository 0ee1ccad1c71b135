"""Replies between the clients of different NATS doors (docs/design.md 18.8).

A reply goes to the home of its inbox: the door of the client. A door learns the home from the request that names the inbox. For
an unknown home the reply goes to all doors, and the home delivers it. The number of those is bounded, because each costs all
doors a message.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from iris_py.api.handler import Handler
from iris_py.api.lifecycle import parts_of
from iris_py.api.membership import Capacity
from iris_py.api.runtime import runtime_of
from iris_py.doors.limits import RateLimits
from iris_py.doors.nats.inbox_messages import (
    INBOXES,
    REPLIES_MAX,
    InboxLoss,
    InboxReplies,
    InboxReply,
    decode_inbox_message,
    delivery_of,
    door_cluster_of,
    encode_inbox_message,
)
from iris_py.doors.nats.subjects import NatsSubject, read_subject
from iris_py.errors import IrisError, NodeClosed
from iris_py.logs import EventLogger
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.doors.nats.routes import InboxDelivery, Routes
    from iris_py.doors.nats.session import InboxMessages
    from iris_py.patterns.messages import Message

__all__ = ["InboxCluster"]

logger = EventLogger("iris_py.servers")

#: Replies of one client, and of all clients, to inboxes with an unknown home, a second and at once after a pause. Beyond these
#: they are lost. Too small: services of a door that has just started lose replies; too large: one client busies all doors.
CLIENT_PER_S: Final = 100.0
DOOR_PER_S: Final = 1000.0
_ALL: Final = "all"
#: Bytes of replies to one home that travel as one message. Too small: each reply costs a message; too large: a message takes
#: much of a record, and other messages wait.
GATHERED_BYTES_MAX: Final = 32 * 1024
#: Time that a door has for leaving its clusters (seconds).
LEAVE_S: Final = 2.0


class InboxCluster(Handler):
    """A door among all NATS doors: sends replies for clients of others, and delivers those for its own clients.

    Args:
        node: The node of the door.
        routes: The subscriptions of the clients.

    Attributes:
        replies: Replies by their way: to the ``home`` of the inbox, to ``all`` doors, or ``lost``, as far as this door knows.
        malformed: Dropped messages that no door sends.
    """

    def __init__(self, node: Node, routes: Routes) -> None:
        self.replies = Counter({"home": 0, "all": 0, "lost": 0})
        self.malformed = 0
        self._node = node
        self._routes = routes
        self._own_cluster = door_cluster_of(node.id)
        self._client_rates = RateLimits(CLIENT_PER_S, int(CLIENT_PER_S))
        self._door_rates = RateLimits(DOOR_PER_S, int(DOOR_PER_S))
        self._memberships: list[Membership] = []

    async def join(self) -> None:
        """Join the clusters in which replies for own clients arrive.

        Raises:
            ConfigurationError: The node is in too many clusters.
            NodeClosed: The node was closed.
        """
        for cluster in (INBOXES, self._own_cluster):
            handler: Handler = self if cluster == self._own_cluster else _AnyHome(self)
            enlisting = parts_of(self._node).memberships.enlist(cluster, handler, Capacity(), remembers=False)
            self._memberships.append(await enlisting)

    async def leave(self) -> None:
        """Leave the clusters. Harmless if repeated."""
        memberships, self._memberships = self._memberships, []
        for membership in memberships:
            with suppress(NodeClosed):
                await membership.leave(timeout=LEAVE_S)

    def try_send(self, commands: Sequence[InboxMessages], client: int) -> int:
        """Send replies of a client at once, to the homes of their inboxes or to all doors. Replies to one home go together.

        Args:
            commands: The replies, in order.
            client: The number of the client.

        Returns:
            The number of sent commands; the next command has to wait.
        """
        sent = 0
        for home, some in self._by_home(commands):
            if not self._try_send(home, some, client):
                break
            sent += len(some)
        return sent

    async def send(self, messages: InboxMessages, client: int) -> None:
        """Send replies of a client to the home of their inbox; to all doors if the home is unknown.

        Args:
            messages: The replies.
            client: The number of the client.

        Raises:
            NodeClosed: The node was closed.
        """
        subject, contents = messages.subject, messages.contents
        content = _encode([messages])
        inboxes = self._routes.inboxes
        if home := inboxes.home_of(subject.key):
            if await self._broadcast(door_cluster_of(home), content):
                self.replies["home"] += len(contents)
                return
            inboxes.forget(subject.key, home)
        is_sent = self._may_ask_all(client, len(contents)) and await self._broadcast(INBOXES, content)
        self.replies["all" if is_sent else "lost"] += len(contents)

    # -- messages of doors

    async def on_broadcast(self, message: Message) -> None:
        """Handle a message for this door."""
        received = decode_inbox_message(message.payload)
        if isinstance(received, InboxLoss):
            subject = read_subject(received.subject)
            if isinstance(subject, NatsSubject):
                self._routes.inboxes.forget(subject.key, message.source)
        elif received is None:
            self.malformed += 1
        elif lost := self.deliver(received, message.source):
            self.replies["lost"] += sum([len(delivery.contents) for _subject, delivery in lost])
            door = door_cluster_of(message.source)
            with suppress(NodeClosed):
                for subject in {subject.key: subject for subject, _delivery in lost}.values():  # of each client once
                    await self._broadcast(door, encode_inbox_message(InboxLoss(subject.raw)))

    def deliver(self, received: InboxReplies, source: str) -> list[InboxDelivery]:
        """Give replies to own clients.

        Args:
            received: The message.
            source: The id of the node with the message.

        Returns:
            The replies to inboxes that no client has.
        """
        found: list[InboxDelivery] = []
        for reply in received.replies:
            each = delivery_of(reply)
            if each is None:
                self.malformed += 1
                continue
            if reply.reply:
                self._routes.inboxes.note_home(reply.reply, source)
            found.append(each)
        return self._routes.reply_all(found)

    # --

    def _by_home(self, commands: Sequence[InboxMessages]) -> Iterator[tuple[str, list[InboxMessages]]]:
        """Divide replies into messages for a single home; the home is empty if unknown."""
        some: list[InboxMessages] = []
        home, size = "", 0
        for each in commands:
            own, own_size = each.home, each.line.total_bytes * len(each.contents)
            if some and (own != home or not home or size + own_size > GATHERED_BYTES_MAX or len(some) == REPLIES_MAX):
                yield home, some
                some, size = [], 0
            some.append(each)
            home, size = own, size + own_size
        yield home, some

    def _try_send(self, home: str, commands: Sequence[InboxMessages], client: int) -> bool:
        """Send replies for a home, or a reply for an unknown home; return False if the replies have to wait."""
        messages = sum([len(each.contents) for each in commands])
        if not home and not self._may_ask_all(client, messages):
            self.replies["lost"] += messages
            return True
        runtime = runtime_of(self._node)
        cluster = door_cluster_of(home) if home else INBOXES
        try:
            count = runtime.core.broadcast(cluster, _encode(commands), runtime.loop.time())
        except IrisError:
            return False
        runtime.wake()
        if count:
            self.replies["home" if home else "all"] += messages
        return bool(count)

    def _may_ask_all(self, client: int, count: int) -> bool:
        """Return whether replies of a client may go to all doors."""
        now = runtime_of(self._node).loop.time()
        return not self._client_rates.take(str(client), now, count) and not self._door_rates.take(_ALL, now, count)

    async def _broadcast(self, cluster: str, content: bytes) -> int:
        """Send a message to the doors in a cluster; return their number."""
        runtime = runtime_of(self._node)
        try:
            return await runtime.send_to_all(runtime.core.broadcast, cluster, content, NO_HEADERS)
        except NodeClosed:
            raise
        except IrisError as exc:
            logger.debug("door_reply_failed", "a reply for another door was not sent: %s", exc)
            return 0


def _encode(commands: Sequence[InboxMessages]) -> bytes:
    replies = [InboxReply(each.subject.raw, each.line.reply, each.line.header_bytes, each.contents) for each in commands]
    return encode_inbox_message(InboxReplies(replies))


class _AnyHome(Handler):
    """Takes replies to inboxes whose home is unknown to their sender: the home delivers them, the other doors do not."""

    def __init__(self, inboxes: InboxCluster) -> None:
        self._inboxes = inboxes

    async def on_broadcast(self, message: Message) -> None:
        """Deliver replies for own clients."""
        received = decode_inbox_message(message.payload)
        if isinstance(received, InboxReplies):
            self._inboxes.deliver(received, message.source)
        else:
            self._inboxes.malformed += 1
