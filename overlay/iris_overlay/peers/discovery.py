"""Finding unknown nodes: the search at the start, and beacons for ever.

**The search** is over as soon as the node is part of a ring. It starts a ring of its own when everybody it dialled could not be
reached, and beacons had time to be answered; at the latest after `settle_timeout_s` without a link, and after `join_timeout_s`
with one.

**Beacons** are questions or answers. A node without a ring asks, and one that is alone in its own: at the start and at every
interval, which heals even an outage of everything but one node. Others only say that they exist, which heals partitions. Of n
nodes that hear a question, about `answers_wanted` answer, after a jitter; of n that hear of an unknown node, maybe one of a far
place in their own ring, about one dials it. Amplification is ruled out: questions are padded to QUESTION_BYTES_MIN, an
answer that would be larger than its question leaves addresses out or is not sent, one source gets one answer at a time, and
all answers together are limited in each second.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.errors import MessageError
from iris_overlay.messages import decode_beacon, encode_beacon
from iris_overlay.peers.vantage import put_first
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_overlay.config import OverlayConfig
    from iris_overlay.counters import Counters
    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import Beacon, NodeInfo
    from iris_overlay.peers.dialling import Dialler

Source: TypeAlias = tuple[str, int]

#: Answers that wait for their jitter. `answers_per_s_max` lets fewer through anyway.
ANSWERS_PENDING_MAX: Final = 64


class Familiarity(enum.Enum):
    """Tell what the ring knows about a node that made itself heard."""

    KNOWN = enum.auto()
    """There is a link to it, or it is in the leaf set or the table."""
    NEIGHBOUR = enum.auto()
    """It would be in the leaf set if it were in the same ring."""
    FAR = enum.auto()
    """Nothing: in a large ring nobody knows everybody."""


class _Timer(enum.Enum):
    BEACON = enum.auto()
    BEACON_WAIT = enum.auto()
    ASK_AGAIN = enum.auto()
    SETTLE = enum.auto()
    JOIN = enum.auto()


class Discovery:
    """Search at the start, send and answer beacons, and hand what was found to the dialler.

    `peers` is how many other nodes the network has, about; 0 before this node is part of a ring.
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
        """Find nobody yet.

        Args:
            local: The node itself.
            config: The constants.
            rng: For jitter.
            dialler: Who dials what is found.
            counters: Where to count what is dropped.
            familiarity_of: Tells what the ring knows about a node.
        """
        self.datagrams: list[tuple[Source | None, bytes]] = []
        self.is_settled = False
        self._local = local
        self._config = config
        self._rng = rng
        self._dialler = dialler
        self._counters = counters
        self._familiarity_of = familiarity_of
        self._timers: DeadlineTable[_Timer] = DeadlineTable()
        self._has_beacons = False
        # The time-out of each answer that waits for its jitter, and the size of its question.
        self._answers: DeadlineTable[Source] = DeadlineTable()
        self._question_bytes: dict[Source, int] = {}
        self._answer_second = float("-inf")
        self._answers_in_second = 0

    @property
    def answers_count(self) -> int:
        """Return how many answers wait for their jitter."""
        return len(self._question_bytes)

    def start(self, now: float, seeds: Sequence[str], remembered: Sequence[str], *, beacons: bool, is_complete: bool) -> None:
        """Begin the search."""
        for address in seeds:
            self._dialler.add_address(address, now, is_seed=True)
        # In random order: those who start together must not all go to the same few.
        left = list(remembered)
        while left:
            self._dialler.add_address(left.pop(self._rng.randrange(len(left))), now)
        self._timers.set(_Timer.SETTLE, now + self._config.settle_timeout_s)
        self._timers.set(_Timer.JOIN, now + self._config.join_timeout_s)
        self._has_beacons = beacons
        if beacons:
            if not is_complete:
                self._timers.set(_Timer.BEACON_WAIT, now + self._config.beacon_wait_s)
                self._timers.set(_Timer.ASK_AGAIN, now + self._config.beacon_wait_s / 2)
            self._send_beacon(now, peers=0)

    def receive_datagram(self, sender: NodeId, data: bytes, source: Source, now: float, peers: int) -> None:
        """Handle a datagram of a node, which surely sent it."""
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
        # A node that belongs next to us is surely new. Any other may be in our ring, so one of us looks at it.
        if familiarity is Familiarity.NEIGHBOUR or is_answered or self._rng.random() * (peers + 1) < 1.0:
            info = put_first(info, source[0])
            self._dialler.add_peer(info, now + self._dial_delay_s(beacon, peers, is_answered=is_answered), now)

    def dial_connected(self, now: float) -> None:
        """Handle that somebody is there, who may merely be busy: wait for longer before starting alone."""
        if not self.is_settled:
            self._timers.set(_Timer.SETTLE, now + self._config.handshake_wait_s)

    def should_start_alone(self, *, has_link: bool, is_linking: bool) -> bool:
        """Return whether nobody who can be reached lets this node join.

        Args:
            has_link: Whether there is a link to anybody.
            is_linking: Whether somebody answered a dial, so that a link is about to open.
        """
        if _Timer.JOIN not in self._timers:
            return True
        if has_link:
            return False
        is_late = _Timer.SETTLE not in self._timers
        return is_late or not (is_linking or self._dialler.is_trying or _Timer.BEACON_WAIT in self._timers)

    def settle(self) -> None:
        """End the search: the node is part of a ring."""
        self.is_settled = True
        for timer in (_Timer.SETTLE, _Timer.JOIN, _Timer.BEACON_WAIT, _Timer.ASK_AGAIN):
            self._timers.cancel(timer)
        self._dialler.forget_untried(self._config.remembered_max)

    def handle_timeout(self, now: float, peers: int) -> None:
        """Send the beacons and answers that are due."""
        for timer in self._timers.expired(now):
            # Datagrams get lost, and by chance nobody may answer: one question alone would let a start in a thousand believe
            # that it is alone.
            if timer is _Timer.BEACON or (timer is _Timer.ASK_AGAIN and peers == 0):
                self._send_beacon(now, peers)
        for source in self._answers.expired(now):
            self._send_answer(source, peers, self._question_bytes.pop(source))

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        first, second = self._timers.deadline(), self._answers.deadline()
        if first is None or second is None:
            return second if first is None else first
        return min(first, second)

    def stop(self) -> None:
        """Search no more, and be silent."""
        self.is_settled = True
        self._has_beacons = False
        self._timers = DeadlineTable()
        self._answers = DeadlineTable()
        self._question_bytes.clear()
        self.datagrams.clear()
        self._dialler.stop()

    def _send_beacon(self, now: float, peers: int) -> None:
        interval = max(self._config.beacon_interval_s, self._config.beacon_interval_per_peer_s * peers)
        self._timers.set(_Timer.BEACON, now + interval * self._rng.uniform(0.8, 1.2))
        data = encode_beacon(self._local, wants_answer=peers == 0, peers=peers)
        # A node without addresses cannot be dialled: it has nothing to announce.
        if data is not None:
            self.datagrams.append((None, data))

    def _maybe_answer(self, source: Source, question_bytes: int, now: float, peers: int) -> bool:
        """Answer the question of an unknown node, perhaps; return whether an answer is under way."""
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
        """Return how long to wait before dialling the sender of a beacon."""
        if peers == 0 and not is_answered:
            return 0.0
        # Whoever asked will dial those who answer; a dial from here as well would be a second link. So it comes later, for
        # the case that the answer was lost. Among those with peers, one is first, and when the rings are merged the others
        # know that node, or where it belongs; the smaller of two networks goes first.
        jitter = self._config.beacon_dial_jitter_s * (0.25 if beacon.peers > peers else 1.0)
        return self._rng.uniform(0.25 * jitter, jitter)
