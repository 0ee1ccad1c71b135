"""Which nodes `iris top` asks when, and what it makes of their answers."""

from __future__ import annotations

import pytest

from iris_py import EventRecord
from iris_py.overview.readings import EVENTS_MAX, GONE_KEPT_S, GONE_MAX, INTERVAL_MIN_S, SAMPLE_KEPT_S, SEARCH_S, Readings
from tests.unit.iris_py.overview.faked import found, id_of, older, report


def states(gathering: Readings) -> dict[str, str]:
    assert gathering.view is not None
    return {seen.node.id: seen.state for seen in gathering.view.seen}


def test_nodes_are_looked_for_now_and_then_and_the_known_ones_asked_between() -> None:
    gathering = Readings()
    assert gathering.next_asked(0.0) is None
    gathering.take(found(report(1), report(2), missing=[3]), 0.0, is_search=True)
    asked = gathering.next_asked(1.0)
    assert asked is not None
    assert [node.id for node in asked] == [id_of(1), id_of(2)]  # a silent one would hold the reading up
    assert gathering.next_asked(SEARCH_S) is None


def test_there_is_no_view_before_there_are_rates() -> None:
    gathering = Readings()
    first = found(report(1, executed=100))
    gathering.take(first, 0.0, is_search=True)
    assert (gathering.view, gathering.is_warming) == (None, True)
    gathering.take(older(first, 2.0, executed=50), 2.0, is_search=False)
    assert not gathering.is_warming
    assert gathering.view is not None
    (pair,) = gathering.view.pairs
    assert pair.per_s(lambda each: each.statistics.executed) == 25.0


def test_two_answers_from_one_snapshot_are_no_rate_of_nothing() -> None:
    gathering = Readings()
    first = found(report(1, executed=100))
    second = older(first, 1.0, executed=10)
    for now, answers in enumerate((first, second, second)):
        gathering.take(answers, float(now), is_search=not now)
    assert gathering.view is not None
    assert gathering.view.pairs[0].per_s(lambda each: each.statistics.executed) == 10.0


def test_a_node_that_disappears_is_marked_and_then_forgotten() -> None:
    gathering = Readings()
    both = found(report(1), report(2))
    gathering.take(both, 0.0, is_search=True)
    gathering.take(older(both, 1.0), 1.0, is_search=False)
    gathering.take(found(*older(found(report(1)), 2.0).reports, missing=[2]), 2.0, is_search=False)
    assert states(gathering) == {id_of(1): "answers", id_of(2): "silent"}
    gathering.take(older(found(report(1)), 6.0), 6.0, is_search=True)
    assert states(gathering)[id_of(2)] == "gone"
    gathering.take(older(found(report(1)), 60.0), 7.0 + GONE_KEPT_S, is_search=True)
    assert set(states(gathering)) == {id_of(1)}


def test_a_walk_with_a_gap_declares_nobody_gone() -> None:
    gathering = Readings()
    both = found(report(1), report(2))
    gathering.take(both, 0.0, is_search=True)
    gathering.take(older(both, 1.0), 1.0, is_search=False)
    gathering.take(found(*older(found(report(1)), 6.0).reports, is_whole=False), 6.0, is_search=True)
    assert states(gathering)[id_of(2)] == "silent"


def test_commands_that_come_and_go_do_not_fill_the_list() -> None:
    gathering = Readings()
    for number in range(3 * GONE_MAX):
        lasting = report(0, uptime_s=10.0 + number)
        gathering.take(found(lasting, report(number + 1)), float(number) / 10, is_search=True)
    assert len(states(gathering)) <= GONE_MAX + 2


def test_the_network_may_go_and_come_back() -> None:
    gathering = Readings()
    both = found(report(1), report(2))
    gathering.take(both, 0.0, is_search=True)
    gathering.take(older(both, 1.0), 1.0, is_search=False)
    gathering.take(found(missing=[1, 2]), 4.0, is_search=False)
    assert gathering.next_asked(4.1) is None  # there is nobody to ask, so all are looked for
    gathering.take(found(), 5.0, is_search=True)
    assert gathering.view is not None
    assert (gathering.view.found.reports, gathering.answered_at) == ((), 1.0)
    assert set(states(gathering).values()) == {"gone"}
    gathering.take(older(both, 9.0), 9.0, is_search=True)
    assert set(states(gathering).values()) == {"answers"}
    assert gathering.answered_at == 9.0


def test_a_new_sample_is_shown_when_it_has_rates() -> None:
    gathering = Readings()
    first, second = found(report(1), report(2), sample_of=1000), found(report(3), report(4), sample_of=1000)
    gathering.take(first, 0.0, is_search=True)
    gathering.take(older(first, 1.0), 1.0, is_search=False)
    assert gathering.next_asked(SEARCH_S + 1.0) is not None
    assert gathering.next_asked(SAMPLE_KEPT_S) is None
    gathering.take(second, SAMPLE_KEPT_S, is_search=True)
    assert gathering.is_warming
    assert set(states(gathering)) == {id_of(1), id_of(2)}
    gathering.take(older(second, 1.0), SAMPLE_KEPT_S + 1.0, is_search=False)
    assert set(states(gathering)) == {id_of(3), id_of(4)}
    assert gathering.view is not None
    assert (gathering.view.found.is_sample, gathering.view.found.size.nodes) == (True, 1000)


@pytest.mark.parametrize(("pages", "interval_s"), [(1, INTERVAL_MIN_S), (2, INTERVAL_MIN_S), (20, 2.0)])
def test_nodes_with_much_to_say_are_asked_less_often(pages: int, interval_s: float) -> None:
    gathering = Readings()
    gathering.take(found(report(1, pages=pages), report(2)), 0.0, is_search=True)
    assert gathering.interval_min_s == interval_s


def test_events_are_kept_once_and_the_newest_first() -> None:
    gathering = Readings()
    events = [EventRecord(number=number, at_s=float(number), kind="joined") for number in (1, 2, 3)]
    first = found(report(1, uptime_s=5000.0, events=events), report(2, events=None))
    gathering.take(first, 0.0, is_search=True)
    assert [event.number for event in gathering.events] == [3, 2, 1]
    assert gathering.latest == {id_of(1): 3}
    gathering.take(first, 1.0, is_search=False)
    assert len(gathering.events) == 3
    many = [EventRecord(number=number, at_s=float(number), kind="dropped") for number in range(4, 2 * EVENTS_MAX)]
    gathering.take(found(report(1, uptime_s=5001.0, events=many)), 2.0, is_search=False)
    assert len(gathering.events) == EVENTS_MAX
    assert gathering.events[0].number == 2 * EVENTS_MAX - 1


def test_events_that_were_overwritten_are_a_gap() -> None:
    gathering = Readings()
    events = [EventRecord(number=number, at_s=float(number), kind="joined") for number in (1, 2)]
    gathering.take(found(report(1, uptime_s=100.0, events=events)), 0.0, is_search=True)
    assert "gap" not in [event.kind for event in gathering.events]
    events = [EventRecord(number=number, at_s=float(number), kind="died") for number in (7, 8)]
    gathering.take(found(report(1, uptime_s=100.0, events=events)), 1.0, is_search=False)
    shown = [(event.kind, event.number, event.times) for event in gathering.events]
    assert shown == [("died", 8, 1), ("died", 7, 1), ("gap", 6, 4), ("joined", 2, 1), ("joined", 1, 1)]


def test_the_node_that_is_looked_at_keeps_its_last_numbers_when_it_is_silent() -> None:
    gathering = Readings()
    gathering.look_at(id_of(1))
    gathering.take_detail(found(report(1, executed=5)), 0.0)
    gathering.take_detail(found(missing=[1]), 2.0)
    assert gathering.detail is not None
    assert (gathering.detail.state, gathering.detail.since) == ("silent", 2.0)
    assert gathering.detail.pair is not None
    gathering.look_at(id_of(2))
    assert gathering.detail is None
