"""Dispatch of Arrow batches: some rows make one request, an Arrow IPC stream, and the reply has a row for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.dataframes.casts import fit_rows
from spark_connector.dataframes.question import Question, RowGroup
from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_connector.dataframes.keys import Scope
    from spark_connector.dataframes.plan import Plan

__all__ = ["ask_batches", "columns_of_reply", "slices"]


def ask_batches(
    plan: Plan, batches: Iterator[pa.RecordBatch], scope: Scope, bytes_max: int
) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield pieces of batches, each with its question."""
    for batch in batches:
        for first in range(0, batch.num_rows, plan.batch_rows):
            yield from slices(plan, batch.slice(first, plan.batch_rows), scope, bytes_max)


def slices(plan: Plan, batch: pa.RecordBatch, scope: Scope, bytes_max: int) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield a batch with its question, in halves if it is too large for a message."""
    can_split = batch.num_rows > 1
    if not can_split or batch.nbytes <= bytes_max or callable(plan.request):
        question = _question(plan, batch, scope, bytes_max if can_split else None)
        if question is not None:
            yield RowGroup(batch, [question])
            return
    half = batch.num_rows // 2
    yield from slices(plan, batch.slice(0, half), scope, bytes_max)
    yield from slices(plan, batch.slice(half), scope, bytes_max)


def columns_of_reply(plan: Plan, question: Question, rows: int) -> list[pa.Array[Any]]:
    """Return the columns of the reply; nulls if there is none.

    An outcome that is no such reply becomes an error there, and values that are not as declared errors of their rows.
    """
    if isinstance(question.outcome, bytes):
        try:
            reply = decode_batch(question.outcome)
            if reply.num_rows == rows:
                return _columns(plan, question, reply)
            reason = f"the reply has {reply.num_rows} rows for a request of {rows}. Let its members serve an ArrowHandler."
        except ValueError as exc:
            reason = f"{exc}. Let its members serve an ArrowHandler."
        except MissingColumn as exc:
            reason = str(exc)
        question.outcome = DispatchError(plan.cluster, question.key, reason)
    return [pa.nulls(rows, field.type) for field in plan.reply_schema]


def _question(plan: Plan, batch: pa.RecordBatch, scope: Scope, bytes_max: int | None) -> Question | None:
    """Return the question of a batch; None if it is too large."""
    try:
        asked = plan.request(batch) if callable(plan.request) else batch
        if isinstance(plan.request, tuple):
            asked = batch.select(list(plan.request))
        payload = encode_batch(asked)
    except Exception as exc:
        key = scope.skip()
        reason = f"the function request= failed with {type(exc).__qualname__}: {exc}"
        return Question(key, None, DispatchError(plan.cluster, key, reason))
    if bytes_max is not None and len(payload) > bytes_max:
        return None
    return Question(scope.key(payload), payload, rows=batch.num_rows)


class MissingColumn(Exception):
    """The reply lacks a column of the schema."""


def _columns(plan: Plan, question: Question, reply: pa.RecordBatch) -> list[pa.Array[Any]]:
    columns, misfits = [], {}
    for field in plan.reply_schema:
        index = reply.schema.get_field_index(field.name)
        if index < 0:
            has = f"has the columns {', '.join(reply.schema.names)}" if reply.schema.names else "has no columns"
            raise MissingColumn(
                f"schema= names a column {field.name!r}, and the reply {has}. "
                "Correct the name in schema=, or let the handler return such a column."
            )
        column = reply.column(index)
        fitted, reasons = fit_rows(column, field.type, plan.time_zone)
        columns.append(fitted)
        for row, reason in reasons.items():
            what = f"the reply's column {field.name!r} is {column.type}, and cannot be {field.type}: {reason}"
            misfits[row] = DispatchError(plan.cluster, question.key, f"{what}. It is row {row} of its request.")
    if not misfits:
        return columns
    question.misfits = misfits
    # A row that has an error has no value in any column.
    is_misfit = pa.array([row in misfits for row in range(reply.num_rows)])
    return [_without(column, is_misfit) for column in columns]


def _without(column: pa.Array[Any], mask: pa.Array[Any]) -> pa.Array[Any]:
    result: pa.Array[Any] = pc.if_else(mask, pa.scalar(None, column.type), column)
    return result
