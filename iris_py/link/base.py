"""The life of a link: its states, its timers and its end; :mod:`iris_py.link.link` has what passes in it.

See there for the theory of operation.
"""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING

from iris_py.link.events import CloseReason, LinkClosed, LinkEvent, LinkOpened
from iris_py.link.handshake import LinkHandshake
from iris_py.link.lanes import PING, Lanes
from iris_py.link.pacing import Pace

if TYPE_CHECKING:
    from iris_py.link.config import LinkConfig
    from iris_security import Keyring, RecordOpener, RecordSealer

#: Bytes of a link id: the first of the handshake hash, which both sides know and nobody can choose.
LINK_ID_BYTES = 8
NO_LINK = bytes(LINK_ID_BYTES)
#: What a PING says, and the PONG repeats: how often the sender has found that it had stood still.
STOPS = struct.Struct(">I")


class LinkState(enum.Enum):
    """Where a link is in its life; see the module's theory of operation."""

    HANDSHAKE = enum.auto()
    IDENTIFIED = enum.auto()
    CONFIRMING = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


#: (frame type, group id, nonce, sealed body) of UNICAST and MULTICAST; (CONTROL, message, b"", b"") of an overlay message;
#: (TUNNEL, tunnel id, b"", sealed chunk).
Packet = tuple[int, bytes, bytes, bytes | memoryview]


class LinkBase:
    """What a link knows of itself and of time; made as :class:`iris_py.link.link.Link`."""

    def __init__(
        self, *, initiator: bool, keyring: Keyring, hello: bytes, ephemeral_private: bytes, now: float, config: LinkConfig
    ) -> None:
        self.initiator = initiator
        self.id = NO_LINK
        self.state = LinkState.HANDSHAKE
        self.is_open = False
        self.is_quiet = False
        self.is_releasing = False
        self.is_unsure = False
        self.congested = False
        self.is_busy = False
        self.has_more = False
        self.active_at = now
        self._hello = hello
        self._config = config
        self._events: list[LinkEvent] = []
        self._packets: list[Packet] = []
        self._handshake: LinkHandshake | None = LinkHandshake(
            initiator=initiator, keyring=keyring, hello=hello, ephemeral_private=ephemeral_private
        )
        self._sealer: RecordSealer | None = None
        self._opener: RecordOpener | None = None
        self._raw: list[bytes] = self._handshake.data_to_send()
        self._lanes = Lanes()
        self._pace = Pace()
        self._tunnel_read = 0  # bytes of chunks
        self._tunnel_told = 0  # and how many of them were acknowledged
        self._close_reason: CloseReason | None = None
        self._close_sent = False
        self._closing_since = now  # when the time to close was last extended
        self._closing_bytes = 0  # what was queued then
        self._peer_closed = False
        self._is_released = False  # the peer closed it as idle
        self._last_ping = STOPS.pack(0)  # what it said
        self._has_said = False  # since something was heard
        self._silent_since = now  # when it last heard something before it said something: not later than that
        self._heard_bytes = 0  # since then
        self._stops = 0  # how often this side has stood still
        self._pieces: list[bytes | memoryview] = []  # of the one large frame that is arriving
        self._pieces_bytes = 0
        self._last_received = now
        self._deadline: float | None = now + config.handshake_timeout_s

    @property
    def has_tunnel_room(self) -> bool:
        """Whether another chunk of a tunnel may be queued."""
        return self.is_open and self._pace.has_room

    @property
    def queued_bytes(self) -> int:
        """The packets and overlay messages that wait to be sent, without the headers of their frames."""
        return self._lanes.queued_bytes

    # -- time

    def handle_timeout(self, now: float, *, is_awaited: bool = False) -> None:
        """Do what is due; harmless if early. See :meth:`deadline`.

        Args:
            now: The time.
            is_awaited: Whether the owner waits for an answer of the peer.
        """
        if self._deadline is None or now < self._deadline:
            return
        if self.state is LinkState.OPEN:
            self._keep_alive(now, is_awaited)
        elif self.state is LinkState.CLOSING:
            self._give_up_closing(now)
        else:
            self._end("the handshake took too long")

    def _keep_alive(self, now: float, is_awaited: bool) -> None:
        config = self._config
        assert self._deadline is not None
        if now - self._deadline > config.keepalive_interval_s:
            # Our own timer is late: we were stopped or blocked, and what the peer sent meanwhile may be unread. It gets
            # one interval before we judge it (Lifeguard, section 3: local health before suspicion).
            self._last_received = max(self._last_received, now - config.keepalive_timeout_s + config.keepalive_interval_s)
        # Sums are compared, not differences: what was rounded otherwise than the deadline would come due for ever.
        asks_at = self._last_received + config.keepalive_interval_s
        ends_at = self._last_received + config.keepalive_timeout_s
        if now < asks_at:
            self._deadline = asks_at
        elif not (is_awaited or self.is_unsure or self._lanes.is_unanswered or self._lanes.has_frames()):
            self._become_quiet(now)
        elif now >= ends_at:
            self._end(f"nothing heard for {config.keepalive_timeout_s:g} s")
        else:
            self._lanes.add_signal(PING, STOPS.pack(self._stops))
            self._deadline = min(now + config.keepalive_interval_s, ends_at)

    def _give_up_closing(self, now: float) -> None:
        """End a link that closes too slowly; one that still moves what was queued, on either side, gets more time."""
        if self._lanes.queued_bytes < self._closing_bytes or self._last_received > self._closing_since:
            self._become_closing(now)
        else:
            self._end("the peer did not answer the close")

    def wake(self, now: float) -> None:
        """Begin to expect an answer: a packet was sent on a quiet link. Changes :meth:`deadline`."""
        if self.is_quiet:
            self.is_quiet = False
            self.active_at = now
            self._last_received = now  # the silence until now says nothing of the peer: nobody asked
            self._deadline = now + self._config.keepalive_interval_s

    def verify(self, now: float) -> None:
        """This side has stood still: ask the peer whether the link still is one, as far as it knows. Changes :meth:`deadline`.

        What stands in the buffers of the system may be from long ago, and the peer may have given up. The link is
        ``is_unsure`` until it has answered; then ``LinkVerified`` follows, and what comes behind the answer is new.
        """
        if self.is_open:
            self.is_unsure = True
            self._stops += 1
            self._lanes.add_signal(PING, STOPS.pack(self._stops))
            self.wake(now)

    def ask_for_sign(self) -> None:
        """Ask the peer for a sign of life now, which ``heard_at`` shows."""
        if self.is_open:
            self._lanes.add_signal(PING, b"")

    @property
    def heard_at(self) -> float:
        """When something came from the peer last, or it was first asked for something since then."""
        return self._last_received

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`; may change after any other call."""
        return self._deadline

    @property
    def is_idle_end(self) -> bool:
        """Whether one of both sides closes it as idle: what is not sent any more may go over the next link."""
        return self.is_releasing or self._is_released

    def is_unused_since(self, moment: float) -> bool:
        """Tell whether no packet has moved since some time, nor is under way as far as this side knows."""
        return self.is_open and self.is_quiet and not self._lanes.has_frames() and not self._pieces and self.active_at <= moment

    # -- what happened

    def packets_received(self) -> list[Packet]:
        """Take the packets that arrived, in order."""
        packets, self._packets = self._packets, []
        return packets

    def events_received(self) -> list[LinkEvent]:
        """Take what happened, in order."""
        events, self._events = self._events, []
        return events

    def has_events(self) -> bool:
        """Tell whether :meth:`events_received` would return something."""
        return bool(self._events)

    # -- the end

    def abort(self, reason: str) -> None:
        """End the link at once; what is queued is lost."""
        self._end(reason)

    # -- transitions

    def _become_open(self, now: float) -> None:
        self.state = LinkState.OPEN
        self.is_open = True
        self._become_quiet(now)
        self._events.append(LinkOpened())

    def _become_quiet(self, now: float) -> None:
        self.is_quiet = True
        self.active_at = now
        self._deadline = None

    def _become_closing(self, now: float) -> None:
        self.state = LinkState.CLOSING
        self.is_open = self.is_quiet = False
        self._closing_since = now
        self._closing_bytes = self._lanes.queued_bytes
        self._deadline = now + self._config.close_timeout_s

    def _end(
        self, reason: str, *, clean: bool = False, refused: bool = False, duplicate: bool = False, broken: bool = False
    ) -> None:
        if self.state is LinkState.CLOSED:
            return
        self.state = LinkState.CLOSED
        self.is_open = self.is_quiet = False
        self._deadline = None
        self._lanes.clear()
        self._raw, self._pieces, self._pieces_bytes = [], [], 0
        self.congested = self.is_busy = False
        self._events.append(LinkClosed(clean, reason, refused, duplicate, broken, self._is_released))
