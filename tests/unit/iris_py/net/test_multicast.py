"""Interfaces that beacons use, by what a machine has and what is listened on."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys

import pytest

from iris_py.net import multicast
from iris_py.net.interfaces import Interface
from iris_py.net.multicast import INTERFACES_MAX, SYSTEM, beacon_interfaces, group_addresses

GROUP = ("239.255.73.82", 14142)

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which interfaces there are")


class Machine:
    """The interfaces of a machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.interfaces: list[Interface] = []
        monkeypatch.setattr(multicast, "find_interfaces", lambda: tuple(self.interfaces))

    def add(self, index: int, name: str, *addresses: str, is_loopback: bool = False, has_multicast: bool = True) -> None:
        found = tuple(ipaddress.ip_interface(each) for each in addresses)
        self.interfaces.append(Interface(index, name, found, is_loopback=is_loopback, has_multicast=has_multicast))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(monkeypatch)
    machine.add(1, "lo", "127.0.0.1/8", "::1/128", is_loopback=True)
    machine.add(2, "eth0", "10.0.0.2/24", "2001:db8::2/64")
    machine.add(3, "eth1", "fe80::3/64")
    machine.add(5, "tunnel", "10.0.5.5/24", "2001:db8::5/64", has_multicast=False)
    machine.add(6, "docker0", "172.17.0.1/16")
    return machine


@linux
def test_every_address_means_every_interface_that_can(machine: Machine) -> None:
    assert beacon_interfaces(socket.AF_INET, ("0.0.0.0", 1)) == [2, 6]
    assert beacon_interfaces(socket.AF_INET6, ("::", 1, 0, 0)) == [2, 3]


@linux
def test_one_address_means_its_interface(machine: Machine) -> None:
    assert beacon_interfaces(socket.AF_INET, ("10.0.0.2", 1)) == [SYSTEM], "it is found by the address"
    assert beacon_interfaces(socket.AF_INET6, ("2001:db8::2", 1, 0, 0)) == [2]
    assert beacon_interfaces(socket.AF_INET6, ("fe80::3", 1, 0, 3)) == [3]
    assert beacon_interfaces(socket.AF_INET6, ("::1", 1, 0, 0)) == []


@linux
def test_where_no_interface_can_the_system_says_why(machine: Machine) -> None:
    del machine.interfaces[1:]
    assert beacon_interfaces(socket.AF_INET, ("0.0.0.0", 1)) == [SYSTEM]
    assert beacon_interfaces(socket.AF_INET6, ("::", 1, 0, 0)) == []


@linux
def test_a_machine_with_very_many_interfaces_uses_the_first(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(10, 60):
        machine.add(index, f"veth{index}", f"10.{index}.0.1/16")
    with caplog.at_level(logging.WARNING):
        assert len(beacon_interfaces(socket.AF_INET, ("0.0.0.0", 1))) == INTERFACES_MAX
    assert "through 16 of 52 interfaces. Listen on the address" in caplog.text


def test_a_group_is_sent_to_by_each_interface() -> None:
    assert group_addresses(socket.AF_INET, GROUP, [2, 6]) == [(GROUP, 2), (GROUP, 6)]
    assert group_addresses(socket.AF_INET6, ("ff12::1", 9), [2, 3]) == [(("ff12::1", 9, 0, 2), 2), (("ff12::1", 9, 0, 3), 3)]
