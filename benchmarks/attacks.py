"""Attacks of an insider: what they cost a node for each byte that they cost the attacker, and for how long.

The node is a process of its own; an honest caller and the attacker share another one. The attacks are those of
`tests/attack/insider.py`, each made a number of times; then all connections of the attacker are gone, and the caller works
until everything is as it was before. Resident memory is that of the node: the most of it beyond what it was before, and what
is left of that when everything is whole, which is also what the allocator keeps. That of no attack is the caller's own work.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import iris_py
from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed, Sample, Stage, Trial
from benchmarks.worker import Parameters, tell
from iris_py.net.sockets import SocketNetwork
from tests.attack.insider import (
    ATTACKS,
    BODY_BYTES,
    EMPTY,
    FRAGMENT,
    FRAGMENT_BYTES,
    FRAGMENT_END,
    OWN,
    SECRET,
    TIMES,
    WHOLE_S,
    Attack,
    Insider,
    attack_one,
)
from tests.attack.recorder import Recorder
from tests.wire.client import PING, PONG, UNICAST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

#: Links of the attacker, each with an identity of its own.
LINKS, QUICK_LINKS = 300, 10
QUICK_TIMES = 2
#: What the kernel is told to begin anew with the most memory that a process had (proc(5), clear_refs).
PEAK: Final = "5"
#: Requests before memory is looked at for the first time: whatever a node allocates once it has allocated then.
WARM_UP: Final = 200
_FOREVER_S: Final = 3600.0  # the parent ends a process that stays

#: Makes an attack at a node, with a caller to name; returns the bytes that it has sent.
Made: TypeAlias = "Callable[[Place, iris_py.Node], Awaitable[int]]"


@dataclass(frozen=True)
class Place:
    """The attacked node, as others know it."""

    id: str
    address: str
    pid: int


def trials(*, quick: bool) -> list[Trial]:
    """Return the attacks."""
    times, links = (QUICK_TIMES, QUICK_LINKS) if quick else (TIMES, LINKS)

    def repeat(attack: Attack) -> Made:
        return lambda node, caller: attack_one(node, (node, caller), attack, times)

    found: dict[str, Made] = {"no attack": lambda node, caller: attack_one(node, (node, caller), lambda _attacker: None, times)}
    found |= {attack.__name__.replace("_", " "): repeat(attack) for attack in ATTACKS}
    found[f"{links} links"] = lambda node, _caller: _hold_links(node, links)
    for name, kind in (("the largest body", FRAGMENT_END), ("its pieces without an end", FRAGMENT)):
        found[name] = partial(_send_largest, BODY_BYTES // 64 if quick else BODY_BYTES, kind)
    return [Trial(name, partial(_measure, attack)) for name, attack in found.items()]


def _measure(attack: Made) -> Sequence[Sample]:
    with Stage() as stage:
        worker = stage.start(serve)
        worker.begin({})
        node = Place(**worker.listen(START_TIMEOUT_S))
        return iris_py.run(_attack(node, attack))


async def _attack(node: Place, attack: Made) -> Sequence[Sample]:
    async with iris_py.connect(secret=SECRET, clusters={"vault": OWN}, discovery=False, seeds=[node.address]) as caller:
        for _ in range(WARM_UP):
            await _work(node, caller)
        dialled = int(await caller.request("dials", b""))
        _forget_peak(node.pid)
        resident = _memory_bytes(node.pid, "VmRSS")
        sent = await attack(node, caller)
        began = time.monotonic()
        await _become_whole(node, caller)
        whole_s = time.monotonic() - began
        most, left = (max(0, _memory_bytes(node.pid, field) - resident) for field in ("VmHWM", "VmRSS"))
        connections = int(await caller.request("dials", b"")) - dialled
        samples = [Sample("sent", sent / 1024, "KiB"), Sample("most memory", most / 1024, "KiB")]
        samples += [Sample("memory left", left / 1024, "KiB"), Sample("connections", connections, "")]
        if sent:
            samples += [Sample("most memory for each byte", most / sent, "B")]
            samples += [Sample("connections for each KiB", connections / (sent / 1024), "")]
        return [*samples, Sample("whole after", whole_s * 1e3, "ms")]


async def _work(node: Place, caller: iris_py.Node) -> None:
    """Let each way of talking work once.

    Raises:
        AssertionError: Somebody who is not there is among the members, or nobody subscribes.
    """
    for cluster in ("echo", "vault"):
        await caller.request(cluster, b"?", timeout=5.0, idempotent=True)
        await caller.broadcast(cluster, b"!")
        assert [member.id for member in caller.members(cluster)] == [node.id]
    assert await caller.publish("numbers.x", b"!") == 1


async def _become_whole(node: Place, caller: iris_py.Node) -> None:
    deadline = time.monotonic() + WHOLE_S
    while True:
        try:
            return await _work(node, caller)
        except (iris_py.IrisError, AssertionError) as exc:
            if time.monotonic() > deadline:
                raise BenchmarkFailed(f"after {WHOLE_S:g} s the network is not whole: {exc!r}") from exc


async def _hold_links(node: Place, count: int) -> int:
    """Open links with identities of their own, and end all of them together; returns the bytes that were sent."""
    clients = [Recorder(SECRET) for _ in range(count)]
    host, port = node.address.split(":")
    for client in clients:
        await client.connect(host, int(port))
    for client in clients:
        client._writer.transport.abort()
    return sum(len(data) for client in clients for data in client.recorded)


async def _send_largest(size: int, last: int, node: Place, caller: iris_py.Node) -> int:
    """Send a body full of empty messages in pieces, the last one a frame of a kind; returns the bytes that were sent."""
    client = Insider(node, caller)
    host, port = node.address.split(":")
    await client.connect(host, int(port))
    packet = bytes((UNICAST,)) + client.packet(EMPTY * (size // len(EMPTY)), 1, 0)
    for start in range(0, len(packet), FRAGMENT_BYTES):
        is_last = start + FRAGMENT_BYTES >= len(packet)
        client.send_frame(last if is_last else FRAGMENT, packet[start : start + FRAGMENT_BYTES])
        await client._writer.drain()
    client.send_frame(PING, b"")
    while (await client.next_frame())[0] != PONG:
        pass  # until all was read
    client._writer.transport.abort()
    return client.sent_bytes


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text(PEAK)


def _memory_bytes(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


# -- what the process does


class Echo(iris_py.Handler):
    """Answers, and takes broadcasts."""

    async def on_request(self, request: iris_py.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: iris_py.Message) -> None:
        pass


def serve(_parameters: Parameters) -> None:
    """Be the node that is attacked, and say on request how many connections it has begun to make."""
    dialled, dial = 0, SocketNetwork.dial

    async def count(network: SocketNetwork, *where: Any) -> Any:  # noqa: ANN401 - it is passed on
        nonlocal dialled
        dialled += 1
        return await dial(network, *where)

    SocketNetwork.dial = count  # type: ignore[assignment,method-assign]

    async def main() -> None:
        async with iris_py.connect(secret=SECRET, clusters={"vault": OWN}, discovery=False) as node:
            await node.join("echo", Echo())
            await node.join("vault", Echo())
            await node.join("dials", lambda _request: b"%d" % dialled)
            await node.subscribe("numbers.>", lambda _message: None)
            tell(id=node.id, address=node.address, pid=os.getpid())
            await asyncio.sleep(_FOREVER_S)

    iris_py.run(main())
