"""Tests of iris_py/patterns/request/repetitions.py."""

from __future__ import annotations

import time

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo
from iris_py.patterns.request import repetitions
from iris_py.patterns.request.repetitions import (
    CALLERS_MAX,
    ENTRY_BYTES,
    REMEMBERED_MAX,
    WINDOW_S,
    Deduplicator,
    identity_of_key,
    identity_of_request,
)
from iris_py.peers.peer import Peer
from iris_py.wire.packets import IDENTITY_BYTES

ONE = Peer(NodeInfo(NodeId(b"1" * 16), ()), None)
TWO = Peer(NodeInfo(NodeId(b"2" * 16), ()), None)


def remember(table: Deduplicator[str], key: bytes, reply: bytes, now: float) -> None:
    table.begin(key, "work", (ONE, 1))
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
    monkeypatch.setattr(repetitions, "REMEMBERED_MAX", 3)
    table: Deduplicator[str] = Deduplicator()
    for number in range(5):
        remember(table, bytes((number,)), b"r", 0.0)
    assert [table.reply_to(bytes((number,)), 0.0) for number in range(5)] == [None, None, b"r", b"r", b"r"]
    assert table.forgotten == 2
    monkeypatch.setattr(repetitions, "REMEMBERED_BYTES_MAX", 2 * ENTRY_BYTES + 10)
    remember(table, b"large", bytes(9), 0.0)
    assert (len(table), table.bytes) == (2, 2 * ENTRY_BYTES + 10)
    remember(table, b"larger", bytes(ENTRY_BYTES + 10), 0.0)
    assert (len(table), table.reply_to(b"larger", 0.0)) == (1, bytes(ENTRY_BYTES + 10))
    remember(table, b"too large", bytes(ENTRY_BYTES + 11), 0.0)
    assert (len(table), table.bytes, table.forgotten) == (0, 0, 8)


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
