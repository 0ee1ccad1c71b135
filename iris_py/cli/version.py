"""The command `iris version`: the versions in use, for bug reports."""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from iris_py import __version__
from iris_py.build import build, commit
from iris_py.cli.output import Output
from iris_py.extras import DISTRIBUTION
from iris_py.json_lines import Line, Lines

__all__ = ["LINES", "print_version", "print_versions", "version_line", "version_of"]


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


def print_version() -> None:
    """Print only the version of Iris, for `iris --version`."""
    print(f"iris {build()}")


def print_versions(*, as_json: bool) -> None:
    """Print the versions of Iris, of Python, and of the required packages.

    Args:
        as_json: Prints them as a `VersionLine`.
    """
    line = version_line()
    packages = [f"{name} {its}" for name, its in line.packages.items()]
    Output(as_json=as_json).line(line, "\n".join([f"iris {build()}", line.python, *packages]))


def version_line() -> VersionLine:
    """Return the versions of Iris, of Python, and of the required packages, as printed by `iris version --json`."""
    try:
        needed = [line for line in requires(DISTRIBUTION) or () if "extra ==" not in line]
    except PackageNotFoundError:
        needed = []  # Iris is on the path without being installed
    names = sorted(match[0] for match in map(re.compile(r"[\w.-]+").match, needed) if match)
    python = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"
    return VersionLine(__version__, commit(), python, {name: version_of(name) for name in names})


def version_of(distribution: str) -> str:
    """Return the version of an installed package, or a remark for a missing package."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"
