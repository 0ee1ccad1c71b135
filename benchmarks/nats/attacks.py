"""``python -m benchmarks.nats.attacks``: what an honest client of a NATS door notices of an attacker beside it.

Two honest connections send a message from one to the other, some hundred times a second; the figure is the 99th percentile of
the time of a message, without the attacker and beside it, in one run. All processes share the machine, so the attacker also
takes processor time from the honest clients. The first row shows how much: its attacker only computes, without a connection.
With ``--nats-server``, the same attacks also meet nats-server, without users, beside the same honest clients.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console

from benchmarks.cli import measure
from benchmarks.harness import START_TIMEOUT_S, BenchmarkFailed, Sample, Section, Stage, Trial
from benchmarks.nats.attackers import ATTACKS, attack
from benchmarks.nats.clients import READ_BYTES, Client, msg_bytes, pub
from benchmarks.nats.servers import SERVER, Door, missing_reason
from benchmarks.peers.servers import Broker
from benchmarks.report import as_table
from benchmarks.web.clients import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How much longer a message of an honest client may take beside an attacker.
TIMES_MAX: Final = 2.0
ALONE_S: Final = 2.0
BESIDE_S: Final = 3.0
#: Between two messages of the honest client.
PAUSE_S: Final = 1e-3
_WIDTH: Final = 128
_SUBJECT: Final = "honest.subject"
_PAYLOAD: Final = b"x" * 16
_HONEST: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"auth_token":"honest"}\r\n'


def section(scale: float = 1.0, *, has_peer: bool = False) -> Section:
    """Return the attacks; with ``has_peer`` each also on nats-server."""
    trials: list[Trial] = []
    for each in ATTACKS:
        name = each.__name__.replace("_", " ")
        trials.append(Trial(name, partial(_measure, each.__name__, scale)))
        if has_peer:
            trials.append(Trial(f"{name}, {SERVER}", partial(_measure, each.__name__, scale, is_peer=True)))
    return Section("attacks", "The time of a message from one honest client to another, alone and beside an attacker.", trials)


def settings() -> str:
    """Return the file of a door: two users with all rights, and a user with a password and no right."""
    from iris_py.doors.nats.passwords import hash_password, hash_token

    everything = 'publish = [">"]\nsubscribe = [">"]\n'
    users = (f'[users.{name}]\ntoken = "{hash_token(name)}"\n{everything}' for name in ("honest", "attacker"))
    password = f'[users.ann]\npassword = "{hash_password("right", bytes(16)).text()}"\n'
    return '[nats]\nlisten = "127.0.0.1:0"\n' + "".join(users) + password


def _measure(name: str, scale: float, *, is_peer: bool = False) -> Sequence[Sample]:
    with Stage() as stage:
        door: Door | Broker = Broker(SERVER, stage.home.directory) if is_peer else Door(stage.home, "door", settings=settings())
        stage.enter_context(door)
        sender, receiver = (Client(door.port, is_greeted=False) for _ in range(2))
        for each in (sender, receiver):
            stage.callback(each.socket.close)
        sender.ask(_HONEST)
        receiver.ask(_HONEST + f"SUB {_SUBJECT} 1\r\n".encode())
        _send(sender, receiver, ALONE_S * scale / 4)
        alone = _send(sender, receiver, ALONE_S * scale)
        attacker = stage.start(attack)
        attacker.begin({"attack": name, "port": door.port})
        attacker.listen(START_TIMEOUT_S)
        beside = _send(sender, receiver, BESIDE_S * scale)
        attacker.kill()
    before, after = percentile(alone, 0.99), percentile(beside, 0.99)
    return [
        Sample("p99 alone", before, "us"),
        Sample("p99 beside it", after, "us"),
        Sample("times", after / before, "", f"more than {TIMES_MAX:g}" if after > TIMES_MAX * before else ""),
        Sample("longest", max(beside) / 1e3, "ms"),
    ]


def _send(sender: Client, receiver: Client, seconds: float) -> list[float]:
    """Send messages for some time; return the microseconds of each."""
    message, size = pub(_SUBJECT, _PAYLOAD), msg_bytes(_SUBJECT, _PAYLOAD)
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, left = time.perf_counter(), size
        sender.socket.sendall(message)
        while left:
            piece = receiver.socket.recv(min(left, READ_BYTES))
            if not piece:
                raise BenchmarkFailed("the door has ended an honest client")
            left -= len(piece)
        times.append((time.perf_counter() - began) * 1e6)
        time.sleep(PAUSE_S)
    return times


def main(
    rounds: Annotated[int, typer.Option(min=1, max=100, help="How often each attack has its turn.")] = 5,
    nats_server: Annotated[bool, typer.Option(help="Attack nats-server, too.")] = False,
    quick: Annotated[bool, typer.Option(help="Measure next to nothing: shows that everything works.")] = False,
) -> None:
    """Measure what an honest client of a NATS door notices of attackers."""
    load = os.getloadavg()[0]
    if nats_server and (reason := missing_reason()):
        print(f"benchmarks: {reason}", file=sys.stderr)
        raise typer.Exit(2)
    try:
        results = measure([section(1 / 10 if quick else 1.0, has_peer=nats_server)], rounds)
    except BenchmarkFailed as exc:
        print(f"benchmarks: {exc}", file=sys.stderr)
        raise typer.Exit(1) from None
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH)
    for each, rows in results:
        console.print(as_table(each, rows))
    console.print(f"load of the machine before the run: {load:.1f}")


if __name__ == "__main__":
    typer.run(main)
