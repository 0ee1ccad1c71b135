"""One request of a task, and the rows that go on together when theirs have been answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Question", "RowGroup"]

Rows = TypeVar("Rows")


class Question(msgspec.Struct, eq=False):
    """One request.

    Attributes:
        key: What it is known by at the cluster.
        payload: What is asked; None to ask nothing, if the outcome is known.
        outcome: The reply, or why there is none; None while it is not known, and for a question that is not asked.
        rows: How many rows it is about.
        is_part: Whether it asks again about some rows of a batch whose handler failed.
        asked_at: When it was asked first, by the clock of the event loop; noted only where counts are kept.
        group: What it belongs to, from when it is handed over until its outcome is known. Not for longer: the two would keep
            each other, and the rows, until Python looks for such cycles.
        misfits: Of a batch with a reply, the rows whose values are not as declared, by their numbers; None if all are.
        is_refused: Whether it has no reply because the handler failed.
        is_exclusive: Whether its member executes no other exclusive question meanwhile, so that a death of the member names it.
        members_lost_max: How many members it may lose under its key.
        is_given_up: Whether it has no reply because it has lost so many.
        lost: The ids of the members that were lost with it, or with the batch of which it is a part.
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
    """Rows that go on together when all their questions have been answered.

    Attributes:
        rows: Whatever they are.
        questions: What is asked about them.
        left: How many of these have no outcome yet.
    """

    __slots__ = ("left", "questions", "rows")

    def __init__(self, rows: Rows, questions: Sequence[Question]) -> None:
        self.rows = rows
        self.questions = questions
        self.left = sum(question.payload is not None for question in questions)
