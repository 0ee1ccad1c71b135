"""Rights: nothing is allowed that no rule allows."""

from __future__ import annotations

import msgspec
import pytest

from iris_py.doors.rights import CLUSTER_USES, RULES_MAX, TOPIC_USES, Grant, Rights, check_subject, fits_rules

ALL = Rights(
    request=("*",), survey=("*",), broadcast=("*",), publish=(">",), subscribe=(">",), observe=True, remote_errors=True
)


def test_without_rules_nothing_is_allowed() -> None:
    grant = Grant("ann", (Rights(),))
    assert not any(grant.allows_cluster(use, "quotes") for use in CLUSTER_USES)
    assert not any(grant.allows_topic(use, "news") for use in TOPIC_USES)
    assert not grant.observes
    assert not grant.sees_remote_errors


@pytest.mark.parametrize("use", CLUSTER_USES)
@pytest.mark.parametrize(
    ("rule", "allowed", "forbidden"),
    [
        ("quotes", "quotes", "quotes2"),
        ("quotes", "quotes", "quotes@eu"),
        ("db-*", "db-7", "adb-7"),
        ("*", "a/b", "a@eu"),
        ("*@eu", "quotes@eu", "quotes@us"),
        ("*@eu", "quotes@eu", "quotes"),
        ("a.b", "a.b", "aXb"),
        ("*", "anything", "iris.gateway"),
        ("*", "two\nlines", "iris.doors"),
    ],
)
def test_a_rule_for_clusters_allows_what_it_names(use: str, rule: str, allowed: str, forbidden: str) -> None:
    rights = msgspec.convert({use: [rule]}, Rights)
    rights.check()
    assert rights.allows_cluster(use, allowed, "ann")  # type: ignore[arg-type]
    assert not rights.allows_cluster(use, forbidden, "ann")  # type: ignore[arg-type]
    for other in set(CLUSTER_USES) - {use}:
        assert not rights.allows_cluster(other, allowed, "ann")


@pytest.mark.parametrize("use", TOPIC_USES)
@pytest.mark.parametrize(
    ("rule", "allowed", "forbidden"),
    [
        ("news.>", "news.a.b", "news"),
        ("news.*", "news.a", "news.a.b"),
        ("news.*", "news.*", "news.>"),
        (">", "news.>", "news.>@eu"),
        ("news.>@eu", "news.a@eu", "news.a"),
        ("news.>@eu", "news.*@eu", "news.*@us"),
        (">", "a", "iris.a"),
    ],
)
def test_a_rule_for_topics_allows_what_it_covers(use: str, rule: str, allowed: str, forbidden: str) -> None:
    rights = msgspec.convert({use: [rule]}, Rights)
    rights.check()
    assert rights.allows_topic(use, allowed, "ann")  # type: ignore[arg-type]
    assert not rights.allows_topic(use, forbidden, "ann")  # type: ignore[arg-type]


def test_the_subject_stands_in_rules() -> None:
    rights = Rights(subscribe=("notes.{sub}.>",), request=("home-{sub}",))
    rights.check()
    assert rights.allows_topic("subscribe", "notes.ann.new", "ann")
    assert not rights.allows_topic("subscribe", "notes.bob.new", "ann")
    assert rights.allows_cluster("request", "home-ann", "ann")
    assert not rights.allows_cluster("request", "home-bob", "ann")


@pytest.mark.parametrize("subject", ["a.b", "*", ">", "a@eu", "{sub}", "\0"])
def test_a_subject_that_would_widen_a_rule_gets_nothing_of_it(subject: str) -> None:
    rights = Rights(subscribe=("notes.{sub}.>", "news.>"), request=("home-{sub}",))
    assert not rights.allows_topic("subscribe", f"notes.{subject}.>", subject)
    assert not rights.allows_topic("subscribe", "notes.ann.new", subject)
    assert not rights.allows_cluster("request", "home-ann", subject)
    assert rights.allows_topic("subscribe", "news.a", subject)


def test_each_of_the_rights_of_a_grant_has_to_allow() -> None:
    narrow = Rights(request=("quotes",), observe=True)
    grant = Grant("ann", (ALL, narrow))
    assert grant.allows_cluster("request", "quotes")
    assert not grant.allows_cluster("request", "other")
    assert not grant.allows_topic("publish", "news")
    assert grant.observes
    assert not grant.sees_remote_errors


@pytest.mark.parametrize(
    ("use", "rule"),
    [
        ("request", ""),
        ("request", "iris.nodes"),
        ("request", "a@"),
        ("request", "a@*"),
        ("request", "a@b@c"),
        ("request", "{name}"),
        ("request", "a\0"),
        ("publish", "news..a"),
        ("publish", "news.a*"),
        ("subscribe", ">.a"),
        ("subscribe", "iris.>"),
        ("subscribe", "a.>@*"),
    ],
)
def test_wrong_rules_are_refused(use: str, rule: str) -> None:
    with pytest.raises(ValueError, match=use):
        msgspec.convert({use: [rule]}, Rights).check()


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(ValueError, match=f"{RULES_MAX} are allowed"):
        Rights(publish=tuple(f"a{number}" for number in range(RULES_MAX + 1))).check()


@pytest.mark.parametrize("subject", ["", "a\nb", "x" * 200])
def test_wrong_subjects_are_refused(subject: str) -> None:
    with pytest.raises(ValueError, match="a subject has"):
        check_subject(subject)


@pytest.mark.parametrize(("subject", "fits"), [("ann", True), ("ann-1 b", True), ("ann.b", False), ("*", False), ("a>", False)])
def test_a_subject_that_would_widen_a_rule_does_not_fit(subject: str, fits: bool) -> None:
    assert fits_rules(subject) is fits
    assert Rights(publish=("notes.{sub}",)).allows_topic("publish", f"notes.{subject}", subject) is fits
    assert Rights(publish=("notes.{sub}",)).names_subject
    assert not Rights(request=("quotes",), publish=("notes",)).names_subject
