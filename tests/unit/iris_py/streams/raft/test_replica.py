"""One replica: nothing is said before the disk says so, and damage costs the replica its voice."""

from __future__ import annotations

import pytest

from iris_py.streams.blocks import BlockHeader, BlockKind, seal_block
from iris_py.streams.raft.disk import CutLog, SaveState, SyncLog, WriteBlocks
from iris_py.streams.raft.election import has_won
from iris_py.streams.raft.events import BlocksCommitted, EndConfirmed, ReplicaHalted
from iris_py.streams.raft.membership import MemberSet, encode_members
from iris_py.streams.raft.messages import (
    Acked,
    Behind,
    Lacks,
    Lead,
    MalformedMessage,
    Repair,
    RepairBlock,
    Replicate,
    TermEnd,
    Vote,
    Voted,
    decode_message,
    encode_message,
)
from iris_py.streams.raft.recovery import DiskContent
from iris_py.streams.replica_state import ReplicaState
from tests.unit.iris_py.streams.raft.logs import GROUP, A, B, Bench, C, content, make_log, mark_of

LOG = make_log([1, 1, 1, 2, 2, 2])
RECORD = BlockHeader(BlockKind.RECORDS, 0, 0, 0, 1, 0, 0, 0, 0, b"")
ROOT = bytes(8)


def replicate(first: int, last: int, *, term: int = 2, commit: int = 0, epoch: int = 0, level: int = 0) -> Replicate:
    chain = LOG[first - 2].header.chain if first > 1 else ROOT
    blocks = tuple(block.data for block in LOG[first - 1 : last])
    return Replicate(term, first - 1, chain, commit, epoch, level, 0, blocks)


def test_a_follower_acknowledges_when_its_disk_has_the_blocks() -> None:
    bench = Bench(DiskContent())
    assert bench.hear(B, replicate(1, 3)) == []
    requests = bench.hold()
    assert [type(request) for request in requests] == [SaveState, WriteBlocks, SyncLog]
    for request in requests[:2]:
        bench.replica.note_done(request.ticket, 0.0)
    assert all(message.index == 0 for _, message in bench.replica.take_posts() if isinstance(message, Acked))
    bench.replica.note_done(requests[2].ticket, 0.0)
    assert bench.replica.take_posts() == [(B, Acked(2, 3, 0, 0))]


def test_a_vote_is_saved_before_it_is_said() -> None:
    bench = Bench(content(LOG, ReplicaState(2, mark=mark_of(LOG[5]))))
    assert bench.hear(B, Vote(3, is_pre=False, last_term=2, last_index=6)) == []
    bench.report()
    assert bench.replica.take_posts() == [(B, Voted(3, is_pre=False, is_granted=True, is_damaged=False))]
    assert bench.hear(C, Vote(3, is_pre=False, last_term=2, last_index=6)) == [
        (C, Voted(3, is_pre=False, is_granted=False, is_damaged=False))
    ]


def test_a_candidate_with_a_shorter_log_gets_no_vote_and_the_mark_counts_as_log() -> None:
    bench = Bench(content(LOG[:2], ReplicaState(2, mark=mark_of(LOG[5]))))
    (answer,) = bench.hear(B, Vote(3, is_pre=False, last_term=2, last_index=5))
    assert answer == (B, Voted(3, is_pre=False, is_granted=False, is_damaged=True))


def test_votes_of_damaged_replicas_count_with_those_of_all_others() -> None:
    assert has_won({A: False, B: False}, GROUP)
    assert not has_won({A: False, B: True}, GROUP)
    assert has_won({A: True, B: True, C: True}, GROUP)
    assert not has_won({}, MemberSet())
    assert not has_won({A: False, B: False, bytes(16): False}, MemberSet((A, C)))


def test_a_leader_commits_blocks_of_its_own_term_alone() -> None:
    bench = Bench(content(LOG[:3], ReplicaState(1, mark=mark_of(LOG[2]))))
    bench.win()
    bench.report()
    bench.hear(B, Acked(2, 3, 0, 0))
    assert bench.replica.context.commit == 0
    bench.hear(B, Acked(2, 4, 0, 0))
    assert bench.replica.context.commit == 4
    assert BlocksCommitted(4) in bench.replica.take_events()


def test_acknowledgements_of_damaged_followers_do_not_count() -> None:
    bench = Bench(DiskContent())
    bench.win()
    bench.report()
    bench.hear(B, Acked(1, 1, 5, 0))
    assert bench.replica.context.commit == 0
    bench.hear(B, Acked(1, 1, 0, 0))
    assert bench.replica.context.commit == 1


def test_the_end_is_confirmed_by_a_majority_of_sound_followers() -> None:
    bench = Bench(DiskContent())
    bench.win()
    bench.report()
    bench.hear(B, Acked(1, 1, 0, 0))
    bench.replica.take_events()
    assert bench.replica.ask_end(9, bench.now)
    bench.hear(C, Acked(1, 1, 5, 1))  # damaged: it may have forgotten the vote for another leader
    assert bench.replica.take_events() == []
    bench.hear(B, Acked(1, 1, 0, 1))
    assert bench.replica.take_events() == [EndConfirmed(9, 1)]


def test_a_damaged_follower_is_level_with_the_end_that_the_leader_had_when_it_heard_of_the_damage() -> None:
    # The first entry of the term is not enough: the follower may have acknowledged more of the same leader in its life before.
    files = content([LOG[0], *LOG[2:4]], ReplicaState(2, mark=mark_of(LOG[3])))
    bench = Bench(files)
    epoch = bench.replica.context.epoch
    assert epoch
    (answer,) = [message for _, message in bench.hear(B, replicate(5, 5)) if isinstance(message, Behind)]
    assert answer.epoch == epoch
    bench.hear(B, replicate(2, 4, epoch=epoch, level=6))
    bench.report()
    assert bench.is_damaged()
    bench.hear(B, replicate(5, 6, epoch=epoch - 1, level=6))
    bench.report()
    assert bench.is_damaged()
    bench.hear(B, replicate(7, 6, epoch=epoch, level=6))
    bench.report()
    assert not bench.is_damaged()
    assert bench.replica.take_posts()[-1] == (B, Acked(2, 6, 0, 0))


def test_a_damaged_replica_stands_when_its_holes_are_filled_and_needs_the_votes_of_all() -> None:
    bench = Bench(content([LOG[0], *LOG[2:]], ReplicaState(2, mark=mark_of(LOG[5]))))
    questions = bench.time_out()
    assert {store for store, _ in questions} == {B, C}
    question = questions[0][1]
    assert isinstance(question, Repair)
    assert (question.first, question.last, question.anchor, question.anchor_chain) == (2, 2, 1, LOG[0].header.chain) or (
        question.anchor in (3, 6)
    )
    bench.hear(B, RepairBlock(question.epoch, question.anchor, LOG[1].data))
    bench.report()
    assert not bench.replica.context.entries.holes
    bench.wait_for(Vote)
    bench.hear(B, Voted(3, is_pre=True, is_granted=True, is_damaged=False))
    assert not bench.replica.context.state.vote.strip(b"\0")
    bench.hear(C, Voted(3, is_pre=True, is_granted=True, is_damaged=False))
    assert bench.replica.context.state.vote == A


def test_a_block_of_another_log_does_not_fill_a_hole() -> None:
    bench = Bench(content([LOG[0], *LOG[2:]], ReplicaState(2, mark=mark_of(LOG[5]))))
    other = make_log([1], LOG[:1], b"other")[1]
    bench.hear(B, RepairBlock(bench.replica.context.epoch, 1, other.data))
    assert 2 in bench.replica.context.entries.holes
    bench.hear(B, RepairBlock(bench.replica.context.epoch - 1, 6, LOG[1].data))
    assert 2 in bench.replica.context.entries.holes


def test_a_hole_that_all_others_lack_is_cut() -> None:
    bench = Bench(content([*LOG[:4], LOG[5]], ReplicaState(2, mark=mark_of(LOG[1]), is_damaged=True)))
    epoch = bench.replica.context.epoch
    bench.hear(B, Lacks(epoch, 5))
    bench.hear(C, Lacks(epoch - 1, 5))
    assert bench.replica.context.entries.last == 6
    bench.hear(C, Lacks(epoch, 5))
    assert bench.replica.context.entries.last == 4
    assert CutLog in [type(request) for request in bench.hold()]


def test_a_replica_lacks_what_is_behind_its_log_and_its_mark() -> None:
    bench = Bench(content(LOG[:2], ReplicaState(2, mark=mark_of(LOG[3]))))
    assert bench.hear(B, Repair(1, 5, 5, 4, LOG[3].header.chain)) == [(B, Lacks(1, 5))]
    assert bench.hear(B, Repair(1, 4, 4, 3, LOG[2].header.chain)) == []
    assert bench.hear(B, Repair(1, 1, 1, 2, bytes(8))) == []


def test_a_leader_finds_the_fork_in_one_answer() -> None:
    bench = Bench(content(LOG, ReplicaState(2, mark=mark_of(LOG[5]))))
    bench.win()
    other = make_log([1, 1, 1, 1], LOG[:2])
    ends = (TermEnd(1, 6, other[5].header.chain),)
    posts = bench.hear(B, Behind(3, 6, ends, 0))
    assert posts == []  # the blocks are not in memory: the disk reads them
    bench.report()
    posts = bench.hear(C, Behind(3, 6, (TermEnd(2, 6, LOG[5].header.chain),), 3))
    assert [message.previous for _, message in posts if isinstance(message, Replicate)] == [6]


def test_a_committed_block_is_never_cut() -> None:
    bench = Bench(DiskContent())
    bench.hear(B, replicate(1, 4, commit=4))
    bench.report()
    other = make_log([3], LOG[:2])[2]
    bench.hear(C, Replicate(3, 2, LOG[1].header.chain, 4, 0, 0, 0, (other.data,)))
    assert any(isinstance(event, ReplicaHalted) for event in bench.replica.take_events())


def test_a_failed_sync_halts_and_a_full_disk_takes_the_write_back() -> None:
    bench = Bench(DiskContent())
    bench.hear(B, replicate(1, 2))
    bench.report()
    bench.hear(B, replicate(3, 4))
    write, sync = bench.hold()
    bench.waiting = []
    bench.replica.note_failed(write.ticket, 0.0)
    bench.replica.note_done(sync.ticket, 0.0)
    assert bench.replica.context.entries.last == 2
    assert bench.replica.context.disk.synced == 2
    bench.report()
    bench.hear(B, replicate(3, 4))
    write, sync = bench.hold()
    bench.replica.note_done(write.ticket, 0.0)
    bench.replica.note_failed(sync.ticket, 0.0)
    assert any(isinstance(event, ReplicaHalted) for event in bench.replica.take_events())
    assert all(message.index < 4 for _, message in bench.replica.take_posts() if isinstance(message, Acked))


def test_a_message_that_overtook_others_waits_for_them() -> None:
    bench = Bench(DiskContent())
    bench.hear(B, replicate(1, 1))
    bench.report()
    bench.replica.take_posts()
    assert bench.hear(B, replicate(4, 5)) == []
    bench.hear(B, replicate(2, 3))
    bench.report()
    assert bench.replica.take_posts()[-1] == (B, Acked(2, 5, 0, 0))


def test_a_store_that_was_removed_by_an_entry_without_commit_may_lead() -> None:
    body = encode_members(MemberSet((B, C)))
    block = seal_block(BlockHeader(BlockKind.CONFIG, 0, 0, 0, 0, 2, 1, 1, 0, b""), body, LOG[0].header.chain)
    bench = Bench(DiskContent())
    bench.hear(B, Replicate(1, 0, ROOT, 0, 0, 0, 0, (LOG[0].data, block.data)))
    bench.report()
    assert bench.replica.context.members.newest == MemberSet((B, C))
    bench.replica.take_posts()
    assert {store for store, _ in bench.wait_for(Vote)} == {B, C}


def test_messages_come_back_from_their_bytes() -> None:
    message = replicate(1, 3)
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "data", [b"", b"\x93\x63\x01\x02", encode_message(Lead(3))[:-1], b"\x93\x0d\x03" + b"\x91" * 5000 + b"\x00"]
)
def test_bytes_that_are_no_message_are_one_error(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_message(data)


def test_a_block_without_readable_members_is_not_taken() -> None:
    bench = Bench(DiskContent())
    block = seal_block(BlockHeader(BlockKind.CONFIG, 0, 0, 0, 0, 2, 1, 1, 0, b""), b"\xc1", LOG[0].header.chain)
    bench.hear(B, Replicate(1, 0, ROOT, 0, 0, 0, 0, (LOG[0].data, block.data)))
    bench.report()
    assert bench.replica.take_posts()[-1] == (B, Acked(1, 1, 0, 0))
