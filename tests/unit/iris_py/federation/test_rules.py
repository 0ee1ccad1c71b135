"""Rules: names that never cross, what is more specific, and what an importer's subscription meets."""

from __future__ import annotations

import pytest

from iris_py.federation.rules import ExportRule, ImportRule, Rule, RuleTable, find_clashes, specificity
from iris_py.patterns.topic.names import parse_pattern


def rule(outside: str, local: str = "", number: int = 0, clouds: tuple[str, ...] = ("eu",)) -> Rule:
    return Rule(number, "cluster", outside, local or outside, clouds)


@pytest.mark.parametrize(
    ("outside", "local", "name", "expected"),
    [
        ("scorers", "scorers-v2", "scorers", "scorers-v2"),
        ("scorers", "scorers-v2", "scorers-v2", None),
        ("clicks.>", "eu.clicks.>", "clicks.a.b", "eu.clicks.a.b"),
        ("clicks.>", "eu.clicks.>", "clicks", None),
        ("*.x.*", "*.*", "a.x.b", "a.b"),
        ("*.x.>", "x.*.>", "a.x.b.c", "x.a.b.c"),
        ("a.*", "a.*", "a.b", "a.b"),
        ("a.*", "a.*", "a.b.c", None),
        (">", ">", "a..b", None),
        (">", ">", "a.*", None),
        (">", ">", "", None),
    ],
)
def test_a_name_has_one_name_on_the_other_side(outside: str, local: str, name: str, expected: str | None) -> None:
    assert rule(outside, local).to_local(name) == expected
    if expected is not None:
        assert rule(outside, local).to_outside(expected) == name


def test_an_import_without_a_local_name_gives_none() -> None:
    imported = ImportRule(0, "cluster", "databases", "", ("eu",))
    assert imported.to_local("databases") is None
    assert imported.to_outside("databases") is None


@pytest.mark.parametrize("name", ["iris.gateway", "iris.gateway.asia", "databases@asia", "iris.x@eu"])
def test_no_rule_reaches_gateways_or_a_third_cloud(name: str) -> None:
    everything = rule(">")
    assert everything.to_local(name) is None
    assert everything.to_outside(name) is None
    assert RuleTable([everything]).find(name) is None


def test_no_new_name_is_one_of_iris_or_longer_than_names_are() -> None:
    assert rule("x.*.>", "*.>").to_local("x.iris.gateway") is None, "the result counts, too"
    assert rule("x.*", "*").to_local("x.iris") == "iris", "this one is nobody's"
    assert rule("*", "long-" * 40 + ".*").to_local("n" * 100) is None
    assert rule(">", "a.b." + ">").to_local(".".join("n" * 15)) is None, "more than 16 tokens"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.b", "a.*"),
        ("a.*", "a.>"),
        ("a.*", "*.*"),
        ("a.*.c", "a.>"),
        ("a.*.>", "a.>"),
        ("*.>", ">"),
        ("a.b.>", "a.*.*"),  # more literals count before all else
        ("*", ">"),
        ("b", "a.*"),  # also where no name matches both
    ],
)
def test_what_is_more_specific(first: str, second: str) -> None:
    assert specificity(parse_pattern(first)) < specificity(parse_pattern(second))
    rules = [rule(second, number=0), rule(first, number=1)]
    assert [each.outside for each in RuleTable(rules).rules] == [first, second]
    assert find_clashes(rules) == []


@pytest.mark.parametrize(("first", "second"), [("a", "a"), ("a.*", "*.b"), ("a.*", "a.*"), (">", ">")])
def test_rules_that_are_equal_for_some_name_clash(first: str, second: str) -> None:
    one, other = rule(first), rule(second, number=1)
    is_equal = specificity(one.outside_tokens) == specificity(other.outside_tokens)
    assert find_clashes([one, other]) == ([(one, other)] if is_equal else [])
    assert find_clashes([one, rule(second, number=1, clouds=("asia",))]) == [], "other neighbours have other names"


def test_many_rules_are_compared_in_reasonable_time() -> None:
    clouds = tuple(f"c{number}" for number in range(64))
    rules = [rule(f"*.{number}", number=number, clouds=clouds) for number in range(1024)]
    assert find_clashes(rules) == []


def test_the_rules_for_a_subscription() -> None:
    table = RuleTable(
        [rule(name, number=number) for number, name in enumerate(["clicks.>", "clicks.web.*", "orders", "*.web"])]
    )
    assert [each.outside for each in table.find_overlapping("clicks.web.>")] == ["clicks.web.*", "clicks.>"]
    assert [each.outside for each in table.find_overlapping("*.web")] == ["*.web", "clicks.>"]
    assert [each.outside for each in table.find_overlapping("orders")] == ["orders"]
    assert table.find_overlapping("other") == []
    with pytest.raises(ValueError, match="continues after '>'"):
        table.find_overlapping(">.a")


def test_the_uses_of_an_export_as_bits() -> None:
    def bits(*uses: str) -> int:
        return ExportRule(0, "cluster", "a", "a", ("eu",), allow=frozenset(uses)).allow_bits

    assert [bits(use) for use in ("request", "survey", "broadcast", "tunnel", "subscribe", "publish")] == [1, 2, 4, 8, 16, 32]
    assert bits("request", "tunnel") == 9
    assert bits() == 0
