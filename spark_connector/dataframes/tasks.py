"""The tasks of a dispatch: they take batches, and yield the same rows with the columns of their replies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_connector.dataframes.batches import Bisector, ask_batches, columns_of_reply
from spark_connector.dataframes.counts import Tally
from spark_connector.dataframes.idempotency_keys import task_scope
from spark_connector.dataframes.plan import ERROR_COLUMN
from spark_connector.dataframes.rows import ask_rows, columns_of_replies, name_rows
from spark_connector.dataframes.window import Window
from spark_connector.dataframes.worker_node import end_task, worker_node
from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector.dataframes.plan import Plan
    from spark_connector.dataframes.task_requests import Question, RowGroup

__all__ = ["dispatch_batches", "dispatch_rows"]


def dispatch_rows(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send a request for each row; yield each batch with the columns of the replies."""
    tally = None if plan.metrics is None else Tally()
    window = _window(plan, tally)
    scope = task_scope(plan.name, plan.token)
    try:
        for group in window.run(ask_rows(plan, batches, scope)):
            yield _extend(plan, group, columns_of_replies(plan, group.questions), tally)
    finally:
        _finish(plan, tally)


def dispatch_batches(plan: Plan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send a request for several rows at once; yield the rows of each request with the columns of the reply."""
    tally = None if plan.metrics is None else Tally()
    window = _window(plan, tally)
    scope = task_scope(plan.name, plan.token)
    bisector = Bisector(lambda: _window(plan, tally), is_strict=plan.on_error == "raise")
    bytes_max = worker_node(plan.network, plan.cluster).node.max_message_bytes
    try:
        for group in window.run(ask_batches(plan, batches, scope, bytes_max)):
            for piece in bisector.pieces(group):
                yield _extend(plan, piece, columns_of_reply(plan, piece.questions[0], piece.rows.num_rows), tally)
    finally:
        _finish(plan, tally)


def _finish(plan: Plan, tally: Tally | None) -> None:
    if tally is not None:
        assert plan.metrics is not None
        tally.add_to(plan.metrics)
    end_task()


def _window(plan: Plan, tally: Tally | None) -> Window[pa.RecordBatch]:
    return Window(
        worker_node(plan.network, plan.cluster),
        plan.cluster,
        plan.limits,
        is_strict=plan.on_error == "raise",
        tally=tally,
        name=partial(_name_question, plan) if plan.id else None,
    )


def _name_question(plan: Plan, group: RowGroup[pa.RecordBatch], question: Question) -> str:
    """Return a name for the rows of a question, for errors: one row, or all rows of a batch."""
    if len(group.questions) == 1:
        return name_rows(plan.id, group.rows, 0, group.rows.num_rows)
    number = next(number for number, other in enumerate(group.questions) if other is question)
    return name_rows(plan.id, group.rows, number)


def _name_errors(plan: Plan, errors: list[DispatchError | None], rows: pa.RecordBatch) -> None:
    """Add missing names of rows to errors: an error per row, or a common error for all rows."""
    count = 1 if len(errors) == rows.num_rows else rows.num_rows
    for row, error in enumerate(errors):
        if error is not None and not error.rows:
            errors[row] = DispatchError(error.cluster, error.key, error.reason, name_rows(plan.id, rows, row, count))


def _extend(plan: Plan, group: RowGroup[pa.RecordBatch], columns: list[pa.Array[Any]], tally: Tally | None) -> pa.RecordBatch:
    """Add the columns of the replies to the rows. With ``on_error="raise"``, raise the first error instead."""
    if tally is not None:
        tally.note_errors(group.questions)
    errors = [question.outcome if isinstance(question.outcome, DispatchError) else None for question in group.questions]
    misfits = group.questions[0].misfits if len(errors) == 1 else None
    if misfits is not None:
        errors = [misfits.get(row) for row in range(group.rows.num_rows)]
    if plan.id:
        _name_errors(plan, errors, group.rows)
    if plan.on_error == "raise":
        for error in errors:
            if error is not None:
                raise error
    rows, fields = group.rows, list(plan.reply_schema)
    if plan.on_error == "column":
        texts = [None if error is None else str(error) for error in errors]
        texts = texts if len(texts) == rows.num_rows else texts * rows.num_rows
        columns = [*columns, pa.array(texts, pa.string())]
        fields.append(pa.field(ERROR_COLUMN, pa.string()))
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=pa.schema([*rows.schema, *fields]))
