"""The processes of `iris bench`: started, instructed, queried, and always cleaned up."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from typing import IO, TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from iris_py.cli.bench import worker as program
from iris_py.cli.bench.messages import Failed, Ready, Report, Said, to_line
from iris_py.cli.outcome import one_line
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from iris_py.cli.bench.messages import Cue, Orders

__all__ = ["ANSWER_TIMEOUT_S", "BenchFailed", "Crew", "Worker"]

#: Timeout for a process to be ready: an interpreter's start, a handshake and a join take less than 1 s, but machines can be
#: busy.
READY_TIMEOUT_S: Final = 30.0
#: Timeout for a report: even a busy event loop answers within milliseconds; a stopped one never does.
ANSWER_TIMEOUT_S: Final = 10.0
#: Timeout for a node to leave a running network; more than :data:`iris_py.cli.bench.worker.LEAVE_S`.
LEAVE_TIMEOUT_S: Final = 6.0
#: Maximum bytes of a process's line: the durations of a second take some 20 KB.
LINE_BYTES_MAX: Final = 4 << 20
_DECODER: Final = msgspec.json.Decoder(Said)

_Expected = TypeVar("_Expected", Ready, Report)


class BenchFailed(IrisError):
    """A process of the measurement has failed."""


class Worker:
    """One process.

    Attributes:
        side: The role, such as ``member``.
        node: The id of its node; empty if it has none.
        address: The address of its node.
        makes_load: Whether it generates load.
        event_loop: The package of its event loop.
    """

    def __init__(self, side: str, process: asyncio.subprocess.Process, errors: IO[bytes]) -> None:
        self.side = side
        self.node = ""
        self.address = ""
        self.makes_load = False
        self.event_loop = ""
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def prepare(self, orders: Orders) -> None:
        """Send orders to the process, and wait until it is ready."""
        await self._send(to_line(orders))
        ready = await self._hear(Ready, READY_TIMEOUT_S)
        self.node, self.address = ready.node, ready.address
        self.makes_load, self.event_loop = ready.makes_load, ready.event_loop

    async def cue(self, cue: Cue) -> None:
        """Send a cue."""
        await self._send(to_line(cue))

    async def hear(self, timeout_s: float = ANSWER_TIMEOUT_S) -> Report:
        """Return the next report.

        Raises:
            BenchFailed: The process has ended, or is silent.
        """
        return await self._hear(Report, timeout_s)

    async def leave(self) -> None:
        """Let the process leave its network, and kill it after a timeout."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), LEAVE_TIMEOUT_S)
        except TimeoutError:
            self.kill()

    def kill(self) -> None:
        """Kill the process at once."""
        try:
            self._process.kill()
        except ProcessLookupError:
            pass  # it has ended already

    async def clear_away(self) -> None:
        """Wait until the process is gone."""
        await self._process.wait()
        self._errors.close()

    async def _send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        except (OSError, RuntimeError):  # the second is raised by uvloop
            pass  # it has ended, so its next message will be missing

    async def _hear(self, expected: type[_Expected], timeout_s: float) -> _Expected:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            raise BenchFailed(self._describe(f"said nothing for {timeout_s:g} s")) from None
        except (OSError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            raise BenchFailed(self._describe("ended"))
        said = _DECODER.decode(line)
        if isinstance(said, Failed):
            raise BenchFailed(f"a {self.side} process failed with {said.error}: {said.text}")
        assert isinstance(said, expected)
        return said

    def _describe(self, what: str) -> str:
        self._errors.seek(0)
        last = one_line(self._errors.read()[-500:].decode(errors="replace"))
        return f"a {self.side} process (pid {self.pid}) {what}{f': {last}' if last else ''}. Run it again."


class Crew:
    """All processes of a measurement. Leaving the ``async with`` ends them; each also ends with its standard input.

    Args:
        is_polite: Whether their nodes leave the network; a private network ends with them.
    """

    def __init__(self, *, is_polite: bool) -> None:
        self.workers: list[Worker] = []
        self._is_polite = is_polite

    async def __aenter__(self) -> Self:
        """Start no process yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every process, and wait until it is gone."""
        try:
            if self._is_polite:
                await asyncio.gather(*(each.leave() for each in self.workers))
        finally:
            for each in self.workers:
                each.kill()
            for each in self.workers:
                await each.clear_away()

    def of(self, side: str) -> list[Worker]:
        """Return the processes of one side."""
        return [each for each in self.workers if each.side == side]

    async def start(self, side: str, orders: Orders) -> Worker:
        """Start a process, and return when it is ready.

        Raises:
            BenchFailed: The process does not get ready.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is gone; a pipe would have to be drained
        # A session of its own, so that Ctrl-C reaches only this process, which then ends the others.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", program.__name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            limit=LINE_BYTES_MAX,
        )
        worker = Worker(side, process, errors)
        self.workers.append(worker)
        await worker.prepare(orders)
        return worker

    async def start_all(self, side: str, several: Sequence[Orders]) -> None:
        """Start processes concurrently."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for orders in several:
                    tasks.create_task(self.start(side, orders))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others
