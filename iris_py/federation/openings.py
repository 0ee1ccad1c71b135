"""The opening of channels between gateways (docs/design.md 15.98); :mod:`iris_py.federation.channels` carries their bytes.

The opening gateway chooses the connection and the channel number, and asks. The peer offers the channel to its owner, which
accepts or refuses. A withdrawal follows the request on the same connection, and so cannot overtake it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_overlay.timers import DeadlineTable
from iris_py.errors import MemberLost, NotExported, Overloaded, RequestTimeout
from iris_py.federation import messages
from iris_py.federation.calls import encode_outcome
from iris_py.federation.channels import CHANNELS_MAX, FAR_SIDE, NEIGHBOUR_CHANNEL_BYTES, Channels, WindowBudget
from iris_py.federation.events import ChannelChanged, ChannelOffer, ChannelOpened, ChannelRefused, ChannelWithdrawn, UseRefused
from iris_py.federation.messages import LineError, Open, Opened, Refused, Withdrawn
from iris_py.patterns.tunnel.duplex import Failure
from iris_py.wire.headers import NO_HEADERS, decode_headers
from iris_py.wire.packets import encode_time_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.federation.bundle import Bundle
    from iris_py.federation.channels import ChannelEnd
    from iris_py.federation.events import FederationEvent
    from iris_py.federation.messages import Control
    from iris_py.federation.neighbour import Neighbour
    from iris_py.link.link import Link
    from iris_py.patterns.tunnel.duplex import Piece
    from iris_py.wire.headers import Headers

#: Unanswered channel requests of one neighbour. Too small: bursts of requests are refused; too large: a neighbour can start
#: this number of tasks here.
OFFERS_MAX = 1024
USES = {messages.SUBSCRIBE: "subscribe", messages.PUBLISH: "publish", messages.SURVEY: "survey", messages.TUNNEL: "tunnel"}


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """The channel that a gateway requests of a peer."""

    rule: int
    """The number of the rule in the peer's catalogue."""
    kind: int
    """The kind of channel, of :mod:`iris_py.federation.messages`."""
    name: str
    """The exported name of the cluster; empty for topics."""
    headers: Headers
    """The application's headers."""
    options: bytes = b""
    """The pattern's details."""


@dataclass(slots=True, eq=False)
class RequestedChannel:
    """A channel requested here and not answered yet.

    Attributes:
        token: The key under which the answer is reported.
        bundle: The bundle of the request.
        number: The channel's number in the bundle.
        channels: The channel table of the connection.
        end: The local end.
        name: The cluster, for errors.
    """

    token: object
    bundle: Bundle
    number: int
    channels: Channels
    end: ChannelEnd
    name: str


class Openings:
    """The channels of a gateway to all neighbours (other clouds), and their openings.

    Args:
        channel_bytes: The memory of all channels together.
        window_bytes: The largest window of a channel.
        count_drop: Counts a dropped message under a reason.
        note_busy: Called when a bundle becomes busy, to check its health more often.
    """

    def __init__(
        self,
        channel_bytes: int,
        window_bytes: int,
        count_drop: Callable[[str], object],
        note_busy: Callable[[Bundle, float], object],
    ) -> None:
        self._budget = WindowBudget(channel_bytes)
        self._budgets: dict[str, WindowBudget] = {}  # by neighbour
        self._window_bytes = window_bytes
        self._count_drop = count_drop
        self._note_busy = note_busy
        self._events: list[FederationEvent] = []
        self._openings: dict[tuple[Bundle, int], RequestedChannel] = {}
        self._offers: dict[tuple[Bundle, int], ChannelOffer] = {}
        self._tables: dict[Channels, tuple[Link, Bundle]] = {}
        self._in_use: dict[Channels, None] = {}  # those with channels: plain requests cost nothing for the others
        self._deadlines: DeadlineTable[RequestedChannel] = DeadlineTable()
        self.touched: dict[Link, None] = {}

    def make_channels(self, alias: str, link: Link) -> Channels:
        """Return a channel table for a connection to a neighbour."""
        budget = self._budgets.get(alias)
        if budget is None:
            limit = min(NEIGHBOUR_CHANNEL_BYTES, self._budget.left_bytes + self._budget.used_bytes)
            budget = self._budgets[alias] = WindowBudget(limit, channels_max=CHANNELS_MAX, within=self._budget)
        return Channels(link, budget, self._count_drop, largest_window_bytes=self._window_bytes)

    def connection_opened(self, bundle: Bundle, index: int) -> None:
        """Note that a connection of a bundle is open and can carry channels."""
        link, channels = bundle.links[index], bundle.channels[index]
        if link is not None and channels is not None:
            self._tables[channels] = link, bundle

    # -- channels of this side

    def open(
        self, bundle: Bundle, request: ChannelRequest, token: object, deadline: float, now: float
    ) -> RequestedChannel | None:
        """Request a channel; the answer is reported with the token.

        Args:
            token: The key under which the answer is reported.
            deadline: The end of the wait for an answer.

        Returns:
            The opening, for :meth:`withdraw`; None if the answer is already queued as an event.
        """
        index = bundle.choose_connection()
        channels = bundle.channels[index]
        window_bytes = 0 if channels is None else channels.first_window_bytes()
        if channels is None or not window_bytes:
            self._events.append(ChannelRefused(token, encode_outcome(Overloaded(request.name))))
            return None
        number = bundle.next_channel()
        self._in_use[channels] = None
        rule, headers = request.rule, request.headers
        end = channels.open(number, rule=(False, rule), window_bytes=window_bytes, headers=headers)
        opening = self._openings[bundle, number] = RequestedChannel(token, bundle, number, channels, end, request.name)
        self._deadlines.set(opening, deadline)
        left_ms = encode_time_left(deadline - now)
        asked = Open(number, index, request.kind, rule, request.name, left_ms, window_bytes, request.options, headers.encoded)
        bundle.send_control(asked, now)
        self._take_touched(bundle)
        bundle.health.expect(now)
        self._note_busy(bundle, now)
        return opening

    def withdraw(self, opening: RequestedChannel, now: float) -> None:
        """Withdraw a channel request; no answer is reported. Harmless after an answer."""
        if self._forget(opening):
            opening.channels.refused(opening.number, Failure("the caller gave up"))
            opening.bundle.send_control(Withdrawn(opening.number), now)
            self._take_touched(opening.bundle)

    # -- channels of neighbours

    def accept(self, offer: ChannelOffer, now: float) -> ChannelEnd | None:
        """Open a channel requested by a neighbour; return None if the request was withdrawn or no memory is left."""
        bundle, asked = offer.bundle, offer.open
        if self._offers.pop((bundle, asked.channel), None) is None:
            return None
        channels = offer.channels
        window_bytes = channels.first_window_bytes()
        if not window_bytes:
            self._answer(bundle, asked.channel, encode_outcome(Overloaded(offer.name)), now)
            return None
        self._in_use[channels] = None
        end = channels.open(
            asked.channel | FAR_SIDE,
            rule=(True, offer.rule.number),
            window_bytes=window_bytes,
            credit_bytes=asked.window,
            headers=decode_headers(asked.headers) or NO_HEADERS,
        )
        bundle.send_control(Opened(asked.channel, window_bytes), now)
        self._take_touched(bundle)
        self._note_busy(bundle, now)
        return end

    def refuse(self, offer: ChannelOffer, outcome: bytes, now: float) -> None:
        """Refuse a channel requested by a neighbour; harmless after a withdrawal.

        Args:
            outcome: The error, as an outcome of :mod:`iris_py.federation.calls`.
        """
        if self._offers.pop((offer.bundle, offer.open.channel), None) is not None:
            self._answer(offer.bundle, offer.open.channel, outcome, now)

    # -- in

    def receive_control(self, neighbour: Neighbour, bundle: Bundle, message: Control, now: float) -> None:
        """Handle a peer's control message about channels.

        Raises:
            LineError: The message breaks the protocol.
        """
        if isinstance(message, Open):
            self._receive_open(neighbour, bundle, message, now)
        elif isinstance(message, Opened):
            opening = self._openings.get((bundle, message.channel))
            if opening is None:
                self._count_drop("unknown_channel")
            elif self._forget(opening):
                opening.channels.opened(message.channel, message.window)
                self._events.append(ChannelOpened(opening.token, opening.end, bundle))
        elif isinstance(message, Refused):
            opening = self._openings.get((bundle, message.channel))
            if opening is None or not message.outcome:
                self._count_drop("unknown_channel")
            elif self._forget(opening):
                opening.channels.refused(message.channel, Failure("the other cloud has refused it"))
                self._events.append(ChannelRefused(opening.token, message.outcome))
        elif isinstance(message, Withdrawn):
            self._receive_withdrawn(bundle, message.channel)

    def receive_chunk(self, bundle: Bundle, index: int, number: bytes, data: Piece, start: int, stop: int, now: float) -> None:
        """Pass a chunk to its channel."""
        channels = bundle.channels[index]
        if channels is not None:
            channels.round_trip_s = bundle.health.round_trip_s or 0.0
            channels.receive(number, data, start, stop, now)

    def connection_closed(self, bundle: Bundle, channels: Channels, reason: str) -> None:
        """Fail the channels and openings of a connection that has ended."""
        self._tables.pop(channels, None)
        self._in_use.pop(channels, None)
        for opening in [each for each in self._openings.values() if each.channels is channels]:
            self._forget(opening)
            self._events.append(ChannelRefused(opening.token, encode_outcome(MemberLost(opening.name, ""))))
        channels.close(reason)
        self._events += [ChannelChanged(end) for end in channels.changed()]
        for offer in [each for each in self._offers.values() if each.channels is channels]:
            del self._offers[offer.bundle, offer.open.channel]
            self._events.append(ChannelWithdrawn(offer))

    # -- time

    def handle_timeout(self, now: float) -> None:
        """Fail the channel requests without a timely answer; harmless if early."""
        for opening in self._deadlines.expired(now):
            self._openings.pop((opening.bundle, opening.number), None)
            opening.channels.refused(opening.number, Failure("no answer in time"))
            opening.bundle.send_control(Withdrawn(opening.number), now)
            self._take_touched(opening.bundle)
            self._events.append(ChannelRefused(opening.token, encode_outcome(RequestTimeout(opening.name, 0.0, None))))

    def deadline(self) -> float | None:
        """Return the earliest time at which to call :meth:`handle_timeout`."""
        return self._deadlines.deadline()

    # -- out

    @property
    def has_output(self) -> bool:
        """Whether :meth:`fill` has anything to send."""
        return bool(self.touched) or any(channels.has_work for channels in self._in_use)

    @property
    def has_events(self) -> bool:
        """Whether :meth:`events_received` has events to return."""
        return bool(self._events) or any(channels.has_changed for channels in self._in_use)

    def events_received(self) -> list[FederationEvent]:
        """Take the events so far, in order."""
        events, self._events = self._events, []
        for channels in list(self._in_use):
            events += [ChannelChanged(end) for end in channels.changed()]
            if not channels:
                del self._in_use[channels]
        return events

    def fill(self, now: float) -> dict[Link, None]:
        """Fill the connections with chunks up to their limits; return the links with something to write."""
        touched, self.touched = self.touched, {}
        for channels in self._in_use:
            if channels.fill(now):
                link, bundle = self._tables[channels]
                if link.is_quiet:
                    link.wake(now)
                bundle.health.expect(now)
                touched[link] = None
        return touched

    def is_ready_for(self, link: Link) -> bool:
        """Tell whether :meth:`fill` has chunks for a connection."""
        return any(channels.is_ready and self._tables[channels][0] is link for channels in self._in_use)

    # --

    def _receive_open(self, neighbour: Neighbour, bundle: Bundle, asked: Open, now: float) -> None:
        channels = bundle.channels[asked.connection] if asked.connection < len(bundle.channels) else None
        if (bundle, asked.channel) in self._offers or (channels is not None and asked.channel | FAR_SIDE in channels):
            raise LineError("a channel number that is already in use")
        if asked.kind not in USES:
            raise LineError("a channel of an unknown kind")
        rule = neighbour.export_rule(asked.rule, asked.name)
        name = None
        if rule is not None and rule.allow_bits & messages.NEEDED[asked.kind]:
            name = rule.to_local(asked.name) if asked.name or rule.kind == "cluster" else ""
        if rule is None or name is None:
            if not neighbour.admit_refusal(now):
                raise LineError("names that are not exported, again and again")
            self._events.append(UseRefused(neighbour.alias, asked.name, USES[asked.kind], "not exported"))
            self._answer(bundle, asked.channel, encode_outcome(NotExported(asked.name)), now)
        elif channels is None or sum(each.bundle.alias == neighbour.alias for each in self._offers.values()) >= OFFERS_MAX:
            self._answer(bundle, asked.channel, encode_outcome(Overloaded(asked.name)), now)
        else:
            offer = ChannelOffer(bundle, asked, rule, name, now + asked.time_left_ms / 1000, channels)
            self._offers[bundle, asked.channel] = offer
            self._events.append(offer)

    def _receive_withdrawn(self, bundle: Bundle, number: int) -> None:
        offer = self._offers.pop((bundle, number), None)
        if offer is not None:
            self._events.append(ChannelWithdrawn(offer))
            return
        for channels in bundle.channels:
            if channels is not None:
                channels.withdrawn(number | FAR_SIDE, Failure("the other side gave up"))

    def _answer(self, bundle: Bundle, number: int, outcome: bytes, now: float) -> None:
        bundle.send_control(Refused(number, outcome), now)
        self._take_touched(bundle)

    def _take_touched(self, bundle: Bundle) -> None:
        self.touched.update(bundle.touched)
        bundle.touched.clear()

    def _forget(self, opening: RequestedChannel) -> bool:
        """Forget a channel request; return whether it was still unanswered."""
        self._deadlines.cancel(opening)
        return self._openings.pop((opening.bundle, opening.number), None) is not None
