"""Tests of iris_py/lazy.py."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from iris_py.lazy import lazily


def test_a_name_is_imported_when_it_is_first_used_and_kept() -> None:
    namespace: dict[str, Any] = {"__name__": "collections.more", "__package__": "collections"}
    find = lazily(namespace, {"Mapping": "abc"})
    assert "Mapping" not in namespace
    found = find("Mapping")
    assert found is __import__("collections.abc").abc.Mapping
    assert namespace["Mapping"] is found


def test_a_name_that_is_not_exported_says_so_as_python_does() -> None:
    find = lazily({"__name__": "collections.more", "__package__": "collections"}, {"Mapping": "abc"})
    with pytest.raises(AttributeError, match=r"^module 'collections\.more' has no attribute 'Set'$"):
        find("Set")


COLLECTIONS = """
import gc, iris_py
began = sum(generation["collections"] for generation in gc.get_stats())
connect = iris_py.connect
ended = sum(generation["collections"] for generation in gc.get_stats())
assert ended <= began + 1, (began, ended)  # one of the few objects made since
assert gc.isenabled()
assert gc.get_freeze_count() == 0
"""
FROZEN = """
import gc
gc.freeze()
frozen = gc.get_freeze_count()
from iris_py import connect
assert gc.isenabled()
assert gc.get_freeze_count() > frozen // 2  # some have ended since
"""
DISABLED = """
import gc
gc.disable()
from iris_py import connect
assert not gc.isenabled()
"""
FAILED = """
import gc, sys
sys.modules["msgspec"] = None
try:
    from iris_py import connect
except ImportError:
    assert gc.isenabled()
else:
    raise AssertionError
"""


@pytest.mark.parametrize("program", [COLLECTIONS, FROZEN, DISABLED, FAILED])
def test_an_import_runs_no_garbage_collector_and_leaves_it_as_it_was(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
