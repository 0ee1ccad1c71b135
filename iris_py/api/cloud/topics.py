"""Subscriptions of a node to topics of other clouds: ``clicks.>@eu`` (docs/design.md 15.71, 15.72).

Theory of operation. The topics of a cloud are divided into *shards*. The subscriptions of a node to a shard go through a tunnel
to a gateway of the own cloud. All nodes choose the same gateway, so equal subscriptions meet at the gateway, and a message
crosses once. The node adds patterns, and the gateway confirms a pattern when all publishers of the other cloud know of the
subscription. When a tunnel breaks, the node opens another and adds all patterns again. Sequence numbers then identify
duplicates and possible losses. When a gateway leaves in order, the gateway sends GOING, and the next tunnel takes over
(:mod:`iris_py.api.cloud.succession`).

The tunnel is always read: the queue of each subscription decides which messages to drop. A subscription with the policy
``block`` has a separate tunnel, read as fast as the queue is emptied.
"""

from __future__ import annotations

import asyncio
import hashlib
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.api.cloud.duplex import DuplexRequest, open_duplex, read_outcome
from iris_py.api.cloud.succession import Succession, Upstream
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import (
    CloudUnavailable,
    ConfigurationError,
    IrisError,
    NodeClosed,
    NotExported,
    RequestTimeout,
    TunnelBroken,
    TunnelClosed,
)
from iris_py.federation import items
from iris_py.federation.items import ItemError
from iris_py.logs import EventLogger
from iris_py.patterns.messages import Message
from iris_py.patterns.topic.imported_sequences import MissedTotals
from iris_py.patterns.topic.names import TopicTrie, literal_prefix, parse_topic
from iris_py.wire.headers import NO_HEADERS, decode_headers, visible_headers

if TYPE_CHECKING:
    from collections.abc import Hashable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.api.runtime import Runtime
    from iris_py.api.subscription import Inbox, MakeInbox
    from iris_py.federation.items import Item
    from iris_py.patterns.topic.names import Tokens
    from iris_py.patterns.topic.queue import SubscriptionQueue

logger = EventLogger("iris_py")

#: The operation of a subscriber's tunnel at the gateway; and its header for subscriptions with the policy ``block``.
SUBSCRIBE_OP: Final = "subscribe"
BLOCK_HEADER: Final = "iris-block"
#: The number of shards of a cloud's topics. Too small: all subscriptions of a cloud meet at one gateway; too large: each node
#: has many tunnels.
SHARDS: Final = 8
#: Timeout of the other cloud's confirmation (seconds). Too small: a subscription fails when a gateway is lost meanwhile; too
#: large: a hanging gateway goes unnoticed.
SUBSCRIBE_TIMEOUT_S: Final = 30.0
#: Topics whose matching subscriptions are cached. A topic dropped from the cache costs a new lookup.
TOPICS_MAX: Final = 4096
#: The entry of a queue's blocked publishers that stands for all publishers of another cloud.
_PUBLISHERS: Final = (None, None)


class FarTopics:
    """Subscribes to topics of other clouds for one node.

    Args:
        runtime: The node.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._shards: dict[Hashable, Shard] = {}
        self._shard_by_queue: dict[SubscriptionQueue, Shard] = {}
        self._paths = count()

    async def subscribe(self, make_inbox: MakeInbox, alias: str, registry: dict[SubscriptionQueue, Inbox]) -> Inbox:
        """Begin a subscription; return its inbox when all publishers of the other cloud know of the subscription.

        Args:
            make_inbox: Makes the inbox of the subscription.
            alias: The alias of the cloud.
            registry: The inboxes of the node, to which the inbox is added.

        Raises:
            IrisError: The subscription is not possible.
        """

        async def leave(inbox: Inbox) -> None:
            if registry.pop(inbox.queue, None) is not None:
                inbox.queue.lag.settle()
            self._remove(inbox, alias)

        inbox = make_inbox(leave, self._handle_drained, self._runtime.tracing)
        registry[inbox.queue] = inbox
        told = self._add(inbox, alias)
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                await told
        except TimeoutError:
            await inbox.close()
            raise RequestTimeout(inbox.queue.name, SUBSCRIBE_TIMEOUT_S, None) from None
        except BaseException:
            await inbox.close()
            raise
        return inbox

    def close(self) -> None:
        """End all tunnels at the end of the node; the subscriptions are ended elsewhere."""
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            shard.abort()

    # --

    def _add(self, inbox: Inbox, alias: str) -> asyncio.Future[None]:
        queue = inbox.queue
        key = self._key_of(queue, alias)
        shard = self._shards.get(key)
        if shard is None or shard.is_empty:  # an empty one ends
            shard = self._shards[key] = Shard(self._runtime, alias, shard_of(queue.pattern), queue.is_blocking, self._paths)
        self._shard_by_queue[queue] = shard
        return shard.add(inbox)

    def _remove(self, inbox: Inbox, alias: str) -> None:
        queue = inbox.queue
        shard = self._shard_by_queue.pop(queue, None)
        if shard is None:
            return
        shard.remove(inbox)
        key = self._key_of(queue, alias)
        if shard.is_empty and self._shards.get(key) is shard:
            del self._shards[key]

    def _handle_drained(self, queue: SubscriptionQueue) -> None:
        queue.blocked.clear()
        shard = self._shard_by_queue.get(queue)
        if shard is not None:
            shard.handle_drained()

    @staticmethod
    def _key_of(queue: SubscriptionQueue, alias: str) -> Hashable:
        return (alias, queue) if queue.is_blocking else (alias, shard_of(queue.pattern))


class _Want:
    """A pattern that subscriptions of this node want from a gateway.

    Attributes:
        tokens: The tokens of the pattern.
        tellings: By subscription, the future of its confirmation; None once confirmed.
    """

    __slots__ = ("tellings", "tokens")

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.tellings: dict[Inbox, asyncio.Future[None] | None] = {}


class Shard:
    """Handles the subscriptions of a node to one shard of a cloud's topics, over one tunnel after the other.

    A blocking subscription has a shard object of its own, and so its own tunnel.

    Args:
        runtime: The node.
        alias: The cloud.
        number: The number of the shard.
        is_blocking: Whether publishers wait while the queue of the subscription is full.
        paths: The source of numbers for the tunnels.

    Attributes:
        wants: The wanted patterns, by name.
        tunnels: The tunnels, one after the other.
    """

    def __init__(self, runtime: Runtime, alias: str, number: int, is_blocking: bool, paths: count[int]) -> None:
        self.wants: dict[str, _Want] = {}
        self._runtime = runtime
        self._alias = alias
        self._number = number
        self._is_blocking = is_blocking
        self._paths = paths
        self._trie: TopicTrie[Inbox] = TopicTrie()
        self._matches: dict[str, list[Inbox]] = {}
        self._room = asyncio.Event()
        seed = f"{runtime.core.info.id.hex()} {alias} {number}"
        self.tunnels: Succession[ShardTunnel] = Succession(
            self._open, lambda: bool(self.wants), self._handle_ended, runtime.loop.create_task, seed
        )
        self._task = runtime.spawn(self._run())

    @property
    def is_empty(self) -> bool:
        """Whether the shard has no subscriptions."""
        return not self.wants

    def add(self, inbox: Inbox) -> asyncio.Future[None]:
        """Add a subscription; return a future for its confirmation or its error."""
        told: asyncio.Future[None] = self._runtime.loop.create_future()
        name = self._pattern_of(inbox)
        want = self.wants.get(name)
        if want is None:
            want = self.wants[name] = _Want(inbox.queue.pattern)
        self._trie.add(want.tokens, inbox)
        self._matches.clear()
        if any(name in tunnel.added for tunnel in self.tunnels.upstreams):
            told.set_result(None)
            want.tellings[inbox] = None
        else:
            inbox.is_connected = False
            want.tellings[inbox] = told
            self.tunnels.handle_changed()
        return told

    def remove(self, inbox: Inbox) -> None:
        """Remove a subscription; harmless if it has ended."""
        name = self._pattern_of(inbox)
        want = self.wants.get(name)
        if want is None or inbox not in want.tellings:
            return
        del want.tellings[inbox]
        self._trie.remove(want.tokens, inbox)
        self._matches.clear()
        if not want.tellings:
            del self.wants[name]
        self.tunnels.handle_changed()
        self._room.set()

    def handle_drained(self) -> None:
        """Continue reading the tunnel, because a blocking subscription has room again."""
        self._room.set()

    def abort(self) -> None:
        """End at once."""
        self._task.cancel()
        self._fail_waiting(NodeClosed())

    # -- the tunnels

    async def _run(self) -> None:
        try:
            await self.tunnels.run()
        except BaseException as exc:
            if not is_cancelled(exc):
                logger.error(
                    "gateway_failed",
                    "subscribing to topics of the cloud %r failed",
                    self._alias,
                    about=self._alias,
                    error=exc,
                    cloud=self._alias,
                )
                self._fail_waiting(CloudUnavailable("topics@" + self._alias))
            raise

    async def _open(self, present: ShardTunnel | None) -> ShardTunnel | None:
        """Open a tunnel to a gateway; return None without success."""
        request = DuplexRequest(
            op=SUBSCRIBE_OP,
            name=f"{next(iter(self.wants))}@{self._alias}",
            further={BLOCK_HEADER: True} if self._is_blocking else None,
            anchor=str(self._number),
        )
        try:
            tunnel = await open_duplex(self._runtime, request)
        except TunnelBroken:
            return None  # the gateway was lost, or leaves: try another one
        except IrisError as exc:
            if present is None:
                self._fail_waiting(exc)
            return None
        return ShardTunnel(self, tunnel, next(self._paths), is_blocking=self._is_blocking)

    def _handle_ended(self, _tunnel: ShardTunnel) -> None:
        """Handle the end of a tunnel; a successor may serve the subscriptions already."""
        added = {name for tunnel in self.tunnels.upstreams for name in tunnel.added}
        is_lost = False
        for name, want in self.wants.items():
            if name not in added:
                is_lost = True
                for inbox in want.tellings:
                    inbox.is_connected = False
        if is_lost and self._runtime.closing is None:
            logger.info(
                "gateway_lost",
                "subscriptions to topics of the cloud %r have lost their gateway; looking for another one",
                self._alias,
                about=self._alias,
                cloud=self._alias,
            )

    # -- received messages

    def handle_added(self, name: str, outcome: bytes) -> bool:
        """Handle a gateway's answer for a pattern; return whether the gateway serves the pattern.

        Raises:
            TunnelBroken: The pattern is wanted, and must be added at another gateway.
        """
        want = self.wants.get(name)
        if want is None:
            return False
        error = read_outcome(outcome, f"{name}@{self._alias}")
        if isinstance(error, bytes):
            self.tunnels.succeed()
            for inbox, told in want.tellings.items():
                inbox.is_connected = True
                if told is not None and not told.done():
                    told.set_result(None)
                want.tellings[inbox] = None
            return True
        is_final = isinstance(error, NotExported | ConfigurationError)
        for inbox, told in list(want.tellings.items()):
            if told is not None or is_final:
                self._end(inbox, error)
        if want.tellings:
            raise TunnelBroken(name, "", "the gateway cannot serve it now")
        return False

    def handle_lost(self, name: str, outcome: bytes) -> None:
        """Handle the end of an added pattern at the gateway."""
        want = self.wants.get(name)
        error = read_outcome(outcome, f"{name}@{self._alias}")
        if want is not None and isinstance(error, IrisError):
            for inbox in list(want.tellings):
                self._end(inbox, error)

    def deliver(self, received: list[Item], path: int, totals: MissedTotals) -> None:
        """Deliver received messages to the subscriptions.

        Args:
            path: The number of the tunnel.
            totals: The losses on the tunnel.
        """
        touched: dict[Inbox, None] = {}
        for item in received:
            self._deliver_run(item, path, totals, touched)
        now = self._runtime.loop.time()
        for inbox in touched:
            queue = inbox.queue
            if queue.is_cut:
                logger.warning(
                    "subscription_cut",
                    "the subscription to %r was too slow and is cut off",
                    queue.name,
                    about=queue.name,
                    pattern=queue.name,
                )
                self.remove(inbox)
            elif queue.dropped:
                inbox.note_drops(now)
            inbox.handle_ready()

    def handle_malformed(self, exc: ItemError) -> None:
        """Handle an invalid message of a gateway."""
        self._runtime.core.count_drop("malformed")
        logger.warning(
            "gateway_malformed",
            "a gateway has sent an invalid message: %s",
            exc,
            about=self._alias,
            reason=str(exc),
        )

    async def wait_for_room(self) -> None:
        """Wait while a queue is full. The tunnel is not read meanwhile: its gateway waits, and in the end the publishers."""
        while full := [each for want in self.wants.values() for each in want.tellings if each.queue.is_full]:
            for inbox in full:
                inbox.queue.blocked[_PUBLISHERS] = None  # type: ignore[index] # any key serves
            self._room.clear()
            await self._room.wait()

    # --

    def _deliver_run(self, run: Item, path: int, totals: MissedTotals, touched: dict[Inbox, None]) -> None:
        """Deliver consecutive messages of a topic to the subscriptions, without duplicates."""
        core, many = self._runtime.core, len(run.payloads)
        missed = totals.add(run.origin, run.sequence, run.gap)
        subscriptions = self._matches.get(run.topic)
        if subscriptions is None:
            subscriptions = self._match(run.topic)
        headers = NO_HEADERS
        if run.headers:
            decoded = decode_headers(run.headers)
            if decoded is None:
                core.count_drop("malformed_headers", many)
                totals.add(run.origin, run.sequence, many)
                return
            headers = visible_headers(decoded)
        source, topic, cloud, numbers = run.origin.hex(), run.topic, self._alias, count(run.number)
        messages = [Message(payload, source, next(numbers), "", topic, 0, headers, cloud) for payload in run.payloads]
        for inbox in subscriptions:
            queue = inbox.queue
            late, gap = queue.fence.take(run.origin, run.sequence, path, run.number, many, missed)
            if late:
                core.count_drop("federation_late", late)
            own = messages[late:]
            if not own or queue.is_cut:
                continue
            if gap != 0:
                own[0] = msgspec.structs.replace(own[0], gap=gap or 0, has_unknown_gap=gap is None)
            dropped = queue.put_all(own, sum([len(message.payload) for message in own]))
            queue.mark(self._runtime.loop.time())
            if dropped:
                core.count_drop(f"subscription_{queue.policy}", dropped)
            touched[inbox] = None

    def _match(self, topic: str) -> list[Inbox]:
        try:
            tokens = parse_topic(topic)
        except ValueError:
            self._runtime.core.count_drop("malformed")
            return []
        if len(self._matches) >= TOPICS_MAX:
            self._matches.clear()
        found = self._matches[topic] = self._trie.match(tokens)
        return found

    def _end(self, inbox: Inbox, error: IrisError) -> None:
        """End a subscription with an error: for the subscribe call if that still waits, otherwise for the reader."""
        want = self.wants.get(self._pattern_of(inbox))
        told = None if want is None else want.tellings.get(inbox)
        self.remove(inbox)
        if told is None:
            inbox.fail(error)
        elif not told.done():
            told.set_exception(error)

    def _fail_waiting(self, error: IrisError) -> None:
        """Fail the subscriptions that are not confirmed yet, because the cloud cannot be reached."""
        for want in list(self.wants.values()):
            for inbox, told in list(want.tellings.items()):
                if told is not None:
                    self._end(inbox, error)

    @staticmethod
    def _pattern_of(inbox: Inbox) -> str:
        return ".".join(inbox.queue.pattern)


class ShardTunnel(Upstream["GatewayTunnel"]):
    """A tunnel of a shard.

    Args:
        path: The number of the tunnel.

    Attributes:
        added: The patterns confirmed by the gateway.
    """

    def __init__(self, shard: Shard, tunnel: GatewayTunnel, path: int, *, is_blocking: bool) -> None:
        super().__init__(tunnel, is_blocking=is_blocking)
        self.added: set[str] = set()
        self._shard = shard
        self._path = path
        self._totals = MissedTotals()
        self._asked: dict[str, None] = {}  # patterns sent to the gateway, in order
        self._requests: dict[int, str] = {}
        self._last_request = 0

    async def write(self) -> bool:
        """Send the added and the removed patterns to the gateway; return whether any patterns are left."""
        shard, tunnel = self._shard, self.duplex
        if not shard.wants:
            return False
        removed = [name for name in self._asked if name not in shard.wants]
        for name in removed:
            del self._asked[name]
        self.added.difference_update(removed)
        for begin in range(0, len(removed), items.PATTERNS_MAX):
            await tunnel.send(items.encode_remove(removed[begin : begin + items.PATTERNS_MAX]))
        for name in list(shard.wants):  # each by itself: their outcomes are independent
            if name in self._asked or name not in shard.wants:
                continue
            self._asked[name] = None
            self._last_request = request = self._last_request + 1 & 0xFFFF_FFFF
            self._requests[request] = name
            await tunnel.send(items.encode_add(request, [name]))
        self._look()
        return True

    async def read(self) -> None:
        """Read the tunnel until the end."""
        tunnel = self.duplex
        try:
            while True:
                message = await tunnel.receive(max_bytes=items.ITEMS_BYTES_MAX)
                kind = message[0] if message else 0
                if kind == items.ITEM:
                    if await self.take(items.decode_items(message)) and self.is_blocking:
                        await self._shard.wait_for_room()
                elif kind == items.ADDED:
                    request, outcome = items.decode_added(message)
                    self._handle_added(self._requests.pop(request, ""), outcome)
                elif kind == items.LOST:
                    name, outcome = items.decode_lost(message)
                    if name in self._asked:
                        del self._asked[name]
                        self.added.discard(name)
                        self._shard.handle_lost(name, outcome)
                elif kind == items.GOING:
                    self.note(is_leaving=True)
                elif kind == items.FLUSHED:
                    self.handle_flushed(message)
        except (TunnelBroken, TunnelClosed):
            pass
        except ItemError as exc:
            self._shard.handle_malformed(exc)

    def deliver(self, received: list[Item]) -> None:
        """Deliver received messages to the subscriptions."""
        self._shard.deliver(received, self._path, self._totals)

    def _handle_added(self, name: str, outcome: bytes) -> None:
        if self._shard.handle_added(name, outcome):
            self.added.add(name)
            self._look()
        else:
            self._asked.pop(name, None)

    def _look(self) -> None:
        """Note whether all patterns are confirmed."""
        self.note(is_ready=self.added.issuperset(self._shard.wants))


def shard_of(pattern: Tokens) -> int:
    """Return the shard of a pattern's topics."""
    first = literal_prefix(pattern)[:1]
    return hashlib.blake2b(first[0].encode(), digest_size=1).digest()[0] % SHARDS if first else 0
