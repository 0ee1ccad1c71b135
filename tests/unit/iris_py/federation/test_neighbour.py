"""One other cloud: the rules that it may use, and their limits, while settings are loaded anew; and its lost links."""

from __future__ import annotations

from random import Random

from iris_py.federation.limits import PLACE_WAIT_S
from iris_py.federation.messages import CLUSTER, CatalogueEntry
from iris_py.federation.neighbour import (
    CATALOGUE_BURST,
    CATALOGUE_RULES_PER_S,
    LOST_MAX,
    LOST_S,
    REFUSALS_BURST,
    REFUSALS_PER_S,
    LostLines,
    Neighbour,
)
from iris_py.federation.rules import ExportRule
from iris_py.federation.settings import CloudSettings


def make(*rules: ExportRule, bytes_per_s: int | None = None) -> Neighbour:
    neighbour = Neighbour("eu", CloudSettings("eu", (bytes(32),), bytes_per_s=bytes_per_s), 2, Random(1), 0.0)
    neighbour.set_exports(rules, 0.0)
    return neighbour


def export(number: int, outside: str, in_flight: int = 10, *uses: str) -> ExportRule:
    return ExportRule(number, "cluster", outside, outside, ("eu",), allow=frozenset(uses), in_flight=in_flight)


def test_a_neighbour_cannot_choose_a_rule_that_allows_more_than_the_one_that_counts() -> None:
    neighbour = make(export(4, "scorers.>", 10, "request", "survey"), export(7, "scorers.gpu", 1, "request"))
    everything, gpu = neighbour.exports
    assert neighbour.export_rule(gpu.number, "scorers.gpu") is gpu
    assert neighbour.export_rule(everything.number, "scorers.gpu") is None
    assert neighbour.export_rule(everything.number, "scorers.cpu") is everything
    assert neighbour.export_rule(gpu.number, "scorers.cpu") is None
    assert neighbour.export_rule(everything.number, "other") is None
    assert neighbour.export_rule(everything.number, "iris.gateway") is None
    assert neighbour.export_rule(everything.number) is everything, "for all that it covers"
    assert neighbour.export_rule(5, "scorers.cpu") is None


def test_what_is_under_way_stays_counted_when_rules_move() -> None:
    neighbour = make(export(0, "a", 1), export(1, "b", 1))
    before = {rule.outside: rule.number for rule in neighbour.exports}
    assert neighbour.export_limits[before["b"]].begin_request(0, 0.0) is None
    neighbour.set_exports([export(0, "b", 1), export(1, "c", 1)], 1.0)
    now = {rule.outside: rule.number for rule in neighbour.exports}
    assert now["b"] == before["b"]
    assert neighbour.export_limits[now["b"]].begin_request(0, 1.0) == PLACE_WAIT_S
    assert neighbour.export_limits[now["c"]].begin_request(0, 1.0) is None
    assert neighbour.export_rule(before["a"], "a") is None


def test_what_we_ask_and_what_we_answer_share_the_line_by_direction() -> None:
    neighbour = make(export(0, "a"), bytes_per_s=100)
    theirs = neighbour.limits_of(CatalogueEntry(3, CLUSTER, "x", 1, 0.0, 10), 0.0)
    ours = neighbour.export_limits[0]
    theirs.begin_request(100, 0.0)
    theirs.end_request(100, 0.0)
    assert theirs.begin_request(100, 0.5) is not None, "our request has filled the way out, and its reply the way in"
    assert ours.begin_request(60, 0.5) is not None
    assert theirs.begin_request(50, 2.0) is None
    assert ours.begin_request(100, 2.0) is None, "the way in is free"


def test_catalogues_are_taken_in_bursts_and_then_no_faster_than_they_cost() -> None:
    neighbour = make()
    for _ in range(CATALOGUE_BURST // 1024):
        assert neighbour.admit_catalogue(1024, 1.0)
    assert not neighbour.admit_catalogue(1, 1.0)
    later = 1.0 + 512 / CATALOGUE_RULES_PER_S
    assert not neighbour.admit_catalogue(513, later)
    assert neighbour.admit_catalogue(512, later)
    assert not neighbour.admit_catalogue(CATALOGUE_BURST + 1, 1000.0)
    assert neighbour.admit_catalogue(CATALOGUE_BURST, 1000.0)


def test_names_that_are_not_exported_may_be_asked_for_in_a_burst_and_then_now_and_then() -> None:
    neighbour = make()
    assert all(neighbour.admit_refusal(1.0) for _ in range(REFUSALS_BURST))
    assert not neighbour.admit_refusal(1.0)
    later = 2.0
    assert all(neighbour.admit_refusal(later) for _ in range(REFUSALS_PER_S))
    assert not neighbour.admit_refusal(later)


def gateways(lost: LostLines, now: float = 0.0) -> list[str]:
    return [str(each["gateway"]) for each in lost.status(now)]


def test_a_lost_line_is_missed_with_its_reason_until_its_gateway_is_back() -> None:
    lost = LostLines()
    lost.add(b"\x01", "10.0.0.1", "nothing heard for 10 s", 5.0)
    assert lost.status(7.0) == [{"gateway": "01", "address": "10.0.0.1", "reason": "nothing heard for 10 s", "s_ago": 2.0}]
    lost.add(b"\x02", "10.0.0.2", "reset", 6.0)
    lost.found(b"\x01", is_new=True)
    assert gateways(lost, 7.0) == ["02"]


def test_a_new_gateway_takes_the_place_of_the_one_that_was_lost_first() -> None:
    lost = LostLines()
    for number in (1, 2):
        lost.add(bytes([number]), "", "", 0.0)
    lost.found(b"\x09", is_new=False)  # a second line to a gateway that is there
    assert gateways(lost) == ["01", "02"]
    lost.found(b"\x09", is_new=True)
    assert gateways(lost) == ["02"]
    lost.found(b"\x0a", is_new=True)
    lost.found(b"\x0b", is_new=True)
    assert gateways(lost) == []


def test_nobody_is_missed_for_ever_and_so_many_at_most() -> None:
    lost = LostLines()
    for number in range(LOST_MAX + 3):
        lost.add(bytes([number]), "", "", float(number))
    assert len(gateways(lost)) == LOST_MAX
    assert gateways(lost)[0] == "03"
    assert len(gateways(lost, LOST_S + 10.0)) == LOST_MAX + 3 - 10
