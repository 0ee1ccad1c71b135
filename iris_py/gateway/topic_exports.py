"""Subscriptions of neighbours to topics of the local cloud; only wanted publications cross (docs/design.md 15.73).

Theory of operation. For each exported pattern in use, the gateway has one subscription in its cloud, a :class:`ExportSource`.
Each channel of a neighbour is an :class:`Outflow` with its wanted patterns and a queue. A publication is renamed once for each
neighbour and rule, and goes to the outflows with a matching pattern. It keeps the number of its publisher, which is the same at
every gateway of the cloud.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError, IrisError, NotExported, Overloaded, TunnelBroken, TunnelClosed
from iris_py.federation import items, messages
from iris_py.federation.calls import encode_outcome
from iris_py.federation.items import Item, ItemError
from iris_py.gateway.duplex import READY, Refusal, wait_for_limits
from iris_py.gateway.imports import BLOCKING, PLAIN
from iris_py.gateway.item_queues import ItemQueue, Memory
from iris_py.gateway.privacy import passed_headers
from iris_py.gateway.subscriptions import HANDOVER_S
from iris_py.patterns.topic.names import TopicTrie, parse_pattern, parse_topic
from iris_py.wire.headers import Headers
from iris_py.wire.imported import SEQUENCE_BYTES, UNKNOWN_GAP

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import ChannelOffer
    from iris_py.federation.limits import RuleLimits
    from iris_py.federation.rules import ExportRule, RuleTable
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.duplex import Channel, Duplexes
    from iris_py.gateway.port import Export, GatewayPort
    from iris_py.patterns.messages import Message
    from iris_py.patterns.topic.names import Tokens

#: Bounds on the queue of one channel, and on all queues of one neighbour. Too small: a briefly full link loses messages; too
#: large: a neighbour that does not read holds this much memory.
OUTFLOW_BYTES_MAX: Final = 64 * 1024 * 1024
OUTFLOW_MESSAGES_MAX: Final = 262_144
NEIGHBOUR_BYTES_MAX: Final = 256 * 1024 * 1024
#: Bounds on the queue of a blocking channel, before publishers are told to wait.
BLOCKING_BYTES_MAX: Final = 1024 * 1024
BLOCKING_MESSAGES_MAX: Final = 1024
#: How long (seconds) a gateway stays subscribed to an unused pattern. Too small: a subscriber that returns through another
#: gateway waits for the subscription again; too large: publications come here in vain.
LINGER_S: Final = 30.0
#: The pause (seconds) between two flushes, each of which asks every publisher. Too small: a neighbour that asks again and again
#: occupies the publishers; too large: receivers that move one after the other wait.
FLUSH_PAUSE_S: Final = 0.25
#: Cached topics and pseudonyms. Recomputing one costs some microseconds.
TOPICS_MAX: Final = 4096
PSEUDONYMS_MAX: Final = 8192


class NodePseudonyms:
    """The pseudonyms, for a neighbour, of local nodes, and the names of the sequences of their publications.

    Args:
        origin_of: Returns a node's pseudonym for a neighbour (hex): (alias, id).
        key_of: Returns the key of pseudonyms for a neighbour.
    """

    def __init__(self, origin_of: Callable[[str, str], str], key_of: Callable[[str], bytes]) -> None:
        self._origin_of = origin_of
        self._key_of = key_of
        self._known: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()

    def origin(self, alias: str, node_id: str) -> bytes:
        """Return a node's pseudonym for a neighbour."""
        return self._look_up((alias, node_id, ""))

    def sequence(self, alias: str, rule: str) -> bytes:
        """Return the name of the sequence of all publications under one rule.

        Publications under another rule use another channel, without a common order, and so are another sequence.
        """
        return self._look_up((alias, "", rule))

    def clear(self) -> None:
        """Forget all pseudonyms: the keys may have changed."""
        self._known.clear()

    def _look_up(self, key: tuple[str, str, str]) -> bytes:
        found = self._known.get(key)
        if found is None:
            alias, node_id, rule = key
            if node_id:
                found = bytes.fromhex(self._origin_of(alias, node_id))
            else:
                found = hashlib.blake2b(rule.encode(), digest_size=SEQUENCE_BYTES, key=self._key_of(alias)).digest()
            if len(self._known) >= PSEUDONYMS_MAX:
                self._known.popitem(last=False)
            self._known[key] = found
        return found


class Outflow:
    """One channel to a neighbour that subscribes: its wanted patterns, and the queue of publications.

    Attributes:
        wanted: The wanted patterns, as exported.
        trie: The wanted patterns, for matching.
        is_blocking: Whether publishers wait for the channel.
        flushing: The task that answers the last FLUSH.
    """

    def __init__(
        self, channel: Channel, alias: str, rule: ExportRule, queue: ItemQueue, limits: RuleLimits, *, is_blocking: bool
    ) -> None:
        self.channel = channel
        self.alias = alias
        self.rule = rule
        self.queue = queue
        self.limits = limits
        self.is_blocking = is_blocking
        self.flushing: asyncio.Task[None] | None = None
        self.wanted: dict[str, Tokens] = {}
        self.trie: TopicTrie[bool] = TopicTrie()

    def add(self, patterns: list[str]) -> None:
        """Add wanted patterns.

        Raises:
            Refusal: The patterns exceed the rule's limit.
            ItemError: A pattern is invalid.
        """
        new: dict[str, Tokens] = {}
        for name in patterns:
            if name not in self.wanted:
                try:
                    new[name] = parse_pattern(name)
                except ValueError as exc:
                    raise ItemError("an invalid pattern") from exc
        if not self.limits.add_subscriptions(len(new)):
            raise Refusal(Overloaded(patterns[0], retry_after_s=LINGER_S))
        self.wanted |= new
        for tokens in new.values():
            self.trie.add(tokens, True)

    def remove(self, patterns: list[str]) -> None:
        """Remove wanted patterns; unknown ones are ignored."""
        for name in patterns:
            tokens = self.wanted.pop(name, None)
            if tokens is not None:
                self.trie.remove(tokens, True)
                self.limits.remove_subscriptions(1)

    def matches(self, topic: Tokens) -> bool:
        """Tell whether a topic is wanted, by its exported name."""
        return bool(self.trie.match(topic))


class NeighbourView:
    """One neighbour's part of a source (a local subscription) under one rule.

    Args:
        table: The topic exports to the neighbour: a topic crosses only under its most specific rule.

    Attributes:
        outflows: The channels of the neighbour.
    """

    def __init__(self, alias: str, rule: ExportRule, table: RuleTable[ExportRule], pseudonyms: NodePseudonyms) -> None:
        self.outflows: dict[Outflow, None] = {}
        self._alias = alias
        self._rule = rule
        self._table = table
        self._pseudonyms = pseudonyms
        self._found: dict[str, tuple[str, list[Outflow], list[Outflow]]] = {}

    def forget(self) -> None:
        """Forget cached matches after a change of patterns."""
        self._found.clear()

    def take(self, messages: list[Message]) -> None:
        """Queue a batch of one publisher's publications to one topic."""
        first = messages[0]
        found = self._found.get(first.topic)
        if found is None:
            found = self._look_up(first.topic)
        outside, wanting, others = found
        gap = UNKNOWN_GAP if first.has_unknown_gap else first.gap
        if not wanting and not gap:
            return
        origin = self._pseudonyms.origin(self._alias, first.source)
        sequence = self._pseudonyms.sequence(self._alias, self._rule.outside)
        if wanting:
            headers = passed_headers(first.headers, self._rule.trace) if isinstance(first.headers, Headers) else b""
            payloads = [message.payload for message in messages]
            item = Item(outside, payloads, first.sequence, origin, sequence, gap, headers)
            for outflow in wanting:
                outflow.queue.put((item,))
        if gap:
            for outflow in others:
                outflow.queue.owe(origin, sequence, gap)

    def _look_up(self, topic: str) -> tuple[str, list[Outflow], list[Outflow]]:
        outside = self._rule.to_outside(topic)
        wanting: list[Outflow] = []
        counting = None if outside is None else self._table.find(outside)
        if outside is not None and counting is not None and counting.outside == self._rule.outside:
            tokens = parse_topic(outside)
            wanting = [outflow for outflow in self.outflows if outflow.matches(tokens)]
        if len(self._found) >= TOPICS_MAX:
            self._found.clear()
        others = [outflow for outflow in self.outflows if outflow not in wanting]
        found = self._found[topic] = (outside or "", wanting, others)
        return found


class ExportSource:
    """The gateway's local subscription to one exported pattern, while any neighbour uses the pattern.

    Args:
        is_blocking: Whether publishers wait for slow channels.
        forget: Called at the end of the source.
    """

    def __init__(self, port: GatewayPort, pattern: str, *, is_blocking: bool, forget: Callable[[ExportSource], object]) -> None:
        self.views: dict[tuple[str, str], NeighbourView] = {}  # by neighbour and rule
        self.is_blocking = is_blocking
        self._port = port
        self._forget = forget
        self._export: Export | None = None
        self._is_held = False
        self._lingering: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._begun = port.loop.create_task(self._begin(pattern))

    @property
    def is_over(self) -> bool:
        """Whether the source (local subscription) is ending."""
        return self._ending is not None

    async def wait_until_begun(self) -> None:
        """Wait until every publisher knows the subscription.

        Raises:
            IrisError: The subscription failed.
        """
        await asyncio.shield(self._begun)

    def add(self, outflow: Outflow, make_view: Callable[[], NeighbourView]) -> None:
        """Add an outflow (channel of a subscribing neighbour) to the source."""
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        key = outflow.alias, outflow.rule.outside
        view = self.views.get(key)
        if view is None:
            view = self.views[key] = make_view()
        view.outflows[outflow] = None
        view.forget()

    def remove(self, outflow: Outflow) -> None:
        """Remove an outflow (channel of a subscribing neighbour) that has ended."""
        key = outflow.alias, outflow.rule.outside
        view = self.views.get(key)
        if view is not None:
            view.outflows.pop(outflow, None)
            view.forget()
            if not view.outflows:
                del self.views[key]
        if not self.views and self._lingering is None and not self.is_over:
            self._lingering = self._port.loop.call_later(LINGER_S, self.end)
        self.look()

    def look(self) -> None:
        """Make publishers wait while a blocking channel is full; let them continue afterwards."""
        if not self.is_blocking or self._export is None:
            return
        is_held = any(outflow.queue.is_full for view in self.views.values() for outflow in view.outflows)
        if is_held is not self._is_held:
            self._is_held = is_held
            self._export.hold(is_held=is_held)

    def end(self) -> None:
        """End the local subscription of the source."""
        if self._ending is None:
            if self._lingering is not None:
                self._lingering.cancel()
            self._ending = self._port.loop.create_task(self._end())

    def abort(self) -> None:
        """End the subscription at once, without notifying publishers."""
        if self._lingering is not None:
            self._lingering.cancel()
        self._begun.cancel()

    async def _begin(self, pattern: str) -> None:
        self._export = await self._port.subscribe_for_export(pattern, self._take, blocks=self.is_blocking)

    async def _end(self) -> None:
        self._forget(self)
        self._begun.cancel()
        await asyncio.gather(self._begun, return_exceptions=True)
        if self._export is not None:
            await self._export.close()

    def _take(self, messages: list[Message]) -> None:
        for view in self.views.values():
            view.take(messages)
        if self.is_blocking:
            self.look()


class PublisherFlushes:
    """The questions of a gateway to all publishers for everything published so far. All that wait share the next question."""

    def __init__(self, port: GatewayPort) -> None:
        self._port = port
        self._next: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def flush(self) -> None:
        """Return when all publications so far have come, or the publishers that are late have had time enough."""
        if self._next is None:
            self._next = self._port.loop.create_future()
        if self._task is None:
            self._task = self._port.loop.create_task(self._run())
        await asyncio.shield(self._next)

    def abort(self) -> None:
        """End the questions; those that wait get no answer."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._next is not None:
                answered, self._next = self._next, None
                await self._port.flush_publishers()
                answered.set_result(None)
                await asyncio.sleep(FLUSH_PAUSE_S)
        finally:
            self._task = None


class Exports:
    """The subscriptions of neighbours (other clouds) to local topics, at a gateway.

    Args:
        has_others: Tells whether the local cloud has further gateways.
    """

    def __init__(
        self,
        port: GatewayPort,
        core: FederationCore,
        duplexes: Duplexes,
        pseudonyms: NodePseudonyms,
        has_others: Callable[[], bool],
    ) -> None:
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._pseudonyms = pseudonyms
        self._sources: dict[tuple[str, bool], ExportSource] = {}
        self._outflows: dict[Outflow, ExportSource] = {}
        self._memories: dict[str, Memory] = {}
        self._tables: dict[str, RuleTable[ExportRule]] = {}
        self._has_others = has_others
        self._flushes = PublisherFlushes(port)
        self._leaving: list[asyncio.TimerHandle] = []
        duplexes.far[messages.SUBSCRIBE] = self.serve

    async def serve(self, offer: ChannelOffer) -> None:
        """Serve a channel of a neighbour until its end."""
        rule, alias = offer.rule, offer.bundle.alias
        flag, outside = offer.open.options[:1], offer.open.options[1:]
        if flag not in (PLAIN, BLOCKING) or outside != rule.outside.encode():
            raise Refusal(NotExported(rule.outside))  # the rules have changed since the catalogue was sent
        is_blocking = flag == BLOCKING
        if is_blocking and not rule.block:
            raise Refusal(ConfigurationError(f"publishers to {rule.outside!r} do not wait for subscribers in other clouds."))
        neighbour = self._core.lines.neighbours[alias]
        limits = neighbour.export_limits[rule.number]
        source = self._source(rule, is_blocking)
        outflow = Outflow(
            self._duplexes.accept(offer),
            alias,
            rule,
            self._make_queue(alias, rule, is_blocking),
            limits,
            is_blocking=is_blocking,
        )
        self._outflows[outflow] = source
        source.add(outflow, lambda: NeighbourView(alias, rule, self._table(alias), self._pseudonyms))
        sender = self._port.loop.create_task(self._send(outflow, source))
        try:
            await self._listen(outflow, source)
        finally:
            sender.cancel()
            if outflow.flushing is not None:
                outflow.flushing.cancel()
            del self._outflows[outflow]
            source.remove(outflow)
            outflow.remove(list(outflow.wanted))
            outflow.queue.close()

    def reconfigure(self, settings: FederationSettings) -> None:
        """Switch to other rules: end the channels of removed rules, and tell their subscribers."""
        self._tables.clear()
        self._pseudonyms.clear()
        for outflow, source in list(self._outflows.items()):
            rule = next((rule for rule in settings.exports_to(outflow.alias) if _is_same(rule, outflow)), None)
            source.views.pop((outflow.alias, outflow.rule.outside), None)
            if rule is None:
                reason = f"{outflow.rule.outside!r} is not exported any more"
                outflow.channel.break_off(reason, "NotExported", reason)
            else:
                outflow.rule = rule
        for outflow, source in self._outflows.items():
            if outflow.channel.failure is None:
                self._show(outflow, source)

    def drain(self) -> None:
        """Serve moving neighbours, for at most ``HANDOVER_S``."""
        for alias in {outflow.alias for outflow in self._outflows}:
            delay_s = HANDOVER_S if self._has_others() else 0.0
            self._leaving.append(self._port.loop.call_later(delay_s, self._handle_left, alias))

    def _handle_left(self, alias: str) -> None:
        """End the remaining channels of a neighbour."""
        for outflow in self._outflows:
            if outflow.alias == alias:
                outflow.channel.break_off("the gateway leaves")

    async def close(self) -> None:
        """End every subscription in the local cloud."""
        for timer in self._leaving:
            timer.cancel()
        self._flushes.abort()
        for source in list(self._sources.values()):
            source.end()

    def abort(self) -> None:
        """End all subscriptions at once."""
        self._flushes.abort()
        for source in self._sources.values():
            source.abort()

    # --

    def _show(self, outflow: Outflow, source: ExportSource) -> None:
        alias, rule = outflow.alias, outflow.rule
        source.add(outflow, lambda: NeighbourView(alias, rule, self._table(alias), self._pseudonyms))

    async def _listen(self, outflow: Outflow, source: ExportSource) -> None:
        """Handle the messages of a neighbour on a channel."""
        channel, view_key = outflow.channel, (outflow.alias, outflow.rule.outside)
        try:
            while True:
                message = await channel.receive(max_bytes=items.PATTERNS_MAX * 256 + 64)
                kind = message[0] if message else 0
                if kind == items.ADD:
                    request, patterns = items.decode_add(message)
                    try:
                        await source.wait_until_begun()
                        outflow.add(patterns)
                        outcome = READY
                    except Refusal as refusal:
                        outcome = refusal.outcome
                    except IrisError as exc:
                        outcome = encode_outcome(exc)
                        source.end()  # the next channel tries again
                    await channel.send(items.encode_added(request, outcome))
                elif kind == items.REMOVE:
                    outflow.remove(items.decode_remove(message))
                elif kind == items.FLUSH:
                    number = items.decode_flush(message)
                    if outflow.flushing is not None and not outflow.flushing.done():
                        raise ItemError("a question while another one is open")
                    outflow.flushing = self._port.loop.create_task(self._flush(outflow, number))
                if view_key in source.views:
                    source.views[view_key].forget()
        except (TunnelBroken, TunnelClosed):
            pass
        except (ItemError, IrisError) as exc:
            self._core.count_drop("malformed_items")
            channel.break_by(exc)

    async def _flush(self, outflow: Outflow, number: int) -> None:
        """Answer a neighbour's FLUSH message behind all publications so far."""
        await self._flushes.flush()
        try:
            outflow.queue.mark(items.encode_flush(items.FLUSHED, number))
        except ItemError as exc:
            outflow.channel.break_by(exc)

    async def _send(self, outflow: Outflow, source: ExportSource) -> None:
        """Send the queue, within the limits and the neighbour's credit."""
        queue, channel = outflow.queue, outflow.channel
        try:
            while True:
                batch = await queue.take()
                if isinstance(batch, bytes):
                    await channel.send(batch)
                    continue
                size = sum([item.payload_bytes for item in batch])
                count = sum([len(item.payloads) for item in batch])
                await wait_for_limits(outflow.limits, size, is_out=True)
                await channel.send(items.encode_items(items.ITEM, batch))
                neighbour = self._core.lines.neighbours.get(outflow.alias)
                if neighbour is not None:
                    neighbour.accounts.of_export(outflow.rule).sent(count, size)
                source.look()
        except (TunnelBroken, TunnelClosed):
            pass

    def _source(self, rule: ExportRule, is_blocking: bool) -> ExportSource:
        key = rule.local, is_blocking
        source = self._sources.get(key)
        if source is None or source.is_over:
            source = self._sources[key] = ExportSource(
                self._port, rule.local, is_blocking=is_blocking, forget=lambda source: self._forget(key, source)
            )
        return source

    def _forget(self, key: tuple[str, bool], source: ExportSource) -> None:
        if self._sources.get(key) is source:
            del self._sources[key]

    def _table(self, alias: str) -> RuleTable[ExportRule]:
        table = self._tables.get(alias)
        if table is None:
            table = self._tables[alias] = self._core.settings.export_table(alias, "topic")
        return table

    def _make_queue(self, alias: str, rule: ExportRule, is_blocking: bool) -> ItemQueue:
        memory = self._memories.setdefault(alias, Memory(NEIGHBOUR_BYTES_MAX))

        def count_drop(count: int) -> None:
            self._core.count_drop("outflow_full", count)
            neighbour = self._core.lines.neighbours.get(alias)
            if neighbour is not None:
                neighbour.accounts.of_export(rule).dropped("outflow_full", count)

        if is_blocking:
            return ItemQueue(BLOCKING_BYTES_MAX, BLOCKING_MESSAGES_MAX, count_drop, memory, slack_bytes=OUTFLOW_BYTES_MAX)
        return ItemQueue(OUTFLOW_BYTES_MAX, OUTFLOW_MESSAGES_MAX, count_drop, memory)


def _is_same(rule: ExportRule, outflow: Outflow) -> bool:
    """Tell whether a reloaded rule still allows an open channel without changes."""
    before = outflow.rule
    if rule.kind != "topic" or (rule.outside, rule.local) != (before.outside, before.local):
        return False
    return "subscribe" in rule.allow and (rule.block or not outflow.is_blocking)
