"""Addresses that were just dialled, and whatever leads to the same host."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from iris_py.net.resting_addresses import DIALS_MAX, REST_S, RESTING_MAX, AddressRestsError, RestingAddresses

A, B = ("192.0.2.1", 4711), ("192.0.2.2", 4711)


def may_begin(resting: RestingAddresses, address: tuple[str, int], now: float) -> bool:
    try:
        resting.begin(address, now)
    except AddressRestsError:
        return False
    return True


def test_an_address_is_dialled_twice_within_the_time_and_again_after_it() -> None:
    resting = RestingAddresses()
    assert [may_begin(resting, A, now) for now in (5.0, 5.25, 5.25, 5.9)] == [True, True, False, False]
    assert [may_begin(resting, A, now) for now in (6.0, 6.125, 6.25, 6.3)] == [True, False, True, False]


def test_no_second_has_more_dials_than_the_bound_whenever_they_come() -> None:
    resting, rng, now = RestingAddresses(), random.Random(1), 0.0
    begun = list[float]()
    for _ in range(10_000):
        now += rng.expovariate(20.0)
        if may_begin(resting, A, now):
            begun.append(now)
    assert all(later - earlier >= REST_S for earlier, later in zip(begun, begun[DIALS_MAX:], strict=False))
    assert len(begun) > now / REST_S, "the address does not rest for ever"


def test_other_hosts_and_ports_do_not_rest() -> None:
    resting = RestingAddresses()
    for address in (A, A, B, B, (A[0], 4712), (A[0], 4712)):
        assert may_begin(resting, address, 0.0)
    assert not may_begin(resting, B, 0.0)


@pytest.mark.parametrize(
    "hosts",
    [
        ("192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"),
        ("127.0.0.1", "127.0.0.2", "127.255.0.9", "0.0.0.0", "::ffff:127.0.0.3"),
        ("::1", "::", "0:0::1"),
        ("fe80::1%2", "fe80::1%eth0", "FE80::1", "fe80:0::1"),
        ("simulated", "simulated", "simulated"),
    ],
)
def test_what_surely_leads_to_one_host_rests_together(hosts: tuple[str, ...]) -> None:
    for first in hosts:
        for other in hosts:
            resting = RestingAddresses()
            begun = [may_begin(resting, (host, 7), 0.0) for host in (first, other, first, other)]
            assert begun == [True, True, False, False]


def test_what_is_remembered_is_bounded_and_beyond_it_everything_rests() -> None:
    resting = RestingAddresses()
    addresses = [(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7) for number in range(2 * RESTING_MAX)]
    assert sum(may_begin(resting, address, 0.0) for address in addresses) == len(resting) == RESTING_MAX
    assert may_begin(resting, addresses[0], 0.5), "an address that is remembered is known to be free"
    assert not may_begin(resting, addresses[-1], 0.5)
    assert may_begin(resting, addresses[-1], REST_S)
    assert len(resting) == 2, "what has rested is forgotten"


def test_attackers_with_many_addresses_do_not_make_room_for_more_dials_of_one() -> None:
    resting, begun = RestingAddresses(), defaultdict[tuple[str, int], int](int)
    for number in range(3 * RESTING_MAX):
        for address in (A, (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 7)):
            begun[address] += may_begin(resting, address, 0.0)
    assert begun[A] == DIALS_MAX
