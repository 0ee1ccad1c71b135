"""A worker's end of the line to its supervisor: it reports, and answers how it is."""

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
from iris_py.net.lines import take_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_py import Node

__all__ = ["SupervisorLine"]

#: How often somebody looks whether the supervisor is still there while nothing else can. Too small: processor time while
#: modules are imported; too large: what nobody wants any more goes on for longer.
LOOK_S: Final = 1.0

AnyFamily = TypeVar("AnyFamily")


class SupervisorLine:
    """The line to the supervisor of this process.

    Args:
        reader: What comes.
        writer: What goes. It never holds up this process: a supervisor that does not read is waited for by nobody.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._families: Families | None = None

    @classmethod
    async def open(cls) -> SupervisorLine | None:
        """Return the line that the environment names, or None; it is taken out of the environment."""
        number = os.environ.pop(LINE_VARIABLE, None)
        if number is None:
            return None
        return cls(*await take_line(int(number), LINE_BYTES_MAX))

    def tell(self, message: FromWorker) -> None:
        """Send a message, now or as soon as it can be."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    @contextmanager
    def ending_with_supervisor(self) -> Iterator[None]:
        """Let the process end if the supervisor goes while the event loop stands still, within the ``with`` block."""
        is_over = threading.Event()
        sock = self._writer.get_extra_info("socket")
        threading.Thread(target=_end_with, args=(sock.fileno(), is_over), daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    async def go(self) -> Go | None:
        """Wait until the worker is to go on; None if the supervisor has gone."""
        while (message := await self._read()) is not None:
            if isinstance(message, Go):
                return message
        return None

    async def answer(self, node: Node) -> None:
        """Answer until the supervisor has gone.

        Args:
            node: The node whose state is told.
        """
        while (message := await self._read()) is not None:
            if isinstance(message, Ask):
                families = self._families = self._families or Families(node.name)
                metrics = await _gather(families.collect(node.statistics())) if message.has_metrics else []
                of_program = await _gather(program_families()) if message.has_metrics else []
                self.tell(Told(message.number, node.health(message.cluster), metrics, of_program))

    async def close(self) -> None:
        """Send what has not been sent, and close it."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except OSError:
            pass  # a supervisor that has gone wants to know nothing

    async def _read(self) -> FromSupervisor | None:
        try:
            line = await self._reader.readline()
        except OSError:
            return None
        return msgspec.json.decode(line, type=FromSupervisor) if line.endswith(b"\n") else None


async def _gather(metrics: Iterable[AnyFamily]) -> list[AnyFamily]:
    """Return the metrics, with a turn of the event loop after each, so that requests are not held up."""
    found = []
    for family in metrics:
        found.append(family)
        await asyncio.sleep(0)
    return found


def _end_with(descriptor: int, is_over: threading.Event) -> None:
    """End the process when the other end of a line is closed; give up when that is somebody else's to notice."""
    poll = select.poll()
    poll.register(descriptor, 0)  # a hang-up is told unasked
    while not is_over.is_set():
        if poll.poll(LOOK_S * 1000) and not is_over.is_set():
            os._exit(0)  # its modules may be at anything
