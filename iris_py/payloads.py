"""Types of payloads: bytes, or with a codec other values (:mod:`iris_py.api.codec`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    from typing_extensions import TypeForm, TypeVar  # type checkers know them; programs need not have them

    #: The types that every sending method accepts as a payload of bytes.
    BytesLike: TypeAlias = bytes | bytearray | memoryview[Any]

    Payload = TypeVar("Payload", default=bytes)
    Question = TypeVar("Question", default=bytes)
    Answer = TypeVar("Answer", default=bytes)
    #: The reply of a handler. Without codec a handler may return every type in ``BytesLike``, while callers get ``bytes``.
    Reply = TypeVar("Reply", default=BytesLike, covariant=True)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")
    Question = TypeVar("Question")
    Answer = TypeVar("Answer")
    Reply = TypeVar("Reply", covariant=True)
    BytesLike = TypeForm = Any  # only annotations use them

__all__ = ["Answer", "BytesLike", "Payload", "Question", "Reply", "TypeForm"]
