"""The slot of a worker in `iris serve`: one worker process after the other has the slot, and serves."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Final

from iris_py.cli.outcome import complain
from iris_py.cli.serve.process import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["WorkerSlot"]

#: Delay before an ended worker is restarted (seconds), doubled with each end. Too small: a broken worker keeps a processor
#: busy; too large: a service is down for longer than its cause.
BACK_OFF_MIN_S: Final = 0.5
BACK_OFF_MAX_S: Final = 30.0
#: Running time after which the delay before a restart is the minimum again (seconds).
STEADY_S: Final = 60.0


class WorkerSlot:
    """Keeps one worker process running: an ended process is restarted, an outdated process replaced.

    Args:
        number: The number of the slot, from 1.
        command: The arguments of a worker's command line.
        failed: Receives the exit code of a worker that never served. With `is_reloading` a changed file may still help.
        is_reloading: Whether changes of files restart workers.
        has_port: Whether the worker listens on a fixed port, which two processes cannot share.
        http: The address of metrics and health of all workers; empty for none.

    Attributes:
        number: As given.
        current: The process that has the slot; None between two processes.
        ends: Number of unexpected ends.
        has_served: Set when a process has served here for the first time.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        failed: asyncio.Future[int],
        *,
        is_reloading: bool,
        has_port: bool = False,
        http: str = "",
    ) -> None:
        self.number: Final = number
        self.current: WorkerProcess | None = None
        self.ends = 0
        self.has_served = asyncio.Event()
        self._command = command
        self._failed = failed
        self._is_reloading = is_reloading
        self._has_port = has_port
        self._http = http
        self._processes: set[WorkerProcess] = set()
        self._tried: WorkerProcess | None = None
        self._taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done when the slot is taken
        self._handing_over: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of the worker in messages."""
        return f"worker {self.number}"

    @property
    def files(self) -> Mapping[str, int]:
        """The source files of the present and of the last failed process, each with the latest start time of a process using
        the file.
        """
        found: dict[str, int] = {}
        for process in (self.current, self._tried):
            if process is not None:
                found |= {path: max(process.began_ns, found.get(path, 0)) for path in process.files}
        return found

    async def run(self) -> None:
        """Keep a process running in the slot until cancelled. Restarts are delayed, each twice as long as the last."""
        wait_s = BACK_OFF_MIN_S
        while True:
            if self.current is None:
                try:
                    await self._fill()
                except OSError as exc:  # no process, descriptor or memory is left now
                    complain(f"{self.name} cannot be started: {exc.strerror or exc}; the next one starts in {wait_s:g} s")
                    wait_s = await self._pause(wait_s)
                continue
            process, began = self.current, time.monotonic()
            await asyncio.wait((process.ended, self._taken), return_when=asyncio.FIRST_COMPLETED)
            if self.current is not process:
                continue  # another process has taken the slot
            self.current, self._tried = None, process
            self.ends += 1
            code = process.ended.result()
            if code > 0 and not self.has_served.is_set() and not self._is_reloading:
                if not self._failed.done():
                    self._failed.set_result(code)
                return
            wait_s = BACK_OFF_MIN_S if time.monotonic() - began > STEADY_S else wait_s
            waits_for_change = self._is_reloading and not process.ready.result()
            then = "a change of a file starts it again" if waits_for_change else f"the next one starts in {wait_s:g} s"
            complain(f"{self.name} (process {process.pid}) {_ending(code)}; {then}")
            wait_s = await self._pause(wait_s, is_endless=waits_for_change)

    async def replace(self) -> bool:
        """Start a process with the changed files. When the process serves, it gets the slot and the old process leaves.

        Until then the old process serves, unless both need the same port. Cancelling ends the new process.

        Returns:\n    Whether the new process serves. If not, the cause is on standard error.
        """
        await self._wait_for_leaving()
        try:
            newcomer = await self._start()
        except OSError as exc:
            complain(f"{self.name} cannot be started again: {exc.strerror or exc}; {self._goes_on()}")
            return False
        self._tried = newcomer
        try:
            if self._has_port and await asyncio.shield(newcomer.loaded):
                self._handing_over = asyncio.create_task(self._hand_over(newcomer))
                await asyncio.shield(self._handing_over)
            else:
                newcomer.go(self._http)
            if await asyncio.shield(newcomer.ready):
                self._give_place_to(newcomer)
                return True
            await asyncio.wait((newcomer.ended,))
            if self.current is not newcomer:  # otherwise run() reports it
                ending = _ending(newcomer.ended.result())
                complain(f"{self.name} of the changed files (process {newcomer.pid}) {ending}; {self._goes_on()}")
            return False
        finally:
            if self.current is not newcomer:
                newcomer.leave()

    async def leave(self) -> None:
        """Let all processes of the slot leave, and wait until all have ended."""
        await asyncio.gather(*(process.leave() for process in self._processes))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process that has the slot."""
        if self.current is not None:
            self.current.send(number)

    # --

    async def _fill(self) -> None:
        """Start a process, and give the empty slot to it; let it leave if another process has got the slot meanwhile."""
        process = await self._start()
        process.go(self._http)
        if self.current is None:
            self.current = process
        else:
            process.leave()

    async def _start(self) -> WorkerProcess:
        process = await WorkerProcess.start(self._command, keeps_bytecode=not self._is_reloading)
        self._processes.add(process)
        process.ended.add_done_callback(lambda _ended: self._processes.discard(process))
        process.ready.add_done_callback(lambda ready: self.has_served.set() if ready.result() else None)
        return process

    def _give_place_to(self, newcomer: WorkerProcess) -> asyncio.Task[None] | None:
        """Give the slot to another process, and let the old process leave; return a task for the old process's end, if any."""
        old, self.current = self.current, newcomer
        if old is newcomer:
            return None
        self._taken.set_result(None)
        self._taken = asyncio.get_running_loop().create_future()
        return None if old is None else old.leave()

    async def _hand_over(self, newcomer: WorkerProcess) -> None:
        """Give the slot to another process, and let it connect once the old process has ended and freed the port."""
        if (leaving := self._give_place_to(newcomer)) is not None:
            await leaving
        newcomer.go(self._http)

    async def _wait_for_leaving(self) -> None:
        """Wait until leaving processes have ended. Otherwise frequent changes and long requests would pile up processes."""
        leaving = [process.leave() for process in self._processes if process.is_leaving]
        if leaving:
            await asyncio.wait(leaving)

    async def _pause(self, wait_s: float, *, is_endless: bool = False) -> float:
        """Wait until a delay has passed, or until another process has the slot; return the next delay, twice as long."""
        await asyncio.wait((self._taken,), timeout=None if is_endless else wait_s)
        return min(2 * wait_s, BACK_OFF_MAX_S)

    def _goes_on(self) -> str:
        if self.current is None:
            return "the next change starts it again"
        return f"process {self.current.pid} keeps running its old code until the next change"


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"
