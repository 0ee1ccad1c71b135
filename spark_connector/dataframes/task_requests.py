"""One request of a task, and a group of rows that waits for requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Question", "RowGroup"]

Rows = TypeVar("Rows")


class Question(msgspec.Struct, eq=False):
    """One request of a task to the cluster, and its outcome.

    Attributes:
        key: The idempotency key.
        payload: The payload; None to send no request because the outcome is known.
        outcome: The reply, or the error of a request without a reply; None while unknown, and for a row without a payload.
        rows: Number of rows in the request.
        is_part: Whether this question repeats a part of a failed batch.
        asked_at: The time of the first attempt, by the event loop's clock; set only where counts are kept.
        group: The group of the question, while the outcome is unknown. A longer reference would be a cycle that keeps both, and
            the rows, alive until the garbage collector runs.
        misfits: In a batch with a reply, the errors of rows with values of wrong types, by row number; None if all values fit.
        is_refused: Whether the member's handler raised an exception.
        is_exclusive: Whether the member executes no other exclusive question at the same time, so that the member's death
            identifies this question.
        members_lost_max: Number of members that may be lost under its key until the request is given up.
        is_given_up: Whether the maximum number of lost members was reached.
        lost: The ids of the members lost with this question, or with the enclosing batch.
    """

    key: str
    payload: bytes | None
    outcome: bytes | DispatchError | None = None
    group: RowGroup[Any] | None = None
    rows: int = 1
    is_part: bool = False
    asked_at: float = 0.0
    misfits: dict[int, DispatchError] | None = None
    is_refused: bool = False
    is_exclusive: bool = False
    members_lost_max: int = 1
    is_given_up: bool = False
    lost: tuple[str, ...] = ()


class RowGroup(Generic[Rows]):
    """Rows that are finished together when all their questions have outcomes.

    Attributes:
        rows: The rows, of any type.
        questions: The questions of these rows.
        left: Number of questions without an outcome.
    """

    __slots__ = ("left", "questions", "rows")

    def __init__(self, rows: Rows, questions: Sequence[Question]) -> None:
        self.rows = rows
        self.questions = questions
        self.left = sum(question.payload is not None for question in questions)
