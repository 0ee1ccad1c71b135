"""The plan of a dispatch, for its tasks: made on the driver, pickled to the executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from spark_connector.dataframes.counts import DispatchCounts
    from spark_connector.network import Network

__all__ = ["ERROR_COLUMN", "Key", "Plan", "RowFunction"]

#: The column that says why a row has no reply, with ``on_error="column"``.
ERROR_COLUMN = "error"

RowFunction: TypeAlias = "Callable[[Mapping[str, object]], object]"
#: A column, or a function of a row.
Key: TypeAlias = "str | RowFunction"


@dataclass(frozen=True)
class Plan:
    """The work of the tasks of one dispatch."""

    cluster: str
    """The cluster that they ask."""
    network: Network
    """In which network."""
    reply_schema: pa.Schema
    """The columns that come of replies."""
    request: object
    """Rows: the column of the payload, or a function of the row. Batches: the columns, or a function of the batch, or None."""
    reply: Callable[[bytes], object] | None
    """Rows: makes the values of these columns; None if there is one column, of the reply itself."""
    key: Key | None
    """Rows: the column of the key, or a function of the row; None for keys of their place."""
    internal: tuple[str, ...]
    """Columns that are there for this alone, and not in the result."""
    window: int
    batch_rows: int
    """Batches: how many rows a request has at most."""
    timeout: float
    retries: int
    on_error: str
    name: str
    """The name of this dispatch in its keys."""
    token: str = field(repr=False)
    """In place of the id of the application where tasks are not told that."""
    metrics: Accumulator[DispatchCounts] | None = field(default=None, repr=False)
    """The accumulator that tasks add their counts to; None if nobody wants to know."""
    wait_for_members: float = 5.0
    """For how many seconds nobody may serve the cluster."""
    id: tuple[str, ...] = ()
    """The columns that errors name rows by."""
    time_zone: str = "UTC"
    """That of Spark's session, in which times without a zone are meant."""
