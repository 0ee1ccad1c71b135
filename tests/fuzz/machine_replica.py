"""Messages of replicas as bytes; and one replica, told any sequence of messages, reports of its disk and pauses."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from iris_py.streams.blocks import ROOT_CHAIN, BlockHeader, BlockKind, seal_block
from iris_py.streams.raft.disk import GroupSnapshot, LoadBlocks
from iris_py.streams.raft.entries import LogBase
from iris_py.streams.raft.events import BlocksCommitted, SnapshotInstalled
from iris_py.streams.raft.membership import ChangeRefused, MemberSet, encode_members
from iris_py.streams.raft.messages import (
    NUMBER_MAX,
    Acked,
    Behind,
    Lacks,
    Lead,
    MalformedMessage,
    Message,
    Repair,
    RepairBlock,
    Replicate,
    StatePiece,
    TermEnd,
    Vote,
    Voted,
    decode_message,
    encode_message,
)
from iris_py.streams.raft.recovery import DiskContent
from iris_py.streams.raft.snapshots import SnapshotReceiver, encode_snapshot
from iris_py.streams.replica_state import ReplicaState
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.fuzz.values import Values
from tests.unit.iris_py.streams.raft.logs import Bench, content, make_log, mark_of

if TYPE_CHECKING:
    from iris_py.streams.raft.disk import DiskRequest

A, B, C, D = (bytes([number]) * 16 for number in (1, 2, 3, 4))
GROUPS: Final = (
    *(MemberSet((A, B, C)), MemberSet((A,)), MemberSet((B, C)), MemberSet()),
    *(MemberSet((A, B, C, D)), MemberSet((A, B, C), (D,)), MemberSet((A, A, B), (A,))),
)
LOG: Final = make_log([1, 1, 1, 2, 2, 2])
#: The files of a replica at its start: none, a whole log, one with holes before and behind its mark, and a lost state.
FILES: Final = (
    *(DiskContent(), content(LOG, ReplicaState(2, mark=mark_of(LOG[3])))),
    content([LOG[0], LOG[2], LOG[3], LOG[5]], ReplicaState(2, mark=mark_of(LOG[3]))),
    content(LOG, ReplicaState(4), is_state_unreadable=True),
)
#: Steps of one input.
STEPS_MAX: Final = 60
VALUES: Final = Values([], [])
MESSAGES: Final = get_args(Message)
BLOCK: Final = seal_block(BlockHeader(BlockKind.RECORDS, 0, 0, 0, 1, 1, 1, 0, 0, b""), b"record", ROOT_CHAIN)
SNAPSHOT: Final = GroupSnapshot(LogBase(2, 1, bytes(8), 2), 3, GROUPS[0], b"state")
EXAMPLES: Final[tuple[Message, ...]] = (
    *(Replicate(1, 0, ROOT_CHAIN, 0, 0, 0, 1, (BLOCK.data,)), Acked(1, 1, 0, 1)),
    *(Behind(1, 3, (TermEnd(1, 2, bytes(8)),), 0, 0), Vote(2, is_pre=True, last_term=1, last_index=1)),
    *(Voted(2, is_pre=True, is_granted=True, is_damaged=False), Lead(1), Repair(1, 1, 3, 4, bytes(8)), Lacks(1, 1)),
    *(RepairBlock(1, 0, BLOCK.data), StatePiece(1, 3, 0, 5, b"piece")),
)


def run_message(data: bytes) -> None:
    """Read a message and a snapshot: each is encoded again as it was understood, or refused by the declared error."""
    with suppress(MalformedMessage):
        message = decode_message(data)
        assert decode_message(encode_message(message)) == message
    snapshot = SnapshotReceiver().take(StatePiece(1, 1, 0, len(data), data))
    if snapshot is not None:
        again = encode_snapshot(snapshot)
        assert SnapshotReceiver().take(StatePiece(1, 1, 0, len(again), again)) == snapshot


def run_replica(data: bytes) -> None:
    """Tell a replica anything that the members of its group can say, and its disk can report."""
    source, turn = Source(data), Turn()
    listener = _Listener(source)
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        with turn:
            listener.step(source)
        listener.check()
    if is_weighed(data):
        Memory(listener.replica).check(16 * len(data) + listener.told)


class _Listener:
    """Tells the replica, and looks at all that comes out.

    Attributes:
        replica: The replica.
        told: The bytes of all messages.
    """

    def __init__(self, source: Source) -> None:
        bench = Bench(source.choose(FILES))
        if source.byte() % 4 == 0 and not bench.is_damaged():
            bench.win()
        self.replica = bench.replica
        self.told = 0
        self._now = bench.now
        self._requests: list[DiskRequest] = bench.hold()
        self._committed = 0

    def step(self, source: Source) -> None:
        """Let one thing happen."""
        choice = source.byte()
        if choice < 128:
            data = encode_message(self._message(source))
            self.told += len(data)
            self.replica.receive(source.choose((B, C, D)), decode_message(data), self._now)
        elif choice < 208:
            self._report(source)
        elif choice < 232:
            self._now = (
                max(self._now, min(self.replica.deadline(), self._now + 60.0)) if choice & 1 else self._now + source.pause()
            )
            if self.replica.deadline() <= self._now:
                self.replica.handle_timeout(self._now)
        else:
            self._use(source)

    def check(self) -> None:
        """Look at messages and events: others understand what the replica says, and nothing is committed twice."""
        self._requests += self.replica.take_requests()
        for _store, message in self.replica.take_posts():
            data = encode_message(message)
            try:
                assert decode_message(data) == message
            except MalformedMessage:
                assert getattr(message, "term", 0) > NUMBER_MAX  # terms have run out
        for event in self.replica.take_events():
            if isinstance(event, BlocksCommitted):
                assert event.index > self._committed
                self._committed = event.index
            elif isinstance(event, SnapshotInstalled):
                self._committed = max(self._committed, event.snapshot.index)

    def _report(self, source: Source) -> None:
        """Let the disk execute requests up to a choice, and fail rarely."""
        count = source.byte()
        requests, self._requests = self._requests[: count % 16], self._requests[count % 16 :]
        for request in requests:
            if isinstance(request, LoadBlocks):
                blocks = [self.replica.context.entries.recent(index) for index in range(request.first, request.first + 2)]
                data = [block.data for block in blocks if block is not None]
                self.replica.note_loaded(request.ticket, data, 0 if data else request.first, self._now)
            elif count > 240:
                self.replica.note_failed(request.ticket, self._now)
            else:
                self.replica.note_done(request.ticket, self._now)

    def _use(self, source: Source) -> None:
        """Use the replica as its store does."""
        replica, context = self.replica, self.replica.context
        match source.byte() % 6:
            case 0:
                header = BlockHeader(
                    BlockKind.RECORDS, 0, 0, 0, source.number(0, 9), 0, 0, 0, source.number(0, NUMBER_MAX), b""
                )
                replica.propose(header, source.blob(), self._now)
            case 1:
                with suppress(ChangeRefused):
                    replica.change_members(source.choose(GROUPS), self._now)
            case 2:
                replica.ask_end(source.byte(), self._now)
            case 3:
                replica.hand_over(self._now)
            case 4:
                replica.save_snapshot(self._committed, source.number(0, self._committed + 1), b"state", self._now)
            case _:
                replica.note_store_lost(source.choose((B, C)), self._now)
        assert context.entries.last >= context.entries.base.index

    def _message(self, source: Source) -> Message:
        """Return any message, or one that fits the log and the term of the replica."""
        message = VALUES.message(source.choose(MESSAGES), source)
        chains = {name: source.raw(8) for name in ("previous_chain", "anchor_chain") if hasattr(message, name)}
        message = msgspec.structs.replace(message, **chains)
        if isinstance(message, Behind):
            message = msgspec.structs.replace(message, ends=tuple(self._end(source) for _ in message.ends))
        return message if source.byte() < 64 else self._aim(message, source)

    def _aim(self, message: Message, source: Source) -> Message:
        context = self.replica.context
        entries = context.entries
        index = source.choose((entries.last, entries.base.index, context.commit, max(0, entries.last - 1)))
        changes: dict[str, Any] = {"epoch": context.epoch, "term": context.state.term + (source.byte() > 200)}
        match message:
            case Replicate():
                changes |= {"previous": index, "previous_chain": entries.chain_at(index) or ROOT_CHAIN}
                changes["blocks"] = self._blocks(index, source)
            case RepairBlock():
                hole = entries.holes.lowest if entries.holes else index
                changes |= {"anchor": index, "data": next(iter(self._blocks(hole - 1, source)), b"")}
            case Repair():
                changes |= {"anchor": index, "anchor_chain": entries.chain_at(index) or ROOT_CHAIN}
            case Lacks():
                changes["index"] = entries.holes.lowest if entries.holes else index
            case Acked():
                changes["index"] = index
            case StatePiece():
                base = LogBase(
                    index + source.byte() % 3, 1, entries.chain_at(index) or ROOT_CHAIN, source.number(0, NUMBER_MAX)
                )
                snapshot = GroupSnapshot(base, base.index + source.byte() % 2, source.choose(GROUPS), source.blob())
                data = encode_snapshot(snapshot)
                changes |= {"place": 0, "total": len(data), "data": data}
            case Voted():
                changes["is_granted"] = True
            case _:
                pass
        known = {name: value for name, value in changes.items() if name in message.__struct_fields__}
        changed = msgspec.structs.replace(message, **known)
        return changed if getattr(changed, "term", 0) <= NUMBER_MAX else message

    def _end(self, source: Source) -> TermEnd:
        entries = self.replica.context.entries
        index = source.number(0, entries.last + 2)
        chain = entries.chain_at(index) if source.flag() else None
        return TermEnd(source.number(0, NUMBER_MAX), index, chain or source.raw(8))

    def _blocks(self, index: int, source: Source) -> tuple[bytes, ...]:
        """Return up to three blocks behind an index, that continue the log of the replica."""
        chain = self.replica.context.entries.chain_at(index) or ROOT_CHAIN
        blocks = []
        for number in range(index + 1, index + 1 + source.byte() % 4):
            kind = source.choose((BlockKind.RECORDS, BlockKind.NOOP, BlockKind.CONFIG, 9))
            is_group = kind == BlockKind.CONFIG and source.byte() < 240
            body = encode_members(source.choose(GROUPS)) if is_group else source.blob()
            term = source.choose((1, self.replica.context.state.term, source.number(0, (1 << 64) - 1)))
            offset, time_ms = (source.number(0, (1 << 64) - 1) if source.byte() > 240 else 0 for _ in range(2))
            count = source.number(0, (1 << 32) - 1)
            block = seal_block(BlockHeader(kind, 0, 0, 0, count, max(0, number), term, offset, time_ms, b""), body, chain)
            chain = block.header.chain
            blocks.append(block.data)
        return tuple(blocks)


SEEDS: Final = (bytes(range(256)), bytes(range(255, 0, -1)), b"\x00\x11\x22\x33\x44\x55\x66\x77" * 30)
TARGETS: Final = (
    Target("stream_messages", run_message, Kind.DECODER, (*map(encode_message, EXAMPLES), encode_snapshot(SNAPSHOT)), 1024),
    Target("stream_replica", run_replica, Kind.MACHINE, SEEDS, 2000),
)
