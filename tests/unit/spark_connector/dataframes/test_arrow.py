"""Arrow batches as messages, and the handler of them, without Spark."""

from __future__ import annotations

import asyncio
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pytest

import iris_py
import iris_py.sync
from iris_py import ConfigurationError, RemoteError
from spark_connector import ArrowHandler, decode_batch, encode_batch
from spark_connector.dataframes.casts import fit_rows

if TYPE_CHECKING:
    from iris_py.testing.fixtures import VirtualRunner
    from iris_py.testing.virtual import VirtualNetwork

pytest_plugins = ["iris_py.testing.fixtures"]

BATCH = pa.RecordBatch.from_pydict({"a": [1, 2, 3], "b": ["x", None, "z"]})


@pytest.mark.parametrize("batch", [BATCH, BATCH.slice(1, 1), BATCH.slice(0, 0)], ids=["all", "a slice", "nothing"])
def test_what_is_encoded_is_decoded(batch: pa.RecordBatch) -> None:
    assert decode_batch(encode_batch(batch)).equals(batch)


def test_a_slice_is_encoded_without_the_rest() -> None:
    batch = pa.RecordBatch.from_pydict({"a": list(range(100_000))})
    assert len(encode_batch(batch.slice(5, 1))) < 1000


def test_several_batches_are_decoded_as_one() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
        writer.write_batch(BATCH.slice(2))
    assert decode_batch(sink.getvalue().to_pybytes()).to_pydict() == {"a": [1, 2, 3, 3], "b": ["x", None, "z", "z"]}


def test_a_stream_without_batches_has_no_rows() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema):
        pass
    assert decode_batch(sink.getvalue().to_pybytes()).equals(BATCH.slice(0, 0))


@pytest.mark.parametrize("cut", [0, 1, 8, 100, 200])
def test_what_is_no_stream_is_a_value_error(cut: int) -> None:
    with pytest.raises(ValueError, match="are not an Arrow IPC stream"):
        decode_batch(encode_batch(BATCH)[:cut] if cut else b"hello")


class Polars:
    """A frame of a library that this one does not know, with the protocol that all of them have."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"b": [3, 2, 1]}).__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "reply",
    [
        pa.RecordBatch.from_pydict({"b": [3, 2, 1]}),
        pa.concat_tables([pa.table({"b": [3]}), pa.table({"b": [2, 1]})]),
        pd.DataFrame({"b": [3, 2, 1]}, index=[7, 8, 9]),
        Polars(),
    ],
    ids=["batch", "table", "pandas", "polars"],
)
def test_replies_of_every_kind(iris_network: VirtualRunner, reply: Any) -> None:
    async def main(network: VirtualNetwork) -> None:
        caller, member = await network.connect_many(2)
        await member.join("frames", ArrowHandler(lambda batch: reply if batch.equals(BATCH) else batch))
        answer = decode_batch(await caller.request("frames", encode_batch(BATCH)))
        assert answer.to_pydict() == {"b": [3, 2, 1]}

    iris_network.run(main)


def test_async_functions_and_methods(iris_network: VirtualRunner) -> None:
    class Waiting(ArrowHandler):
        async def on_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            await asyncio.sleep(1)
            return batch.select(["a"])

    async def wait(batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(1)
        return batch.select(["b"])

    async def main(network: VirtualNetwork) -> None:
        caller, member = await network.connect_many(2)
        await member.join("method", Waiting())
        await member.join("function", ArrowHandler(wait))
        assert decode_batch(await caller.request("method", encode_batch(BATCH))).schema.names == ["a"]
        assert decode_batch(await caller.request("function", encode_batch(BATCH))).schema.names == ["b"]

    iris_network.run(main)


BAD = {
    "nothing": (None, "the handler returned NoneType, but a reply must be"),
    "fewer": (BATCH.slice(1), "the handler returned 2 rows for a request of 3"),
    "bytes": (b"abc", "the handler returned bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_reply_is_told_to_the_caller(iris_network: VirtualRunner, case: str) -> None:
    reply, reason = BAD[case]

    async def main(network: VirtualNetwork) -> None:
        caller, member = await network.connect_many(2)
        await member.join("frames", ArrowHandler(lambda _batch: reply))  # type: ignore[arg-type, return-value]
        with pytest.raises(RemoteError, match=reason):
            await caller.request("frames", encode_batch(BATCH))
        with pytest.raises(RemoteError, match="are not an Arrow IPC stream"):
            await caller.request("frames", b"hello")

    iris_network.run(main)


#: What a frame of NumPy would change: a null among whole numbers, one that no double holds, and a time.
WIDE = pa.RecordBatch.from_pydict(
    {
        "number": pa.array([2**62 + 1, None, 3], pa.int64()),
        "nan": pa.array([float("nan"), None, 1.0]),
        "flag": pa.array([True, None, False]),
        "digits": pa.array([Decimal("1.10"), None, Decimal("2.00")], pa.decimal128(10, 2)),
        "moment": pa.array([1, None, 2], pa.timestamp("us", "UTC")),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "struct": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())])),
    }
)


@pytest.mark.parametrize(("frame", "kind"), [("arrow", "RecordBatch"), ("pandas", "DataFrame"), ("polars", "DataFrame")])
def test_frames_are_made_without_loss(iris_network: VirtualRunner, frame: Any, kind: str) -> None:
    seen: list[str] = []

    def same(given: Any) -> Any:
        seen.append(type(given).__qualname__)
        return given

    async def main(network: VirtualNetwork) -> None:
        caller, member = await network.connect_many(2)
        await member.join("frames", ArrowHandler(same, frame=frame))
        answer = decode_batch(await caller.request("frames", encode_batch(WIDE)))
        for field in WIDE.schema:
            column, reasons = fit_rows(answer[field.name], field.type, "UTC")
            assert not reasons
            assert repr(column.to_pylist()) == repr(WIDE[field.name].to_pylist())

    iris_network.run(main)
    assert seen == [kind]


def test_a_frame_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)  # as if it was not installed
    with pytest.raises(
        ConfigurationError, match=r"frame='polars' needs polars, which is not installed here\. Run: pip install"
    ):
        ArrowHandler(lambda batch: batch, frame="polars")
    with pytest.raises(ConfigurationError, match=r"frame='numpy' is unknown\. Choose arrow, pandas or polars"):
        ArrowHandler(lambda batch: batch, frame="numpy")  # type: ignore[arg-type]


def test_a_handler_without_anything_to_do_is_told_at_once() -> None:
    class Empty(ArrowHandler):
        """Somebody forgot the method."""

    for make in (ArrowHandler, Empty):
        with pytest.raises(ConfigurationError, match=rf"{make.__name__}\(\) has nothing to do\. Give it a function"):
            make()
    with pytest.raises(ConfigurationError, match="function='score' must be a function"):
        ArrowHandler("score")  # type: ignore[arg-type]


def test_nodes_without_await(iris_node: iris_py.sync.Node) -> None:
    with iris_node.join("frames", ArrowHandler(lambda batch: batch.select(["a"]))):
        answer = decode_batch(iris_node.request("frames", encode_batch(BATCH)))
    assert answer.schema.names == ["a"]
