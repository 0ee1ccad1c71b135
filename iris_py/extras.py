"""The requirements of Iris: their installed versions, those of optional parts (extras), and the command to install these."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["DISTRIBUTION", "REQUIRED", "install_command", "requirements", "version_of"]

DISTRIBUTION: Final = "iris-messaging"
#: The packages without which Iris does not work.
REQUIRED: Final = ("asyncio-dgram", "cryptography", "msgspec", "rich", "typer", "uvloop")
_REQUIREMENT: Final = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*")
_OWN: Final = re.compile(rf"{DISTRIBUTION}\[(?P<extra>[\w-]+)\]")


def install_command(extra: str) -> str:
    """Return the command that installs the requirements of an extra: ``pip install`` and the packages.

    The command does not name Iris: Iris may be installed from a clone or a wheel, and a package index may lack Iris or have
    another package of this name.

    Args:
        extra: ``spark``, ``arrow``, ``otel``, ``metrics``, ``tui`` or ``plots``.
    """
    import shlex  # for a rare error, as the metadata below

    packages = " ".join(shlex.quote(package) for package in _packages(extra))
    return f"pip install {packages}" if packages else f"pip install '.[{extra}]' in a clone of Iris"


def requirements(extra: str) -> dict[str, str]:
    """Return the requirements of Iris with an extra, such as ``pyarrow>=18``, by the name of the package, ``pyarrow``.

    Args:
        extra: As for :func:`install_command`.
    """
    texts = [*_packages(extra), *(line.partition(";")[0].strip() for line in _lines() if "extra ==" not in line)]
    return {match[0].lower().replace("_", "-"): text for text in texts if (match := _NAME.match(text)) is not None}


def version_of(distribution: str) -> str:
    """Return the version of an installed package, or a remark for a missing package.

    Args:
        distribution: The name of the package, as in `pyproject.toml`.
    """
    if (found := _installed().get(_normalized(distribution))) is not None:
        return found
    from importlib.metadata import PackageNotFoundError, version  # for packages without a directory, as in an archive

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "(not installed)"


@cache
def _installed() -> dict[str, str]:
    """Return the versions of all packages with a directory of metadata, whose name contains the version (PEP 376).

    To list the directories takes a tenth of the time of importing `importlib.metadata`.
    """
    found: dict[str, str] = {}
    for folder in map(Path, sys.path):
        try:
            names = [path.name for path in folder.iterdir()]
        except OSError:
            continue  # an archive, or a directory that does not exist
        for name in names:
            if name.endswith(".dist-info"):
                package, _, version = name.removesuffix(".dist-info").partition("-")
                found.setdefault(_normalized(package), version)
    return found


def _normalized(name: str) -> str:
    """Return the name of a package in the form in which names are compared (PEP 503)."""
    return name.lower().replace("_", "-").replace(".", "-")


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, including those of the extras that it names."""
    found: list[str] = []
    for line in _lines():
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match["extra"] != extra:
            continue
        own = _OWN.fullmatch(match["package"])
        found += [match["package"]] if own is None else _packages(own["extra"])
    return found


def _lines() -> list[str]:
    """Return all requirements of the distribution with their conditions; none if Iris is on the path but not installed."""
    from importlib.metadata import PackageNotFoundError, requires  # 3 MiB of memory, for a rare error

    try:
        return requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
