"""Hop acknowledgements: a node keeps what it forwarded until the next hop has it (Castro, Costa, Rowstron, DSN 2004, 4.1).

Links are reliable while they hold, but hops die and stall. The time-out follows the time that each hop takes to acknowledge.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_overlay.ring.messages import ACKNOWLEDGEMENTS_MAX, Got
from iris_overlay.ring.state import Timer

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_overlay.ring.messages import Routed
    from iris_overlay.ring.state import Ring

#: Messages that wait for an acknowledgement. When full, the oldest is no longer watched over (and counted).
PENDING_MAX: Final = 8192

#: Peers whose acknowledgement times are remembered; the one not used for longest is forgotten.
HOP_TIMES_MAX: Final = 256


class Pending:
    """Remember a message that this node takes care of."""

    __slots__ = ("attempts", "held_since", "hop", "message", "refusals", "sent_at", "taken_at", "tried")

    def __init__(self, message: Routed, tried: tuple[NodeId, ...] = (), taken_at: float | None = None) -> None:
        self.message = message
        self.taken_at = taken_at  # When it came, if its source wants to know how long it stays.
        self.attempts = 0
        self.refusals = 0  # In a row: nothing could be given to so many hops.
        self.held_since: float | None = None  # When it was first held.
        self.tried = tried  # Hops that it could not be given to, or that were silent.
        self.hop: NodeInfo | None = None
        self.sent_at = 0.0

    def is_at(self, node: NodeId) -> bool:
        """Return whether a node should acknowledge it."""
        return self.hop is not None and self.hop.id == node


class Hops:
    """Keep what was forwarded, and acknowledge what was received."""

    __slots__ = ("_acknowledgements", "_pending", "_ring", "_sequence", "_times")

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        # By sequence, so the oldest comes first.
        self._pending: dict[int, Pending] = {}
        self._acknowledgements: dict[NodeId, list[int]] = {}
        # Mean and mean deviation of the time to acknowledge.
        self._times: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_sequence(self) -> int:
        """Return the number for the next message to forward."""
        self._sequence += 1
        return self._sequence

    def watch(self, pending: Pending, hop: NodeInfo, sequence: int, now: float) -> None:
        """Keep a message that was forwarded."""
        ring = self._ring
        pending.hop = hop
        pending.sent_at = now
        pending.attempts += 1
        if len(self._pending) >= PENDING_MAX:
            self.take(next(iter(self._pending)))
            ring.counters.pending_dropped += 1
        self._pending[sequence] = pending
        ring.timers.set((Timer.HOP, sequence), now + self._timeout_s(hop.id, pending.attempts))

    def take(self, sequence: int) -> Pending | None:
        """Stop watching over a message."""
        self._ring.timers.cancel((Timer.HOP, sequence))
        return self._pending.pop(sequence, None)

    def take_all(self, node: NodeId) -> list[Pending]:
        """Stop watching over what a node should acknowledge."""
        lost = [(sequence, pending) for sequence, pending in self._pending.items() if pending.is_at(node)]
        for sequence, _ in lost:
            self.take(sequence)
        return [pending for _, pending in lost]

    def forget(self, node: NodeId) -> None:
        """Forget what concerns a node that is gone."""
        self._acknowledgements.pop(node, None)
        self._times.pop(node, None)

    def receive_got(self, peer: NodeId, message: Got, now: float) -> None:
        """Handle acknowledgements."""
        for sequence in message.sequences:
            pending = self._pending.get(sequence)
            if pending is not None and pending.is_at(peer):
                self.take(sequence)
                self._measure(peer, now - pending.sent_at)

    def note(self, peer: NodeId, sequence: int, now: float) -> None:
        """Remember to acknowledge a hop."""
        ring = self._ring
        waiting = self._acknowledgements.setdefault(peer, [])
        waiting.append(sequence)
        if len(waiting) >= ACKNOWLEDGEMENTS_MAX:
            del self._acknowledgements[peer]
            self._acknowledge(peer, waiting)
        elif (Timer.ACKNOWLEDGE, None) not in ring.timers:
            ring.timers.set((Timer.ACKNOWLEDGE, None), now + ring.config.acknowledgement_delay_s)

    def flush(self) -> None:
        """Send the acknowledgements that were collected."""
        waiting, self._acknowledgements = self._acknowledgements, {}
        for peer, sequences in waiting.items():
            self._acknowledge(peer, sequences)

    def expect(self, peer: NodeId, rtt_s: float) -> None:
        """Learn the round-trip time of a peer from elsewhere, if nothing is known yet."""
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
        """Follow the time to acknowledge as TCP does (RFC 6298 section 2)."""
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
