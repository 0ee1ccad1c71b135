"""The lab of three clouds is what it says: lines, cuts, losses, sizes of packets, firewalls, captures; and clouds are apart."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import socket
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.network.capture import Packet, contents, find_common, streams
from tests.network.clouds import DELAYS_S, MTU
from tests.network.namespaces import entered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.network.clouds import Clouds

PORT = 7000
ANSWER_TIMEOUT_S = 60.0
#: What Linux waits before it dials again: a dial that is answered takes less, and one that hangs takes more.
RETRY_S = 1.0
#: Headers of IP and UDP.
HEADER_BYTES = 28
#: Of Linux; the module socket has no names for them.
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2


@contextlib.contextmanager
def datagrams(clouds: Clouds, host: str) -> Iterator[socket.socket]:
    """A UDP socket on a host that never cuts a datagram into pieces."""
    with entered(clouds.hosts[host].namespace.name):
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with found:
        found.bind((clouds.hosts[host].address, PORT))
        found.settimeout(ANSWER_TIMEOUT_S)
        found.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
        yield found


@contextlib.contextmanager
def door(clouds: Clouds, host: str) -> Iterator[socket.socket]:
    """A listening socket on a host."""
    with entered(clouds.hosts[host].namespace.name):
        found = socket.socket()
    with found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((clouds.hosts[host].address, PORT))
        found.listen()
        found.settimeout(ANSWER_TIMEOUT_S)
        yield found


def dial(clouds: Clouds, here: str, there: str, timeout_s: float = ANSWER_TIMEOUT_S) -> socket.socket:
    with entered(clouds.hosts[here].namespace.name):
        found = socket.socket()
    found.settimeout(timeout_s)
    try:
        found.connect((clouds.hosts[there].address, PORT))
    except BaseException:
        found.close()
        raise
    return found


def receive(sock: socket.socket, size: int) -> bytes:
    """Receive so many bytes."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        assert piece, "the stream has ended"
        data += piece
    return data


def round_trip_s(clouds: Clouds, here: str, there: str) -> float:
    with datagrams(clouds, here) as ours, datagrams(clouds, there) as theirs:
        began = time.monotonic()
        ours.sendto(b"ping", theirs.getsockname())
        theirs.sendto(theirs.recv(100), ours.getsockname())
        assert ours.recv(100) == b"ping"
        return time.monotonic() - began


def test_each_pair_has_its_delay_and_it_can_change(clouds: Clouds) -> None:
    for pair, delay_s in DELAYS_S.items():
        here, there = (f"{site}1" for site in pair)
        assert 2 * delay_s <= round_trip_s(clouds, here, there)
    # The quickest of some, for the machine may be late, and a line is never early.
    clouds.until(
        lambda: round_trip_s(clouds, "eu1", "us2") < 2 * DELAYS_S[frozenset(("us", "asia"))], "the shorter line is quicker"
    )
    clouds.change_line("us", "eu", delay_s=0.2)
    assert round_trip_s(clouds, "eu3", "us1") >= 0.4


def test_a_cut_concerns_its_pair_until_it_heals(clouds: Clouds) -> None:
    with datagrams(clouds, "eu1") as here, datagrams(clouds, "us1") as there:
        clouds.cut("eu", "us")
        here.sendto(b"cut", there.getsockname())
        round_trip_s(clouds, "eu2", "asia1")  # which takes longer
        clouds.heal("us", "eu")
        here.sendto(b"healed", there.getsockname())
        assert there.recv(100) == b"healed"


def test_packets_get_lost_and_are_counted(clouds: Clouds) -> None:
    clouds.lose("us", "eu", 0.5)
    with datagrams(clouds, "eu1") as here, datagrams(clouds, "us1") as there:
        for _ in range(200):
            here.sendto(b"perhaps", there.getsockname())
        round_trip_s(clouds, "eu2", "asia1")  # which takes longer than a packet that is counted
        lost = clouds.lost("eu", "us")
        clouds.lose("eu", "us", 0)
        here.sendto(b"last", there.getsockname())
        received = list(iter(lambda: there.recv(100), b"last"))
        assert len(received) + lost == 200
        assert 50 < lost < 150
        assert clouds.lost("eu", "us") == 0


def test_large_packets_pass_as_far_as_the_line_is_made_for_them(clouds: Clouds) -> None:
    with datagrams(clouds, "eu1") as here, datagrams(clouds, "us1") as there:
        largest = MTU - HEADER_BYTES

        def arrives(size: int) -> bool:
            return not _is_refused(here, there, size) and len(there.recv(100_000)) == size

        assert arrives(largest)
        assert not arrives(largest + 1)
        clouds.set_mtu("eu", "us", 60_000)
        assert arrives(60_000 - HEADER_BYTES)
        clouds.set_mtu("us", "eu", 1_200)
        here.sendto(bytes(largest), there.getsockname())  # of which the router says that it is too large
        clouds.until(lambda: _is_refused(here, there, largest), "the host has learnt the size")
        assert arrives(1_200 - HEADER_BYTES)
        with door(clouds, "us2") as listener, dial(clouds, "eu1", "us2") as ours, listener.accept()[0] as theirs:
            ours.sendall(bytes(50_000))
            assert receive(theirs, 50_000) == bytes(50_000)


def _is_refused(here: socket.socket, there: socket.socket, size: int) -> bool:
    """Send a datagram, and tell whether the host knows it to be too large."""
    try:
        here.sendto(bytes(size), there.getsockname())
    except OSError as exc:
        if exc.errno != errno.EMSGSIZE:
            raise
        return True
    return False


@pytest.mark.parametrize("refuses", [False, True])
def test_a_firewall_stops_dials_one_way_and_nothing_else(clouds: Clouds, refuses: bool) -> None:
    with door(clouds, "eu1") as inside, door(clouds, "us1") as outside, dial(clouds, "us2", "eu1") as before:
        clouds.firewall("us", "eu", refuses=refuses)
        with pytest.raises(ConnectionRefusedError if refuses else TimeoutError):
            dial(clouds, "us2", "eu1", ANSWER_TIMEOUT_S if refuses else RETRY_S)
        with inside.accept()[0] as accepted, dial(clouds, "eu2", "us1") as ours, outside.accept()[0] as theirs:
            for one, other in ((before, accepted), (accepted, before), (ours, theirs), (theirs, ours)):
                one.sendall(b"passes")
                other.settimeout(ANSWER_TIMEOUT_S)
                assert other.recv(100) == b"passes"
        dial(clouds, "asia1", "eu1").close()
        clouds.open_firewall("us", "eu")
        dial(clouds, "us2", "eu1").close()


def test_a_host_falls_silent_towards_one_site_alone(clouds: Clouds) -> None:
    clouds.silence("eu1", "us")
    with door(clouds, "us1"), door(clouds, "asia1"), door(clouds, "eu2"):
        for here, there in (("eu1", "asia1"), ("eu1", "eu2"), ("eu2", "us1")):
            dial(clouds, here, there).close()
        with pytest.raises(TimeoutError):
            dial(clouds, "eu1", "us1", RETRY_S)


def test_a_nat_shows_its_own_address_and_forgets_connections_in_silence(clouds: Clouds) -> None:
    clouds.translate("us", "eu")
    with (
        door(clouds, "eu1") as outside,
        door(clouds, "us2") as inside,
        dial(clouds, "us1", "eu1") as ours,
        dial(clouds, "us1", "us2") as near,
        outside.accept()[0] as theirs,
        inside.accept()[0] as far,
    ):
        assert theirs.getpeername()[0] not in [host.address for host in clouds.hosts.values()]
        ours.sendall(b"passes")
        theirs.settimeout(ANSWER_TIMEOUT_S)
        assert theirs.recv(100) == b"passes"
        clouds.forget_connections("us")
        for one, other in ((ours, theirs), (theirs, ours)):
            one.sendall(b"lost")
            other.settimeout(RETRY_S)
            with pytest.raises(TimeoutError):
                other.recv(100)
        near.sendall(b"within the site")
        far.settimeout(ANSWER_TIMEOUT_S)
        assert far.recv(100) == b"within the site"
        dial(clouds, "us1", "eu1").close()


def test_a_line_is_captured_alone_and_its_streams_are_found(clouds: Clouds) -> None:
    clouds.lose("eu", "us", 0.05)
    capture = clouds.capture_line("eu", "us")
    data = os.urandom(50_000)  # no more than a socket takes that nobody reads
    with door(clouds, "us1") as listener, dial(clouds, "eu1", "us1") as ours, listener.accept()[0] as theirs:
        ours.sendall(b"readable " + data)
        assert receive(theirs, 9 + len(data)) == b"readable " + data
        theirs.sendall(b"answer")
        assert ours.recv(100) == b"answer"
    round_trip_s(clouds, "eu1", "asia1")
    packets = capture.stop()
    assert sorted(streams(packets), key=len) == [b"answer", b"readable " + data]
    assert {each.source[0] for each in packets} == {clouds.hosts["eu1"].address, clouds.hosts["us1"].address}
    assert sum(each.size for each in packets) > len(data)
    assert packets[0].is_syn
    assert capture.path.stat().st_size > len(data)


def test_a_site_is_captured_as_its_hosts_send(clouds: Clouds) -> None:
    captures = [clouds.capture_site(site) for site in ("eu", "us")]
    with datagrams(clouds, "eu1") as first, datagrams(clouds, "eu2") as second, datagrams(clouds, "us1") as far:
        first.sendto(b"within the site", second.getsockname())
        assert second.recv(100) == b"within the site"
        second.sendto(b"to the other site", far.getsockname())
        assert far.recv(100) == b"to the other site"
        far.sendto(b"to nobody's ears but its own", far.getsockname())
        far.sendto(b"back again", first.getsockname())
        assert first.recv(100) == b"back again"
    assert [contents(capture.stop()) for capture in captures] == [[b"within the site", b"to the other site"], [b"back again"]]


def test_streams_are_put_together_from_what_comes_twice_and_out_of_order() -> None:
    def packet(sequence: int, payload: bytes, port: int = 1) -> Packet:
        return Packet(0.0, 0, socket.IPPROTO_TCP, ("10.0.0.1", port), ("10.0.0.2", 2), payload, sequence % (1 << 32))

    pieces = [packet(-1, b"cd"), packet(3, b"gh"), packet(-3, b"ab"), packet(1, b"ef"), packet(-1, b"cdef"), packet(4, b"h")]
    for order in itertools.permutations(pieces):
        assert streams([*order, packet(0, b"other", port=2)]) == [b"abcdefgh", b"other"]


def test_common_bytes_are_found_wherever_they_are() -> None:
    random = [os.urandom(10_000) for _ in range(4)]
    shared = os.urandom(32)
    assert find_common(random[:2], random[2:]) is None
    for at in range(20):
        found = find_common([random[0][: 1_000 + at] + shared + random[1]], [random[2][: 777 + at] + shared])
        assert found is not None
        assert found in shared


def test_clouds_do_not_see_each_other(clouds: Clouds) -> None:
    capture = clouds.capture_line("eu", "us")
    hosts = [f"{site}{count}" for site in ("eu", "us") for count in (1, 2)]
    for host in hosts:
        clouds.start(host, "works")
    for member in clouds.members.values():
        member.wait_for("serving")
        member.tell(do="watch", cluster="works")
    for site in ("eu", "us"):
        expected = frozenset(host for host in hosts if host.startswith(site))
        for host in expected:
            clouds.until(partial(_sees, clouds, host, expected), f"{host} sees {sorted(expected)}")
        answers = clouds.members[f"{site}1"].request("works", 50)["answers"]
        assert frozenset(answers) <= expected
    assert capture.stop() == []


def _sees(clouds: Clouds, host: str, expected: frozenset[str]) -> bool:
    return clouds.members[host].view("works") == expected


def test_programs_run_on_hosts_and_are_stopped(clouds: Clouds) -> None:
    program = "import os, sys, time; print(os.environ['IRIS_ZONE'], os.environ['EXTRA'], flush=True); time.sleep(600)"
    process = clouds.run("program", "asia2", [sys.executable, "-c", program], EXTRA="too")
    assert process.wait_for("line")["text"] == "asia too"
    process.signal(signal.SIGTERM)
    assert process.wait() == -signal.SIGTERM
