"""Compares what commands and logs say with what docs/operations.md shows of them.

A block `console` of the page is a command with lines of its output, a block `text` has lines of a log. Each line must appear
in the true output. There numbers (other than 0), times, addresses and ids may differ, and `...` stands for any text.
"""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING

from tests.pages import ROOT, blocks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.network.lab import Lab, Process

PAGE = ROOT / "docs" / "operations.md"
#: How often a command is tried, as the nodes notice a fault one after another.
ATTEMPTS_MAX = 15
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z")
_NUMBER = re.compile(r"\b[0-9a-f]{8}\b|(?<!\w)\d[\d.,:]*\d(?!\w)|(?<!\w)\d(?!\w)")


def fixed(line: str) -> str:
    """Return the parts of a line that are the same in each run."""
    line = _NUMBER.sub(lambda found: "0" if found[0] == "0" else "#", _TIME.sub("#", line))
    return " ".join(re.sub(r"# (?:ns|us|ms|s)\b", "# s", line).split())


class Shown:
    """A block of the page.

    Args:
        command: The command; empty for a log.
        lines: What the page shows of the output.
    """

    def __init__(self, command: str, lines: list[str]) -> None:
        self.command = command
        self.lines = lines

    def missing(self, output: str) -> list[str]:
        """Return the lines of the page that an output lacks."""
        real = [fixed(line) for line in output.splitlines()]
        return [line for line in self.lines if not any(self._is(line, each) for each in real)]

    @staticmethod
    def _is(shown: str, real: str) -> bool:
        parts = (re.escape(fixed(part)) for part in shown.split("..."))
        return re.fullmatch(r"\s*.*\s*".join(parts), real) is not None


class Section:
    """A section of the page. Each block is to be taken once.

    Args:
        title: Its title.
    """

    def __init__(self, title: str) -> None:
        heads = [
            (number, line.removeprefix("## "))
            for number, line in enumerate(PAGE.read_text().splitlines(), start=1)
            if line.startswith("## ")
        ]
        starts = {head: number for number, head in heads}
        start = starts[title]
        end = min((number for number, _head in heads if number > start), default=sys.maxsize)
        self.text = "\n".join(PAGE.read_text().splitlines()[start : min(end, sys.maxsize) - 1])
        self._left: list[Shown] = []
        for block in blocks_of(PAGE):
            if start < block.line < end:
                first, *rest = block.text.splitlines()
                is_command = block.kind == "console"
                self._left.append(Shown(first.removeprefix("$ "), rest) if is_command else Shown("", [first, *rest]))

    def take(self, command: str = "") -> Shown:
        """Take the next block of a command, by its beginning, or of a log."""
        for shown in self._left:
            if shown.command.startswith(command) and bool(command) is bool(shown.command):
                self._left.remove(shown)
                return shown
        raise AssertionError(f"no further block {command!r}")

    def check_is_done(self) -> None:
        """Fail if a block of the section was not compared with the truth."""
        assert not self._left, [(shown.command, shown.lines) for shown in self._left]


class Operator:
    """Types the commands of a section on a host.

    Args:
        lab: Where.
        section: The section of the page.
        host: The host.
        environment: What to add to the environment of the host.
    """

    def __init__(self, lab: Lab, section: Section, host: str, environment: Mapping[str, str] | None = None) -> None:
        self._lab = lab
        self._section = section
        self._host = host
        self._environment = {"IRIS_LISTEN": f"{lab.hosts[host].address}:0", "IRIS_NAME": "ops", **(environment or {})}

    def start(self, command: str) -> Process:
        """Type a command, without waiting for its end."""
        program, *words = command.split()
        assert program == "iris"
        return self._lab.run(command, self._host, [sys.executable, "-m", "iris_py.cli", *words], **self._environment)

    def watch(self) -> Callable[[], None]:
        """Start the command `iris monitor` of the page; returns a function that waits for its lines, and ends it."""
        shown = self._section.take("iris monitor")
        process = self.start(shown.command)
        self._lab.until(lambda: "Ctrl-C ends it" in process.errors(), "the monitor watches")

        def wait() -> None:
            try:
                self._lab.until(lambda: not shown.missing(_text(process)), "the monitor says what the page shows")
            except AssertionError as exc:
                raise AssertionError(f"{shown.missing(_text(process))} missing in:\n{_text(process)}") from exc
            process.signal(signal.SIGINT)  # it is a node, too, and others would go on to see it
            process.wait()

        return wait

    def see(self, command: str) -> str:
        """Type the next such command of the page until it prints what the page shows; returns the whole output."""
        shown = self._section.take(command)
        output, errors = "", ""
        for _attempt in range(ATTEMPTS_MAX):
            process = self.start(shown.command)
            self._lab.until(lambda process=process: process.has_ended, f"{shown.command} ends")  # type: ignore[misc]
            output, errors = _text(process), process.errors()
            if not shown.missing(output):
                return output
        raise AssertionError(f"{shown.command}: {shown.missing(output)} missing in:\n{output}\n{errors}")

    def read_log(self, *processes: Process) -> None:
        """Wait until the logs of processes have, together, what the next log of the page shows."""
        shown = self._section.take()

        def log() -> str:
            return "\n".join(process.errors() for process in processes)

        try:
            self._lab.until(lambda: not shown.missing(log()), "the log says what the page shows")
        except AssertionError as exc:
            raise AssertionError(f"{shown.missing(log())} missing in:\n{log()}") from exc


def _text(process: Process) -> str:
    return "\n".join(str(said.get("text", "")) for said in process.said)
