"""Processes that have Iris in them already are as others, besides what the system says of how they began."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import warm

if TYPE_CHECKING:
    from pathlib import Path

WAIT_S = 60.0
TELLS = """
import os, sys
print(sys.argv, os.environ["GIVEN"], os.getcwd(), sys.path[0], os.getsid(0) == os.getpid(), sys.flags.dev_mode)
print(__name__, __file__)
print(os.listdir("/proc/self/fd"), file=sys.stderr)
print("iris_py" in sys.modules, sys.stdin.read())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.py"
    file.write_text(TELLS)
    return file


def run(command: list[Any], *, is_new: bool, text: str = "said", **options: Any) -> tuple[int, str, str]:
    pipe = subprocess.PIPE
    with warm.Process(command, is_new=is_new, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        out, errors = process.communicate(text, timeout=WAIT_S)
    return process.returncode, out, errors


@pytest.mark.parametrize("options", [(), ("-X", "dev", "-W", "ignore:nothing")], ids=["plain", "options"])
def test_it_begins_as_with_an_interpreter_of_its_own(program: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, *options, program, "one", "two words"]
    given: dict[str, Any] = {"env": os.environ | {"GIVEN": "variable"}, "cwd": program.parent, "start_new_session": True}
    plain, quick = (run(command, is_new=is_new, **given) for is_new in (True, False))
    assert plain[1].endswith("False said\n")
    assert quick == (plain[0], plain[1].replace("False said", "True said"), plain[2])


def test_a_module_is_run_as_one() -> None:
    plain, quick = (run([sys.executable, "-m", "iris_py.cli", "nothing"], is_new=is_new) for is_new in (True, False))
    assert plain == quick
    assert "nothing" in plain[2]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(3)", 3),
        ("raise SystemExit('a reason')", 1),
        ("raise SystemExit(True)", 1),
        ("import sys; sys.exit()", 0),
        ("raise ValueError('wrong')", 1),
        ("import os, threading; threading.Timer(0.01, os._exit, [5]).start()", 5),
        ("import os, sys; sys.stdout = open(1, 'w'); print('nobody reads it'); os.close(1)", 120),
        ("import atexit, os; atexit.register(os._exit, 4)", 4),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    ],
)
def test_it_ends_as_with_an_interpreter_of_its_own(tmp_path: Path, program: str, code: int) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"print('begun', end='', flush=True)\n{program}")
    plain, quick = (run([sys.executable, file], is_new=is_new) for is_new in (True, False))
    assert plain[:2] == quick[:2] == (code, "begun")
    assert plain[2].splitlines()[-1:] == quick[2].splitlines()[-1:]
    assert plain[2].count("Traceback") == quick[2].count("Traceback")


def test_it_writes_what_it_has_said_before_it_ends(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import atexit, sys\natexit.register(print, 'last')\nprint('first')\nsys.stderr.write('error')")
    assert run([sys.executable, file], is_new=False) == (0, "first\nlast\n", "error")


@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["plain", "dev"])
def test_it_says_what_it_has_forgotten(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A program that is free of cycles and globals says so as it runs; these are found at its end."""
    file = tmp_path / "program.py"
    file.write_text("async def main(): pass\nforgotten = [main()]\nforgotten.append(forgotten)\ndel forgotten")
    assert "coroutine 'main' was never awaited" in run([sys.executable, *options, file], is_new=False)[2]


def test_in_development_mode_it_says_what_it_has_left_open(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("import socket\nleft = socket.socket()")
    assert "ResourceWarning: unclosed <socket" in run([sys.executable, "-X", "dev", file], is_new=False)[2]


def test_it_is_killed_and_awaited(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("input()")
    with warm.Process([sys.executable, file], stdin=subprocess.PIPE) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(WAIT_S) == process.poll() == -signal.SIGKILL


@pytest.mark.parametrize("variable", ["IRIS_SECRET", "PYTHONSAFEPATH"])
def test_what_the_system_shows_or_python_reads_gets_an_interpreter_of_its_own(program: Path, variable: str) -> None:
    environment = os.environ | {"GIVEN": "", variable: "x"}
    assert run([sys.executable, program], is_new=False, env=environment)[1].endswith("False said\n")
