"""Sites of the simulated network: lines between them, cuts, firewalls and taps; a seed still decides everything."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.testing.clock import run
from iris_py.testing.network import DIAL_TIMEOUT_S, LATENCY_S_MAX, MemoryNetwork
from iris_py.testing.transports import LINE_UNSENT_BYTES, LINE_WINDOW_BYTES_MAX
from tests.unit.iris_py.testing.test_network import PORT, Peer, collect, connect, now

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.testing.sites import Record, Tap

EU, EU_2, US, ASIA = "10.1.0.1", "10.1.0.2", "10.2.0.1", "10.3.0.1"
LATENCY_S = 0.04
#: What processing and cutting of streams adds.
MARGIN_S = 0.002


def build(seed: int = 1, **line: float | None) -> MemoryNetwork:
    """Return a network of three sites, two of them joined by a line."""
    network = MemoryNetwork(seed)
    for host, site in ((EU, "eu"), (EU_2, "eu"), (US, "us"), (ASIA, "asia")):
        network.place(host, site)
        network.host(host)
    network.lay_line("eu", "us", **{"latency_s": LATENCY_S, **line})  # type: ignore[arg-type]
    return network


async def carry(sender: Peer, receiver: Peer, size: int) -> float:
    """Send so many bytes and return how long they took."""
    began, before = now(), len(receiver.received)
    sender.transport.write(bytes(size))
    await receiver.until(lambda: len(receiver.received) == before + size)
    return now() - began


async def cannot(coroutine: Coroutine[Any, Any, object]) -> None:
    """Fail if something ends."""
    task = asyncio.ensure_future(coroutine)
    done, _ = await asyncio.wait([task], timeout=5.0)
    assert not done
    task.cancel()


def test_a_dial_takes_a_round_trip_and_a_message_one_way() -> None:
    async def main() -> None:
        network = build()
        began = now()
        listener = await network.host(US).listen(Peer, US, PORT)
        peer = await network.host(EU).dial(Peer, *listener.address)
        assert now() - began == pytest.approx(2 * LATENCY_S, abs=MARGIN_S)
        peer.transport.abort()
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        assert await carry(ours, theirs, 1) == pytest.approx(LATENCY_S, abs=MARGIN_S)
        assert await carry(theirs, ours, 1) == pytest.approx(LATENCY_S, abs=MARGIN_S)

    run(main(), limit_s=10)


def test_within_a_site_and_without_a_line_hosts_are_near() -> None:
    async def main() -> None:
        network = build()
        for there in (EU_2, ASIA):
            ours, theirs = await connect(network.host(EU), network.host(there), there)
            assert await carry(ours, theirs, 1) <= LATENCY_S_MAX + MARGIN_S

    run(main(), limit_s=10)


def test_a_line_can_change() -> None:
    async def main() -> None:
        network = build()
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        network.lay_line("us", "eu", latency_s=0.1)
        assert await carry(ours, theirs, 1) == pytest.approx(0.1, abs=MARGIN_S)
        near, far = await connect(network.host(EU), network.host(ASIA), ASIA)
        network.lay_line("eu", "asia", latency_s=0.2)
        assert await carry(near, far, 1) == pytest.approx(0.2, abs=MARGIN_S)
        with pytest.raises(ValueError, match="two sites"):
            network.lay_line("eu", "eu", latency_s=0.1)

    run(main(), limit_s=10)


def test_jitter_delays_and_leaves_streams_in_order() -> None:
    async def main() -> None:
        network = build(jitter_s=0.02)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        times = [await carry(ours, theirs, 1) for _ in range(50)]
        assert min(times) >= LATENCY_S
        assert max(times) <= LATENCY_S + 0.02 + MARGIN_S
        assert max(times) - min(times) > 0.015
        message = bytes(range(256)) * 1_000
        before = len(theirs.received)
        ours.transport.write(message)
        await theirs.until(lambda: len(theirs.received) == before + len(message))
        assert theirs.received[before:] == message

    run(main(), limit_s=100)


def test_bandwidth_is_shared_by_all_that_goes_one_way() -> None:
    async def main() -> None:
        network = build(bandwidth_bytes_s=1_000_000, window_bytes=10_000_000)
        first, second = [await connect(network.host(host), network.host(US), US) for host in (EU, EU_2)]
        began = now()
        await asyncio.gather(carry(*first, 1_000_000), carry(*second, 1_000_000))
        assert now() - began == pytest.approx(2.0 + LATENCY_S, abs=0.01)
        began = now()
        await asyncio.gather(carry(*first, 1_000_000), carry(second[1], second[0], 1_000_000))
        assert now() - began == pytest.approx(1.0 + LATENCY_S, abs=0.01)
        # Datagrams and dials wait in the same queue.
        sender, receiver = await network.host(EU).open_datagrams(EU, PORT), await network.host(US).open_datagrams(US, PORT)
        first[0].transport.write(bytes(500_000))
        sender.send(b"behind", receiver.address)
        began = now()
        await receiver.receive()
        assert now() - began == pytest.approx(0.5 + LATENCY_S, abs=0.01)

    run(main(), limit_s=100)


def test_a_window_bounds_what_a_round_trip_carries() -> None:
    async def main() -> None:
        network = build(window_bytes=100_000)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        assert await carry(ours, theirs, 1_000_000) == pytest.approx(9 * 2 * LATENCY_S + LATENCY_S, rel=0.1)

    run(main(), limit_s=100)


@pytest.mark.parametrize(
    ("line", "window"),
    [
        ({}, LINE_WINDOW_BYTES_MAX),
        ({"bandwidth_bytes_s": 1_000_000}, 160_000 + LINE_UNSENT_BYTES),
        ({"bandwidth_bytes_s": 1_000_000_000}, LINE_WINDOW_BYTES_MAX),
    ],
)
def test_unless_it_is_set_a_window_is_what_the_line_holds(line: dict[str, float], window: int) -> None:
    async def main() -> None:
        network = build(1, **line)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        theirs.transport.pause_reading()
        ours.transport.write(bytes(window + 1_000))
        assert ours.transport.get_write_buffer_size() == 1_000

    run(main(), limit_s=100)


def test_multicast_stays_in_its_site() -> None:
    async def main() -> None:
        network = build()
        network.place("10.9.0.1", "eu")
        ends = {host: await network.host(host).open_datagrams(host, PORT) for host in (EU, EU_2, US, ASIA, "10.9.0.2")}
        ends[EU].send(b"to all", None)
        ends[EU].send(b"to one", (US, PORT))
        heard = {host: await collect(end) for host, end in ends.items()}
        assert heard == {EU: [b"to all"], EU_2: [b"to all"], US: [b"to one"], ASIA: [], "10.9.0.2": []}

    run(main(), limit_s=100)


def test_a_host_is_placed_before_it_is_there() -> None:
    network = build()
    assert (network.site_of(EU), network.site_of("10.9.9.9")) == ("eu", "")
    with pytest.raises(ValueError, match="place it first"):
        network.place(EU, "us")


def test_a_cut_holds_until_it_is_mended_also_for_hosts_that_come_later() -> None:
    async def main() -> None:
        network = build()
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        other, third = await connect(network.host(EU), network.host(ASIA), ASIA)
        network.cut("eu", "us")
        network.place("10.1.0.3", "eu")
        late = network.host("10.1.0.3")
        await network.host(US).listen(Peer, US, PORT)
        ours.transport.write(b"held")
        theirs.transport.write(b"answer")
        await cannot(late.dial(Peer, US, PORT))
        assert (ours.received, theirs.received) == (b"", b"")
        assert await carry(other, third, 1) < 0.01
        dial = asyncio.create_task(late.dial(Peer, US, PORT))
        await asyncio.sleep(1)
        network.cut("eu", "asia")
        mended_s = now()
        network.mend("us", "eu")
        await theirs.until(lambda: theirs.received == b"held")
        assert now() - mended_s == pytest.approx(LATENCY_S, abs=MARGIN_S)
        await ours.until(lambda: ours.received == b"answer")
        await dial
        await cannot(carry(other, third, 1))  # of another pair
        network.heal()
        await third.until(lambda: len(third.received) == 2)
        assert (await late.dial(Peer, US, PORT)).log == ["made"]

    run(main(), limit_s=100)


def test_a_line_can_be_stalled_one_way() -> None:
    async def main() -> None:
        network = build()
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        network.stall_line("eu", "us")
        network.stall_line("eu", "eu")  # a site is not cut off from itself
        await carry(theirs, ours, 1)
        await cannot(carry(ours, theirs, 1))
        await connect(network.host(EU), network.host(EU_2), EU_2)
        network.heal()
        await theirs.until(lambda: theirs.received)

    run(main(), limit_s=100)


def test_acknowledgements_are_held_by_a_stalled_line() -> None:
    async def main() -> None:
        network = build(window_bytes=1_000)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        network.stall_line("us", "eu")
        await cannot(carry(ours, theirs, 3_000))
        assert len(theirs.received) == 1_000
        network.heal()
        await theirs.until(lambda: len(theirs.received) == 3_000)

    run(main(), limit_s=100)


def test_a_half_open_line_swallows_one_way_for_good_and_new_connections_work() -> None:
    async def main() -> None:
        network = build()
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        other, third = await connect(network.host(EU), network.host(ASIA), ASIA)
        network.half_open_line("eu", "us")
        await carry(theirs, ours, 1)
        await carry(other, third, 1)
        await cannot(carry(ours, theirs, 1))
        network.heal()
        await asyncio.sleep(5)
        assert not theirs.received
        again = await connect(network.host(EU), network.host(US), US)
        await carry(*again, 1)

    run(main(), limit_s=100)


def test_a_firewall_that_refuses_lets_dials_the_other_way_pass() -> None:
    async def main() -> None:
        network = build()
        network.firewall("us", "eu", "refuse")
        listener = await network.host(EU).listen(Peer, EU, PORT)
        began = now()
        with pytest.raises(ConnectionRefusedError):
            await network.host(US).dial(Peer, *listener.address)
        assert now() - began == pytest.approx(2 * LATENCY_S, abs=MARGIN_S)
        await network.host(ASIA).dial(Peer, *listener.address)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        await carry(ours, theirs, 1)
        await carry(theirs, ours, 1)
        network.heal()
        with pytest.raises(ConnectionRefusedError):
            await network.host(US).dial(Peer, *listener.address)
        network.firewall("us", "eu", "pass")
        await network.host(US).dial(Peer, *listener.address)

    run(main(), limit_s=100)


def test_dials_hang_at_a_firewall_until_it_opens() -> None:
    async def main() -> None:
        network = build()
        network.firewall("us", "eu", "hang")
        listener = await network.host(EU).listen(Peer, EU, PORT)
        began = now()
        with pytest.raises(TimeoutError):
            await network.host(US).dial(Peer, *listener.address)
        assert now() - began == pytest.approx(DIAL_TIMEOUT_S)
        dial = asyncio.create_task(network.host(US).dial(Peer, *listener.address))
        await asyncio.sleep(1)
        network.firewall("us", "eu", "pass")
        began = now()
        await dial
        assert now() - began == pytest.approx(2 * LATENCY_S, abs=MARGIN_S)
        network.firewall("us", "eu", "hang")
        dial = asyncio.create_task(network.host(US).dial(Peer, *listener.address))
        await asyncio.sleep(1)
        network.firewall("us", "eu", "refuse")
        with pytest.raises(ConnectionRefusedError):
            await dial

    run(main(), limit_s=1_000)


def test_a_tap_hears_its_line_alone() -> None:
    async def main() -> tuple[Tap, Tap]:
        network = build()
        line, counter = network.tap("us", "eu"), network.tap("eu", "us", keeps=False)
        ours, theirs = await connect(network.host(EU), network.host(US), US)
        for host in (EU_2, ASIA):
            near = await connect(network.host(EU), network.host(host), host)
            near[0].transport.write(b"of no concern")
        ours.transport.write(b"question " * 10_000)
        theirs.transport.write(b"answer")
        await ours.until(lambda: ours.received == b"answer")
        await theirs.until(lambda: len(theirs.received) == 90_000)
        datagrams = await network.host(US).open_datagrams(US, PORT)
        datagrams.send(b"to all", None)
        datagrams.send(b"to one", (EU, PORT))
        return line, counter

    line, counter = run(main(), limit_s=100)
    assert line.streams("eu") == [b"question " * 10_000]
    assert line.streams("us") == [b"answer"]
    assert len(line.streams()) == 2
    assert [line.holds(text) for text in (b"nquestion", b"question question ", b"to one", b"to all", b"concern")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    for tap in (line, counter):
        assert (tap.line_bytes("eu"), tap.line_bytes("us"), tap.line_bytes()) == (90_000, 12, 90_012)
    with pytest.raises(ValueError, match="only counts"):
        counter.holds(b"question")


async def tumult(seed: int) -> list[Record]:
    """Let a bit of everything happen between sites and return all that was on the wire."""
    network = build(seed, jitter_s=0.01, bandwidth_bytes_s=1_000_000)
    records: list[Record] = []
    network.record = records.append
    streams = [await connect(network.host(host), network.host(US), US) for host in (EU, EU_2, ASIA)]
    faults: list[Callable[[], None]] = [
        lambda: network.cut("eu", "us"),
        network.heal,
        lambda: network.half_open_line("us", "eu"),
        lambda: network.kill(EU_2),
    ]
    for fault in faults:
        for ours, theirs in streams:
            ours.transport.write(bytes(range(256)) * 40)
            theirs.transport.write(b"answer")
        await asyncio.sleep(0.05)
        fault()
    await asyncio.sleep(10)
    return records


def test_a_seed_decides_everything_between_sites() -> None:
    def digest(seed: int) -> str:
        return hashlib.sha256(repr(run(tumult(seed), limit_s=100)).encode()).hexdigest()

    assert digest(7) == digest(7) != digest(8)
