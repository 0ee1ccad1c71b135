"""The processes of `iris bench`: this module starts, instructs and queries them, and always ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypeVar

import msgspec

from iris_py.cli.bench import worker as program
from iris_py.cli.bench.messages import Ready, Said, WorkerFailed, WorkerReport, to_line
from iris_py.cli.children import Child, ChildGroup, run_all
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from iris_py.cli.bench.messages import Cue, Orders

__all__ = ["ANSWER_TIMEOUT_S", "BenchCrew", "BenchFailed", "Worker"]

#: Timeout for a process to be ready: an interpreter's start, a handshake and a join take less than 1 s, but machines can be
#: busy.
READY_TIMEOUT_S: Final = 30.0
#: Timeout for a report: even a busy event loop answers within milliseconds; a stopped one never does.
ANSWER_TIMEOUT_S: Final = 10.0
#: Timeout for a process whose node leaves a running network; more than :data:`iris_py.cli.bench.worker.LEAVE_S`, its own limit.
LEAVE_TIMEOUT_S: Final = 6.0
#: Maximum bytes of a line from a process: a report with the durations of a second takes some 20 KB.
LINE_BYTES_MAX: Final = 4 << 20
_DECODER: Final = msgspec.json.Decoder(Said)

_Expected = TypeVar("_Expected", Ready, WorkerReport)


class BenchFailed(IrisError):
    """A process of `iris bench` has ended unexpectedly, or does not answer."""


class Worker:
    """One process of `iris bench`: a load generator or a receiver.

    Attributes:
        side: The role of the process, such as ``member``.
        node: The id of the node in the process; empty without a node.
        address: The address of that node.
        makes_load: Whether it generates load.
        event_loop: The package of its event loop.
    """

    def __init__(self, side: str, child: Child) -> None:
        self.side = side
        self.node = ""
        self.address = ""
        self.makes_load = False
        self.event_loop = ""
        self._child = child

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    async def prepare(self, orders: Orders) -> None:
        """Send orders to the process, and wait until the process is ready."""
        await self._child.send(to_line(orders))
        ready = await self._hear(Ready, READY_TIMEOUT_S)
        self.node, self.address = ready.node, ready.address
        self.makes_load, self.event_loop = ready.makes_load, ready.event_loop

    async def cue(self, cue: Cue) -> None:
        """Send the process a cue: to begin, or to report."""
        await self._child.send(to_line(cue))

    async def hear(self, timeout_s: float = ANSWER_TIMEOUT_S) -> WorkerReport:
        """Wait for the next report of the process, and return it.

        Raises:
            BenchFailed: The process has ended, or is silent.
        """
        return await self._hear(WorkerReport, timeout_s)

    async def _hear(self, expected: type[_Expected], timeout_s: float) -> _Expected:
        try:
            line = await self._child.read_line(timeout_s)
        except TimeoutError:
            raise BenchFailed(self._describe(f"said nothing for {timeout_s:g} s")) from None
        if not line:
            raise BenchFailed(self._describe("ended"))
        said = _DECODER.decode(line)
        if isinstance(said, WorkerFailed):
            raise BenchFailed(f"a {self.side} process failed with {said.error}: {said.text}")
        assert isinstance(said, expected)
        return said

    def _describe(self, what: str) -> str:
        last = self._child.last_words()
        return f"a {self.side} process (pid {self.pid}) {what}{f': {last}' if last else ''}. Run it again."


class BenchCrew:
    """All processes of a measurement. Leaving the ``async with`` ends them; a process also ends with its standard input.

    Args:
        is_polite: Whether the nodes of the processes leave the network cleanly before they end, as in a running network.
    """

    def __init__(self, *, is_polite: bool) -> None:
        self.workers: list[Worker] = []
        self._is_polite = is_polite
        self._children = ChildGroup(LEAVE_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        """Return the crew, without a process yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every process, and wait until all are gone."""
        await self._children.end(at_once=not self._is_polite)

    def of(self, side: str) -> list[Worker]:
        """Return the processes with a role, such as ``member``."""
        return [each for each in self.workers if each.side == side]

    async def start(self, side: str, orders: Orders) -> Worker:
        """Start a process for a role, and return when it is ready for cues.

        Raises:
            BenchFailed: The process does not get ready.
        """
        child = await self._children.start("-m", program.__name__, line_bytes_max=LINE_BYTES_MAX)
        worker = Worker(side, child)
        self.workers.append(worker)
        await worker.prepare(orders)
        return worker

    async def start_all(self, side: str, several: Sequence[Orders]) -> None:
        """Start a process for a role with each of the orders, concurrently; return when all are ready."""
        await run_all(self.start(side, orders) for orders in several)
