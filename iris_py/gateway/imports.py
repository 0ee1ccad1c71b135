"""The flow of a neighbour's topics into a gateway: one `Flow` for each rule, and the feeds with their queues.

A `Flow` holds a channel for a rule, as long as any feed wants topics of the rule (docs/design.md 15.72). When the gateway at
the other end leaves, the next channel takes over. A `Feed` is a receiver at the gateway, such as the tunnel of a node.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from iris_py.api.cloud.succession import Succession, Upstream
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import ConfigurationError, IrisError, NotExported, Overloaded, RemoteError, TunnelBroken, TunnelClosed
from iris_py.federation import items, messages
from iris_py.federation.calls import decode_outcome
from iris_py.federation.items import ItemError
from iris_py.federation.openings import ChannelRequest
from iris_py.gateway.duplex import Refusal
from iris_py.logs import EventLogger
from iris_py.patterns.topic.imported_sequences import GapBook
from iris_py.patterns.topic.names import TopicTrie, parse_topic
from iris_py.patterns.topic.pattern_sets import Wanted, reduced
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.items import Item
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.gateway.duplex import Channel, Duplexes
    from iris_py.gateway.item_queues import ItemQueue
    from iris_py.gateway.port import GatewayPort
    from iris_py.patterns.topic.names import Tokens


class Feed:
    """A receiver of one neighbour's topics at the gateway, such as the tunnel of a local node.

    Args:
        is_blocking: Whether publishers wait for the receiver.

    Attributes:
        alias: The neighbour.
        is_blocking: Whether publishers wait for the receiver.
        queue: The queue of the receiver.
        plans: The added patterns, split among the flows of the neighbour's rules.
        tellings: The tasks that wait for a neighbour's answer: by pattern, or by the number of a FLUSH.
    """

    def __init__(self, alias: str, is_blocking: bool, queue: ItemQueue) -> None:
        self.alias = alias
        self.is_blocking = is_blocking
        self.plans: dict[str, dict[Any, set[Tokens]]] = {}
        self.queue = queue
        self.tellings: dict[str | int, asyncio.Task[None]] = {}

    def lose(self, name: str, outcome: bytes) -> None:
        """Inform the receiver that no more publications of a pattern follow, with the reason."""
        raise NotImplementedError

    def leave(self) -> None:
        """Ask the receiver to move to another gateway; the feed goes on meanwhile."""
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
                taken = await self.queue.take()
                await self.tunnel.send(taken if isinstance(taken, bytes) else items.encode_items(items.ITEM, taken))
        except (TunnelBroken, TunnelClosed):
            pass

    def lose(self, name: str, outcome: bytes) -> None:
        """Tell the node that a pattern is lost."""
        if not self.tunnel.try_send(items.encode_lost(name, outcome)):
            self.end("the node does not read this tunnel")

    def leave(self) -> None:
        """Send GOING to the node."""
        self.queue.mark(bytes((items.GOING,)))

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
    """The channels, in succession, by which a gateway receives the topics of a neighbour's rule for all feeds.

    Args:
        rule: The pattern of the rule, as in the catalogue.
        is_blocking: Whether publishers wait for slow receivers here.
        forget: Called when no receiver is left.

    Attributes:
        alias: The neighbour.
        rule: The pattern of the rule.
        is_blocking: Whether publishers wait.
        is_over: Whether the flow is ending.
        wanted: The wanted patterns.
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
        self.wanted = Wanted()
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._forget = forget
        self._feeds: dict[Sink, int] = {}  # with the number of their patterns
        self._trie: TopicTrie[Sink] = TopicTrie()
        self._matches: dict[str, list[Sink]] = {}
        self._waiting: dict[asyncio.Future[None], set[Tokens]] = {}
        self._book = GapBook()
        self._channels: Succession[FlowChannel] = Succession(
            self._open, lambda: bool(len(self.wanted)), self._handle_ended, port.loop.create_task, f"{port.id} {alias} {rule}"
        )
        self._task = port.loop.create_task(self._run())

    # -- who wants what

    def add(self, feed: Sink, pattern: Tokens) -> None:
        """Add a pattern of a feed."""
        self._feeds[feed] = self._feeds.get(feed, 0) + 1
        self._trie.add(pattern, feed)
        self._matches.clear()
        if self.wanted.add(pattern):
            self._channels.handle_changed()

    def remove(self, feed: Sink, pattern: Tokens) -> None:
        """Remove a pattern of a feed."""
        self._feeds[feed] -= 1
        if not self._feeds[feed]:
            del self._feeds[feed]
        self._trie.remove(pattern, feed)
        self._matches.clear()
        if self.wanted.remove(pattern):
            for channel in self._channels.upstreams:
                channel.known.discard(pattern)
            self._channels.handle_changed()
            if not len(self.wanted):
                self.is_over = True

    async def wait_until_known(self, patterns: set[Tokens]) -> None:
        """Wait until the neighbour has confirmed these patterns.

        Raises:
            Refusal: The neighbour refuses them.
        """
        if self._is_known(patterns):
            return
        told: asyncio.Future[None] = self._port.loop.create_future()
        self._waiting[told] = patterns
        try:
            await told
        finally:
            self._waiting.pop(told, None)

    async def flush(self) -> None:
        """Return when the feeds have all publications received by the neighbour's gateway at the time of the call."""
        for channel in self._channels.upstreams[:1]:
            await channel.flush()

    def handle_changed(self) -> None:
        """Make the flow check its channel after a change of the neighbour's exports or bundles."""
        self._channels.handle_changed()

    def abort(self) -> None:
        """End the flow at once."""
        self.is_over = True
        self._task.cancel()

    # -- the channels

    async def _run(self) -> None:
        try:
            await self._channels.run()
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

    def choose(self, without: Bundle | None = None) -> tuple[Bundle, CatalogueEntry] | None:
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

    async def _open(self, present: FlowChannel | None) -> FlowChannel | None:
        """Open a channel for the rule, over another bundle than the present channel's; return None without success."""
        way = self.choose(None if present is None else present.bundle)
        if way is None:
            return None
        bundle, entry = way
        options = (BLOCKING if self.is_blocking else PLAIN) + self.rule.encode()
        request = ChannelRequest(entry.rule, messages.SUBSCRIBE, "", NO_HEADERS, options)
        try:
            channel = await self._duplexes.open_at(bundle, request, self._port.loop.time() + OPEN_TIMEOUT_S)
        except Refusal as refusal:
            self.handle_refused(refusal)
            return None
        return FlowChannel(self, channel, bundle, self._port.loop.time)

    def _handle_ended(self, _channel: FlowChannel) -> None:
        self._book.change_upstream()

    def handle_known(self) -> None:
        """Report confirmed patterns to the waiting receivers."""
        self._channels.succeed()
        for told, patterns in list(self._waiting.items()):
            if not told.done() and self._is_known(patterns):
                told.set_result(None)

    def handle_refused(self, refusal: Refusal) -> bool:
        """Report a refusal to the waiting receivers; return True if any was waiting: fewer patterns are wanted then."""
        is_told = False
        error = decode_outcome(refusal.outcome, self.rule, 0.0)
        for told, patterns in list(self._waiting.items()):
            if not told.done() and not self._is_known(patterns) and not _is_passing(error):
                told.set_exception(refusal)
                is_told = True
        return is_told

    def _is_known(self, patterns: set[Tokens]) -> bool:
        return any(patterns <= channel.known for channel in self._channels.upstreams)

    # -- received publications

    def handle_malformed(self, channel: Channel, exc: ItemError | IrisError) -> None:
        """Handle an invalid message of the neighbour."""
        self._core.count_drop("malformed_items")
        channel.break_by(exc)

    async def wait_for_room(self) -> None:
        """Wait until all queues of the feeds have room."""
        for feed in list(self._feeds):
            await feed.queue.wait_for_room()

    def hand_out(self, received: list[Item]) -> None:
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


class FlowChannel(Upstream["Channel"]):
    """A channel of a flow.

    Args:
        bundle: The bundle (connections to a gateway) of the channel.
        clock: Returns the time.

    Attributes:
        bundle: The bundle of the channel.
        known: The wanted patterns covered by confirmed patterns.
    """

    def __init__(self, flow: Flow, channel: Channel, bundle: Bundle, clock: Callable[[], float]) -> None:
        super().__init__(channel, is_blocking=flow.is_blocking, look_s=LOOK_S)
        self.bundle = bundle
        self.known: set[Tokens] = set()
        self._flow = flow
        self._clock = clock
        self._asked: set[Tokens] = set()  # patterns confirmed by the neighbour
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._last_request = 0

    async def write(self) -> bool:
        """Request changed patterns; return False to leave the channel: no pattern wanted, a silent bundle, or a refusal."""
        flow = self._flow
        if not len(flow.wanted):
            return False
        if not self.bundle.is_usable(self._clock()) and flow.choose(self.bundle) is not None:
            if not self.bundle.is_going:
                return False
            self.note(is_leaving=True)
        wanted = set(flow.wanted)
        needed = reduced(wanted, CHANNEL_PATTERNS_MAX)
        new, old = needed - self._asked, self._asked - needed
        if new:
            self._last_request = request = self._last_request + 1 & 0xFFFF_FFFF
            answer = self._answers[request] = asyncio.get_running_loop().create_future()
            await self.duplex.send(items.encode_add(request, sorted(map(".".join, new))))
            outcome = decode_outcome(await answer, flow.rule, 0.0)
            if isinstance(outcome, IrisError):
                return flow.handle_refused(Refusal(outcome))
            self._asked |= new
        self.known = wanted & set(flow.wanted)
        flow.handle_known()
        self.note(is_ready=True)
        if old:  # after the new ones, so that no wanted topic is missed meanwhile
            await self.duplex.send(items.encode_remove(sorted(map(".".join, old))))
            self._asked -= old
        return True

    async def read(self) -> None:
        """Read the channel until the end."""
        channel = self.duplex
        try:
            while True:
                message = await channel.receive(max_bytes=items.ITEMS_BYTES_MAX)
                kind = message[0] if message else 0
                if kind == items.ITEM:
                    if await self.take(items.decode_items(message)) and self.is_blocking:
                        await self._flow.wait_for_room()
                elif kind == items.ADDED:
                    request, outcome = items.decode_added(message)
                    answer = self._answers.pop(request, None)
                    if answer is not None and not answer.done():
                        answer.set_result(outcome)
                elif kind == items.FLUSHED:
                    self.handle_flushed(message)
        except (TunnelBroken, TunnelClosed):
            pass
        except (ItemError, IrisError) as exc:
            self._flow.handle_malformed(channel, exc)
        finally:
            answers, self._answers = self._answers, {}
            for answer in answers.values():
                if not answer.done():
                    answer.set_exception(TunnelBroken(self._flow.rule, "", "the channel broke"))

    def deliver(self, received: list[Item]) -> None:
        """Queue received publications for the feeds."""
        self._flow.hand_out(received)


def _flush(batches: dict[Sink, list[Item]], feed: Sink) -> None:
    """Queue the publications gathered for a feed."""
    batch = batches.pop(feed, None)
    if batch:
        feed.queue.put(batch)


def _is_passing(error: bytes | IrisError) -> bool:
    """Tell whether an error may soon pass, so that receivers keep waiting for another try."""
    return not isinstance(error, NotExported | Overloaded | ConfigurationError | RemoteError)
