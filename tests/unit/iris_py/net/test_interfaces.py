"""The interfaces of a machine, as Linux tells them."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
import sys
from typing import TYPE_CHECKING

import pytest

from iris_py.net import interfaces
from iris_py.net.interfaces import ThisMachine, find_interfaces

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells which interfaces there are")

UP, LOOPBACK, RUNNING, MULTICAST = 0x1, 0x8, 0x40, 0x1000
HEADING = "Inter-|   Receive\n face |bytes\n"


class Kernel:
    """A kernel that tells of interfaces that are made up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.directory = tmp_path
        self._found: dict[str, tuple[int, int, str]] = {}
        (tmp_path / "dev").write_text(HEADING)
        monkeypatch.setattr(interfaces, "_PROC", tmp_path)
        monkeypatch.setattr(fcntl, "ioctl", self._ioctl)

    def add(self, index: int, name: str, flags: int, ipv4: str = "", *ipv6: tuple[str, int]) -> None:
        self._found[name] = (index, flags, ipv4)
        with (self.directory / "dev").open("a") as file:
            file.write(f"{name:>6}: 1 2 3\n")
        with (self.directory / "if_inet6").open("a") as file:
            for address, address_flags in ipv6:
                found = ipaddress.IPv6Interface(address)
                bits = found.network.prefixlen
                file.write(f"{found.ip.packed.hex()} {index:02x} {bits:02x} 00 {address_flags:02x} {name:>8}\n")

    def _ioctl(self, _sock: socket.socket, number: int, request: bytes) -> bytes:
        name = request[:16].rstrip(b"\0").decode()
        if name not in self._found:
            raise OSError("no such device")
        index, flags, ipv4 = self._found[name]
        if number in (interfaces._GET_ADDRESS, interfaces._GET_NETMASK):
            if not ipv4:
                raise OSError("no address")
            found = ipaddress.IPv4Interface(ipv4)
            wanted = found.ip if number == interfaces._GET_ADDRESS else found.network.netmask
            return request[:16] + struct.pack("=HH", socket.AF_INET, 0) + wanted.packed + bytes(16)
        value = {interfaces._GET_FLAGS: flags, interfaces._GET_INDEX: index, interfaces._GET_MTU: 1400}[number]
        return request[:16] + value.to_bytes(4, sys.byteorder) + bytes(20)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kernel:
    return Kernel(monkeypatch, tmp_path)


def test_interfaces_that_are_up_are_told_with_their_networks(kernel: Kernel) -> None:
    kernel.add(3, "eth0", UP | RUNNING | MULTICAST, "10.0.0.5/24", ("fe80::5/64", 0x80), ("2001:db8:1::5/64", 0x80))
    kernel.add(1, "lo", UP | RUNNING | LOOPBACK, "127.0.0.1/8", ("::1/128", 0x80))
    kernel.add(4, "docker0", UP | MULTICAST, "172.17.0.1/16")
    kernel.add(5, "down", MULTICAST, "192.168.9.1/24")
    lo, eth0, docker0 = find_interfaces()
    assert [each.name for each in (lo, eth0, docker0)] == ["lo", "eth0", "docker0"], "by their numbers"
    assert [str(each) for each in eth0.addresses] == ["10.0.0.5/24", "2001:db8:1::5/64", "fe80::5/64"]
    assert (eth0.index, eth0.mtu, eth0.is_loopback, eth0.has_multicast, eth0.is_running) == (3, 1400, False, True, True)
    assert (lo.is_loopback, lo.has_multicast) == (True, False)
    assert not docker0.is_running


def test_addresses_of_ipv6_that_pass_are_left_out(kernel: Kernel) -> None:
    passing = [("2001:db8::1/64", 0x01), ("2001:db8::2/64", 0x20), ("2001:db8::3/64", 0x08)]
    kernel.add(3, "eth0", UP | RUNNING, "", *passing, ("2001:db8::4/64", 0x40), ("2001:db8::5/64", 0x00))
    (eth0,) = find_interfaces()
    assert [str(each.ip) for each in eth0.addresses] == ["2001:db8::4", "2001:db8::5"]


def test_an_interface_that_goes_meanwhile_is_left_out(kernel: Kernel) -> None:
    kernel.add(3, "eth0", UP | RUNNING, "10.0.0.5/24")
    with (kernel.directory / "dev").open("a") as file:
        file.write("  gone: 1 2 3\n")
    assert [each.name for each in find_interfaces()] == ["eth0"]


def test_without_proc_the_names_come_from_the_system(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.add(3, "eth0", UP | RUNNING, "10.0.0.5/24")
    (kernel.directory / "dev").unlink()
    (kernel.directory / "if_inet6").unlink()
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(3, "eth0")])
    assert [str(each) for each in find_interfaces()[0].addresses] == ["10.0.0.5/24"]


def test_this_machine_has_loopback() -> None:
    (loopback,) = (each for each in find_interfaces() if each.is_loopback)
    assert str(loopback.addresses[0]) == "127.0.0.1/8"
    machine = ThisMachine()
    assert machine.interfaces() == find_interfaces()
    assert machine.source_towards("127.0.0.1", 4) == "127.0.0.1"
    assert machine.source_towards("255.255.255.255", 4) is None, "no socket is sent to everybody by mistake"
