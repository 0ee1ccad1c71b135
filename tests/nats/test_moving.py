"""A service moves from NATS to Iris: programs in Go and JavaScript, and native ones, serve and ask one name over two doors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, cast

import pytest

from tests.nats.languages import ENVIRONMENT, HERE, built_program, missing_clients
from tests.nats.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCES = {"Go": "pool.go", "JavaScript": "pool.mjs"}
REPLIES = {"Go": "go", "JavaScript": "js"}
LANGUAGES = [language for language in SOURCES if language not in missing_clients()]
NATIVE = (sys.executable, "-P", str(HERE / "clients" / "pool.py"))
REQUESTS = 200
LANES = 4
WAIT_S = 60.0
#: The errors of requests that a killed service had.
LOST = {"502", "MemberLost"}


class Program:
    """A service or a caller in a process, which writes a line for each request."""

    def __init__(self, command: tuple[str, ...], environment: dict[str, str], file: Path) -> None:
        self._file = file
        with file.open("wb") as output:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=output)

    def lines(self) -> list[str]:
        """Return the whole lines so far."""
        return self._file.read_text().rpartition("\n")[0].splitlines()

    def outcomes(self) -> Counter[str]:
        """Return the outcomes of a caller's requests."""
        return Counter(line.split()[1] for line in self.lines())

    def finish(self) -> None:
        """Let a caller end with its last requests."""
        cast("IO[bytes]", self.process.stdin).close()
        assert self.process.wait(WAIT_S) == 0

    def end(self) -> None:
        """Kill the program, unless it has ended."""
        cast("IO[bytes]", self.process.stdin).close()
        self.process.kill()
        self.process.wait()


class Network:
    """Two doors, and programs beside them."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        own = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
        self._environment = {
            **own,
            **ENVIRONMENT,
            "HOME": str(directory),
            "XDG_CONFIG_HOME": str(directory),
            "PYTHONPATH": str(ROOT),
        }
        self._directory = directory
        self._stack = stack
        self._count = 0
        self.doors = [self._open_door() for _ in range(2)]

    def start(self, *command: str) -> Program:
        """Start a program."""
        self._count += 1
        program = Program(command, self._environment, self._directory / f"program-{self._count}.txt")
        self._stack.callback(program.end)
        return program

    def serve(self, *command: str) -> Program:
        """Start a service; return when it serves."""
        program = self.start(*command, "serve")
        until(lambda: "serving" in program.lines(), "a service")
        return program

    def _open_door(self) -> str:
        door = self.start(sys.executable, "-m", "iris_py", "door", "nats", "--at", "127.0.0.1:0", "--json")
        until(door.lines, "a door")
        return str(json.loads(door.lines()[0])["url"])


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with ExitStack() as stack:
        yield Network(tmp_path, stack)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {WAIT_S:g} s"
        time.sleep(0.02)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.timeout(600)
def test_every_request_is_answered_or_fails_while_a_service_moves(language: str, network: Network) -> None:
    client, first, second = built_program(language, HERE / "clients" / SOURCES[language]), *network.doors
    services = [network.serve(*client, first), network.serve(*client, second), network.serve(*NATIVE), network.serve(*NATIVE)]
    callers = [network.start(*client, first, "ask", "one"), network.start(*client, second, "ask", "two")]
    callers.append(network.start(*NATIVE, "ask", "three"))
    kinds = {REPLIES[language], "native"}

    def wait_for_replies(kinds: set[str], count: int) -> None:
        """Wait until each caller has so many more replies of each kind."""
        before = [caller.outcomes() for caller in callers]
        pairs = list(zip(callers, before, strict=True))
        until(lambda: all(caller.outcomes()[kind] >= old[kind] + count for caller, old in pairs for kind in kinds), "reply")

    wait_for_replies(kinds, REQUESTS)
    assert [set(caller.outcomes()) for caller in callers] == [kinds] * len(callers)  # nothing was lost so far
    for killed in (services[0], services[2]):
        killed.process.send_signal(signal.SIGKILL)
    wait_for_replies(kinds, REQUESTS)
    services[1].process.send_signal(signal.SIGKILL)  # the move is complete
    wait_for_replies({"native"}, REQUESTS)
    for caller in callers:
        caller.finish()
    asked: Counter[str] = Counter()
    failed = 0
    for caller in callers:
        outcomes = caller.outcomes()
        assert set(outcomes) <= kinds | LOST
        failed += sum(outcomes[error] for error in LOST)
        asked.update(line.split()[0] for line in caller.lines())
    executed = Counter(line for service in services for line in service.lines() if line != "serving")
    assert set(executed.values()) == set(asked.values()) == {1}
    assert set(executed) <= set(asked)
    assert len(asked) - failed <= len(executed)
    assert failed <= 3 * len(callers) * LANES
