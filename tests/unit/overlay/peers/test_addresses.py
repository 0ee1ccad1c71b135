"""Addresses as nodes tell them: which are some, which can be dialled, which are numbers."""

from __future__ import annotations

import ipaddress

import pytest

from iris_overlay.errors import AddressError
from iris_overlay.peers.addresses import canonical_address, is_dialable, numeric_address, parse_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("a:1", ("a", 1)),
        ("192.0.2.1:65535", ("192.0.2.1", 65535)),
        ("[::1]:7", ("::1", 7)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:-1",
        "a:+1",
        "a: 1",
        "::1:7",
        "[::1:7",
        "::1]:7",
        "[]:7",
        "a:" + "9" * 5000,
        "a:0000065536",  # the first digits alone would be a port
        "a:0000099999",
        "a:\u0661",
        "h" * 300 + ":1",
    ],
)
def test_no_addresses(address: str) -> None:
    with pytest.raises(AddressError):
        parse_address(address)
    assert not is_dialable(address)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.7:9", (ipaddress.ip_address("192.0.2.7"), 9)),
        ("[2001:db8::1]:9", (ipaddress.ip_address("2001:db8::1"), 9)),
        ("name:9", None),
        ("192.0.2.7", None),
        ("192.0.2.7:0", None),
        ("[name]:9", None),
    ],
)
def test_numeric_addresses(address: str, expected: object) -> None:
    assert numeric_address(address) == expected


@pytest.mark.parametrize(
    ("spellings", "canonical"),
    [
        (
            ("localhost:7", "LOCALHOST:7", "LocalHost.:7", "localhost:07", "\u2113ocalhost:7", "\uff4cocalhost:00007"),
            "localhost:7",
        ),
        (("db\u00fccher.example:7", "DB\u00dcCHER.example.:7", "xn--dbcher-4ya.example:7"), "xn--dbcher-4ya.example:7"),
        (("192.0.2.1:7", "[::ffff:192.0.2.1]:7", "[::FFFF:c000:201]:7", "[192.0.2.1]:7"), "192.0.2.1:7"),
        (("[2001:db8::1]:7", "[2001:DB8:0:0:0:0:0:1]:7", "[2001:db8::0001]:07"), "[2001:db8::1]:7"),
    ],
)
def test_an_address_has_one_spelling(spellings: tuple[str, ...], canonical: str) -> None:
    assert [canonical_address(each) for each in spellings] == [canonical] * len(spellings)
    assert canonical_address(canonical) == canonical


@pytest.mark.parametrize(
    "host",
    ["127.1", "127.0.0.01", "0177.0.0.1", "2130706433", "0x7f000001", "0X7F.1", "127.0.0.1.", "a.1", ".", "a..", "\ud800"],
)
def test_further_spellings_of_ipv4_and_what_is_no_name_are_not_dialled(host: str) -> None:
    assert canonical_address(f"{host}:7") is None
