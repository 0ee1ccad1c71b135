"""A worker's end of the connection to its supervisor: reports, and answers to queries."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from iris_py.cli.serve.messages import LINE_BYTES_MAX, LINE_VARIABLE, Ask, FromSupervisor, FromWorker, Go, Told
from iris_py.metrics.families import Families
from iris_py.metrics.prometheus import program_families
from iris_py.net.socket_pair import take_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_py import Node

__all__ = ["SupervisorLine"]

#: Interval of checks for the supervisor while the event loop is blocked. Too small: processor time during imports; too large:
#: an orphaned worker runs for longer.
LOOK_S: Final = 1.0

AnyFamily = TypeVar("AnyFamily")


class SupervisorLine:
    """The connection to the supervisor of this process.

    Args:
        reader: The receiving side.
        writer: The sending side. Sending never blocks, even if the supervisor does not read.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._families: Families | None = None

    @classmethod
    async def open(cls) -> SupervisorLine | None:
        """Return the connection named by the environment, or None; remove it from the environment."""
        number = os.environ.pop(LINE_VARIABLE, None)
        if number is None:
            return None
        return cls(*await take_line(int(number), LINE_BYTES_MAX))

    def tell(self, message: FromWorker) -> None:
        """Send a message, now or as soon as possible."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    @contextmanager
    def ending_with_supervisor(self) -> Iterator[None]:
        """End the process if the supervisor ends while the event loop is blocked inside the ``with`` block."""
        is_over = threading.Event()
        sock = self._writer.get_extra_info("socket")
        threading.Thread(target=_end_with, args=(sock.fileno(), is_over), daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    async def go(self) -> Go | None:
        """Wait for the order to continue; None if the supervisor has ended."""
        while (message := await self._read()) is not None:
            if isinstance(message, Go):
                return message
        return None

    async def answer(self, node: Node) -> None:
        """Answer queries until the supervisor has ended.

        Args:
            node: The node to report on.
        """
        while (message := await self._read()) is not None:
            if isinstance(message, Ask):
                families = self._families = self._families or Families(node.name)
                metrics = await _gather(families.collect(node.statistics())) if message.has_metrics else []
                of_program = await _gather(program_families()) if message.has_metrics else []
                self.tell(Told(message.number, node.health(message.cluster), metrics, of_program))

    async def close(self) -> None:
        """Send the waiting messages, and close the connection."""
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
    """Return the metrics, with a turn of the event loop after each, so that requests are not delayed."""
    found = []
    for family in metrics:
        found.append(family)
        await asyncio.sleep(0)
    return found


def _end_with(descriptor: int, is_over: threading.Event) -> None:
    """End the process when the other end of a connection is closed; stop when the event loop takes over this check."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is always reported
    while not is_over.is_set():
        if poll.poll(LOOK_S * 1000) and not is_over.is_set():
            os._exit(0)  # its modules may be in any state
