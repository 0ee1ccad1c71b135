"""The extras of the distribution: what optional parts of Iris need, and the command that installs it."""

from __future__ import annotations

import re
import shlex
from typing import Final

__all__ = ["DISTRIBUTION", "install_command"]

DISTRIBUTION: Final = "iris-messaging"
_REQUIREMENT: Final = re.compile(r"(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")
_OWN: Final = re.compile(rf"{DISTRIBUTION}\[(?P<extra>[\w-]+)\]")


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs: ``pip install`` and the packages themselves.

    It does not name Iris: whoever runs it may have installed Iris from a clone or a wheel, and a package index need not have
    it, or may have something else of that name.

    Args:
        extra: ``spark``, ``arrow``, ``otel``, ``metrics``, ``tui`` or ``plots``.
    """
    packages = " ".join(shlex.quote(package) for package in _packages(extra))
    return f"pip install {packages}" if packages else f"pip install '.[{extra}]' in a clone of Iris"


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra, with those of the extras that it is made of."""
    from importlib.metadata import PackageNotFoundError, requires  # 3 MiB of memory, for an error that hardly anybody sees

    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []  # Iris is on the path without having been installed
    found: list[str] = []
    for line in lines:
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match["extra"] != extra:
            continue
        own = _OWN.fullmatch(match["package"])
        found += [match["package"]] if own is None else _packages(own["extra"])
    return found
