"""The lab is what it says: delay, loss, cuts, routing, and no multicast between sites."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING

from tests.network.namespaces import entered
from tests.network.wire import Condition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.network.lab import Lab

GROUP = "239.77.0.1"
PORT = 7000
ANSWER_TIMEOUT_S = 60.0
#: Linux's default; one less for each of the two routers on the way.
TTL_FIRST = 64
#: The option with which Linux tells the TTL of what arrives; the module socket has no name for it.
IP_RECVTTL = 12


@contextlib.contextmanager
def opened(lab: Lab, host: str) -> Iterator[socket.socket]:
    """A UDP socket on a host, also in the multicast group."""
    with entered(lab.hosts[host].namespace.name):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with found:
        address = socket.inet_aton(lab.hosts[host].address)
        found.bind(("", PORT))
        found.settimeout(ANSWER_TIMEOUT_S)
        found.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, address)
        found.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
        found.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP) + address)
        found.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
        yield found


def send(lab: Lab, sender: socket.socket, host: str, data: bytes) -> None:
    sender.sendto(data, (lab.hosts[host].address, PORT))


def test_packets_between_sites_are_routed_and_late(lab: Lab) -> None:
    lab.set_wire(Condition(delay_s=0.020))
    with opened(lab, "a1") as here, opened(lab, "b1") as there:
        began = time.monotonic()
        send(lab, here, "b1", b"ping")
        data, extra, _, source = there.recvmsg(100, 100)
        send(lab, there, "a1", b"pong")
        assert here.recv(100) == b"pong"
        assert time.monotonic() - began >= 0.040
    assert (data, source) == (b"ping", (lab.hosts["a1"].address, PORT))
    assert [struct.unpack("i", value)[0] for _, kind, value in extra if kind == socket.IP_TTL] == [TTL_FIRST - 2]


def test_multicast_stays_in_its_site(lab: Lab) -> None:
    lab.set_wire(Condition())
    with opened(lab, "a1") as sender, opened(lab, "a2") as near, opened(lab, "b1") as far:
        sender.sendto(b"to all", (GROUP, PORT))
        send(lab, sender, "b1", b"to one")
        assert near.recv(100) == b"to all"
        assert far.recv(100) == b"to one"  # sent later, and nothing overtakes on this line


def test_the_wire_loses_packets(lab: Lab) -> None:
    before = lab.set_wire(Condition(loss=0.5))
    with opened(lab, "a1") as sender, opened(lab, "b1") as receiver:
        for _ in range(200):
            send(lab, sender, "b1", b"perhaps")
        lab.until(lambda: sum_of(lab, Condition(loss=0.5)) - before.passed - before.lost >= 200, "all packets were looked at")
        lab.set_wire(Condition())
        send(lab, sender, "b1", b"last")
        received = list(iter(lambda: receiver.recv(100), b"last"))
    assert 50 < len(received) < 150


def sum_of(lab: Lab, condition: Condition) -> int:
    counts = lab.set_wire(condition)
    return counts.passed + counts.lost


def test_a_cut_wire_carries_nothing(lab: Lab) -> None:
    lab.set_wire(Condition(is_cut=True))
    with opened(lab, "a1") as sender, opened(lab, "b1") as receiver:
        send(lab, sender, "b1", b"cut")
        lab.until(lambda: lab.set_wire(Condition(is_cut=True)).cut, "the packet was dropped")
        lab.set_wire(Condition())
        send(lab, sender, "b1", b"healed")
        assert receiver.recv(100) == b"healed"


def test_a_host_that_is_cut_off_hears_and_is_heard_by_nobody(lab: Lab) -> None:
    with opened(lab, "a1") as cut, opened(lab, "a2") as other:
        send(lab, cut, "a2", b"before")  # so that both know the other's hardware address, and no packet waits for it
        assert other.recv(100) == b"before"
        lab.cut_off("a1")
        send(lab, cut, "a2", b"out")
        send(lab, other, "a1", b"in")
        lab.until(lambda: min(lab.dropped("a1")) > 0, "both packets are dropped")
        lab.reconnect("a1")
        send(lab, cut, "a2", b"out again")
        send(lab, other, "a1", b"in again")
        assert other.recv(100) == b"out again"
        assert cut.recv(100) == b"in again"


def test_a_shielded_host_hears_only_answers(lab: Lab) -> None:
    lab.shield("a1")
    with opened(lab, "a1") as shielded, opened(lab, "a2") as other, opened(lab, "a3") as stranger:
        send(lab, stranger, "a1", b"uncalled for")
        send(lab, shielded, "a2", b"ping")
        assert other.recv(100) == b"ping"
        send(lab, other, "a1", b"pong")
        assert shielded.recv(100) == b"pong"
