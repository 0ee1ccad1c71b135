"""Advice for names that were mistyped: of settings, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest_name(name: str, known: Sequence[str]) -> str:
    """Return a sentence that names the known name which another one resembles, or else all of them.

    Args:
        name: As somebody wrote it.
        known: The names that there are, at least one.
    """
    import difflib  # imported only for the error

    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(known)}."
