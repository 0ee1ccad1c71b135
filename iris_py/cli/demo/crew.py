"""The member processes of `iris demo`: started, killed, replaced, and never left behind."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Self

from iris_py.cli.demo import member as member_program
from iris_py.cli.outcome import one_line
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from types import TracebackType

    from iris_security.secret import Secret

__all__ = ["Crew", "CrewMember", "MemberFailed"]

READY_TIMEOUT_S: Final = 30.0  # an interpreter's start, a handshake and a join: well under 1 s, but machines can be busy
LEAVE_TIMEOUT_S: Final = 10.0


class MemberFailed(IrisError):
    """A member process did not come up."""


@dataclass(slots=True)
class CrewMember:
    """One member process."""

    process: asyncio.subprocess.Process
    errors: IO[bytes]
    id: str = ""
    state: str = "starting"
    requests: int = 0
    """Replies of this member that arrived."""


class Crew:
    """All member processes. Leaving the ``async with`` ends them: politely after success, at once after an exception."""

    def __init__(self, seed: str, secret: Secret, program: str = member_program.__name__) -> None:
        """Prepare.

        Args:
            seed: The driver's address.
            secret: The secret of the demo's own network.
            program: The module that a member process runs.
        """
        self._seed = seed
        self._secret = secret
        self._program = program
        self._victim: CrewMember | None = None
        self._is_hasty = False
        self.members: list[CrewMember] = []

    async def __aenter__(self) -> Self:
        """Start nobody yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every member and wait until it is gone."""
        for member in self.members:
            if exc is not None:
                self._kill(member)
            elif member.process.stdin is not None:
                member.process.stdin.close()
        for member in self.members:
            try:
                await asyncio.wait_for(member.process.wait(), LEAVE_TIMEOUT_S)
            except TimeoutError:
                self._kill(member)
                await member.process.wait()
            finally:
                member.errors.close()

    async def start_many(self, number: int, state: str) -> None:
        """Start members at the same time."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(number):
                    tasks.create_task(self.start(state))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the first has cancelled the others

    async def start(self, state: str) -> CrewMember:
        """Start a member, and return when it serves.

        Args:
            state: What to call it from then on.

        Raises:
            MemberFailed: It does not serve after `READY_TIMEOUT_S`.
        """
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the member is gone; a pipe would have to be emptied
        # A session of its own, so that Ctrl-C reaches the driver alone, which then ends the members.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._program, self._seed),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        member = CrewMember(process, errors)
        self.members.append(member)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(self._secret.text.encode() + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), READY_TIMEOUT_S)
        except (TimeoutError, OSError):
            line = b""
        if not line:
            errors.seek(0)
            last = errors.read()[-500:].decode(errors="replace")
            raise MemberFailed(f"a member process did not start: {one_line(last) or 'it was silent'}. Run `iris demo` again.")
        member.id = line.decode().strip()
        member.state = state
        return member

    async def kill(self) -> CrewMember:
        """Kill a member (SIGKILL) as soon as it surely has a request in its hands, or `hasten` is called."""
        member = self._victim = self.members[0]
        assert member.process.stdin is not None
        assert member.process.stdout is not None
        if self._is_hasty:
            self._kill(member)
        else:
            member.process.stdin.write(b"hold\n")
        line = await member.process.stdout.readline()  # or its end, if it was killed in haste
        self._kill(member)
        member.state = "killed at work" if line.decode().strip() == member_program.HOLDING else "killed"
        return member

    def hasten(self) -> None:
        """Do not wait any longer for the member that is to be killed to have work: there is none left."""
        self._is_hasty = True
        if self._victim is not None:
            self._kill(self._victim)

    def credit(self, node_id: str) -> None:
        """Note a reply of a member."""
        for member in self.members:
            if member.id == node_id:
                member.requests += 1

    @staticmethod
    def _kill(member: CrewMember) -> None:
        try:
            member.process.kill()
        except ProcessLookupError:
            pass  # it was faster
