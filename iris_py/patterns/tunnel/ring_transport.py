"""The transport of a tunnel through the ring, for two nodes without a link: chunks are numbered, acknowledged and repeated.

Packets through the ring may be lost, repeated and reordered. Each has a plain header: the tunnel, the number of its chunk, and
the next chunk expected from the other side, which acknowledges all earlier ones. A relay can stop the tunnel by forging
headers, just as by dropping packets. Chunks are encrypted in order, so a relay can neither change nor hide any.
"""

from __future__ import annotations

import struct

from iris_py.link.lanes import TUNNEL
from iris_py.link.pacing import CHUNK_BYTES_MIN
from iris_py.patterns.tunnel.duplex import Failure, Way
from iris_py.patterns.tunnel.end import TunnelEnd
from iris_security import AuthenticationError

#: kind, tunnel, number of the chunk, number of the next expected chunk
HEADER = struct.Struct(">BQQQ")
#: In place of a chunk's number: NONE for an acknowledgement only, PROBE for a request to acknowledge.
NONE, PROBE = 0, (1 << 64) - 1

#: Chunks in transit. Relays carry them in their control lane, so they must be few; each has at most 31 KiB.
CHUNKS_MAX = 8
#: Time until the first unacknowledged chunk is sent again (seconds), doubling up to the second value. Too small: slow chunks
#: are sent twice; too large: each loss costs that long.
RESEND_S = 0.5
RESEND_S_MAX = 4.0
#: Acknowledgements without progress after which the first chunk is sent again at once; two may be reordering.
REPEATED_ACKS = 3
#: Silence after which this side sends a PROBE (seconds).
PROBE_S = 3.0
#: Time after which a silent tunnel, or one without progress of its acknowledgements, breaks (seconds). Longer than a ring needs
#: to find its way around a dead relay.
SILENCE_S = 10.0
#: Time for which the transport of an ended tunnel stays, to repeat lost packets (seconds).
LINGER_S = 10.0
#: Ended tunnels' transports that stay, of all tunnels of a node; beyond this bound the oldest is removed. Too small: when many
#: tunnels through the ring end at once, some cleanly ended ones break at the other side; too large: memory.
LINGERING_MAX = 1024


class RingWay(Way[TunnelEnd]):
    """The transport of one end through the ring.

    Args:
        ready_ways: Collects transports with data to send.

    Attributes:
        end: The end; set once, by the owner.
        linger_until: After the tunnel's end, the time until which it repeats lost packets.
    """

    end: TunnelEnd

    def __init__(self, ready_ways: dict[Way[TunnelEnd], None], now: float) -> None:
        super().__init__(ready_ways)
        self.linger_until: float | None = None
        self._sent = 0  # number of the last chunk
        self._unacknowledged: dict[int, bytes] = {}  # in order
        self._expected = 1
        self._early: dict[int, bytes] = {}  # chunks received early
        self._resend_s = RESEND_S
        self._resend_at: float | None = None
        self._progress_at = now  # start of the first unacknowledged chunk's wait
        self._heard_at = self._probed_at = now
        self._repeated_acks = 0
        self._is_ack_due = self._is_resend_due = self._is_probe_due = False

    @property
    def has_output(self) -> bool:
        """Whether :meth:`packets_to_send` would return packets."""
        has_chunk = bool(self.ready) and len(self._unacknowledged) < CHUNKS_MAX
        return has_chunk or self._is_ack_due or self._is_resend_due or self._is_probe_due

    def packets_to_send(self, now: float) -> list[bytes]:
        """Take the packets to send."""
        end, packets = self.end, []
        if self._is_resend_due and self._unacknowledged:
            number = next(iter(self._unacknowledged))
            packets.append(self._header(number) + self._unacknowledged[number])
        while self.ready and len(self._unacknowledged) < CHUNKS_MAX:
            if not self._unacknowledged:
                self._progress_at = now
                self._resend_at = now + self._resend_s
            self._sent += 1
            sealed = self._unacknowledged[self._sent] = end.seal(end.next_chunk(CHUNK_BYTES_MIN))
            if not end.is_ready:
                self.ready.clear()
            packets.append(self._header(self._sent) + sealed)
        if self._is_probe_due:
            packets.append(self._header(PROBE))
        elif self._is_ack_due and not packets:
            packets.append(self._header(NONE))
        self._is_ack_due = self._is_resend_due = self._is_probe_due = False
        return packets

    def receive(self, number: int, expected: int, sealed: bytes, now: float) -> bool:
        """Handle a packet of the other side; return whether all decrypted chunks are authentic."""
        self._heard_at = now
        self._receive_acknowledgement(expected, number, now)
        if number == PROBE:
            self._is_ack_due = True
        if number in (NONE, PROBE):
            return True
        self._is_ack_due = True
        if not self._expected <= number < self._expected + CHUNKS_MAX:
            return True  # a repetition, or beyond CHUNKS_MAX
        self._early[number] = sealed
        while self._expected in self._early:
            try:
                self.end.receive_sealed(self._early.pop(self._expected))
            except AuthenticationError:
                return False  # forged on the way; the genuine chunk will be repeated
            self._expected += 1
        return True

    def handle_timeout(self, now: float) -> None:
        """Handle expired deadlines; harmless if early."""
        silent_since = self._progress_at if self._unacknowledged else self._heard_at
        if now >= silent_since + SILENCE_S and self.linger_until is None:
            self.end.fail(Failure(f"no progress through the ring for {SILENCE_S:g} s", kind="silence"), is_told=False)
            return
        if self._resend_at is not None and now >= self._resend_at:
            self._is_resend_due = True
            self._resend_s = min(RESEND_S_MAX, 2 * self._resend_s)
            self._resend_at = now + self._resend_s
        if self.linger_until is None and now >= max(self._heard_at, self._probed_at) + PROBE_S:
            self._probed_at = now
            self._is_probe_due = True

    def deadline(self) -> float:
        """Return the time at which to call :meth:`handle_timeout`."""
        silent_since = self._progress_at if self._unacknowledged else self._heard_at
        times = [silent_since + SILENCE_S, max(self._heard_at, self._probed_at) + PROBE_S]
        if self.linger_until is not None:
            times = [self.linger_until]
        return min(times) if self._resend_at is None else min(*times, self._resend_at)

    def _receive_acknowledgement(self, expected: int, number: int, now: float) -> None:
        acknowledged = [each for each in self._unacknowledged if each < expected <= self._sent + 1]
        for each in acknowledged:
            del self._unacknowledged[each]
        if acknowledged:
            self._progress_at = now
            self._resend_s, self._repeated_acks = RESEND_S, 0
            self._resend_at = now + self._resend_s if self._unacknowledged else None
        elif number == NONE and self._unacknowledged and expected == next(iter(self._unacknowledged)):
            self._repeated_acks += 1
            if self._repeated_acks == REPEATED_ACKS:
                self._is_resend_due = True

    def _header(self, number: int) -> bytes:
        return HEADER.pack(TUNNEL, self.end.id, number, self._expected)
