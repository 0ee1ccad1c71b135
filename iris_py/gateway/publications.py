"""Publications and broadcasts from one cloud to another, at the gateways of both (docs/design.md 15.75).

*Near*: all local nodes share one channel for each rule of the neighbour, an :class:`Outlet`. Origin and sequence are the
pseudonym of the node and the rule, so the channel keeps the order of every sequence. *Far*: a :class:`PublicationListener`
serves one channel. A publication keeps its origin, by which subscribers distinguish publishers; a broadcast goes to the
members.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.api.cloud.publications import PUBLISH_OP, RESUMES_HEADER
from iris_py.api.handler_exceptions import is_cancelled
from iris_py.errors import CloudUnavailable, IrisError, MemberLost, NotExported, Overloaded, TunnelBroken, TunnelClosed
from iris_py.federation import items, messages
from iris_py.federation.calls import encode_outcome
from iris_py.federation.items import Item, ItemError
from iris_py.federation.openings import ChannelRequest
from iris_py.gateway.duplex import READY, Refusal, wait_for_limits
from iris_py.gateway.privacy import passed_headers
from iris_py.logs import EventLogger
from iris_py.patterns.topic.imported_sequences import GapBook
from iris_py.wire.headers import CLOUD_HEADER, NO_HEADERS, NUMBER_HEADER, ORIGIN_HEADER, Headers, decode_headers, encode_headers
from iris_py.wire.imported import SEQUENCE_BYTES, UNKNOWN_GAP, Imported

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from iris_py.api.cloud.duplex import GatewayTunnel
    from iris_py.federation.bundle import Bundle
    from iris_py.federation.core import FederationCore
    from iris_py.federation.events import ChannelOffer
    from iris_py.federation.messages import CatalogueEntry
    from iris_py.federation.rules import ExportRule
    from iris_py.gateway.duplex import Channel, Duplexes
    from iris_py.gateway.port import GatewayPort
    from iris_py.gateway.topic_exports import NodePseudonyms
    from iris_py.wire.headers import HeaderValue

logger = EventLogger("iris_py.federation")

#: The timeout (seconds) for opening a channel.
OPEN_TIMEOUT_S: Final = 10.0
#: How long (seconds) the end of a channel waits without progress for the peer to consume the data; new publications wait
#: meanwhile.
CLOSE_TIMEOUT_S: Final = 5.0
#: The idle time (seconds) after which a channel is closed.
REST_S: Final = 60.0
#: Sequences remembered for a channel. Beyond, the oldest is forgotten, and its losses are not reported.
SEQUENCES_MAX: Final = 8192
#: Outlets, one for each used rule: as many as all neighbours may have rules. Beyond, idle outlets are forgotten.
OUTLETS_MAX: Final = 4096
#: Publications outside of the rule before a neighbour's bundle is closed. Too small: a neighbour that reloads its rules at a
#: bad moment is shut out; too large: a hostile neighbour tries names for long.
VIOLATIONS_MAX: Final = 100

Tell: TypeAlias = "Callable[[int, bytes], None]"


class Outlet:
    """The channel to one rule of a neighbour, shared by all local nodes.

    Args:
        kind: The kind of the rule: ``CLUSTER`` or ``TOPIC``.
        rule: The pattern of the rule, as in the catalogue.
    """

    def __init__(self, port: GatewayPort, core: FederationCore, duplexes: Duplexes, alias: str, kind: int, rule: str) -> None:
        self.sequence = hashlib.blake2b(f"{kind} {rule}".encode(), digest_size=SEQUENCE_BYTES).digest()
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._alias = alias
        self._kind = kind
        self._rule = rule
        self._channel: Channel | None = None
        self._bundle: Bundle | None = None
        self._reader: asyncio.Task[None] | None = None
        self._said: dict[bytes, Tell] = {}  # by origin, for origins with messages on the present channel
        self._book = GapBook()
        self._answers: dict[tuple[bytes, int], Tell] = {}
        self._lock = asyncio.Lock()
        self._used_at = 0.0
        self._resting: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def say(self, said: Item, tell: Tell) -> None:
        """Send publications or a broadcast to the neighbour; return when the channel has accepted the data.

        Args:
            said: The item; its sequence and gap are set here.
            tell: Called with the number and the outcome (count of receivers, or error) of a publication.

        Raises:
            Refusal: No bundle is usable, and nothing was sent.
        """
        async with self._lock:
            channel = await self._ready_channel(said.topic)
            answers, book, origin, number = self._answers, self._book, said.origin, said.number
            said.sequence = self.sequence
            if not said.flags & items.ASKED:
                said.gap = book.pass_on(origin, self.sequence, number, len(said.payloads), said.gap)
            if said.flags & items.ANSWERED:
                answers[origin, number] = tell
            if origin not in self._said and len(self._said) >= SEQUENCES_MAX:
                del self._said[next(iter(self._said))]
            self._said[origin] = tell
            try:
                await channel.send(items.encode_items(items.SAY, (said,)))
            except (TunnelBroken, TunnelClosed):  # not sent as a whole, so the item is lost
                if not said.flags & items.ASKED:
                    book.owe(origin, self.sequence, len(said.payloads) + said.gap)
                if answers.pop((origin, number), None) is not None:
                    tell(number, encode_outcome(MemberLost(said.topic, "")))
            self._used_at = self._port.loop.time()

    @property
    def is_open(self) -> bool:
        """Whether a channel is open."""
        return self._channel is not None

    def owe(self, origin: bytes, count: int) -> None:
        """Note lost messages of an origin (publishing node), for the gap of its next item."""
        self._book.owe(origin, self.sequence, count)

    def look(self) -> None:
        """Close the channel of a bundle that gets no new work; for a draining bundle, after the peer has consumed the data."""
        bundle, channel = self._bundle, self._channel
        if bundle is None or channel is None or bundle.is_usable(self._port.loop.time()):
            return
        if bundle.is_going:
            self.end_soon()
        else:
            channel.break_off("the cloud link is silent")

    def close(self) -> None:
        """Break the channel at once."""
        for handle in (self._resting, self._reader, self._ending):
            if handle is not None:
                handle.cancel()
        if self._channel is not None:
            self._channel.break_off("the gateway was closed")

    # --

    async def _ready_channel(self, name: str) -> Channel:
        channel = self._channel
        if channel is not None and channel.failure is None and not channel.core.is_ended:
            return channel
        if channel is not None:
            self._drop(channel)
        bundle, entry = self._choose(name)
        deadline = self._port.loop.time() + OPEN_TIMEOUT_S
        asked = "" if self._kind == messages.TOPIC else name
        request = ChannelRequest(entry.rule, messages.PUBLISH, asked, NO_HEADERS, self._options)
        channel = await self._duplexes.open_at(bundle, request, deadline)
        self._channel, self._bundle, self._answers = channel, bundle, {}
        self._reader = self._port.loop.create_task(self._read(channel, self._answers))
        if self._resting is None:
            self._schedule_rest()
        return channel

    @property
    def _options(self) -> bytes:
        return self._rule.encode()

    def _choose(self, name: str) -> tuple[Bundle, CatalogueEntry]:
        neighbour, now = self._core.lines.neighbours.get(self._alias), self._port.loop.time()
        if neighbour is None or not neighbour.is_usable(now):
            raise Refusal(CloudUnavailable(name))
        ways = [
            (bundle, entry)
            for bundle in neighbour.usable(now)
            if (offer := neighbour.offers.get(bundle)) is not None
            for entry in offer.entries.values()
            if entry.kind == self._kind and entry.pattern == self._rule and entry.allow & messages.NEEDED[messages.PUBLISH]
        ]
        if not ways:
            raise Refusal(NotExported(name))
        return min(ways, key=lambda way: (len(way[0].channel_ends()), way[0].load()))

    def _drop(self, channel: Channel) -> None:
        """Give up a broken channel, and note possible losses for each origin with messages on the channel."""
        if self._channel is channel:
            self._channel = self._bundle = None
            for origin in self._said:
                self.owe(origin, UNKNOWN_GAP)
            self._said.clear()

    async def _read(self, channel: Channel, answers: dict[tuple[bytes, int], Tell]) -> None:
        try:
            while True:
                message = await channel.receive(max_bytes=items.OUTCOME_BYTES_MAX + 64)
                if message[:1] == bytes((items.SAID,)):
                    origin, _sequence, number, outcome = items.decode_said(message)
                    tell = answers.pop((origin, number), None)
                    if tell is None and (tell := self._said.get(origin)) is not None:  # failed, though no answer was wanted
                        self.owe(origin, 1)
                    if tell is not None:
                        tell(number, outcome)
        except TunnelClosed:
            pass
        except TunnelBroken:
            self._drop(channel)
        except (ItemError, IrisError) as exc:
            self._core.count_drop("malformed_items")
            channel.break_by(exc)
            self._drop(channel)
        lost = encode_outcome(MemberLost(self._rule, ""))
        for (_origin, number), tell in answers.items():
            tell(number, lost)
        answers.clear()

    def _schedule_rest(self) -> None:
        loop = self._port.loop
        self._resting = loop.call_at(max(self._used_at, loop.time() - REST_S / 2) + REST_S, self._handle_rest)

    def _handle_rest(self) -> None:
        self._resting = None
        if self._channel is None:
            return
        if self._port.loop.time() >= self._used_at + REST_S and not self._answers:
            self.end_soon()
        else:
            self._schedule_rest()

    def end_soon(self) -> None:
        """End the channel after the peer has consumed the data; harmless without a channel."""
        if self._ending is None or self._ending.done():
            self._ending = self._port.loop.create_task(self._end())

    async def _end(self) -> None:
        """Close the channel after the peer has consumed all data."""
        async with self._lock:
            channel, reader = self._channel, self._reader
            if channel is None:
                return
            try:
                await channel.close(timeout=CLOSE_TIMEOUT_S)
            except TunnelBroken:
                self._drop(channel)
            if self._channel is channel:
                self._channel = self._bundle = None
                self._said.clear()
            if reader is not None:
                await reader


class Publishing:
    """Publishing and broadcasting between clouds at a gateway, in both directions."""

    def __init__(self, port: GatewayPort, core: FederationCore, duplexes: Duplexes, pseudonyms: NodePseudonyms) -> None:
        self._port = port
        self._core = core
        self._duplexes = duplexes
        self._pseudonyms = pseudonyms
        self._outlets: dict[tuple[str, int, str], Outlet] = {}
        self._tunnels: dict[GatewayTunnel, str] = {}  # by neighbour
        self._is_draining = False
        duplexes.near[PUBLISH_OP] = self.serve
        duplexes.far[messages.PUBLISH] = self.serve_neighbour

    # -- near

    async def serve(self, tunnel: GatewayTunnel, alias: str) -> None:
        """Serve a node's tunnel until its end."""
        if self._is_draining:
            tunnel.break_off("the gateway leaves")
            return
        speaker = Speaker(tunnel, alias, self._pseudonyms.origin(alias, tunnel.source))
        await tunnel.send(READY)
        self._tunnels[tunnel] = alias
        try:
            async for message in _messages(tunnel):
                if message[0] == items.SAY:
                    for item in items.decode_items(message):
                        await self._pass_on(speaker, item)
        except ItemError as exc:
            tunnel.break_by(exc)
        finally:
            del self._tunnels[tunnel]
            self._look()

    async def _pass_on(self, speaker: Speaker, item: Item) -> None:
        item.origin = speaker.origin
        try:
            outlet = self._outlet(speaker.alias, item)
            if not item.flags & items.ASKED and speaker.is_new_to(outlet):
                outlet.owe(speaker.origin, UNKNOWN_GAP)
            await outlet.say(item, speaker.tell)
        except Refusal as refusal:
            speaker.tell(item.number, refusal.outcome)
            if not item.flags & items.ANSWERED:  # the node notes the loss, and asks before its next publication
                speaker.end("no cloud link can carry it any more")

    def _outlet(self, alias: str, item: Item) -> Outlet:
        kind = messages.CLUSTER if item.flags & items.BROADCAST else messages.TOPIC
        name = item.topic
        if self._core.import_rule(alias, kind, name) is None:
            raise Refusal(NotExported(name))
        neighbour, now = self._core.lines.neighbours.get(alias), self._port.loop.time()
        if neighbour is None or not neighbour.is_usable(now):
            raise Refusal(CloudUnavailable(name))
        allow = messages.ALLOW_BROADCAST if kind == messages.CLUSTER else messages.ALLOW_PUBLISH
        way = neighbour.choose(kind, name, allow, now)
        if way is None:
            raise Refusal(NotExported(name))
        key = alias, kind, way[1].pattern
        outlet = self._outlets.get(key)
        if outlet is None:
            if len(self._outlets) >= OUTLETS_MAX:  # most are of removed rules
                self._outlets = {key: outlet for key, outlet in self._outlets.items() if outlet.is_open}
            outlet = self._outlets[key] = Outlet(self._port, self._core, self._duplexes, *key)
        return outlet

    def handle_changed(self, alias: str) -> None:
        """Handle a change of a neighbour's bundles."""
        for key, outlet in self._outlets.items():
            if key[0] == alias:
                outlet.look()
        if not self._core.is_usable(alias, self._port.loop.time()):
            for tunnel in [tunnel for tunnel, its in self._tunnels.items() if its == alias]:
                tunnel.break_off(f"this gateway no longer reaches the cloud {alias!r}")

    def drain(self) -> None:
        """Make publishing nodes move to other gateways."""
        self._is_draining = True
        for tunnel in list(self._tunnels):
            if not tunnel.try_send(bytes((items.GOING,))):
                tunnel.break_off("the gateway leaves")
        self._look()

    def _look(self) -> None:
        """End the channels of a leaving gateway when no tunnel is left."""
        if self._is_draining and not self._tunnels:
            for outlet in self._outlets.values():
                outlet.end_soon()

    def close(self) -> None:
        """End all publishing at once."""
        self._is_draining = True
        for outlet in self._outlets.values():
            outlet.close()
        for tunnel in list(self._tunnels):
            tunnel.break_off("the gateway was closed")

    # -- far

    async def serve_neighbour(self, offer: ChannelOffer) -> None:
        """Serve a neighbour's channel until its end."""
        rule = offer.rule
        if offer.open.options != rule.outside.encode():
            raise Refusal(NotExported(rule.outside))  # the rules have changed since the catalogue was sent
        channel = self._duplexes.accept(offer)
        listener = PublicationListener(self._port, self._core, offer.bundle, rule, channel)
        try:
            async for message in _messages(channel):
                if message[0] == items.SAY:
                    for item in items.decode_items(message):
                        await listener.take(item)
        except ItemError as exc:
            self._core.count_drop("malformed_items")
            channel.break_by(exc)


class Speaker:
    """A local node that publishes to a neighbour (other cloud) through one tunnel.

    Args:
        origin: The node's pseudonym for the neighbour.

    Attributes:
        alias: The neighbour.
        origin: The node's pseudonym for the neighbour.
    """

    def __init__(self, tunnel: GatewayTunnel, alias: str, origin: bytes) -> None:
        self.alias = alias
        self.origin = origin
        self._tunnel = tunnel
        self._resumes = tunnel.core.headers.get(RESUMES_HEADER) is True
        self._outlets: set[Outlet] = set()

    def is_new_to(self, outlet: Outlet) -> bool:
        """Tell whether a node that came from another gateway uses an outlet for the first time: publications may be lost."""
        is_new = self._resumes and outlet not in self._outlets
        if is_new:
            self._outlets.add(outlet)
        return is_new

    def end(self, reason: str) -> None:
        """Break the tunnel, so that the node looks for another gateway."""
        self._tunnel.break_off(reason, "CloudUnavailable", reason)

    def tell(self, number: int, outcome: bytes) -> None:
        """Send the outcome of a publication to the node."""
        if not self._tunnel.try_send(items.encode_said(number, outcome)):
            self._tunnel.break_off("the node does not read this tunnel")


class PublicationListener:
    """One channel by which a neighbour (other cloud) publishes to local topics and clusters."""

    def __init__(self, port: GatewayPort, core: FederationCore, bundle: Bundle, rule: ExportRule, channel: Channel) -> None:
        self._port = port
        self._core = core
        self._bundle = bundle
        self._rule = rule
        self._channel = channel
        self._violations = 0

    async def take(self, item: Item) -> None:
        """Publish or broadcast an item of the neighbour; report each failure, and each success if an answer is wanted."""
        try:
            await self._take(item)
        except (IrisError, ItemError):
            raise
        except BaseException as exc:
            if not is_cancelled(exc):
                logger.error(
                    "gateway_failed",
                    "publishing %r for %r failed",
                    item.topic,
                    self._bundle.alias,
                    about=self._bundle.alias,
                    error=exc,
                    cloud=self._bundle.alias,
                    name=item.topic,
                )
            raise

    async def _take(self, item: Item) -> None:
        number, gap = item.number, item.gap
        try:
            local, headers = await self._admit(item)
        except (Refusal, IrisError) as exc:
            for at in range(len(item.payloads)):  # the peer counts the losses
                await self._answer(item, number + at, exc)
            return
        for payload in item.payloads:
            answer: int | IrisError
            try:
                answer = await self._send(item, local, payload, number, gap, headers)
            except IrisError as exc:
                answer = exc
            if item.flags & items.ANSWERED or isinstance(answer, IrisError):
                await self._answer(item, number, answer)
            number, gap = number + 1, 0

    async def _answer(self, item: Item, number: int, answer: int | Refusal | IrisError) -> None:
        if isinstance(answer, Refusal):
            outcome = answer.outcome
        else:
            outcome = encode_outcome(items.encode_count(answer) if isinstance(answer, int) else answer)
        await self._channel.send(items.encode_said(number, outcome, item.origin, item.sequence))

    async def _admit(self, item: Item) -> tuple[str, Headers]:
        """Wait until the rule's limits allow an item; return the local name and the passing headers.

        Raises:
            Refusal: The rule does not allow the item, or not now.
            ItemError: The item is malformed.
        """
        rule, alias = self._current_rule(item), self._bundle.alias
        local = None if rule is None else rule.to_local(item.topic)
        if rule is None or local is None:
            self._note_violation(item)
            raise Refusal(NotExported(item.topic))
        if item.flags & items.ASKED:
            return local, NO_HEADERS
        neighbour = self._core.lines.neighbours[alias]
        limits = neighbour.export_limits[rule.number]
        if item.flags & items.BROADCAST:
            wait_s = limits.begin_use(self._port.loop.time())
            if wait_s is not None:
                raise Refusal(Overloaded(item.topic, retry_after_s=wait_s))
        size = item.payload_bytes
        await wait_for_limits(limits, size, is_out=False)
        neighbour.accounts.of_export(rule).received(len(item.payloads), size)
        headers = decode_headers(item.headers)
        if headers is None:
            raise ItemError("malformed headers")
        return local, Headers(passed) if (passed := passed_headers(headers, rule.trace)) else NO_HEADERS

    async def _send(self, item: Item, local: str, payload: bytes, number: int, gap: int, headers: Headers) -> int:
        """Publish or broadcast a payload here; return the number of receivers."""
        alias = self._bundle.alias
        if item.flags & items.ASKED:
            return 0
        if not item.flags & items.BROADCAST:
            return await self._port.publish_imported(
                local,
                payload,
                Imported(item.origin, item.sequence, number, gap, alias),
                headers or None,
            )
        own: dict[str, HeaderValue] = {CLOUD_HEADER: alias, ORIGIN_HEADER: item.origin.hex(), NUMBER_HEADER: number}
        sent = encode_headers({**headers, **own}, is_internal=True)
        return await self._port.broadcast(local, payload, sent)

    def _current_rule(self, item: Item) -> ExportRule | None:
        """Return the rule that now allows an item on this channel; None without one."""
        neighbour = self._core.lines.neighbours.get(self._bundle.alias)
        rule = None if neighbour is None else neighbour.export_for(self._rule.kind, item.topic)
        is_broadcast = bool(item.flags & items.BROADCAST)
        if rule is None or rule.outside != self._rule.outside or is_broadcast is not (rule.kind == "cluster"):
            return None
        return rule if ("broadcast" if is_broadcast else "publish") in rule.allow else None

    def _note_violation(self, item: Item) -> None:
        self._violations += 1
        core = self._core
        if item.flags & items.ASKED:
            return
        core.count_drop("not_exported")
        if self._violations == VIOLATIONS_MAX:
            core.end_bundle(self._bundle, item.topic, "publish", "not exported, again and again", self._port.loop.time())
            self._channel.wake()


async def _messages(duplex: GatewayTunnel | Channel) -> AsyncIterator[bytes]:
    """Yield the non-empty messages of a duplex until it ends or breaks."""
    while True:
        try:
            message = await duplex.receive(max_bytes=items.ITEMS_BYTES_MAX)
        except (TunnelBroken, TunnelClosed):
            return
        if message:
            yield message
