"""The times at which requests are looked at."""

from __future__ import annotations

from iris_py.patterns.request.hedges import HedgeTimes


def test_entries_are_taken_in_the_order_of_their_times_when_these_have_come() -> None:
    times = HedgeTimes()
    assert not times
    times.add(2.0, 5, 6)
    times.add(1.0, 7, 9)
    assert len(times) == 2
    assert list(times.take_due(0.9)) == []
    assert list(times.take_due(3.0)) == [(1.0, 7), (1.0, 8), (2.0, 5)]
    assert list(times.take_due(3.0)) == []
    assert not times


def test_the_deadline_is_that_of_the_first_request_that_a_member_holds() -> None:
    times = HedgeTimes()
    times.add(1.0, 1, 4)
    times.add(2.0, 4, 5)
    assert times.deadline(lambda id_: id_ >= 1) == 1.0
    assert times.deadline(lambda id_: id_ == 3) == 1.0
    assert list(times.take_due(1.0)) == [(1.0, 3)], "what nobody holds in front of it is forgotten"
    assert times.deadline(lambda id_: id_ == 4) == 2.0
    assert times.deadline(lambda _id: False) is None
    assert not times
