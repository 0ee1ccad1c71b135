"""Suggestions for mistyped names of settings, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest_name(name: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests the most similar known name, or lists all known names.

    Args:
        name: The mistyped name.
        known: The valid names, at least one.
    """
    import difflib  # imported only for the error

    near = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(known)}."
