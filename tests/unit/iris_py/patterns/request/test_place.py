"""Tests of iris_py/patterns/request/place.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo
from iris_py.patterns.request import place as module
from iris_py.patterns.request.place import Asking, Place
from iris_py.peers.peer import Peer

if TYPE_CHECKING:
    from iris_py.peers.group import Group


class NamedGroup:
    def __init__(self, name: str) -> None:
        self.name = name


GROUP = cast("Group", NamedGroup("work"))
ONE, TWO, THREE = (Peer(NodeInfo(NodeId(letter * 16), ()), None) for letter in (b"1", b"2", b"3"))


def ask(
    place: Place, peer: Peer, key: bytes = b"k", *, group: Group = GROUP, now: float = 0.0, time_left_s: float = 9.0
) -> bool:
    return place.ask(Asking(group, (peer, 1), key, now + time_left_s), now)


def granted(place: Place) -> list[Peer]:
    return [asking.caller[0] for asking in place.grant()]


def test_one_request_has_the_place_and_others_wait_in_their_order() -> None:
    place = Place()
    for peer, key in ((ONE, b"a"), (TWO, b"b"), (THREE, b"c")):
        assert ask(place, peer, key)
    for peer in (ONE, TWO, THREE):
        assert granted(place) == [peer]
        assert granted(place) == []
        assert place.give_back((peer, 1))
        assert not place.give_back((peer, 1))
    assert granted(place) == []


def test_callers_of_one_request_have_the_place_together() -> None:
    place = Place()
    ask(place, ONE, b"a")
    assert granted(place) == [ONE]
    ask(place, TWO, b"b")
    ask(place, THREE, b"a")
    assert granted(place) == [THREE], "before those that wait for longer: the request has the place"
    place.give_back((ONE, 1))
    assert granted(place) == []
    place.give_back((THREE, 1))
    assert granted(place) == [TWO]


def test_callers_of_one_request_that_wait_get_the_place_together() -> None:
    place = Place()
    for peer, key in ((ONE, b"a"), (TWO, b"b"), (THREE, b"b")):
        ask(place, peer, key)
    assert granted(place) == [ONE]
    place.give_back((ONE, 1))
    assert granted(place) == [TWO, THREE]


def test_who_gives_up_waiting_is_not_granted_it() -> None:
    place = Place()
    for peer, key in ((ONE, b"a"), (TWO, b"b"), (THREE, b"c")):
        ask(place, peer, key)
    place.grant()
    assert place.give_back((TWO, 1))
    place.give_back((ONE, 1))
    assert granted(place) == [THREE]


@pytest.mark.parametrize("end", ["lost", "late"])
def test_the_place_of_a_caller_that_is_gone_is_free(end: str) -> None:
    place = Place()
    ask(place, ONE, b"a", time_left_s=1.0)
    place.grant()
    now = 0.5 if end == "lost" else 1.0
    if end == "lost":
        ask(place, ONE, b"b")
        place.forget_peer(ONE)
    ask(place, TWO, b"c", now=now)
    assert granted(place) == [TWO]


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALLERS_MAX", 3)
    place = Place()
    assert ask(place, ONE, b"a")
    place.grant()
    assert [ask(place, peer, b"b") for peer in (TWO, THREE)] == [True, True]
    assert not place.ask(Asking(GROUP, (ONE, 2), b"a", 9.0), 0.0), "nor if the request has the place"
    place.give_back((TWO, 1))
    assert place.ask(Asking(GROUP, (ONE, 2), b"a", 9.0), 0.0)


def test_only_who_waits_is_owed_an_answer_and_turned_away() -> None:
    place = Place()
    other: Any = NamedGroup("other")
    ask(place, ONE, b"a")
    place.grant()
    ask(place, TWO, b"b")
    ask(place, THREE, b"c", group=other)
    assert [place.owes(peer) for peer in (ONE, TWO, THREE)] == [False, True, True]
    assert [asking.caller[0] for asking in place.turn_away("work")] == [TWO]
    assert [place.owes(peer) for peer in (ONE, TWO, THREE)] == [False, False, True]
    assert place.give_back((ONE, 1))
