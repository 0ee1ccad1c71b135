"""Dispatch of single rows: one request per row.

Errors name rows by the values of the user's ``id=`` columns.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_connector.dataframes.casts import fit
from spark_connector.dataframes.task_requests import Question, RowGroup
from spark_connector.errors import DispatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spark_connector.dataframes.idempotency_keys import Scope
    from spark_connector.dataframes.plan import Plan

__all__ = ["ask_rows", "columns_of_replies", "name_rows"]

#: Number of rows named in an error, which is one line: a few rows of a batch are enough to find the others.
ROWS_SHOWN: Final = 5
#: Maximum characters of one value. An id is short, so a longer value is unlikely to be one.
VALUE_CHARACTERS_MAX: Final = 60


def name_rows(columns: Sequence[str], rows: pa.RecordBatch, first: int = 0, count: int = 1) -> str:
    """Return a name for some rows, such as ``order_id=17, country='DE'``; empty without columns.

    Args:
        columns: The columns that identify rows.
        rows: The rows, with these columns.
        first: The first row to name.
        count: Number of rows to name; beyond ``ROWS_SHOWN`` only the first are named.
    """
    if not columns:
        return ""
    shown = rows.select(list(columns)).slice(first, min(count, ROWS_SHOWN)).to_pylist()
    names = [", ".join(f"{name}={_short(row[name])}" for name in columns) for row in shown]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return "; ".join(names) + more


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "..."


#: The exceptions that pyarrow raises for a value of a wrong type.
FITTING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


def ask_rows(plan: Plan, batches: Iterator[pa.RecordBatch], scope: Scope) -> Iterator[RowGroup[pa.RecordBatch]]:
    """Yield each batch with one question (request) per row."""
    for batch in batches:
        rows = batch.drop_columns(list(plan.internal)) if plan.internal else batch
        records = rows.to_pylist() if callable(plan.request) or callable(plan.key) else []
        if isinstance(plan.request, str) and plan.key is None:
            yield RowGroup(rows, _plain_questions(batch.column(plan.request), scope))
            continue
        payloads = _values(plan.request, batch, records, "request")
        keys: Iterator[object] | None = None if plan.key is None else _values(plan.key, batch, records, "key")
        yield RowGroup(rows, [_question(plan, payload, keys, scope) for payload in payloads])


def columns_of_replies(plan: Plan, questions: Sequence[Question]) -> list[pa.Array[Any]]:
    """Decode the replies into columns, one value per question. A value of a wrong type becomes an error of its question."""
    if plan.reply is None and _is_plain(questions):
        outcomes = [question.outcome for question in questions]
        try:
            # The usual case, without a call per row; for a text column, bytes are checked to be UTF-8.
            return [pa.array(outcomes, pa.binary()).cast(plan.reply_schema.types[0])]
        except pa.ArrowException:
            pass  # one reply is not UTF-8: find it
    values = [_reply_values(plan, question) for question in questions]
    try:
        return _arrays(plan, values)
    except FITTING_ERRORS:
        # Rare, so it may be slow: find the rows of the bad values. A row with an error has no value in any column.
        for number, question in enumerate(questions):
            reason = _misfit(plan, values[number])
            if reason:
                question.outcome = DispatchError(plan.cluster, question.key, reason)
                values[number] = (None,) * len(plan.reply_schema)
        return _arrays(plan, values)


def _is_plain(questions: Sequence[Question]) -> bool:
    """Tell whether no question has an error as its outcome."""
    return not any(isinstance(question.outcome, DispatchError) for question in questions)


def _arrays(plan: Plan, values: Sequence[Sequence[object]]) -> list[pa.Array[Any]]:
    return [
        _array([row[number] for row in values], field.type, plan.time_zone) for number, field in enumerate(plan.reply_schema)
    ]


def _array(values: list[object], kind: pa.DataType, zone: str) -> pa.Array[Any]:
    if not _is_exact(kind):
        for value in values:
            _check(value, kind)
    if pa.types.is_float32(kind):
        singles: pa.Array[Any] = fit(pa.array(values, pa.float64()), kind, zone)
        return singles
    if isinstance(kind, pa.TimestampType) and kind.tz is not None and any(_is_naive(value) for value in values):
        return pa.concat_arrays([_moment(value, kind, zone) for value in values])
    return pa.array(values, kind)


def _is_naive(value: object) -> bool:
    return isinstance(value, datetime.datetime) and value.tzinfo is None


def _moment(value: object, kind: pa.TimestampType, zone: str) -> pa.Array[Any]:
    """Convert a value to a time; a time without a zone is taken in the session's time zone."""
    moment: pa.Array[Any] = fit(pa.array([value], pa.timestamp("us") if _is_naive(value) else kind), kind, zone)
    return moment


def _is_exact(kind: pa.DataType) -> bool:
    """Tell whether pyarrow refuses values that a type cannot hold.

    For other types pyarrow truncates fractions and turns numbers into times, without an error.
    """
    return not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind)
    )


def _check(value: Any, kind: pa.DataType) -> None:  # noqa: ANN401 - the result of the user's function
    """Raise if pyarrow would silently change the value."""
    if value is None:
        return
    if pa.types.is_integer(kind):
        if isinstance(value, float | decimal.Decimal) and not (math.isfinite(value) and value == int(value)):
            raise ValueError(f"{value!r} is not a whole number")
    elif pa.types.is_floating(kind):
        if isinstance(value, bool):
            raise ValueError(f"{value!r} is not a number")
    elif pa.types.is_temporal(kind):
        _check_time(value, kind)
    elif isinstance(kind, pa.StructType):
        for field in kind:
            _check_inside(value.get(field.name) if isinstance(value, dict) else None, field.type)
    elif isinstance(kind, pa.MapType):
        for key, item in value.items() if isinstance(value, dict) else value:
            _check_inside(key, kind.key_type)
            _check_inside(item, kind.item_type)
    elif isinstance(kind, pa.ListType) and not isinstance(value, str | bytes):
        for item in value:
            _check_inside(item, kind.value_type)


def _check_inside(value: Any, kind: pa.DataType) -> None:  # noqa: ANN401 - the result of the user's function
    """Check a value nested in a struct, a list or a map, where the cast of the column does not check it."""
    _check(value, kind)
    if pa.types.is_float32(kind):
        fit(pa.array([value], pa.float64()), kind, "UTC")
    elif isinstance(kind, pa.TimestampType) and kind.tz is not None and _is_naive(value):
        raise ValueError(f"{value!r} has no time zone")


def _check_time(value: object, kind: pa.DataType) -> None:
    is_moment = isinstance(value, datetime.datetime)
    if isinstance(value, int | float):
        raise ValueError(f"{value!r} is a number")
    if pa.types.is_date(kind) and is_moment:
        raise ValueError(f"{value!r} is a time, not a date")
    if isinstance(kind, pa.TimestampType) and kind.tz is None and is_moment and not _is_naive(value):
        raise ValueError(f"{value!r} has a time zone, but the column has none")


def _misfit(plan: Plan, row: Sequence[object]) -> str:
    """Describe the first value of a row that does not fit its column's type; return an empty text if all values fit."""
    for value, field in zip(row, plan.reply_schema, strict=True):
        try:
            _array([value], field.type, plan.time_zone)
        except FITTING_ERRORS as exc:
            what = f"the reply has {value!r:.80} for the column {field.name!r}, which is not {field.type}: {exc}"
            return f"{what}. Return values from reply= as schema= declares them."
    return ""


class _FailedValue:
    """Takes the place of a result where a function of the user raised an exception."""

    def __init__(self, error: Exception, origin: str) -> None:
        self.reason = f"the function {origin}= failed with {type(error).__qualname__}: {error}"


def _values(source: object, batch: pa.RecordBatch, records: list[dict[str, object]], origin: str) -> Iterator[object]:
    """Return the values of a source, one per row: the content of a column, or the results of a function of rows."""
    if isinstance(source, str):
        return iter(batch.column(source).to_pylist())
    assert callable(source)
    return (_call(source, record, origin) for record in records)


def _call(function: Callable[[Mapping[str, object]], object], record: dict[str, object], origin: str) -> object:
    try:
        return function(record)
    except Exception as exc:
        return _FailedValue(exc, origin)


def _plain_questions(column: pa.Array[Any], scope: Scope) -> list[Question]:
    """Make one question per row from a column of text or bytes, with default keys.

    This is the usual case, and needs no function call per row.
    """
    payloads = column.cast(pa.binary()).to_pylist()
    return [Question(scope.skip(), None) if payload is None else Question(scope.key(payload), payload) for payload in payloads]


def _question(plan: Plan, payload: object, keys: Iterator[object] | None, scope: Scope) -> Question:
    """Make the question for one row. A row without a payload, or with an invalid payload or key, is not sent.

    For an invalid row the question already holds the error.
    """
    chosen = None if keys is None else next(keys)
    if isinstance(payload, str):
        payload = payload.encode()
    elif isinstance(payload, bytearray | memoryview):
        payload = bytes(payload)
    if payload is None:
        return Question(scope.skip(), None)
    if not isinstance(payload, bytes):
        reason = payload.reason if isinstance(payload, _FailedValue) else _no_payload(payload)
        return _failed(plan, scope.skip(), reason)
    if keys is None:
        return Question(scope.key(payload), payload)
    if isinstance(chosen, bytes):
        chosen = chosen.hex()
    if isinstance(chosen, _FailedValue):
        return _failed(plan, scope.skip(), chosen.reason)
    if not isinstance(chosen, str | int) or isinstance(chosen, bool) or chosen == "":
        return _failed(plan, scope.skip(), f"its key is {chosen!r}. Give every row a key: text, bytes or a whole number.")
    return Question(str(chosen), payload)


def _no_payload(payload: object) -> str:
    return (
        f"the function request= returned {type(payload).__qualname__}, but a payload is bytes or text, or None to send "
        "no request."
    )


def _failed(plan: Plan, key: str, reason: str) -> Question:
    return Question(key, None, DispatchError(plan.cluster, key, reason))


def _reply_values(plan: Plan, question: Question) -> Sequence[object]:
    """Return the values of one row for the reply's columns; nulls if the row has no valid reply."""
    width = len(plan.reply_schema)
    if not isinstance(question.outcome, bytes):
        return (None,) * width
    try:
        if plan.reply is None:
            is_text = not pa.types.is_binary(plan.reply_schema.types[0])
            return (question.outcome.decode() if is_text else question.outcome,)
        return _spread(plan.reply(question.outcome), plan.reply_schema)
    except WrongShape as exc:
        question.outcome = DispatchError(plan.cluster, question.key, str(exc))
        return (None,) * width
    except Exception as exc:
        what = "the reply is not UTF-8" if plan.reply is None else f"the function reply= failed with {type(exc).__qualname__}"
        question.outcome = DispatchError(plan.cluster, question.key, f"{what}: {exc}")
        return (None,) * width


class WrongShape(Exception):
    """The function ``reply=`` did not return a value for each column of the schema."""


def _spread(value: object, schema: pa.Schema) -> Sequence[object]:
    """Return one value per column from the result of ``reply=``.

    Raises:
        WrongShape: A value is missing, or the number of values is wrong.
    """
    if len(schema) == 1 and (not isinstance(value, dict) or pa.types.is_nested(schema.types[0])):
        return (value,)
    if value is None:
        return (None,) * len(schema)
    if isinstance(value, dict):
        missing = [name for name in schema.names if name not in value]
        if missing:
            has = ", ".join(map(str, value)) or "nothing"
            raise WrongShape(
                f"schema= names a column {missing[0]!r}, but the function reply= returned a dict of {has:.200}. Correct the "
                "name in schema=, or let reply= return such a value."
            )
        return [value[name] for name in schema.names]
    if not isinstance(value, tuple | list) or len(value) != len(schema):
        count = f" of length {len(value)}" if isinstance(value, tuple | list) else ""
        raise WrongShape(
            f"schema= names {len(schema)} columns, {', '.join(schema.names)}, but the function reply= returned "
            f"{type(value).__qualname__}{count}. Correct schema=, or let reply= return a dict or a tuple of that many values."
        )
    return value
