"""A plugin of pytest that tells coverage which test runs, fixtures and examples of Hypothesis included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Attribute what is executed to a test, whatever its parameters."""
    measuring = coverage.Coverage.current()
    assert measuring is not None
    measuring.switch_context(item.nodeid.partition("[")[0])
    try:
        return (yield)
    finally:
        measuring.switch_context("")
