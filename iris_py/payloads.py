"""Type variables for payloads: bytes, unless a codec makes them something else (:mod:`iris_py.api.codec`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it; programs need not have it

    Payload = TypeVar("Payload", default=bytes)
    Question = TypeVar("Question", default=bytes)
    Answer = TypeVar("Answer", default=bytes)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")
    Question = TypeVar("Question")
    Answer = TypeVar("Answer")

__all__ = ["Answer", "Payload", "Question"]
