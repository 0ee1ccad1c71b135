"""Dispatch of Arrow batches: several rows make one request, an Arrow IPC stream, with a reply row for each.

A bad row affects only itself: the parts of a batch without a reply are sent again, until each bad row is alone.

A batch whose handler failed is sent again in halves. Each bad row causes about two requests per halving, and a batch at most
``REQUESTS_MAX`` in total.

A batch whose member was lost is sent again row by row, because each half with the bad row would kill another member. Each row
is an exclusive request (docs/design.md 6.15): the second death identifies the row. So a bad row kills two members: with its
batch, and alone.

The keys of parts derive from the batch's key, so a task that runs again uses the same keys. Surviving members remember the
losses by key, so the second run kills no further member.

If the first bad row fails the task, the search ends there, and the error names the row instead of the batch.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.dataframes.casts import fit_rows
from spark_connector.dataframes.task_requests import Question, RowGroup
from spark_connector.dataframes.window import ROW_MEMBERS_LOST_MAX
from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from spark_connector.dataframes.idempotency_keys import Scope
    from spark_connector.dataframes.plan import Plan
    from spark_connector.dataframes.window import Window

__all__ = ["BAD_ROWS_MAX", "REQUESTS_MAX", "Bisector", "ask_batches", "columns_of_reply", "slices"]

#: Maximum number of requests for the parts of one failed batch. Enough for a dozen bad rows among a thousand, at twenty
#: requests each. A handler that fails for every row costs this number for one batch, and nothing for later batches (see
#: :class:`Bisector`).
REQUESTS_MAX: Final = 256
#: Maximum number of rows in one batch that may each kill a member. The rows after the last of them are not requested. Too
#: small: good rows after several bad ones have no reply; too large: a handler that kills its process at every row kills this
#: many members for one batch.
BAD_ROWS_MAX: Final = 8
#: As ``BAD_ROWS_MAX``, while no row of the batch has a reply.
BAD_ROWS_AT_FIRST_MAX: Final = 2


class Bisector:
    """Finds the bad rows of failed batches, for one task: sends parts of a batch again until each bad row is alone.

    If all parts of a batch fail too, the handler probably fails for every input. Then no further batch is divided until a batch
    has a reply again.

    Args:
        make_window: Makes the window that sends the parts.
        is_strict: Whether the first bad row fails the task, so that no other bad row has to be found.
    """

    def __init__(self, make_window: Callable[[], Window[pa.RecordBatch]], *, is_strict: bool) -> None:
        self._make_window = make_window
        self._is_strict = is_strict
        self._is_hopeless = False

    def pieces(self, group: RowGroup[pa.RecordBatch]) -> Iterator[RowGroup[pa.RecordBatch]]:
        """Yield a group; after a failed request, yield the group's parts instead, with outcomes, in the order of rows."""
        question = group.questions[0]
        if self._is_hopeless or not (question.is_refused or question.is_given_up):
            self._is_hopeless &= not isinstance(question.outcome, bytes)
            yield group
            return
        has_reply = False
        for half in self._halve(group):
            for piece in self._ask_alone(half):
                has_reply |= isinstance(piece.questions[0].outcome, bytes)
                yield piece
        self._is_hopeless = not has_reply

    def _halve(self, group: RowGroup[pa.RecordBatch]) -> list[RowGroup[pa.RecordBatch]]:
        """Halve a failed batch until no part fails, or each bad row is alone; return all parts in order.

        A group whose handler did not fail is returned unchanged.
        """
        pieces, asked = [group], 0
        while True:
            bad = [piece for piece in pieces if piece.questions[0].is_refused]
            bad = [piece for piece in (bad[:1] if self._is_strict else bad) if _can_split(piece)]
            if not bad or asked + 2 * len(bad) > REQUESTS_MAX:
                return pieces
            asked += 2 * len(bad)
            halves = {id(piece): _halves(piece) for piece in bad}
            for _done in self._make_window().run(iter([half for pair in halves.values() for half in pair])):
                pass  # each has its outcome now
            pieces = [part for piece in pieces for part in halves.get(id(piece), (piece,))]

    def _ask_alone(self, group: RowGroup[pa.RecordBatch]) -> Iterator[RowGroup[pa.RecordBatch]]:
        """Yield a group; after a loss of members, request its rows separately and yield each row.

        Each row is an exclusive request: the member executes no other at the same time, so a second loss identifies the bad
        row.
        """
        question = group.questions[0]
        if not question.is_given_up or question.rows < 2:  # the window has requested a single row alone already
            yield group
            return
        rows, done, bad, replies = group.rows, 0, 0, 0
        running = self._make_window().run(_rows(group) if _can_split(group) else iter([_whole(group)]))
        with closing(cast("Generator[RowGroup[pa.RecordBatch]]", running)):
            for piece in running:
                yield piece
                done += piece.rows.num_rows
                bad += piece.questions[0].is_given_up
                replies += isinstance(piece.questions[0].outcome, bytes)
                if bad == (BAD_ROWS_MAX if replies else BAD_ROWS_AT_FIRST_MAX):
                    break
        if done < rows.num_rows:
            left = rows.num_rows - done
            yield RowGroup(rows.slice(done), [Question(question.key, None, question.outcome, rows=left, is_given_up=True)])


def _can_split(group: RowGroup[pa.RecordBatch]) -> bool:
    """Tell whether the rows of a request can be sent in separate requests."""
    question = group.questions[0]
    if question.payload is None or group.rows.num_rows < 2:
        return False
    # A batch function must return as many rows. If it did not, the request cannot be split as the rows are.
    return decode_batch(question.payload).num_rows == group.rows.num_rows


def _halves(group: RowGroup[pa.RecordBatch]) -> tuple[RowGroup[pa.RecordBatch], RowGroup[pa.RecordBatch]]:
    question = group.questions[0]
    assert question.payload is not None
    asked, half = decode_batch(question.payload), group.rows.num_rows // 2
    return _part(group, asked, 0, half, f"{question.key}/0"), _part(group, asked, half, asked.num_rows, f"{question.key}/1")


def _rows(group: RowGroup[pa.RecordBatch]) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield the rows of a group as separate groups."""
    question = group.questions[0]
    assert question.payload is not None
    asked = decode_batch(question.payload)
    for row in range(asked.num_rows):
        part = _part(group, asked, row, row + 1, f"{question.key}/row/{row}")
        part.questions[0].is_exclusive, part.questions[0].lost = True, question.lost
        yield part


def _whole(group: RowGroup[pa.RecordBatch]) -> RowGroup[pa.RecordBatch]:
    """Return an exclusive request for a group whose rows cannot be sent separately."""
    question = group.questions[0]
    alone = Question(question.key, question.payload, rows=question.rows, is_part=True, is_exclusive=True, lost=question.lost)
    alone.members_lost_max = ROW_MEMBERS_LOST_MAX
    return RowGroup(group.rows, [alone])


def _part(group: RowGroup[pa.RecordBatch], asked: pa.RecordBatch, start: int, end: int, key: str) -> RowGroup[pa.RecordBatch]:
    count = end - start
    question = Question(key, encode_batch(asked.slice(start, count)), rows=count, is_part=True)
    return RowGroup(group.rows.slice(start, count), [question])


def ask_batches(
    plan: Plan, batches: Iterator[pa.RecordBatch], scope: Scope, bytes_max: int
) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield each batch with its request, called question; a batch too large for one message is yielded in parts."""
    for batch in batches:
        for first in range(0, batch.num_rows, plan.batch_rows):
            yield from slices(plan, batch.slice(first, plan.batch_rows), scope, bytes_max)


def slices(plan: Plan, batch: pa.RecordBatch, scope: Scope, bytes_max: int) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield a batch with its question (request), halved until each part fits into a message."""
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
    """Return the reply's columns for the rows of one request; columns of nulls if the request has no reply.

    If the reply is invalid, an error becomes the outcome of the question. A value of a wrong type is an error of its row only.
    """
    if isinstance(question.outcome, bytes):
        try:
            reply = decode_batch(question.outcome)
            if reply.num_rows == rows:
                return _columns(plan, question, reply)
            reason = f"the reply has {reply.num_rows} rows for a request of {rows}. Its members must serve an ArrowHandler."
        except ValueError as exc:
            reason = f"{exc}. Its members must serve an ArrowHandler."
        except MissingColumn as exc:
            reason = str(exc)
        question.outcome = DispatchError(plan.cluster, question.key, reason)
    return [pa.nulls(rows, field.type) for field in plan.reply_schema]


def _question(plan: Plan, batch: pa.RecordBatch, scope: Scope, bytes_max: int | None) -> Question | None:
    """Make the question (request) for a batch; return None if the batch is too large for a message."""
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
    """The reply to a batch lacks a column of the schema."""


def _columns(plan: Plan, question: Question, reply: pa.RecordBatch) -> list[pa.Array[Any]]:
    columns, misfits = [], {}
    for field in plan.reply_schema:
        index = reply.schema.get_field_index(field.name)
        if index < 0:
            has = f"has the columns {', '.join(reply.schema.names)}" if reply.schema.names else "has no columns"
            raise MissingColumn(
                f"schema= names a column {field.name!r}, but the reply {has}. Correct the name in schema=, or return such a "
                "column from the handler."
            )
        column = reply.column(index)
        fitted, reasons = fit_rows(column, field.type, plan.time_zone)
        columns.append(fitted)
        for row, reason in reasons.items():
            what = f"the reply's column {field.name!r} is {column.type}, which cannot become {field.type}: {reason}"
            misfits[row] = DispatchError(plan.cluster, question.key, f"{what}. It is row {row} of its request.")
    if not misfits:
        return columns
    question.misfits = misfits
    # A row with an error has no value in any column.
    is_misfit = pa.array([row in misfits for row in range(reply.num_rows)])
    return [_without(column, is_misfit) for column in columns]


def _without(column: pa.Array[Any], mask: pa.Array[Any]) -> pa.Array[Any]:
    result: pa.Array[Any] = pc.if_else(mask, pa.scalar(None, column.type), column)
    return result
