"""Which tests only `make test-long` runs: the list `long.txt`, whose head explains its lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

LIST: Final = Path(__file__).with_name("long.txt")
_LINE: Final = re.compile(r"(?P<path>[^: ]+\.py)(::(?P<test>\w+)(?P<rest>\[\*\])?| but (?P<quick>[\w ]+))?")


class MalformedList(Exception):
    """A line of the list has none of its forms."""


@dataclass(frozen=True)
class Entry:
    """One line of the list.

    Attributes:
        path: The file, from the root of the repository.
        test: The test function; None for all of the file.
        keeps_first: Whether the first parameter of the test stays quick.
        quick: The tests of the file that stay quick.
    """

    path: str
    test: str | None
    keeps_first: bool
    quick: frozenset[str]


def read_entries(text: str) -> list[Entry]:
    """Parse the list; raises :class:`MalformedList`."""
    entries = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None:
                raise MalformedList(line)
            entries.append(
                Entry(match["path"], match["test"], match["rest"] is not None, frozenset((match["quick"] or "").split()))
            )
    return entries


def mark_long(items: Iterable[pytest.Item], entries: Iterable[Entry]) -> None:
    """Give the listed tests the marker ``long``."""
    files = {entry.path: entry for entry in entries if entry.test is None}
    tests = {(entry.path, entry.test): entry for entry in entries if entry.test is not None}
    met = set[tuple[str, str]]()
    for item in items:
        path, _, name = item.nodeid.partition("::")
        test = re.split(r"[\[@]", name.rpartition("::")[2], maxsplit=1)[0]
        entry, whole = tests.get((path, test)), files.get(path)
        is_first = (path, test) not in met
        met.add((path, test))
        if (entry is not None and not (entry.keeps_first and is_first)) or (whole is not None and test not in whole.quick):
            item.add_marker(pytest.mark.long)
