"""The texts of errors name their facts."""

from __future__ import annotations

import pytest

from iris_py.errors import (
    CloudUnavailable,
    IrisError,
    MemberLost,
    MessageTooLarge,
    NoMembers,
    NotExported,
    Overloaded,
    RemoteError,
    RequestTimeout,
    SlowSubscriber,
    TunnelBroken,
    TunnelClosed,
    add_surroundings,
)

MEMBER = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("nodes", "text"),
    [(0, "(no other node of the network is known)"), (1, "(1 other node known)"), (2, "(2 other nodes known)")],
)
def test_nobody_serves_a_cluster(nodes: int, text: str) -> None:
    error = NoMembers("them", nodes)
    assert (error.cluster, error.nodes, error.zone, error.elsewhere, error.without_tunnels) == ("them", nodes, "", 0, 0)
    assert f"nobody serves the cluster 'them' {text}. Start a member" in str(error)


@pytest.mark.parametrize(
    ("elsewhere", "text"),
    [(1, "(1 member in other zones, 3 other nodes known)"), (2, "(2 members in other zones, 3 other nodes known)")],
)
def test_nobody_serves_it_in_a_zone(elsewhere: int, text: str) -> None:
    error = NoMembers("them", 3, "eu", elsewhere)
    assert (error.zone, error.elsewhere) == ("eu", elsewhere)
    assert f"nobody in the zone 'eu' serves the cluster 'them' {text}" in str(error)


def test_nobody_serves_it_in_any_zone() -> None:
    assert str(NoMembers("them", 3, "eu", 0)) == str(NoMembers("them", 3))
    assert str(NoMembers("them", 3, "", 2)) == str(NoMembers("them", 3))


def test_nobody_serves_tunnels() -> None:
    error = NoMembers("them", 3, without_tunnels=2)
    assert error.without_tunnels == 2
    assert "no member of 'them' serves tunnels (2 asked; 3 other nodes known)" in str(error)


def test_what_may_be_the_reason_is_added() -> None:
    error = NoMembers("them", 0)
    assert error.surroundings == ""
    before = str(error)
    add_surroundings(error, {"a:1": "is silent", "b:2": "refuses"}, ["10.0.0.1", "10.0.0.2"], has_own_secret=False)
    assert str(error) == before + error.surroundings
    assert "at the seeds: a:1 is silent; b:2 refuses." in error.surroundings
    assert "were heard from 10.0.0.1, 10.0.0.2," in error.surroundings


def test_who_held_the_request_is_told() -> None:
    held, untaken = RequestTimeout("them", 1.5, MEMBER), RequestTimeout("them", 1.5, None)
    assert isinstance(held, TimeoutError)
    assert (held.cluster, held.timeout_s, held.member, held.from_handler) == ("them", 1.5, MEMBER, False)
    assert "within 1.5 s (member 01234567 held it)" in str(held)
    assert "within 1.5 s (no member took it)" in str(untaken)
    assert "member 01234567 of 'them'" in str(MemberLost("them", MEMBER))
    assert "at member 01234567 failed with ValueError: no" in str(RemoteError("them", MEMBER, "ValueError", "no"))


def test_a_handler_that_asks_its_own_cluster_is_told_so() -> None:
    errors: list[RequestTimeout | Overloaded] = [RequestTimeout("them", 1.0, None), Overloaded("them", 2)]
    for error in errors:
        before = str(error)
        error._note_own_place()
        assert error.from_handler
        assert str(error).startswith(before + " The caller is itself a handler of 'them'")


def test_a_cluster_or_a_topic_is_full() -> None:
    assert "all 2 tried members of 'them' are full" in str(Overloaded("them", 2))
    error = Overloaded(topic="news")
    assert (error.cluster, error.tried, error.topic) == ("", 0, "news")
    assert "nothing can be published to 'news'" in str(error)


@pytest.mark.parametrize(
    ("error", "texts"),
    [
        (MessageTooLarge(11, 10), ("a message of 11 bytes is over the limit of 10 at this node", "max_message_bytes")),
        (
            MessageTooLarge(11, 10, is_received=True),
            ("at least 11 bytes is over the limit of 10 and was skipped", "max_bytes="),
        ),
        (SlowSubscriber("news", "disconnect", 5, 6), ("'news' was too slow", "5 messages or 6 bytes", "disconnect")),
        (TunnelClosed("them", MEMBER), ("'them' to 01234567 was ended by the other side",)),
        (TunnelClosed("them", MEMBER, is_ours=True), ("'them' to 01234567 was ended by this side",)),
        (TunnelBroken("them", MEMBER, "it was cut"), ("'them' to 01234567 broke: it was cut. Data in transit",)),
        (TunnelBroken("them", MEMBER, "it was cut", "KeyError", "x"), ("broke: it was cut (KeyError: x). Data in transit",)),
    ],
)
def test_the_facts_are_in_the_text(error: IrisError, texts: tuple[str, ...]) -> None:
    for text in texts:
        assert text in str(error)


def test_errors_about_another_cloud_name_it() -> None:
    for error in (CloudUnavailable("d@eu"), NotExported("d@eu")):
        assert isinstance(error, NoMembers)
        assert (error.cloud, error.cluster, error.nodes, error.elsewhere, error.zone) == ("eu", "d@eu", 0, 0, "")
    assert "reaches the cloud 'eu'; nothing was sent to 'd@eu'" in str(CloudUnavailable("d@eu"))
    assert "the cloud 'eu' does not export 'd' to this cloud" in str(NotExported("d@eu"))
    assert "nobody serves the cluster 'd@eu' (according to the cloud 'eu')" in str(NoMembers("d@eu", 0))
    assert "the limit for 'd@eu' is reached" in str(Overloaded("d@eu", retry_after_s=0.5))
    assert "the limit for 't@eu' is reached" in str(Overloaded(topic="t@eu", retry_after_s=0.5))
    assert "(the gateway 01234567 held it)" in str(RequestTimeout("d@eu", 1.0, None, gateway=MEMBER))
    assert "the gateway 01234567 on the way to 'd@eu' was lost" in str(MemberLost("d@eu", "", gateway=MEMBER))
    assert "a gateway on the way to 'd@eu' was lost" in str(MemberLost("d@eu", ""))
    assert "the handler of 'd@eu' failed with KeyError: x" in str(RemoteError("d@eu", "", "KeyError", "x"))
    assert "over the limit of 10 on the way to 'd@eu'" in str(MessageTooLarge(11, 10, cluster="d@eu"))


@pytest.mark.parametrize(
    ("error", "has_own_secret", "says"),
    [
        (NoMembers("payroll", 3), False, "which this node lacks"),
        (NoMembers("payroll", 3), True, "may differ from the one of this node"),
        (NoMembers("payroll", 3), None, ""),  # not known
        (NoMembers("payroll", 0), False, ""),  # nobody is there at all
        (NoMembers("payroll", 3, "eu", 2), False, ""),
        (NoMembers("payroll", 3, without_tunnels=2), False, ""),
    ],
)
def test_a_secret_of_the_cluster_may_be_the_reason(error: NoMembers, has_own_secret: bool | None, says: str) -> None:
    add_surroundings(error, {}, [], has_own_secret=has_own_secret)
    assert says in error.surroundings
    assert bool(error.surroundings) == bool(says)
    assert str(error).endswith(error.surroundings)
