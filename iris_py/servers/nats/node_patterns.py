"""The subscriptions of the node for the clients of a NATS door (docs/design.md 18.7)."""

from __future__ import annotations

import asyncio
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from iris_py.api.lifecycle import parts_of
from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.headers import ASKED_HEADER, read_carried
from iris_py.doors.nats.subjects import subject_of_topic
from iris_py.logs import EventLogger
from iris_py.servers.nats.input_turns import PatternTurns
from iris_py.servers.nats.opening_patterns import OpeningPatterns
from iris_py.servers.shared_subscription import SharedSubscription
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.node import Node
    from iris_py.doors.nats.routes import Routes, TopicDelivery
    from iris_py.doors.nats.session import NatsSession
    from iris_py.doors.nats.subscription import PatternKey
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens
    from iris_py.servers.nats.client_clusters import ClientClusters
    from iris_py.servers.nats.input_turns import InputTurns

__all__ = ["NodePatterns"]

logger = EventLogger("iris_py.servers")

#: Messages that clients get before their connections have a turn. Too small: much work for each message; too large: bytes wait
#: for clients that keep pace.
SLICE_MESSAGES: Final = 1024
#: Time for the messages and requests that a client has when its door closes (seconds). Too small: they are lost; too large: a
#: restart takes long.
LEAVE_S: Final = 1.0
#: Topics whose subjects are remembered; beyond that all are forgotten. Too small: the name of each message is checked; too
#: large: memory.
REMEMBERED_TOPICS_MAX: Final = 4096
#: Subscriptions kept after their last client, for a client that comes again. Too small: services that come and go change the
#: table of interest each time; too large: a client that subscribes and unsubscribes all the time fills the memory.
LINGERING_MAX: Final = 4096
#: Time between the removals of some subscriptions of ended clients (seconds). Too small: other clients wait; too large:
#: thousands take long.
ENDED_S: Final = 1e-3

_GAP: Final = attrgetter("gap")


class NodePatterns:
    """Subscribes for each distinct pattern and queue group of the clients, and passes on the messages of the network.

    Args:
        node: The node.
        routes: The subscriptions of the clients.
        clusters: The clusters that clients serve.
        turns: The turns of the clients.

    Attributes:
        missed: Messages that the node missed or dropped. NATS has no way to tell clients.
        received: Messages received from the network.
        unspeakable: Messages whose topic is no subject, or that have headers without a form in NATS.
    """

    def __init__(self, node: Node, routes: Routes, clusters: ClientClusters, turns: InputTurns) -> None:
        self.missed = 0
        self.received = 0
        self.unspeakable = 0
        self._node = node
        self._own_id = node.id
        self._routes = routes
        self._clusters = clusters
        self._shared: dict[PatternKey, SharedSubscription] = {}
        self._opening = OpeningPatterns()
        self._turns = PatternTurns(turns, parts_of(node).topics.gather_changes)
        self._closing: set[asyncio.Task[None]] = set()
        self._subjects: dict[tuple[str, str], tuple[bytes, Tokens]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_leaving = False

    @property
    def count(self) -> int:
        """The number of subscriptions of the node."""
        return len(self._shared)

    def are_known(self, session: NatsSession) -> bool:
        """Return whether every publisher knows the patterns of a client."""
        return not self._opening.has_some_of(session)

    def is_opening_group(self, topic: str) -> bool:
        """Return whether a queue group of clients may lack a message to a topic, because the node is subscribing for it."""
        return self._opening.has_group(topic)

    def follow(self, session: NatsSession | None = None) -> None:
        """Subscribe for new patterns, and release the subscriptions without clients.

        Args:
            session: The client with changed patterns, for the order of turns; None if unknown.
        """
        routes = self._routes
        if routes.has_ended and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ENDED_S, self._remove_ended)
        if routes.joined:
            joined, routes.joined = routes.joined, {}
            for key in joined if self._opening else ():
                if key in self._opening:
                    self._wait_for(key, session)
        if not routes.changed:
            return
        changed, routes.changed = routes.changed, {}
        for key, is_wanted in changed.items():
            self._clusters.follow(key, is_wanted=is_wanted)
            shared = self._shared.get(key)
            if shared is None:
                if is_wanted:
                    self._subscribe(key, session)
                elif self._turns.discard(key):  # before the node has subscribed
                    self._opening.discard(key)
            elif is_wanted is not bool(shared.users):
                (shared.hold if is_wanted else shared.release)()
                if not is_wanted and len(self._shared) > routes.patterns + LINGERING_MAX:
                    self._forget(key, shared, None)

    async def wait_until_known(self, session: NatsSession) -> None:
        """Return when every publisher knows the present patterns of a client, or `opening_patterns.KNOWN_S` have passed."""
        await self._opening.wait(session)

    async def wait_for_groups(self) -> None:
        """Return when every publisher knows the queue groups of all clients, or `opening_patterns.KNOWN_S` have passed."""
        await self._opening.wait_for_groups()

    async def end_client(self, session: NatsSession) -> None:
        """End a client of a closing door, after the messages and requests that its queue groups have for it.

        The door leaves groups and clusters without another client here first, so that other members get what comes later.
        """
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys = session.leave_groups()
        waits = [self._close(self._take(key)) for key in keys if key in self._shared]
        waits += self._clusters.leave_alone(keys)
        self._routes.inboxes.tell_idle(session, partial(_settle, answered))
        await asyncio.wait([answered, *waits], timeout=LEAVE_S)
        session.leave()
        self.follow()
        for key in keys:
            if key not in self._shared and self._routes.has_users(key):  # another client has come
                self._subscribe(key, None)
                self._clusters.follow(key, is_wanted=True)

    async def close(self) -> None:
        """End all subscriptions. Harmless if repeated."""
        self._is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        await self._clusters.leave()
        self._turns.begin_all()
        await self._end(list(self._shared))
        while self._closing:
            await asyncio.wait(self._closing)

    # --

    def _remove_ended(self) -> None:
        self._timer = None
        self._routes.remove_ended()
        self.follow()

    def _subscribe(self, key: PatternKey, session: NatsSession | None) -> None:
        """Subscribe in the turn of a client, unless the door is leaving."""
        if not self._is_leaving and key not in self._shared:
            self._turns.add(session, key, partial(self._open, key))
            self._opening.add(key, session)

    def _wait_for(self, key: PatternKey, session: NatsSession | None) -> None:
        """Subscribe also in the turn of a further client, which may be earlier."""
        self._opening.add(key, session)
        if key in self._turns:
            self._turns.add(session, key, partial(self._open, key))

    def _open(self, key: PatternKey) -> None:
        if self._is_leaving:
            self._opening.discard(key)
            return
        # Clients have the messages of the node itself already.
        shared = self._shared[key] = SharedSubscription(
            self._node,
            key.pattern,
            _slice_messages,
            partial(self._receive, key),
            partial(self._forget, key),
            group=key.group,
            takes_own=False,
        )
        shared.hold()
        shared.when_open(partial(self._note_open, key))

    def _note_open(self, key: PatternKey, shared: SharedSubscription) -> None:
        """Note the opened or failed subscription of a pattern."""
        if self._shared.get(key) is shared:
            self._opening.discard(key)

    async def _end(self, keys: list[PatternKey]) -> None:
        tasks = [self._close(self._take(key)) for key in keys]
        if tasks:
            await asyncio.wait(tasks)

    def _take(self, key: PatternKey) -> SharedSubscription:
        """Remove an ending subscription."""
        self._opening.discard(key)
        return self._shared.pop(key)

    def _close(self, shared: SharedSubscription) -> asyncio.Task[None]:
        """End a subscription in a task."""
        task = asyncio.get_running_loop().create_task(shared.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    def _forget(self, key: PatternKey, shared: SharedSubscription, error: Exception | None) -> None:
        """Forget a subscription without clients, or one that has failed; its clients lose theirs."""
        if self._shared.get(key) is not shared:
            return
        self._take(key)
        self._turns.add(None, shared, partial(self._close, shared))
        if error is not None:
            logger.debug("door_pattern_failed", "the node cannot subscribe for clients: %s", error)
            self._routes.refuse(key)
            self._routes.changed.pop(key, None)

    def _receive(self, key: PatternKey, _pattern: str, messages: Sequence[Message[bytes]]) -> None:
        """Give messages of the network to clients; equal ones together."""
        self.received += len(messages)
        self.missed += sum(map(_GAP, messages))
        has_runs = not key.group
        deliveries: list[TopicDelivery] = []
        contents: list[bytes] = []
        topic = cloud = ""
        size = 0
        serves = key.is_service
        for message in messages:
            content = message.payload
            if has_runs and message.headers is NO_HEADERS:
                if message.topic != topic or len(content) != size or message.cloud != cloud:
                    if contents:
                        self._add(deliveries, topic, cloud, contents)
                        contents = []
                    topic, cloud, size = message.topic, message.cloud, len(content)
                contents.append(content)
                continue
            if contents:
                self._add(deliveries, topic, cloud, contents)
                contents = []
            if serves and ASKED_HEADER in message.headers:
                continue  # a member of the cluster answers
            found = read_carried(message.headers, content)
            self.unspeakable += found.omitted > 0
            if found.reply and message.source != self._own_id:
                self._routes.inboxes.note_home(found.reply, message.source)
            self._add(deliveries, message.topic, message.cloud, [found.content], found.reply, found.header_bytes)
        if contents:
            self._add(deliveries, topic, cloud, contents)
        self._routes.receive_all(key, deliveries)

    def _add(
        self,
        deliveries: list[TopicDelivery],
        topic: str,
        cloud: str,
        contents: list[bytes],
        reply: bytes = b"",
        header_bytes: int = 0,
    ) -> None:
        """Add messages of a topic to the deliveries, unless clients cannot be told the topic."""
        found = self._subjects.get((topic, cloud)) or self._find_subject(topic, cloud)
        if found is None:
            self.unspeakable += len(contents)
        else:
            deliveries.append((found[1], Delivery(found[0], reply, header_bytes, contents)))

    def _find_subject(self, topic: str, cloud: str) -> tuple[bytes, Tokens] | None:
        subject = subject_of_topic(topic, cloud)
        if subject is None:
            return None
        if len(self._subjects) >= REMEMBERED_TOPICS_MAX:
            self._subjects.clear()
        found = self._subjects[topic, cloud] = subject, tuple(topic.split("."))
        return found


def _settle(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)


def _slice_messages() -> int:
    return SLICE_MESSAGES
