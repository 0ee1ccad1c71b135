"""A bundle: the connections between two gateway processes, used as one cloud link (docs/design.md 15.92).

Connection 0 carries control messages and small requests and replies. Larger messages, and channels, use the other connections,
to keep small messages from waiting behind bulk. The bundle ends with connection 0; the end of another connection breaks only
its channels, and the connection is dialled again. Both gateways may send requests, and number their own.

`CloudLinkHealth` judges whether a cloud link works, from received data alone (docs/design.md 15.94). A silent link is *probed*,
sooner while an answer is outstanding. A link is *suspect*, and gets no new work, when an answer or echo stays out for longer
than a slow line and a busy gateway would need. After more silence the link is *broken*. A suspect link becomes sound again only
after a while without doubt, so that a flapping link does not make every user flap. The detector is laxer than inside a cloud
(5.9), as wide-area links require; Akka's detector for several data centres is laxer, too.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.federation.calls import Call, call_head
from iris_py.federation.limits import Account, RuleLimits
from iris_py.federation.messages import LINE_GROUP, Control, encode_control, encode_message
from iris_py.federation.rules import ExportRule
from iris_py.link.link import Link
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.federation.channels import ChannelEnd, Channels
    from iris_py.federation.messages import Catalogue

#: Silence (seconds) before a probe while an answer is outstanding. Too small: every slow answer costs a probe.
PROBE_BUSY_S = 1.0
#: Silence (seconds) before a probe of an idle link. Too small: idle links cost; too large: a link forgotten by a firewall is
#: noticed only when used.
PROBE_IDLE_S = 5.0
#: Silence (seconds) with an outstanding answer after which a link is suspect; SUSPECT_ROUND_TRIPS smoothed round trips if
#: longer. Too small: a briefly busy gateway, or a slow line with deep buffers, is avoided; too large: requests go into a dead
#: link for this long.
SUSPECT_S = 3.0
SUSPECT_ROUND_TRIPS = 6
#: Silence (seconds) with an outstanding answer after which a link is broken.
BROKEN_S = 10.0
#: The trial (seconds) after a suspicion before a link is sound again; doubled after each further suspicion. Too small: a
#: flapping link makes every user flap; too large: a healthy link stays unused for this long.
TRUST_S_MIN = 0.5
TRUST_S_MAX = 5.0
#: The age (seconds) at which a suspicion no longer lengthens the next trial.
FORGIVEN_S = 60.0
#: The weight of a new sample in the smoothed round trip (RFC 6298, section 2).
SMOOTHING = 1 / 8


class CloudLinkHealth:
    """The health of one cloud link (bundle), judged by the received data.

    Attributes:
        heard_at: The time of the last received data.
        round_trip_s: The smoothed round trip; None before the first sample.
        is_suspect: Whether the link is suspect and gets no new work.
    """

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.round_trip_s: float | None = None
        self.is_suspect = False
        self._waiting_since: float | None = None  # the first unanswered message since the last received data
        self._probe = 0  # the number of the last probe
        self._probed_at: float | None = None  # None once answered
        self._trusted_at = now  # the end of the trial
        self._suspicions = 0  # recent suspicions

    def heard(self, now: float) -> None:
        """Note that data was received."""
        self.heard_at = now
        self._waiting_since = None
        if self.is_suspect:
            self.is_suspect = False
            self._suspicions = 0 if now >= self._trusted_at + FORGIVEN_S else self._suspicions
            self._trusted_at = now + min(TRUST_S_MAX, TRUST_S_MIN * 2.0**self._suspicions)
            self._suspicions = min(self._suspicions + 1, 16)

    def expect(self, now: float) -> None:
        """Note the sending of a message that expects an answer."""
        if self._waiting_since is None:
            self._waiting_since = now

    def is_sound(self, now: float) -> bool:
        """Tell whether the link may get new work."""
        return not self.is_suspect and now >= self._trusted_at

    def handle_echo(self, number: int, now: float) -> None:
        """Measure the round trip by the echo of the last probe; ignore other echoes."""
        if number == self._probe and self._probed_at is not None:
            sample = now - self._probed_at
            self._probed_at = None
            before = self.round_trip_s
            self.round_trip_s = sample if before is None else before + (sample - before) * SMOOTHING

    def probe(self, now: float) -> int:
        """Begin a probe; return the number to send."""
        self._probe = (self._probe + 1) & 0xFFFF_FFFF
        self._probed_at = now
        self.expect(now)
        return self._probe

    def check(self, now: float, *, is_busy: bool) -> tuple[bool, bool]:
        """Update the state of the link; return whether to send a probe now, and whether the link is broken.

        Args:
            is_busy: Whether an answer is outstanding.
        """
        since = self._waiting_since
        if since is not None:
            # Compare sums, not differences: a rounding other than the deadline's would make the check due for ever.
            if now >= since + BROKEN_S:
                return False, True
            if now >= since + self._suspect_s:
                self.is_suspect = True
        asks = now >= self._probe_at(is_busy=is_busy)
        return asks, False

    def deadline(self, now: float, *, is_busy: bool) -> float:
        """Return when to call :meth:`check` next."""
        times = [self._probe_at(is_busy=is_busy)]
        if self._waiting_since is not None:
            times.append(self._waiting_since + (BROKEN_S if self.is_suspect else self._suspect_s))
        if now < self._trusted_at:
            times.append(self._trusted_at)
        return min(times)

    def resume(self, now: float) -> None:
        """Restart the wait for an answer after a standstill of this process, when silence proves nothing about the peer."""
        if self._waiting_since is not None:
            self._waiting_since = now
        self._probed_at = None

    @property
    def is_probed(self) -> bool:
        """Whether a probe awaits its echo."""
        return self._probed_at is not None

    @property
    def _suspect_s(self) -> float:
        return min(BROKEN_S, max(SUSPECT_S, SUSPECT_ROUND_TRIPS * (self.round_trip_s or 0.0)))

    def _probe_at(self, *, is_busy: bool) -> float:
        last = self.heard_at if self._probed_at is None else max(self.heard_at, self._probed_at)
        # What waits for an answer may have ended without one, such as a channel: then only a probe tells that the link works.
        asks_soon = is_busy or self._probed_at is not None or self._waiting_since is not None
        return last + (PROBE_BUSY_S if asks_soon else PROBE_IDLE_S)


#: Messages up to this size are gathered into shared bodies on connection 0; larger ones travel alone, on another connection.
#: Too small: replies of usual sizes wait behind bulk; too large: small messages wait behind them.
SMALL_BYTES = 62 * 1024
#: A neighbour's concurrent requests here, over all bundles and rules.
INCOMING_MAX = 65_536
#: The send queue of a bundle at which no request begins, in either direction. Too small: links of some hundred MB/s run dry;
#: too large: a neighbour that does not read holds this much of our memory.
QUEUED_BYTES_MAX = 64 * 1024 * 1024
#: Remembered large replies of each connection but 0, which may be lost with the connection. More cannot be under way: each
#: is above `SMALL_BYTES`, and a link with 256 MiB queued breaks. Too small: a caller waits in vain for a lost reply; too large:
#: memory for the numbers of delivered replies.
REPLIES_MAX = 8192


class Outgoing(msgspec.Struct, eq=False):
    """A request of the local cloud to a neighbour (other cloud), until its outcome.

    Attributes:
        token: The key under which the outcome is reported.
        call: The call.
        headers: The application's headers, encoded.
        deadline: The end of the caller's wait.
        bundle: The bundle of the request.
        number: The request's number in the bundle.
        sent_at: The time of sending.
        link: The connection of a large request, unless connection 0: the request is lost with this connection.
        is_unsure: Whether the request was sent over another bundle before, and may have been executed.
        limits: The limits that count the request as under way.
        account: The account of the request.
    """

    token: Any
    call: Call
    headers: bytes
    deadline: float
    limits: RuleLimits
    account: Account
    bundle: Bundle
    number: int = 0
    sent_at: float = 0.0
    link: Link | None = None
    is_unsure: bool = False


class Incoming(msgspec.Struct, eq=False):
    """A neighbour's request, to serve in the local cloud.

    Attributes:
        bundle: The bundle of the request and its reply.
        number: The request's number in the bundle.
        rule: The rule that allows the request.
        call: The call, with the exported name.
        headers: The application's headers, encoded.
        name: The local name of the cluster.
        deadline: The end of the caller's wait.
        began_at: The time of arrival.
        limits: The limits that count the request as under way.
        account: The account of the request.
    """

    bundle: Bundle
    number: int
    rule: ExportRule
    call: Call
    headers: bytes
    name: str
    deadline: float
    began_at: float
    limits: RuleLimits
    account: Account


class Bundle:
    """One bundle (the connections to one gateway of another cloud), from its first authenticated connection on.

    Args:
        bundle_id: The initiator's id of the bundle, 8 bytes.
        gateway: The peer's process, 16 bytes.
        is_initiator: Whether the local gateway dials the connections.
        count: The planned number of connections.

    Attributes:
        address: The dialled address; empty at the responder.
        host: The peer's IP address.
        key: The public key of the neighbour.
        name: The other cloud's own name, for people.
        zone: The zone of the peer.
        max_message_bytes: The largest payload accepted by the peer.
        clock_ahead_s: The approximate lead of the peer's clock at the handshake.
        links: The connections by index; None for a missing connection.
        channels: The channel tables by index; None for a missing connection.
        health: The health of the cloud link.
        catalogue: The peer's catalogue (the names that the local cloud may use); None until received.
        is_going: Whether the peer drains.
        is_quiet: Whether the local gateway has told the draining peer that the bundle may end.
        is_released: Whether the peer has told the draining local gateway that the bundle may end.
        is_closed: Whether the bundle has ended.
        end_reason: The reason of the end, for people; empty before.
        calls: Requests sent, by number.
        incoming: Requests of the peer, by number.
        opened_at: The time when connection 0 opened.
        known_open: The indexes of connections known to be open at both ends.
        touched: Links with something to write.
    """

    def __init__(self, alias: str, bundle_id: bytes, gateway: bytes, *, is_initiator: bool, count: int, now: float) -> None:
        self.alias = alias
        self.id = bundle_id
        self.gateway = gateway
        self.is_initiator = is_initiator
        self.address = self.host = self.name = self.zone = self.end_reason = ""
        self.max_message_bytes = 0
        self.clock_ahead_s = 0.0
        self.key = b""
        self.links: list[Link | None] = [None] * count
        self.channels: list[Channels | None] = [None] * count
        self.health = CloudLinkHealth(now)
        self.catalogue: Catalogue | None = None
        self.is_going = False
        self.is_quiet = False
        self.is_released = False
        self.is_closed = False
        self.calls: dict[int, Outgoing] = {}
        self.incoming: dict[int, Incoming] = {}
        self.opened_at = now
        self.known_open: set[int] = set()
        self.touched: dict[Link, None] = {}
        self._last_number = 0
        self._last_channel = 0
        self._parts: list[bytes] = []  # small messages for connection 0
        self._parts_bytes = 0
        self._bulk: dict[Link, None] = {}  # connections but 0 with large messages queued
        self._asked: dict[Link, int] = {}  # received bytes of each connection but 0 at the last request for a sign
        self._asked_at = now
        self._large_replies: dict[Link, deque[int]] = {}  # may be lost with their connection

    def __repr__(self) -> str:
        return f"<Bundle {self.id.hex()[:8]} to {self.alias}/{self.gateway.hex()[:8]}>"

    # -- what it is

    @property
    def main(self) -> Link | None:
        """Connection 0, if open."""
        link = self.links[0]
        return link if link is not None and link.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether connection 0 is open and the peer's catalogue (exported names) has arrived."""
        return not self.is_closed and self.main is not None and self.catalogue is not None

    def is_usable(self, now: float) -> bool:
        """Tell whether the bundle may get new work."""
        return self.is_up and not self.is_going and self.health.is_sound(now)

    @property
    def where(self) -> str:
        """The peer gateway, for people: the dialled address, or the host that dialled."""
        return self.address or self.host

    def describe_fault(self, now: float) -> str:
        """Return why the bundle is unusable, for people."""
        if self.is_closed:
            return self.end_reason or "it has ended"
        if self.is_going:
            return "the gateway there is leaving"
        return f"nothing was heard for {now - self.health.heard_at:.0f} s"

    @property
    def is_busy(self) -> bool:
        """Whether an answer is outstanding."""
        return bool(self.calls) or any(channels is not None and len(channels) for channels in self.channels)

    def count_under_way(self) -> int:
        """Return the number of unfinished requests, of both gateways, and channels."""
        channels = sum(len(channels) for channels in self.channels if channels is not None)
        return len(self.calls) + len(self.incoming) + channels

    @property
    def queued_bytes(self) -> int:
        """The bytes of messages queued for sending, on the connections that have such messages."""
        self._bulk = {link: None for link in self._bulk if link.is_open and link.queued_bytes}
        main = 0 if self.main is None else self.main.queued_bytes
        return self._parts_bytes + main + sum(link.queued_bytes for link in self._bulk)

    def load(self) -> float:
        """Return the estimated wait of a new request, for comparison: requests under way times the round trip."""
        return (len(self.calls) + 1) * max(self.health.round_trip_s or 0.0, 0.001)

    # -- out

    def send_control(self, message: Control, now: float) -> None:
        """Send a control message, if connection 0 is open."""
        link = self.main
        if link is not None:
            link.send_control(encode_control(message))
            self._touch(link, now)

    def send_request(self, outgoing: Outgoing, now: float) -> None:
        """Send a request."""
        self._last_number = number = self._last_number + 1
        self.calls[number] = outgoing
        outgoing.bundle, outgoing.number, outgoing.sent_at = self, number, now
        left = packets.encode_time_left(outgoing.deadline - now - (self.health.round_trip_s or 0.0) / 2)
        payload = (call_head(outgoing.call), outgoing.call.payload)
        outgoing.link = self._send(packets.REQUEST, number, left, outgoing.headers, payload, now)
        self.health.expect(now)

    def send_cancel(self, number: int, now: float) -> None:
        """Tell the peer to cancel a request."""
        self._send(packets.CANCEL, number, 0, b"", (), now)

    def send_reply(self, number: int, reply: bytes, now: float) -> None:
        """Send the reply to a peer's request."""
        link = self._send(packets.REPLY, number, 0, b"", (reply,), now)
        if link is not None:
            self._large_replies.setdefault(link, deque(maxlen=REPLIES_MAX)).append(number)

    def take_large_replies(self, link: Link) -> Sequence[int]:
        """Take the numbers of the requests with large replies that may be lost with an ended connection."""
        return self._large_replies.pop(link, ())

    def flush(self, now: float) -> None:
        """Send the gathered messages on connection 0, as one body."""
        if not self._parts:
            return
        parts, size = self._parts, self._parts_bytes
        self._parts, self._parts_bytes = [], 0
        link = self.main
        if link is not None:
            link.send_body(LINE_GROUP, parts, size, is_ordered=False)
            self._touch(link, now)

    def abort(self, reason: str) -> None:
        """End all connections at once."""
        for link in self.links:
            if link is not None:
                link.abort(reason)
                self.touched[link] = None

    def ask_for_signs(self, now: float) -> list[Link]:
        """Ask periodically for a sign of life over all connections but 0; return the connections silent since the last time.

        Idle connections carry no other traffic: a firewall may forget a connection unnoticed until its next use.
        """
        if now < self._asked_at + PROBE_IDLE_S:
            return []
        was_awake = now < self._asked_at + 2 * PROBE_IDLE_S  # else the answers may wait unread in the sockets
        self._asked_at = now
        links = [link for link in self.links[1:] if link is not None and link.is_open]
        silent = [link for link in links if was_awake and self._asked.get(link) == link.received_bytes]
        self._asked = {link: link.received_bytes for link in links}
        for link in links:
            link.ask_for_sign()
            self.touched[link] = None
        return silent

    # -- channels

    def choose_connection(self) -> int:
        """Return the index of the connection for a new channel: open at both ends, with the fewest channels.

        Connection 0 is the last resort. The request for a channel travels on connection 0, and may arrive before another
        connection is open at the peer.
        """
        indexes = [index for index in self.known_open if (link := self.links[index]) is not None and link.is_open]
        return min(indexes, key=lambda index: len(self.channels[index] or ()), default=0)

    def next_channel(self) -> int:
        """Return a number for a channel opened here."""
        self._last_channel += 1
        return self._last_channel

    def channel_ends(self) -> list[ChannelEnd]:
        """Return every channel of the bundle."""
        return [end for channels in self.channels if channels is not None for end in channels.ends()]

    # --

    def _send(self, kind: int, number: int, argument: int, head: bytes, payload: Sequence[bytes], now: float) -> Link | None:
        """Send a message; return the connection used if other than connection 0."""
        parts = encode_message(kind, number, argument, head, payload)
        size = sum(map(len, parts))
        if size > SMALL_BYTES:
            link = self._bulk_link()
            if link is None:
                return None
            link.send_body(LINE_GROUP, parts, size, is_ordered=False)
            self._touch(link, now)
            if link is self.links[0]:
                return None
            self._bulk[link] = None
            return link
        if self._parts_bytes + size > SMALL_BYTES:
            self.flush(now)
        self._parts += parts
        self._parts_bytes += size
        return None

    def _bulk_link(self) -> Link | None:
        """Return the open connection with the shortest send queue; connection 0 only without another."""
        links = [link for link in self.links[1:] if link is not None and link.is_open]
        return min(links, key=lambda link: link.queued_bytes, default=self.main)

    def _touch(self, link: Link, now: float) -> None:
        if link.is_quiet:
            link.wake(now)
        self.touched[link] = None
