"""The command `iris version`: what runs here, for reports of defects."""

from __future__ import annotations

import json
import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from iris_py.extras import DISTRIBUTION

__all__ = ["print_version", "print_versions"]


def print_version() -> None:
    """Print the version of Iris alone."""
    print(f"iris {_version_of(DISTRIBUTION)}")


def print_versions(*, as_json: bool) -> None:
    """Print the versions of Iris, of Python, and of the packages that Iris needs.

    Args:
        as_json: Prints one JSON object with the same names.
    """
    try:
        needed = [line for line in requires(DISTRIBUTION) or () if "extra ==" not in line]
    except PackageNotFoundError:
        needed = []  # Iris is on the path without having been installed
    names = sorted(match[0] for match in map(re.compile(r"[\w.-]+").match, needed) if match)
    versions = {
        "iris": _version_of(DISTRIBUTION),
        platform.python_implementation(): f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: _version_of(name) for name in names},
    }
    if as_json:
        print(json.dumps(versions))
    else:
        print("\n".join(f"{name} {its}" for name, its in versions.items()))


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"
