"""Things that only real sockets do: names with several addresses, IPv6, and machines where multicast does not work."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
import uvloop

from iris_py.net import datagrams, sockets
from iris_py.net.datagrams import DATAGRAMS_SENT_MAX, SocketDatagrams
from iris_py.net.network import OwnAddressError
from iris_py.net.resting_addresses import AddressRestsError
from iris_py.net.sockets import ACCEPTS_MAX, SocketNetwork
from tests.ports import free_port, has_ipv6

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

HERE = "127.0.0.1"
GROUP = "239.255.73.82"
PATIENCE_S = 30.0

Run: TypeAlias = "Callable[[Coroutine[Any, Any, None]], None]"


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a scenario on either event loop."""

    def run_on_loop(scenario: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(scenario)

    return run_on_loop


class Peer(asyncio.BufferedProtocol):
    """Knows its transport, and when it is lost."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.made = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # no assertion: uvloop's own are not instances of it
        self.made.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(16)

    def buffer_updated(self, nbytes: int) -> None:
        raise AssertionError("nobody sends here")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.set()


async def dial_and_close(network: SocketNetwork, accepted: asyncio.Queue[Peer], host: str, port: int) -> tuple[str, int]:
    """Return the address that a dial reached."""
    async with asyncio.timeout(PATIENCE_S):
        peer = await network.dial(Peer, host, port)
        theirs = await accepted.get()
        reached = peer.transport.get_extra_info("peername")[:2]
        for end in (peer, theirs):
            await end.made.wait()
            assert end.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        peer.transport.close()
        await peer.lost.wait()
        await theirs.lost.wait()
    return (reached[0], reached[1])


def make_door() -> tuple[asyncio.Queue[Peer], Callable[[], Peer]]:
    accepted: asyncio.Queue[Peer] = asyncio.Queue()

    def accept() -> Peer:
        peer = Peer()
        accepted.put_nowait(peer)
        return peer

    return accepted, accept


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    """Let every name have these addresses."""

    async def resolve(_loop: object, _host: str, _port: int) -> list[tuple[int, tuple[str, int]]]:
        return [(socket.AF_INET, address) for address in addresses]

    monkeypatch.setattr(sockets, "_resolve", resolve)


def hang_at(monkeypatch: pytest.MonkeyPatch, dead: tuple[str, int], two_hang: asyncio.Event | None = None) -> list[str]:
    """Let dials to an address hang; return what becomes of them, and say when there are two."""
    fates: list[str] = []
    original: Callable[..., Awaitable[socket.socket]] = sockets._connect

    async def connect(loop: asyncio.AbstractEventLoop, family: int, address: tuple[str, int]) -> socket.socket:
        if address != dead:
            return await original(loop, family, address)
        number = len(fates)
        fates.append("hangs")
        if two_hang is not None and len(fates) == 2:
            two_hang.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            fates[number] = "cancelled"
            raise
        raise AssertionError("unreachable")

    monkeypatch.setattr(sockets, "_connect", connect)
    return fates


@needs_ipv6
def test_ipv6(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, "::1", 0)
        assert listener.address[0] == "::1"
        assert await dial_and_close(network, accepted, *listener.address) == listener.address
        listener.close()

    run(main())


def test_a_name_is_dialed(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, "localhost", 0)
        assert await dial_and_close(network, accepted, "localhost", listener.address[1]) == listener.address
        listener.close()

    run(main())


def test_of_several_addresses_the_preferred_one_is_listened_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        resolve_to(monkeypatch, (HERE, 0), ("127.0.0.2", 0), ("127.0.0.3", 0))
        listener = await network.listen(accept, "example", 0)
        assert listener.address[0] == HERE
        datagrams = await network.open_datagrams("example", 0, multicast=False)
        assert datagrams.address[0] == HERE
        resolve_to(monkeypatch, listener.address)
        assert await dial_and_close(network, accepted, "example", 0) == listener.address
        listener.close()
        datagrams.close()

    run(main())


def test_the_addresses_of_a_name_are_dialled_in_a_random_order_of_each_family(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[Any] = [(socket.AF_INET6, ("::1", 9)), (socket.AF_INET, ("10.0.0.1", 9)), (socket.AF_INET, ("10.0.0.2", 9))]
    assert {tuple(sockets._mix(list(names))) for _ in range(100)} == {tuple(names), (names[0], names[2], names[1])}


def test_a_name_that_means_this_node_too_leads_to_another(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, HERE, 0)
        own = await network.listen(Peer, HERE, 0)
        resolve_to(monkeypatch, own.address, listener.address)
        for _ in range(10):
            dialled = await network.dial(Peer, "example", 0, own={own.address})
            assert dialled.transport.get_extra_info("peername") == listener.address
            dialled.transport.abort()
            await dialled.lost.wait()
            theirs = await accepted.get()
            await theirs.lost.wait()
        resolve_to(monkeypatch, own.address)
        with pytest.raises(OwnAddressError, match="this node itself"):
            await network.dial(Peer, "example", 0, own={own.address})
        listener.close()
        own.close()

    run(main())


def test_an_address_that_refuses_is_passed_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, HERE, 0)
        resolve_to(monkeypatch, (HERE, 1), (HERE, 2), listener.address)
        assert await dial_and_close(network, accepted, "example", 0) == listener.address
        listener.close()

    run(main())


def begin_except(*resting: int) -> tuple[list[int], Callable[[tuple[str, int]], None]]:
    """Return the ports to which a connection has begun, and what lets some ports rest."""
    begun: list[int] = []

    def begin(address: tuple[str, int]) -> None:
        if address[1] in resting:
            raise AddressRestsError
        begun.append(address[1])

    return begun, begin


def test_an_address_that_rests_is_passed_over(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, HERE, 0)
        port = listener.address[1]
        for addresses in (
            [(HERE, 1), listener.address],
            [(HERE, 1), listener.address, (HERE, 2)],
            [(HERE, 2), listener.address],
        ):
            resolve_to(monkeypatch, *addresses)
            begun, begin = begin_except(1)
            dialled = await network.dial(Peer, "example", 0, begin=begin)
            assert dialled.transport.get_extra_info("peername") == listener.address
            assert set(begun) <= {2, port}
            dialled.transport.abort()
            await dialled.lost.wait()
            await (await accepted.get()).lost.wait()
        listener.close()

    run(main())


@pytest.mark.parametrize("resting", [(2,), (1, 2), (1, 2, 3)])
def test_a_dial_with_an_address_that_rests_has_not_failed(
    run: Run, monkeypatch: pytest.MonkeyPatch, resting: tuple[int, ...]
) -> None:
    async def main() -> None:
        resolve_to(monkeypatch, (HERE, 1), (HERE, 2), (HERE, 3))
        begun, begin = begin_except(*resting)
        with pytest.raises(AddressRestsError):
            await SocketNetwork().dial(Peer, "example", 0, begin=begin)
        assert set(begun) == {1, 2, 3} - set(resting)

    run(main())


def test_a_dead_address_does_not_hold_up_the_next(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ATTEMPT_DELAY_S", 0.01)

    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, HERE, 0)
        resolve_to(monkeypatch, ("192.0.2.1", 9), listener.address)
        monkeypatch.setattr(sockets, "_shuffle", list.reverse)  # they are dialled as the resolver has them
        fates = hang_at(monkeypatch, ("192.0.2.1", 9))
        assert await dial_and_close(network, accepted, "example", 0) == listener.address
        assert fates == ["cancelled"]
        listener.close()

    run(main())


class Doomed(Peer):
    """A stream whose dial is given up in the moment that it is made."""

    def __init__(self, dialling: list[asyncio.Task[Doomed]]) -> None:
        super().__init__()
        self.dialling = dialling
        self.ended = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.dialling[0].cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.ended += 1


def test_a_dial_that_is_cancelled_when_its_stream_is_made_ends_the_stream(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        listener = await network.listen(Peer, HERE, 0)
        dialling: list[asyncio.Task[Doomed]] = []
        doomed = Doomed(dialling)
        dialling.append(asyncio.create_task(network.dial(lambda: doomed, *listener.address)))
        with pytest.raises(asyncio.CancelledError):
            await dialling[0]
        await asyncio.sleep(0)
        assert doomed.ended >= 1, "nobody would ever hear that it is gone"
        listener.close()

    run(main())


def test_a_cancelled_dial_cancels_all_its_attempts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ATTEMPT_DELAY_S", 0.001)

    async def main() -> None:
        resolve_to(monkeypatch, ("192.0.2.1", 9), ("192.0.2.1", 9))
        two_hang = asyncio.Event()
        fates = hang_at(monkeypatch, ("192.0.2.1", 9), two_hang)
        dialling = asyncio.create_task(SocketNetwork().dial(Peer, "example", 0))
        await two_hang.wait()
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        await asyncio.sleep(0)
        assert fates == ["cancelled", "cancelled"]

    run(main())


class End:
    """Something that was opened for nobody."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("discard", [sockets._discard, datagrams._discard])
@pytest.mark.parametrize("outcome", ["opened", "failed", "cancelled"])
def test_what_nobody_waits_for_any_more_is_closed_if_it_was_opened(discard: Callable[[Any], None], outcome: str) -> None:
    async def main() -> None:
        end = End()

        async def attempt() -> End:
            if outcome == "failed":
                raise OSError
            return end

        opening = asyncio.create_task(attempt())
        if outcome == "cancelled":
            opening.cancel()
        await asyncio.wait([opening])
        discard(opening)
        assert end.is_closed == (outcome == "opened")

    asyncio.run(main())


def test_a_second_winner_is_closed() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()

        async def win() -> socket.socket:
            return ours

        attempt = asyncio.create_task(win())
        await attempt
        sockets._discard(attempt)
        assert ours.fileno() == -1
        theirs.close()

    asyncio.run(main())


@pytest.mark.parametrize("port", [1, 65_535])
def test_the_ports_that_are_dialed(run: Run, monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    async def refuse(_loop: object, family: int, address: tuple[str, int]) -> socket.socket:
        assert (family, address) == (socket.AF_INET, (HERE, port))
        raise ConnectionRefusedError

    monkeypatch.setattr(sockets, "_connect", refuse)

    async def main() -> None:
        with pytest.raises(ConnectionRefusedError):
            await SocketNetwork().dial(Peer, HERE, port)

    run(main())


def test_all_addresses_that_fail_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, (HERE, 1), (HERE, 2))
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(SocketNetwork().dial(Peer, "example", 0))


@pytest.mark.parametrize(
    ("host", "port"), [(HERE, -1), (HERE, 65_536), ("a" * 80 + ".example", 80), ("a..b", 80), ("a\0b", 80)]
)
def test_what_cannot_be_an_address_raises_os_error(host: str, port: int) -> None:
    with pytest.raises(OSError, match=r".+"):
        asyncio.run(SocketNetwork().dial(Peer, host, port))


def test_a_socket_that_reached_itself_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback TCP may connect a socket to its own port: bind it there first, and it does for certain."""
    address = HERE, free_port()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def bind_and_connect(sock: socket.socket, target: Any) -> None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            await connect(sock, target)

        monkeypatch.setattr(loop, "sock_connect", bind_and_connect)
        with pytest.raises(ConnectionRefusedError, match="nobody listens"):
            await SocketNetwork().dial(Peer, *address)

    asyncio.run(main())


def test_without_the_group_port_single_addresses_are_still_reached(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_arguments: object) -> socket.socket:
        raise OSError("no multicast here")

    monkeypatch.setattr(datagrams, "_shared_socket", refuse)

    async def main() -> None:
        network = SocketNetwork()
        deaf = [await network.open_datagrams(HERE, 0, group=GROUP, group_port=9) for _ in range(2)]
        assert not any(end.has_multicast for end in deaf)
        deaf[0].send(b"to the group", None)
        assert deaf[0].dropped == {"unreachable": 1}
        deaf[0].send(b"hello", deaf[1].address)
        async with asyncio.timeout(PATIENCE_S):
            data, sender = await deaf[1].receive()
            deaf[1].send(data, sender)
            assert (await deaf[0].receive())[0] == b"hello"
        for end in deaf:
            end.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [record.message for record in caplog.records] == [f"no discovery by multicast on {HERE}: no multicast here"] * 2


@needs_ipv6
def test_ipv6_datagrams_reach_single_addresses(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = SocketNetwork()
        ends = [await network.open_datagrams("::1", 0, group_port=9) for _ in range(2)]
        assert not any(end.has_multicast for end in ends)
        ends[0].send(b"hello", ends[1].address)
        async with asyncio.timeout(PATIENCE_S):
            assert await ends[1].receive() == (b"hello", ends[0].address)
        ends[0].send(b"x", (HERE, 9))
        ends[0].send(b"x", None)  # Linux has no multicast of IPv6 on loopback
        for scope in ("", "eth0", "1" * 10):
            ends[0].send(b"x", (f"fe80::1%{scope}", 9))
        assert ends[0].dropped == {"unreachable": 5}
        of_other_family = await network.open_datagrams("::1", 0, group=GROUP, group_port=9)
        assert not of_other_family.has_multicast
        of_other_family.close()
        for end in ends:
            end.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert not caplog.records


def test_datagrams_beyond_the_queue_are_dropped_and_counted(run: Run) -> None:
    async def main() -> None:
        end = await SocketNetwork().open_datagrams(HERE, 0, group=GROUP, group_port=9)
        for _ in range(DATAGRAMS_SENT_MAX + 3):
            end.send(b"x", None)  # nothing leaves before the loop turns
        assert end.dropped == {"full": 3}
        end.close()

    run(main())


def test_a_host_name_is_not_resolved_for_a_datagram(run: Run) -> None:
    async def main() -> None:
        end = await SocketNetwork().open_datagrams(HERE, 0, multicast=False)
        for host in ("localhost", "::1", "", "a\0b", "127.1"):
            end.send(b"x", (host, 9))
        assert end.dropped == {"unreachable": 5}
        end.close()

    run(main())


@pytest.mark.parametrize(("port", "dropped"), [(-1, 1), (0, 1), (1, 0), (65535, 0), (65536, 1)])
def test_the_ports_that_a_datagram_can_go_to(run: Run, port: int, dropped: int) -> None:
    async def main() -> None:
        end = await SocketNetwork().open_datagrams(HERE, 0, multicast=False)
        end.send(b"x", (HERE, port))
        assert end.dropped.get("unreachable", 0) == dropped
        end.close()

    run(main())


def test_the_address_of_a_name_is_bound(run: Run) -> None:
    async def main() -> None:
        end = await SocketNetwork().open_datagrams("localhost", 0, multicast=False)
        assert end.address[0] in (HERE, "::1")
        end.close()

    run(main())


def test_multicast_on_loopback_does_not_leave_the_machine(run: Run) -> None:
    async def main() -> None:
        end = await SocketNetwork().open_datagrams(HERE, 0, group=GROUP, group_port=9)
        assert isinstance(end, SocketDatagrams)
        sock = end._streams[0].socket
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 0
        assert sock.getsockname() == end.address
        assert end.address[0] == HERE
        end.close()

    run(main())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_who_dials_waits_while_there_are_no_descriptors(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    monkeypatch.setattr(sockets, "ACCEPT_RETRY_S", 0.001)
    accept = socket.socket.accept
    failures = 5

    def fail(sock: socket.socket) -> Any:
        nonlocal failures
        if not failures:
            return accept(sock)
        failures -= 1
        raise OSError(number, "none left")

    monkeypatch.setattr(socket.socket, "accept", fail)

    async def main() -> None:
        network = SocketNetwork()
        accepted, make = make_door()
        listener = await network.listen(make, HERE, 0)
        assert await dial_and_close(network, accepted, *listener.address) == listener.address
        listener.close()

    run(main())
    assert failures == 0
    told = [record.getMessage() for record in caplog.records if record.name == "iris_py.net"]
    assert len(told) == 1, "one line for all five"
    assert told[0].startswith("no connection can be opened or accepted: none left")


def test_a_crowd_is_accepted_a_few_in_each_turn(run: Run) -> None:
    async def main() -> None:
        accepted, make = make_door()
        listener = await SocketNetwork().listen(make, HERE, 0)
        crowd = [socket.create_connection(listener.address) for _ in range(3 * ACCEPTS_MAX)]
        listener._accept(listener._socks[0])
        assert len(listener._tasks) == ACCEPTS_MAX
        async with asyncio.timeout(PATIENCE_S):
            peers = [await accepted.get() for _ in crowd]
            for sock, peer in zip(crowd, peers, strict=True):
                await peer.made.wait()
                sock.close()
                peer.transport.abort()
        listener.close()
        listener.close()
        assert listener.descriptors() == []

    run(main())


def test_a_door_that_is_closed_during_a_pause_stays_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "ACCEPT_RETRY_S", 0.0)

    async def main() -> None:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: problems.append(context))
        listener = await SocketNetwork().listen(Peer, HERE, 0)
        listener._pause(OSError(errno.EMFILE, "none left"))
        listener.close()
        with pytest.raises(ConnectionRefusedError):  # while it takes this, the pause would have ended
            await SocketNetwork().dial(Peer, *listener.address)
        assert not problems

    run(main())


@needs_ipv6
def test_every_address_of_ipv6_takes_streams_of_ipv4_as_well(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, "::", free_port())
        host, port = listener.address
        assert host == "::"
        assert len(listener.descriptors()) == 2
        for each in ("::1", HERE):
            assert await dial_and_close(network, accepted, each, port) == (each, port)
        listener.close()
        for each in ("::1", HERE):
            with pytest.raises(ConnectionRefusedError):
                await network.dial(Peer, each, port)

    run(main())


@needs_ipv6
def test_hosts_of_ipv4_show_as_such(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        accepted, accept = make_door()
        listener = await network.listen(accept, "::", free_port())
        async with asyncio.timeout(PATIENCE_S):
            peer = await network.dial(Peer, HERE, listener.address[1])
            theirs = await accepted.get()
            await theirs.made.wait()
            assert theirs.transport.get_extra_info("peername")[0] == HERE
            peer.transport.abort()
            await theirs.lost.wait()
        listener.close()

    run(main())


@needs_ipv6
def test_every_address_of_ipv6_takes_datagrams_of_ipv4_as_well(run: Run) -> None:
    async def main() -> None:
        network = SocketNetwork()
        both = await network.open_datagrams("::", 0, multicast=False)
        port = both.address[1]
        assert both.address[0] == "::"
        assert len(both.descriptors()) == 2
        for host in ("::1", HERE):
            one = await network.open_datagrams(host, 0, multicast=False)
            async with asyncio.timeout(PATIENCE_S):
                one.send(b"question", (host, port))
                assert await both.receive() == (b"question", one.address)
                both.send(b"answer", one.address)
                assert await one.receive() == (b"answer", (host, port))
            one.close()
        both.send(b"x", None)
        both.send(b"x", ("name", 9))
        both.send(b"", ("::1", 9))
        assert both.dropped == {"unreachable": 2, "refused": 1}
        waiting = asyncio.ensure_future(both.receive())
        await asyncio.sleep(0)
        both.close()
        both.close()
        with pytest.raises(ConnectionAbortedError):
            await waiting
        assert both.descriptors() == []

    run(main())


@needs_ipv6
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM], ids=["TCP", "UDP"])
def test_a_port_that_is_taken_for_ipv4_is_taken_for_every_address(run: Run, kind: socket.SocketKind) -> None:
    async def main() -> None:
        network = SocketNetwork()
        with socket.socket(socket.AF_INET, kind) as rival:
            rival.bind((HERE, 0))
            if kind == socket.SOCK_STREAM:
                rival.listen()
            port = rival.getsockname()[1]
            for _ in range(2):  # the first attempt has left nothing open
                opening = network.listen(Peer, "::", port) if kind == socket.SOCK_STREAM else network.open_datagrams("::", port)
                with pytest.raises(OSError, match="in use, for IPv4") as caught:
                    await opening
                assert caught.value.errno == errno.EADDRINUSE

    run(main())
