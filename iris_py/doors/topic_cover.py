"""Cover: whether every topic that one pattern matches is matched by another one, too.

A client may subscribe to a pattern if an allowed pattern covers it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.patterns.topic.names import ANY_REST, ANY_TOKEN

if TYPE_CHECKING:
    from iris_py.patterns.topic.names import Tokens

__all__ = ["covers"]


def covers(wide: Tokens, narrow: Tokens) -> bool:
    """Tell whether every topic that ``narrow`` matches is matched by ``wide``.

    Args:
        wide: The tokens of a valid pattern.
        narrow: The tokens of a valid pattern or topic.
    """
    if wide[-1] == ANY_REST:
        # `a.>` and `a.*.>` match one token at least in place of `>`.
        head = wide[:-1]
        return len(narrow) > len(head) and all(map(_covers_token, head, narrow))
    return len(narrow) == len(wide) and all(map(_covers_token, wide, narrow))


def _covers_token(wide: str, narrow: str) -> bool:
    return wide == narrow or (wide == ANY_TOKEN and narrow != ANY_REST)
