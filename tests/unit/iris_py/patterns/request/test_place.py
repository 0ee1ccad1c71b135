"""Tests of iris_py/patterns/request/place.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request import place as module
from iris_py.patterns.request.place import Asking, Place
from iris_py.peers.peer import Peer

if TYPE_CHECKING:
    from iris_py.patterns.request.deduplication import Caller
    from iris_py.peers.group import Group


class NamedGroup:
    def __init__(self, name: str) -> None:
        self.name = name


GROUP = cast("Group", NamedGroup("work"))
ONE, TWO, THREE = (Peer(NodeInfo(NodeId(letter * 16), ()), None) for letter in (b"1", b"2", b"3"))


def ask(
    place: Place, peer: Peer, key: bytes = b"k", *, group: Group = GROUP, now: float = 0.0, time_left_s: float = 9.0
) -> bool:
    return place.ask(Asking(group, (peer, 1), key, now + time_left_s), now) is None


def granted(place: Place, now: float = 0.0) -> list[Peer]:
    return [asking.caller[0] for asking in place.grant(now)]


def refused(place: Place, peer: Peer, number: int, key: bytes, *, now: float = 0.0) -> Caller | None:
    """Ask under a number; returns the caller that has to make room."""
    asking = place.ask(Asking(GROUP, (peer, number), key, now + 9.0), now)
    return None if asking is None else asking.caller


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
    place.grant(0.0)
    assert place.give_back((TWO, 1))
    place.give_back((ONE, 1))
    assert granted(place) == [THREE]


@pytest.mark.parametrize("end", ["lost", "late"])
def test_the_place_of_a_caller_that_is_gone_is_free(end: str) -> None:
    place = Place()
    ask(place, ONE, b"a", time_left_s=1.0)
    place.grant(0.0)
    now = 0.5 if end == "lost" else 1.0
    if end == "lost":
        ask(place, ONE, b"b")
        place.forget_peer(ONE)
    ask(place, TWO, b"c", now=now)
    assert granted(place) == [TWO]


def test_the_place_is_granted_when_the_time_of_its_caller_ends() -> None:
    """Nobody has to ask for it, and callers whose own time is over are passed over."""
    place = Place()
    ask(place, ONE, b"a", time_left_s=2.0)
    place.grant(0.0)
    ask(place, TWO, b"b", time_left_s=1.0)
    ask(place, THREE, b"c")
    assert place.deadline() == 1.0
    assert granted(place, 1.0) == []
    assert place.deadline() == 2.0
    assert granted(place, 2.0) == [THREE]
    assert not place.owes(TWO)
    assert place.give_back((THREE, 1))
    assert place.deadline() is None


def test_no_caller_has_the_place_for_longer_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do callers of one request that come one after another, each before the time of the last one ends."""
    monkeypatch.setattr(module, "HELD_S_MAX", 10.0)
    place = Place()
    ask(place, ONE, b"a", time_left_s=1e6)
    assert granted(place, 1.0) == [ONE]
    ask(place, TWO, b"b", now=2.0, time_left_s=1e6)
    assert refused(place, ONE, 2, b"a", now=10.5) is None
    assert granted(place, 10.5) == [ONE]
    assert place.deadline() == 11.0
    assert refused(place, ONE, 3, b"a", now=11.0) is None
    assert granted(place, 11.0) == [TWO]
    assert granted(place, 20.0) == []
    assert granted(place, 21.0) == [], "the time of the caller that waited is over, too"


def test_peers_have_the_place_in_turns() -> None:
    """A peer that asks for many requests has the place for one of them, then the others have it."""
    place = Place()
    for number in range(5):
        refused(place, ONE, number, b"%d" % number)
    assert granted(place) == [ONE]
    for peer in (TWO, THREE):
        refused(place, peer, 0, b"of %d" % peer.id[0])
    turns = []
    for caller in ((ONE, 0), (TWO, 0), (THREE, 0), (ONE, 1), (ONE, 2), (ONE, 3)):
        assert place.give_back(caller)
        turns += [asking.caller for asking in place.grant(0.0)]
    assert turns == [(TWO, 0), (THREE, 0), (ONE, 1), (ONE, 2), (ONE, 3), (ONE, 4)]


def test_the_peer_with_the_most_waiting_callers_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CALLERS_MAX", 4)
    place = Place()
    assert [refused(place, ONE, number, b"%d" % number) for number in range(5)] == [None] * 4 + [(ONE, 4)]
    assert refused(place, TWO, 0, b"o") == (ONE, 3)
    assert refused(place, TWO, 1, b"p") == (ONE, 2)
    assert refused(place, TWO, 2, b"q") == (TWO, 2), "of two with as many the one that asks"
    assert refused(place, THREE, 0, b"r") in {(ONE, 1), (TWO, 1)}
    place.grant(0.0)
    assert refused(place, THREE, 1, b"0") is not None, "callers that have the place are counted, too"


def test_callers_of_one_request_beyond_the_bound_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HOLDERS_MAX", 2)
    place = Place()
    for peer in (ONE, TWO, THREE):
        ask(place, peer, b"a")
    assert granted(place) == [ONE, TWO]
    assert granted(place) == []
    place.give_back((ONE, 1))
    assert granted(place) == [THREE]


def test_a_caller_that_asks_twice_under_one_number_has_one_place() -> None:
    """Only a liar does. The last of both counts, so the place is granted to another caller when its time ends."""
    place = Place()
    ask(place, ONE, b"a")
    assert granted(place) == [ONE]
    ask(place, TWO, b"b", time_left_s=99.0)
    ask(place, ONE, b"b", time_left_s=20.0)
    assert granted(place) == [TWO, ONE]
    assert place.give_back((ONE, 1))
    assert not place.give_back((ONE, 1))
    assert place.deadline() == 99.0


def test_only_who_waits_is_owed_an_answer_and_turned_away() -> None:
    place = Place()
    other: Any = NamedGroup("other")
    ask(place, ONE, b"a")
    place.grant(0.0)
    ask(place, TWO, b"b")
    ask(place, THREE, b"c", group=other)
    assert [place.owes(peer) for peer in (ONE, TWO, THREE)] == [False, True, True]
    assert [asking.caller[0] for asking in place.turn_away("work")] == [TWO]
    assert [place.owes(peer) for peer in (ONE, TWO, THREE)] == [False, False, True]
    assert place.give_back((ONE, 1))
