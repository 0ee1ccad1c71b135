"""A plugin of pytest that chooses cases: the quick ones of each test, and the first one of a test with long cases alone."""

from __future__ import annotations

from collections import defaultdict

import pytest


@pytest.hookimpl(trylast=True)  # after the list of long tests is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out long cases where another case of the same test is left."""
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    kept = set[pytest.Item]()
    for found in cases.values():
        kept.update([item for item in found if "long" not in item.keywords] or found[:1])
    items[:] = [item for item in items if item in kept]
