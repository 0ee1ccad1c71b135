"""Subscriptions of local nodes to topics of neighbours, at a gateway (docs/design.md 15.72).

Theory of operation. A node adds patterns through a tunnel, a :class:`Feed`. Each pattern is restricted to the imported topics
and split among the neighbour's rules for topics. For each rule in use, a :class:`Flow` holds a channel to one of the
neighbour's gateways. The flow requests the union of all feeds' patterns, and passes publications to the feeds with a matching
pattern. After a break, the flow continues over another bundle and marks possible losses.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from iris_py.api.cloud.topics import BLOCK_HEADER, SUBSCRIBE_OP
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import CloudUnavailable, ConfigurationError, NotExported, Overloaded, TunnelBroken, TunnelClosed
from iris_py.federation import items, messages
from iris_py.federation.items import ItemError
from iris_py.federation.rules import specificity
from iris_py.gateway.duplex import READY, Refusal
from iris_py.gateway.imports import Feed, Flow, TunnelFeed
from iris_py.gateway.item_queues import ItemQueue
from iris_py.logs import EventLogger
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.pattern_sets import covers, intersection

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.core import FederationCore
    from iris_py.federation.neighbour import Neighbour
    from iris_py.gateway.duplex import Duplexes
    from iris_py.gateway.port import GatewayPort
    from iris_py.patterns.topic.names import Tokens

logger = EventLogger("iris_py.federation")

#: Bounds on the queue of one node's tunnel. Too small: a briefly busy node misses messages; too large: memory of the gateway,
#: for each of many nodes.
FEED_BYTES_MAX: Final = 16 * 1024 * 1024
FEED_MESSAGES_MAX: Final = 16_384
#: Bounds on the queue of a tunnel whose publishers wait. Too small: publishers wait often; too large: more messages arrive
#: late.
BLOCKING_BYTES_MAX: Final = 1024 * 1024
BLOCKING_MESSAGES_MAX: Final = 1024
#: The excess tolerated until publishers have heard that they must wait.
BLOCKING_SLACK_BYTES: Final = 16 * 1024 * 1024
#: Patterns of one tunnel. Too small: nodes that follow many topics are refused; too large: memory that one node may take.
PATTERNS_MAX: Final = 10_000
#: The timeout (seconds) of a pattern's confirmation by the neighbour: shorter than the nodes' own.
TELL_TIMEOUT_S: Final = 20.0
#: How long (seconds) a leaving gateway goes on for receivers that move to another one. Too small: on long or loaded cloud links
#: they miss messages; too large: a receiver that cannot move delays the end.
HANDOVER_S: Final = 10.0


class Subscriptions:
    """The subscriptions of local nodes to topics of neighbours (other clouds), at a gateway.

    Args:
        has_others: Tells whether further gateways of the local cloud reach a neighbour.
    """

    def __init__(self, port: GatewayPort, core: FederationCore, duplexes: Duplexes, has_others: Callable[[str], bool]) -> None:
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._feeds: dict[str, dict[Feed, None]] = {}  # by neighbour
        self._flows: dict[tuple[str, str, bool], Flow] = {}  # by neighbour, rule, and whether publishers wait
        self._is_draining = False
        self._has_others = has_others
        self._leaving: dict[str, asyncio.TimerHandle] = {}  # by neighbour
        duplexes.near[SUBSCRIBE_OP] = self.serve

    async def serve(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Serve a node's tunnel until its end."""
        if self._is_draining:
            tunnel.break_off("the gateway leaves")
            return
        is_blocking = tunnel.core.headers.get(BLOCK_HEADER) is True
        feed = TunnelFeed(tunnel, alias, is_blocking, self.make_queue(is_blocking=is_blocking))
        await tunnel.send(READY)
        self.begin(feed)
        sender = self._port.loop.create_task(feed.send())
        try:
            while True:
                self._handle(feed, await tunnel.receive(max_bytes=items.PATTERNS_MAX * 256 + 64))
        except ItemError as exc:
            tunnel.break_by(exc)
        finally:
            sender.cancel()
            for task in feed.tellings.values():
                task.cancel()
            self.end(feed)

    def begin(self, feed: Feed) -> None:
        """Start serving a feed (receiver of a neighbour's topics)."""
        self._feeds.setdefault(feed.alias, {})[feed] = None

    def end(self, feed: Feed) -> None:
        """Stop serving a feed (receiver of a neighbour's topics)."""
        self._feeds[feed.alias].pop(feed)
        for name in list(feed.plans):
            self._drop(feed, name)
        feed.queue.close()

    def handle_changed(self, alias: str) -> None:
        """Plan all patterns again after a change of a neighbour's exports, bundles or imports."""
        for flow in [flow for flow in self._flows.values() if flow.alias == alias]:
            flow.handle_changed()
        for feed in list(self._feeds.get(alias, ())):
            for name in list(feed.plans):
                self._plan_anew(feed, name)

    def drain(self) -> None:
        """Make subscribed nodes move to other gateways; serve the nodes meanwhile, for at most ``HANDOVER_S``."""
        self._is_draining = True
        for alias in self._feeds:
            self._leave(alias)

    def close(self) -> None:
        """End all subscriptions and flows at once."""
        self._is_draining = True
        for timer in self._leaving.values():
            timer.cancel()
        for feeds in self._feeds.values():
            for feed in list(feeds):
                feed.end("the gateway leaves")
        for flow in list(self._flows.values()):
            flow.abort()

    def _leave(self, alias: str) -> None:
        """Make the receivers of a neighbour's topics move to other gateways."""
        if alias in self._leaving:
            return
        for feed in list(self._feeds.get(alias, ())):
            feed.leave()
        delay_s = HANDOVER_S if self._has_others(alias) else 0.0
        self._leaving[alias] = self._port.loop.call_later(delay_s, self._handle_left, alias)

    def _handle_left(self, alias: str) -> None:
        """End the remaining receivers."""
        del self._leaving[alias]
        if self._is_draining or not self._core.is_usable(alias, self._port.loop.time()):
            for feed in list(self._feeds.get(alias, ())):
                feed.end("the gateway leaves" if self._is_draining else f"this gateway no longer reaches the cloud {alias!r}")

    # -- what nodes say

    def _handle(self, feed: TunnelFeed, message: bytes) -> None:
        kind = message[0] if message else 0
        if kind in (items.ADD, items.FLUSH) and len(feed.tellings) >= PATTERNS_MAX:
            raise ItemError("more queries than patterns")
        if kind == items.ADD:
            request, names = items.decode_add(message)
            # Add patterns here, not in the task: a REMOVE may follow immediately.
            error = next((error for name in names if (error := self.add(feed, name)) is not None), None)
            key = names[0]
            task = self._port.loop.create_task(self._tell(feed, request, names, error))
            feed.tellings[key] = task
            task.add_done_callback(lambda done: _forget(feed.tellings, key, done))
        elif kind == items.REMOVE:
            for name in items.decode_remove(message):
                if name in feed.plans:
                    self._drop(feed, name)
        elif kind == items.FLUSH:
            number = items.decode_flush(message)
            if number in feed.tellings:
                raise ItemError("a question that is already open")
            task = feed.tellings[number] = self._port.loop.create_task(self._flush(feed, number))
            task.add_done_callback(lambda done: _forget(feed.tellings, number, done))

    def add(self, feed: Feed, name: str) -> Refusal | None:
        """Add a pattern to a feed; return the refusal, if refused."""
        if name in feed.plans:
            return None
        if len(feed.plans) >= PATTERNS_MAX:
            return Refusal(Overloaded(name))
        try:
            plan = self._plan(feed.alias, name, is_blocking=feed.is_blocking)
        except Refusal as refusal:
            return refusal
        feed.plans[name] = {}
        self._follow(feed, name, plan)
        return None

    async def _flush(self, feed: TunnelFeed, number: int) -> None:
        """Answer a node's FLUSH message behind all publications received by the neighbour's gateways so far."""
        flows = {flow for plan in feed.plans.values() for flow in plan}
        await asyncio.gather(*(flow.flush() for flow in flows))
        try:
            feed.queue.mark(items.encode_flush(items.FLUSHED, number))
        except ItemError as exc:
            feed.tunnel.break_by(exc)

    async def _tell(self, feed: TunnelFeed, request: int, names: list[str], refusal: Refusal | None) -> None:
        """Answer a node's ADD message after the neighbour has answered for all patterns of the message."""
        try:
            if refusal is None:
                refusal = await self.wait_until_known(feed, names)
            if refusal is not None:
                for name in names:
                    if name in feed.plans:
                        self._drop(feed, name)
            await feed.tunnel.send(items.encode_added(request, READY if refusal is None else refusal.outcome))
        except (TunnelBroken, TunnelClosed):
            pass
        except BaseException as exc:
            if not is_cancelled(exc):
                logger.error("gateway_failed", "telling %r of a subscription failed", feed.tunnel, about=feed.alias, error=exc)
                feed.end("the gateway has failed")
            raise

    async def wait_until_known(self, feed: Feed, names: list[str]) -> Refusal | None:
        """Wait until the neighbour has confirmed patterns of a feed; return the refusal, if refused."""
        try:
            async with asyncio.timeout(TELL_TIMEOUT_S):
                for name in names:
                    for flow, patterns in list(feed.plans.get(name, {}).items()):
                        await flow.wait_until_known(patterns)
        except TimeoutError:
            return Refusal(CloudUnavailable(names[0]))
        except Refusal as refusal:
            return refusal
        return None

    # -- what is wanted of whom

    def _plan(self, alias: str, name: str, *, is_blocking: bool) -> dict[str, set[Tokens]]:
        """Split a pattern among the rules of a neighbour.

        Raises:
            Refusal: No part of the pattern is available.
        """
        try:
            tokens = parse_pattern(name)
        except ValueError as exc:
            raise Refusal(ConfigurationError(str(exc))) from exc
        neighbour = self._core.lines.neighbours.get(alias)
        now = self._port.loop.time()
        imported = [
            both
            for rule in self._core.imports_overlapping(alias, name)
            if (both := intersection(tokens, rule.outside_tokens)) is not None
        ]
        if not imported:
            raise Refusal(NotExported(name))
        if neighbour is None or not neighbour.is_usable(now):
            raise Refusal(CloudUnavailable(name))
        plan: dict[str, set[Tokens]] = {}
        exports = {parse_pattern(pattern): allow for pattern, allow in _exports(neighbour, name, now).items()}
        for exported, allow in exports.items():
            if not allow & messages.ALLOW_SUBSCRIBE:
                continue
            before = [other for other in exports if specificity(other) < specificity(exported)]
            parts = {part for both in imported if (part := intersection(both, exported)) is not None}
            parts = {part for part in parts if not any(covers(other, part) for other in before)}  # under a more specific rule
            if parts:
                plan[".".join(exported)] = parts
            if parts and is_blocking and not allow & messages.ALLOW_BLOCK:
                raise Refusal(
                    ConfigurationError(
                        f"the cloud {alias!r} does not let subscribers here make its publishers to {'.'.join(exported)!r} "
                        "wait. Choose another policy than 'block', or ask the operators of that cloud for block = true in "
                        "the [[export]]."
                    )
                )
        if not plan:
            raise Refusal(NotExported(name))
        return plan

    def _follow(self, feed: Feed, name: str, plan: dict[str, set[Tokens]]) -> None:
        """Move a feed's pattern to other rules: add it to new flows, then remove it from flows outside the plan."""
        before = feed.plans[name]
        after: dict[Flow, set[Tokens]] = {}
        for rule, patterns in plan.items():
            flow = self._flow(feed.alias, rule, feed.is_blocking)
            after[flow] = patterns
            for pattern in patterns - before.get(flow, set()):
                flow.add(feed, pattern)
        for flow, patterns in before.items():
            for pattern in patterns - after.get(flow, set()):
                flow.remove(feed, pattern)
        feed.plans[name] = after

    def _drop(self, feed: Feed, name: str) -> None:
        """Remove a pattern of a feed from all its flows."""
        self._follow(feed, name, {})
        del feed.plans[name]

    def _plan_anew(self, feed: Feed, name: str) -> None:
        try:
            plan = self._plan(feed.alias, name, is_blocking=feed.is_blocking)
        except Refusal as refusal:
            if self._core.is_left(feed.alias, self._port.loop.time()):
                self._leave(feed.alias)  # the cloud link still works
            elif not self._core.is_usable(feed.alias, self._port.loop.time()):
                feed.end(f"this gateway no longer reaches the cloud {feed.alias!r}")
            elif name not in feed.tellings:  # a waiting ADD gets its own answer
                self._drop(feed, name)
                feed.lose(name, refusal.outcome)
            return
        if plan != {flow.rule: patterns for flow, patterns in feed.plans[name].items()}:
            self._follow(feed, name, plan)

    def _flow(self, alias: str, rule: str, is_blocking: bool) -> Flow:
        key = alias, rule, is_blocking
        flow = self._flows.get(key)
        if flow is None or flow.is_over:
            flow = self._flows[key] = Flow(self._port, self._core, self._duplexes, alias, rule, is_blocking, self._forget_flow)
        return flow

    def _forget_flow(self, flow: Flow) -> None:
        key = flow.alias, flow.rule, flow.is_blocking
        if self._flows.get(key) is flow:
            del self._flows[key]

    def make_queue(self, *, is_blocking: bool) -> ItemQueue:
        """Return a queue for a feed."""

        def count_drop(count: int) -> None:
            self._core.count_drop("feed_full", count)

        if is_blocking:
            return ItemQueue(BLOCKING_BYTES_MAX, BLOCKING_MESSAGES_MAX, count_drop, slack_bytes=BLOCKING_SLACK_BYTES)
        return ItemQueue(FEED_BYTES_MAX, FEED_MESSAGES_MAX, count_drop)


def _exports(neighbour: Neighbour, name: str, now: float) -> dict[str, int]:
    """Return a neighbour's rules for topics that overlap a pattern, with the uses allowed by any gateway of the neighbour."""
    found: dict[str, int] = {}
    for bundle in neighbour.usable(now):
        offer = neighbour.offers.get(bundle)
        for entry in () if offer is None else offer.overlapping(name):
            found[entry.pattern] = found.get(entry.pattern, 0) | entry.allow
    return found


def _forget(tasks: dict[str | int, asyncio.Task[None]], key: str | int, task: asyncio.Task[None]) -> None:
    if tasks.get(key) is task:
        del tasks[key]
