"""A bundle: the connections between two gateway processes, used as one line (docs/design.md 15.92).

Connection 0 carries control messages, and requests and replies as long as they are small; larger ones, and channels, take the
others, so that nothing small waits behind them. With connection 0 the bundle ends; with another one only its channels do, and
it is dialled again. Both sides may send requests, and each numbers its own.

Whether a line to another cloud still works, from what was received and from nothing else (docs/design.md 15.94).

A line is *probed* when nothing was heard for a while, sooner if something is outstanding. It is *suspect* when something is
outstanding, a probe at least, and nothing was heard for longer than a line and a busy gateway take: it gets nothing new. It is
*broken* when that goes on. What was suspect counts as sound again only after some time without a doubt, so that a line which
comes and goes does not make everybody come and go with it.

The detector is laxer than that inside a cloud (5.9), as a wide-area line is: Akka's for several data centres is so, too.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from iris_py.federation.calls import Call, call_head
from iris_py.federation.frames import LINE_GROUP, Control, encode_control, encode_message
from iris_py.federation.limits import Account, RuleLimits
from iris_py.federation.rules import ExportRule
from iris_py.link.link import Link
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.federation.channels import ChannelEnd, Channels
    from iris_py.federation.frames import Catalogue

#: Silence after which a line is probed while something is outstanding (seconds). Too small: every slow answer costs a probe.
PROBE_BUSY_S = 1.0
#: And while nothing is. Too small: idle lines cost; too large: a line that a firewall has forgotten is found when it is used.
PROBE_IDLE_S = 5.0
#: Silence with something outstanding after which a line gets nothing new (seconds), or so many smoothed round trips if that is
#: longer. Too small: a gateway that is busy for a moment, or a slow line with deep buffers, is avoided; too large: requests go
#: into a dead line for as long.
SUSPECT_S = 3.0
SUSPECT_ROUND_TRIPS = 6
#: And after which it is given up.
BROKEN_S = 10.0
#: Health (seconds) after a suspicion that makes a line count again: twice as much after each further one. Too small: a line
#: that comes and goes takes everybody along; too large: a line that is well again is not used for as long.
TRUST_S_MIN = 0.5
TRUST_S_MAX = 5.0
#: A suspicion so long ago (seconds) does not count any more.
FORGIVEN_S = 60.0
#: The share of a new round trip in the smoothed one (RFC 6298, section 2).
SMOOTHING = 1 / 8


class Health:
    """The state of one line, as far as it is known.

    Args:
        now: The time.

    Attributes:
        heard_at: When something was received last.
        round_trip_s: The smoothed round trip; None before the first one.
        is_suspect: Whether it gets nothing new.
    """

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.round_trip_s: float | None = None
        self.is_suspect = False
        self._waiting_since: float | None = None  # something is outstanding, and nothing was heard since
        self._probe = 0  # the number of the last one
        self._probed_at: float | None = None  # while it is not answered
        self._trusted_at = now  # when it counts again
        self._suspicions = 0  # of late

    def heard(self, now: float) -> None:
        """Something was received."""
        self.heard_at = now
        self._waiting_since = None
        if self.is_suspect:
            self.is_suspect = False
            self._suspicions = 0 if now >= self._trusted_at + FORGIVEN_S else self._suspicions
            self._trusted_at = now + min(TRUST_S_MAX, TRUST_S_MIN * 2.0**self._suspicions)
            self._suspicions = min(self._suspicions + 1, 16)

    def expect(self, now: float) -> None:
        """Something was sent that is to be answered."""
        if self._waiting_since is None:
            self._waiting_since = now

    def is_sound(self, now: float) -> bool:
        """Tell whether new things may go over it."""
        return not self.is_suspect and now >= self._trusted_at

    def handle_echo(self, number: int, now: float) -> None:
        """The other side has answered a probe."""
        if number == self._probe and self._probed_at is not None:
            sample = now - self._probed_at
            self._probed_at = None
            before = self.round_trip_s
            self.round_trip_s = sample if before is None else before + (sample - before) * SMOOTHING

    def probe(self, now: float) -> int:
        """Begin a probe; returns its number, which is to be sent."""
        self._probe = (self._probe + 1) & 0xFFFF_FFFF
        self._probed_at = now
        self.expect(now)
        return self._probe

    def check(self, now: float, *, is_busy: bool) -> tuple[bool, bool]:
        """Do what is due; returns whether to send a probe now, and whether the line is broken.

        Args:
            now: The time.
            is_busy: Whether something is outstanding.
        """
        since = self._waiting_since
        if since is not None:
            # Sums are compared, not differences: what was rounded otherwise than the deadline would come due for ever.
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
        """This side stood still: that it heard nothing meanwhile says nothing of the other side."""
        if self._waiting_since is not None:
            self._waiting_since = now
        self._probed_at = None

    @property
    def is_probed(self) -> bool:
        """Whether the other side has a probe to answer."""
        return self._probed_at is not None

    @property
    def _suspect_s(self) -> float:
        return min(BROKEN_S, max(SUSPECT_S, SUSPECT_ROUND_TRIPS * (self.round_trip_s or 0.0)))

    def _probe_at(self, *, is_busy: bool) -> float:
        last = self.heard_at if self._probed_at is None else max(self.heard_at, self._probed_at)
        return last + (PROBE_BUSY_S if is_busy or self._probed_at is not None else PROBE_IDLE_S)


#: Messages up to this share bodies on connection 0; larger ones go alone, over another connection. Too small: replies of usual
#: sizes wait behind bulk; too large: what is small waits behind them.
SMALL_BYTES = 62 * 1024
#: Requests of one neighbour that run here at once, over all its bundles and rules.
INCOMING_MAX = 65_536
#: While so much waits to be sent over one bundle, no request begins over it, in either direction. Too small: lines of some
#: hundred MB/s run dry; too large: a neighbour that does not read holds as much of our memory.
QUEUED_BYTES_MAX = 64 * 1024 * 1024
#: Replies over one connection, but for connection 0, that may be lost with it. More cannot be under way, for each is above
#: `SMALL_BYTES`, and a link with 256 MiB queued breaks. Too small: a caller waits in vain for one of them; too large: memory
#: for numbers of replies that have long arrived.
REPLIES_MAX = 8192


class Outgoing(msgspec.Struct, eq=False):
    """A request of this side, until its outcome is there.

    Attributes:
        token: What its outcome comes with.
        call: What is asked.
        headers: Those of the application, encoded.
        deadline: Until when somebody waits.
        bundle: Where it was sent.
        number: Its number there.
        sent_at: When it was sent there.
        link: The connection that it went over if that was not connection 0, and so may be lost alone.
        is_unsure: Whether it was sent another way before, which may have had it executed.
        limits: Where it is counted as under way.
        account: Where it is accounted for.
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
    """A request of a neighbour, to be served here.

    Attributes:
        bundle: It came over this one, and is answered there.
        number: Its number there.
        rule: The rule that allows it.
        call: What is asked; its name is that outside.
        headers: Those of the application, encoded.
        name: The cluster here.
        deadline: When nobody waits any more.
        began_at: When it came.
        limits: Where it is counted as under way.
        account: Where it is accounted for.
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
    """One bundle, from its first authenticated connection on.

    Args:
        alias: The neighbour.
        bundle_id: What the side that dials calls it, 8 bytes.
        gateway: The process at the other end, 16 bytes.
        is_initiator: Whether this side dials its connections.
        count: How many connections it is to have.
        now: The time.

    Attributes:
        address: Where it was dialled; empty at the side that was dialled.
        host: The IP address at the other end.
        key: The public key of the neighbour.
        name: What the other cloud calls itself, for people.
        zone: Where the other gateway is.
        max_message_bytes: The largest payload that the other side takes.
        clock_ahead_s: By how much the clock of the other side was ahead of ours when it introduced itself, about.
        links: Its connections by index; None where there is none.
        channels: Of each connection; likewise.
        health: Whether it still works.
        catalogue: What the other side lets us use; None until it has said so.
        is_going: Whether the other side drains.
        is_quiet: Whether this side has said that it uses it no more, for the other side drains.
        is_released: Whether the other side has said that.
        is_closed: Whether it has ended.
        end_reason: The reason of its end, for people; empty before.
        calls: Requests that were sent, by number.
        incoming: Requests of the other side, by number.
        opened_at: When connection 0 was open.
        known_open: The connections, by index, that the other side has open, too, as far as this one knows.
        touched: Links that have something to write.
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
        self.health = Health(now)
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
        self._parts: list[bytes] = []  # of small messages, for connection 0
        self._parts_bytes = 0
        self._asked: dict[Link, int] = {}  # connections but 0, and what had come over them when they were asked for a sign
        self._asked_at = now
        self._large_replies: dict[Link, deque[int]] = {}  # that may be lost with a connection alone

    def __repr__(self) -> str:
        return f"<Bundle {self.id.hex()[:8]} to {self.alias}/{self.gateway.hex()[:8]}>"

    # -- what it is

    @property
    def main(self) -> Link | None:
        """Connection 0, if it is open."""
        link = self.links[0]
        return link if link is not None and link.is_open else None

    @property
    def is_up(self) -> bool:
        """Whether something may be sent over it at all."""
        return not self.is_closed and self.main is not None and self.catalogue is not None

    def is_usable(self, now: float) -> bool:
        """Tell whether new things may be sent over it."""
        return self.is_up and not self.is_going and self.health.is_sound(now)

    @property
    def where(self) -> str:
        """The gateway at the other end, for people: the address that was dialled, or the host that has dialled."""
        return self.address or self.host

    def describe_fault(self, now: float) -> str:
        """Return why it is not usable, for people."""
        if self.is_closed:
            return self.end_reason or "it has ended"
        if self.is_going:
            return "the gateway there is leaving"
        return f"nothing was heard for {now - self.health.heard_at:.0f} s"

    @property
    def is_busy(self) -> bool:
        """Whether something is outstanding."""
        return bool(self.calls) or any(channels is not None and len(channels) for channels in self.channels)

    def count_under_way(self) -> int:
        """Return how many requests, of both sides, and channels have not ended."""
        channels = sum(len(channels) for channels in self.channels if channels is not None)
        return len(self.calls) + len(self.incoming) + channels

    @property
    def queued_bytes(self) -> int:
        """The bytes that wait to be sent."""
        return self._parts_bytes + sum(link.queued_bytes for link in self.links if link is not None)

    def load(self) -> float:
        """Return how long a new request would wait, for comparison: what is under way, times the round trip."""
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
        """Tell that nobody waits for a request any more."""
        self._send(packets.CANCEL, number, 0, b"", (), now)

    def send_reply(self, number: int, reply: bytes, now: float) -> None:
        """Answer a request of the other side."""
        link = self._send(packets.REPLY, number, 0, b"", (reply,), now)
        if link is not None:
            self._large_replies.setdefault(link, deque(maxlen=REPLIES_MAX)).append(number)

    def take_large_replies(self, link: Link) -> Sequence[int]:
        """Return the numbers of the requests whose replies may be lost with a connection that has ended."""
        return self._large_replies.pop(link, ())

    def flush(self, now: float) -> None:
        """Give connection 0 what was gathered, as one body."""
        if not self._parts:
            return
        parts, size = self._parts, self._parts_bytes
        self._parts, self._parts_bytes = [], 0
        link = self.main
        if link is not None:
            link.send_body(LINE_GROUP, parts, size, is_ordered=False)
            self._touch(link, now)

    def abort(self, reason: str) -> None:
        """End all its connections at once."""
        for link in self.links:
            if link is not None:
                link.abort(reason)
                self.touched[link] = None

    def ask_for_signs(self, now: float) -> list[Link]:
        """Ask for a sign of life over every connection but connection 0, from time to time; return those that gave none.

        Nothing else would be sent over one that nobody uses: a firewall forgets it, and who uses it next would find that out.
        """
        if now < self._asked_at + PROBE_IDLE_S:
            return []
        was_awake = now < self._asked_at + 2 * PROBE_IDLE_S  # else the answers may stand in the sockets, unread
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
        """Return the index of the connection for a new channel: of those open at both sides the one with the fewest.

        Connection 0 is taken only if there is no other: the question for a channel goes over it, and may overtake what opens
        another one.
        """
        indexes = [index for index in self.known_open if (link := self.links[index]) is not None and link.is_open]
        return min(indexes, key=lambda index: len(self.channels[index] or ()), default=0)

    def next_channel(self) -> int:
        """Return a number for a channel that this side opens."""
        self._last_channel += 1
        return self._last_channel

    def channel_ends(self) -> list[ChannelEnd]:
        """Return every channel of the bundle."""
        return [end for channels in self.channels if channels is not None for end in channels.ends()]

    # --

    def _send(self, kind: int, number: int, argument: int, head: bytes, payload: Sequence[bytes], now: float) -> Link | None:
        """Send a message; returns the connection that it went over if that was not connection 0."""
        parts = encode_message(kind, number, argument, head, payload)
        size = sum(map(len, parts))
        if size > SMALL_BYTES:
            link = self._bulk_link()
            if link is not None:
                link.send_body(LINE_GROUP, parts, size, is_ordered=False)
                self._touch(link, now)
            return link if link is not self.links[0] else None
        if self._parts_bytes + size > SMALL_BYTES:
            self.flush(now)
        self._parts += parts
        self._parts_bytes += size
        return None

    def _bulk_link(self) -> Link | None:
        """Return the open connection with the least to send; connection 0 only if it is alone."""
        links = [link for link in self.links[1:] if link is not None and link.is_open]
        return min(links, key=lambda link: link.queued_bytes, default=self.main)

    def _touch(self, link: Link, now: float) -> None:
        if link.is_quiet:
            link.wake(now)
        self.touched[link] = None
