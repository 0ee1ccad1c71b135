"""Programs of users without a home directory, or with one that cannot be written, as in containers: a secret suffices."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from iris_security import Secret

if TYPE_CHECKING:
    from pathlib import Path

#: A network of this process of tests alone: the others run the same tests beside it.
SECRET = Secret.generate(os.urandom).text

#: Two nodes of one network, of which one asks the other. The user has no entry in the table of users.
PROGRAM = """
import asyncio, logging, pwd, sys
import iris_py
logging.basicConfig(level=logging.INFO)

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown

async def echo(request):
    return request.payload

async def main():
    async with iris_py.connect() as member, member.join("echo", echo), iris_py.connect(seeds=[member.address]) as caller:
        print((await caller.request("echo", b"hello", idempotent=True)).decode())

asyncio.run(main())
"""


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return subprocess.run(command, env=words | environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("home", [None, "", "relative", "/proc/nowhere", "file"])
def test_a_program_with_a_secret_needs_no_directory(tmp_path: Path, home: str | None) -> None:
    (tmp_path / "file").touch()
    environment = {"IRIS_SECRET": SECRET}
    if home is not None:
        environment["HOME"] = str(tmp_path / "file") if home == "file" else home
    done = run([sys.executable, "-c", PROGRAM], environment)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "WARNING" not in done.stderr
    assert ("remembered peers" in done.stderr) == (home in ("/proc/nowhere", "file")), "INFO says that they are not kept"


def test_a_program_without_a_secret_is_told_what_is_missing() -> None:
    done = run([sys.executable, "-c", PROGRAM], {})
    assert done.returncode == 1
    assert "no secret is set, and this user has no home directory for one. Set IRIS_SECRET" in done.stderr.splitlines()[-1]


#: The command line for a user whom the system does not know.
COMMAND = """
import pwd, sys

def unknown(uid):
    raise KeyError(uid)

pwd.getpwuid = unknown
from iris_py.cli import main
sys.argv[0] = "iris"
main()
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["config", "show"], 0, "secret             set"),
        (["config", "check"], 2, "this user has no home directory, and so no configuration file"),
        (["config", "show", "--context", "staging"], 2, "--context: contexts are files in the home directory"),
        (["keys", "list"], 0, "primary"),
        (["keys", "path"], 2, "this user has no home directory, and so no secret there"),
        (["clusters"], 3, "no other node found"),
        (["doctor"], None, "this user has no home directory: other nodes of this machine are found only by beacons and seeds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_command_that_uses_a_home_does_without_or_says_so(words: list[str], code: int | None, says: str) -> None:
    done = run([sys.executable, "-c", COMMAND, *words], {"IRIS_SECRET": SECRET})
    output = done.stdout + done.stderr
    assert says in output
    assert "Traceback" not in output
    assert "bug in Iris" not in output
    # The doctor examines the machine, too, and may find a fault of it.
    assert done.returncode == code if code is not None else done.returncode in (0, 8), output
