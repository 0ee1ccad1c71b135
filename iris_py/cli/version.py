"""The command `iris version --json`: the versions in use, for bug reports by programs."""

from __future__ import annotations

from typing import Final

from iris_py import __version__
from iris_py.build import commit, python_version
from iris_py.cli.output import Output
from iris_py.extras import REQUIRED, version_of
from iris_py.json_lines import Line, Lines

__all__ = ["LINES", "print_version_line", "version_line"]


class VersionLine(Line, tag="version"):
    """The versions of Iris, of Python, and of the required packages."""

    iris: str
    commit: str
    """The commit of this Iris, in hexadecimal digits; empty if unknown."""
    python: str
    """The implementation of Python, its version, the system and the machine."""
    packages: dict[str, str]
    """The packages required by Iris, by name."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"version": (VersionLine,)}


def version_line() -> VersionLine:
    """Return the versions of Iris, of Python, and of the required packages, as printed by `iris version --json`."""
    return VersionLine(__version__, commit(), python_version(), {name: version_of(name) for name in REQUIRED})


def print_version_line() -> None:
    """Print the versions of Iris, of Python, and of the required packages as a `VersionLine`."""
    Output(as_json=True).line(version_line())
