"""Which tests go to a process together."""

from __future__ import annotations

import pytest

from tests.scheduling import FileOrGroupScheduling


@pytest.mark.parametrize(
    ("test", "together"),
    [
        ("tests/unit/iris_py/test_config.py::test_a[b::c]", "tests/unit/iris_py/test_config.py"),
        ("tests/test_locks.py::test_a", "tests/test_locks.py"),
        ("tests/unit/iris_py/net/test_http.py::test_a@machine", "machine"),
        ("tests/integration/test_loads.py::test_a[b]@machine", "machine"),
        ("tests/sim/test_nodes.py::test_a[b]", "tests/sim/test_nodes.py::test_a[b]"),
    ],
)
def test_short_tests_go_by_file_and_others_one_by_one(test: str, together: str) -> None:
    scheduling = FileOrGroupScheduling.__new__(FileOrGroupScheduling)  # it takes a session otherwise
    assert scheduling._split_scope(test) == together
