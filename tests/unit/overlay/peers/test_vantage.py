"""The order in which the addresses of another node are tried."""

from __future__ import annotations

import ipaddress

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.vantage import SHOWN_MAX, Vantage, put_first

OWN = tuple(map(ipaddress.ip_interface, ("127.0.0.1/8", "10.0.0.5/24", "172.17.0.1/16", "fd00::5/64")))


def node(*addresses: str, number: int = 1) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), addresses)


@pytest.fixture
def vantage() -> Vantage:
    vantage = Vantage()
    vantage.settle(OWN, (4,))
    return vantage


def test_without_addresses_of_its_own_the_order_is_that_of_the_description() -> None:
    told = ("203.0.113.1:1", "name:1", "10.0.0.7:1", "[fd00::7]:1")
    assert Vantage().order(node(*told)) == list(told)


@pytest.mark.parametrize(
    ("told", "tried"),
    [
        (["203.0.113.1:1", "10.0.0.7:1"], ["10.0.0.7:1", "203.0.113.1:1"]),
        (["name:1", "10.0.0.7:1"], ["10.0.0.7:1", "name:1"]),
        (["203.0.113.1:1", "[fd00::7]:1"], ["[fd00::7]:1", "203.0.113.1:1"]),
        (["203.0.113.1:1", "198.51.100.1:1"], ["203.0.113.1:1", "198.51.100.1:1"]),
        (["203.0.113.1:1", "203.0.113.1:1"], ["203.0.113.1:1"]),
    ],
    ids=["a network of both", "a name", "IPv6", "equals keep their order", "repeated"],
)
def test_an_address_on_a_network_of_this_machine_comes_first(vantage: Vantage, told: list[str], tried: list[str]) -> None:
    assert vantage.order(node(*told)) == tried


def test_an_address_that_this_machine_has_too_comes_last(vantage: Vantage) -> None:
    assert vantage.order(node("172.17.0.1:9", "203.0.113.1:9")) == ["203.0.113.1:9", "172.17.0.1:9"]
    here = ("10.0.0.5:9", "172.17.0.1:9", "[fd00::5]:9")
    assert vantage.order(node(*here)) == list(here), "a process of this machine"


def test_an_address_of_a_family_that_this_machine_does_not_have_comes_last() -> None:
    vantage = Vantage()
    vantage.settle(OWN[:3], (4,))
    assert vantage.order(node("[2001:db8::1]:9", "172.17.0.1:9", "203.0.113.1:9")) == [
        "203.0.113.1:9",
        "172.17.0.1:9",
        "[2001:db8::1]:9",
    ]


def test_the_address_that_a_link_has_shown_to_be_right_comes_before_all(vantage: Vantage) -> None:
    vantage.link_opened(put_first(node("10.0.0.7:1", "198.51.100.1:1"), "198.51.100.1"))
    assert vantage.order(node("10.0.0.7:1", "198.51.100.1:1")) == ["198.51.100.1:1", "10.0.0.7:1"]
    assert vantage.order(node("10.0.0.7:1", "203.0.113.1:1")) == ["10.0.0.7:1", "203.0.113.1:1"], "it is told no more"


def test_the_addresses_that_links_have_shown_are_bounded(vantage: Vantage) -> None:
    for number in range(SHOWN_MAX + 1):
        vantage.link_opened(node("198.51.100.1:1", "10.0.0.7:1", number=number))
    orders = [vantage.order(node("10.0.0.7:1", "198.51.100.1:1", number=number))[0] for number in (0, 1, SHOWN_MAX)]
    assert orders == ["10.0.0.7:1", "198.51.100.1:1", "198.51.100.1:1"]


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        ((), None),
        (("name:1",), None),
        (("junk",), None),
        (("junk", "name:1", "192.0.2.7:9"), ("192.0.2.7", 9)),
        (("[2001:db8::1]:9", "192.0.2.7:9"), ("192.0.2.7", 9)),
        (("[2001:db8::1]:9",), None),
        (("203.0.113.1:9", "10.0.0.7:9"), ("10.0.0.7", 9)),
    ],
)
def test_datagrams_go_to_the_first_number_that_the_socket_can_send_to(
    vantage: Vantage, addresses: tuple[str, ...], expected: tuple[str, int] | None
) -> None:
    assert vantage.datagram_address(node(*addresses)) == expected


def test_datagrams_of_a_node_that_listens_on_both_families_go_to_either() -> None:
    assert Vantage().datagram_address(node("[2001:db8::1]:9", "192.0.2.7:9")) == ("2001:db8::1", 9)


@pytest.mark.parametrize(
    ("host", "first"),
    [("10.0.0.7", "10.0.0.7:2"), ("fd00::7", "[fd00::7]:3"), ("192.0.2.99", "203.0.113.1:1"), ("", "203.0.113.1:1")],
)
def test_the_address_that_something_came_from_is_put_first(host: str, first: str) -> None:
    told = ("203.0.113.1:1", "10.0.0.7:2", "[fd00::7]:3")
    found = put_first(node(*told), host)
    assert found.addresses == (first, *(each for each in told if each != first))
    assert put_first(node(told[0]), host) == node(told[0])
