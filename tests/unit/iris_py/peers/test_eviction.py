"""Connections by the host they come from: which of them makes room."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.peers.eviction import Crowd, network_of

if TYPE_CHECKING:
    from iris_py.link.link import Link


class FakeLink:
    """A connection."""

    def __init__(self, *, has_spoken: bool) -> None:
        self.proofs = self
        self.generations = {b"generation"} if has_spoken else set()


def link(*, has_spoken: bool = False) -> Link:
    return cast("Link", FakeLink(has_spoken=has_spoken))


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("node", "node"),
        ("", ""),
    ],
)
def test_a_host_counts_once_however_many_addresses_it_has(address: str, network: str) -> None:
    assert network_of(address) == network


def test_the_address_with_the_most_makes_room_whoever_came_first() -> None:
    strangers = Crowd(random.Random(1))
    honest = link()
    strangers.add(honest, "198.51.100.7")
    for _ in range(3):
        strangers.add(link(), "192.0.2.1")
    for _ in range(2):
        chosen = strangers.choose()
        assert chosen is not honest
        strangers.discard(chosen)
    assert len(strangers) == 2


def test_of_addresses_with_as_many_each_has_the_same_chance() -> None:
    chosen: Counter[str] = Counter()
    for seed in range(600):
        strangers = Crowd(random.Random(seed))
        links = {name: link() for name in ("192.0.2.1", "192.0.2.2", "192.0.2.3")}
        for name, each in links.items():
            strangers.add(each, name)
        picked = strangers.choose()
        chosen[next(name for name, each in links.items() if each is picked)] += 1
    assert min(chosen.values()) > 150


def test_of_one_address_those_go_first_that_have_shown_nothing() -> None:
    strangers = Crowd(random.Random(1))
    honest = [link(has_spoken=True) for _ in range(10)]
    for each in [*honest, *(link() for _ in range(90))]:
        strangers.add(each, "192.0.2.1")
    for _ in range(80):
        strangers.discard(strangers.choose())
    assert [each for each in honest if each in strangers._networks] == honest


@pytest.mark.parametrize("has_spoken", [False, True])
def test_of_one_address_any_connection_may_go(has_spoken: bool) -> None:
    picked = set()
    for seed in range(100):
        strangers = Crowd(random.Random(seed))
        links = [link(has_spoken=has_spoken) for _ in range(4)]
        for each in links:
            strangers.add(each, "192.0.2.1")
        picked.add(links.index(strangers.choose()))
    assert picked == {0, 1, 2, 3}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60), st.integers(0, 100))
def test_the_counts_are_exact_whatever_comes_and_goes(steps: list[tuple[bool, int]], seed: int) -> None:
    strangers = Crowd(random.Random(seed))
    there: list[tuple[int, Link]] = []
    for is_new, number in steps:
        if is_new:
            there.append((number, link()))
            strangers.add(there[-1][1], f"192.0.2.{number}")
        elif there:
            strangers.discard(there.pop(number % len(there))[1])
            strangers.discard(link())  # one that is none
        assert len(strangers) == len(there)
        if there:
            counts = Counter(number for number, _link in there)
            chosen = strangers.choose()
            (owner,) = [number for number, each in there if each is chosen]
            assert counts[owner] == max(counts.values())
