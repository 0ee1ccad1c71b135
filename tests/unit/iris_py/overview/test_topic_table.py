"""Tests of iris_py/overview/topic_table.py: what nodes report of the table of subscriptions, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from iris_py.cli.top.header import say_head, say_place
from iris_py.cli.top.sheets import TablePlace
from iris_py.observe.queries import About
from iris_py.observe.statistics import InterestStatistics, TopicStatistics
from iris_py.overview.pair import Pair
from iris_py.overview.readings import Readings
from iris_py.overview.topic_table import say_table, say_tokens, say_versions, table_line, token_lines
from tests.unit.iris_py.overview.faked import found, id_of, older, report

if TYPE_CHECKING:
    from iris_py import NodeReport

ROOT = InterestStatistics(root_tables=1, root_nodes=2, root_entries=3, root_promoted=1)
PUBLISHER = InterestStatistics(
    watched_tables=1, watched_nodes=2, watched_entries=3, absent_nodes=1, held_messages=2, held_bytes=2048
)
SUBSCRIBER = InterestStatistics(entries=2, promoted=1, publishers=1)


def pair(
    number: int,
    interest: InterestStatistics = SUBSCRIBER,
    topics: dict[str, tuple[TopicStatistics, TopicStatistics]] | None = None,
    unwanted: int = 0,
) -> Pair:
    """Return two answers of a node at an interval of a second."""

    def answer(index: int) -> NodeReport:
        first = report(number, uptime_s=10.0 + index)
        shown = {token: each[index] for token, each in (topics or {}).items()}
        drops = {"publication_unwanted": unwanted * index}
        statistics = msgspec.structs.replace(first.statistics, interest=interest, topics=shown, drops=drops)
        return msgspec.structs.replace(first, statistics=statistics)

    return Pair(answer(0), answer(1))


def test_the_root_knows_the_table_and_a_publisher_knows_it_where_the_root_is_silent() -> None:
    root, publisher, subscriber = pair(1, ROOT), pair(2, PUBLISHER), pair(3, unwanted=7)
    line = table_line([root, publisher, subscriber], 1.0)
    assert (line.entries, line.nodes, line.promoted, line.roots, line.watchers) == (3, 2, 1, [id_of(1)], 1)
    assert (line.absent, line.held, line.held_bytes, line.unwanted_per_s) == (1, 2, 2048, 7)
    assert say_table(line, [root, publisher, subscriber]) == [
        "3 patterns of 2 nodes, 1 promoted",
        "kept by 00000001 at 127.0.0.1:4001",
        "watched by 1 node",
        "1 absent",
        "2 publications held (2.0 KiB)",
        "7 unwanted messages/s",
    ]
    line = table_line([publisher, subscriber], 100.0)
    assert (line.entries, line.nodes, line.promoted, line.roots, line.watchers) == (3, 2, 0, [], 100)
    line = table_line([subscriber], 1.0, own=ROOT)  # the node of the command has just become the root
    assert (line.entries, line.nodes, line.promoted, line.roots) == (3, 2, 1, [])


def test_the_tables_of_two_generations_are_one_table() -> None:
    line = table_line([pair(1, ROOT), pair(2, msgspec.structs.replace(ROOT, root_entries=2))], 1.0)
    assert (line.entries, line.nodes, line.roots) == (3, 2, [id_of(1), id_of(2)])


def test_a_network_without_subscriptions_says_nothing() -> None:
    for pairs in ([], [pair(1, InterestStatistics())]):
        assert say_table(table_line(pairs, 1.0), pairs) == []
        assert token_lines(pairs, 1.0) == []


def test_first_tokens_have_the_numbers_of_all_nodes() -> None:
    pairs = [
        pair(1, topics={"news": (TopicStatistics(published=10), TopicStatistics(published=60))}),
        pair(
            2,
            topics={
                "news": (TopicStatistics(entries=2, received=5), TopicStatistics(entries=2, received=45, gaps=5)),
                "*": (TopicStatistics(entries=1), TopicStatistics(entries=1)),
                "stock": (TopicStatistics(), TopicStatistics(published=1)),
            },
        ),
    ]
    lines = token_lines(pairs, 10.0)
    assert [line.token for line in lines] == ["news", "stock", "*"]
    news = lines[0]
    assert (news.entries, news.published_per_s, news.published, news.received_per_s, news.received, news.gaps) == (
        *(20, 500, 600),
        *(400, 450, 50),
    )
    assert say_tokens(token_lines(pairs, 1.0, "news.sport"))[0] == ("news: 2 patterns, 50/s published, 40/s received, 5 missed")
    for wanted, tokens in {"news.sport": {"news", "*"}, "*.sport": {"news", "stock", "*"}, ">": {"news", "stock", "*"}}.items():
        assert {line.token for line in token_lines(pairs, 1.0, wanted)} == tokens


def versions(*numbers: int) -> list[NodeReport]:
    return [msgspec.structs.replace(report(n), about=About(topic_version=version)) for n, version in enumerate(numbers, 1)]


def test_nodes_with_older_topics_are_named() -> None:
    assert say_versions(versions()) == say_versions(versions(2, 2)) == say_versions(versions(1)) == ""
    said = "publications do not pass between versions of topics; older: "
    assert say_versions(versions(2, 1)) == said + "127.0.0.1:4002"
    assert say_versions(versions(2, 1, 1, 1, 1)) == said + "127.0.0.1:4002, 127.0.0.1:4003, 127.0.0.1:4004 and 1 more"


def test_the_screen_shows_the_table_above_the_topics_and_older_nodes_in_its_head() -> None:
    gathering = Readings()
    reports = [
        msgspec.structs.replace(each, statistics=msgspec.structs.replace(each.statistics, interest=interest))
        for each, interest in zip(versions(2, 1), (ROOT, PUBLISHER), strict=True)
    ]
    answers = found(*reports)
    gathering.take(answers, 0.0, is_search=True)
    gathering.take(older(answers, 1.0), 1.0, is_search=False)
    place = say_place([TablePlace("topics")], None, "", gathering, 1.0)
    assert place.startswith("Topics  3 patterns of 2 nodes, 1 promoted  kept by 00000001")
    assert "patterns of" not in say_place([TablePlace("clusters")], None, "", gathering, 1.0)
    head = say_head(gathering, "test", 1.0, 1.0, is_paused=False, width=100)
    assert "publications do not pass between versions of topics; older: 127.0.0.1:4002" in head.plain
