"""The member processes of `iris demo`: this module starts, kills and replaces them, and always ends them."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from iris_py.cli.children import Child, ChildGroup, run_all
from iris_py.cli.demo import member as member_program
from iris_py.cli.demo.progress import print_note
from iris_py.errors import IrisError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from iris_py.cli.demo.progress import Progress
    from iris_security.secret import Secret

__all__ = ["Crew", "CrewMember", "MemberFailed", "ProcessReplacement", "Processes", "kill_and_replace"]

READY_TIMEOUT_S: Final = 30.0  # an interpreter's start, a handshake and a join take less than 1 s, but machines can be busy
LEAVE_TIMEOUT_S: Final = 10.0
#: Time until a killed process is replaced (seconds). Too small: nobody sees that the process is missing.
REPLACE_S: Final = 8.0
KILLED: Final = "killed"  # the state of a killed member


class MemberFailed(IrisError):
    """A process of the demo, such as a member or a gateway, did not start."""


@dataclass(slots=True)
class CrewMember:
    """A process of the demo that executes or passes on requests."""

    child: Child
    id: str = ""
    state: str = "starting"
    requests: int = 0
    """Replies received from this member."""

    @property
    def is_killed(self) -> bool:
        """Whether the process was killed."""
        return self.state.startswith(KILLED)

    @property
    def pid(self) -> int:
        """The process id."""
        return self.child.pid


class Processes:
    """Processes of the demo. Leaving the ``async with`` ends them: cleanly after success, at once after an exception."""

    def __init__(self) -> None:
        self._started: list[CrewMember] = []
        self._children = ChildGroup(LEAVE_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        """Return this object, without a process yet."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End every process, and wait until all are gone."""
        await self._children.end(at_once=exc is not None)

    async def _launch(self, *arguments: str, environment: Mapping[str, str] | None = None) -> CrewMember:
        """Start a Python module as a process, without waiting until it serves.

        Args:
            arguments: The name of the module, and its arguments.
            environment: The environment of the process; None for the environment of this process.
        """
        started = CrewMember(await self._children.start("-m", *arguments, environment=environment))
        self._started.append(started)
        return started

    async def _read_line(self, started: CrewMember, what: str, command: str) -> str:
        """Return the line by which a process reports to be serving.

        Raises:
            MemberFailed: The line does not come within `READY_TIMEOUT_S`.
        """
        try:
            line = await started.child.read_line(READY_TIMEOUT_S)
        except TimeoutError:
            line = b""
        if not line:
            last = started.child.last_words() or "it was silent"
            raise MemberFailed(f"{what} did not start: {last}. Run `{command}` again.")
        return line.decode().strip()


class Crew(Processes):
    """All member processes of one demo."""

    def __init__(self, seed: str, secret: Secret, *program: str, command: str = "iris demo") -> None:
        """Prepare the crew.

        Args:
            seed: The address of a node of the network.
            secret: The secret of the demo's private network.
            program: The module of a member process, and its arguments after the address; that of `iris demo` by default.
            command: The command that the user runs, for errors.
        """
        super().__init__()
        self._seed = seed
        self._secret = secret
        self._module, *self._arguments = program or (member_program.__name__,)
        self._command = command
        self._victim: CrewMember | None = None
        self._is_hasty = False

    @property
    def members(self) -> list[CrewMember]:
        """All members ever started, including killed ones."""
        return self._started

    async def start_many(self, number: int, state: str) -> None:
        """Start several members concurrently; return when all serve."""
        await run_all(self.start(state) for _ in range(number))

    async def start(self, state: str) -> CrewMember:
        """Start a member, and return when it serves.

        Args:
            state: The text for the member's state in the report, until the member is killed.

        Raises:
            MemberFailed: The member does not serve within `READY_TIMEOUT_S`.
        """
        member = await self._launch(self._module, self._seed, *self._arguments)
        await member.child.send(self._secret.text.encode() + b"\n")
        member.id = await self._read_line(member, "a member process", self._command)
        member.state = state
        return member

    async def kill(self) -> CrewMember:
        """Kill the first living member (SIGKILL) once it executes a request, or at once after :meth:`hasten`.

        Returns:
            The killed member.
        """
        member = self._victim = next(member for member in self.members if member.id and not member.is_killed)
        if self._is_hasty:
            member.child.kill()
        else:
            member.child.write(b"hold\n")
        line = await member.child.read_line()  # or the end of its output, if it was killed in haste
        member.child.kill()
        member.state = f"{KILLED} at work" if line.decode().strip() == member_program.HOLDING else KILLED
        return member

    def hasten(self) -> None:
        """Make :meth:`kill` kill the member at once, although it executes no request: no work is left."""
        self._is_hasty = True
        if self._victim is not None:
            self._victim.child.kill()

    def credit(self, node_id: str) -> None:
        """Count a reply for the member with this node id."""
        for member in self.members:
            if member.id == node_id:
                member.requests += 1


async def kill_and_replace(crew: Crew, progress: Progress) -> None:
    """Kill a member that executes a request, start another, and show both events."""
    member = await crew.kill()
    progress.note(f"member {member.id[:8]} {member.state} (SIGKILL to process {member.pid})")
    member = await crew.start("joined after the kill")
    progress.note(f"member {member.id[:8]} joined in its place")


class ProcessReplacement:
    """Kills a process of a crew when asked to, and starts another one some seconds later.

    Args:
        crew: The processes.
        what: A noun for a process of the crew, such as ``member``.
    """

    def __init__(self, crew: Crew, what: str) -> None:
        self._crew = crew
        self._what = what
        self._task: asyncio.Task[None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a process was killed and its successor does not serve yet."""
        return self._task is not None and not self._task.done()

    def begin(self) -> None:
        """Kill a process, and start another one some seconds later; nothing if that is under way."""
        if self.is_under_way:
            print_note(sys.stderr, f"a {self._what} was killed, and its successor comes first")
            return
        self._task = asyncio.create_task(self._kill_and_replace())

    async def end(self) -> None:
        """End a replacement under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _kill_and_replace(self) -> None:
        member = await self._crew.kill()
        text = f"{self._what} {_short(member.id)} {member.state} (SIGKILL to process {member.pid})"
        print_note(sys.stderr, f"{text}; another one comes in {REPLACE_S:g} s")
        await asyncio.sleep(REPLACE_S)
        member = await self._crew.start("joined after the kill")
        print_note(sys.stderr, f"{self._what} {_short(member.id)} joined in its place")


def _short(name: str) -> str:
    """Return the first digits of a node id, or an address."""
    return name if ":" in name else name[:8]
