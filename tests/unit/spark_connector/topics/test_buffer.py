"""The messages of a topic that a query holds: bounds, positions, and messages as rows."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from iris_py import Message
from spark_connector.topics import buffer
from spark_connector.topics.buffer import BATCHES_KEPT, SCHEMA, Arrival, Rows, Waiting, encode_rows
from spark_connector.topics.datasource import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

    from iris_py.wire.headers import HeaderValue


def messages(*payloads: bytes) -> list[Message]:
    return [Message(payload, "ab" * 16, number, topic="t") for number, payload in enumerate(payloads)]


def payloads(arrivals: list[Arrival]) -> list[bytes]:
    return [arrival.message.payload for arrival in arrivals]


# -- waiting


def test_messages_are_taken_in_their_order_and_as_many_as_are_wanted() -> None:
    waiting = Waiting(10, 1000)
    assert waiting.put(messages(b"a", b"bb", b"ccc"), 7) == []

    assert payloads(waiting.take(2)) == [b"a", b"bb"]
    assert (len(waiting), waiting.bytes) == (1, 3)
    waiting.put(messages(b"d"), 8)
    assert [(arrival.message.payload, arrival.time_us) for arrival in waiting.take(None)] == [(b"ccc", 7), (b"d", 8)]
    assert (len(waiting), waiting.bytes, waiting.take(None)) == (0, 0, [])


def test_of_too_many_the_oldest_are_dropped_and_counted() -> None:
    waiting = Waiting(3, 1000)

    assert payloads(waiting.put(messages(b"1", b"2", b"3", b"4", b"5"), 0)) == [b"1", b"2"]
    assert payloads(waiting.put(messages(b"6"), 0)) == [b"3"]
    assert payloads(waiting.take(None)) == [b"4", b"5", b"6"]


def test_what_blocks_drops_nothing_and_says_when_it_is_full() -> None:
    waiting = Waiting(3, 1000, drops=False)
    assert not waiting.put(messages(b"1", b"2"), 7)
    assert (waiting.is_full, waiting.oldest_us) == (False, 7)
    assert not waiting.put(messages(b"3", b"4", b"5"), 8)
    assert waiting.is_full
    assert len(waiting.take(3)) == 3
    assert (waiting.is_full, waiting.oldest_us) == (False, 8)
    waiting.put(messages(b"x" * 1000), 9)
    assert waiting.is_full, "bytes count, too"
    waiting.take(None)
    assert waiting.oldest_us is None


def test_bytes_are_bounded_with_those_of_headers() -> None:
    waiting = Waiting(1000, 10)
    dropped = waiting.put([Message(b"1234", "", 1, headers={"name": "x"}), Message(b"5678", "", 2)], 0)

    assert (waiting.bytes, payloads(dropped)) == (4, [b"1234"])
    assert payloads(waiting.take(None)) == [b"5678"]


def test_a_message_over_the_bound_waits_alone() -> None:
    waiting = Waiting(1000, 10)

    waiting.put(messages(b"small", b"x" * 100), 0)
    assert payloads(waiting.take(None)) == [b"x" * 100]


# -- rows


def batch(*values: bytes) -> pa.RecordBatch:
    return encode_rows([Arrival(message, 0) for message in messages(*values)])[0]


def values(rows: Rows, start: int, end: int) -> list[bytes | None]:
    return [value for chunk in rows.slices(start, end) for value in chunk.column("value").to_pylist()]


def test_ranges_cross_chunks_and_can_be_had_again() -> None:
    rows = Rows()
    rows.append([batch(b"0", b"1"), batch(b"2", b"3", b"4")])
    rows.append([batch(b"5")])

    for _ in range(2):
        assert values(rows, 1, 6) == [b"1", b"2", b"3", b"4", b"5"]
        assert values(rows, 3, 4) == [b"3"]
        assert values(rows, 2, 2) == []


def test_what_was_released_is_gone() -> None:
    rows = Rows()
    rows.append([batch(b"0", b"1"), batch(b"2")])
    rows.release(1)

    assert (rows.first, values(rows, 1, 3)) == (1, [b"1", b"2"])
    with pytest.raises(LookupError, match="there are the rows 1 to 3, but 0 to 2 are asked for"):
        values(rows, 0, 2)
    rows.release(3)
    assert (rows.first, rows.end, values(rows, 3, 3)) == (3, 3, [])
    with pytest.raises(LookupError):
        values(rows, 3, 4)


def test_a_few_micro_batches_are_kept_whatever_is_released() -> None:
    rows = Rows()
    for _ in range(BATCHES_KEPT):
        rows.append([batch(b"a"), batch(b"b")])
    assert rows.first == 0

    rows.append([batch(b"c")])
    assert (rows.first, rows.end) == (2, 2 * BATCHES_KEPT + 1)


# -- messages as rows


def test_the_columns_are_those_that_spark_is_told_of() -> None:
    assert to_arrow_schema(COLUMNS, timezone="UTC").equals(SCHEMA)


def test_a_row_has_all_of_a_message() -> None:
    headers: dict[str, HeaderValue] = {"text": "grüß", "bytes": b"\x00\xff", "number": 3, "share": 0.5, "flag": True}
    sent = [Message(b"\x00", "ab" * 16, 7, topic="a.b", headers=headers), Message(b"", "cd" * 16, 8, topic="a")]

    (rows,) = encode_rows([Arrival(message, 1_000_001) for message in sent])

    time = datetime.datetime(1970, 1, 1, 0, 0, 1, 1, datetime.UTC)
    texts = [("text", "grüß"), ("bytes", "AP8="), ("number", "3"), ("share", "0.5"), ("flag", "true")]
    assert rows.to_pylist() == [
        {"topic": "a.b", "source": "ab" * 16, "sequence": 7, "value": b"\x00", "headers": texts, "timestamp": time},
        {"topic": "a", "source": "cd" * 16, "sequence": 8, "value": b"", "headers": None, "timestamp": time},
    ]


def test_chunks_are_bounded_in_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer, "CHUNK_ROWS", 3)
    monkeypatch.setattr(buffer, "CHUNK_BYTES", 10)
    sent = messages(b"a", b"b", b"c", b"d", b"x" * 9, b"y" * 2, b"z" * 50, b"e")

    chunks = encode_rows([Arrival(message, 0) for message in sent])

    assert [chunk.num_rows for chunk in chunks] == [3, 2, 1, 1, 1]
    assert [value for chunk in chunks for value in chunk.column("value").to_pylist()] == [each.payload for each in sent]
    assert encode_rows([]) == []


def test_what_was_dropped_before_what_waits_is_counted_as_long_as_that_waits() -> None:
    waiting = Waiting(3, 1000)
    waiting.put(messages(b"a", b"b", b"c"), 0, [1, 0, 5])
    counts = [waiting.overrun]
    waiting.put(messages(b"d"), 0, [10])  # the first one is dropped for it
    counts.append(waiting.overrun)
    waiting.take(2)
    counts.append(waiting.overrun)
    waiting.take(None)
    counts.append(waiting.overrun)
    assert counts == [6, 15, 10, 0]
