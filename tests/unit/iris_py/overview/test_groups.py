"""Groups of subscribers, as publishers and members report them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py.observe.statistics import ShareStatistics, SubscriptionStatistics
from iris_py.overview.groups import PATTERNS_MAX, group_lines, patterns_text, say_groups
from iris_py.overview.pair import Pair
from tests.unit.iris_py.overview.faked import report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py import NodeReport


def node(
    number: int,
    shares: Mapping[str, ShareStatistics] | None = None,
    joined: Sequence[tuple[str, str]] = (),
    uptime_s: float = 100.0,
) -> NodeReport:
    """Return the answer of a node that publishes to groups, and is in some with a pattern each."""
    known = report(number, uptime_s=uptime_s)
    subscriptions = tuple(SubscriptionStatistics(pattern=pattern, policy="block", group=group) for group, pattern in joined)
    return msgspec.structs.replace(
        known, statistics=msgspec.structs.replace(known.statistics, shares=shares or {}, subscriptions=subscriptions)
    )


def pair(number: int, before: ShareStatistics, after: ShareStatistics) -> Pair:
    """Return two answers, two seconds apart, of a publisher."""
    return Pair(node(number, {"billing": before}), node(number, {"billing": after}, uptime_s=102.0))


def member(number: int, *joined: tuple[str, str]) -> Pair:
    answer = node(number, joined=joined)
    return Pair(answer, answer)


def test_messages_are_those_of_all_publishers_and_members_those_of_one() -> None:
    publishers = [
        pair(1, ShareStatistics(given=10), ShareStatistics(members=3, given=50, taken=40, outstanding=7, lost=3, full=2)),
        pair(2, ShareStatistics(given=10), ShareStatistics(members=2, given=30, taken=25, outstanding=5)),
    ]
    (line,) = group_lines([*publishers, member(3, ("billing", "orders.>"))], 1.0)
    assert (line.name, line.patterns, line.members, line.publishers) == ("billing", ["orders.>"], 3, 2)
    assert (line.given_per_s, line.given, line.taken, line.outstanding, line.lost, line.full) == (30, 80, 65, 12, 3, 2)
    assert line.given == line.taken + line.outstanding + line.lost
    assert say_groups([line]) == ["billing: 3 members, 30/s given, 12 outstanding, 3 lost, 2 times full"]


def test_a_group_to_which_nobody_publishes_has_the_members_that_tell_of_it() -> None:
    (line,) = group_lines([member(1, ("billing", "orders.>"), ("billing", "bills.*")), member(2, ("billing", "orders.>"))], 1.0)
    assert (line.members, line.publishers, line.patterns) == (2, 0, ["bills.*", "orders.>"])
    assert say_groups([line]) == ["billing: 2 members, 0/s given"]


def test_in_a_sample_each_answer_stands_for_several_nodes() -> None:
    pairs = [pair(1, ShareStatistics(), ShareStatistics(members=3, given=40)), member(2, ("billing", "orders.>"))]
    (line,) = group_lines(pairs, 10.0)
    assert (line.members, line.publishers, line.given, line.given_per_s) == (10, 10, 400, 200)


def test_a_pattern_selects_the_groups_that_overlap_with_it_and_those_without_a_known_one() -> None:
    pairs = [
        member(1, ("billing", "orders.>"), ("mail", "users.*")),
        pair(2, ShareStatistics(), ShareStatistics(given=1)),
        Pair(node(3, {"00000000000ab": ShareStatistics(given=1)}), node(3, {"00000000000ab": ShareStatistics(given=1)})),
    ]
    assert {line.name for line in group_lines(pairs, 1.0, "orders.new")} == {"00000000000ab", "billing"}
    assert {line.name for line in group_lines(pairs, 1.0, "users.ann")} == {"00000000000ab", "mail"}
    assert len(group_lines(pairs, 1.0)) == 3


def test_a_group_without_a_name_is_told_once_it_was_given_a_message() -> None:
    before, after = (node(1, {"00000000000ab": ShareStatistics(members=2, given=given)}) for given in (0, 1))
    assert group_lines([Pair(before, before)], 1.0) == []
    assert [line.name for line in group_lines([Pair(before, after)], 1.0)] == ["00000000000ab"]


def test_the_busiest_group_is_first_and_plain_subscriptions_are_in_none() -> None:
    pairs = [
        Pair(
            node(1, {"idle": ShareStatistics(given=900), "busy": ShareStatistics()}),
            node(1, {"idle": ShareStatistics(given=900), "busy": ShareStatistics(given=8)}, uptime_s=102.0),
        ),
        member(2, ("", "news.>")),
    ]
    assert [line.name for line in group_lines(pairs, 1.0)] == ["busy", "idle"]


def test_of_many_patterns_some_are_told() -> None:
    (line,) = group_lines([member(1, *(("all", f"p{number:02}") for number in range(PATTERNS_MAX + 4)))], 1.0)
    assert (len(line.patterns), patterns_text(line)) == (PATTERNS_MAX, "p00, p01 and 14 more")
