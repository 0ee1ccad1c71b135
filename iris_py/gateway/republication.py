"""Topics of other clouds republished under a local name, for all local subscribers (docs/design.md 15.67).

For each import, one of the gateways with a link to the other cloud republishes, and the others stand by. Rendezvous hashing
over the members of the gateways' cluster makes the choice, so that all gateways agree without an election. If two gateways
briefly republish the same topic, subscribers drop the duplicates by origin and number.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import ConfigurationError, IrisError, MessageTooLarge
from iris_py.federation.names import gateway_cluster
from iris_py.gateway.imports import Feed
from iris_py.logs import EventLogger
from iris_py.peers.keyed_members import first_of, slot_of
from iris_py.wire.headers import decode_headers, visible_headers
from iris_py.wire.imported import Imported

if TYPE_CHECKING:
    from iris_py.federation.items import Item
    from iris_py.federation.rules import ImportRule
    from iris_py.federation.settings import FederationSettings
    from iris_py.gateway.imports import ItemQueue
    from iris_py.gateway.port import GatewayPort
    from iris_py.gateway.subscriptions import Subscriptions

logger = EventLogger("iris_py.federation")

#: The period (seconds) of checking which gateway republishes. Too small: a few microseconds for each import; too large: after
#: the end of a gateway, publications stop for this long.
LOOK_S: Final = 0.25
#: The pause (seconds) after a refusal, unless bundles or exports change.
RETRY_S: Final = 5.0


class Republished(Feed):
    """One import of topics, while this gateway republishes it under the local name.

    Attributes:
        rule: The import.
        is_over: Whether the republication has ended and must start anew.
    """

    def __init__(self, rule: ImportRule, alias: str, port: GatewayPort, queue: ItemQueue) -> None:
        super().__init__(alias, False, queue)
        self.rule = rule
        self.is_over = False
        self._port = port
        self._task = asyncio.get_running_loop().create_task(self._publish())

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
        self._task.cancel()

    async def _publish(self) -> None:
        """Publish the queue in order; a failed publication becomes a gap in front of the next."""
        rule = self.rule
        try:
            while True:
                for item in await self.queue.take():
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
        visible, number, gap = visible_headers(headers) if headers else None, item.number, item.gap
        for payload in item.payloads:
            try:
                await self._port.publish_imported(
                    topic,
                    payload,
                    Imported(item.origin, item.sequence, number, gap, self.alias),
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
    """

    def __init__(self, port: GatewayPort, subscriptions: Subscriptions) -> None:
        self._port = port
        self._subscriptions = subscriptions
        self._loop = asyncio.get_running_loop()
        self._rules: dict[tuple[str, str], ImportRule] = {}  # by neighbour and exported pattern
        self._feeds: dict[tuple[str, str], Republished] = {}
        self._refused_until: dict[tuple[str, str], float] = {}
        self._task: asyncio.Task[None] | None = None

    def load(self, settings: FederationSettings) -> None:
        """Republish exactly the settings' topic imports with a local name."""
        rules = [rule for rule in settings.imports if rule.kind == "topic" and rule.local]
        self._rules = {(alias, rule.outside): rule for rule in rules for alias in rule.clouds}
        self._refused_until.clear()
        for key in [key for key, feed in self._feeds.items() if self._rules.get(key) != feed.rule]:
            self._end(key)
        if self._rules and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())

    def handle_changed(self, alias: str) -> None:
        """Retry refused imports after a change of a neighbour's bundles or exports."""
        for key in [key for key in self._refused_until if key[0] == alias]:
            del self._refused_until[key]

    def close(self) -> None:
        """Stop all republication here; another gateway takes over."""
        self._rules = {}
        if self._task is not None:
            self._task.cancel()
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
        for key, rule in self._rules.items():
            feed, is_own = self._feeds.get(key), self._is_own(key, now)
            if feed is not None and (feed.is_over or not is_own):
                self._end(key)
            if is_own and key not in self._feeds and now >= self._refused_until.get(key, 0.0):
                self._begin(key, rule, now)

    def _is_own(self, key: tuple[str, str], now: float) -> bool:
        """Tell whether this gateway republishes an import, in its own view of the cluster."""
        alias, outside = key
        group = self._port.watch(gateway_cluster(alias), now)
        if not group.targets:
            return False
        chosen = hashlib.blake2b(f"{alias} {outside}".encode(), digest_size=16).digest()
        return first_of(group.targets, slot_of(chosen)).peer.is_local

    def _begin(self, key: tuple[str, str], rule: ImportRule, now: float) -> None:
        feed = Republished(rule, key[0], self._port, self._subscriptions.make_queue(is_blocking=False))
        self._subscriptions.begin(feed)
        self._feeds[key] = feed
        refusal = self._subscriptions.add(feed, rule.outside)
        if refusal is not None:
            self._end(key)
            self._refused_until[key] = now + RETRY_S

    def _end(self, key: tuple[str, str]) -> None:
        feed = self._feeds.pop(key)
        feed.stop()
        self._subscriptions.end(feed)
