"""One process that serves, as its supervisor sees it: what it reports, how it is, and its end."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import sys
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.lines import is_json
from iris_py.cli.outcome import complain
from iris_py.cli.serve.messages import LINE_BYTES_MAX, LINE_VARIABLE, Ask, FromWorker, Go, Report, Told
from iris_py.net.lines import open_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.serve.messages import FromSupervisor
    from iris_py.net.lines import Streams

__all__ = ["WorkerProcess"]

#: The end of workers that do not leave: longer than a member waits for requests that run.
LEAVE_S: Final = 40.0
#: How long a process that has ended is listened to: what it said last is in the socket, but a child of it may hold that open.
LAST_WORDS_S: Final = 1.0
#: What is read of its standard error at once. Too small: a turn of the event loop for each line; too large: memory for nothing.
READ_BYTES: Final = 1 << 16


class WorkerProcess:
    """One process, from its start to its end.

    Attributes:
        pid: Its number.
        began_ns: When it was started, as the times of files are.
        files: The files that it was made of, as far as it has said.
        loaded: Done when its handler is imported; with False if it ends before.
        ready: Done when it serves; with False if it ends before.
        ended: Done with its exit code when it has ended; of a signal the negative number.
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
        self._questions: dict[int, asyncio.Future[Told]] = {}
        self._numbers = count(1)
        self._leaving: asyncio.Task[None] | None = None
        self.ended: Final = asyncio.create_task(self._live())

    @classmethod
    async def start(cls, command: Sequence[str], *, keeps_bytecode: bool) -> WorkerProcess:
        """Start a process.

        Args:
            command: The arguments of its command line.
            keeps_bytecode: Whether it may keep the compiled modules for the next process. Python takes them for those of a file
                that has changed, if that has the same size and is from the same second.

        Raises:
            OSError: No process, descriptor or memory is left.
        """
        began_ns = time.time_ns()
        async with open_line(LINE_BYTES_MAX) as (streams, theirs):
            # A session of its own: Ctrl-C is for the supervisor alone, which lets the workers leave. The line ends with the
            # supervisor, however that ends.
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *([] if keeps_bytecode else ["-B"]),
                "-m",
                "iris_py",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE if is_json() else None,  # what it writes past its own lines of JSON
                pass_fds=(theirs,),
                start_new_session=True,
                env={**os.environ, LINE_VARIABLE: str(theirs)},
            )
        return cls(process, began_ns, streams)

    @property
    def is_ready(self) -> bool:
        """Whether it has come to serve, and has not ended since."""
        return not self.ended.done() and self.ready.done() and self.ready.result()

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to leave."""
        return self._leaving is not None

    def go(self, http: str) -> None:
        """Let it connect and join, as soon as its handler is imported.

        Args:
            http: Where metrics and health of all are served; empty for nowhere.
        """
        self._tell(Go(http))

    async def ask(self, cluster: str | None, within_s: float, *, has_metrics: bool = False) -> Told | None:
        """Return how it is; None if it does not say so in time.

        Args:
            cluster: The cluster that is asked about; None for the whole node.
            within_s: How long to wait, in seconds.
            has_metrics: Whether metrics are wanted.
        """
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        self._tell(Ask(number, cluster, has_metrics))
        try:
            await asyncio.wait((answer, self.ended), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            del self._questions[number]

    def leave(self) -> asyncio.Task[None]:
        """Let it leave its cluster and end; one that does not is killed. Return what is done when it has ended."""
        if self._leaving is None:  # a second signal would end it at once
            self._leaving = asyncio.create_task(self._leave())
        return self._leaving

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _leave(self) -> None:
        self.send(signal.SIGTERM)
        await asyncio.wait((self.ended,), timeout=LEAVE_S)
        if not self.ended.done():
            complain(f"process {self.pid} does not end by itself, and is killed")
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
            pass  # it has ended
        except (ValueError, msgspec.MsgspecError) as exc:  # more than a message may have, or none
            complain(f"process {self.pid} is not listened to any more: {exc}")

    async def _pass_on(self, stream: asyncio.StreamReader) -> None:
        """Write each line of the standard error of the process as an object of JSON."""
        from iris_py.cli.json_lines import LineSplitter, put_objects

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
