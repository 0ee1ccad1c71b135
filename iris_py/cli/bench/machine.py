"""The machine that is measured: what it is, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

import msgspec

from iris_py.cli.versions import version_of
from iris_py.extras import DISTRIBUTION

__all__ = ["Machine", "busy_s", "describe_loop", "describe_machine", "processor_count"]

_MODEL: Final = re.compile(r"^(?:model name|Model)\s*:\s*(.+)$", re.MULTILINE)
#: Of the first line of /proc/stat: the fields that are time in which a processor did something. Guests are in the first two.
_BUSY: Final = (0, 1, 2, 5, 6, 7)


class Machine(msgspec.Struct, kw_only=True):
    """The machine, and what runs on it."""

    processors: int
    """Processors that the measurement may use."""
    model: str
    """Their model; empty if the system does not say."""
    system: str
    python: str
    iris: str
    event_loop: str
    """The event loop of the processes, with its version: `uvloop` if it is installed, else `asyncio`."""
    cryptography: str
    """The version of the package that encrypts."""
    load_before: float
    """How many processes ran or waited for a processor on the average of the minute before."""
    others_cpu: float | None = None
    """Processors that others used during the measurement; None if the system does not say."""


def describe_machine() -> Machine:
    """Return what there is to be said before a measurement."""
    return Machine(
        processors=processor_count(),
        model=_model(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        iris=version_of(DISTRIBUTION),
        event_loop="",
        cryptography=version_of("cryptography"),
        load_before=round(os.getloadavg()[0], 2),
    )


def describe_loop(package: str) -> str:
    """Return the name of an event loop, with its version."""
    return f"uvloop {version_of(package)}" if package == "uvloop" else "asyncio"


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def busy_s() -> float | None:
    """Return the time that all processors have spent on something since the start of the machine; None if it does not say."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        return sum(int(fields[index]) for index in _BUSY) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _model() -> str:
    try:
        found = _MODEL.search(Path("/proc/cpuinfo").read_text())
    except OSError:
        return platform.processor()
    return found[1].strip() if found else platform.processor()
