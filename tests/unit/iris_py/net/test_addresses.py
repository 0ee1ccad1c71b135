"""The address that others are told to dial, for a node that listens on every interface or on one."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Self

import pytest

from iris_py.errors import ConfigurationError
from iris_py.net.addresses import advertised_addresses, parse_address, parse_advertised

if TYPE_CHECKING:
    from collections.abc import Callable

    Machine = Callable[[dict[int, str]], None]


class Probe:
    """A datagram socket of a machine that has a route to the rest of the world, by some families of addresses or none."""

    def __init__(self, family: int, routes: dict[int, str]) -> None:
        self.family = family
        self.routes = routes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None: ...

    def connect(self, address: tuple[str, int]) -> None:
        socket.inet_pton(self.family, address[0])
        if self.family not in self.routes:
            raise OSError(errno.ENETUNREACH, "Network is unreachable")

    def getsockname(self) -> tuple[object, ...]:
        rest = (0, 0) if self.family == socket.AF_INET6 else ()
        return (self.routes[self.family], 50_000, *rest)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Gives the machine its addresses towards the rest of the world, by family."""

    def set_routes(routes: dict[int, str]) -> None:
        monkeypatch.setattr("iris_py.net.addresses.socket.socket", lambda family, _kind: Probe(family, routes))

    return set_routes


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:4711"), ("10.0.0.1", "10.0.0.1:4711"), ("::1", "[::1]:4711")]
)
def test_an_address_of_one_interface_is_told_as_it_is(machine: Machine, host: str, text: str) -> None:
    machine({socket.AF_INET: "10.9.9.9", socket.AF_INET6: "2001:db8::9"})
    assert advertised_addresses(host, 4711) == (text,)


def test_for_every_interface_that_towards_the_rest_of_the_world_is_told(machine: Machine) -> None:
    machine({socket.AF_INET: "10.9.9.9", socket.AF_INET6: "2001:db8::9"})
    assert advertised_addresses("0.0.0.0", 4711) == ("10.9.9.9:4711",)
    assert advertised_addresses("::", 4711) == ("[2001:db8::9]:4711",)


def test_a_machine_without_a_route_is_reached_from_itself_alone(machine: Machine) -> None:
    machine({})
    assert advertised_addresses("0.0.0.0", 4711) == ("127.0.0.1:4711",)
    assert advertised_addresses("::", 4711) == ("[::1]:4711",)


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
def test_what_is_to_be_advertised_takes_the_place_of_what_is_listened_on(
    machine: Machine, advertise: list[str], told: tuple[str, ...]
) -> None:
    machine({socket.AF_INET: "10.9.9.9"})
    assert advertised_addresses("0.0.0.0", 4711, advertise) == told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.0.0.0:4711", "every address of a machine"),
        ("::", "every address of a machine"),
        ("239.1.2.3", "a group of machines"),
        ("[ff02::1]:4711", "a group of machines"),
        ("fe80::1", "something else on each machine"),
        ("[fe80::1%eth0]:4711", "something else on each machine"),
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
