"""Tests of iris_py/patterns/request/deduplication.py."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request import deduplication
from iris_py.patterns.request.deduplication import (
    CALLERS_MAX,
    CLOUDS_MAX,
    ENTRY_BYTES,
    REMEMBERED_MAX,
    WINDOW_S,
    Deduplicator,
    identity_of_key,
    identity_of_request,
)
from iris_py.peers.peer import Peer
from iris_py.wire.packets import IDENTITY_BYTES
from tests.profiles import examples

ONE = Peer(NodeInfo(NodeId(b"1" * 16), ()), None)
TWO = Peer(NodeInfo(NodeId(b"2" * 16), ()), None)


def remember(table: Deduplicator[str], key: bytes, reply: bytes, now: float, origin: str = "") -> None:
    table.begin(key, "work", (ONE, 1), origin)
    assert table.finish(key, reply, now) == [(ONE, 1)]


def test_the_identity_of_a_key() -> None:
    identity = identity_of_key("cluster", "key")
    assert identity == identity_of_key("cluster", b"key") != identity_of_key("cluster", "key2")
    assert len(identity) == IDENTITY_BYTES
    assert identity.hex() == "7da799e73d70983b1e7ce4f44afd4003"  # nodes of different versions agree
    assert identity_of_key("ab", "c") != identity_of_key("a", "bc")  # the name ends where it ends
    with pytest.raises(ValueError, match="empty"):
        identity_of_key("cluster", "")
    with pytest.raises(ValueError, match="surrogates"):
        identity_of_key("cluster", "\ud800")
    with pytest.raises(TypeError, match="not int"):
        identity_of_key("cluster", 5)  # type: ignore[arg-type]


def test_requests_without_a_key_are_all_different() -> None:
    identities = {identity_of_request(node, number) for node in (bytes(16), b"1" * 16) for number in range(100)}
    assert len(identities) == 200
    assert {len(identity) for identity in identities} == {IDENTITY_BYTES}


def test_a_reply_is_remembered_for_the_window() -> None:
    table: Deduplicator[str] = Deduplicator()
    assert table.reply_to(b"k", 0.0) is None
    remember(table, b"k", b"reply", 10.0)
    assert table.reply_to(b"k", 10.0 + WINDOW_S - 0.001) == b"reply"
    assert table.repeated == 1
    assert table.reply_to(b"k", 10.0 + WINDOW_S) is None
    assert (len(table), table.bytes, table.forgotten) == (0, 0, 0)


def test_a_failure_is_not_remembered() -> None:
    table: Deduplicator[str] = Deduplicator()
    table.begin(b"k", "work", (ONE, 1))
    assert table.finish(b"k", None, 0.0) == [(ONE, 1)]
    assert table.reply_to(b"k", 0.0) is None
    assert table.underway(b"k") is None


def test_callers_of_one_work() -> None:
    table: Deduplicator[str] = Deduplicator()
    table.begin(b"k", "work", (ONE, 1))
    assert table.underway(b"k") == "work"
    assert table.attach(b"k", (TWO, 1))
    assert table.attach(b"k", (ONE, 1))  # the same caller again, by another way
    assert table.detach((ONE, 1)) is None
    assert not table.is_waiting((ONE, 1))
    assert table.detach((TWO, 1)) == "work"
    assert table.underway(b"k") == "work"  # until it has ended
    assert table.attach(b"k", (TWO, 2))
    assert table.finish(b"k", b"reply", 0.0) == [(TWO, 2)]
    assert not table.is_waiting((TWO, 2))


def test_a_peer_that_is_gone() -> None:
    table: Deduplicator[str] = Deduplicator()
    table.begin(b"a", "alone", (ONE, 1))
    table.begin(b"b", "shared", (ONE, 2))
    table.attach(b"b", (TWO, 2))
    assert table.owes(ONE)
    assert table.detach_peer(ONE) == ["alone"]
    assert not table.owes(ONE)
    assert table.detach_peer(TWO) == ["shared"]


def test_callers_are_bounded() -> None:
    table: Deduplicator[str] = Deduplicator()
    table.begin(b"k", "work", (ONE, 0))
    assert all(table.attach(b"k", (ONE, number)) for number in range(CALLERS_MAX))
    assert not table.attach(b"k", (ONE, CALLERS_MAX))
    assert not table.is_waiting((ONE, CALLERS_MAX))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication, "REMEMBERED_MAX", 3)
    table: Deduplicator[str] = Deduplicator()
    for number in range(5):
        remember(table, bytes((number,)), b"r", 0.0)
    assert [table.reply_to(bytes((number,)), 0.0) for number in range(5)] == [None, None, b"r", b"r", b"r"]
    assert table.forgotten == 2
    monkeypatch.setattr(deduplication, "REMEMBERED_BYTES_MAX", 2 * ENTRY_BYTES + 10)
    remember(table, b"large", bytes(9), 0.0)
    assert (len(table), table.bytes) == (2, 2 * ENTRY_BYTES + 10)
    remember(table, b"larger", bytes(ENTRY_BYTES + 10), 0.0)
    assert (len(table), table.reply_to(b"larger", 0.0)) == (1, bytes(ENTRY_BYTES + 10))
    remember(table, b"too large", bytes(ENTRY_BYTES + 11), 0.0)
    assert (len(table), table.bytes, table.forgotten) == (0, 0, 8)


@pytest.mark.parametrize("bound", ["number", "bytes"])
def test_other_clouds_do_not_push_out_what_this_cloud_is_owed(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if bound == "number":
        monkeypatch.setattr(deduplication, "REMEMBERED_MAX", 10)
    else:
        monkeypatch.setattr(deduplication, "REMEMBERED_BYTES_MAX", 10 * (ENTRY_BYTES + 1))
    table: Deduplicator[str] = Deduplicator()
    for number in range(8):
        remember(table, b"own %d" % number, b"r", 0.0)
    for number in range(100):
        remember(table, b"eu %d" % number, b"r", 0.0, "eu")
    assert [n for n in range(8) if table.reply_to(b"own %d" % n, 0.0)] == [3, 4, 5, 6, 7], "half of the room"
    assert [n for n in range(100) if table.reply_to(b"eu %d" % n, 0.0)] == [95, 96, 97, 98, 99]
    remember(table, b"us", b"r", 0.0, "us")
    assert table.reply_to(b"us", 0.0) == b"r"
    assert table.reply_to(b"eu 95", 0.0) is None, "of the other clouds the one that takes most forgets"
    for number in range(8, 18):
        remember(table, b"own %d" % number, b"r", 0.0)
    assert [n for n in range(18) if table.reply_to(b"own %d" % n, 0.0)] == [13, 14, 15, 16, 17]
    assert len(table) == 10


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.sampled_from(["", "eu", "us"]), st.integers(0, 40), st.floats(0, 100)), max_size=60))
def test_shares_of_the_room(steps: list[tuple[str, int, float]]) -> None:
    """Replies are forgotten only for want of room or time, and those of this cloud only where it has more than half."""
    with (
        patch.object(deduplication, "REMEMBERED_MAX", 8),
        patch.object(deduplication, "REMEMBERED_BYTES_MAX", 8 * ENTRY_BYTES + 100),
    ):
        table: Deduplicator[str] = Deduplicator()
        now, own = 0.0, list[tuple[float, bytes, int]]()
        for number, (origin, size, passes) in enumerate(steps):
            now += passes
            key = b"%d" % number
            table.expire(now)
            remember(table, key, bytes(size), now, origin)
            if not origin:
                own.append((now + WINDOW_S, key, ENTRY_BYTES + size))
            kept = [each for each in own if table.reply_to(each[1], now) is not None]
            forgotten = [each for each in own if each[0] > now and each not in kept]
            if forgotten:  # it took more than its half when they were forgotten: with the last of them, and what is kept
                assert len(kept) + 1 > 4 or sum(each[2] for each in (*kept, forgotten[-1])) > 4 * ENTRY_BYTES + 50
            own = kept
            assert len(table) <= 8
            assert table.bytes <= 8 * ENTRY_BYTES + 100
        table.expire(now + 2 * WINDOW_S)
        assert (len(table), table.bytes) == (0, 0)


def test_replies_of_several_origins_that_end_together() -> None:
    table: Deduplicator[str] = Deduplicator()
    for number, origin in enumerate(["", "eu", "", "us"]):
        table.begin(b"%d" % number, "work", (ONE, number), origin)
    answered = [(b"%d" % number, b"reply %d" % number) for number in range(4)]
    assert table.finish_many(answered, 0.0) == [((ONE, number), b"reply %d" % number) for number in range(4)]
    assert [table.reply_to(b"%d" % number, 0.0) for number in range(4)] == [reply for _key, reply in answered]
    table.expire(WINDOW_S)
    assert (len(table), table.bytes) == (0, 0)


def test_made_up_names_of_clouds_share_one_account() -> None:
    table: Deduplicator[str] = Deduplicator()
    for number in range(3 * CLOUDS_MAX):
        remember(table, b"%d" % number, b"r", 0.0, f"cloud{number}")
    assert len(table._clouds) == CLOUDS_MAX + 1
    assert len(table) == 3 * CLOUDS_MAX


def test_a_full_memory_is_as_fast_as_an_empty_one() -> None:
    """Replies are forgotten as fast as they come, without a search for the oldest."""
    table: Deduplicator[str] = Deduplicator()

    def fill(first: int, count: int) -> float:
        began = time.process_time()
        for number in range(first, first + count):
            key = number.to_bytes(32, "big")
            assert table.reply_to(key, 0.0) is None
            remember(table, key, b"reply", 0.0)
        return time.process_time() - began

    into_empty = fill(0, REMEMBERED_MAX)
    assert table.forgotten == 0
    into_full = fill(REMEMBERED_MAX, REMEMBERED_MAX)
    assert table.forgotten == REMEMBERED_MAX
    assert into_full < 5 * into_empty, "a search makes it thirty times as slow, a busy machine both the same"
