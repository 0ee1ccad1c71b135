"""Child processes of a command: Python programs that exchange lines of text with the command and end with it.

A child ends when its standard input is closed, so a killed command leaves no process behind.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from typing import IO, TYPE_CHECKING, Any, Final

from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

__all__ = ["Child", "ChildGroup", "run_all", "start_python"]

#: Bytes from the end of a child's standard error in the text of an error. Too small: the cause is cut off; too large: a
#: traceback fills the terminal.
LAST_WORDS_BYTES: Final = 500
#: Default limit of a line's length in bytes. Too small: a child with a long line is killed; too large: a broken child fills the
#: memory of the command.
LINE_BYTES_MAX: Final = 1 << 16


async def start_python(*arguments: str, **options: Any) -> asyncio.subprocess.Process:  # noqa: ANN401 - of many types
    """Start a Python program in a new session: Ctrl-C then reaches only the command, which ends its children.

    Args:
        arguments: The arguments of the Python interpreter.
        options: As for `asyncio.create_subprocess_exec`.
    """
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, start_new_session=True, **options)


async def run_all(several: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run coroutines concurrently, and wait for all. The first failure cancels the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for each in several:
                tasks.create_task(each)
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


class Child:
    """A child process. Made by :meth:`start` or :meth:`ChildGroup.start`.

    Attributes:
        pid: The process id.
    """

    def __init__(self, process: asyncio.subprocess.Process, errors: IO[bytes] | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid: Final = process.pid
        self._process = process
        self._input = process.stdin
        self._output = process.stdout
        self._errors = errors

    @classmethod
    async def start(
        cls,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        directory: str | None = None,
        errors: IO[bytes] | None = None,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> Child:
        """Start a Python program as a child process.

        Args:
            arguments: The arguments of the Python interpreter.
            environment: The environment of the child; None for the environment of this process.
            directory: The working directory of the child; None for the directory of this process.
            errors: The file for the child's standard error; None for a temporary file, which `last_words` reads.
            line_bytes_max: Maximum bytes of a line from the child.

        Raises:
            OSError: No process, descriptor or memory is left.
        """
        own = tempfile.TemporaryFile() if errors is None else None  # noqa: SIM115 - a pipe would have to be drained
        try:
            process = await start_python(
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors if own is None else own,
                env=environment,
                cwd=directory,
                limit=line_bytes_max,
            )
        except BaseException:
            if own is not None:
                own.close()
            raise
        return cls(process, own)

    def write(self, line: bytes) -> None:
        """Send the child a line without waiting. After the end of the child the line is lost, and no further line arrives."""
        try:
            self._input.write(line)
        except (OSError, RuntimeError):  # the second is raised by uvloop
            pass

    async def send(self, line: bytes) -> None:
        """Send the child a line, and wait while the child does not read. A line after the child's end is lost."""
        self.write(line)
        try:
            await self._input.drain()
        except (OSError, RuntimeError):
            pass

    async def read_line(self, timeout_s: float | None = None) -> bytes:
        """Return the child's next line with its end; empty at the end of the output. A child with too long a line is killed.

        Raises:
            TimeoutError: The line does not arrive in time.
        """
        try:
            line = await asyncio.wait_for(self._output.readline(), timeout_s)
        except TimeoutError:
            raise
        except OSError:
            return b""
        except ValueError:
            self.kill()
            return b""
        return line if line.endswith(b"\n") else b""

    def last_words(self) -> str:
        """Return the end of the child's standard error in one line."""
        if self._errors is None or self._errors.closed:
            return ""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - LAST_WORDS_BYTES))
        return one_line(self._errors.read().decode(errors="replace"))

    def close_input(self) -> None:
        """Close the child's standard input, which makes the child leave the network and end."""
        self._input.close()

    def kill(self) -> None:
        """Kill the child at once, if the child is running."""
        try:
            self._process.kill()
        except ProcessLookupError:
            pass

    async def wait(self) -> int:
        """Wait until the child has ended, and return its exit status; negative for a signal."""
        status = await self._process.wait()
        if self._errors is not None:
            self._errors.close()
        return status


class ChildGroup:
    """The child processes of a command. :meth:`end` ends all of them.

    Args:
        leave_s: Time for a process to leave by itself, in seconds. Too small: other nodes have to detect the departure; too
            large: the command waits for a hung process.

    Attributes:
        started: All processes, in the order of their starts.
    """

    def __init__(self, leave_s: float) -> None:
        self.started: list[Child] = []
        self._leave_s = leave_s

    async def start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, line_bytes_max: int = LINE_BYTES_MAX
    ) -> Child:
        """Start a child process in this group, with the arguments and errors of :meth:`Child.start`."""
        child = await Child.start(*arguments, environment=environment, line_bytes_max=line_bytes_max)
        self.started.append(child)
        return child

    async def end(self, *, at_once: bool) -> None:
        """End every child process, and wait until all have ended.

        Args:
            at_once: Whether to kill the processes without letting them leave.
        """
        try:
            if not at_once:
                for each in self.started:
                    each.close_input()
                await asyncio.gather(*map(self._wait_for_leaving, self.started))
        finally:
            for each in self.started:
                each.kill()
            for each in self.started:
                await each.wait()

    async def _wait_for_leaving(self, child: Child) -> None:
        try:
            await asyncio.wait_for(child.wait(), self._leave_s)
        except TimeoutError:
            pass  # it is killed
