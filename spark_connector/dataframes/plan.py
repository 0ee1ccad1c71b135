"""The plan of a dispatch, made on the driver and pickled to the tasks on the executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from spark_connector.dataframes.counts import DispatchCounts
    from spark_connector.network import Network

__all__ = ["ERROR_COLUMN", "Key", "Plan", "RequestLimits", "RowFunction"]

#: The column with the reason why a row has no reply, for ``on_error="column"``.
ERROR_COLUMN = "error"

RowFunction: TypeAlias = "Callable[[Mapping[str, object]], object]"
#: The idempotency keys of requests: the name of a column, or a function of a row.
Key: TypeAlias = "str | RowFunction"


@dataclass(frozen=True)
class RequestLimits:
    """The requests of a task at once, and the attempts of each request."""

    window: int
    """Maximum number of requests in flight."""
    timeout: float
    """Timeout of each attempt, in seconds."""
    retries: int
    """Number of attempts after the first."""
    wait_for_members: float
    """How long the cluster may be without members until the task fails, in seconds."""


@dataclass(frozen=True)
class Plan:
    """The arguments of one dispatch, checked on the driver, for its tasks."""

    cluster: str
    """The cluster to call."""
    network: Network
    """The settings of the calling nodes."""
    reply_schema: pa.Schema
    """The columns made from replies."""
    request: object
    """Rows: the column of the payload, or a function of the row. Batches: the columns, or a function of the batch, or None for
    all.
    """
    reply: Callable[[bytes], object] | None
    """Rows: makes the values of these columns; None if the only column is the reply itself."""
    key: Key | None
    """Rows: the column of the key, or a function of the row; None for keys made of the row's place."""
    internal: tuple[str, ...]
    """Columns used only inside the dispatch and removed from the result."""
    limits: RequestLimits
    batch_rows: int
    """Batches: the maximum number of rows in a request."""
    on_error: str
    name: str
    """The name of the dispatch in keys."""
    token: str = field(repr=False)
    """Replaces the id of the application in keys, where tasks do not know the id."""
    metrics: Accumulator[DispatchCounts] | None = field(default=None, repr=False)
    """The accumulator to which tasks add their counts; None without metrics."""
    id: tuple[str, ...] = ()
    """The columns that identify rows in errors."""
    time_zone: str = "UTC"
    """The time zone of Spark's session, which applies to times without a zone."""
