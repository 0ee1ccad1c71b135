"""The address that others are told to dial, for a node that listens on every interface or on one."""

from __future__ import annotations

import pytest

from iris_overlay.node_info import ADDRESSES_MAX
from iris_py.errors import ConfigurationError
from iris_py.net.addresses import advertised_addresses, host_addresses, parse_address, parse_advertised
from tests.unit.iris_py.net.machines import MadeUpMachine, interface

DEFAULT = "0.0.0.0/0"
IPV6_DEFAULT = "::/0"


def test_a_machine_with_one_network_tells_its_address_there_with_and_without_a_default_route() -> None:
    eth0 = interface("eth0", "10.78.0.2/24", "fd77::2/64", "fe80::2/64")
    for routes in ({}, {DEFAULT: "10.78.0.2", IPV6_DEFAULT: "fd77::2"}):
        machine = MadeUpMachine(eth0, routes=routes)
        assert host_addresses(machine, (4,)) == ("10.78.0.2",)
        assert host_addresses(machine, (6,)) == ("fd77::2",)
        assert host_addresses(machine, (6, 4)) == ("fd77::2", "10.78.0.2")


def test_the_address_towards_the_rest_of_the_world_comes_first_and_that_towards_seeds_before_it() -> None:
    machine = MadeUpMachine(
        interface("docker0", "172.17.0.1/16"),
        interface("eth0", "203.0.113.5/24"),
        interface("eth1", "10.1.0.5/24"),
        routes={"10.2.0.0/16": "10.1.0.5", DEFAULT: "203.0.113.5"},
    )
    assert host_addresses(machine, (4,)) == ("203.0.113.5", "172.17.0.1", "10.1.0.5")
    assert host_addresses(machine, (4,), ["10.2.0.9"]) == ("10.1.0.5", "203.0.113.5", "172.17.0.1")
    assert host_addresses(machine, (4,), ["10.1.0.9", "fd00::1"]) == ("10.1.0.5", "203.0.113.5", "172.17.0.1")
    assert host_addresses(machine, (4,), ["127.0.0.1"]) == ("203.0.113.5", "172.17.0.1", "10.1.0.5")


def test_loopback_and_addresses_that_mean_something_else_elsewhere_are_never_told() -> None:
    assert host_addresses(MadeUpMachine(), (6, 4)) == ()
    assert host_addresses(MadeUpMachine(), (4,), ["127.0.0.1"]) == ()
    assert host_addresses(MadeUpMachine(interface("eth0", "fe80::2/64")), (6, 4)) == ()


def test_an_interface_without_a_carrier_is_told_only_if_there_is_no_other() -> None:
    docker0 = interface("docker0", "172.17.0.1/16", is_running=False)
    assert host_addresses(MadeUpMachine(docker0, interface("eth0", "10.0.0.5/24")), (4,)) == ("10.0.0.5",)
    assert host_addresses(MadeUpMachine(docker0), (4,)) == ("172.17.0.1",)


def test_of_each_interface_one_address_of_a_family_is_told() -> None:
    machine = MadeUpMachine(interface("eth0", "2001:db8:1::5/64", "fd00::5/64", "fe80::5/64"))
    assert host_addresses(machine, (6,)) == ("2001:db8:1::5",)


def test_in_place_of_a_temporary_address_the_one_that_stays_is_told() -> None:
    machine = MadeUpMachine(
        interface("eth0", "2001:db8:1::5/64"), routes={IPV6_DEFAULT: "2001:db8:1::dead:beef", DEFAULT: "10.0.0.9"}
    )
    assert host_addresses(machine, (6,)) == ("2001:db8:1::5",)
    assert host_addresses(machine, (4,)) == ("10.0.0.9",), "of IPv4 a route may say which one to use"


def test_no_more_addresses_are_told_than_others_take() -> None:
    machine = MadeUpMachine(*(interface(f"br{number}", f"172.{number}.0.1/16") for number in range(16, 32)))
    assert len(host_addresses(machine, (4,))) == ADDRESSES_MAX
    told = [f"10.0.0.{number}:1" for number in range(20)]
    assert advertised_addresses(told, 1, ["203.0.113.5", "listen"]) == ("203.0.113.5:1", *told[: ADDRESSES_MAX - 1])


def test_the_longest_name_and_the_largest_port_are_addresses() -> None:
    host = "a" * 253
    assert parse_address(f"{host}:65535") == (host, 65_535)
    assert parse_address("a:0") == ("a", 0)
    assert parse_address("a:1", port_min=1) == ("a", 1)


@pytest.mark.parametrize(
    ("advertise", "told"),
    [
        (["203.0.113.5"], ("203.0.113.5:4711",)),
        (["203.0.113.5:80", "db.example.org"], ("203.0.113.5:80", "db.example.org:4711")),
        (
            ["2001:db8::5", "[2001:db8::6]", "[2001:db8::7]:80"],
            ("[2001:db8::5]:4711", "[2001:db8::6]:4711", "[2001:db8::7]:80"),
        ),
        (["203.0.113.5", "listen"], ("203.0.113.5:4711", "10.9.9.9:4711")),
        (["listen", "10.9.9.9", "10.9.9.9:4711"], ("10.9.9.9:4711",)),
    ],
)
def test_what_is_to_be_advertised_takes_the_place_of_what_is_listened_on(advertise: list[str], told: tuple[str, ...]) -> None:
    assert advertised_addresses(["10.9.9.9:4711"], 4711, advertise) == told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0.0.0:4711", "every address of a machine"),
        ("::", "every address of a machine"),
        ("239.1.2.3", "a group of machines"),
        ("[ff02::1]:4711", "a group of machines"),
        ("fe80::1", "a different host on each machine"),
        ("[fe80::1%eth0]:4711", "a different host on each machine"),
        ("bücher.example:4711", "xn--"),
        ("db:0", "1 to 65535"),
        ("db:", "1 to 65535"),
        ("a b", "no valid host"),
        ("", "not host:port"),
    ],
)
def test_what_nobody_can_dial_is_not_advertised(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_advertised(text, "IRIS_ADVERTISE")
    assert words in str(caught.value)
    assert str(caught.value).startswith("IRIS_ADVERTISE")
