"""Topics of other clouds republished under a local name, for all local subscribers (docs/design.md 15.67).

For each import, one of the gateways with a link to the other cloud republishes, and the others stand by. Rendezvous hashing
over the members of the gateways' cluster makes the choice, so that all gateways agree without an election. If two gateways
briefly republish the same topic, subscribers drop the duplicates by origin and number.

When the choice changes, the former gateway hands the import over by a tunnel to the chosen gateway. The chosen gateway
subscribes, and holds the received publications. Then the former gateway publishes all received publications, stops, tells the
last published numbers of the sequences, and ends the tunnel. The chosen gateway publishes the held publications. Subscribers
know the first publications already, and no publication is missing. Groups do not get the publications up to the last
published number, because members of a group do not know the numbers of other members.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING, Final

from iris_py.api.cloud.duplex import DuplexRequest
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import ConfigurationError, IrisError, MessageTooLarge, NotExported, TunnelBroken, TunnelClosed
from iris_py.federation import items
from iris_py.federation.names import NAME_HEADER, gateway_cluster
from iris_py.gateway.duplex import READY, Refusal
from iris_py.gateway.imports import Feed
from iris_py.logs import EventLogger
from iris_py.patterns.topic.imported_sequences import SEQUENCES_MAX, GapBook
from iris_py.peers.keyed_members import first_of, slot_of
from iris_py.wire.headers import decode_headers, visible_headers
from iris_py.wire.imported import Imported

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.items import Item
    from iris_py.federation.rules import ImportRule
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.duplex import Duplexes
    from iris_py.gateway.item_queues import ItemQueue
    from iris_py.gateway.port import GatewayPort
    from iris_py.gateway.subscriptions import Subscriptions

logger = EventLogger("iris_py.federation")

#: The period (seconds) of checking which gateway republishes. Too small: a few microseconds for each import; too large: after
#: the end of a gateway, publications stop for this long.
LOOK_S: Final = 0.25
#: The pause (seconds) after a refusal, unless bundles or exports change.
RETRY_S: Final = 5.0
#: How long (seconds) a chosen gateway waits for the former one to hand over. Too small: a former one that is slow to see the
#: choice publishes old messages behind newer ones, and subscribers drop them; too large: after the death of the former one,
#: messages come so much later.
HOLD_S: Final = 0.5
#: How long (seconds) a gateway that has taken an import over keeps it though its view chooses another one: the view is late.
KEPT_S: Final = 5.0
#: The operation of a tunnel by which a gateway hands an import over.
TAKE_OVER_OP: Final = "take-over"


class Republished(Feed):
    """An import of topics, while the gateway republishes the import under the local name.

    Args:
        book: The gaps of the import. The book outlives the republication: subscribers do not notice a new start.

    Attributes:
        rule: The import.
        is_over: Whether the republication has ended and must start anew.
        kept_until: The time until which the gateway publishes without being chosen.
    """

    def __init__(self, rule: ImportRule, alias: str, port: GatewayPort, queue: ItemQueue, book: GapBook) -> None:
        super().__init__(alias, False, queue)
        self.rule = rule
        self.is_over = False
        self.kept_until = 0.0
        self._port = port
        self._book = book
        self._repeated: dict[bytes, int] = {}  # the last numbers that the former gateway has published
        self._released = asyncio.Event()
        self._is_finished = False  # the publications received so far are published, and no further ones are
        self._release_timer: asyncio.TimerHandle | None = None
        self._task = port.loop.create_task(self._publish())

    def hold(self, hold_s: float | None) -> None:
        """Hold publications until :meth:`release`, at most for a time (seconds), if given."""
        if self._release_timer is not None:
            self._release_timer.cancel()
        self._release_timer = None if hold_s is None else self._port.loop.call_later(hold_s, self.release)

    def release(self) -> None:
        """Publish the held publications, and from now on all publications at once."""
        self._released.set()

    def repeat(self, lasts: dict[bytes, int]) -> None:
        """Note the last numbers published by the former gateway, by origin and sequence. Groups have the messages."""
        for key, number in lasts.items():
            if key in self._repeated or len(self._repeated) < SEQUENCES_MAX:
                self._repeated[key] = max(number, self._repeated.get(key, number))

    async def finish(self) -> list[tuple[bytes, int]]:
        """Publish all publications received by the neighbour's gateways so far, and stop.

        Returns:
            The last published numbers, by origin and sequence; empty if publishing has failed.
        """
        for flow in {flow for plan in self.plans.values() for flow in plan}:
            await flow.flush()
        self.queue.mark(b"")
        await asyncio.wait([self._task])
        return self._book.last_numbers() if self._is_finished else []

    def leave(self) -> None:
        """Leave the import to :class:`Republishing`: the choice changes when the gateway leaves the cluster."""

    def lose(self, name: str, outcome: bytes) -> None:
        """Mark the republication for a new start after the loss of its pattern, which may become available again."""
        del name, outcome
        self.is_over = True

    def end(self, reason: str) -> None:
        """Mark the republication for a new start."""
        del reason
        self.is_over = True

    def stop(self) -> None:
        """Stop republishing this import."""
        self.hold(None)
        self._task.cancel()

    async def _publish(self) -> None:
        """Publish the queue in order; a failed publication becomes a gap in front of the next."""
        rule = self.rule
        try:
            await self._released.wait()
            while True:
                taken = await self.queue.take()
                if isinstance(taken, bytes):
                    self._is_finished = True
                    return
                for item in taken:
                    await self._publish_run(item)
        except IrisError as exc:
            logger.info(
                "republishing_ended",
                "%r of %r is no longer published here: %s",
                rule.outside,
                self.alias,
                exc,
                about=f"{rule.outside}@{self.alias}",
                cloud=self.alias,
                reason=str(exc),
            )
        except BaseException as exc:
            if not is_cancelled(exc):
                logger.error(
                    "gateway_failed",
                    "publishing %r of %r here failed",
                    rule.outside,
                    self.alias,
                    about=f"{rule.outside}@{self.alias}",
                    error=exc,
                    cloud=self.alias,
                )
            raise
        finally:
            self.is_over = True

    async def _publish_run(self, item: Item) -> None:
        topic, headers = self.rule.to_local(item.topic), decode_headers(item.headers)
        if topic is None or headers is None:
            self._miss(item, len(item.payloads), item.gap, "malformed_items")
            return
        visible, number = visible_headers(headers) if headers else None, item.number
        key = item.origin + item.sequence
        repeated = max(self._book.last_number(key), self._repeated.get(key, -1))  # known by a former path, or gateway
        gap = self._book.pass_on(item.origin, item.sequence, number, len(item.payloads), item.gap)
        for payload in item.payloads:
            try:
                await self._port.publish_imported(
                    topic,
                    payload,
                    Imported(item.origin, item.sequence, number, gap, self.alias, is_repeated=number <= repeated),
                    visible,
                )
            except (MessageTooLarge, ConfigurationError):
                self._miss(item, 1, gap, "republishing_refused")
            number, gap = number + 1, 0

    def _miss(self, item: Item, count: int, gap: int, reason: str) -> None:
        self._port.count_drop(reason, count)
        self._port.miss_imported(item.origin, item.sequence, count + gap)


class Republishing:
    """The imports of topics under a local name, at a gateway.

    Args:
        subscriptions: The subscriptions, which receive the other cloud's publications.
        has_others: Tells whether further gateways of the local cloud reach a neighbour.
    """

    def __init__(
        self, port: GatewayPort, subscriptions: Subscriptions, duplexes: Duplexes, has_others: Callable[[str], bool]
    ) -> None:
        self._port = port
        self._subscriptions = subscriptions
        self._has_others = has_others
        self._loop = asyncio.get_running_loop()
        self._rules: dict[tuple[str, str], ImportRule] = {}  # by neighbour and exported pattern
        self._feeds: dict[tuple[str, str], Republished] = {}
        self._books: dict[tuple[str, str], GapBook] = {}
        self._refused_until: dict[tuple[str, str], float] = {}
        self._alone_from: dict[str, float] = {}  # by neighbour: when a former gateway that has left can publish no more
        self._task: asyncio.Task[None] | None = None
        self._moves: dict[tuple[str, str], asyncio.Task[None]] = {}  # imports that are being handed over
        self._is_draining = False
        duplexes.near[TAKE_OVER_OP] = self.serve

    async def serve(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Take an import over from another gateway of the local cloud.

        Raises:
            Refusal: The gateway cannot publish the import.
        """
        key = alias, str(tunnel.core.headers.get(NAME_HEADER, ""))
        rule = self._rules.get(key)
        if rule is None or self._is_draining:
            raise Refusal(NotExported(key[1]))
        if key not in self._feeds and not self._begin(key, rule, self._loop.time()):
            raise Refusal(NotExported(key[1]))
        feed = self._feeds[key]
        feed.kept_until = self._loop.time() + KEPT_S
        feed.hold(None)
        try:
            refusal = await self._subscriptions.wait_until_known(feed, [rule.outside])
            if refusal is not None:
                raise refusal
            await tunnel.send(READY)
            while True:
                message = await tunnel.receive(max_bytes=items.ITEM_MESSAGE_BYTES)
                if message and message[0] == items.PUBLISHED:
                    feed.repeat(items.decode_published(message))
        except (TunnelBroken, TunnelClosed):
            pass  # the other gateway has stopped, in order or not
        except (items.ItemError, MessageTooLarge) as exc:
            self._port.count_drop("malformed_items")
            tunnel.break_by(exc)
        finally:
            feed.release()

    def load(self, settings: FederationSettings) -> None:
        """Republish exactly the settings' topic imports with a local name."""
        rules = [rule for rule in settings.imports if rule.kind == "topic" and rule.local]
        self._rules = {(alias, rule.outside): rule for rule in rules for alias in rule.clouds}
        self._refused_until.clear()
        self._books = {key: book for key, book in self._books.items() if key in self._rules}
        for key in [key for key, feed in self._feeds.items() if self._rules.get(key) != feed.rule]:
            self._end(key)
        if self._rules and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())

    def handle_changed(self, alias: str) -> None:
        """Retry refused imports after a change of a neighbour's bundles or exports."""
        for key in [key for key in self._refused_until if key[0] == alias]:
            del self._refused_until[key]

    async def drain(self, timeout: float) -> None:
        """Hand all imports over, when the choice has changed; stop the rest after a timeout (seconds)."""
        self._is_draining = True
        if self._task is not None:
            self._task.cancel()
        ends_at = self._loop.time() + timeout
        while self._loop.time() < ends_at and (self._moves or any(self._has_others(alias) for alias, _outside in self._feeds)):
            self._look()
            await asyncio.sleep(LOOK_S)
        self.close()

    def close(self) -> None:
        """Stop all republication here."""
        self._rules = {}
        if self._task is not None:
            self._task.cancel()
        for move in self._moves.values():
            move.cancel()
        for key in list(self._feeds):
            self._end(key)

    def status(self) -> list[dict[str, object]]:
        """Return the imports as plain values, and whether this gateway republishes them."""
        return [
            {"cloud": alias, "topic": outside, "as": rule.local, "is_published": (alias, outside) in self._feeds}
            for (alias, outside), rule in self._rules.items()
        ]

    # --

    async def _run(self) -> None:
        while self._rules:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        """Start and stop imports according to the gateway's present share."""
        now = self._loop.time()
        for alias in {alias for alias, _outside in self._rules if self._has_others(alias)}:
            self._alone_from[alias] = now + KEPT_S
        for key, rule in self._rules.items():
            feed, is_own = self._feeds.get(key), self._is_own(key, now)
            if feed is not None and feed.is_over:
                self._end(key)
            elif feed is not None and feed.queue.is_full:
                feed.release()
            if feed is not None and is_own:
                feed.kept_until = now
            if feed is not None and not is_own and (now >= feed.kept_until or self._is_draining):
                self._move(key, feed)
            if is_own and key not in self._feeds and now >= self._refused_until.get(key, 0.0) and not self._is_draining:
                self._begin(key, rule, now)

    def _is_own(self, key: tuple[str, str], now: float) -> bool:
        """Tell whether this gateway republishes an import, in its own view of the cluster."""
        alias, outside = key
        group = self._port.watch(gateway_cluster(alias), now)
        if not group.targets:
            return False
        chosen = hashlib.blake2b(f"{alias} {outside}".encode(), digest_size=16).digest()
        return first_of(group.targets, slot_of(chosen)).peer.is_local

    def _move(self, key: tuple[str, str], feed: Republished) -> None:
        """Hand an import over to the chosen gateway."""
        if key not in self._moves and not feed.is_over:
            task = self._moves[key] = self._loop.create_task(self._hand_over(key, feed))
            task.add_done_callback(lambda _task: self._moves.pop(key, None))

    async def _hand_over(self, key: tuple[str, str], feed: Republished) -> None:
        alias, outside = key
        request = DuplexRequest(op=TAKE_OVER_OP, name=f"{outside}@{alias}", further={NAME_HEADER: outside}, anchor=outside)
        try:
            tunnel = await self._port.open_duplex(request)
        except IrisError:
            return  # tried again, and published here meanwhile
        lasts: list[tuple[bytes, int]] = []
        try:
            lasts = await feed.finish()
        finally:
            if self._feeds.get(key) is feed:
                self._end(key)
            if not lasts:
                tunnel.leave()
        with contextlib.suppress(TunnelBroken, TunnelClosed):
            for start in range(0, len(lasts), items.SEQUENCES_MAX):
                await tunnel.send(items.encode_published(lasts[start : start + items.SEQUENCES_MAX]))
            await tunnel.close()

    def _begin(self, key: tuple[str, str], rule: ImportRule, now: float) -> bool:
        """Begin to republish an import; return whether the gateway can."""
        book = self._books.setdefault(key, GapBook())
        book.change_upstream()
        feed = Republished(rule, key[0], self._port, self._subscriptions.make_queue(is_blocking=False), book)
        self._subscriptions.begin(feed)
        self._feeds[key] = feed
        refusal = self._subscriptions.add(feed, rule.outside)
        if refusal is not None:
            self._end(key)
            self._refused_until[key] = now + RETRY_S
            return False
        feed.hold(HOLD_S if now < self._alone_from.get(key[0], 0.0) else 0.0)
        return True

    def _end(self, key: tuple[str, str]) -> None:
        feed = self._feeds.pop(key)
        feed.stop()
        self._subscriptions.end(feed)
