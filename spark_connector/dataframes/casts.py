"""Casts of reply columns to the declared types: without loss, or not at all.

pyarrow's own casts detect many losses, but not all. They turn 1e300 into Infinity as a float, true into 1, 5 into five
microseconds after 1970, and a time without a zone into a time in UTC. This module casts only the pairs of types listed in
``fit``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Column", "fit", "fit_rows"]

#: An array of pyarrow, whose stubs lack these functions or restrict their types.
Column: TypeAlias = Any
ac: Any = pa
pc: Any = pyarrow.compute

#: The exceptions raised for a value that the wanted type cannot hold.
MISFITS = (pa.ArrowException, ValueError)
#: A time zone of Spark under a name unknown to pyarrow: an offset with a prefix, perhaps without minutes.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?")


def fit_rows(column: Column, kind: pa.DataType, zone: str) -> tuple[Column, Mapping[int, str]]:
    """Cast a column to another type; replace values that do not fit by nulls, and return the reasons by row number."""
    try:
        return fit(column, kind, zone), {}
    except TypeError as exc:  # no value of these types fits
        return ac.nulls(len(column), kind), dict.fromkeys(range(len(column)), str(exc))
    except MISFITS:
        pass
    # Rare, so it may be slow: find the rows of the bad values.
    pieces: list[Column] = []
    reasons = {}
    for row in range(len(column)):
        try:
            pieces.append(fit(column.slice(row, 1), kind, zone))
        except MISFITS as exc:
            reasons[row] = str(exc)
            pieces.append(ac.nulls(1, kind))
    return pa.concat_arrays(pieces), reasons


def fit(column: Column, kind: pa.DataType, zone: str) -> Column:
    """Return a column cast to another type.

    Args:
        column: The values.
        kind: The wanted type.
        zone: The time zone of Spark's session, which applies to times without a zone.

    Raises:
        TypeError: The types cannot be converted for any value.
        ValueError: A value does not fit; sometimes also a ``pyarrow.ArrowException``.
    """
    given = column.type
    if isinstance(column, pa.DictionaryArray):
        return fit(column.dictionary_decode(), kind, zone)
    if given == kind:
        return column
    if pa.types.is_null(given):
        return ac.nulls(len(column), kind)
    if pa.types.is_floating(kind) and _is_number(given):
        return _as_floating(column, kind)
    if pa.types.is_decimal(kind) and _is_number(given):
        return _as_decimal(column, kind)
    if isinstance(kind, pa.TimestampType) and isinstance(given, pa.TimestampType):
        return _as_timestamp(column, given, kind, zone)
    if pa.types.is_nested(kind):
        return _nested(column, kind, zone)
    is_plain = (
        (pa.types.is_integer(kind) and _is_number(given))
        or (_is_text(kind) and (_is_text(given) or _is_bytes(given)))
        or (_is_bytes(kind) and (_is_bytes(given) or _is_text(given)))
        or (pa.types.is_date(kind) and pa.types.is_date(given))
        or (pa.types.is_duration(kind) and pa.types.is_duration(given))
    )
    if not is_plain:
        raise TypeError(f"a {given} is not converted to a {kind}")
    return column.cast(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()


def _is_bytes(kind: pa.DataType) -> bool:
    is_usual = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return is_usual or kind == pa.binary_view()


def _as_floating(column: Column, kind: pa.DataType) -> Column:
    """Convert numbers to a floating-point type, rounded to the nearest number as in Python and Spark.

    A value that would become Infinity, or a nonzero value that would become zero, does not fit.
    """
    result = column.cast(kind)
    if pa.types.is_floating(column.type):
        is_lost = pc.or_(
            pc.and_(pc.is_finite(column), pc.invert(pc.is_finite(result))),
            pc.and_(pc.equal(result, 0), pc.not_equal(column, 0)),
        )
        if pc.any(is_lost).as_py():
            raise ValueError(f"{_first(column, is_lost)} is out of the range of a {kind}")
    elif pa.types.is_decimal(column.type):
        # A decimal becomes the shortest number that identifies it: digits are lost if converting back gives other digits.
        back = result.cast(pa.float64()).cast(column.type, safe=False)
        is_lost = pc.not_equal(back, column)
        if pc.any(is_lost).as_py():
            raise ValueError(f"{_first(column, is_lost)} has more digits than a {kind}")
    return result


def _as_decimal(column: Column, kind: pa.DataType) -> Column:
    if pa.types.is_floating(column.type):
        result = column.cast(kind)
        is_lost = pc.not_equal(result.cast(column.type), column)
        if pc.any(is_lost).as_py():
            raise ValueError(f"{_first(column, is_lost)} is not a {kind}")
        return result
    if pa.types.is_integer(column.type):
        # pyarrow wants room for every number of the type instead of the actual values. None has more than 20 digits.
        column = column.cast(pa.decimal128(38 if pa.types.is_uint64(column.type) else 19, 0))
    return column.cast(kind)


def _as_timestamp(column: Column, given: pa.TimestampType, kind: pa.TimestampType, zone: str) -> Column:
    given_zone, zone_of_kind = cast("str | None", given.tz), cast("str | None", kind.tz)
    if given_zone is None and zone_of_kind is not None:
        # As Spark does, take the earlier of two times in a repeated hour. A skipped hour has no times in that zone.
        column = pc.assume_timezone(column, _zone(zone), ambiguous="earliest", nonexistent="raise")
    elif given_zone is not None and zone_of_kind is None:
        raise TypeError(f"a {given} has a time zone and is not converted to a {kind}, which has none")
    return column.cast(kind)


def _zone(name: str) -> str:
    """Return the name that pyarrow knows for a time zone of Spark."""
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        return f"{offset[1]}{int(offset[2]):02}:{offset[3] or '00'}"
    return "UTC" if name == "Z" else name


def _nested(column: Column, kind: Any, zone: str) -> Column:  # noqa: ANN401 - a struct, a list or a map
    """Cast the contents of structs, lists and maps."""
    is_null = column.is_null()
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        missing = [field.name for field in kind if column.type.get_field_index(field.name) < 0]
        if missing:
            raise TypeError(f"a {column.type} has no field {missing[0]!r}")
        parts = [fit(pc.struct_field(column, field.name), field.type, zone) for field in kind]
        return ac.StructArray.from_arrays(parts, fields=list(kind), mask=is_null)
    if pa.types.is_list(kind) and isinstance(column, ac.ListArray | ac.LargeListArray | ac.FixedSizeListArray):
        lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
        values = fit(column.flatten(), kind.value_type, zone)
        return ac.ListArray.from_arrays(_offsets(lengths), values, type=kind, mask=is_null)
    if pa.types.is_map(kind) and pa.types.is_map(column.type):
        entries = column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
        lengths = pc.fill_null(pc.list_value_length(entries), 0).cast(pa.int32())
        pairs = entries.flatten()
        keys, items = (
            fit(pc.struct_field(pairs, 0), kind.key_type, zone),
            fit(pc.struct_field(pairs, 1), kind.item_type, zone),
        )
        return ac.MapArray.from_arrays(_offsets(lengths), keys, items, type=kind, mask=is_null)
    raise TypeError(f"a {column.type} is not converted to a {kind}")


def _offsets(lengths: Column) -> Column:
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _first(column: Column, mask: Column) -> object:
    return column.filter(mask)[0].as_py()
