"""The times at which requests are looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from iris_py.patterns.request.attempts import HedgeTimes

if TYPE_CHECKING:
    from iris_py.patterns.request.pending import Pending


def held(*ids: int) -> dict[int, Pending]:
    """Return requests of which these have a member, and one more that has none."""
    pending = {id_: SimpleNamespace(member=object()) for id_ in ids} | {99: SimpleNamespace(member=None)}
    return cast("dict[int, Pending]", pending)


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
    assert times.deadline(held(1, 2, 3, 4)) == 1.0
    assert times.deadline(held(3)) == 1.0
    assert list(times.take_due(1.0)) == [(1.0, 3)], "what nobody holds in front of it is forgotten"
    assert times.deadline(held(4)) == 2.0
    assert times.deadline({}) is None
    assert not times
