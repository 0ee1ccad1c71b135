"""The subscribed patterns of a network: the patterns that a list is limited to."""

from __future__ import annotations

import pytest

from iris_py.overview.topics import overlaps


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a.>", "a.b", True),
        ("a.*", "a.b", True),
        ("*.b", "a.*", True),
        (">", "x.y", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b.c", False),
        ("a.>", "b.>", False),
    ],
)
def test_patterns_overlap_where_a_topic_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlaps(one, other) is overlaps(other, one) is expected
