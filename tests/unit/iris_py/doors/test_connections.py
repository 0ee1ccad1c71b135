"""Connections of a door, counted by address, and the addresses that proxies report."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from iris_py.doors.limits import ConnectionCounts, CountedConnection, find_client, is_within

PROXIES = ip_network("10.0.0.0/8")


def opened(counts: ConnectionCounts, address: str) -> CountedConnection:
    place = counts.open(address)
    assert isinstance(place, CountedConnection)
    return place


def test_an_address_has_a_bound_and_all_have() -> None:
    counts = ConnectionCounts(3, 2)
    one, two = opened(counts, "192.0.2.1"), opened(counts, "192.0.2.1")
    assert counts.open("192.0.2.1") == "address"
    opened(counts, "192.0.2.2")
    assert counts.open("192.0.2.3") == "connections"
    one.close()
    one.close()
    assert counts.total == 2
    opened(counts, "192.0.2.1")
    two.close()
    assert counts.total == 2


def test_strangers_have_a_bound_of_their_own() -> None:
    counts = ConnectionCounts(10, 5, PROXIES, strangers_max=2)
    behind, one = opened(counts, "10.0.0.1"), opened(counts, "192.0.2.1")
    assert counts.open("192.0.2.2") == counts.open("10.0.0.1") == "connections"
    behind.admit()
    behind.admit()
    opened(counts, "192.0.2.2").close()
    opened(counts, "192.0.2.3")
    assert counts.open("192.0.2.4") == "connections"
    one.close()
    one.admit()
    behind.close()
    assert (counts.strangers, counts.total) == (1, 1)
    counts.strangers_max = None
    for number in range(9):
        opened(counts, f"198.51.100.{number}")
    assert counts.open("192.0.2.4") == "connections"


def test_a_connection_with_a_token_counts_in_all_alone() -> None:
    counts = ConnectionCounts(3, 1)
    place = opened(counts, "192.0.2.1")
    place.admit()
    place.admit()
    other = opened(counts, "192.0.2.1")
    assert counts.open("192.0.2.1") == "address"
    place.close()
    place.admit()
    assert counts.open("192.0.2.1") == "address"
    other.close()
    assert counts.total == 0


def test_addresses_of_one_owner_count_together() -> None:
    counts = ConnectionCounts(9, 1)
    opened(counts, "2001:db8::1")
    assert counts.open("2001:db8::ffff") == "address"
    opened(counts, "2001:db8:0:1::1")
    opened(counts, "192.0.2.1")
    assert counts.open("::ffff:192.0.2.1") == "address"


def test_proxies_stand_for_many() -> None:
    counts = ConnectionCounts(3, 1, PROXIES)
    for _ in range(2):
        opened(counts, "10.1.2.3")
    opened(counts, "::ffff:10.1.2.3")
    assert counts.open("10.1.2.3") == "connections"


@pytest.mark.parametrize(
    ("headers", "client"),
    [
        ([], ("10.0.0.1", "")),
        ([("x-forwarded-for", "192.0.2.1")], ("192.0.2.1", "")),
        ([("x-forwarded-for", "6.6.6.6, 192.0.2.1")], ("192.0.2.1", "")),
        ([("x-forwarded-for", "6.6.6.6, 192.0.2.1, 10.0.0.9,10.2.2.2")], ("192.0.2.1", "")),
        ([("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "192.0.2.1")], ("192.0.2.1", "")),
        ([("x-forwarded-for", "10.0.0.7, 10.0.0.8")], ("10.0.0.7", "")),
        ([("x-forwarded-for", "[2001:DB8::1]")], ("2001:db8::1", "")),
        ([("x-forwarded-for", "192.0.2.1, unknown")], ("10.0.0.1", "")),
        ([("x-forwarded-for", "192.0.2.1, nonsense, 10.0.0.3")], ("10.0.0.3", "")),
        ([("x-forwarded-for", "")], ("10.0.0.1", "")),
        ([("x-forwarded-proto", "HTTPS")], ("10.0.0.1", "https")),
        ([("x-forwarded-proto", "http, https")], ("10.0.0.1", "https")),
        ([("x-forwarded-proto", "gopher")], ("10.0.0.1", "")),
        ([("forwarded", "for=192.0.2.1")], ("10.0.0.1", "")),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_proxy(headers: list[tuple[str, str]], client: tuple[str, str]) -> None:
    assert find_client("10.0.0.1", [(name.encode(), value.encode()) for name, value in headers], PROXIES) == client


def test_headers_of_others_do_not_count() -> None:
    headers = [(b"x-forwarded-for", b"192.0.2.1")]
    assert find_client("198.51.100.1", headers, PROXIES) is None
    assert find_client("10.0.0.1", headers, None) is None
    assert find_client("", headers, PROXIES) is None


def test_text_that_is_no_address_is_in_no_network() -> None:
    assert not is_within("localhost", PROXIES)
    assert not is_within("2001:db8::1", PROXIES)
    assert is_within("fe80::1%eth0", ip_network("fe80::/10"))
