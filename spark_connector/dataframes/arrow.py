"""Arrow batches as messages: encoding and decoding, and the handler for members."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from iris_py import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py import Request

__all__ = ["ArrowHandler", "decode_batch", "encode_batch"]


class Frame(Protocol):
    """Rows convertible to Arrow: a ``pyarrow.Table``, a frame of pandas or polars, or any object with the Arrow C stream
    protocol.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """See https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html."""
        ...


#: The result of a function given to :class:`ArrowHandler`: the reply's rows.
Reply: TypeAlias = "pa.RecordBatch | Frame"


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Encode a batch as an Arrow IPC stream: its schema, then its rows.

    Raises:
        TypeError: ``batch`` is not a ``pyarrow.RecordBatch``.
    """
    if not isinstance(batch, pa.RecordBatch):
        raise TypeError(f"batch is {type(batch).__qualname__}, but must be a pyarrow.RecordBatch.")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_batch(payload: bytes) -> pa.RecordBatch:
    """Decode an Arrow IPC stream into one batch, without copying if the stream has a single batch.

    Raises:
        TypeError: The payload is not bytes.
        ValueError: The payload is not an Arrow IPC stream.
    """
    if not isinstance(payload, bytes | bytearray | memoryview):  # pyarrow would open a text as a file
        raise TypeError(f"payload is {type(payload).__qualname__}, but must be bytes.")
    try:
        with pa.ipc.open_stream(payload) as reader:
            batches = list(reader)
            if len(batches) == 1:
                return batches[0]
            return _one_batch(pa.Table.from_batches(batches, reader.schema))
    except (pa.ArrowException, OSError) as exc:  # pyarrow raises OSError for a truncated stream
        raise ValueError(f"{len(payload)} bytes are not an Arrow IPC stream: {exc}") from None


class ArrowHandler:
    """A handler of requests that are Arrow batches: ``node.join(name, ArrowHandler(f))`` for ``dispatch(mode="batches")``.

    It works with nodes of :mod:`iris_py` and of :mod:`iris_py.sync`. The function runs in several threads at once: pass a lower
    ``concurrency=`` to ``join`` for a model that uses every processor itself. An async function is awaited in the event loop.

    Args:
        function: Takes a ``pyarrow.RecordBatch``; returns as many rows in the same order: a batch, a ``pyarrow.Table``, or a
            frame of pandas or polars. Its exceptions reach the caller as a :exc:`~iris_py.RemoteError`. Without a function,
            override :meth:`on_batch`.
        frame: The type of the function's argument: ``arrow``, the batch; ``pandas``, a ``DataFrame`` with Arrow columns, which
            change neither nulls nor large numbers; ``polars``, a frame of Polars.

    Raises:
        ConfigurationError: There is neither a function nor an :meth:`on_batch`, or the function is not callable; ``frame`` is
            unknown, or its library is not installed.
    """

    def __init__(
        self,
        function: Callable[[Any], Reply | Awaitable[Reply]] | None = None,
        *,
        frame: Literal["arrow", "pandas", "polars"] = "arrow",
    ) -> None:
        if function is None and type(self).on_batch is ArrowHandler.on_batch:
            raise ConfigurationError(
                f"{type(self).__qualname__}() has nothing to do. Give it a function, or override on_batch() in a subclass."
            )
        if function is not None and not callable(function):
            raise ConfigurationError(f"function={function!r} must be a function that is given a pyarrow.RecordBatch.")
        self._function = function
        self._convert = _converter(frame)

    def on_batch(self, batch: Any) -> Reply | Awaitable[Reply]:  # noqa: ANN401 - a batch or a frame
        """Answer one request: take a batch or a frame, as ``frame=`` selects, and return as many rows in the same order."""
        assert self._function is not None, "it was checked when this was made"
        return self._function(batch)

    def __call__(self, request: Request) -> bytes | Awaitable[bytes]:
        """Decode a request, call the function, and encode its result. Called by the node as a handler of requests."""
        batch = decode_batch(request.payload)
        reply = self.on_batch(self._convert(batch))
        return _answer_later(reply, batch) if inspect.isawaitable(reply) else _answer(reply, batch)


def _converter(frame: str) -> Callable[[pa.RecordBatch], Any]:
    """Return the function that converts a batch without loss to the frame type named by ``frame``."""
    if frame == "arrow":
        return _as_it_is
    if frame not in ("pandas", "polars"):
        raise ConfigurationError(f"frame={frame!r} is unknown. Choose arrow, pandas or polars.")
    try:
        library = import_module(frame)
    except ImportError:
        raise ConfigurationError(
            f"frame={frame!r} needs {frame}, which is not installed here. Run: pip install {frame}"
        ) from None
    if frame == "polars":
        return lambda batch: library.from_arrow(_one_table(batch))
    # The sender's pandas may have recorded an index in the metadata, and pandas would turn that column into an index.
    return lambda batch: batch.to_pandas(types_mapper=library.ArrowDtype, ignore_metadata=True)


def _as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _one_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


async def _answer_later(reply: Awaitable[Reply], batch: pa.RecordBatch) -> bytes:
    return _answer(await reply, batch)


def _answer(reply: object, batch: pa.RecordBatch) -> bytes:
    answer = _batch_of(reply)
    if answer.num_rows != batch.num_rows:
        raise ValueError(f"the handler returned {answer.num_rows} rows for a request of {batch.num_rows}; each row needs one")
    return encode_batch(answer)


def _batch_of(reply: Any) -> pa.RecordBatch:  # noqa: ANN401 - whatever the user's function returned
    """Convert the result of the user's function to one batch."""
    if isinstance(reply, pa.RecordBatch):
        return reply
    if isinstance(reply, pa.Table):
        return _one_batch(reply)
    if type(reply).__module__.partition(".")[0] == "pandas" and type(reply).__name__ == "DataFrame":
        return pa.RecordBatch.from_pandas(reply, preserve_index=False)  # the index refers to the rows here, and is not a column
    if hasattr(reply, "__arrow_c_stream__"):
        return _one_batch(pa.table(reply))
    raise TypeError(
        f"the handler returned {type(reply).__qualname__}, but a reply must be a pyarrow.RecordBatch or Table, "
        "or a frame of pandas or polars"
    )


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
