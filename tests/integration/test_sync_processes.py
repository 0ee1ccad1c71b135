"""Programs with the synchronous API end when they are to end: by themselves, by an interrupt, and after a fork."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import warm
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = Path(__file__).with_name("sync_programs.py")
#: Only a failing test takes so long.
PATIENCE_S = 60.0


class Program:
    """One of sync_programs.py, with its output line by line."""

    def __init__(self, name: str, loop: str) -> None:
        self.process: subprocess.Popen[bytes] = warm.Process(
            # Newer versions of Python warn of every fork beside threads: that is what is tested here.
            [sys.executable, "-X", "dev", "-W", "ignore:This process:DeprecationWarning", str(PROGRAMS), name, loop],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # so that a failing test can end its children too
            bufsize=0,
        )

    def read_line(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE_S)
        assert readable, "the program says nothing"
        return self.process.stdout.readline().decode().strip()

    def finish(self) -> tuple[int, list[str], str]:
        """Wait for its end; return the exit code, the lines that it said since the last look, and its errors."""
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        # How long a busy machine takes for a step is of no interest; the debug mode tells it.
        lines = [line for line in without_standstills(errors.decode()).splitlines() if not line.startswith("Executing <")]
        return self.process.returncode, out.decode().splitlines(), "\n".join(lines)

    def reap(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.communicate()


@pytest.fixture(params=["uvloop", "asyncio"])
def start(request: pytest.FixtureRequest, home: Path) -> Iterator[Callable[[str], Program]]:
    started: list[Program] = []

    def begin(name: str) -> Program:
        started.append(Program(name, request.param))
        return started[-1]

    yield begin
    for program in started:
        program.reap()


def remembered(home: Path) -> list[str]:
    """Return the nodes that have not said goodbye."""
    return [path.name for path in (home / "state").rglob("*") if path.is_file()]


# -- the end of the program


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("exit_without_close", ["hello"]),
        ("exit_during_iteration", ["one"]),
    ],
)
def test_a_program_ends_and_closes_its_nodes(start: Callable[[str], Program], home: Path, name: str, said: list[str]) -> None:
    assert start(name).finish() == (0, said, "")
    assert remembered(home) == []


def test_a_program_ends_though_a_handler_never_returns_and_says_so(start: Callable[[str], Program], home: Path) -> None:
    code, said, errors = start("exit_during_request").finish()
    assert (code, said) == (0, ["ends"])
    assert [line.partition(";")[0] for line in errors.splitlines()] == [
        "leaving 'stuck' waits for 1 request that runs",
        "handlers of 'stuck' still run after 2 s and are cancelled",
        "1 handlers ignore their cancellation and are abandoned",
    ]
    assert remembered(home) == []


def test_a_program_ends_though_its_event_loop_hangs(start: Callable[[str], Program]) -> None:
    code, said, _errors = start("exit_with_a_loop_that_hangs").finish()
    assert (code, said) == (0, ["ends"])


def test_an_error_ends_the_program_with_its_nodes(start: Callable[[str], Program], home: Path) -> None:
    code, _, errors = start("exit_with_error").finish()
    assert code == 1
    assert errors.splitlines()[-1].startswith("iris_py.errors.NoMembers: nobody serves the cluster 'nobody'")
    assert remembered(home) == []


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("terminate_while_closing", 0, ["still closing True"]),
        ("terminate_while_threads_run", -signal.SIGTERM, ["ends"]),
        ("terminate_after_closing", -signal.SIGTERM, ["open nodes 0"]),
    ],
)
def test_sigterm_when_the_program_is_over_prints_nothing(
    start: Callable[[str], Program], home: Path, name: str, status: int, said: list[str]
) -> None:
    assert start(name).finish() == (status, said, "")
    assert remembered(home) == []


def test_the_end_of_a_pool_prints_nothing(start: Callable[[str], Program], home: Path) -> None:
    program = start("terminate_pools")
    for method in ("spawn", "fork", "forkserver"):
        for _pool in range(2):  # each of which takes seconds on a busy machine
            assert program.read_line() == f"{method} a b c d"
    assert program.finish() == (0, [], "")


def test_a_process_that_waits_for_a_semaphore_heeds_a_signal_that_did_not_wake_it(
    start: Callable[[str], Program], home: Path
) -> None:
    program = start("terminate_elsewhere")
    for method in ("spawn", "fork", "forkserver"):
        assert program.read_line() == f"{method} {128 + signal.SIGTERM}"
    assert program.finish() == (0, [], "")
    assert remembered(home) == []


# -- interrupts


@pytest.mark.parametrize(
    ("name", "first", "rest"),
    [
        ("interrupt_request", "begun", ["cancelled", "goes on", "interrupted"]),
        ("interrupt_elsewhere", "begun", ["cancelled", "interrupted"]),
        ("interrupt_iteration", "one", ["interrupted", "two"]),
        ("interrupt_survey", "begun", ["cancelled", "interrupted"]),
        ("interrupt_connect", "begun", ["interrupted"]),
    ],
)
def test_an_interrupt_ends_the_waiting_and_cancels(
    start: Callable[[str], Program], home: Path, name: str, first: str, rest: list[str]
) -> None:
    program = start(name)
    assert program.read_line() == first
    program.process.send_signal(signal.SIGINT)
    code, said, errors = program.finish()
    assert (code, sorted(said), errors) == (0, rest, "")
    assert remembered(home) == []


def test_interrupts_at_any_moment_leave_the_loop_alive(start: Callable[[str], Program]) -> None:
    """One that hits a thread in possession of a lock that the loop needs would stop everything, for ever."""
    code, said, _ = start("interrupt_at_any_moment").finish()
    assert (code, said) == (0, ["works"])


def test_an_interrupt_ends_a_program_whose_handler_never_returns(start: Callable[[str], Program], home: Path) -> None:
    """It ends the request, and leaving the cluster waits for no handler of a request that nobody waits for."""
    program = start("interrupt_unhandled")
    assert program.read_line() == "begun"
    program.process.send_signal(signal.SIGINT)
    code, _, errors = program.finish()
    assert code == -signal.SIGINT
    assert errors.splitlines()[-1].strip() == "KeyboardInterrupt"


# -- forks


def test_a_fork_has_nothing_of_what_it_inherited(start: Callable[[str], Program], home: Path) -> None:
    code, said, errors = start("fork").finish()
    assert said == [
        "inherited 0",
        *["refused True"] * 3,
        "by the child",
        "status 0",
        "by the parent",
        "still subscribed",
    ]
    assert (code, errors) == (0, "")
    assert remembered(home) == []


def test_a_fork_ends_as_every_program(start: Callable[[str], Program], home: Path) -> None:
    assert start("fork_and_exit_without_close").finish() == (0, ["by the child", "status 0"], "")
    assert remembered(home) == []


def test_a_fork_does_not_keep_its_parent_alive(start: Callable[[str], Program], home: Path) -> None:
    """The sockets of a dead parent are closed, though its child lives: a dial to it is refused."""
    program = start("fork_and_die")
    lines = sorted([program.read_line(), program.read_line()])
    child, node = int(lines[0].removeprefix("child ")), lines[1].removeprefix("parent ")
    addresses = [path.read_text().split()[0] for path in (home / "state").rglob(node)]
    host, port = addresses[0].split(":")
    program.process.kill()
    program.process.wait()
    import socket

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    os.kill(child, 0)  # it lives


def test_workers_of_multiprocessing(start: Callable[[str], Program], home: Path) -> None:
    assert start("fork_before_use").finish() == (0, ["[b'a', b'b', b'c']"], "")
    assert remembered(home) == []


def test_a_worker_that_inherited_a_node_uses_one_of_its_own(start: Callable[[str], Program], home: Path) -> None:
    said = ["by the worker", "exit code 0", "nodes [True]", "by the parent"]
    assert start("fork_by_multiprocessing").finish() == (0, said, "")
    assert remembered(home) == []
