"""A plugin of pytest that writes beginnings, failures and durations of tests to a file at once: the process may be killed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

#: The variable with the path of the file.
VARIABLE: Final = "IRIS_OUTCOMES"


def _write(kind: str, nodeid: str, seconds: float = 0.0) -> None:
    with Path(os.environ[VARIABLE]).open("a") as file:
        file.write(json.dumps([kind, nodeid.partition("[")[0], seconds]) + "\n")


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note the beginning of a case."""
    _write("begun", nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the end of a phase of a case."""
    _write("failed" if report.failed else "passed", report.nodeid, report.duration)
