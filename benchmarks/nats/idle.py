"""The memory of connections that are open, have a subscription, and are silent."""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.nats.clients import CONNECT, PING, Client
from benchmarks.nats.processor import Processor
from benchmarks.nats.servers import ONE_DOOR, SERVER, start_servers
from benchmarks.peers.meter import resident_bytes
from benchmarks.worker import tell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

#: Part of the connections that is open before memory is read: a server loads code, and makes room, for the first ones.
_FIRST_SHARE: Final = 1 / 20
#: Connections that open at a time, and connections of an address: ports of one address would run out.
_OPENING: Final = 50
_PER_ADDRESS: Final = 5000
#: How long it may take to open all.
_OPEN_TIMEOUT_S: Final = 600.0
#: Silence before memory is read.
_SILENCE_S: Final = 1.0
#: Descriptors of a process besides those of connections: a door keeps half of all descriptors for its node.
_DESCRIPTORS_FACTOR: Final = 2


def section(name: str, connections: int) -> Section:
    """Return the comparison for some connections, or for as many as the descriptors of this machine allow."""
    count = min(connections, _descriptors() // _DESCRIPTORS_FACTOR)
    return Section(
        name,
        f"{count:,} silent connections, each with a subscription to a subject of its own. Memory: growth of the resident "
        f"memory from {int(count * _FIRST_SHARE):,} connections on, for each one. Processor: of the server, to open one.",
        [Trial(contender, partial(_measure, contender, count)) for contender in (SERVER, ONE_DOOR)],
        (SERVER,),
    )


def _descriptors() -> int:
    """Return the limit on descriptors, after it was raised as far as permitted for this process and its children."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def _measure(contender: str, connections: int) -> Sequence[Sample]:
    with Stage() as stage:
        servers = start_servers(contender, stage.home, stage)
        worker = stage.start(hold)
        worker.begin({"port": servers.ports[0], "pids": servers.pids, "connections": connections})
        found = worker.listen(START_TIMEOUT_S + _OPEN_TIMEOUT_S)
    counted = found["counted"]
    return [
        Sample("memory", found["grown_bytes"] / counted / 1024, "KiB/connection"),
        Sample("processor", found["cpu_s"] / counted * 1e6, "us/connection"),
    ]


def hold(parameters: Parameters) -> None:
    """Open connections and subscribe; tell the growth of the server and its processor time."""
    connections, pid = parameters["connections"], parameters["pids"][0]
    processor = Processor([pid])
    clients = _open(parameters["port"], 0, int(connections * _FIRST_SHARE))
    time.sleep(_SILENCE_S)
    memory, before = resident_bytes(pid), processor.read()
    first = len(clients)
    clients += _open(parameters["port"], first, connections)
    (cpu_s,) = processor.since(before)
    time.sleep(_SILENCE_S)
    tell(counted=connections - first, grown_bytes=resident_bytes(pid) - memory, cpu_s=cpu_s)


def _open(port: int, first: int, last: int) -> list[Client]:
    """Open the connections with these numbers."""
    clients = []
    for begin in range(first, last, _OPENING):
        numbers = range(begin, min(begin + _OPENING, last))
        opening = [Client(port, f"127.0.0.{1 + number // _PER_ADDRESS}", is_greeted=False) for number in numbers]
        for number, client in zip(numbers, opening, strict=True):
            client.socket.sendall(CONNECT + f"SUB idle.{number} 1\r\n".encode() + PING)
        for client in opening:
            client.wait_for_pong()
        clients += opening
    return clients
