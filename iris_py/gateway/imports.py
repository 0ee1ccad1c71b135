"""The flow of a neighbour's topics into a gateway: one `Flow` for each rule, and the feeds with their queues.

A `Flow` holds the channel of one rule, as long as any feed wants topics of the rule. A `Feed` is a receiver at the gateway,
such as the tunnel of a node. An `ItemQueue` holds publications for a tunnel or channel, with the gaps of dropped ones
(docs/design.md 15.73).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from iris_py.api.cloud.reconnection import Reconnecting
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import ConfigurationError, IrisError, NotExported, Overloaded, RemoteError, TunnelBroken, TunnelClosed
from iris_py.federation import items, messages
from iris_py.federation.calls import decode_outcome
from iris_py.federation.items import ITEM_MESSAGE_BYTES, PUBLICATIONS_MAX, ItemError, count_fitting
from iris_py.federation.openings import ChannelRequest
from iris_py.gateway.duplex import Refusal
from iris_py.logs import EventLogger
from iris_py.patterns.topic.imported_sequences import GapBook
from iris_py.patterns.topic.names import TopicTrie, parse_topic
from iris_py.patterns.topic.pattern_sets import Wanted, reduced
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.items import Item
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.gateway.duplex import Channel, Duplexes
    from iris_py.gateway.port import GatewayPort
    from iris_py.patterns.topic.names import Tokens

#: The overhead of a message in a queue, counted besides its bytes.
MESSAGE_BYTES: Final = 256


class Memory:
    """The memory shared by the queues for one neighbour's publications.

    Args:
        limit_bytes: The bound on the memory.

    Attributes:
        used_bytes: The memory in use.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def is_over(self) -> bool:
        """Whether the memory in use exceeds the bound."""
        return self.used_bytes > self._limit_bytes


class ItemQueue:
    """A queue of publications for a tunnel or channel. A full queue drops the oldest; the next of the sequence carries the gap.

    Args:
        count_drop: Called with the number of dropped messages.
        memory: The memory shared with other queues.
        slack_bytes: The tolerated excess over both bounds before drops, for a queue whose publishers are told to wait.

    Attributes:
        bytes: The queued bytes.
    """

    def __init__(
        self,
        bytes_max: int,
        messages_max: int,
        count_drop: Callable[[int], object],
        memory: Memory | None = None,
        *,
        slack_bytes: int = 0,
    ) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._count_drop = count_drop
        self._memory = memory
        self._slack_bytes = slack_bytes
        self._waiting: deque[Item] = deque()
        self._messages = 0
        # Losses upstream belong in front of the next incoming publication, drops in the queue in front of the next outgoing
        # one. A single book would report some losses too early, where the numbers show no gap.
        self._unwanted: GapBook | None = None
        self._dropped: GapBook | None = None
        self._more = asyncio.Event()
        self._less = asyncio.Event()

    def __len__(self) -> int:
        return self._messages

    @property
    def is_full(self) -> bool:
        """Whether another message would exceed a bound."""
        return self._messages >= self._messages_max or self.bytes >= self._bytes_max

    def owe(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Record `count` messages as lost before a message that is not queued; the sequence's next queued one has the gap."""
        if self._unwanted is None:
            self._unwanted = GapBook()
        self._unwanted.owe(origin, sequence, count)

    def put(self, items: Sequence[Item]) -> None:
        """Append publications, in order and unchanged: other queues may share them."""
        for item in items:
            if self._unwanted is not None:
                item = _with_gap(item, self._unwanted)
            self._waiting.append(item)
            self._add(len(item.payloads), _cost(item))
        if self._is_over:
            self._drop_oldest()
        self._more.set()

    async def take(self) -> list[Item]:
        """Take the oldest publications that fit into one message; wait for the first."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        batch: list[Item] = []
        room, room_bytes = PUBLICATIONS_MAX, ITEM_MESSAGE_BYTES
        while self._waiting:
            oldest = self._waiting[0]
            count = count_fitting(oldest.payloads, oldest.headers, room, room_bytes) or int(not batch)
            if not count:
                break
            item = self._take_oldest(count)
            room -= count
            room_bytes -= item.size
            batch.append(item if self._dropped is None else _with_gap(item, self._dropped))
        self._less.set()
        return batch

    async def wait_for_room(self) -> None:
        """Wait until the queue is not full."""
        while self.is_full:
            self._less.clear()
            await self._less.wait()

    def close(self) -> None:
        """Drop all publications."""
        self._add(-self._messages, -self.bytes)
        self._waiting.clear()
        self._messages_max = self._bytes_max = 1 << 62  # nobody waits for room any more
        self._less.set()

    # --

    @property
    def _is_over(self) -> bool:
        if self._memory is not None and self._memory.is_over:
            return True
        over = max(0, self.bytes - self._bytes_max) + max(0, self._messages - self._messages_max) * MESSAGE_BYTES
        return over > self._slack_bytes

    def _take_oldest(self, count: int) -> Item:
        """Take the first ``count`` publications of the oldest item."""
        item = self._waiting.popleft()
        if count < len(item.payloads):
            item, behind = item.split(count)
            self._waiting.appendleft(behind)
        self._add(-count, -_cost(item))
        return item

    def _drop_oldest(self) -> None:
        dropped = 0
        while self._messages > 1 and self._is_over:
            oldest, count = self._waiting.popleft(), 0
            for payload in oldest.payloads:
                self._add(-1, -(len(payload) + len(oldest.headers) + MESSAGE_BYTES))
                count += 1
                if self._messages == 1 or not self._is_over:
                    break
            if count < len(oldest.payloads):
                self._waiting.appendleft(oldest.split(count)[1])
            if self._dropped is None:
                self._dropped = GapBook()
            self._dropped.owe(oldest.origin, oldest.sequence, count + oldest.gap)
            dropped += count
        if dropped:
            self._count_drop(dropped)

    def _add(self, messages: int, size: int) -> None:
        self._messages += messages
        self.bytes += size
        if self._memory is not None:
            self._memory.used_bytes += size


def _cost(item: Item) -> int:
    return item.payload_bytes + len(item.payloads) * MESSAGE_BYTES


def _with_gap(item: Item, book: GapBook) -> Item:
    gap = book.pass_on(item.origin, item.sequence, item.number, len(item.payloads), item.gap)
    return item if gap == item.gap else msgspec.structs.replace(item, gap=gap)


class Feed:
    """A receiver of one neighbour's topics at the gateway, such as the tunnel of a local node.

    Args:
        is_blocking: Whether publishers wait for the receiver.

    Attributes:
        alias: The neighbour.
        is_blocking: Whether publishers wait for the receiver.
        queue: The queue of the receiver.
        plans: The added patterns, split among the flows of the neighbour's rules.
        tellings: The tasks that wait for a neighbour's answer, by pattern.
    """

    def __init__(self, alias: str, is_blocking: bool, queue: ItemQueue) -> None:
        self.alias = alias
        self.is_blocking = is_blocking
        self.plans: dict[str, dict[Any, set[Tokens]]] = {}
        self.queue = queue
        self.tellings: dict[str, asyncio.Task[None]] = {}

    def lose(self, name: str, outcome: bytes) -> None:
        """Inform the receiver that no more publications of a pattern follow, with the reason."""
        raise NotImplementedError

    def end(self, reason: str) -> None:
        """Inform the receiver that the gateway no longer serves the feed."""
        raise NotImplementedError


class TunnelFeed(Feed):
    """A node that receives topics through a tunnel.

    Args:
        is_blocking: Whether publishers wait for the node.
    """

    def __init__(self, tunnel: GatewayTunnel, alias: str, is_blocking: bool, queue: ItemQueue) -> None:
        super().__init__(alias, is_blocking, queue)
        self.tunnel = tunnel

    async def send(self) -> None:
        """Send the queue until the tunnel ends."""
        try:
            while True:
                await self.tunnel.send(items.encode_items(items.ITEM, await self.queue.take()))
        except (TunnelBroken, TunnelClosed):
            pass

    def lose(self, name: str, outcome: bytes) -> None:
        """Tell the node that a pattern is lost."""
        if not self.tunnel.try_send(items.encode_lost(name, outcome)):
            self.end("the node does not read this tunnel")

    def end(self, reason: str) -> None:
        """Break the tunnel, so that the node looks for another gateway."""
        self.tunnel.break_off(reason, "CloudUnavailable", reason)


logger = EventLogger("iris_py.federation")

#: Patterns requested from a neighbour under one rule; of more, prefixes replace several. Too small: unwanted publications
#: cross; too large: the neighbour matches every publication against them, and refuses more than its operator's limit.
CHANNEL_PATTERNS_MAX: Final = 256
#: The timeout (seconds) for opening a channel. Too small: a full link looks dead; too large: another bundle is tried late.
OPEN_TIMEOUT_S: Final = 10.0
#: The period (seconds) of checking whether the bundle is still usable.
LOOK_S: Final = 1.0
#: Topics with cached feeds. Forgetting one costs another lookup.
TOPICS_MAX: Final = 4096
#: The first option byte of a subscription channel, in front of the rule: whether publishers wait.
PLAIN, BLOCKING = b"\0", b"\1"


class Sink(Protocol):
    """A receiver of a flow's publications."""

    @property
    def queue(self) -> ItemQueue:
        """The queue of the receiver."""

    def end(self, reason: str) -> None:
        """Inform the receiver of the end of the gateway's service."""


class Flow:
    """The channel by which one gateway receives the topics of one rule of a neighbour, for all its feeds.

    Args:
        rule: The pattern of the rule, as in the catalogue.
        is_blocking: Whether publishers wait for slow receivers here.
        forget: Called when no receiver is left.

    Attributes:
        alias: The neighbour.
        rule: The pattern of the rule.
        is_blocking: Whether publishers wait.
        is_over: Whether the flow is ending.
    """

    def __init__(
        self,
        port: GatewayPort,
        core: FederationCore,
        duplexes: Duplexes,
        alias: str,
        rule: str,
        is_blocking: bool,
        forget: Callable[[Flow], object],
    ) -> None:
        self.alias = alias
        self.rule = rule
        self.is_blocking = is_blocking
        self.is_over = False
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._forget = forget
        self._wanted = Wanted()
        self._feeds: dict[Sink, int] = {}  # with the number of their patterns
        self._trie: TopicTrie[Sink] = TopicTrie()
        self._matches: dict[str, list[Sink]] = {}
        self._asked: set[Tokens] = set()  # patterns confirmed by the neighbour on the present channel
        self._known: set[Tokens] = set()  # wanted patterns covered by the confirmed ones
        self._waiting: dict[asyncio.Future[None], set[Tokens]] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._last_request = 0
        self._book = GapBook()
        seed = f"{port.id} {alias} {rule}"
        self._connection: Reconnecting[Channel] = Reconnecting(self._read, port.loop.create_task, seed, LOOK_S)
        self._task = port.loop.create_task(self._run())

    # -- who wants what

    def add(self, feed: Sink, pattern: Tokens) -> None:
        """Add a pattern of a feed."""
        self._feeds[feed] = self._feeds.get(feed, 0) + 1
        self._trie.add(pattern, feed)
        self._matches.clear()
        if self._wanted.add(pattern):
            self._connection.changed.set()

    def remove(self, feed: Sink, pattern: Tokens) -> None:
        """Remove a pattern of a feed."""
        self._feeds[feed] -= 1
        if not self._feeds[feed]:
            del self._feeds[feed]
        self._trie.remove(pattern, feed)
        self._matches.clear()
        if self._wanted.remove(pattern):
            self._known.discard(pattern)
            self._connection.changed.set()
            if not len(self._wanted):
                self.is_over = True

    async def wait_until_known(self, patterns: set[Tokens]) -> None:
        """Wait until the neighbour has confirmed these patterns.

        Raises:
            Refusal: The neighbour refuses them.
        """
        if patterns <= self._known:
            return
        told: asyncio.Future[None] = self._port.loop.create_future()
        self._waiting[told] = patterns
        try:
            await told
        finally:
            self._waiting.pop(told, None)

    def handle_changed(self) -> None:
        """Make the flow check its channel after a change of the neighbour's exports or bundles."""
        self._connection.changed.set()

    def abort(self) -> None:
        """End the flow at once."""
        self.is_over = True
        self._task.cancel()

    # -- the channels

    async def _run(self) -> None:
        try:
            while len(self._wanted):
                way = self._choose()
                if way is not None:
                    await self._use(*way)
                    self._book.change_upstream()
                if len(self._wanted):
                    await self._connection.pause()
        except BaseException as exc:
            if not is_cancelled(exc):
                logger.error(
                    "gateway_failed",
                    "following topics of %r under %r failed",
                    self.alias,
                    self.rule,
                    about=self.alias,
                    error=exc,
                    cloud=self.alias,
                )
                for feed in list(self._feeds):
                    feed.end("the gateway has failed")
            raise
        finally:
            self.is_over = True
            self._forget(self)

    def _choose(self, without: Bundle | None = None) -> tuple[Bundle, CatalogueEntry] | None:
        """Return the usable bundle with the fewest channels, and the entry of its catalogue."""
        neighbour = self._core.lines.neighbours.get(self.alias)
        if neighbour is None:
            return None
        needed = messages.ALLOW_SUBSCRIBE | (messages.ALLOW_BLOCK if self.is_blocking else 0)
        ways = [
            (bundle, entry)
            for bundle in neighbour.usable(self._port.loop.time())
            if bundle is not without and (offer := neighbour.offers.get(bundle)) is not None
            for entry in offer.entries.values()
            if entry.kind == messages.TOPIC and entry.pattern == self.rule and entry.allow & needed == needed
        ]
        return min(ways, key=lambda way: (len(way[0].channel_ends()), way[0].load()), default=None)

    async def _use(self, bundle: Bundle, entry: CatalogueEntry) -> None:
        """Follow the rule over one bundle, until the channel breaks, another bundle is better, or no pattern is wanted."""
        deadline = self._port.loop.time() + OPEN_TIMEOUT_S
        options = (BLOCKING if self.is_blocking else PLAIN) + self.rule.encode()
        request = ChannelRequest(entry.rule, messages.SUBSCRIBE, "", NO_HEADERS, options)
        try:
            channel = await self._duplexes.open_at(bundle, request, deadline)
        except Refusal as refusal:
            self._handle_refused(refusal)
            return
        try:
            await self._connection.use(channel, partial(self._follow, bundle))
        finally:
            self._asked, self._known = set(), set()

    async def _follow(self, bundle: Bundle, channel: Channel) -> bool:
        """Request changed patterns; return False to leave the channel: no pattern wanted, a better bundle, or a refusal."""
        if not len(self._wanted) or (not bundle.is_usable(self._port.loop.time()) and self._choose(bundle) is not None):
            return False
        return await self._ask(channel)

    async def _ask(self, channel: Channel) -> bool:
        """Request the wanted patterns; return False after a refusal without a waiting receiver."""
        wanted = set(self._wanted)
        needed = reduced(wanted, CHANNEL_PATTERNS_MAX)
        new, old = needed - self._asked, self._asked - needed
        if new:
            self._last_request = request = self._last_request + 1 & 0xFFFF_FFFF
            answer = self._answers[request] = self._port.loop.create_future()
            await channel.send(items.encode_add(request, sorted(map(".".join, new))))
            outcome = decode_outcome(await answer, self.rule, 0.0)
            if isinstance(outcome, IrisError):
                return self._handle_refused(Refusal(outcome))
            self._asked |= new
        self._connection.succeed()
        self._known = wanted & set(self._wanted)
        for told, patterns in list(self._waiting.items()):
            if patterns <= self._known and not told.done():
                told.set_result(None)
        if old:  # after the new ones, so that no wanted topic is missed meanwhile
            await channel.send(items.encode_remove(sorted(map(".".join, old))))
            self._asked -= old
        return True

    def _handle_refused(self, refusal: Refusal) -> bool:
        """Report a refusal to the waiting receivers; return True if any was waiting: fewer patterns are wanted then."""
        is_told = False
        error = decode_outcome(refusal.outcome, self.rule, 0.0)
        for told, patterns in list(self._waiting.items()):
            if not told.done() and not patterns <= self._known and not _is_passing(error):
                told.set_exception(refusal)
                is_told = True
        return is_told

    def _fail_answers(self) -> None:
        """Let the receivers that wait for a confirmation fail, after the channel broke."""
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(TunnelBroken(self.rule, "", "the channel broke"))

    # -- what comes

    async def _read(self, channel: Channel) -> None:
        try:
            while True:
                message = await channel.receive(max_bytes=items.ITEMS_BYTES_MAX)
                kind = message[0] if message else 0
                if kind == items.ITEM:
                    self._hand_out(items.decode_items(message))
                    if self.is_blocking:
                        for feed in list(self._feeds):
                            await feed.queue.wait_for_room()
                elif kind == items.ADDED:
                    request, outcome = items.decode_added(message)
                    answer = self._answers.pop(request, None)
                    if answer is not None and not answer.done():
                        answer.set_result(outcome)
        except (TunnelBroken, TunnelClosed):
            pass
        except (ItemError, IrisError) as exc:
            self._core.count_drop("malformed_items")
            channel.break_by(exc)
        finally:
            self._fail_answers()

    def _hand_out(self, received: list[Item]) -> None:
        """Queue received publications for the feeds (receivers) with a matching pattern."""
        book, count, size = self._book, 0, 0
        batches: dict[Sink, list[Item]] = {}
        for item in received:
            count += len(item.payloads)
            size += item.payload_bytes
            item.gap = gap = book.pass_on(item.origin, item.sequence, item.number, len(item.payloads), item.gap)
            feeds = self._matches.get(item.topic)
            if feeds is None:
                feeds = self._match(item.topic)
            for feed in feeds:
                batches.setdefault(feed, []).append(item)
            if gap:
                for feed in self._feeds:
                    if feed not in feeds:
                        _flush(batches, feed)
                        feed.queue.owe(item.origin, item.sequence, gap)
        for feed in list(batches):
            _flush(batches, feed)
        neighbour = self._core.lines.neighbours.get(self.alias)
        if neighbour is not None:
            neighbour.accounts.of_import("topic", self.rule).received(count, size)

    def _match(self, topic: str) -> list[Sink]:
        try:
            tokens = parse_topic(topic)
        except ValueError:
            self._core.count_drop("malformed_items")
            return []
        if len(self._matches) >= TOPICS_MAX:
            self._matches.clear()
        found = self._matches[topic] = self._trie.match(tokens)
        return found


def _flush(batches: dict[Sink, list[Item]], feed: Sink) -> None:
    """Queue the publications gathered for a feed."""
    batch = batches.pop(feed, None)
    if batch:
        feed.queue.put(batch)


def _is_passing(error: bytes | IrisError) -> bool:
    """Tell whether an error may soon pass, so that receivers keep waiting for another try."""
    return not isinstance(error, NotExported | Overloaded | ConfigurationError | RemoteError)
