"""The member processes of `iris demo`: started, killed, replaced, and always cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from iris_py.cli.demo import member as member_program
from iris_py.cli.outcome import one_line
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from iris_py.cli.demo.progress import Progress
    from iris_security.secret import Secret

__all__ = ["Crew", "CrewMember", "MemberFailed", "Processes", "kill_and_replace"]

READY_TIMEOUT_S: Final = 30.0  # an interpreter's start, a handshake and a join take less than 1 s, but machines can be busy
LEAVE_TIMEOUT_S: Final = 10.0


class MemberFailed(IrisError):
    """A member process did not start."""


@dataclass(slots=True)
class CrewMember:
    """One member process."""

    process: asyncio.subprocess.Process
    errors: IO[bytes]
    id: str = ""
    state: str = "starting"
    requests: int = 0
    """Replies received from this member."""


class Processes:
    """Processes of the demo. Leaving the ``async with`` ends them: cleanly after success, at once after an exception.

    Each also ends with its standard input.
    """

    def __init__(self) -> None:
        self._started: list[CrewMember] = []

    async def __aenter__(self) -> Self:
        """Start no process yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every process and wait until it is gone."""
        for each in self._started:
            if exc is not None:
                self._kill(each)
            elif each.process.stdin is not None:
                each.process.stdin.close()
        for each in self._started:
            try:
                await asyncio.wait_for(each.process.wait(), LEAVE_TIMEOUT_S)
            except TimeoutError:
                self._kill(each)
                await each.process.wait()
            finally:
                each.errors.close()

    async def _launch(self, *arguments: str, environment: Mapping[str, str] | None = None) -> CrewMember:
        """Start a Python module.

        Args:
            arguments: Its name, and its arguments.
            environment: Its environment; None for that of this process.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process is gone; a pipe would have to be drained
        # A session of its own, so that Ctrl-C reaches only the driver, which then ends the others.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        started = CrewMember(process, errors)
        self._started.append(started)
        return started

    async def _read_line(self, started: CrewMember, what: str, command: str) -> str:
        """Return the line by which a process reports that it serves.

        Raises:
            MemberFailed: The line does not come within `READY_TIMEOUT_S`.
        """
        assert started.process.stdout is not None
        try:
            line = await asyncio.wait_for(started.process.stdout.readline(), READY_TIMEOUT_S)
        except (TimeoutError, OSError):
            line = b""
        if not line:
            started.errors.seek(0)
            last = started.errors.read()[-500:].decode(errors="replace")
            raise MemberFailed(f"{what} did not start: {one_line(last) or 'it was silent'}. Run `{command}` again.")
        return line.decode().strip()

    @staticmethod
    def _kill(started: CrewMember) -> None:
        try:
            started.process.kill()
        except ProcessLookupError:
            pass  # it has ended already


class Crew(Processes):
    """All member processes."""

    def __init__(self, seed: str, secret: Secret, program: str = member_program.__name__, command: str = "iris demo") -> None:
        """Prepare the crew.

        Args:
            seed: The address of a node of the network.
            secret: The secret of the demo's private network.
            program: The module of a member process.
            command: The command of the user.
        """
        super().__init__()
        self._seed = seed
        self._secret = secret
        self._program = program
        self._command = command
        self._victim: CrewMember | None = None
        self._is_hasty = False

    @property
    def members(self) -> list[CrewMember]:
        """All members ever started."""
        return self._started

    async def start_many(self, number: int, state: str) -> None:
        """Start members concurrently."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(number):
                    tasks.create_task(self.start(state))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others

    async def start(self, state: str) -> CrewMember:
        """Start a member, and return when it serves.

        Args:
            state: Its state from then on, as text.

        Raises:
            MemberFailed: The member does not serve within `READY_TIMEOUT_S`.
        """
        member = await self._launch(self._program, self._seed)
        assert member.process.stdin is not None
        with contextlib.suppress(OSError):  # if the process is gone, its line does not come, either
            member.process.stdin.write(self._secret.text.encode() + b"\n")
        member.id = await self._read_line(member, "a member process", self._command)
        member.state = state
        return member

    async def kill(self) -> CrewMember:
        """Kill a member (SIGKILL) as soon as it certainly has a request, or `hasten` is called."""
        member = self._victim = self.members[0]
        assert member.process.stdin is not None
        assert member.process.stdout is not None
        if self._is_hasty:
            self._kill(member)
        else:
            member.process.stdin.write(b"hold\n")
        line = await member.process.stdout.readline()  # or the end of its output, if it was killed in haste
        self._kill(member)
        member.state = "killed at work" if line.decode().strip() == member_program.HOLDING else "killed"
        return member

    def hasten(self) -> None:
        """Kill the chosen member without waiting for it to have a request, because no work is left."""
        self._is_hasty = True
        if self._victim is not None:
            self._kill(self._victim)

    def credit(self, node_id: str) -> None:
        """Count a reply of a member."""
        for member in self.members:
            if member.id == node_id:
                member.requests += 1


async def kill_and_replace(crew: Crew, progress: Progress) -> None:
    """Kill a member at work, and start another."""
    member = await crew.kill()
    progress.note(f"member {member.id[:8]} {member.state} (SIGKILL to process {member.process.pid})")
    member = await crew.start("joined after the kill")
    progress.note(f"member {member.id[:8]} joined in its place")
