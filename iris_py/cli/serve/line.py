"""A worker's end of the connection to the supervisor of `iris serve`: sends reports, and answers queries."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from iris_py.cli.serve.messages import LINE_BYTES_MAX, LINE_VARIABLE, FromSupervisor, FromWorker, Go, StateAnswer, StateQuery
from iris_py.metrics.families import Families
from iris_py.metrics.prometheus import program_families
from iris_py.net.socket_pair import take_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_py import Node

__all__ = ["SupervisorLine"]

#: Interval at which a thread checks for the supervisor's end (seconds). Too small: processor time during imports; too large:
#: an orphaned worker runs for longer.
LOOK_S: Final = 1.0

AnyFamily = TypeVar("AnyFamily")


class SupervisorLine:
    """The connection of a worker process to its supervisor.

    Args:
        reader: The receiving side.
        writer: The sending side. Sending never blocks, even if the supervisor does not read.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._families: Families | None = None

    @classmethod
    async def open(cls) -> SupervisorLine | None:
        """Open the connection named by an environment variable, and remove the variable; return None without a supervisor."""
        number = os.environ.pop(LINE_VARIABLE, None)
        if number is None:
            return None
        return cls(*await take_line(int(number), LINE_BYTES_MAX))

    def tell(self, message: FromWorker) -> None:
        """Send the supervisor a message, without waiting for the supervisor to read."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    @contextmanager
    def ending_with_supervisor(self) -> Iterator[None]:
        """In the block, end the process as soon as the supervisor has ended, even if the event loop is blocked."""
        is_over = threading.Event()
        sock = self._writer.get_extra_info("socket")
        threading.Thread(target=_end_with, args=(sock.fileno(), is_over), daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    async def go(self) -> Go | None:
        """Wait for the supervisor's order to connect and join; return None if the supervisor has ended."""
        while (message := await self._read()) is not None:
            if isinstance(message, Go):
                return message
        return None

    async def answer(self, node: Node) -> None:
        """Answer the supervisor's queries about a node until the supervisor has ended.

        Args:
            node: The node to report on.
        """
        while (message := await self._read()) is not None:
            if isinstance(message, StateQuery):
                families = self._families = self._families or Families(node.name)
                metrics = await _gather(families.collect(node.statistics())) if message.has_metrics else []
                of_program = await _gather(program_families()) if message.has_metrics else []
                self.tell(StateAnswer(message.number, node.health(message.cluster), metrics, of_program))

    async def close(self) -> None:
        """Send all waiting messages, and close the connection."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # the supervisor has ended

    async def _read(self) -> FromSupervisor | None:
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return msgspec.json.decode(line, type=FromSupervisor) if line.endswith(b"\n") else None


async def _gather(metrics: Iterable[AnyFamily]) -> list[AnyFamily]:
    """Return all metrics, with a turn of the event loop after each, so requests are not delayed."""
    found = []
    for family in metrics:
        found.append(family)
        await asyncio.sleep(0)
    return found


def _end_with(descriptor: int, is_over: threading.Event) -> None:
    """End the process when the other end of a connection is closed. Stop when `is_over` is set: the event loop then watches."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is always reported
    while not is_over.is_set():
        if poll.poll(LOOK_S * 1000) and not is_over.is_set():
            os._exit(0)  # its modules may be in any state
