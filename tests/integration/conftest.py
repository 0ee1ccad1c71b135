"""Fixtures on real sockets: a home of their own, member processes, event loops that must be left clean, a proxy."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pytest
import uvloop

from tests import warm
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

Result = TypeVar("Result")

#: For anything to happen on a busy machine. Nothing takes a tenth of it; only a failing test waits for so long.
PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of this test alone: without a configured secret, so is its network."""
    for name in list(os.environ):
        if name.startswith(("IRIS_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


# -- event loops


async def until(condition: Callable[[], object], what: str = "it", describe: Callable[[], object] = str) -> None:
    """Poll until something is the case; if that never comes, fail with what `describe` returns then."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + PATIENCE_S
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(f"{what} was not the case within {PATIENCE_S:g} s {describe()}".rstrip())
        await asyncio.sleep(0.005)


class OwnTime:
    """Counts the time in which this event loop had its turns: what promises times may be held to on a busy machine.

    Timers are late while the process waits for the processor, or stands still, and what follows from them is as late.

    Attributes:
        passed_s: How much has passed, at most as much as by the clock.
    """

    TURN_S: Final = 0.01

    def __init__(self) -> None:
        self.passed_s = 0.0

    async def __aenter__(self) -> Self:
        self._counting = asyncio.create_task(self._count())
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._counting.cancel()
        await asyncio.gather(self._counting, return_exceptions=True)

    async def _count(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(self.TURN_S)
            self.passed_s += min(loop.time() - began, 2 * self.TURN_S)


def sockets_to_java() -> set[str]:
    """Return the sockets to the Java of Spark, if tests of Spark ran in this process.

    py4j opens one for each thread that has none, whenever that thread happens to collect an object of Java, and keeps it. One
    that Java resets later is in no table of the system any more, so that it cannot be told what it was.
    """
    context = sys.modules.get("pyspark.core.context") or sys.modules.get("pyspark.context")
    gateway = None if context is None else context.SparkContext._gateway
    if gateway is None:
        return set()
    port = f":{gateway.gateway_parameters.port:04X}"
    tables = [Path(f"/proc/self/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return {f"socket:[{fields[9]}]" for fields in lines if fields[2].endswith(port)}


def open_sockets() -> set[str]:
    """Return the sockets that this process has open, besides those to who starts processes for the tests."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # of the listing itself
        if target.startswith("socket:"):
            found.add(target)
    return found - warm.sockets()


def describe_sockets(sockets: set[str]) -> list[str]:
    """Return these sockets as the system describes them, and the command whose process has the other end of each."""
    found = []
    tables = {
        name: [line.split() for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]]
        for name in ("tcp", "tcp6", "udp", "udp6", "unix", "netlink")
    }
    ends = {(line[1][-13:], line[2][-13:]): line[9] for name in ("tcp", "tcp6") for line in tables[name]}
    for name, lines in tables.items():
        for fields in lines:
            if any(f"socket:[{field}]" in sockets for field in fields):
                found.append(f"{name} {' '.join(fields)}")
                other = ends.get((fields[2][-13:], fields[1][-13:])) if name.startswith("tcp") else None
                found += [f"its other end: {owner_of(other)}"] if other else []
    return [*sorted(sockets), *found]


def owner_of(inode: str) -> str:
    """Return the command whose process has a socket open."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(descriptor) == f"socket:[{inode}]" for descriptor in (process / "fd").iterdir()):
                return (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # it ended while it was looked at
    return "no process"


class Loops:
    """Runs coroutines on one kind of event loop, and checks that they leave nothing behind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.until = until
        self.open_sockets = open_sockets

    def run(self, main: Coroutine[Any, Any, Result], patience_s: float = PATIENCE_S) -> Result:
        factory = uvloop.new_event_loop if self.name == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            problems: list[dict[str, Any]] = []
            runner.get_loop().set_exception_handler(lambda _loop, context: problems.append(context))
            result = runner.run(self._guard(main, patience_s))
            del main
            gc.collect()  # what was forgotten says so: warnings are errors
        assert not problems, problems
        return result

    async def _guard(self, main: Coroutine[Any, Any, Result], patience_s: float) -> Result:
        before = open_sockets()
        async with asyncio.timeout(patience_s):
            result = await main
        await self.check_clean(before)
        return result

    async def check_clean(self, sockets: set[str], tasks: set[asyncio.Task[Any]] | None = None) -> None:
        """Fail unless only these sockets, those to Java, and only these tasks besides the running one, are left."""
        known = {*(tasks or ()), asyncio.current_task()}
        await until(lambda: not asyncio.all_tasks() - known, "no task left")
        await until(
            lambda: not open_sockets() - sockets - sockets_to_java(),
            "no socket left",
            lambda: describe_sockets(open_sockets() - sockets - sockets_to_java()),
        )


@pytest.fixture(params=["asyncio", "uvloop"])
def loops(request: pytest.FixtureRequest, home: Path) -> Loops:
    """Both kinds of event loops, one after the other."""
    return Loops(request.param)


@pytest.fixture
def loop(home: Path) -> Loops:
    """The event loop that programs get, for tests that need no other."""
    return Loops("uvloop")


# -- processes


class MemberProcess:
    """One member in a process of its own; see member.py."""

    def __init__(self, cluster: str, log: Path, loop: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-X", "dev", str(Path(__file__).with_name("member.py")), cluster, str(log), loop]
        pipe = subprocess.PIPE
        self._process = warm.Process(command, stdout=pipe, stderr=pipe, env={**os.environ, **environment})
        self._log = log
        self.id = ""
        self.address = ""

    def wait_until_serving(self) -> MemberProcess:
        """Wait for the line that says so."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert readable, "the member does not start"
        words = self._process.stdout.readline().decode().split()
        if words[:1] != ["serving"]:
            self._process.kill()
            raise AssertionError(self._process.communicate()[1].decode())
        self.id, self.address = words[1:]
        return self

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def leave(self) -> None:
        """Ask it to leave, and wait until it has; nothing may have gone wrong there."""
        self.send_signal(signal.SIGTERM)
        out, errors = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, errors.decode()
        assert not without_standstills(errors.decode()), errors.decode()
        assert out.startswith(b"left")

    def executed(self) -> list[bytes]:
        """Return the requests that it began, in order."""
        return self._log.read_bytes().splitlines() if self._log.exists() else []

    def reap(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Crew:
    """Starts member processes, and ends them when the test is over.

    Attributes:
        directory: Where they leave what they have to say.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._started: list[MemberProcess] = []

    def begin(self, cluster: str, *, loop: str = "uvloop", **environment: str) -> MemberProcess:
        """Start a member without waiting for it."""
        member = MemberProcess(cluster, self.directory / f"member-{len(self._started)}.log", loop, environment)
        self._started.append(member)
        return member

    def start(self, cluster: str, count: int, *, loop: str = "uvloop", **environment: str) -> list[MemberProcess]:
        """Start members; return when all of them serve."""
        members = [self.begin(cluster, loop=loop, **environment) for _ in range(count)]
        return [member.wait_until_serving() for member in members]

    def executed(self) -> list[bytes]:
        """Return the requests that all members together began."""
        return [line for member in self._started for line in member.executed()]

    def reap(self) -> None:
        for member in self._started:
            member.reap()


@pytest.fixture
def crew(home: Path) -> Iterator[Crew]:
    """Member processes of this test's own network."""
    crew = Crew(home)
    try:
        yield crew
    finally:
        crew.reap()


# -- a proxy that sees, and changes, everything


PREAMBLE_BYTES = 19


class Proxy:
    """Forwards TCP connections to a node, record by record, and keeps what passed.

    Attributes:
        address: Where to dial.
        streams: What passed, one entry per connection and direction, without the public preamble.
        opened: How many connections were made.
        closed: How many of them have ended.
    """

    def __init__(self, target: str, change: Callable[[int, int, bool, bytes], list[bytes] | None] | None = None) -> None:
        """Create a proxy; use it with ``async with``.

        Args:
            target: The address of the node.
            change: Given (connection, number of the record, is it from the one who dialled, record), returns what to forward;
                None to end the connection there. The handshake has no number and passes.
        """
        self.address = ""
        self.streams: list[bytearray] = []
        self.opened = 0
        self.closed = 0
        self._target = target
        self._change = change
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number = self.opened
        self.opened += 1
        host, port = self._target.split(":")
        writers = [writer]
        try:
            there, back = await asyncio.open_connection(host, int(port))
            writers.append(back)
            ways = [self._forward(number, reader, back, True), self._forward(number, there, writer, False)]
            pumps = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in writers:
                each.transport.abort()
            self.closed += 1
            self._tasks.discard(task)

    async def _forward(
        self, connection: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_dialler: bool
    ) -> None:
        stream = bytearray()
        self.streams.append(stream)
        head = await reader.readexactly(PREAMBLE_BYTES if is_dialler else 2)
        rest = await reader.readexactly(struct.unpack(">H", head[-2:])[0])
        stream += rest
        writer.write(head + rest)
        number = 0
        while True:
            length = await reader.readexactly(4)
            record = length + await reader.readexactly(struct.unpack(">I", length)[0])
            stream += record
            changed = [record] if self._change is None else self._change(connection, number, is_dialler, record)
            if changed is None:
                return
            writer.write(b"".join(changed))
            await writer.drain()
            number += 1


@pytest.fixture
def proxy() -> type[Proxy]:
    """The class of proxies."""
    return Proxy
