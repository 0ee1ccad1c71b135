"""A program that is told to stop leaves its clusters: no caller notices, and two signals are no trouble."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.api.run import REPEATED_S
from tests import warm
from tests.integration.conftest import PATIENCE_S, Loops
from tests.standstills import read_line, without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

WAITS = "leaving 'them' waits for 1 request that runs; all that still run in 29 s are cancelled\n"


class Service:
    """A service in a process of its own, one request of which is under way."""

    def __init__(self, name: str, loop: str, directory: Path, repeated_s: float) -> None:
        self._released = directory / "released"
        program = Path(__file__).with_name("stopping_programs.py")
        self.process: subprocess.Popen[str] = warm.Process(
            [sys.executable, str(program), name, loop, str(self._released), str(repeated_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.node = iris_py.sync.connect()
        self.reply: Future[bytes]

    def begin(self) -> None:
        assert self.read_line() == "serving\n"
        self.reply = self.node.request_future("them", b"", timeout=PATIENCE_S)
        assert self.read_line() == "begun\n"

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def read_error(self) -> str:
        assert self.process.stderr is not None
        readable, _, _ = select.select([self.process.stderr], [], [], PATIENCE_S)
        return read_line(self.process.stderr) if readable else ""

    def release(self) -> None:
        self._released.touch()

    def end(self) -> tuple[int, str, str]:
        """Return how it ended, and what it has printed since."""
        out, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, without_standstills(errors)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.node.close()


@pytest.fixture
def repeated_s() -> float:
    """How soon a signal has to follow the first one to be the same wish: half a second would be short on a busy machine."""
    return PATIENCE_S


@pytest.fixture
def service(request: pytest.FixtureRequest, home: Path, repeated_s: float) -> Iterator[Service]:
    name, loop = request.param
    service = Service(name, loop, home, repeated_s)
    try:
        service.begin()
        yield service
    finally:
        service.close()


def on_both_loops(*names: str) -> list[tuple[str, str]]:
    return [(name, loop) for name in names for loop in ("asyncio", "uvloop")]


@pytest.mark.parametrize(
    ("service", "code", "printed"),
    [
        *((each, 143, "") for each in on_both_loops("run", "run_and_leave_open", "sync")),
        *((each, 0, "stopped by SIGTERM\n") for each in on_both_loops("run_until_stopped", "sync_until_stopped")),
        *((each, 0, "stopped by SIGTERM\n") for each in on_both_loops("elsewhere_sync_until_stopped")),
        (("any_loop_until_stopped", "asyncio"), 0, "stopped by SIGTERM\n"),
    ],
    indirect=["service"],
)
def test_on_sigterm_it_finishes_what_runs_and_says_so(service: Service, code: int, printed: str) -> None:
    service.process.send_signal(signal.SIGTERM)
    service.process.send_signal(signal.SIGTERM)  # in the same moment: a shell and a supervisor may both pass it on
    assert service.read_error() == WAITS
    service.release()
    assert service.reply.result(PATIENCE_S) == b"done"
    assert service.end() == (code, printed, "")


@pytest.mark.parametrize("service", on_both_loops("run_until_stopped", "sync_until_stopped"), indirect=True)
def test_ctrl_c_ends_a_service_without_a_traceback(service: Service) -> None:
    service.process.send_signal(signal.SIGINT)
    assert service.read_error() == WAITS
    service.release()
    assert service.reply.result(PATIENCE_S) == b"done"
    assert service.end() == (0, "stopped by SIGINT\n", "")


@pytest.mark.parametrize("service", on_both_loops("run", "run_until_stopped", "sync", "sync_until_stopped"), indirect=True)
@pytest.mark.parametrize("repeated_s", [REPEATED_S])
def test_a_later_signal_ends_it_at_once(service: Service) -> None:
    service.process.send_signal(signal.SIGTERM)
    assert service.read_error() == WAITS  # which comes a second later, and so after REPEATED_S
    service.process.send_signal(signal.SIGTERM)
    code, _out, errors = service.end()
    assert (code, errors) == (-signal.SIGTERM, "")
    with pytest.raises(iris.MemberLost):
        service.reply.result(PATIENCE_S)


@pytest.mark.parametrize(
    ("service", "code"),
    [
        (("run_opted_out", "uvloop"), -signal.SIGTERM),
        (("sync_opted_out", "uvloop"), -signal.SIGTERM),
        (("sync_own_handler", "uvloop"), 9),
        (("run_own_handler", "asyncio"), 9),
    ],
    indirect=["service"],
)
def test_it_does_with_a_signal_what_the_program_says(service: Service, code: int) -> None:
    service.process.send_signal(signal.SIGTERM)
    service.release()
    assert service.end()[0] == code


def test_waiting_that_is_given_up_leaves_signals_as_they_were(loops: Loops) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    async def main() -> None:
        inside = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        waiting = [asyncio.create_task(iris.until_stopped()) for _ in range(2)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == inside

    loops.run(main())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("how", ["uvloop", "asyncio"])
def test_signals_do_afterwards_what_they_did_before(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program goes on when run() has returned, and Ctrl-C is to end it then."""
    if how == "asyncio":
        monkeypatch.setattr("iris_py.api.run.loop_factory", lambda: None)

    def own(_number: int, _frame: object) -> None: ...

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    kept = signal.signal(signal.SIGUSR1, own)
    try:
        before = [signal.getsignal(number) for number in numbers]

        async def main() -> signal.Signals:
            waiting = asyncio.create_task(iris.until_stopped(signals=numbers))
            await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGUSR1)
            return await waiting

        assert iris.run(main()) is signal.SIGUSR1
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        signal.signal(signal.SIGUSR1, kept)


def test_a_signal_that_is_ignored_stays_so(loops: Loops) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    others = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}

    async def main() -> None:
        waiting = asyncio.create_task(iris.until_stopped(signals=(signal.SIGHUP, signal.SIGUSR1)))
        await asyncio.sleep(0)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGUSR1)
        assert await waiting is signal.SIGUSR1
        assert await iris.until_stopped() is signal.SIGUSR1  # it was told already

    try:
        loops.run(main())
    finally:
        signal.signal(signal.SIGHUP, before)
        for number, handler in others.items():  # uvloop leaves its own
            signal.signal(number, handler)


def test_signals_come_to_the_main_thread_alone(home: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        for wait in (iris_py.sync.until_stopped, lambda: asyncio.run(iris.until_stopped())):
            with pytest.raises(iris.ConfigurationError, match="main thread"):
                pool.submit(wait).result()


FORKED = """
import os, signal
import iris_py.sync as iris
node = iris.connect()
assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
child = os.fork()
if child == 0:
    os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1)
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_child_of_a_fork_ends_by_signals_as_any_other(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, without_standstills(done.stderr.decode())) == (0, "")
