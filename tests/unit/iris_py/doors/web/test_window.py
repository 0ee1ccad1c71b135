"""Windows: bounds in events and bytes, and the three policies beyond them."""

from __future__ import annotations

from iris_py.doors.web.window import ClientWindow, EventBatch, WindowItem, WindowPolicy


def batch(*texts: str) -> EventBatch:
    return EventBatch([WindowItem(text.encode(), text[0]) for text in texts])


def gap(missed: int | None) -> EventBatch:
    return EventBatch([WindowItem(b"gap!", "", missed)])


def window(policy: WindowPolicy = "drop_oldest", messages_max: int = 4, bytes_max: int = 100) -> ClientWindow:
    return ClientWindow(policy, messages_max, bytes_max)


def test_what_waits_is_joined_for_one_write() -> None:
    filled = window()
    shared = batch("a1", "b1")
    filled.add(shared)
    assert filled.take() is shared.joined()
    filled.add(shared)
    filled.add(batch("c1"))
    assert (len(filled), filled.bytes) == (3, 6)
    assert filled.take() == b"a1b1c1"
    assert not filled.has_output
    assert filled.take() == b""


def test_a_write_has_a_bound_and_at_least_one_event() -> None:
    filled = window()
    filled.add(batch("a1", "b1", "c1"))
    filled.add(batch("d1"))
    assert [filled.take(4), filled.take(1), filled.take(4)] == [b"a1b1", b"c1", b"d1"]
    assert (len(filled), filled.bytes) == (0, 0)


def test_the_oldest_are_dropped_and_counted() -> None:
    filled = window()
    filled.add(batch("a1", "b1", "c1"))
    filled.add(batch("d1", "e1", "f1"))
    assert (len(filled), filled.bytes, filled.dropped) == (4, 8, 2)
    assert filled.missed.take() == 2
    assert filled.take() == b"c1d1e1f1"
    filled.add(batch("x" * 60))
    filled.add(batch("y" * 60))
    assert (filled.bytes, filled.missed.take(), filled.missed.take()) == (60, 1, 0)


def test_other_bounds_hold_from_the_next_event_on() -> None:
    found = window(messages_max=4)
    for text in "abcd":
        found.add(batch(text))
    found.resize(2, 100)
    assert len(found) == 4
    found.add(batch("e"))
    assert (len(found), found.dropped, found.missed.take()) == (2, 3, 3)
    found.resize(10, 100)
    found.add(batch("f", "g", "h"))
    assert found.take() == b"defgh"


def test_a_dropped_gap_is_told_with_the_dropped_messages() -> None:
    filled = window()
    filled.add(gap(5))
    filled.add(batch("a1", "b1"))
    filled.add(batch("c1", "d1", "e1"))
    assert filled.missed.take() == 6
    filled.add(gap(None))
    filled.add(batch("f1", "g1", "h1", "i1"))
    assert filled.missed.take() is None
    assert filled.dropped == 5


def test_the_newest_of_each_topic_stays() -> None:
    filled = window("latest")
    filled.add(batch("a1", "b1", "a2"))
    assert filled.take() == b"a1b1a2"
    filled.add(batch("a1", "b1", "a2"))
    filled.add(batch("c1", "b2"))
    assert not filled.missed
    filled.add(batch("c2"))
    filled.add(gap(2))
    assert (len(filled), filled.bytes, filled.dropped) == (3, 6, 3)
    assert filled.missed.take() == 2
    assert filled.take(4) == b"a2b2"
    filled.add(batch("a3"))
    assert filled.take() == b"c2a3"
    filled.add(batch("a4", "a5"))
    assert filled.take() == b"a4a5"


def test_of_more_topics_than_fit_the_oldest_are_missed() -> None:
    filled = window("latest")
    filled.add(batch("a1", "b1", "c1", "d1"))
    filled.add(batch("e1", "f1"))
    assert (filled.missed.take(), filled.take()) == (2, b"c1d1e1f1")


def test_a_full_window_ends_the_stream_if_wanted() -> None:
    filled = window("disconnect")
    filled.add(batch("a1", "b1", "c1", "d1"))
    is_cut = [filled.is_cut]
    filled.add(batch("e1"))
    assert [*is_cut, filled.is_cut] == [False, True]
    filled.add(batch("f1"))
    assert (len(filled), filled.bytes, filled.take()) == (0, 0, b"")
