"""Lines on standard error that a busy machine causes: a program without a processor says that its event loop stood still."""

from __future__ import annotations

from typing import IO, Final

#: In the log of a program, of a command, and of a command with ``--log-json``.
STANDSTILL: Final = "the event loop stood still for "


def without_standstills(errors: str) -> str:
    """Return the lines of a standard error, but for those that say that the event loop stood still."""
    return "".join(line for line in errors.splitlines(keepends=True) if STANDSTILL not in line)


def read_line(stream: IO[str]) -> str:
    """Return the next line of a standard error that does not say so; empty at the end."""
    while STANDSTILL in (line := stream.readline()):
        pass
    return line
