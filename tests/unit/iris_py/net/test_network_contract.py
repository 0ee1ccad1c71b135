"""One contract for every network: sockets on asyncio and uvloop, those for long lines, and memory on the virtual clock."""

from __future__ import annotations

import asyncio
import errno
import socket
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
import uvloop

from iris_py.net.network import DATAGRAM_BYTES_MAX, DATAGRAMS_RECEIVED_MAX
from iris_py.net.resting_addresses import AddressRestsError
from iris_py.net.sockets import SocketNetwork, WanNetwork
from iris_py.testing import clock
from iris_py.testing.network import MemoryNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from iris_py.net.network import Address, DatagramSocket, NetworkStack

HERE = "127.0.0.1"
GROUP = "239.255.73.82"
#: Virtual or real seconds that no state takes to come about; reached only by a failing test.
PATIENCE_S = 30.0
LARGE = bytes(range(256)) * (5 * 4096)  # 5 MiB


class Peer(asyncio.BufferedProtocol):
    """Records what it hears, and waits for states instead of times."""

    def __init__(self, *, keeps_half_open: bool = False, echoes: bool = False, buffer_bytes: int = 65_536) -> None:
        self.transport: asyncio.Transport
        self.received = bytearray()
        self.log: list[str] = []
        self.lost: list[BaseException | None] = []
        self._buffer = bytearray(buffer_bytes)
        self._keeps_half_open = keeps_half_open
        self._echoes = echoes
        self._changed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # no assertion: uvloop's own are not instances of it
        self._note("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = bytes(self._buffer[:nbytes])
        self.received += data
        if self._echoes:
            self.transport.write(data)
        self._changed.set()

    def eof_received(self) -> bool:
        self._note("eof")
        return self._keeps_half_open

    def pause_writing(self) -> None:
        self._note("pause")

    def resume_writing(self) -> None:
        self._note("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)
        self._note("lost")

    async def until(self, state: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not state():
                self._changed.clear()
                await self._changed.wait()

    async def until_noted(self, event: str) -> None:
        await self.until(lambda: event in self.log)

    def _note(self, event: str) -> None:
        self.log.append(event)
        self._changed.set()


@dataclass
class World:
    """A network, an event loop for it, and a port where its groups meet."""

    name: str
    group_port: int

    def run(self, scenario: Callable[[NetworkStack], Coroutine[Any, Any, None]]) -> None:
        if self.name == "memory":

            async def main() -> None:
                await scenario(MemoryNetwork(seed=1).host("10.0.0.1"))

            clock.run(main(), limit_s=1000)
            return
        factory = uvloop.new_event_loop if self.name == "uvloop" else asyncio.SelectorEventLoop
        with warnings.catch_warnings(), asyncio.Runner(loop_factory=factory) as runner:
            try:
                runner.run(scenario(WanNetwork() if self.name == "wan" else SocketNetwork()))
            except BaseException:
                # What a failed scenario leaves open is not the news; and uvloop hangs when this warning becomes an error.
                warnings.simplefilter("ignore", ResourceWarning)
                raise


@pytest.fixture(params=["asyncio", "uvloop", "wan", "memory"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        # A port that stays taken, outside of the groups, keeps runs apart that happen at once.
        sock.bind((HERE, 0))
        yield World(request.param, sock.getsockname()[1])


class Door:
    """Hands out the protocols of accepted streams."""

    def __init__(self, factory: Callable[[], Peer] = Peer) -> None:
        self._factory = factory
        self._accepted: asyncio.Queue[Peer] = asyncio.Queue()

    def __call__(self) -> Peer:
        peer = self._factory()
        self._accepted.put_nowait(peer)
        return peer

    async def accept(self) -> Peer:
        async with asyncio.timeout(PATIENCE_S):
            peer = await self._accepted.get()
        await peer.until_noted("made")
        return peer


async def connect(
    network: NetworkStack, *, dialer: Callable[[], Peer] = Peer, listener: Callable[[], Peer] = Peer
) -> tuple[Peer, Peer]:
    """Return both ends of a new stream, that of the dialer first."""
    door = Door(listener)
    opened = await network.listen(door, HERE, 0)
    ours = await network.dial(dialer, *opened.address)
    theirs = await door.accept()
    opened.close()
    return ours, theirs


async def until_lost(*peers: Peer) -> None:
    for peer in peers:
        await peer.until_noted("lost")


def test_echo(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network, listener=lambda: Peer(echoes=True, buffer_bytes=7))
        ours.transport.write(b"hello ")
        ours.transport.writelines([b"wide", b" ", b"world"])
        await ours.until(lambda: len(ours.received) == 16)
        assert ours.received == b"hello wide world"
        assert ours.transport.get_extra_info("peername")[:2] == theirs.transport.get_extra_info("sockname")[:2]
        assert ours.transport.get_extra_info("sockname")[:2] == theirs.transport.get_extra_info("peername")[:2]
        ours.transport.close()
        await until_lost(ours, theirs)
        assert (ours.lost, theirs.lost) == ([None], [None])
        assert ours.log == ["made", "lost"]
        assert theirs.log == ["made", "eof", "lost"]

    world.run(scenario)


def test_connection_is_made_when_dial_returns(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = Door()
        opened = await network.listen(door, HERE, 0)
        ours = await network.dial(Peer, *opened.address)
        assert ours.log == ["made"]
        theirs = await door.accept()
        ours.transport.abort()
        opened.close()
        await until_lost(ours, theirs)

    world.run(scenario)


def test_slow_reader_pauses_the_writer_and_later_resumes_it(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network)
        theirs.transport.pause_reading()
        ours.transport.set_write_buffer_limits(high=32_768, low=8_192)
        sent = 0
        piece = 16_384
        while "pause" not in ours.log:
            assert sent < len(LARGE), "5 MB went out without a reader"
            ours.transport.write(LARGE[sent : sent + piece])
            sent += piece
            await asyncio.sleep(0)
        assert ours.transport.get_write_buffer_size() > 32_768
        ours.transport.write(LARGE[sent:])
        assert ours.log == ["made", "pause"]
        theirs.transport.resume_reading()
        await ours.until_noted("resume")
        assert ours.transport.get_write_buffer_size() <= 8_192
        await theirs.until(lambda: len(theirs.received) == len(LARGE))
        assert theirs.received == LARGE
        assert ours.log == ["made", "pause", "resume"]
        ours.transport.close()
        await until_lost(ours, theirs)

    world.run(scenario)


def test_close_sends_what_is_buffered(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network)
        ours.transport.write(LARGE)
        ours.transport.close()
        assert ours.transport.is_closing()
        await until_lost(ours, theirs)
        assert theirs.received == LARGE
        assert (ours.lost, theirs.lost) == ([None], [None])

    world.run(scenario)


def test_half_close_leaves_the_other_direction_open(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network, listener=lambda: Peer(keeps_half_open=True))
        assert ours.transport.can_write_eof()
        ours.transport.write(b"question")
        ours.transport.write_eof()
        ours.transport.write_eof()
        with pytest.raises(RuntimeError):
            ours.transport.write(b"too late")
        await theirs.until_noted("eof")
        assert theirs.received == b"question"
        theirs.transport.write(LARGE)
        await ours.until(lambda: len(ours.received) == len(LARGE))
        theirs.transport.close()
        await until_lost(ours, theirs)
        assert (ours.lost, theirs.lost) == ([None], [None])
        assert theirs.log.count("eof") == 1

    world.run(scenario)


def test_abort_is_felt_at_the_peer(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network)
        ours.transport.write(b"x")
        ours.transport.abort()
        ours.transport.abort()
        await until_lost(ours, theirs)
        assert ours.lost == [None]
        assert theirs.lost[0] is None or isinstance(theirs.lost[0], OSError)
        assert len(theirs.lost) == 1

    world.run(scenario)


def test_unread_bytes_at_close_break_the_connection(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network)
        theirs.transport.pause_reading()
        ours.transport.write(LARGE)
        await ours.until_noted("pause")
        theirs.transport.close()
        await until_lost(ours, theirs)
        assert isinstance(ours.lost[0], ConnectionError)

    world.run(scenario)


def test_paused_reading_delivers_nothing(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network, dialer=lambda: Peer(echoes=True))
        ours.transport.pause_reading()
        assert not ours.transport.is_reading()
        theirs.transport.write(b"wait")
        # A round trip on another stream: the bytes have surely arrived by then.
        other, echo = await connect(network, listener=lambda: Peer(echoes=True))
        other.transport.write(b"ping")
        await other.until(lambda: other.received == b"ping")
        assert ours.received == b""
        ours.transport.resume_reading()
        await theirs.until(lambda: theirs.received == b"wait")
        for peer in (ours, other):
            peer.transport.close()
        await until_lost(ours, theirs, other, echo)

    world.run(scenario)


def test_close_is_idempotent(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        ours, theirs = await connect(network)
        for _ in range(3):
            ours.transport.close()
        ours.transport.write(b"ignored")
        await until_lost(ours, theirs)
        ours.transport.close()
        ours.transport.abort()
        assert ours.lost == [None]
        assert theirs.received == b""
        door = await network.listen(Peer, HERE, 0)
        door.close()
        door.close()
        end = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        end.close()
        end.close()

    world.run(scenario)


def test_a_connection_begins_only_where_its_address_does_not_rest(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = Door()
        opened = await network.listen(door, HERE, 0)
        begun: list[Address] = []
        ours = await network.dial(Peer, *opened.address, begin=begun.append)
        theirs = await door.accept()
        assert begun == [opened.address]

        def rest(address: Address) -> None:
            begun.append(address)
            raise AddressRestsError

        with pytest.raises(AddressRestsError):
            await network.dial(Peer, *opened.address, begin=rest)
        assert begun == [opened.address] * 2
        opened.close()
        ours.transport.abort()
        await until_lost(ours, theirs)
        assert door._accepted.empty()

    world.run(scenario)


def test_refused_dial_raises_os_error(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = await network.listen(Peer, HERE, 0)
        address = door.address
        door.close()
        made: list[Peer] = []

        def make() -> Peer:
            made.append(Peer())
            return made[-1]

        with pytest.raises(OSError, match=r".+"):
            await network.dial(make, *address)
        assert not made

    world.run(scenario)


def test_port_in_use_raises_os_error(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = await network.listen(Peer, HERE, 0)
        assert door.address[0] == HERE
        assert door.address[1] > 0
        with pytest.raises(OSError, match=r".+"):
            await network.listen(Peer, *door.address)
        door.close()
        again = await network.listen(Peer, *door.address)
        assert again.address == door.address
        again.close()

    world.run(scenario)


def test_many_streams_at_once(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = Door(lambda: Peer(echoes=True))
        opened = await network.listen(door, HERE, 0)
        peers = await asyncio.gather(*(network.dial(Peer, *opened.address) for _ in range(50)))
        accepted = [await door.accept() for _ in peers]
        opened.close()
        for number, peer in enumerate(peers):
            peer.transport.write(b"%d" % number * 100)
        for number, peer in enumerate(peers):
            expected = b"%d" % number * 100
            await peer.until(lambda peer=peer, expected=expected: peer.received == expected)  # type: ignore[misc]
            peer.transport.close()
        await until_lost(*peers, *accepted)

    world.run(scenario)


async def open_three(network: NetworkStack, port: int) -> list[DatagramSocket]:
    sockets = [await network.open_datagrams(HERE, 0, group=GROUP, group_port=port) for _ in range(3)]
    assert all(end.has_multicast for end in sockets)
    return sockets


async def take(end: DatagramSocket) -> tuple[bytes, Address]:
    async with asyncio.timeout(PATIENCE_S):
        return await end.receive()


def test_multicast_reaches_all_and_an_answer_the_asker_alone(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        sockets = await open_three(network, world.group_port)
        sockets[0].send(b"who is there?", None)
        heard = [await take(end) for end in sockets]
        assert [data for data, _ in heard] == [b"who is there?"] * 3
        askers = {sender for _, sender in heard}
        assert len(askers) == 1
        (asker,) = askers
        assert asker[1] != world.group_port
        for end in sockets[1:]:
            end.send(b"me", asker)
        answers = [await take(sockets[0]) for _ in range(2)]
        assert [data for data, _ in answers] == [b"me", b"me"]
        assert len({sender for _, sender in answers}) == 2
        # What the others hear next is the next question: no answer went to them.
        sockets[0].send(b"next", None)
        for end in sockets:
            assert await take(end) == (b"next", asker)
            assert not any(end.dropped.values())
            end.close()

    world.run(scenario)


def test_other_groups_are_not_heard(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        stranger = await network.open_datagrams(HERE, 0, group="239.255.73.83", group_port=world.group_port)
        ours = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        stranger.send(b"not for us", None)
        assert (await take(stranger))[0] == b"not for us"
        ours.send(b"ours", None)
        assert (await take(ours))[0] == b"ours"
        stranger.close()
        ours.close()

    world.run(scenario)


def test_sends_that_cannot_work_are_counted(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        end = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        end.send(b"x" * (DATAGRAM_BYTES_MAX + 1), None)
        end.send(b"", None)
        end.send(b"x", (HERE, 0))
        end.send(b"x", (HERE, 70_000))
        assert end.dropped == {"oversized": 1, "refused": 1, "unreachable": 2}
        end.send(b"y" * DATAGRAM_BYTES_MAX, None)
        assert (await take(end))[0] == b"y" * DATAGRAM_BYTES_MAX
        end.close()
        end.send(b"x", None)
        end.send(b"x", (HERE, 9))
        assert end.dropped == {"oversized": 1, "refused": 1, "unreachable": 2, "closed": 2}

    world.run(scenario)


def test_an_error_of_the_system_is_counted_and_does_not_cost_the_next_datagram(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        end = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        end.send(b"lost", ("192.0.2.1", 9))  # not through the loopback interface
        end.send(b"kept", None)
        assert (await take(end))[0] == b"kept"
        assert end.dropped == {"refused": 1}
        end.close()

    world.run(scenario)


def test_closing_wakes_the_receiver(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        end = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        receivers = [asyncio.create_task(end.receive()) for _ in range(2)]
        await asyncio.sleep(0)
        end.close()
        results = await asyncio.gather(*receivers, return_exceptions=True)
        assert [type(result) for result in results] == [ConnectionAbortedError] * 2
        with pytest.raises(ConnectionAbortedError):
            await end.receive()

    world.run(scenario)


def test_datagrams_that_nobody_takes_are_dropped_and_counted(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        silent, sender = [await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port) for _ in range(2)]
        for number in range(DATAGRAMS_RECEIVED_MAX + 10):
            sender.send(b"%d" % number, None)
            assert (await take(sender))[0] == b"%d" % number
        async with asyncio.timeout(PATIENCE_S):
            while silent.dropped.get("overflow", 0) < 10:  # noqa: ASYNC110  # a counter tells nobody that it changes
                await asyncio.sleep(0.001)
        assert (await take(silent))[0] == b"0"
        silent.close()
        sender.close()

    world.run(scenario)


def test_without_multicast_single_addresses_are_still_reached(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        outside = await network.open_datagrams(HERE, 0, multicast=False, group=GROUP, group_port=world.group_port)
        inside = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        assert (outside.has_multicast, inside.has_multicast) == (False, True)
        outside.send(b"to nobody", None)
        assert outside.dropped == {"unreachable": 1}
        inside.send(b"to the group", None)
        assert await take(inside) == (b"to the group", inside.address)
        inside.send(b"to you", outside.address)
        assert await take(outside) == (b"to you", inside.address), "the group is not heard there"
        outside.send(b"and back", inside.address)
        assert await take(inside) == (b"and back", outside.address)
        outside.close()
        inside.close()

    world.run(scenario)


def test_datagrams_share_the_number_of_a_listener(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        door = await network.listen(Peer, HERE, 0)
        end = await network.open_datagrams(*door.address, group=GROUP, group_port=world.group_port)
        asker = await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port)
        assert end.address == door.address
        asker.send(b"to its address", door.address)
        assert await take(end) == (b"to its address", asker.address)
        end.send(b"from its address", asker.address)
        assert await take(asker) == (b"from its address", door.address)
        for opened in (door, end, asker):
            opened.close()

    world.run(scenario)


def test_datagrams_at_an_address_that_is_taken_or_not_ours_raise_os_error(world: World) -> None:
    async def scenario(network: NetworkStack) -> None:
        end = await network.open_datagrams(HERE, 0, multicast=False)
        with pytest.raises(OSError, match=r".+") as failure:
            await network.open_datagrams(*end.address)
        assert failure.value.errno == errno.EADDRINUSE
        with pytest.raises(OSError, match=r".+") as failure:
            await network.open_datagrams("192.0.2.7", 0)
        assert failure.value.errno == errno.EADDRNOTAVAIL
        end.close()
        await asyncio.sleep(0)  # asyncio closes a socket in the next turn
        again = await network.open_datagrams(*end.address, multicast=False)
        assert again.address == end.address
        again.close()

    world.run(scenario)


@pytest.mark.parametrize("destination", ["one", "all"])
def test_a_burst_is_not_lost(world: World, destination: str) -> None:
    """A detector that was asleep answers, asks and passes on in one turn, with datagrams of any size."""

    async def scenario(network: NetworkStack) -> None:
        ends = [await network.open_datagrams(HERE, 0, group=GROUP, group_port=world.group_port) for _ in range(2)]
        burst = [b"%3d" % number + bytes(DATAGRAM_BYTES_MAX - 3) for number in range(80)]
        for data in burst:
            ends[0].send(data, ends[1].address if destination == "one" else None)
        assert [await take(ends[1]) for _ in burst] == [(data, ends[0].address) for data in burst]
        for end in ends:
            assert not any(end.dropped.values())
            end.close()

    world.run(scenario)
