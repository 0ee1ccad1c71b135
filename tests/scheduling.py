"""Which tests a process of `pytest -n` is given at once."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadGroupScheduling

#: Thousands of tests of some milliseconds each. A message to a process for each of them would cost as much as the test.
_SHORT: Final = ("tests/unit/", "tests/wire/", "tests/fuzz/", "tests/test_")


class FileOrGroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # it has no types
    """Gives whole files of short tests to a process, and all others one by one, but for what is marked with ``xdist_group``."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid and nodeid.startswith(_SHORT) else scope
