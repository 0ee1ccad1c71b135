"""Newcomers at a distance while a host opens connections to the only node as fast as it can, on real sockets.

The node, the attacker and the newcomers are processes of their own. The attacker says nothing on its connections, and keeps
each until the node ends it. Newcomers come through a proxy that holds up all bytes for half a round trip: from an address of
their own, or from that of the attacker. One is in when the node has a link to it, after whatever it took to dial again.
"""

from __future__ import annotations

import asyncio
import resource
import select
import socket
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Final

import iris_py
from benchmarks.harness import START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.worker import Parameters, tell
from iris_py.net.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Connections in each second.
RATE, QUICK_RATE = 3_000, 100
#: How long the flood lasts (seconds), and how many newcomers there are in that time.
FLOOD_S, QUICK_FLOOD_S = 10.0, 1.0
NEWCOMERS, QUICK_NEWCOMERS = 60, 2
ROUND_TRIP_S: Final = 0.1
#: A newcomer that takes longer counts as kept out.
OPEN_S: Final = 2.0
#: Addresses of loopback that the connections come from.
ATTACKER, HONEST = "127.0.0.2", "127.0.0.3"
_TICK_S: Final = 0.01
_NETWORK: Final = "flood"
#: Whoever closes a socket with this ends its connection at once (socket(7), SO_LINGER): no port waits for what is late.
_AT_ONCE: Final = struct.pack("ii", 1, 0)


def section(*, quick: bool) -> Section:
    """Return the floods, and the same without one."""
    rate, flood_s, newcomers = (QUICK_RATE, QUICK_FLOOD_S, QUICK_NEWCOMERS) if quick else (RATE, FLOOD_S, NEWCOMERS)
    parameters: Parameters = {"flood_s": flood_s, "newcomers": newcomers}
    trials = [
        Trial("no flood", partial(_measure, {**parameters, "rate": 0, "source": HONEST})),
        Trial("from another address", partial(_measure, {**parameters, "rate": rate, "source": HONEST})),
        Trial("from the same address", partial(_measure, {**parameters, "rate": rate, "source": ATTACKER})),
    ]
    caption = (
        f"{rate:,} fresh connections in each second for {flood_s:g} s, and {newcomers} newcomers meanwhile, behind a proxy "
        f"with a round trip of {ROUND_TRIP_S * 1e3:g} ms: how many have their link within {OPEN_S:g} s."
    )
    return Section("flood", caption, trials)


def _measure(parameters: Parameters) -> Sequence[Sample]:
    with Stage() as stage:
        node, attacker, newcomers = (stage.start(role) for role in (serve, attack, come))
        parameters = {"secret": stage.home.secret, **parameters}
        node.begin(parameters)
        parameters |= node.listen(START_TIMEOUT_S)
        for worker in (attacker, newcomers):
            worker.begin(parameters)
            worker.listen(START_TIMEOUT_S)  # it has begun
        patience_s = parameters["flood_s"] + START_TIMEOUT_S
        opened, begun = attacker.listen(patience_s)["opened"], newcomers.listen(patience_s)["begun"]
        seen = node.listen(patience_s)
        times_s = [seen["linked"].get(id_, float("inf")) - at for id_, at in begun.items()]
        quick = [each for each in times_s if each <= OPEN_S]
        samples = [
            Sample("in time", 100 * len(quick) / parameters["newcomers"], "%"),
            Sample("slowest of these", max(quick, default=OPEN_S) * 1e3, "ms"),
            Sample("processor time of the node", seen["used_s"], "s"),
        ]
        return samples if not opened else [*samples, Sample("connections", opened / parameters["flood_s"], "/s")]


def serve(parameters: Parameters) -> None:
    """Be the node; say when it had a link to whom, by the clock of the machine, and what processor time it took."""

    async def main() -> None:
        async with iris_py.connect(network=_NETWORK, secret=parameters["secret"], discovery=False) as node:
            tell(address=node.address)
            linked: dict[str, float] = {}
            used_s, end = time.process_time(), time.monotonic() + parameters["flood_s"] + OPEN_S
            while (now := time.monotonic()) < end:
                linked = {info.id.hex(): now for info in node._core.peers._infos.values()} | linked
                await asyncio.sleep(_TICK_S)
            tell(linked=linked, used_s=time.process_time() - used_s)
            await asyncio.Event().wait()

    iris_py.run(main())


def attack(parameters: Parameters) -> None:
    """Open connections at a rate, and say how many."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    target, rate = parse_address(parameters["address"]), parameters["rate"]
    tell()
    held: dict[int, socket.socket] = {}
    poll, opened, began = select.poll(), 0, time.monotonic()
    while (now := time.monotonic() - began) < parameters["flood_s"]:
        while opened < rate * now:
            sock = _dial(target)
            held[sock.fileno()] = sock
            poll.register(sock, select.POLLIN)
            opened += 1
        for number, _event in poll.poll(_TICK_S * 1e3):
            poll.unregister(number)
            held.pop(number).close()
    tell(opened=opened)
    select.select([], [], [])  # the parent ends it


def _dial(target: tuple[str, int]) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    sock.bind((ATTACKER, 0))
    sock.connect_ex(target)
    return sock


def come(parameters: Parameters) -> None:
    """Let newcomers connect through a proxy, and say how long each took."""
    target, count = parse_address(parameters["address"]), parameters["newcomers"]
    # The last one has its time before the flood is over.
    pause_s = max(0.0, parameters["flood_s"] - OPEN_S) / count

    begun: dict[str, float] = {}

    async def one(seed: str, number: int) -> None:
        await asyncio.sleep(number * pause_s)
        began = time.monotonic()
        try:
            opening = iris_py.connect(network=_NETWORK, secret=parameters["secret"], seeds=[seed], discovery=False)
            async with asyncio.timeout(parameters["flood_s"]), opening as node:
                begun[node.id] = began
                await asyncio.sleep(began + OPEN_S - time.monotonic())  # it may dial again
        except (TimeoutError, iris_py.IrisError):
            pass  # it is not in time, whenever it would come

    async def main() -> None:
        proxy = await asyncio.start_server(partial(_carry, target, parameters["source"]), "127.0.0.1", 0)
        host, port = proxy.sockets[0].getsockname()
        tell()
        await asyncio.gather(*(one(f"{host}:{port}", number) for number in range(count)))
        tell(begun=begun)
        await asyncio.Event().wait()

    asyncio.run(main())


async def _carry(target: tuple[str, int], source: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry a connection on, and hold up what comes in each direction.

    The node accepts a connection, and has its first bytes, a round trip and a half after it was begun.
    """
    first = await reader.read(1 << 16)
    await asyncio.sleep(1.5 * ROUND_TRIP_S)
    try:
        far_reader, far_writer = await asyncio.open_connection(*target, local_addr=(source, 0))
    except OSError:
        writer.close()
        return
    far_writer.write(first)
    await asyncio.gather(_hold_up(reader, far_writer), _hold_up(far_reader, writer))


async def _hold_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    later = partial(asyncio.get_running_loop().call_later, ROUND_TRIP_S / 2)
    try:
        while data := await reader.read(1 << 16):
            later(writer.write, data)
    except ConnectionError:
        pass
    later(writer.close)
