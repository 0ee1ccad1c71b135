"""Hop acknowledgements: a node keeps a forwarded message until the next hop has it (Castro, Costa, Rowstron, DSN 2004, 4.1).

Links are reliable while they last, but hops die and stall. The time-out follows the acknowledgement times of each hop.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_overlay.ring.messages import ACKNOWLEDGEMENTS_MAX, Got
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.ring.messages import Routed
    from iris_overlay.ring.state import Ring

#: The largest number of forwarded messages that wait for an acknowledgement. Beyond it the oldest is no longer repeated (and
#: counted). Too small: messages get lost under load; too large: memory.
PENDING_MAX: Final = 8192

#: The largest number of peers with remembered acknowledgement times; beyond it the least recently used is forgotten. Too small:
#: time-outs fall back to the default; too large: memory.
HOP_TIMES_MAX: Final = 256


class PendingHop:
    """A routed message, kept by the local node until the next hop acknowledges it."""

    __slots__ = ("attempts", "held_since", "hop", "message", "refusals", "sent_at", "taken_at", "tried")

    def __init__(self, message: Routed, tried: tuple[NodeId, ...] = (), taken_at: float | None = None) -> None:
        self.message = message
        self.taken_at = taken_at  # Arrival, if its source wants the time in each node.
        self.attempts = 0
        self.refusals = 0  # Consecutive hops that could not take the message.
        self.held_since: float | None = None  # Start of its first hold.
        self.tried = tried  # Hops that could not take the message, or were silent.
        self.hop: NodeInfo | None = None
        self.sent_at = 0.0

    def is_at(self, node: NodeId) -> bool:
        """Return whether a node should acknowledge the message."""
        return self.hop is not None and self.hop.id == node


class Hops:
    """Keep forwarded messages until their next hop acknowledges them, and acknowledge received messages."""

    __slots__ = ("_acknowledgements", "_pending", "_ring", "_sequence", "_times")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        # By sequence, so the oldest comes first.
        self._pending: dict[int, PendingHop] = {}
        self._acknowledgements: dict[NodeId, list[int]] = {}
        # Mean and mean deviation of acknowledgement times.
        self._times: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_sequence(self) -> int:
        """Return the number for the next forwarded message."""
        self._sequence += 1
        return self._sequence

    def watch(self, pending: PendingHop, hop: NodeInfo, sequence: int, now: float) -> None:
        """Keep a forwarded message, and set the time-out of its acknowledgement."""
        ring = self._ring
        pending.hop = hop
        pending.sent_at = now
        pending.attempts += 1
        if len(self._pending) >= PENDING_MAX:
            self.take(next(iter(self._pending)))
            ring.counters.pending_dropped += 1
        self._pending[sequence] = pending
        ring.timers.set((Timer.HOP, sequence), now + self._timeout_s(hop.id, pending.attempts))

    def take(self, sequence: int) -> PendingHop | None:
        """Stop keeping a forwarded message, and return it; None if unknown."""
        self._ring.timers.cancel((Timer.HOP, sequence))
        return self._pending.pop(sequence, None)

    def take_all(self, node: NodeId) -> list[PendingHop]:
        """Stop keeping the messages that a node should acknowledge, and return them."""
        lost = [(sequence, pending) for sequence, pending in self._pending.items() if pending.is_at(node)]
        for sequence, _ in lost:
            self.take(sequence)
        return [pending for _, pending in lost]

    def forget(self, node: NodeId) -> None:
        """Forget the acknowledgements due to a dead or departed node, and its acknowledgement times."""
        self._acknowledgements.pop(node, None)
        self._times.pop(node, None)

    def receive_got(self, peer: NodeId, message: Got, now: float) -> None:
        """Stop keeping the messages that a peer acknowledges, and measure its acknowledgement time."""
        for sequence in message.sequences:
            pending = self._pending.get(sequence)
            if pending is not None and pending.is_at(peer):
                self.take(sequence)
                self._measure(peer, now - pending.sent_at)

    def note(self, peer: NodeId, sequence: int, now: float) -> None:
        """Schedule the acknowledgement of a received message."""
        ring = self._ring
        waiting = self._acknowledgements.setdefault(peer, [])
        waiting.append(sequence)
        if len(waiting) >= ACKNOWLEDGEMENTS_MAX:
            del self._acknowledgements[peer]
            self._acknowledge(peer, waiting)
        elif (Timer.ACKNOWLEDGE, None) not in ring.timers:
            ring.timers.set((Timer.ACKNOWLEDGE, None), now + ring.config.acknowledgement_delay_s)

    def flush(self) -> None:
        """Send the collected acknowledgements."""
        waiting, self._acknowledgements = self._acknowledgements, {}
        for peer, sequences in waiting.items():
            self._acknowledge(peer, sequences)

    def expect(self, peer: NodeId, rtt_s: float) -> None:
        """Estimate the acknowledgement time of a peer from a round-trip time, unless it was measured already."""
        if peer not in self._times:
            expected = rtt_s + self._ring.config.acknowledgement_delay_s
            self._remember(peer, expected, expected / 2)

    def _acknowledge(self, peer: NodeId, sequences: list[int]) -> None:
        info = self._ring.find(peer)
        if info is not None:
            self._ring.tell(info, Got(sequences))

    def _timeout_s(self, node: NodeId, attempts: int) -> float:
        config = self._ring.config
        times = self._times.get(node)
        timeout = config.hop_timeout_s if times is None else times[0] + 4 * times[1]
        timeout = max(timeout, config.hop_timeout_s_min) * 2.0 ** (attempts - 1)
        return min(timeout, config.hop_timeout_s_max)

    def _measure(self, peer: NodeId, time_s: float) -> None:
        """Smooth the acknowledgement time as TCP does (RFC 6298 section 2)."""
        times = self._times.get(peer)
        if times is None:
            self._remember(peer, time_s, time_s / 2)
        else:
            mean, deviation = times
            self._remember(peer, 0.875 * mean + 0.125 * time_s, 0.75 * deviation + 0.25 * abs(mean - time_s))

    def _remember(self, peer: NodeId, mean_s: float, deviation_s: float) -> None:
        self._times[peer] = (mean_s, deviation_s)
        self._times.move_to_end(peer)
        if len(self._times) > HOP_TIMES_MAX:
            self._times.popitem(last=False)
