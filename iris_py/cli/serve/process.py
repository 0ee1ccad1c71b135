"""One worker process of `iris serve`, as the supervisor sees it: its reports, its state and its end."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.children import start_python
from iris_py.cli.outcome import complain
from iris_py.cli.serve.messages import LINE_BYTES_MAX, LINE_VARIABLE, FromWorker, Go, Report, StateAnswer, StateQuery
from iris_py.cli.standard_error import is_json
from iris_py.net.socket_pair import open_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.serve.messages import FromSupervisor
    from iris_py.net.socket_pair import Streams

__all__ = ["WorkerProcess"]

#: Time after which a leaving worker is killed (seconds): longer than a leaving member waits for running requests.
LEAVE_S: Final = 40.0
#: How long to read from an ended process (seconds): its last messages are in the socket, but a child may hold the socket open.
LAST_WORDS_S: Final = 1.0
#: Bytes of standard error read at once. Too small: a turn of the event loop for each line; too large: unused memory.
READ_BYTES: Final = 1 << 16


class WorkerProcess:
    """A worker process of `iris serve`, from start to end.

    Attributes:
        pid: The process id.
        began_ns: The start time, comparable to the times of files.
        files: The source files reported by the process so far.
        loaded: A future: True when the handler is imported, False if the process ends before.
        ready: A future: True when the process serves, False if it ends before.
        ended: A future: the exit code when the process has ended; negative for a signal.
    """

    def __init__(self, process: asyncio.subprocess.Process, began_ns: int, streams: Streams) -> None:
        self.pid: Final = process.pid
        self.began_ns: Final = began_ns
        self.files: set[str] = set()
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[bool] = loop.create_future()
        self.ready: asyncio.Future[bool] = loop.create_future()
        self._process = process
        self._reader, self._writer = streams
        self._questions: dict[int, asyncio.Future[StateAnswer]] = {}
        self._numbers = count(1)
        self._leaving: asyncio.Task[None] | None = None
        self.ended: Final = asyncio.create_task(self._live())

    @classmethod
    async def start(cls, command: Sequence[str], *, keeps_bytecode: bool) -> WorkerProcess:
        """Start a worker process, and return it.

        Args:
            command: The arguments of its command line.
            keeps_bytecode: Whether it may store compiled modules for the next process. Python confuses a changed file with its
                old version if both have the same size and second.

        Raises:
            OSError: No process, descriptor or memory is left.
        """
        began_ns = time.time_ns()
        async with open_line(LINE_BYTES_MAX) as (streams, theirs):
            # The connection ends with the supervisor, however that ends.
            process = await start_python(
                *([] if keeps_bytecode else ["-B"]),
                "-m",
                "iris_py",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE if is_json() else None,  # output besides its own JSON lines
                pass_fds=(theirs,),
                env={**os.environ, LINE_VARIABLE: str(theirs)},
            )
        return cls(process, began_ns, streams)

    @property
    def is_ready(self) -> bool:
        """Whether the process has begun to serve, and has not ended."""
        return not self.ended.done() and self.ready.done() and self.ready.result()

    @property
    def is_leaving(self) -> bool:
        """Whether the process was told to leave the cluster."""
        return self._leaving is not None

    def go(self, http: str) -> None:
        """Let the process connect and join as soon as its handler is imported.

        Args:
            http: The address of metrics and health of all workers; empty for none.
        """
        self._tell(Go(http))

    async def ask(self, cluster: str | None, within_s: float, *, has_metrics: bool = False) -> StateAnswer | None:
        """Query the health of the process; return the answer, or None without an answer in time.

        Args:
            cluster: The cluster concerned; None for the whole node.
            within_s: Timeout, in seconds.
            has_metrics: Whether the answer has metrics, too.
        """
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        self._tell(StateQuery(number, cluster, has_metrics))
        try:
            await asyncio.wait((answer, self.ended), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            del self._questions[number]

    def leave(self) -> asyncio.Task[None]:
        """Tell the process to leave the cluster and to end, and kill it after `LEAVE_S`. Return a task for the end."""
        if self._leaving is None:  # a second signal would end it at once
            self._leaving = asyncio.create_task(self._leave())
        return self._leaving

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if the process is running."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _leave(self) -> None:
        self.send(signal.SIGTERM)
        await asyncio.wait((self.ended,), timeout=LEAVE_S)
        if not self.ended.done():
            complain(f"process {self.pid} does not end by itself and is killed")
            self.send(signal.SIGKILL)
            await asyncio.wait((self.ended,))

    def _tell(self, message: FromSupervisor) -> None:
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def _live(self) -> int:
        tasks = [asyncio.create_task(self._listen())]
        if self._process.stderr is not None:
            tasks.append(asyncio.create_task(self._pass_on(self._process.stderr)))
        try:
            code = await self._process.wait()
            await asyncio.wait(tasks, timeout=LAST_WORDS_S)
            return code
        finally:
            for task in tasks:
                task.cancel()
            self._writer.close()
            for each in (self.loaded, self.ready):
                if not each.done():
                    each.set_result(False)

    async def _listen(self) -> None:
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                message = msgspec.json.decode(line, type=FromWorker)
                if isinstance(message, Report):
                    self._heed(message)
                elif (asked := self._questions.get(message.number)) is not None and not asked.done():
                    asked.set_result(message)
        except OSError:
            pass  # the process has ended
        except (ValueError, msgspec.MsgspecError) as exc:  # too long for a message, or malformed
            complain(f"messages of process {self.pid} are not read any more: {exc}")

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        """Write each line from the process's standard error as a JSON object."""
        from iris_py.cli.json_log import LineSplitter, put_objects

        splitter, decoder = LineSplitter(pid=self.pid), codecs.getincrementaldecoder("utf-8")("backslashreplace")
        try:
            while part := await stream.read(READ_BYTES):
                put_objects(splitter.feed(decoder.decode(part)))
        finally:
            put_objects(splitter.finish())

    def _heed(self, report: Report) -> None:
        self.files.update(report.files)
        for is_so, state in ((report.is_loaded, self.loaded), (report.is_ready, self.ready)):
            if is_so and not state.done():
                state.set_result(True)
