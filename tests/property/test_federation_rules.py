"""Rules of federations beside a slow model: expressions for patterns, and all pairs of rules tried."""

from __future__ import annotations

import re
from functools import cache
from itertools import product

from hypothesis import assume, given
from hypothesis import strategies as st

from iris_py.federation.rules import LOOKUPS_MAX, Rule, RuleTable, find_clashes, overlaps, specificity
from iris_py.patterns.topic.names import parse_pattern

TOKENS = st.sampled_from(["a", "b", "iris"])
NAMES = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = (
    st.builds(
        lambda tokens, rest: ".".join([*tokens, *rest]),
        st.lists(TOKENS | st.just("*"), min_size=1, max_size=4),
        st.sampled_from([[], [">"]]),
    )
    | st.just(">")
).filter(lambda pattern: not pattern.startswith("iris."))  # those are refused where they are made
#: Every name that a pattern can tell apart here, and the deepest that one with > wants.
ALL_NAMES = [".".join(tokens) for length in range(1, 6) for tokens in product(("a", "b", "c"), repeat=length)]


@cache
def expression(pattern: str) -> re.Pattern[str]:
    """Return what matches the same names, with a group for each wildcard."""
    parts = {"*": r"([^.]+)", ">": r"([^.]+(?:\.[^.]+)*)"}
    return re.compile(r"\.".join(parts.get(token) or re.escape(token) for token in pattern.split(".")))


def matches(pattern: str, name: str) -> bool:
    return expression(pattern).fullmatch(name) is not None


def is_part(one: str, other: str) -> bool:
    """Return whether a pattern matches less than another one."""
    first = {name for name in ALL_NAMES if matches(one, name)}
    second = {name for name in ALL_NAMES if matches(other, name)}
    return bool(first) and first < second


@given(PATTERNS, PATTERNS)
def test_patterns_overlap_if_some_name_matches_both(one: str, other: str) -> None:
    common = [
        name for name in ALL_NAMES if matches(one.replace("iris", "c"), name) and matches(other.replace("iris", "c"), name)
    ]
    assert overlaps(parse_pattern(one), parse_pattern(other)) == bool(common)


@given(PATTERNS, PATTERNS)
def test_a_part_of_a_pattern_is_more_specific(one: str, other: str) -> None:
    one, other = one.replace("iris", "c"), other.replace("iris", "c")
    assume(is_part(one, other))
    assert specificity(parse_pattern(one)) < specificity(parse_pattern(other))


@given(st.lists(PATTERNS, max_size=8), st.lists(NAMES, max_size=6))
def test_the_most_specific_rule_counts(patterns: list[str], names: list[str]) -> None:
    rules: list[Rule] = []
    for pattern in patterns:
        rule = Rule(len(rules), "cluster", pattern, pattern, ("eu",))
        if not find_clashes([*rules, rule]):
            rules.append(rule)
    table = RuleTable(rules)
    for name in [*names, *names]:  # the second time from memory
        matching = [] if name.startswith("iris.") else [rule for rule in rules if matches(rule.outside, name)]
        best = [
            rule
            for rule in matching
            if all(
                specificity(rule.outside_tokens) < specificity(other.outside_tokens) for other in matching if other is not rule
            )
        ]
        assert table.find(name) == (best[0] if best else None)
        assert len(best) == bool(matching), "one counts, or nothing matches"


@given(st.lists(st.tuples(PATTERNS, st.sets(st.sampled_from(["eu", "asia"]), min_size=1)), max_size=8))
def test_rules_clash_if_two_count_for_one_name(given_rules: list[tuple[str, set[str]]]) -> None:
    rules = [Rule(number, "topic", pattern, pattern, tuple(clouds)) for number, (pattern, clouds) in enumerate(given_rules)]
    clashing = {
        second.number
        for first in rules
        for second in rules[first.number + 1 :]
        if set(first.clouds) & set(second.clouds)
        and specificity(first.outside_tokens) == specificity(second.outside_tokens)
        and overlaps(first.outside_tokens, second.outside_tokens)
    }
    found = find_clashes(rules)
    assert {second.number for _first, second in found} == clashing
    assert len(found) == len(clashing), "each is told once"


@given(PATTERNS, st.data())
def test_each_name_on_one_side_is_one_name_on_the_other(outside: str, data: st.DataObject) -> None:
    wanted = [token for token in outside.split(".") if token in "*>"]
    literals = st.lists(TOKENS, max_size=2)
    parts = [token for wildcard in wanted for token in [*data.draw(literals), wildcard]]
    local = ".".join(parts if wanted[-1:] == [">"] else [*parts, *data.draw(literals)]) or "a"
    assume(not local.startswith("iris."))
    rule = Rule(0, "cluster", outside, local, ("eu",))
    name = data.draw(NAMES)
    found = expression(outside).fullmatch(name)
    taken = iter(found.groups() if found else ())
    expected = ".".join(next(taken) if token in "*>" else token for token in local.split(".")) if found else None
    if name.startswith("iris.") or (expected or "").startswith("iris."):
        expected = None
    assert rule.to_local(name) == expected
    if expected is not None:
        assert rule.to_outside(expected) == name


@given(st.lists(NAMES, max_size=30))
def test_the_memory_of_a_table_is_bounded(names: list[str]) -> None:
    table = RuleTable([Rule(0, "cluster", ">", ">", ("eu",))])
    for number, name in enumerate(names):
        for copy in range(100):
            table.find(f"{name}.{number}.{copy}")
    assert len(table._found) <= LOOKUPS_MAX
