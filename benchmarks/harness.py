"""Processes of a benchmark: started in a network and directories of their own, bounded in time, and never left behind."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.worker import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from benchmarks.worker import Parameters, Role

#: An interpreter's start takes a quarter of a second; a busy machine may need much longer.
START_TIMEOUT_S: Final = 30.0
#: No single measurement takes longer; the slowest here needs a few seconds.
MEASURE_TIMEOUT_S: Final = 90.0
_ROOT: Final = Path(__file__).resolve().parent.parent


class BenchmarkFailed(Exception):
    """A process of a benchmark failed or took too long; the text says which, and what it said last."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured number."""

    metric: str
    value: float
    unit: str
    note: str = ""
    "What a reader of the number has to know, for instance that messages were lost."


@dataclass(frozen=True, slots=True)
class Trial:
    """One contender: what to call it, and how to measure it once."""

    contender: str
    measure: Callable[[], Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Section:
    """Contenders that are compared, in the order in which they take turns."""

    name: str
    caption: str
    "What is measured and what is not."
    trials: Sequence[Trial]
    references: tuple[str, ...] = ()
    "The contenders to which the others are compared."


def _new_secret() -> str:
    from iris_security import Secret  # late: a process of a peer, which imports this module, has nothing of Iris in its memory

    return Secret.generate(os.urandom).text


def keeping_bytecode() -> dict[str, str]:
    """Return the environment of this process for others, which keep the bytecode of their modules as programs of users do.

    With PYTHONDONTWRITEBYTECODE, as in many images for containers, each start would compile all modules anew.
    """
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@dataclass(frozen=True, slots=True)
class Home:
    """A network of its own: a fresh secret, and fresh directories in which a node keeps its things."""

    directory: Path
    secret: str = field(default_factory=_new_secret, repr=False)

    def environment(self, state: str = "state") -> dict[str, str]:
        """Return the environment of a process that lives here and is configured by nothing else, and that keeps bytecode.

        Args:
            state: The state directory; nodes with different ones do not remember each other.
        """
        inherited = {key: value for key, value in keeping_bytecode().items() if not key.startswith("IRIS_")}
        own = {"XDG_CONFIG_HOME": str(self.directory / "config"), "XDG_STATE_HOME": str(self.directory / state)}
        return inherited | own


class Worker:
    """One process.

    Args:
        role: The function that it runs.
        home: Where it lives.
        state: Its state directory there.
        inside: The command that runs it, with its arguments, for example ``ip netns exec``; empty for none.
    """

    def __init__(self, role: Role, home: Home, state: str = "state", inside: Sequence[str] = ()) -> None:
        self._name = name_of(role)
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker; a pipe would have to be emptied
        try:
            # A session of its own: Ctrl-C reaches the parent alone, which then ends the workers.
            self._process = subprocess.Popen(
                (*inside, sys.executable, "-m", "benchmarks.worker", self._name),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=_ROOT,
                env=home.environment(state),
                start_new_session=True,
            )
        except BaseException:
            self._errors.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._process
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, self._errors):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass  # parameters that it did not live to read

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def begin(self, parameters: Parameters) -> None:
        """Give it its parameters, or once it has begun a cue."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(parameters).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended before it began") from None

    def terminate(self) -> None:
        """Ask it to end; a role that does not expect it is killed."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once, without a word to anybody."""
        self._process.kill()
        self._process.wait()

    def listen(self, timeout_s: float) -> Parameters:
        """Return the next thing that it says.

        Raises:
            BenchmarkFailed: It said nothing in that time, or ended.
        """
        assert self._process.stdout is not None
        stdout = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise self._failed(f"said nothing for {timeout_s:g} s")
            piece = os.read(stdout, 65536)
            if not piece:
                raise self._failed("ended without a result")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        said = json.loads(line)
        assert isinstance(said, dict)
        return said

    def _failed(self, what: str) -> BenchmarkFailed:
        self._errors.seek(0)
        last = self._errors.read()[-2000:].decode(errors="replace").strip()
        return BenchmarkFailed(f"{self._name} {what}" + (f":\n{last}" if last else ""))


class Stage(ExitStack):
    """The workers of one measurement, in a home of their own. All are gone when the ``with`` block ends."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.home = Home(Path(self.enter_context(tempfile.TemporaryDirectory(prefix=f"iris-benchmark-{os.getpid()}-"))))
        return self

    def start(self, role: Role, state: str = "state", inside: Sequence[str] = ()) -> Worker:
        """Start a worker, which then waits for its parameters."""
        return self.enter_context(Worker(role, self.home, state, inside))

    def pair(self, serve: Role, measure: Role, parameters: Parameters) -> tuple[Parameters, Worker]:
        """Run two roles against each other; returns what the measuring one found, and the serving worker.

        Args:
            serve: Says where it is, then serves.
            measure: Is told where that is, and says what it found.
            parameters: For both, besides the secret of the network.
        """
        parameters = {"secret": self.home.secret, **parameters}
        server, client = self.start(serve), self.start(measure)
        server.begin(parameters)
        place = server.listen(START_TIMEOUT_S)
        client.begin(parameters | place)
        return client.listen(START_TIMEOUT_S + MEASURE_TIMEOUT_S), server
