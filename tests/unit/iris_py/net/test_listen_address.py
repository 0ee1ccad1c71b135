"""The place that a node listens at: what others are told, what leads back to the node itself, and names looked up."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.errors import ConfigurationError
from iris_py.net.listen_address import ListenAddress, resolve, settle_place
from tests.unit.iris_py.net.machines import MadeUpMachine, interface

if TYPE_CHECKING:
    from iris_py.net.interfaces import Machine

PORT = 4711
ONE = MadeUpMachine(interface("eth0", "10.78.0.2/24", "fd77::2/64"))
TWO = MadeUpMachine(interface("eth0", "203.0.113.5/24"), interface("eth1", "10.1.0.5/24"), routes={"0.0.0.0/0": "203.0.113.5"})
NONE = MadeUpMachine()


def settle(host: str, machine: Machine | None = ONE, **values: Any) -> ListenAddress:
    return asyncio.run(settle_place(host, PORT, machine=machine, **values))


@pytest.mark.parametrize(
    ("host", "text"), [("127.0.0.1", "127.0.0.1:4711"), ("10.0.0.1", "10.0.0.1:4711"), ("::1", "[::1]:4711")]
)
def test_an_address_of_one_interface_is_told_as_it_is(host: str, text: str) -> None:
    place = settle(host)
    assert (place.address, place.told) == (text, (text,))
    assert place.own == {(host, PORT)}
    assert place.families == {6 if ":" in host else 4}
    assert bool(place.networks) == (host == "10.0.0.1")


def test_for_every_interface_their_addresses_are_told() -> None:
    assert settle("0.0.0.0").told == ("10.78.0.2:4711",)
    assert settle("::").told == ("[fd77::2]:4711", "10.78.0.2:4711")
    assert settle("0.0.0.0", TWO).told == ("203.0.113.5:4711", "10.1.0.5:4711")
    assert settle("0.0.0.0").families == {4}
    assert settle("::").families == {4, 6}


def test_a_dial_passes_over_every_address_of_the_machine() -> None:
    own = settle("0.0.0.0", TWO).own
    assert {(host, PORT) for host in ("203.0.113.5", "10.1.0.5", "127.0.0.1", "127.0.1.1")} <= own
    assert not any(":" in host for host, _ in own), "there nobody of this node listens"
    assert {("fd77::2", PORT), ("::1", PORT), ("10.78.0.2", PORT), ("127.0.0.1", PORT)} <= settle("::").own


def test_the_address_that_leads_to_the_seeds_is_told_first() -> None:
    assert settle("0.0.0.0", TWO, seeds=["10.1.0.9:4711"]).told == ("10.1.0.5:4711", "203.0.113.5:4711")
    assert settle("0.0.0.0", TWO, seeds=["198.51.100.1:1"]).told == ("203.0.113.5:4711", "10.1.0.5:4711")


def test_seeds_with_names_are_looked_up_and_unknown_ones_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(_loop: object, host: str, *_arguments: object, **_values: object) -> list[tuple[object, ...]]:
        if host != "db1.example.org":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.0.9", 0))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    seeds = ["gone.example.org:4711", "db1.example.org:4711"]
    assert settle("0.0.0.0", TWO, seeds=seeds).told == ("10.1.0.5:4711", "203.0.113.5:4711")
    with pytest.raises(ConfigurationError):
        settle("0.0.0.0", NONE, seeds=["gone.example.org:4711"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
@pytest.mark.parametrize("seeds", [[], ["10.1.0.9:4711"], ["127.0.0.1:4711", "10.1.0.9:4711"]])
@pytest.mark.parametrize("machine", [NONE, None], ids=["nothing but loopback", "a machine that tells nothing"])
def test_where_no_address_can_be_known_that_is_an_error(host: str, seeds: list[str], machine: Machine | None) -> None:
    with pytest.raises(ConfigurationError, match="only loopback addresses") as caught:
        settle(host, machine, seeds=seeds)
    assert f"{host}]:4711" in str(caught.value) or f"{host}:4711" in str(caught.value)
    with pytest.raises(ConfigurationError):
        settle(host, machine, seeds=seeds, advertise=["203.0.113.5", "listen"])


def test_loopback_is_told_where_all_seeds_are_there() -> None:
    assert settle("0.0.0.0", NONE, seeds=["127.0.0.1:4711"]).told == ("127.0.0.1:4711",)
    assert settle("::", NONE, seeds=["[::1]:1", "localhost:1"]).told == ("[::1]:4711", "127.0.0.1:4711")
    assert settle("0.0.0.0", ONE, seeds=["127.0.0.1:4711"]).told == ("10.78.0.2:4711",), "others may come, too"


def test_what_is_advertised_takes_the_place_of_what_is_listened_on() -> None:
    assert settle("0.0.0.0", TWO, advertise=["198.51.100.1:1", "listen"]).told == (
        "198.51.100.1:1",
        "203.0.113.5:4711",
        "10.1.0.5:4711",
    )
    place = settle("0.0.0.0", NONE, advertise=["198.51.100.1"])
    assert place.told == ("198.51.100.1:4711",)
    assert place.address == "127.0.0.1:4711", "programs of this machine dial that"


def test_a_number_is_not_looked_up() -> None:
    assert asyncio.run(resolve("127.0.0.1", 0.0)) == ("127.0.0.1",)
    assert asyncio.run(resolve("2001:DB8::1", 0.0)) == ("2001:db8::1",)


def test_a_name_of_this_machine_is_known() -> None:
    assert set(asyncio.run(resolve("localhost", 60.0))) <= {"127.0.0.1", "::1"}


def test_what_is_no_name_has_no_address() -> None:
    assert asyncio.run(resolve("a" * 300, 60.0)) == ()


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(*_arguments: object, **_values: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    assert asyncio.run(resolve("db1.example.org", 0.01)) == ()
