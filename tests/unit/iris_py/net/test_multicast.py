"""Interfaces that beacons use, by what a machine has and what is listened on."""

from __future__ import annotations

import logging
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from iris_py.net import multicast
from iris_py.net.multicast import INTERFACES_MAX, SYSTEM, beacon_interfaces, group_addresses

if TYPE_CHECKING:
    from pathlib import Path

UP, LOOPBACK, MULTICAST = 0x1, 0x8, 0x1000
GROUP = ("239.255.73.82", 14142)

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which interfaces there are")


class Machine:
    """The interfaces of a machine: names, flags, and whether each has an address of IPv4."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.interfaces: dict[int, tuple[str, int, bool]] = {}
        self._addresses = tmp_path / "if_inet6"
        monkeypatch.setattr(socket, "if_nameindex", lambda: [(index, name) for index, (name, *_) in self.interfaces.items()])
        monkeypatch.setattr(multicast, "_IPV6_ADDRESSES", self._addresses)
        monkeypatch.setattr("fcntl.ioctl", self._ioctl)

    def add(self, index: int, name: str, flags: int = UP | MULTICAST, *, ipv4: bool = True, ipv6: str = "") -> None:
        self.interfaces[index] = (name, flags, ipv4)
        if ipv6:
            with self._addresses.open("a") as file:
                file.write(f"{socket.inet_pton(socket.AF_INET6, ipv6).hex()} {index:02x} 40 00 80 {name:>8}\n")

    def _ioctl(self, _sock: socket.socket, number: int, request: bytes) -> bytes:
        wanted = request[:16].rstrip(b"\0").decode()
        ((_, flags, has_ipv4),) = (each for each in self.interfaces.values() if each[0] == wanted)
        if number == multicast._GET_ADDRESS and not has_ipv4:
            raise OSError("no address")
        return request[:16] + flags.to_bytes(2, sys.byteorder) + bytes(14)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    machine = Machine(monkeypatch, tmp_path)
    machine.add(1, "lo", UP | LOOPBACK, ipv6="::1")
    machine.add(2, "eth0", ipv6="2001:db8::2")
    machine.add(3, "eth1", ipv4=False, ipv6="fe80::3")
    machine.add(4, "down", MULTICAST, ipv6="2001:db8::4")
    machine.add(5, "tunnel", UP, ipv6="2001:db8::5")
    machine.add(6, "docker0")
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
    machine.interfaces.clear()
    machine.add(1, "lo", UP | LOOPBACK)
    assert beacon_interfaces(socket.AF_INET, ("0.0.0.0", 1)) == [SYSTEM]
    assert beacon_interfaces(socket.AF_INET6, ("::", 1, 0, 0)) == []


@linux
def test_a_machine_with_very_many_interfaces_uses_the_first(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    for index in range(10, 60):
        machine.add(index, f"veth{index}")
    with caplog.at_level(logging.WARNING):
        assert len(beacon_interfaces(socket.AF_INET, ("0.0.0.0", 1))) == INTERFACES_MAX
    assert "through 16 of 52 interfaces. Listen on the address" in caplog.text


def test_a_group_is_sent_to_by_each_interface() -> None:
    assert group_addresses(socket.AF_INET, GROUP, [2, 6]) == [(GROUP, 2), (GROUP, 6)]
    assert group_addresses(socket.AF_INET6, ("ff12::1", 9), [2, 3]) == [(("ff12::1", 9, 0, 2), 2), (("ff12::1", 9, 0, 3), 3)]
