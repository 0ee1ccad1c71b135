"""The simulated network: its faults, and that a seed decides everything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.net.network import BEACON_GROUP, BEACON_PORT
from iris_py.testing.clock import run
from iris_py.testing.network import DIAL_TIMEOUT_S, LATENCY_S_MAX, LATENCY_S_MIN, NO_HOST_TIMEOUT_S, MemoryNetwork
from iris_py.testing.sites import Record
from iris_py.testing.transports import WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.net.network import NetworkStack
    from iris_py.testing.network import MemoryDatagrams

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
PORT = 4711


class Peer(asyncio.BufferedProtocol):
    """Records what it hears, piece by piece."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.pieces: list[bytes] = []
        self.log: list[str] = []
        self.lost: BaseException | None = None
        self.changed = asyncio.Event()
        self.buffer = bytearray(100_000)

    @property
    def received(self) -> bytes:
        return b"".join(self.pieces)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.note("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self.buffer[:nbytes]))
        self.changed.set()

    def eof_received(self) -> bool:
        self.note("eof")
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = exc
        self.note("lost")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def note(self, event: str) -> None:
        self.log.append(event)
        self.changed.set()

    async def until(self, state: Callable[[], object]) -> None:
        while not state():
            self.changed.clear()
            await self.changed.wait()


async def connect(here: NetworkStack, there: NetworkStack, host: str) -> tuple[Peer, Peer]:
    """Return both ends of a new stream, that of the dialer first."""
    accepted: asyncio.Queue[Peer] = asyncio.Queue()

    def accept() -> Peer:
        peer = Peer()
        accepted.put_nowait(peer)
        return peer

    listener = await there.listen(accept, host, 0)
    ours = await here.dial(Peer, *listener.address)
    theirs = await accepted.get()
    await theirs.until(lambda: theirs.log)
    listener.close()
    return ours, theirs


def now() -> float:
    return asyncio.get_running_loop().time()


def test_addresses_are_those_of_the_hosts() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host("beta"), "beta")
        assert ours.transport.get_extra_info("sockname") == theirs.transport.get_extra_info("peername")
        assert ours.transport.get_extra_info("sockname")[0] == A
        assert ours.transport.get_extra_info("peername") == theirs.transport.get_extra_info("sockname")
        assert ours.transport.get_extra_info("peername")[0] == "beta"
        assert network.host(A) is network.host(A)

    run(main(), limit_s=1)


def test_loopback_is_not_reached_from_elsewhere_and_a_wildcard_is() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        here, there = network.host(A), network.host(B)
        await there.listen(Peer, "127.0.0.1", PORT)
        for dialed in (B, "127.0.0.1"):
            with pytest.raises(ConnectionRefusedError):
                await here.dial(Peer, dialed, PORT)
        await there.dial(Peer, "localhost", PORT)
        await there.listen(Peer, "0.0.0.0", PORT + 1)
        await here.dial(Peer, B, PORT + 1)
        with pytest.raises(OSError, match="taken"):
            await there.listen(Peer, B, PORT + 1)
        with pytest.raises(OSError, match="not an address"):
            await there.listen(Peer, A, PORT + 2)
        with pytest.raises(ValueError, match="every host"):
            network.host("127.0.0.1")

    run(main(), limit_s=1)


def test_a_dial_and_a_message_take_the_latency() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        started = now()
        ours, theirs = await connect(network.host(A), network.host(B), B)
        handshake_s = now() - started
        assert 3 * LATENCY_S_MIN <= handshake_s <= 3 * LATENCY_S_MAX + 0.001
        started = now()
        ours.transport.write(b"x")
        await theirs.until(lambda: theirs.received)
        assert now() - started == pytest.approx(handshake_s / 3, abs=0.0003)

    run(main(), limit_s=1)


def test_bandwidth_delays_large_writes() -> None:
    async def main() -> None:
        network = MemoryNetwork(1, bandwidth_bytes_s=1_000_000)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        started = now()
        ours.transport.write(bytes(2_000_000))
        await theirs.until(lambda: len(theirs.received) == 2_000_000)
        assert 2.0 <= now() - started <= 2.2

    run(main(), limit_s=10)


def test_streams_are_cut_at_arbitrary_places() -> None:
    message = bytes(range(256)) * 40

    async def main() -> set[int]:
        network = MemoryNetwork(2)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        for _ in range(50):
            ours.transport.write(message)
        await theirs.until(lambda: len(theirs.received) == 50 * len(message))
        assert theirs.received == message * 50
        return {len(piece) for piece in theirs.pieces}

    sizes = run(main(), limit_s=10)
    assert len(sizes) > 10
    assert min(sizes) <= 16
    assert max(sizes) > len(message)


def test_a_paused_reader_leaves_a_full_window_and_then_gets_it_all() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        theirs.transport.pause_reading()
        ours.transport.write(bytes(WINDOW_BYTES + 100_000))
        assert ours.log == ["made", "pause"]
        assert ours.transport.get_write_buffer_size() == 100_000
        await asyncio.sleep(100)
        assert not theirs.pieces
        assert ours.transport.get_write_buffer_size() == 100_000
        theirs.transport.resume_reading()
        await theirs.until(lambda: len(theirs.received) == WINDOW_BYTES + 100_000)
        assert ours.log == ["made", "pause", "resume"]

    run(main(), limit_s=1000)


def test_partition_holds_bytes_until_it_heals() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        ours.transport.write(b"before ")
        await theirs.until(lambda: theirs.received == b"before ")
        ours.transport.write(b"in flight ")
        network.partition([A], [B, C])
        ours.transport.write(b"held ")
        theirs.transport.write(b"answer")
        await asyncio.sleep(500)
        assert theirs.received == b"before "
        assert not ours.received
        assert (ours.log, theirs.log) == (["made"], ["made"])
        healed_s = now()
        network.heal()
        await theirs.until(lambda: theirs.received == b"before in flight held ")
        assert LATENCY_S_MIN <= now() - healed_s <= 2 * LATENCY_S_MAX
        await ours.until(lambda: ours.received == b"answer")

    run(main(), limit_s=1000)


def test_partition_leaves_others_alone() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        network.partition([A], [B])
        ours, theirs = await connect(network.host(A), network.host(C), C)
        ours.transport.write(b"x")
        await theirs.until(lambda: theirs.received)

    run(main(), limit_s=1)


def test_a_dial_into_a_partition_hangs_and_goes_on_when_it_heals() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        listener = await network.host(B).listen(Peer, B, PORT)
        network.partition([A], [B])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await network.host(A).dial(Peer, *listener.address)
        assert now() == 7
        with pytest.raises(TimeoutError):
            await network.host(A).dial(Peer, *listener.address)
        assert now() == 7 + DIAL_TIMEOUT_S
        dial = asyncio.create_task(network.host(A).dial(Peer, *listener.address))
        await asyncio.sleep(10)
        assert not dial.done()
        network.heal()
        assert (await dial).log == ["made"]

    run(main(), limit_s=1000)


def test_a_dial_to_nowhere_fails() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        with pytest.raises(OSError, match="no host"):
            await network.host(A).dial(Peer, "10.9.9.9", PORT)
        assert now() == NO_HOST_TIMEOUT_S

    run(main(), limit_s=10)


def test_a_listener_that_closes_during_the_handshake_refuses() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        accepted: list[Peer] = []

        def accept() -> Peer:
            accepted.append(Peer())
            return accepted[-1]

        listener = await network.host(B).listen(accept, B, PORT)
        peer = await network.host(A).dial(Peer, B, PORT)
        listener.close()
        await peer.until(lambda: "lost" in peer.log)
        assert isinstance(peer.lost, ConnectionResetError)
        assert not accepted

    run(main(), limit_s=10)


def test_stall_is_one_way() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        network.stall(A, B)
        ours.transport.write(b"swallowed")
        theirs.transport.write(b"heard")
        await ours.until(lambda: ours.received == b"heard")
        # Acknowledgements are stalled as well: the window of the other side fills up.
        theirs.transport.write(bytes(2 * WINDOW_BYTES))
        await asyncio.sleep(10)
        assert len(ours.received) == WINDOW_BYTES
        assert not theirs.received
        network.heal()
        await theirs.until(lambda: theirs.received == b"swallowed")
        await ours.until(lambda: len(ours.received) == len(b"heard") + 2 * WINDOW_BYTES)

    run(main(), limit_s=100)


def test_a_half_open_connection_swallows_one_way_for_good_and_new_ones_work() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        other, third = await connect(network.host(A), network.host(C), C)
        network.half_open(A, B)
        network.half_open(A, A)  # nobody is cut off from itself
        ours.transport.write(b"swallowed")
        theirs.transport.write(b"heard")
        await ours.until(lambda: ours.received == b"heard")
        # Acknowledgements are swallowed as well.
        theirs.transport.write(bytes(2 * WINDOW_BYTES))
        await asyncio.sleep(10)
        assert len(ours.received) == WINDOW_BYTES
        network.heal()
        ours.transport.abort()
        other.transport.write(b"another host")
        await third.until(lambda: third.received == b"another host")
        again, accepted = await connect(network.host(A), network.host(B), B)
        again.transport.write(b"again")
        await accepted.until(lambda: accepted.received == b"again")
        await asyncio.sleep(10)
        assert theirs.received == b""
        assert theirs.log == ["made", "pause"], "not even the end is heard"

    run(main(), limit_s=100)


def test_reset_breaks_both_ends_and_spares_the_listener() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        listener = await network.host(B).listen(Peer, B, PORT)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        network.reset(B)
        ours.transport.write(b"x")
        for peer in (ours, theirs):
            await peer.until(lambda peer=peer: "lost" in peer.log)  # type: ignore[misc]
            assert isinstance(peer.lost, ConnectionResetError)
            assert peer.log == ["made", "lost"]
            assert peer.transport.is_closing()
        await network.host(A).dial(Peer, *listener.address)

    run(main(), limit_s=10)


def test_kill_is_heard_by_the_peers_alone() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        host = network.host(B)
        listener = await host.listen(Peer, B, PORT)
        datagrams = await host.open_datagrams(B, PORT)
        ours, theirs = await connect(network.host(A), host, B)
        ours.transport.write(b"too late")
        receiving = asyncio.create_task(datagrams.receive())
        await asyncio.sleep(0)
        network.kill(B)
        await ours.until(lambda: "lost" in ours.log)
        assert isinstance(ours.lost, ConnectionResetError)
        (await network.host(A).open_datagrams(A, PORT)).send(b"anybody?", None)
        await asyncio.sleep(10)
        assert theirs.log == ["made"]
        assert not theirs.received
        assert not receiving.done()
        receiving.cancel()
        theirs.transport.write(b"from the grave")
        theirs.transport.close()
        datagrams.send(b"x", None)
        assert datagrams.dropped == {"closed": 1}
        with pytest.raises(ConnectionAbortedError):
            await datagrams.receive()
        with pytest.raises(ConnectionRefusedError):
            await network.host(A).dial(Peer, *listener.address)
        for attempt in (host.dial(Peer, A, 1), host.listen(Peer, B, 1), host.open_datagrams(B, PORT)):
            with pytest.raises(OSError, match="killed"):
                await attempt
        # Started again.
        assert network.host(B) is not host
        await network.host(B).listen(Peer, B, PORT)
        await network.host(A).dial(Peer, B, PORT)

    run(main(), limit_s=100)


def test_a_killed_host_stays_partitioned() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, _ = await connect(network.host(A), network.host(B), B)
        network.partition([A], [B])
        network.kill(B)
        await asyncio.sleep(100)
        assert ours.log == ["made"]
        network.heal()
        await ours.until(lambda: "lost" in ours.log)
        assert isinstance(ours.lost, ConnectionResetError)

    run(main(), limit_s=1000)


def test_writing_to_who_has_closed_is_a_reset() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        theirs.transport.close()
        ours.transport.write(b"crossing")
        await ours.until(lambda: "lost" in ours.log)
        assert theirs.lost is None

    run(main(), limit_s=10)


def test_the_seed_decides_how_an_abort_is_felt() -> None:
    async def main(seed: int) -> bool:
        network = MemoryNetwork(seed)
        ours, theirs = await connect(network.host(A), network.host(B), B)
        ours.transport.abort()
        await theirs.until(lambda: "lost" in theirs.log)
        assert ours.lost is None
        return theirs.lost is None

    assert {run(main(seed), limit_s=10) for seed in range(20)} == {True, False}


def test_a_protocol_that_fails_loses_its_connection_and_is_reported() -> None:
    class Fails(Peer):
        def buffer_updated(self, nbytes: int) -> None:
            raise ValueError("boom")

    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        network = MemoryNetwork(1)
        failing: list[Fails] = []

        def accept() -> Fails:
            failing.append(Fails())
            return failing[-1]

        listener = await network.host(B).listen(accept, B, PORT)
        peer = await network.host(A).dial(Peer, *listener.address)
        peer.transport.write(b"x")
        await peer.until(lambda: "lost" in peer.log)
        assert isinstance(failing[0].lost, ValueError)
        assert reported == [failing[0].lost]

    run(main(), limit_s=10)


async def collect(datagrams: MemoryDatagrams) -> list[bytes]:
    """Return what has arrived, once everything has."""
    await asyncio.sleep(1)
    found = []
    try:
        while True:
            async with asyncio.timeout(0.001):
                found.append((await datagrams.receive())[0])
    except TimeoutError:
        return found


def test_datagrams_are_lost_doubled_and_reordered_as_told() -> None:
    messages = [b"%d" % number for number in range(100)]

    async def main(loss: float, duplication: float, reordering: float) -> list[bytes]:
        network = MemoryNetwork(3)
        network.datagram_loss, network.datagram_duplication, network.datagram_reordering = loss, duplication, reordering
        sender, receiver = await network.host(A).open_datagrams(A, PORT), await network.host(B).open_datagrams(B, PORT)
        for message in messages:
            sender.send(message, None)
        return await collect(receiver)

    assert run(main(0, 0, 0), limit_s=10) == messages
    assert run(main(1, 0, 0), limit_s=10) == []
    assert 50 < len(run(main(0.25, 0, 0), limit_s=10)) < 100
    doubled = run(main(0, 0.5, 0), limit_s=10)
    assert 130 < len(doubled) < 170
    assert list(dict.fromkeys(doubled)) == messages
    shuffled = run(main(0, 0, 0.5), limit_s=10)
    assert shuffled != messages
    assert sorted(shuffled) == sorted(messages)


def test_multicast_reaches_every_host_but_not_through_loopback() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        outside = [await network.host(name).open_datagrams(name, PORT) for name in (A, B)]
        everywhere = await network.host(C).open_datagrams("0.0.0.0", PORT)
        at_home = [await network.host(A).open_datagrams("localhost", port) for port in (PORT, PORT + 1)]
        outside[0].send(b"from A", None)
        everywhere.send(b"from C", None)
        for end in (*outside, everywhere):
            assert sorted(await collect(end)) == [b"from A", b"from C"]
        at_home[0].send(b"home", None)
        for end in at_home:
            assert await collect(end) == [b"home"]
        assert await collect(outside[0]) == []

    run(main(), limit_s=100)


def test_a_wildcard_is_reached_by_every_address_of_its_host() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        everywhere = await network.host(A).open_datagrams("0.0.0.0", PORT)
        neighbour = await network.host(B).open_datagrams(B, PORT)
        at_home = await network.host(A).open_datagrams("127.0.0.1", PORT + 1)
        neighbour.send(b"hello", (A, PORT))
        at_home.send(b"hello", ("127.0.0.1", PORT))
        assert {await everywhere.receive(), await everywhere.receive()} == {
            (b"hello", (B, PORT)),
            (b"hello", ("127.0.0.1", PORT + 1)),
        }
        everywhere.send(b"back", (B, PORT))
        everywhere.send(b"back", ("127.0.0.1", PORT + 1))
        assert await neighbour.receive() == (b"back", (A, PORT))
        assert await at_home.receive() == (b"back", ("127.0.0.1", PORT))
        with pytest.raises(OSError, match="taken"):
            await network.host(A).open_datagrams(A, PORT)

    run(main(), limit_s=100)


def test_there_is_no_multicast_for_ipv6() -> None:
    async def main() -> None:
        end = await MemoryNetwork(1).host(A).open_datagrams("::1", PORT)
        assert not end.has_multicast

    run(main(), limit_s=100)


def test_datagrams_vanish_in_a_partition() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        sender, receiver = await network.host(A).open_datagrams(A, PORT), await network.host(B).open_datagrams(B, PORT)
        sender.send(b"in flight", None)
        network.partition([A], [B])
        sender.send(b"cut off", None)
        assert await collect(receiver) == []
        network.heal()
        sender.send(b"healed", None)
        assert await collect(receiver) == [b"healed"]
        assert not sender.dropped

    run(main(), limit_s=100)


def test_without_multicast_single_hosts_are_reached() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        network.has_multicast = False
        sender, receiver = await network.host(A).open_datagrams(A, PORT), await network.host(B).open_datagrams(B, PORT)
        assert not sender.has_multicast
        sender.send(b"x", None)
        assert sender.dropped == {"unreachable": 1}
        sender.send(b"direct", receiver.address)
        assert await collect(receiver) == [b"direct"]

    run(main(), limit_s=100)


async def tumult(seed: int) -> list[Record]:
    """Run a bit of everything and return all that was on the wire."""
    network = MemoryNetwork(seed)
    records: list[Record] = []
    network.record = records.append
    network.datagram_loss = network.datagram_duplication = network.datagram_reordering = 0.2
    names = [f"host-{number}" for number in range(6)]
    ends = {name: await network.host(name).open_datagrams(name, PORT) for name in names}
    streams = await asyncio.gather(*(connect(network.host(a), network.host(b), b) for a in names for b in names if a != b))
    for round_number in range(5):
        for number, (ours, theirs) in enumerate(streams):
            ours.transport.write(b"%d" % number * 2000)
            theirs.transport.write(b"%d" % round_number * 3000)
        for end in ends.values():
            end.send(b"beacon %d" % round_number, None)
        if round_number == 1:
            network.partition(names[:2], names[2:])
        if round_number == 2:
            network.kill(names[5])
        if round_number == 3:
            network.heal()
        await asyncio.sleep(0.01)
    await asyncio.sleep(10)
    summary = [f"{ours.received!r} {theirs.received!r} {ours.log} {theirs.log} {ours.lost!r}" for ours, theirs in streams]
    records.append(Record(time_s=now(), source=("", 0), target=("", 0), connection=None, data="\n".join(summary).encode()))
    return records


def digest(seed: int) -> str:
    return hashlib.sha256(repr(run(tumult(seed), limit_s=100)).encode()).hexdigest()


def test_a_seed_decides_everything_whatever_python_hashes() -> None:
    program = f"import runpy; print(runpy.run_path({__file__!r})['digest'](7))"
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("0", "1", "4711")
    ]
    assert digests == [digest(7)] * 3
    assert digest(8) != digest(7)


def test_the_record_holds_every_byte_once_and_in_order() -> None:
    async def main() -> None:
        network = MemoryNetwork(1)
        records: list[Record] = []
        network.record = records.append
        ours, theirs = await connect(network.host(A), network.host(B), B)
        secret = bytes(range(256)) * 1000
        ours.transport.write(secret)
        theirs.transport.write(b"answer")
        await theirs.until(lambda: theirs.received == secret)
        source = ours.transport.get_extra_info("sockname")
        assert {record.connection for record in records} == {0}
        assert b"".join(record.data for record in records if record.source == source) == secret
        assert b"".join(record.data for record in records if record.target == source) == b"answer"
        datagrams = await network.host(A).open_datagrams(A, PORT)
        datagrams.send(b"beacon", None)
        assert records[-1].data == b"beacon"
        assert records[-1].connection is None
        assert records[-1].target == (BEACON_GROUP, BEACON_PORT)

    run(main(), limit_s=10)
