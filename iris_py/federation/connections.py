"""The connections of a gateway, and their neighbours and bundles (docs/design.md 15.92, 15.93).

A connection is a :class:`~iris_py.link.link.Link` with the handshake of two clouds. The initiator makes a bundle: it dials
connection 0, and then, once connection 0 is open, the others at the same address. The responder finds the bundle by the hello.

Two processes keep one bundle. If both have dialled, the bundle of the cloud with the smaller public key stays. If the same
gateway dials anew, it has lost the old bundle, which ends.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_overlay.events import DialRequested
from iris_overlay.timers import DeadlineTable
from iris_py.federation.bundle import Bundle
from iris_py.federation.dials import draw_pause
from iris_py.federation.handshake import (
    BUNDLE_ID_BYTES,
    FederationHandshake,
    HelloError,
    LineHello,
    decode_hello,
    encode_hello,
    pairs_of,
)
from iris_py.federation.messages import LINE_GROUP
from iris_py.federation.neighbour import BUNDLES_MAX, Neighbour
from iris_py.link.events import HANDSHAKE_LATE, CloseReason, LinkClosed, LinkOpened, LinkState, PeerIdentified
from iris_py.link.link import Link
from iris_py.link.record_buffers import RecordBuffers
from iris_py.peers.eviction import Crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.environment import Rng
    from iris_py.federation.channels import Channels
    from iris_py.federation.dials import Slot
    from iris_py.link.config import LinkConfig
    from iris_security import CloudKey

#: Accepted connections without a completed handshake, as inside a network (3.2).
HANDSHAKES_MAX = 256
#: Mean pause (seconds) before redialling a connection other than 0. Too small: a gateway that refuses the connection is asked
#: all the time; too large: the bundle's bulk uses fewer connections for this long.
CONNECTION_RETRY_S = 1.0
#: Tries of a further connection at full speed. A load balancer may lead one address to several gateways, so a try may miss the
#: bundle's gateway. After these tries the bundle has one connection fewer, and the mean pause becomes
#: :data:`CONNECTION_REST_S`.
CONNECTION_TRIES_MAX = 16
CONNECTION_REST_S = 60.0


@dataclass(slots=True)
class BundleOpened:
    """Connection 0 of a new bundle is open."""

    bundle: Bundle


@dataclass(slots=True)
class BundleClosed:
    """A bundle has ended, and is no longer in any table."""

    bundle: Bundle
    reason: str


@dataclass(slots=True)
class ConnectionOpened:
    """A connection of a bundle is open, possibly connection 0."""

    bundle: Bundle
    index: int


@dataclass(slots=True)
class ConnectionClosed:
    """A connection has ended, together with its channels."""

    bundle: Bundle
    link: Link
    channels: Channels
    reason: str


@dataclass(slots=True)
class HandshakeRefused:
    """A peer failed authentication, or is not allowed to connect."""

    address: str
    """The peer's host without a port; or the dialled address, as in the settings."""
    alias: str
    """The alias of the neighbour, if known."""
    reason: str
    is_dialled: bool = False
    """Whether the local gateway dialled."""


LineEvent: TypeAlias = BundleOpened | BundleClosed | ConnectionOpened | ConnectionClosed | HandshakeRefused


@dataclass(slots=True)
class _DialPurpose:
    """The purpose of a dial: connection 0 of a bundle for a slot (a wanted bundle), or a further connection of a bundle."""

    neighbour: Neighbour
    address: str
    bundle_id: bytes
    index: int
    slot: Slot | None
    bundle: Bundle | None
    key: bytes
    """The expected public key of the neighbour."""


class GatewayConnection:
    """The record of one connection: its purpose if dialled by the local gateway, and its bundle once known.

    Attributes:
        host: The peer's IP address, or the dialled host.
        neighbour: The neighbour; None while unknown.
        bundle: The bundle; None while unknown.
        index: The index in the bundle.
        key: The public key of the neighbour; empty while unknown.
        received_bytes: The number of handled bytes.
        counted: The bytes sent and received that the accounts already include.
    """

    __slots__ = ("bundle", "counted", "host", "index", "key", "neighbour", "purpose", "received_bytes")

    def __init__(self, host: str, purpose: _DialPurpose | None) -> None:
        self.host = host
        self.purpose = purpose
        self.neighbour: Neighbour | None = None if purpose is None else purpose.neighbour
        self.bundle: Bundle | None = None
        self.index = 0
        self.key = b"" if purpose is None else purpose.key
        self.received_bytes = 0
        self.counted = 0, 0


@dataclass(frozen=True)
class Introduction:
    """The local gateway's description of itself.

    Attributes:
        gateway: 16 random bytes of the process.
        name: The cloud's own name, for logs.
        zone: The zone of the gateway.
        max_message_bytes: The largest accepted payload.
        connections: The number of connections in dialled bundles.
        clock_ms: Returns the machine's clock (milliseconds since 1970); 0 to keep the clock undisclosed.
    """

    gateway: bytes
    name: str
    zone: str
    max_message_bytes: int
    connections: int
    clock_ms: Callable[[], int]


class GatewayConnections:
    """The connections of a gateway to all neighbours (other clouds).

    Args:
        introduction: The gateway's description of itself.
        make_channels: Makes the channel table of a connection.

    Attributes:
        neighbours: The neighbours by alias.
        events: The events so far.
        dials: Addresses to dial.
        touched: Links that may have data to write.
        has_new_deadline: Whether :meth:`deadline` may be earlier than before.
        is_draining: Whether the gateway no longer dials or accepts connections.
        handshakes_max: The largest number of accepted connections without a handshake; lower where descriptors are few.
    """

    def __init__(
        self,
        key: CloudKey,
        introduction: Introduction,
        config: LinkConfig,
        make_channels: Callable[[str, Link], Channels],
        rng: Rng,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.neighbours: dict[str, Neighbour] = {}
        self.events: list[LineEvent] = []
        self.dials: list[DialRequested] = []
        self.touched: dict[Link, None] = {}
        self.has_new_deadline = False
        self.is_draining = False
        self._key = key
        self._introduction = introduction
        self._config = config
        self._buffers = RecordBuffers()
        self._make_channels = make_channels
        self._entropy = entropy
        self._lines: dict[Link, GatewayConnection] = {}
        self._rng = rng
        self._strangers = Crowd(rng)
        self.handshakes_max = HANDSHAKES_MAX
        self._pairs: dict[bytes, tuple[CloudKey, bytes]] = {}
        self._purposes: dict[str, deque[_DialPurpose]] = {}  # running dials by address
        self._link_deadlines: DeadlineTable[Link] = DeadlineTable()
        self._dial_deadlines: DeadlineTable[Neighbour] = DeadlineTable()
        self._retries: DeadlineTable[tuple[Bundle, int]] = DeadlineTable()
        self._tries: dict[tuple[Bundle, int], int] = {}

    # -- the driver

    def note_settings(self) -> None:
        """Handle a possible change of the neighbours, of their keys or of their addresses."""
        for neighbour in self.neighbours.values():
            self._note_dials(neighbour)
        self._pairs = pairs_of([self._key], [key for each in self.neighbours.values() for key in each.settings.keys])

    def accepted(self, host: str, now: float) -> Link | None:
        """Return the link of an accepted connection, or None to refuse; too many unauthenticated ones evict one."""
        if self.is_draining:
            return None
        if len(self._strangers) >= self.handshakes_max:
            evicted = self._strangers.choose()
            self._refuse(evicted, self._lines[evicted], "too many handshakes under way")
            self.handle_link(evicted, now)
        handshake = FederationHandshake(
            pairs=self._pairs, hello=self._hello(bytes(BUNDLE_ID_BYTES), 0, 1), ephemeral_private=self._entropy(32)
        )
        link = self._make_link(handshake, GatewayConnection(host, None), now)
        self._strangers.add(link, host)
        return link

    def dialled(self, address: str, now: float) -> Link | None:
        """Return the link of a dialled connection; None if the connection is no longer wanted."""
        purpose = self._take_purpose(address, now)
        if purpose is None:
            return None
        count = self._introduction.connections
        handshake = FederationHandshake(
            key=self._key,
            peer=purpose.key,
            hello=self._hello(purpose.bundle_id, purpose.index, count),
            ephemeral_private=self._entropy(32),
        )
        return self._make_link(handshake, GatewayConnection(address.rpartition(":")[0].strip("[]"), purpose), now)

    def dial_failed(self, address: str, reason: str, now: float) -> None:
        """Handle a failed dial."""
        purpose = self._take_purpose(address, now)
        if purpose is not None:
            self._handle_missed(purpose, reason, now)

    def line_of(self, link: Link) -> GatewayConnection | None:
        """Return the record of an open connection that is part of a bundle, else None."""
        line = self._lines.get(link)
        return line if line is not None and line.bundle is not None and line.bundle.links[line.index] is link else None

    def handle_link(self, link: Link, now: float) -> None:
        """Handle a link's events other than packets."""
        line = self._lines.get(link)
        while line is not None and link.events:  # confirming a link opens the link and adds an event
            for event in link.events_received():
                if isinstance(event, PeerIdentified):
                    self._handle_identified(link, line, event, now)
                elif isinstance(event, LinkOpened):
                    self._handle_opened(link, line, now)
                elif isinstance(event, LinkClosed):
                    self._handle_closed(link, line, event, now)
        self._note_deadline(link)
        self.touched[link] = None

    def take_touched(self) -> list[Link]:
        """Take the links that may have data to write."""
        touched, self.touched = self.touched, {}
        return list(touched)

    # -- time

    def handle_timeout(self, now: float) -> None:
        """Handle due deadlines; harmless if early."""
        for link in self._link_deadlines.expired(now):
            line = self._lines.get(link)
            is_awaited = line is not None and line.bundle is not None and line.bundle.is_busy
            link.handle_timeout(now, is_awaited=is_awaited)
            self.handle_link(link, now)
        for bundle, index in self._retries.expired(now):
            self._dial_further(bundle, index)
        for neighbour in () if self.is_draining else self._dial_deadlines.expired(now):
            for slot in neighbour.dials.due(now):
                key = neighbour.settings.keys[slot.failures % len(neighbour.settings.keys)]
                self._dial(_DialPurpose(neighbour, slot.address, self._entropy(BUNDLE_ID_BYTES), 0, slot, None, key))
            self._note_dials(neighbour)
        self.has_new_deadline = True

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        self.has_new_deadline = False
        times = [self._link_deadlines.deadline(), self._retries.deadline()]
        if not self.is_draining:
            times.append(self._dial_deadlines.deadline())
        return min((time for time in times if time is not None), default=None)

    # -- accounts

    def count_bytes(self) -> None:
        """Add the connections' traffic since the last call to the accounts of their neighbours."""
        sums: dict[Neighbour, list[int]] = {}
        for link, line in self._lines.items():
            if line.neighbour is not None:
                its = sums.setdefault(line.neighbour, [0, 0])
                sent, received = _uncounted(link, line)
                its[0] += sent
                its[1] += received
        for neighbour, (sent, received) in sums.items():
            if sent or received:
                neighbour.accounts.add_line_bytes(sent, received)

    # -- the end

    def close(self, now: float) -> None:
        """End all connections, after sending their queues."""
        self.is_draining = True
        for link, line in list(self._lines.items()):
            if line.bundle is None:
                link.abort("the gateway ends")
            else:
                link.close(CloseReason.LEAVING, now)
            self.handle_link(link, now)

    def drop_neighbour(self, neighbour: Neighbour, reason: str, now: float) -> None:
        """End all connections to a removed neighbour."""
        self.neighbours.pop(neighbour.alias, None)
        self._dial_deadlines.cancel(neighbour)
        self.drop_links(neighbour, frozenset(), reason, now)

    def drop_links(self, neighbour: Neighbour, keys: frozenset[bytes], reason: str, now: float) -> None:
        """End the connections to a neighbour that were authenticated with any other than the given keys."""
        for link, line in list(self._lines.items()):
            if line.neighbour is neighbour and line.key not in keys:
                link.abort(reason)
                self.handle_link(link, now)

    def end_bundle(self, bundle: Bundle, reason: str, now: float) -> None:
        """End a bundle at once."""
        bundle.abort(reason)
        for link in bundle.links:
            if link is not None:
                self.handle_link(link, now)

    # -- links

    def _make_link(self, handshake: FederationHandshake, line: GatewayConnection, now: float) -> Link:
        link = Link(handshake=handshake, now=now, config=self._config, buffers=self._buffers)
        link.shared.add(LINE_GROUP)
        self._lines[link] = line
        self.handle_link(link, now)
        return link

    def _hello(self, bundle_id: bytes, index: int, count: int) -> bytes:
        own = self._introduction
        return encode_hello(
            LineHello(
                gateway=own.gateway,
                bundle=bundle_id,
                index=index,
                count=count,
                name=own.name,
                zone=own.zone,
                max_message_bytes=own.max_message_bytes,
                time_ms=own.clock_ms(),
            )
        )

    def _handle_identified(self, link: Link, line: GatewayConnection, event: PeerIdentified, now: float) -> None:
        self._strangers.discard(link)
        if link.state is LinkState.CLOSED:
            return
        try:
            hello = decode_hello(event.hello)
        except HelloError as exc:
            self._refuse(link, line, f"a malformed hello: {exc}")
            return
        if link.initiator:
            self._handle_answered(link, line, hello, now)
            return
        neighbour = next((each for each in self.neighbours.values() if event.node_id in each.settings.keys), None)
        line.neighbour, line.key = neighbour, event.node_id
        if neighbour is None:
            self._refuse(link, line, "a cloud that is no longer a neighbour")
        elif hello.index:
            bundle = neighbour.bundles.get(hello.bundle)
            if bundle is None or bundle.gateway != hello.gateway or hello.index >= len(bundle.links):
                link.close(CloseReason.CROWDED, now)  # an ended bundle, or another gateway's
                return
            line.bundle, line.index = bundle, hello.index
            link.confirm(now)
        else:
            self._admit(link, line, neighbour, hello, now)

    def _handle_answered(self, link: Link, line: GatewayConnection, hello: LineHello, now: float) -> None:
        """Handle the responder's hello: confirm unless another bundle to the same process exists."""
        purpose, neighbour = line.purpose, line.neighbour
        assert purpose is not None
        assert neighbour is not None
        if purpose.bundle is not None:
            if hello.gateway != purpose.bundle.gateway:
                link.abort("another gateway has answered")
                return
            line.bundle, line.index = purpose.bundle, purpose.index
        elif any(not bundle.health.is_suspect for bundle in neighbour.with_gateway(hello.gateway)):
            self._miss_duplicate(line, now)
            link.abort("there is a bundle to that gateway")
            return
        else:
            bundle = self._make_bundle(line, neighbour, purpose.bundle_id, hello, self._introduction.connections, now)
            bundle.address = purpose.address
        link.confirm(now)

    def _admit(self, link: Link, line: GatewayConnection, neighbour: Neighbour, hello: LineHello, now: float) -> None:
        """Handle connection 0 of a bundle dialled by a neighbour's gateway."""
        for bundle in list(neighbour.with_gateway(hello.gateway)):
            if bundle.is_initiator and not bundle.health.is_suspect and self._key.public < line.key:
                link.close(CloseReason.DUPLICATE, now)  # the local bundle stays
                return
            self.end_bundle(bundle, "the other gateway has opened another bundle", now)
        if len(neighbour.bundles) >= BUNDLES_MAX or hello.bundle in neighbour.bundles:
            link.close(CloseReason.CROWDED, now)
            return
        self._make_bundle(line, neighbour, hello.bundle, hello, hello.count, now)
        link.confirm(now)

    def _note_deadline(self, link: Link) -> None:
        deadline = link.deadline()
        if deadline is None:
            self._link_deadlines.cancel(link)
        else:
            self._link_deadlines.set(link, deadline)
        self.has_new_deadline = True

    def _make_bundle(
        self, line: GatewayConnection, neighbour: Neighbour, bundle_id: bytes, hello: LineHello, count: int, now: float
    ) -> Bundle:
        bundle = Bundle(neighbour.alias, bundle_id, hello.gateway, is_initiator=line.purpose is not None, count=count, now=now)
        bundle.key, bundle.host, bundle.name, bundle.zone = line.key, line.host, hello.name, hello.zone
        bundle.max_message_bytes = hello.max_message_bytes
        own_ms = self._introduction.clock_ms()
        if own_ms and hello.time_ms:
            bundle.clock_ahead_s = (hello.time_ms - own_ms) / 1000
        line.bundle, line.index = bundle, 0
        return bundle

    def _handle_opened(self, link: Link, line: GatewayConnection, now: float) -> None:
        bundle, neighbour = line.bundle, line.neighbour
        assert bundle is not None
        assert neighbour is not None
        if line.index:
            if bundle.is_closed:
                link.abort("its bundle has ended")
                return
            other = bundle.links[line.index]
            if other is not None:  # the initiator lost the old connection before this side noticed
                other.abort("it was opened again")
                self.handle_link(other, now)
            self._tries.pop((bundle, line.index), None)
            if line.purpose is not None:
                bundle.known_open.add(line.index)
                link.ask_for_sign()  # so the peer learns that the connection is open here, too
        elif not self._has_precedence(bundle, neighbour, now):
            link.close(CloseReason.DUPLICATE, now)
            return
        bundle.links[line.index] = link
        bundle.channels[line.index] = self._make_channels(neighbour.alias, link)
        self.events.append(ConnectionOpened(bundle, line.index))
        if line.index:
            return
        bundle.opened_at = now
        bundle.health.heard(now)
        neighbour.bundles[bundle.id] = bundle
        if line.purpose is not None:
            assert line.purpose.slot is not None
            line.purpose.slot.bundle, line.purpose.slot.failures = bundle, 0
            for index in range(1, len(bundle.links)):
                self._dial_further(bundle, index)
        self.events.append(BundleOpened(bundle))

    def _has_precedence(self, bundle: Bundle, neighbour: Neighbour, now: float) -> bool:
        """Decide between a new bundle and others to the same gateway: return True and end the others, or return False."""
        is_preferred = bundle.is_initiator == (self._key.public < bundle.key)
        for other in list(neighbour.with_gateway(bundle.gateway)):
            if not is_preferred and other.is_initiator != bundle.is_initiator and not other.health.is_suspect:
                return False
            self.end_bundle(other, "another bundle to the same gateway has taken its place", now)
        return True

    def _handle_closed(self, link: Link, line: GatewayConnection, event: LinkClosed, now: float) -> None:
        del self._lines[link]
        self._strangers.discard(link)
        bundle, neighbour, purpose = line.bundle, line.neighbour, line.purpose
        if neighbour is not None:
            neighbour.accounts.add_line_bytes(*_uncounted(link, line))
        is_in_use = bundle is not None and bundle.links[line.index] is link
        if bundle is not None and neighbour is not None and is_in_use:
            self._forget_connection(bundle, neighbour, link, line.index, event.reason, now)
        elif event.refused or (event.reason == HANDSHAKE_LATE and purpose is not None and purpose.bundle is None):
            # Other ends are no refusals: a load balancer's health check, for example.
            self._note_refused(line, event.reason)
        if purpose is None:
            return
        if event.duplicate and not is_in_use:
            self._miss_duplicate(line, now)
        else:
            line.purpose = None
            self._handle_missed(purpose, event.reason, now)

    def _forget_connection(self, bundle: Bundle, neighbour: Neighbour, link: Link, index: int, reason: str, now: float) -> None:
        channels = bundle.channels[index]
        bundle.links[index] = bundle.channels[index] = None
        bundle.known_open.discard(index)
        if channels is not None:
            self.events.append(ConnectionClosed(bundle, link, channels, reason))
        if index:
            return
        bundle.is_closed, bundle.end_reason = True, reason
        for further in range(len(bundle.links)):
            self._tries.pop((bundle, further), None)
            self._retries.cancel((bundle, further))
        neighbour.bundles.pop(bundle.id, None)
        self.events.append(BundleClosed(bundle, reason))
        for other in list(bundle.links):
            if other is not None:
                other.abort("its bundle has ended")
                self.handle_link(other, now)

    def _refuse(self, link: Link, line: GatewayConnection, reason: str) -> None:
        self._note_refused(line, reason)
        link.abort(reason)

    def _note_refused(self, line: GatewayConnection, reason: str) -> None:
        alias = "" if line.neighbour is None else line.neighbour.alias
        address = line.host if line.purpose is None else line.purpose.address
        self.events.append(HandshakeRefused(address, alias, reason, is_dialled=line.purpose is not None))

    # -- dials

    def replace(self, bundle: Bundle, now: float) -> None:
        """Dial another gateway in place of a leaving gateway."""
        neighbour = self.neighbours.get(bundle.alias)
        if neighbour is not None and bundle.is_initiator:
            neighbour.dials.handle_leaving(now)
            self._note_dials(neighbour)

    def _note_dials(self, neighbour: Neighbour) -> None:
        deadline = neighbour.dials.deadline()
        if deadline is None or self.neighbours.get(neighbour.alias) is not neighbour:
            self._dial_deadlines.cancel(neighbour)
        else:
            self._dial_deadlines.set(neighbour, deadline)
        self.has_new_deadline = True

    def _dial(self, purpose: _DialPurpose) -> None:
        self._purposes.setdefault(purpose.address, deque()).append(purpose)
        self.dials.append(DialRequested(purpose.address, None, is_proven=True))

    def _take_purpose(self, address: str, now: float) -> _DialPurpose | None:
        purposes = self._purposes.get(address)
        if not purposes:
            return None
        purpose = purposes.popleft()
        if not purposes:
            del self._purposes[address]
        if self.neighbours.get(purpose.neighbour.alias) is not purpose.neighbour:
            return None
        if purpose.key in purpose.neighbour.settings.keys and not (purpose.bundle is not None and purpose.bundle.is_closed):
            return purpose
        self._handle_missed(purpose, "its key is not accepted any more", now)
        return None

    def _dial_further(self, bundle: Bundle, index: int) -> None:
        """Dial a connection of a bundle other than connection 0."""
        neighbour = self.neighbours.get(bundle.alias)
        if bundle.is_closed or bundle.links[index] is not None or neighbour is None or bundle.is_going or self.is_draining:
            self._tries.pop((bundle, index), None)
            return
        self._dial(_DialPurpose(neighbour, bundle.address, bundle.id, index, None, bundle, bundle.key))

    def _handle_missed(self, purpose: _DialPurpose, reason: str, now: float) -> None:
        """Schedule the next dial for a purpose, after a failed dial or the end of the dialled connection."""
        self.has_new_deadline = True
        bundle = purpose.bundle
        if bundle is None:
            assert purpose.slot is not None
            purpose.neighbour.dials.failed(purpose.slot, reason, now)
            self._note_dials(purpose.neighbour)
            return
        if bundle.is_closed:
            self._tries.pop((bundle, purpose.index), None)
            return
        tries = self._tries[bundle, purpose.index] = self._tries.get((bundle, purpose.index), 0) + 1
        mean_s = CONNECTION_RETRY_S if tries < CONNECTION_TRIES_MAX else CONNECTION_REST_S
        self._retries.set((bundle, purpose.index), now + draw_pause(mean_s, self._rng))

    def _miss_duplicate(self, line: GatewayConnection, now: float) -> None:
        """Make the slot of a dial (a wanted bundle) look for another gateway: a bundle to this one exists."""
        purpose, line.purpose = line.purpose, None
        if purpose is not None and purpose.slot is not None:
            purpose.neighbour.dials.failed(purpose.slot, "", now, is_duplicate=True)
            self._note_dials(purpose.neighbour)


def _uncounted(link: Link, line: GatewayConnection) -> tuple[int, int]:
    """Return the bytes sent and received on a connection since the last call."""
    sent, received = line.counted
    line.counted = link.sent_bytes, link.received_bytes
    return link.sent_bytes - sent, link.received_bytes - received
