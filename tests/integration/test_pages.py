"""Commands in the documentation are typed, and print what it says: docs/tutorial.md, and those of docs/how-to/.

A page is one session. A block whose note says `runs on: NAME` is started and left running; `kill: NAME` kills it, and
`prints: NAME` waits until it has printed the block. `iris` commands that end by themselves run in this process: a second less.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.app import run as run_iris
from tests.pages import ROOT, Block, blocks_of
from tests.ports import free_port
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: For anything to happen on a busy machine; a session takes a tenth of it.
PATIENCE_S = 60.0
AGAIN_S = 0.05  # between two tries of a command that is typed until it prints what it should
#: The port of the pages, in place of which a session has a free one.
PORT = 4711
#: What an error says of other tests that run beside this one.
STRANGERS = re.compile(r" Nodes with another secret were heard .*? give all nodes the same IRIS_SECRET_FILE\.")
#: What differs each time: ids of nodes and keys, numbers of processes and ports, versions, and names of nodes.
DIFFERS = (
    r"\b[0-9a-f]{8,32}\b",
    r"(?<=process )\d+",
    r"(?<=127\.0\.0\.1:)\d+",
    r"(?<=^iris )[\d.]+(?:\+[0-9a-f#]+)?$",
    r"(?<=passed in )[\d.]+",
    r"\b[\w.-]+/(?:iris_py\.cli|iris|\w+\.py|pytest|python)(?=[\s)])",
)


def alike(output: str) -> str:
    """Return what is the same each time, without blanks that a terminal does not show."""
    output = STRANGERS.sub("", output)
    for pattern in DIFFERS:
        output = re.sub(pattern, "#", output, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in output.strip().splitlines())


class Session:
    """Terminals of one user, in one directory.

    Args:
        directory: Where commands run.
        capture: Of pytest: what commands in this process print.
    """

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._directory = directory
        self._capture = capture
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._port = free_port()

    def type(self, block: Block) -> None:
        """Do what a block says."""
        notes = dict(block.notes)
        if "kill" in notes:
            for name in notes["kill"].split(", "):
                self._kill(name)
        if block.file:
            (self._directory / block.file).write_text(block.text)
        elif "prints" in notes:
            self._wait_for(notes["prints"], block.text)
        elif block.kind == "console":
            for command, expected in sessions_of(block.text.replace(f"127.0.0.1:{PORT}", f"127.0.0.1:{self._port}")):
                if "runs on" in notes:
                    self._start(notes["runs on"], command, expected)
                else:
                    self._run(command, expected, again="again" in notes)

    def close(self) -> None:
        """End whatever runs."""
        for name in list(self._running):
            self._kill(name)

    def _run(self, command: str, expected: str, *, again: bool) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while alike(printed := self.run(command)) != alike(expected):
            assert again, f"$ {command}\n{printed}\nand the page says\n{expected}"
            assert time.monotonic() < deadline, printed
            time.sleep(AGAIN_S)

    def run(self, command: str) -> str:
        """Run a command to its end, and return what it prints."""
        variables, words = split(command)
        if words[0] != "iris":
            return self._popen(command).communicate(timeout=PATIENCE_S)[0]
        with pytest.MonkeyPatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.chdir(self._directory)
            patch.setattr(logging.getLogger("iris_py"), "handlers", [])
            self._capture.readouterr()
            run_iris(words[1:])
            return without_standstills("".join(self._capture.readouterr()))

    def _start(self, name: str, command: str, expected: str) -> None:
        self._running[name] = self._popen(command)
        self._wait_for(name, expected)

    def _wait_for(self, name: str, expected: str) -> None:
        out = self._running[name].stdout
        assert out is not None
        for line in expected.splitlines():
            read = out.readline()
            assert alike(read) == alike(line)

    def _popen(self, command: str) -> subprocess.Popen[str]:
        variables, words = split(command)
        program = {"python": [sys.executable], "iris": [sys.executable, "-m", "iris_py.cli"]}[words[0]]
        environment = {**os.environ, **variables, "PYTHONUNBUFFERED": "1"}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
        return subprocess.Popen(
            [*program, *words[1:]], cwd=self._directory, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def split(command: str) -> tuple[dict[str, str], list[str]]:
    """Return the variables that stand before a command, and its words."""
    words = shlex.split(command)
    count = next(number for number, word in enumerate(words) if not re.fullmatch(r"[A-Z_]+=.*", word))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def sessions_of(text: str) -> Iterator[tuple[str, str]]:
    """Return each command of a block with what it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.fixture
def session(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Session]:
    directory = home / "project"
    directory.mkdir()
    opened = Session(directory, capsys)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    "page",
    [
        "tutorial.md",
        "how-to/serve.md",
        "how-to/retries.md",
        "how-to/rotate.md",
        "how-to/shell.md",
        "how-to/debug.md",
        "how-to/one-machine.md",
        "how-to/web.md",
        "observe.md",
    ],
)
def test_a_page_prints_what_it_says(session: Session, page: str) -> None:
    for block in blocks_of(ROOT / "docs" / page):
        if not block.reason and not block.is_only_read:
            session.type(block)
