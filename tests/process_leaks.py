"""Finds secrets on the command lines and in the environments of the processes that tests start.

A command line is open to every user of a machine, so a secret on one is a leak whoever put it there. The environment of a
process is open to its own user alone. A secret belongs there in ``IRIS_SECRET`` and nowhere else, and only if the user has put
it there: the test, in its own environment or in that of a process that it starts. Children inherit it (docs/security.md); one
that has a secret in its environment that its parent has not was given it by Iris, which is a leak.

Processes are looked at when a test starts another one, sends a signal, and ends its body; those that the test starts itself are
known by what it starts them with, however briefly they live. What lives in between, and is started by others, is not seen.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.leaks import find_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import FrameType

#: The variable in which a user may put a secret.
VARIABLE: Final = "IRIS_SECRET"
#: pytest says in it which test runs, and the parameters of some tests are secrets.
_OF_PYTEST: Final = "PYTEST_CURRENT_TEST"
_ROOT: Final = Path(__file__).parents[1]
_TESTS: Final = tuple(str(_ROOT / name) + os.sep for name in ("tests", "benchmarks", "examples"))
_PRODUCT: Final = tuple(str(_ROOT / name) + os.sep for name in ("iris_py", "overlay", "security", "spark_connector"))


class ProcessWatch:
    """Looks at the processes below this one. Its method :meth:`audit` is for ``sys.addaudithook``.

    Attributes:
        is_on: Whether it looks. Python keeps an audit hook until the process ends.
    """

    def __init__(self) -> None:
        self.is_on = True
        self._has_started = False
        self._is_looking = False
        self._given: set[str] = set()  # what tests have put into the environment of processes, in the variable for it
        self._clean: dict[tuple[int, str], bytes] = {}  # command lines that were looked at, by process and its start
        self._found: dict[str, None] = {}

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take note of a process that starts, and look at the others before one ends."""
        if not self.is_on:
            return
        if event == "subprocess.Popen":
            _executable, command, _directory, environment = arguments
            self._judge_start(command, os.environ if environment is None else environment)
            self.look()
            self._has_started = True
        elif event in ("os.fork", "os.forkpty", "os.posix_spawn"):
            self._has_started = True
        elif event in ("os.kill", "os.killpg"):
            self.look()

    def look(self) -> None:
        """Look at all processes below this one."""
        if not self._has_started or self._is_looking:
            return
        self._is_looking = True  # a signal handler, or another thread, need not do the same
        try:
            self._judge_running(_below(os.getpid()))
        finally:
            self._is_looking = False

    def take(self) -> list[str]:
        """Return where secrets were found since the last time, without the secrets."""
        found, self._found = self._found, {}
        return list(found)

    def _judge_start(self, command: object, environment: Mapping[Any, Any]) -> None:
        words = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)  # type: ignore[call-overload]
        self._note("the command line", " ".join(map(os.fsdecode, words)), "")
        variables = [(os.fsdecode(name), os.fsdecode(value)) for name, value in environment.items()]
        if not _is_started_by_product():
            self._given |= {value for name, value in variables if name == VARIABLE}
        self._note_variables(variables, {*self._given, os.environ.get(VARIABLE, "")}, os.fsdecode(words[0]))

    def _judge_running(self, processes: Mapping[int, tuple[int, str]]) -> None:
        for process, (parent, started) in processes.items():
            try:
                line = Path(f"/proc/{process}/cmdline").read_bytes()
                if self._clean.get((process, started)) == line:
                    continue
                variables = variables_of(process)
                given = self._given if parent == os.getpid() else {dict(variables_of(parent)).get(VARIABLE, "")}
            except OSError:
                continue  # it has ended
            self._clean[process, started] = line
            text = line.replace(b"\0", b" ").decode(errors="replace")
            self._note("the command line", text, "")
            self._note_variables(variables, {*given, os.environ.get(VARIABLE, "")}, text.partition(" ")[0])

    def _note(self, where: str, text: str, name: str) -> None:
        self._found |= dict.fromkeys(f"{where}{name}: {found}" for found in find_secrets([text]))

    def _note_variables(self, variables: Iterable[tuple[str, str]], given: set[str], program: str) -> None:
        for name, value in variables:
            if name != _OF_PYTEST and (name != VARIABLE or value not in given):
                self._note("the environment", f"{name}={value}", f" of {program}")


def variables_of(process: int) -> list[tuple[str, str]]:
    """Return the environment that a process has begun with.

    Raises:
        OSError: There is no such process.
    """
    entries = Path(f"/proc/{process}/environ").read_bytes().decode(errors="replace").split("\0")
    return [(name, value) for name, _equals, value in (entry.partition("=") for entry in entries if entry)]


def _below(ancestor: int) -> dict[int, tuple[int, str]]:
    """Return the processes below one: the parent and the time of the start of each."""
    below: dict[int, tuple[int, str]] = {}
    parents = [ancestor]
    while parents:
        parent = parents.pop()
        for child in _children_of(parent):
            try:
                fields = _read(f"/proc/{child}/stat").rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended
            below[child] = parent, fields[19].decode()
            parents.append(child)
    return below


def _children_of(process: int) -> list[int]:
    """Return the children of a process, of all its threads.

    This runs after every test. A search through all processes of the machine for their parents took longer than most tests.
    """
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return found  # it has ended
    for thread in threads:
        try:
            found += map(int, _read(f"/proc/{process}/task/{thread}/children").split())
        except OSError:
            continue  # it has ended
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _is_started_by_product() -> bool:
    """Tell whether it is Iris that starts a process, and not a test."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_TESTS) and path != __file__:
            return False
        if path.startswith(_PRODUCT):
            return True
        frame = frame.f_back
    return False
