"""Replicas of one stream under a virtual clock, with simulated disks and a network that loses, doubles and reorders."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import TYPE_CHECKING, Final
from zlib import crc32

from iris_py.streams.blocks import BlockHeader, BlockKind
from iris_py.streams.raft.disk import LoadBlocks, SaveState
from iris_py.streams.raft.events import (
    BlocksCommitted,
    BlocksRepaired,
    EndConfirmed,
    LeaderLost,
    ReplicaDamaged,
    ReplicaHalted,
    ReplicaLed,
    SnapshotInstalled,
    TornTail,
)
from iris_py.streams.raft.membership import ChangeRefused, MemberSet
from iris_py.streams.raft.messages import decode_message, encode_message
from iris_py.streams.raft.replica import Replica
from iris_py.testing.cores.stream_checks import AckedRecord, StreamChecks
from iris_py.testing.cores.stream_disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.streams.raft.disk import DiskRequest
    from iris_py.streams.raft.events import ReplicaEvent

__all__ = ["PRODUCERS", "SimulatedStore", "StreamSimulation"]

#: Times of a sync, in seconds, each as likely as the others.
SYNC_TIMES: Final = (0.001, 0.003, 0.02, 0.3)
#: The time of a disk that stalls.
STALL_S: Final = 4.0
#: Times of a message on its way.
DELAYS: Final = (0.001, 0.005, 0.05, 0.4)
#: The share of messages that come twice.
DOUBLED: Final = 0.05
PRODUCERS: Final = (b"a" * 16, b"b" * 16, b"c" * 16)
#: Events of one simulation. Too small: a long schedule is taken for a storm; too large: messages that multiply take long.
EVENTS_MAX: Final = 400_000


class SimulatedStore:
    """A store with one replica.

    Attributes:
        id: Its id.
        disk: Its disk.
        replica: The replica; None while the process does not run.
        life: The number of the process.
        applied: The index up to which the machine has applied blocks.
        digest: The state of the machine: a digest of all blocks applied.
        pending: Proposed records by index, until they are committed or the lead is lost.
        questions: The end that had been told when each question was asked, by token.
        crash_in: Steps of the disk to the end of the process; 0 for none.
        kept: The last reported committed index, on the disk as well unless the file was cut.
        is_tainted: Whether its files were damaged, and it was not seen sound since.
    """

    def __init__(self, store: bytes, rng: random.Random) -> None:
        self.id = store
        self.disk = SimulatedDisk(rng)
        self.replica: Replica | None = None
        self.life = 0
        self.applied = 0
        self.digest = 0
        self.pending: dict[int, tuple[bytes, int]] = {}
        self.questions: dict[int, int] = {}
        self.crash_in = 0
        self.kept = 0
        self.is_tainted = False
        self.is_busy = False
        self.timer_at = float("inf")


class StreamSimulation:
    """Stores, their network, and a clock.

    Attributes:
        now: The virtual time.
        stores: All stores by id; members and others.
        checks: The promises.
        cuts: Pairs of stores, of which the second hears nothing from the first.
        loss: The share of lost messages.
        vote_crash: The chance that a process ends between a vote and its save.
        read_failure: The chance that a read fails.
        stall: The chance that a disk stalls.
        counts: Faults and repairs by name.
    """

    def __init__(self, seed: int, stores: int, voters: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0.0
        self.checks = StreamChecks()
        ids = [bytes([number + 1]) * 16 for number in range(stores)]
        self.stores = {store: SimulatedStore(store, self.rng) for store in ids}
        self.first_members = MemberSet(tuple(ids[:voters]))
        self.cuts: set[tuple[bytes, bytes]] = set()
        self.loss = 0.0
        self.vote_crash = 0.0
        self.read_failure = 0.0
        self.stall = 0.0
        self.counts: Counter[str] = Counter()
        self._queue: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        self._tokens = 0
        self._numbers: Counter[bytes] = Counter()
        self._digests: dict[int, int] = {0: 0}

    # Time

    def later(self, delay: float, call: Callable[..., None], *arguments: object) -> None:
        """Call something later."""
        self._count += 1
        assert self._count <= EVENTS_MAX, f"{EVENTS_MAX} events: messages multiply"
        heapq.heappush(self._queue, (self.now + delay, self._count, call, arguments))

    def run(self, duration: float) -> None:
        """Let time pass."""
        end = self.now + duration
        while self._queue and self._queue[0][0] <= end:
            self._run_next()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let time pass event by event until a condition holds; returns whether it did in time."""
        end = self.now + limit
        while not (is_met := condition()) and self._queue and self._queue[0][0] <= end:
            self._run_next()
        return is_met

    def _run_next(self) -> None:
        self.now, _, call, arguments = heapq.heappop(self._queue)
        call(*arguments)

    # Processes

    def start(self, store: SimulatedStore) -> None:
        """Start the process of a store."""
        if store.replica is not None:
            return
        store.life += 1
        store.pending, store.questions = {}, {}
        store.is_busy, store.timer_at = False, float("inf")
        content = store.disk.read_content()
        members = self.first_members if store.id in self.first_members.voters else MemberSet()
        store.replica = Replica(store.id, content, members, self.rng.random, self.now)
        snapshot = store.replica.context.snapshot
        self._load_machine(store, snapshot.index, snapshot.state)
        self._drain(store)

    def crash(self, store: SimulatedStore, *, power: bool) -> None:
        """End the process of a store, with or without its power."""
        store.replica = None
        store.crash_in = 0
        if power:
            store.disk.lose_power()
        else:
            store.disk.stop()
        self.counts["power losses" if power else "kills"] += 1

    def leaders(self) -> list[SimulatedStore]:
        """Return all stores that believe to lead."""
        return [store for store in self.stores.values() if store.replica is not None and store.replica.is_leader]

    # What users do

    def propose(self, store: SimulatedStore, producer: bytes) -> int | None:
        """Append a record at a leader; returns its index."""
        replica = store.replica
        assert replica is not None
        number = self._numbers[producer] = self._numbers[producer] + 1
        body = self.rng.randbytes(self.rng.choice((40, 200, 500, 900)))
        header = BlockHeader(BlockKind.RECORDS, 0, 0, 0, 1, 0, 0, 0, int(self.now * 1000), b"", producer, number)
        index = replica.propose(header, body, self.now)
        if index is not None:
            store.pending[index] = (producer, number)
        self._drain(store)
        return index

    def ask_end(self, store: SimulatedStore) -> None:
        """Ask a leader for the end."""
        assert store.replica is not None
        self._tokens += 1
        if store.replica.ask_end(self._tokens, self.now):
            store.questions[self._tokens] = self.checks.end
        self._drain(store)

    def change_members(self, store: SimulatedStore, wanted: MemberSet) -> bool:
        """Change the members at a leader; returns whether it was taken."""
        assert store.replica is not None
        try:
            store.replica.change_members(wanted, self.now)
        except ChangeRefused:
            return False
        self.counts["changes of members"] += 1
        self._drain(store)
        return True

    def save_snapshot(self, store: SimulatedStore) -> None:
        """Save the machine of a store, and forget some of the blocks before."""
        replica = store.replica
        if replica is None or not store.applied:
            return
        state = self._encode_machine(store)
        first = store.applied + 1 - self.rng.randrange(8)
        if replica.save_snapshot(store.applied, first, state, self.now):
            self.counts["snapshots"] += 1
        self._drain(store)

    def note_store_lost(self, lost: bytes) -> None:
        """Let all stores hear of the death of one."""
        for store in self.stores.values():
            if store.replica is not None:
                store.replica.note_store_lost(lost, self.now)
                self._drain(store)

    def hand_over(self, store: SimulatedStore) -> None:
        """Let a leader hand the lead over."""
        if store.replica is not None and store.replica.hand_over(self.now):
            self.counts["leads handed over"] += 1
            self._drain(store)

    # Plumbing

    def _drain(self, store: SimulatedStore) -> None:
        """Take the outputs of a replica."""
        replica = store.replica
        if replica is None:
            return
        for event in replica.take_events():
            self._handle_event(store, replica, event)
            if store.replica is None:
                return
        for to, message in replica.take_posts():
            self._send(store.id, to, encode_message(message))
        has_saved_vote = False
        for request in replica.take_requests():
            if isinstance(request, LoadBlocks):
                self.later(self.rng.choice(SYNC_TIMES[:3]), self._load, store, store.life, request)
                continue
            if isinstance(request, SaveState) and request.saved.state[:2] != replica.context.disk.durable.state[:2]:
                has_saved_vote = has_saved_vote or any(request.saved.state.vote)
            store.disk.submit(request)
        if has_saved_vote and self.rng.random() < self.vote_crash:
            self.counts["kills between vote and save"] += 1
            self.crash(store, power=self.rng.random() < 0.5)
            self.later(0.01, self.start, store)
            return
        self._work(store)
        if replica.deadline() < store.timer_at:
            store.timer_at = replica.deadline()
            self.later(max(0.0, store.timer_at - self.now), self._tick, store, store.life)

    def _tick(self, store: SimulatedStore, life: int) -> None:
        if store.replica is not None and store.life == life:
            store.timer_at = float("inf")
            if store.replica.deadline() <= self.now:
                store.replica.handle_timeout(self.now)
            self._drain(store)

    def _send(self, sender: bytes, to: bytes, data: bytes) -> None:
        if (sender, to) in self.cuts or self.rng.random() < self.loss:
            return
        for _ in range(1 + (self.rng.random() < DOUBLED)):
            self.later(self.rng.choice(DELAYS), self._deliver, sender, to, data)

    def _deliver(self, sender: bytes, to: bytes, data: bytes) -> None:
        store = self.stores[to]
        if store.replica is not None and (sender, to) not in self.cuts:
            store.replica.receive(sender, decode_message(data), self.now)
            self._drain(store)

    def _load(self, store: SimulatedStore, life: int, request: LoadBlocks) -> None:
        if store.replica is None or store.life != life:
            return
        data, bad_index = store.disk.load(request.first, request.last)
        others = any(each.is_tainted for each in self.stores.values() if each is not store)
        if data and not others and self.rng.random() < self.read_failure:
            data, bad_index, store.is_tainted = [], request.first, True
            self.counts["reads failed"] += 1
        store.replica.note_loaded(request.ticket, data, bad_index, self.now)
        self._drain(store)

    def _work(self, store: SimulatedStore) -> None:
        """Let the disk begin its next requests."""
        if store.is_busy or not store.disk.has_requests:
            return
        requests = store.disk.begin()
        if isinstance(requests[0][0], SaveState) and self.rng.random() < 0.5:
            store.disk.begin_save(requests[0][0])
        store.is_busy = True
        delay = STALL_S if self.rng.random() < self.stall else self.rng.choice(SYNC_TIMES)
        self.later(delay, self._finish, store, store.life, requests)

    def _finish(self, store: SimulatedStore, life: int, requests: list[tuple[DiskRequest, bool]]) -> None:
        """Complete requests; the process may end before or behind any of them."""
        if store.replica is None or store.life != life:
            return
        store.is_busy = False
        for request, has_failed in requests:
            if self._is_end(store):
                return
            has_failed = has_failed or not store.disk.finish(request)
            if isinstance(request, SaveState) and not has_failed and not store.is_tainted:
                mark = request.saved.state.mark
                has_mark = (
                    store.disk.has_durable(mark.index, mark.chain) or mark.index <= store.replica.context.entries.base.index
                )
                assert has_mark, f"the mark {mark.index} of {store.id.hex()[:4]} is ahead of its disk"
            if self._is_end(store):
                return
            if has_failed:
                store.replica.note_failed(request.ticket, self.now)
            else:
                store.replica.note_done(request.ticket, self.now)
            self._drain(store)
            if store.replica is None or store.life != life:
                return
        self._work(store)

    def _is_end(self, store: SimulatedStore) -> bool:
        """Count a step of the disk; returns whether the process ended there."""
        if store.crash_in:
            store.crash_in -= 1
            if not store.crash_in:
                self.crash(store, power=self.rng.random() < 0.5)
                self.later(self.rng.choice((0.01, 0.5, 3.0)), self.start, store)
                return True
        return False

    def _handle_event(self, store: SimulatedStore, replica: Replica, event: ReplicaEvent) -> None:
        context = replica.context
        match event:
            case BlocksCommitted():
                store.kept = event.index
                for index in range(store.applied + 1, event.index + 1):
                    chain = context.entries.chain_at(index)
                    self.checks.note_committed(store.id, index, chain)
                    self._apply(store, index, chain or b"")
                    pending = store.pending.pop(index, None)
                    if pending is not None and chain is not None:
                        self.checks.note_acked(AckedRecord(*pending, index, chain))
                self.checks.check_bounds(context)
            case SnapshotInstalled():
                store.kept = 0
                if event.snapshot.index > store.applied:
                    self._load_machine(store, event.snapshot.index, event.snapshot.state)
                self.counts["snapshots installed"] += 1
            case ReplicaLed():
                self.checks.note_leader(store.id, event.term, context)
            case LeaderLost():
                store.pending, store.questions = {}, {}
            case EndConfirmed():
                self.checks.note_end(event.index, store.questions.pop(event.token))
            case ReplicaHalted():
                assert event.reason == "the disk failed", f"{store.id.hex()[:4]} halted: {event.reason}"
                self.crash(store, power=False)
                self.later(1.0, self.start, store)
            case ReplicaDamaged():
                self.counts["damaged"] += 1
            case BlocksRepaired():
                self.counts["blocks repaired"] += 1
            case TornTail():
                assert event.index >= store.kept, (
                    f"{store.id.hex()[:4]} takes the committed block {store.kept} for a torn write"
                )
                self.counts["torn tails"] += 1
            case _:
                pass

    # The machine

    def _load_machine(self, store: SimulatedStore, index: int, state: bytes) -> None:
        """Begin with the machine of a snapshot."""
        store.applied, store.digest = index, int.from_bytes(state, "big")

    def _encode_machine(self, store: SimulatedStore) -> bytes:
        """Return the snapshot of the machine."""
        return store.digest.to_bytes(8, "big")

    def _apply(self, store: SimulatedStore, index: int, chain: bytes) -> None:
        """Apply a block to the machine, and compare the machines of all stores."""
        store.applied = index
        store.digest = crc32(chain, store.digest)
        other = self._digests.setdefault(index, store.digest)
        assert other == store.digest, f"the machine of {store.id.hex()[:4]} differs at {index}"
