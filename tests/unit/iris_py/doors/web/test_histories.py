"""Histories: exact bounds, repetitions, and the point from which a client resumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from iris_py.doors.settings import HistorySettings
from iris_py.doors.web import histories as module
from iris_py.doors.web.cursors import Cursor, CursorKeys
from iris_py.doors.web.event_text import GapEvent, MessageText
from iris_py.doors.web.histories import ENTRY_BYTES, OVERLAP_S, Histories
from iris_py.patterns.messages import Message
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    import pytest

KEYS = CursorKeys(bytes(32))
SOURCE, OTHER = "ab" * 16, "cd" * 16


def opened(**bounds: int | bool) -> Histories:
    return Histories([HistorySettings(">", **bounds)], KEYS, b"thisdoor", 0.0)  # type: ignore[arg-type]


def add(found: Histories, number: int, now: float, topic: str = "a", source: str = SOURCE, **fields: object) -> int:
    """Add a message; returns the number of new events."""
    message = Message(b"%d" % number, source, number, topic=topic, **fields)  # type: ignore[arg-type]
    return len(found.add(found.all[0], message, now))


def kept(found: Histories) -> list[int | None]:
    """Return the numbers of the messages that are kept, and None for gaps."""
    history = found.all[0]
    contents = [history.entry(position).content for position in range(history.first, history.end)]
    return [each.message.sequence if isinstance(each, MessageText) else None for each in contents]


def cursor(number: int, elapsed_s: float = 0.0, source: str = SOURCE) -> str:
    return KEYS.encode(Cursor(KEYS.pseudonym(source), number, round(elapsed_s * 1000)))


def position(found: Histories, now: float) -> str:
    match = re.fullmatch(rb":\nid: (.*)\n\n", found.position_text("sse", now))
    assert match is not None
    return match[1].decode()


def test_messages_are_kept_for_a_time_and_up_to_a_number() -> None:
    found = opened(seconds=10, messages=3)
    for number in range(5):
        add(found, number, float(number))
    assert kept(found) == [2, 3, 4]
    found.expire(13.0)
    assert kept(found) == [3, 4]
    found.expire(13.1)
    assert kept(found) == [4]
    assert add(found, 5, 100.0) == 1
    assert kept(found) == [5]


def test_other_bounds_hold_at_once_and_what_they_drop_is_missing() -> None:
    found = opened(seconds=60, messages=10, last=True)
    history = found.all[0]
    for number in range(6):
        add(found, number, 10.0 + number, topic=f"t{number % 3}")
    history.apply(HistorySettings(">", seconds=60, messages=4, last=True), 16.0)
    assert kept(found) == [2, 3, 4, 5]
    history.apply(HistorySettings(">", seconds=3, messages=4, last=True), 17.0)
    assert kept(found) == [4, 5]
    assert len(history.last_topics()) == 3
    size = history.last_bytes // 3
    history.apply(HistorySettings(">", bytes=2 * size, last=True), 17.0)
    assert [topic for _order, topic in history.last_topics()] == ["t1", "t2"]
    history.apply(HistorySettings(">"), 17.0)
    assert (history.last_topics(), history.last_bytes) == ([], 0)
    assert not found.resume(cursor(1), found.all, 17.0).is_complete
    add(found, 6, 18.0)
    add(found, 7, 19.0)
    assert kept(found) == [4, 5, 6, 7]


def test_bytes_of_payload_headers_topic_and_entry_count() -> None:
    headers = encode_headers({"a": b"x" * 100})
    size = ENTRY_BYTES + 1 + 1 + len(headers.encoded)
    found = opened(bytes=2 * size)
    for number in range(3):
        add(found, number, 0.0, headers=headers)
    assert kept(found) == [1, 2]
    assert found.all[0].bytes == 2 * size
    found = opened(bytes=ENTRY_BYTES)
    add(found, 1, 0.0)
    assert (kept(found), found.all[0].bytes) == ([], 0)


def test_a_repetition_is_dropped_and_a_gap_is_kept_before_its_message() -> None:
    found = opened()
    assert add(found, 3, 0.0) == 1
    assert add(found, 3, 0.0) == 0
    assert add(found, 2, 0.0) == 0
    assert add(found, 2, 0.0, source=OTHER) == 1
    assert add(found, 9, 0.0, gap=2) == 2
    assert add(found, 8, 0.0, gap=1) == 1
    assert add(found, 11, 0.0, has_unknown_gap=True) == 2
    assert kept(found) == [3, 2, None, 9, None, None, 11]
    gaps = [found.all[0].entry(place).content for place in (2, 4, 5)]
    pseudonym = KEYS.pseudonym(SOURCE).hex()
    assert gaps == [GapEvent(2, pseudonym), GapEvent(1, pseudonym), GapEvent(None, pseudonym)]
    assert found.all[0].repeated == 3


def test_a_client_resumes_before_its_message_by_the_overlap() -> None:
    found = opened(messages=5)
    for number in range(10):
        add(found, number, float(number))
    assert found.resume(cursor(9), found.all, 10.0) == (9.0 - OVERLAP_S, True)
    assert found.resume(cursor(8, 1.5), found.all, 10.0) == (9.5 - OVERLAP_S, True)
    # Message 4 was dropped: what came at its time may be missing.
    assert found.resume(cursor(7), found.all, 10.0) == (5.0, True)
    assert found.resume(cursor(6), found.all, 10.0) == (4.0, False)
    # The newest dropped message is still known, older ones are not.
    assert found.resume(cursor(4, 2.5), found.all, 10.0) == (4.5, True)
    assert not found.resume(cursor(3, 3.5), found.all, 10.0).is_complete
    for unknown in (cursor(99), cursor(4, source=OTHER), "", "x"):
        assert found.resume(unknown, found.all, 10.0) == (-float("inf"), False)
    assert found.all[0].position_at(6.5) == 7
    assert found.all[0].position_at(-float("inf")) == 5
    assert found.all[0].position_at(float("inf")) == 10


def test_what_came_before_the_door_subscribed_may_be_missing() -> None:
    found = opened()
    add(found, 1, OVERLAP_S / 2)
    add(found, 2, OVERLAP_S * 2)
    assert not found.resume(cursor(1), found.all, 10.0).is_complete
    assert found.resume(cursor(2), found.all, 10.0).is_complete


def test_the_place_behind_all_messages_lasts_as_long_as_nothing_is_lost() -> None:
    here = opened(seconds=5)
    there = Histories([HistorySettings(">", seconds=5)], KEYS, b"thatdoor", 0.0)
    before = position(here, 3.0)
    assert here.resume(before, here.all, 9.0) == (3.0 - OVERLAP_S, True)
    assert not there.resume(before, there.all, 9.0).is_complete  # which has no common message
    for found, at in ((here, 10.0), (there, 11.0)):
        add(found, 1, at)
    quiet = position(here, 500.0)
    assert position(here, 500.0) == quiet != position(here, 501.0)
    for found, at in ((here, 10.0), (there, 11.0)):
        add(found, 2, 500.5)
        assert found.resume(quiet, found.all, 501.0) == (at + 490.0 - OVERLAP_S, True)
        add(found, 3, 503.0)
    assert there.resume(quiet, there.all, 505.0).is_complete
    assert not there.resume(quiet, there.all, 506.0).is_complete  # message 2 is gone, and so is the knowledge of 1


def test_the_newest_message_of_each_topic_outlives_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_TOPICS_MAX", 2)
    found = opened(seconds=5, last=True)
    for number, topic in enumerate(("a", "b", "a", "c")):
        add(found, number, float(number), topic)
    found.expire(100.0)
    history = found.all[0]
    assert kept(found) == []
    assert [topic for _order, topic in history.last_topics()] == ["a", "c"]
    newest = {topic: found.last((topic,)) for topic in "abcd"}
    assert {topic: each and each.message.sequence for topic, each in newest.items()} == {"a": 2, "b": None, "c": 3, "d": None}
    assert history.last_bytes == 2 * (ENTRY_BYTES + 2)


def test_the_newest_messages_have_a_bound_in_bytes() -> None:
    found = opened(bytes=3 * (ENTRY_BYTES + 2), last=True)
    for number in range(8):
        add(found, number, 0.0, "abcd"[number % 4])
    assert [topic for _order, topic in found.all[0].last_topics()] == ["b", "c", "d"]
    assert found.all[0].last_bytes == found.all[0].bytes == 3 * (ENTRY_BYTES + 2)


def test_publishers_are_forgotten_beyond_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PUBLISHERS_MAX", 2)
    found = opened(messages=1)
    sources = [f"{number:032x}" for number in range(4)]
    for at, source in enumerate(sources):
        add(found, 1, 10.0 + at, source=source)
    assert [found.all[0].arrival_of(KEYS.pseudonym(source), 1) for source in sources] == [None, 11.0, 12.0, 13.0]
    assert [add(found, 1, 20.0, source=source) for source in reversed(sources)] == [0, 0, 1, 1]


def test_the_history_for_a_pattern_is_the_longest_that_covers_it() -> None:
    settings = [HistorySettings("a.*", seconds=60), HistorySettings("a.>", seconds=30), HistorySettings("a.b.>", seconds=90)]
    found = Histories(settings, KEYS, b"thisdoor", 0.0)
    covering = {pattern: found.covering(tuple(pattern.split("."))) for pattern in ("a.b", "a.>", "a.b.c", "*", ">")}
    assert [each and each.settings.pattern for each in covering.values()] == ["a.*", "a.>", "a.b.>", None, None]


def test_the_next_entry_of_some_topics_is_found_and_gaps_are_for_all() -> None:
    found = opened()
    for number, topic in enumerate("abcaba"):
        add(found, number, 0.0, topic, gap=2 if number == 2 else 0)
    assert kept(found) == [0, 1, None, 2, 3, 4, 5]
    history = found.all[0]
    assert [history.find(start, "b".__eq__, 100) for start in range(8)] == [1, 1, 2, 5, 5, 5, 7, 7]
    assert history.find(3, "b".__eq__, 1) == 4, "the search ends after so many entries"
    assert history.find(3, "b".__eq__, 0) == 3
