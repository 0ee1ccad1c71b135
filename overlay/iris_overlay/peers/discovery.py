"""Finding unknown nodes: the initial search, and permanent beacons.

**The search** ends when the node is part of a ring. The node starts its own ring when no dial has succeeded and beacons had
time to be answered; at the latest after `settle_timeout_s` without a link, or after `join_timeout_s` with a link.

**Beacons** are questions or announcements. A node without a ring, or alone in its ring, sends questions, at the start and at
every interval; this heals even an outage of all nodes but one. Other nodes announce their existence, which heals partitions. Of
n nodes that hear a question, about `answers_wanted` answer, after a jitter. Of n nodes that hear of an unknown node, about one
dials it; the node may be a distant member of their own ring. Amplification is ruled out: questions are padded to
QUESTION_BYTES_MIN, an answer never exceeds its question, a source gets one answer at a time, and all answers together are
limited per second.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.errors import MessageError
from iris_overlay.node_info import decode_beacon, encode_beacon
from iris_overlay.peers.vantage import put_first
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_overlay.config import OverlayConfig
    from iris_overlay.environment import Rng
    from iris_overlay.events import Counters
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import Beacon, NodeInfo
    from iris_overlay.peers.dialler import Dialler

Source: TypeAlias = tuple[str, int]

#: The largest number of answers that wait for their jitter. Too small: bursts of questions stay unanswered; too large: memory.
#: `answers_per_s_max` limits the answers anyway.
ANSWERS_PENDING_MAX: Final = 64


class Familiarity(enum.Enum):
    """The ring's knowledge of a node that was heard."""

    KNOWN = enum.auto()
    """The node has a link, or is in the leaf set or the table."""
    NEIGHBOUR = enum.auto()
    """The node would be in the leaf set if it were in the same ring."""
    FAR = enum.auto()
    """Unknown and distant: in a large ring no node knows all others."""


class _DiscoveryTimer(enum.Enum):
    BEACON = enum.auto()
    BEACON_WAIT = enum.auto()
    ASK_AGAIN = enum.auto()
    SETTLE = enum.auto()
    JOIN = enum.auto()


class Discovery:
    """Find unknown nodes: search at the start, send and answer beacons, and pass found nodes to the dialler.

    The parameter `peers` is the estimated number of other nodes; 0 before this node is part of a ring.
    """

    def __init__(
        self,
        local: NodeInfo,
        config: OverlayConfig,
        rng: Rng,
        dialler: Dialler,
        counters: Counters,
        familiarity_of: Callable[[NodeId], Familiarity],
    ) -> None:
        """Create the component, with no node found.

        Args:
            local: The node itself.
            config: The constants.
            rng: The source of jitter.
            dialler: Dials the found nodes.
            counters: The counters of drops.
            familiarity_of: Returns the ring's knowledge of a node.
        """
        self.datagrams: list[tuple[Source | None, bytes]] = []
        self.is_settled = False
        self._local = local
        self._config = config
        self._rng = rng
        self._dialler = dialler
        self._counters = counters
        self._familiarity_of = familiarity_of
        self._timers: DeadlineTable[_DiscoveryTimer] = DeadlineTable()
        self._has_beacons = False
        # The wait for a first link: longer once a node has accepted a connection.
        self._settle_wait_s = config.settle_timeout_s
        # The time-out of each answer that waits for its jitter, and the size of its question.
        self._answers: DeadlineTable[Source] = DeadlineTable()
        self._question_bytes: dict[Source, int] = {}
        self._answer_second = float("-inf")
        self._answers_in_second = 0

    @property
    def answers_count(self) -> int:
        """The number of answers that wait for their jitter."""
        return len(self._question_bytes)

    def start(self, now: float, seeds: Sequence[str], remembered: Sequence[str], *, beacons: bool, is_complete: bool) -> None:
        """Begin the search: dial the seeds and remembered addresses, and send a beacon."""
        for address in seeds:
            self._dialler.add_address(address, now, is_seed=True)
        # In random order: nodes started together must not all dial the same few addresses.
        left = list(remembered)
        while left:
            self._dialler.add_address(left.pop(self._rng.randrange(len(left))), now)
        self._timers.set(_DiscoveryTimer.SETTLE, now + self._settle_wait_s)
        self._timers.set(_DiscoveryTimer.JOIN, now + self._config.join_timeout_s)
        self._has_beacons = beacons
        if beacons:
            if not is_complete:
                self._timers.set(_DiscoveryTimer.BEACON_WAIT, now + self._config.beacon_wait_s)
                self._timers.set(_DiscoveryTimer.ASK_AGAIN, now + self._config.beacon_wait_s / 2)
            self._send_beacon(now, peers=0)

    def receive_datagram(self, sender: NodeId, data: bytes, source: Source, now: float, peers: int) -> None:
        """Answer the beacon of an unknown node and dial its sender, each by chance in a large network."""
        try:
            beacon = decode_beacon(data)
        except MessageError:
            self._counters.datagrams_invalid += 1
            return
        info = beacon.info
        if info.id != sender:
            self._counters.datagrams_invalid += 1
            return
        if not self._has_beacons or info.id == self._local.id:
            return
        familiarity = self._familiarity_of(info.id)
        if familiarity is Familiarity.KNOWN:
            return
        is_answered = beacon.wants_answer and self._maybe_answer(source, len(data), now, peers)
        # A node that belongs next to this one is certainly new. Any other may be in the same ring, so only one node dials it.
        if familiarity is Familiarity.NEIGHBOUR or is_answered or self._rng.random() * (peers + 1) < 1.0:
            info = put_first(info, source[0])
            self._dialler.add_peer(info, now + self._dial_delay_s(beacon, peers, is_answered=is_answered), now)

    def dial_connected(self, now: float) -> None:
        """Wait longer before starting alone, because a node accepted a connection and may merely be busy."""
        if not self.is_settled:
            self._settle_wait_s = self._config.handshake_wait_s
            self._timers.set(_DiscoveryTimer.SETTLE, now + self._settle_wait_s)

    def resume(self, now: float) -> None:
        """Begin the waits of the search anew after a standstill of this process: answers may lie unread in its sockets."""
        config = self._config
        for timer, wait_s in (
            (_DiscoveryTimer.SETTLE, self._settle_wait_s),
            (_DiscoveryTimer.JOIN, config.join_timeout_s),
            (_DiscoveryTimer.BEACON_WAIT, config.beacon_wait_s),
        ):
            if timer in self._timers:
                self._timers.set(timer, now + wait_s)

    def should_start_alone(self, *, has_link: bool, is_linking: bool) -> bool:
        """Return whether to start an own ring, because no reachable node lets this node join.

        Args:
            has_link: Whether any link is open.
            is_linking: Whether a node answered a dial, so that a link is about to open.
        """
        if _DiscoveryTimer.JOIN not in self._timers:
            return True
        if has_link:
            return False
        is_late = _DiscoveryTimer.SETTLE not in self._timers
        return is_late or not (is_linking or self._dialler.is_trying or _DiscoveryTimer.BEACON_WAIT in self._timers)

    def settle(self) -> None:
        """End the search: the node is part of a ring."""
        self.is_settled = True
        for timer in (_DiscoveryTimer.SETTLE, _DiscoveryTimer.JOIN, _DiscoveryTimer.BEACON_WAIT, _DiscoveryTimer.ASK_AGAIN):
            self._timers.cancel(timer)
        self._dialler.forget_untried(self._config.remembered_max)

    def handle_timeout(self, now: float, peers: int) -> None:
        """Send the beacons and answers that are due; harmless if early."""
        for timer in self._timers.expired(now):
            # Datagrams get lost, and by chance no node may answer: with a single question one start in a thousand would take
            # itself for alone.
            if timer is _DiscoveryTimer.BEACON or (timer is _DiscoveryTimer.ASK_AGAIN and peers == 0):
                self._send_beacon(now, peers)
        for source in self._answers.expired(now):
            self._send_answer(source, peers, self._question_bytes.pop(source))

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        first, second = self._timers.deadline(), self._answers.deadline()
        if first is None or second is None:
            return second if first is None else first
        return min(first, second)

    def stop(self) -> None:
        """Stop searching, sending and answering."""
        self.is_settled = True
        self._has_beacons = False
        self._timers = DeadlineTable()
        self._answers = DeadlineTable()
        self._question_bytes.clear()
        self.datagrams.clear()
        self._dialler.stop()

    def _send_beacon(self, now: float, peers: int) -> None:
        interval = max(self._config.beacon_interval_s, self._config.beacon_interval_per_peer_s * peers)
        self._timers.set(_DiscoveryTimer.BEACON, now + interval * self._rng.uniform(0.8, 1.2))
        data = encode_beacon(self._local, wants_answer=peers == 0, peers=peers)
        # A node without addresses cannot be dialled, so it announces nothing.
        if data is not None:
            self.datagrams.append((None, data))

    def _maybe_answer(self, source: Source, question_bytes: int, now: float, peers: int) -> bool:
        """Answer the question of an unknown node, by chance; return whether an answer is sent or waiting."""
        if source in self._question_bytes:
            return True
        if self._rng.random() >= self._config.answers_wanted / (peers + 1):
            return False
        if now - self._answer_second >= 1.0:
            self._answer_second = now
            self._answers_in_second = 0
        is_full = self._answers_in_second >= self._config.answers_per_s_max or len(self._answers) >= ANSWERS_PENDING_MAX
        if is_full or self._encode_answer(peers, question_bytes) is None:
            self._counters.answers_suppressed += 1
            return False
        self._answers_in_second += 1
        if peers <= self._config.answers_wanted:
            self._send_answer(source, peers, question_bytes)
        else:
            self._question_bytes[source] = question_bytes
            self._answers.set(source, now + self._rng.uniform(0.0, self._config.beacon_jitter_s))
        return True

    def _send_answer(self, source: Source, peers: int, question_bytes: int) -> None:
        data = self._encode_answer(peers, question_bytes)
        if data is not None:
            self.datagrams.append((source, data))

    def _encode_answer(self, peers: int, question_bytes: int) -> bytes | None:
        return encode_beacon(self._local, wants_answer=False, peers=peers, bytes_max=question_bytes)

    def _dial_delay_s(self, beacon: Beacon, peers: int, *, is_answered: bool) -> float:
        """Return the wait before the sender of a beacon is dialled."""
        if peers == 0 and not is_answered:
            return 0.0
        # The sender of a question dials the nodes that answer, so a dial from here would make a second link. It comes later, in
        # case the answer is lost. Of nodes with peers, one dials first; after the merge the others know the sender or its
        # place. The smaller of two networks dials first.
        jitter = self._config.beacon_dial_jitter_s * (0.25 if beacon.peers > peers else 1.0)
        return self._rng.uniform(0.25 * jitter, jitter)
