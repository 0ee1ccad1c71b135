"""The records of a batch as columns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.streams.columns import RECORDS_MAX, MalformedRecords, RecordColumns, decode_columns, encode_columns

VALUES = st.binary(max_size=20)


@st.composite
def columns(draw: st.DrawFn) -> RecordColumns:
    values = draw(st.lists(VALUES, min_size=1, max_size=20))
    size = len(values)
    keys = draw(st.one_of(st.just([]), st.lists(st.one_of(st.none(), VALUES), min_size=size, max_size=size)))
    headers = draw(st.one_of(st.just([]), st.lists(VALUES, min_size=size, max_size=size)))
    return RecordColumns(values, keys, headers)


@given(columns())
def test_records_come_back_as_they_were(records: RecordColumns) -> None:
    flags, body = encode_columns(records)
    found = decode_columns(body, flags, len(records.values))
    assert [list(column) for column in found] == [list(column) for column in records]


@given(st.binary(max_size=60), st.integers(0, 16), st.integers(-1, 6))
def test_any_bytes_are_records_or_an_error(body: bytes, flags: int, count: int) -> None:
    try:
        found = decode_columns(body, flags, count)
    except MalformedRecords:
        return
    assert len(found.values) == count
    assert encode_columns(found)[1] == body


@given(columns(), st.data())
def test_cut_records_are_an_error(records: RecordColumns, data: st.DataObject) -> None:
    flags, body = encode_columns(records)
    size = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(MalformedRecords):
        decode_columns(body[:size], flags, len(records.values))


def test_a_batch_has_a_bounded_number_of_records() -> None:
    flags, body = encode_columns(RecordColumns([b""] * (RECORDS_MAX + 1), (), ()))
    with pytest.raises(MalformedRecords, match="4097 records"):
        decode_columns(body, flags, RECORDS_MAX + 1)
