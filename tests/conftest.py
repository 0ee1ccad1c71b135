"""Fixtures of all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from iris_py.logs import forget_lines
from tests.leaks import SaidWatch, find_secrets
from tests.long import LIST, mark_long, read_entries
from tests.memory import give_memory_back
from tests.process_leaks import ProcessWatch
from tests.profiles import NORMAL, QUICK

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.scheduling import FileOrGroupScheduling

pytest_plugins = ["pytester"]

# How long an example takes says more about the machine than about the code. The same examples every time: what the tests say
# depends on the code alone, and new ones are for `make fuzz-properties`, which tries many more.
settings.register_profile("iris", deadline=None, derandomize=True, max_examples=QUICK)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=NORMAL)
settings.register_profile("random", deadline=None, derandomize=False, max_examples=20 * NORMAL, print_blob=True)
settings.load_profile("iris")

# A shell makes what it runs in the background ignore interrupts, and children inherit that; those of the tests must not.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Bytecode is written, as it is for users. Tests start hundreds of interpreters, and each would compile all of Iris again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_said = SaidWatch()
_said.install()
_processes = ProcessWatch()
sys.addaudithook(_processes.audit)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileOrGroupScheduling | None:
    """Choose who gives tests to the processes of `pytest -n`."""
    from tests.scheduling import FileOrGroupScheduling  # pytest-xdist need not be there

    return FileOrGroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the list as long."""
    mark_long(items, read_entries(LIST.read_text()))


def pytest_runtest_setup() -> None:
    """Let each test log its ten lines of an event, and take back what a command that ran in this process did to the log."""
    forget_lines()
    for name in ("iris_py", "iris_py.config"):
        logger = logging.getLogger(name)
        logger.propagate = True
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Look at the processes that a test has started while its fixtures still keep them; after a file, give memory back."""
    _processes.look()
    result = yield
    if nextitem is None or nextitem.path != item.path:
        give_memory_back()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test fail that has written a secret, or that shown one, or that has let something it started do so."""
    report = yield
    if report.when != "teardown":
        return report
    found = [*find_secrets(text for _name, text in report.sections), *_processes.take(), *_said.take()]
    if "shows_secrets" in item.keywords:
        return report
    if found and report.outcome != "failed":
        report.outcome = "failed"
        report.longrepr = "a secret was written or shown:\n" + "\n".join(found)
    return report


def pytest_collection_finish() -> None:
    """Take what is there before the first test out of every garbage collection: Spark, pandas, and thousands of tests.

    Many tests collect at their end, so that what was forgotten says so, and that looked through all of it each time: 0.2 s.
    """
    gc.collect()
    gc.freeze()
