"""Tests of iris_py/lazy.py."""

from __future__ import annotations

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
