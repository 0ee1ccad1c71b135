"""The index of interest: greedy nodes beside honest ones, results that never get old, shared routes, and large tables."""

from __future__ import annotations

import tracemalloc

import pytest

from iris_py.patterns.topic import interest
from iris_py.patterns.topic.interest import SHAPES_MAX, WIDE_TAG, InterestIndex
from iris_py.patterns.topic.names import TOKENS_MAX, Tokens, parse_pattern
from iris_py.patterns.topic.shapes import ENTRIES_MAX, ENTRY, EntryHasher

HASHER = EntryHasher(bytes(32))


class Route:
    """The targets of topics. Each route is another object."""

    def __init__(self, targets: tuple[str, ...]) -> None:
        self.targets = targets


class Net:
    """An index, and the patterns of its targets."""

    def __init__(self) -> None:
        self.index: InterestIndex[str, Route] = InterestIndex(HASHER, Route)
        self.entries: dict[str, bytes] = {}

    def add(self, target: str, *patterns: str) -> None:
        added = packed(*patterns)
        self.entries[target] = self.entries.get(target, b"") + added
        assert self.index.change(target, added) == 0

    def leave(self, target: str) -> None:
        self.index.change(target, b"", self.entries.pop(target))

    def settle(self) -> None:
        assert self.index.is_crowded
        self.index.settle(lambda target: self.entries[target])

    def find(self, topic: str) -> list[str]:
        return sorted(self.index.match(topic)[0].targets)


def packed(*patterns: str) -> bytes:
    return b"".join(sorted(HASHER.entry(parse_pattern(each)).pack() for each in patterns))


def shapes_under(token: str, count: int) -> list[str]:
    """Return patterns of different shapes that begin with a token."""
    bodies: list[Tokens] = [(token, *("*b"[number >> bit & 1] for bit in range(7))) for number in range(count)]
    return [".".join(each) for each in bodies]


def test_a_topic_without_subscribers_has_an_empty_route() -> None:
    net = Net()
    route, tags, _stem = net.index.match("a.b")
    assert (route.targets, tags) == ((), ())
    net.add("A", "a.c")
    assert net.index.match("a.b")[0] is route


def test_a_result_has_the_tags_of_the_entries_that_match() -> None:
    net = Net()
    net.add("A", "a.*", "a.b", "a.c")
    net.add("B", "a.*")
    route, tags, _stem = net.index.match("a.b")
    assert sorted(route.targets) == ["A", "B"]
    assert sorted(tags) == sorted(HASHER.entry(parse_pattern(each)).tag for each in ("a.*", "a.b"))


def test_a_change_of_interest_takes_effect_at_once() -> None:
    net = Net()
    assert net.find("a.b") == []
    net.add("A", "a.b")
    assert net.find("a.b") == ["A"]
    net.add("B", "*.b")
    assert net.find("a.b") == ["A", "B"]
    net.leave("A")
    assert net.find("a.b") == ["B"]
    net.add("C", "c.c")  # it may get the place of A
    assert net.find("a.b") == ["B"]
    assert net.find("c.c") == ["C"]


def test_topics_with_the_same_targets_share_a_route() -> None:
    net = Net()
    net.add("A", "a.>", "b.c")
    net.add("B", "a.>", "b.>")
    routes = {id(net.index.match(topic)[0]) for topic in ("a.b", "a.c.d", "b.c")}
    assert len(routes) == 1
    assert net.index.match("b.d")[0].targets == ("B",)


def test_an_entry_in_two_tables_counts_twice() -> None:
    net = Net()
    net.add("A", "a.b")
    net.index.change("A", packed("a.b"))
    net.index.change("A", b"", packed("a.b"))
    assert net.find("a.b") == ["A"]
    net.index.change("A", b"", packed("a.b"))
    assert net.find("a.b") == []
    assert "A" not in net.index


def test_invalid_entries_have_no_effect() -> None:
    index: InterestIndex[str, Route] = InterestIndex(HASHER, Route)
    stem = HASHER.stem("a")
    invalid = [(stem, 17 << 17 | 1, 1), (stem, 1 << 17 | 0b11, 1), (0, 1 << 17 | 1, 1), (stem, 0, 1)]
    assert index.change("A", b"".join(ENTRY.pack(*each) for each in invalid)) == len(invalid)
    assert len(index) == 0
    assert "A" not in index
    assert index.change("A", b"", ENTRY.pack(*invalid[0])) == 1


def test_a_greedy_node_is_widened_and_an_honest_one_gets_its_own_messages() -> None:
    net = Net()
    net.add("greedy", *shapes_under("a", 100))
    net.add("honest", "a.*.c", "a.d.>")  # the newest
    net.add("other", "b.*.c")
    net.settle()
    assert not net.index.is_crowded
    topics = [f"a.{second}.{third}" for second in "cde" for third in "abc"]
    honest = [topic for topic in topics if "honest" in net.find(topic)]
    assert honest == ["a.c.c", "a.d.a", "a.d.b", "a.d.c", "a.e.c"]
    assert all("greedy" in net.find(topic) for topic in topics)
    assert net.find("b.b.c") == ["other"]  # other first tokens stay exact
    assert WIDE_TAG in net.index.match("a.c.c")[1]
    assert WIDE_TAG not in net.index.match("b.b.c")[1]


def test_a_greedy_node_cannot_take_the_room_of_others_later() -> None:
    net = Net()
    net.add("greedy", *shapes_under("a", 100))
    net.settle()
    net.index.change("greedy", packed("a.*.z.>"))
    net.entries["greedy"] += packed("a.*.z.>")
    net.add("honest", "a.*.c")
    assert net.find("a.b.c") == ["greedy", "honest"]
    assert net.find("a.b.d") == ["greedy"]


def test_before_settling_no_target_is_missed() -> None:
    net = Net()
    net.add("greedy", *shapes_under("a", SHAPES_MAX))
    net.add("honest", "a.*.c")
    assert net.find("a.b.c") == ["honest"]
    assert net.find("a.b.d") == ["honest"]  # unwanted, until the owner settles
    net.settle()
    assert net.find("a.b.d") == ["greedy"]


def test_of_targets_with_equally_many_shapes_the_oldest_is_widened() -> None:
    net = Net()
    for number, pattern in enumerate(shapes_under("a", SHAPES_MAX + 1)):
        net.add(f"{number:02}", pattern)
    net.settle()
    assert net.find("a.none") == ["00"]


def test_shapes_with_a_wildcard_first_are_bounded_too() -> None:
    net = Net()
    net.add("greedy", *shapes_under("*", 100))
    net.add("honest", "*.c")
    net.settle()
    assert net.find("a.c") == ["greedy", "honest"]
    assert net.find("x") == ["greedy"]


def test_a_target_that_removes_shapes_is_exact_again() -> None:
    net = Net()
    greedy = shapes_under("a", 100)
    net.add("greedy", *greedy)
    net.add("honest", "a.*.c")
    net.settle()
    net.index.change("greedy", b"", packed(*greedy[5:]))
    net.entries["greedy"] = packed(*greedy[:5])
    net.settle()
    assert net.find("a.b") == []
    assert net.find("a.b.c") == ["honest"]
    assert net.find("a." + ".".join("z" * 7)) == ["greedy"]
    net.leave("greedy")
    net.leave("honest")
    assert len(net.index) == 0
    assert net.find("a.b.c") == []


def test_a_widened_target_is_exact_again_when_others_leave() -> None:
    net = Net()
    patterns = shapes_under("a", 2 * SHAPES_MAX)
    net.add("first", *patterns[:SHAPES_MAX])
    net.add("second", *patterns[SHAPES_MAX:])
    net.settle()
    assert net.find("a.none") == ["first"]
    net.leave("second")
    net.settle()
    assert net.find("a.none") == []
    assert net.find("a." + ".".join("z" * 7)) == ["first"]


@pytest.mark.parametrize(("name", "bound"), [("ROUTES_MAX", 4), ("ROUTE_NODES_MAX", 3)])
def test_topics_share_a_route_after_the_index_forgot_all_routes(monkeypatch: pytest.MonkeyPatch, name: str, bound: int) -> None:
    monkeypatch.setattr(interest, name, bound)
    net = Net()
    for target in "ABCDEFGH":
        net.add(target, f"a.{target}", f"b.{target}")
    first = net.index.match("a.A")[0]
    for target in "BCDEFGH":
        net.find(f"a.{target}")
    assert net.index.match("a.A")[0] is not first
    assert net.index.match("b.A")[0] is net.index.match("a.A")[0]


def test_the_deepest_topic_is_found() -> None:
    net = Net()
    net.add("A", ".".join("a" * TOKENS_MAX), ".".join("a" * (TOKENS_MAX - 1)) + ".>", "*." * (TOKENS_MAX - 1) + "*")
    assert len(net.index.match(".".join("a" * TOKENS_MAX))[1]) == 3
    assert net.find(".".join("a" * (TOKENS_MAX - 1))) == []


def test_endless_topics_take_no_memory() -> None:
    net = Net()
    net.add("A", "device.*.status")
    for number in range(10_000):
        net.find(f"device.{number}.status")
    tracemalloc.start()
    for number in range(10_000):
        net.find(f"device.{-number}.status")
        net.find(f"{number}.status")
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 4 * 1024 * 1024


def test_a_node_with_all_its_entries_is_found_under_each_and_leaves_nothing() -> None:
    net = Net()
    names = [f"{number}.status" if number % 2 else f"users.{number}" for number in range(ENTRIES_MAX)]
    net.add("A", *names)
    net.add("B", "users.*")
    assert len(net.index) == ENTRIES_MAX + 1
    assert all("A" in net.find(name) for name in names[:: ENTRIES_MAX // 100])
    net.leave("A")
    assert net.find("users.2") == ["B"]
    assert net.find("1.status") == []
    assert len(net.index) == 1
