"""Advice for names that were mistyped."""

from __future__ import annotations

from iris_py.wire.names import nearest_name


def test_a_name_that_is_near_is_asked_for_and_else_all_are_named() -> None:
    assert nearest_name("allwo", ["allow", "audit"]) == "Did you mean 'allow'?"
    assert nearest_name("x", ["allow", "audit"]) == "Use one of: allow, audit."
