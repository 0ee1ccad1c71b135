"""Dispatch of a DataFrame to a cluster: the driver's side, which checks everything that it can before Spark starts anything."""

from __future__ import annotations

import itertools
import math
import uuid
from typing import TYPE_CHECKING, Literal

from iris_py import ConfigurationError
from spark_connector.compat import arrow_schema, parse_type
from spark_connector.dataframes.metrics import DispatchMetrics
from spark_connector.dataframes.plan import ERROR_COLUMN, Plan
from spark_connector.dataframes.sources import (
    KEY_COLUMN,
    REQUEST_COLUMN,
    batch_source,
    check_frame,
    function,
    is_whole,
    key_source,
    map_in_arrow,
    place,
    row_source,
)
from spark_connector.dataframes.tasks import dispatch_batches, dispatch_rows
from spark_connector.dataframes.window import WAIT_FOR_MEMBERS_S
from spark_connector.network import Network
from spark_connector.settings import network_of
from spark_connector.shipping import Shipment, check_pickles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_connector.dataframes.counts import DispatchCounts
    from spark_connector.dataframes.sources import BatchSource, RowSource

__all__ = ["accumulator_of", "check_network", "check_numbers", "dispatch", "reply_schema"]

#: Requests of a task that are under way at once. Of rows: enough to hide some milliseconds. Of batches: enough for the members
#: to work while others travel; each is a megabyte or so, here and there.
WINDOW_ROWS = 64
WINDOW_BATCHES = 4
#: Larger windows are a mistake: a member takes 1,152 requests before it is full, and each of ours needs some KiB here.
WINDOW_MAX = 65_536
#: Rows of a request of mode ``batches``. Larger ones gain nothing: at a thousand what is done per request is small already.
BATCH_ROWS = 1000
#: How long one attempt may take (seconds), and how many more there are.
TIMEOUT_S = 10.0
RETRIES = 3

ERROR_MODES = ("raise", "null", "column")

_numbers = itertools.count()


def dispatch(
    df: DataFrame,
    cluster: str,
    *,
    request: RowSource | BatchSource | None = None,
    reply: Callable[[bytes], object] | None = None,
    schema: str | StructType = "reply binary",
    mode: Literal["rows", "batches"] = "rows",
    window: int | None = None,
    batch_rows: int = BATCH_ROWS,
    key: RowSource | None = None,
    id: str | Sequence[str] | None = None,  # noqa: A002 - what every user calls it
    timeout: float = TIMEOUT_S,
    retries: int = RETRIES,
    wait_for_members: float = WAIT_FOR_MEMBERS_S,
    on_error: Literal["raise", "null", "column"] = "raise",
    network: Network | None = None,
    name: str | None = None,
    metrics: DispatchMetrics | None = None,
) -> DataFrame:
    """Ask a cluster about each row of a DataFrame; return it with the replies as further columns.

    As everything in Spark it is lazy: rows are asked about when an action needs them, by the tasks, each time that one does.
    Works for streaming DataFrames as well. docs/spark.md says what is promised.

    Args:
        df: The DataFrame.
        cluster: Whom to ask.
        request: What to ask. In mode ``rows`` the payload: the name of a column of text or bytes; an expression of columns,
            such as ``to_json(struct("*"))``; or a function that is given a row as a dict and returns bytes or text. A row whose
            payload is None is not asked about. In mode ``batches`` the columns that are sent, by default all; or a function of
            a ``pyarrow.RecordBatch`` that returns the one that is sent, with as many rows.
        reply: In mode ``rows`` a function that is given a reply as bytes and returns the values of the new columns: a dict or a
            tuple of them, or for one column the value itself. Without it there is one column, of bytes or text.
        schema: The new columns, as ``"score double, model string"`` or a ``StructType``. In mode ``batches`` the reply has to
            have columns of these names, of types that can be cast without loss (docs/spark-types.md); others that it has are
            left out. Times without a time zone are meant in that of the session.
        mode: ``rows``: each row is a request. ``batches``: up to ``batch_rows`` rows are one, an Arrow IPC stream; the members
            are to serve an :class:`~spark_connector.ArrowHandler`. Far faster, if they can use it.
        window: How many requests each task has under way: by default 64 rows, or 4 batches.
        batch_rows: In mode ``batches``, how many rows a request has at most; fewer where they do not fit into a message.
        key: In mode ``rows``, what a request is, for members that have executed it: a column of text, bytes or whole numbers,
            an expression, or a function of a row. The same key asks for the same thing, whoever asks (see
            :meth:`iris_py.Node.request`). By default the place of the row in the job and a digest of the payload.
        id: A column, or several, by whose values errors name a row, such as ``order_id=17``: the task's failure, and the column
            ``error``. Of a batch without a reply the first five rows are named.
        timeout: How long each attempt may take, in seconds: longer than the slowest reply that is worth waiting for.
        retries: How often a request without a reply is sent again, with its key, before it is an error. One whose handler
            failed is not.
        wait_for_members: For how many seconds nobody may serve the cluster, as seen by a task, until the task fails: at once if
            nobody has served it since the task began; else when requests have waited for ``timeout``.
        on_error: What becomes of a row that has no reply, or not one as ``schema`` says. ``raise``: the task fails, and the job
            with it when Spark has tried often enough. ``null``: the new columns are null. ``column``: likewise, and the column
            ``error`` says why; it is null in other rows. That nobody serves the cluster is no matter of single rows: the task
            fails. In mode ``batches`` a request whose handler failed is asked again in halves, until the bad rows are alone.
        network: Settings of the nodes that ask; see :class:`Network`. By default the settings ``spark.iris.*`` of the session.
        name: What this dispatch is called in keys. By default its number in this program, so that keys are the same after a
            restart if the program dispatches in the same order. Inside ``foreachBatch``, give it a name.
        metrics: Counts what is asked, and what became of it.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    check_frame(df)
    check_numbers(cluster, mode, window, batch_rows, timeout, retries, on_error, name, wait_for_members)
    network = check_network(df.sparkSession, network)
    if mode == "batches" and (reply is not None or key is not None):
        raise ConfigurationError(
            "reply= and key= are for mode='rows': a batch is answered by columns, and its rows have no keys."
        )
    added, arrow = reply_schema(schema, reply, mode)
    _check_names(df, added.names, on_error)
    named_by = _check_id(df, id)
    check_pickles(request=request, reply=reply, key=key)
    internal: list[str] = []
    rows, asked = place(df, request, REQUEST_COLUMN, internal)
    rows, chosen = place(rows, key, KEY_COLUMN, internal)
    plan = Plan(
        cluster=cluster,
        network=network,
        reply_schema=arrow,
        request=row_source(rows, asked, "request") if mode == "rows" else batch_source(rows, asked, "request"),
        reply=function(reply, "reply") if reply is not None else None,
        key=None if chosen is None else key_source(rows, chosen),
        internal=tuple(internal),
        window=window or (WINDOW_ROWS if mode == "rows" else WINDOW_BATCHES),
        batch_rows=batch_rows,
        timeout=float(timeout),
        retries=retries,
        wait_for_members=float(wait_for_members),
        on_error=on_error,
        name=f"{next(_numbers)}" if name is None else name,
        token=uuid.uuid4().hex,
        metrics=accumulator_of(metrics),
        id=named_by,
        time_zone=str(df.sparkSession.conf.get("spark.sql.session.timeZone")),
    )
    run = Shipment(dispatch_rows if mode == "rows" else dispatch_batches, plan)
    return map_in_arrow(rows, run, _result_schema(df, added, on_error), f"iris_dispatch[{cluster}, {mode}]")


def _check_id(df: DataFrame, id: object) -> tuple[str, ...]:  # noqa: A002
    """Return the columns that errors name rows by.

    Raises:
        ConfigurationError: These are no columns of the DataFrame.
    """
    if id is None:
        return ()
    names = (id,) if isinstance(id, str) else tuple(id) if isinstance(id, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"id={id!r} must be the name of a column, or a list of them.")
    for name in names:
        if df.columns.count(name) != 1:
            known = ", ".join(df.columns)
            raise ConfigurationError(f"id={id!r}: {name!r} must be the name of one column, exactly as in: {known}.")
    return names


def accumulator_of(metrics: DispatchMetrics | None) -> Accumulator[DispatchCounts] | None:
    """Return what tasks add their counts to; None if nobody wants to know.

    Raises:
        ConfigurationError: These are no metrics.
    """
    if metrics is None:
        return None
    if not isinstance(metrics, DispatchMetrics):
        raise ConfigurationError(f"metrics={metrics!r} must be a spark_connector.DispatchMetrics.")
    return metrics._accumulator


# -- checks


def check_network(spark: SparkSession, network: object) -> Network:
    """Return the settings of nodes, by default those of the session.

    Raises:
        ConfigurationError: These are no such settings, or those of the session are wrong.
    """
    if network is None:
        return network_of(spark)
    if not isinstance(network, Network):
        raise ConfigurationError(f"network={network!r} must be a spark_connector.Network.")
    return network


def check_numbers(
    cluster: object,
    mode: object,
    window: object,
    batch_rows: object,
    timeout: object,
    retries: object,
    on_error: object,
    name: object,
    wait_for_members: object,
) -> None:
    """Refuse arguments that no dispatch can have.

    Raises:
        ConfigurationError: One is wrong.
    """
    if not isinstance(cluster, str) or not 1 <= len(cluster.encode()) <= 255:
        raise ConfigurationError(f"cluster={cluster!r} must be a name of 1 to 255 bytes.")
    if mode not in ("rows", "batches"):
        raise ConfigurationError(f"mode={mode!r} is unknown. Choose rows or batches.")
    if on_error not in ERROR_MODES:
        raise ConfigurationError(f"on_error={on_error!r} is unknown. Choose one of {', '.join(ERROR_MODES)}.")
    if window is not None and not is_whole(window, 1, WINDOW_MAX):
        raise ConfigurationError(f"window={window!r} must be from 1 to {WINDOW_MAX}.")
    if not is_whole(batch_rows, 1, 1 << 31):
        raise ConfigurationError(f"batch_rows={batch_rows!r} must be a number of rows, at least 1.")
    if not is_whole(retries, 0, 1 << 31):
        raise ConfigurationError(f"retries={retries!r} must be a whole number, at least 0.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError(f"name={name!r} must be a text that is not empty.")
    is_number = isinstance(wait_for_members, int | float) and not isinstance(wait_for_members, bool)
    if not is_number or not 0 <= wait_for_members < math.inf:  # type: ignore[operator] # it is a number then
        raise ConfigurationError(f"wait_for_members={wait_for_members!r} must be a finite number of seconds, at least 0.")


def _check_names(df: DataFrame, names: Sequence[str], on_error: str) -> None:
    added = [*names, *([ERROR_COLUMN] if on_error == "column" else [])]
    is_exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    seen: dict[str, str] = {}
    for number, name in enumerate([*df.columns, *added]):
        other = seen.setdefault(name if is_exact else name.lower(), name)
        if number < len(seen):
            continue
        are = f"two columns {name!r}" if name == other else f"columns {other!r} and {name!r}, which are one to Spark"
        if number < len(df.columns):
            raise ConfigurationError(f"the DataFrame has {are}. Rename one.")
        raise ConfigurationError(f"there would be {are}. Rename that of the DataFrame, or that of schema=.")


# -- schemas


def reply_schema(schema: object, reply: object, mode: str) -> tuple[StructType, pa.Schema]:
    """Return the columns that are added, for Spark and for Arrow.

    Raises:
        ConfigurationError: These are no columns, or none that come of replies.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    if not isinstance(schema, str | StructType):
        raise ConfigurationError(f'schema={schema!r} must be a text as "score double, model string", or a StructType.')
    try:
        parsed = parse_type(schema) if isinstance(schema, str) else schema
        if not isinstance(parsed, StructType):
            raise ConfigurationError(f'schema={schema!r} is a type, and not columns such as "score double, model string".')
        # A row without a reply has no values, so every column may be null.
        added = StructType([StructField(field.name, field.dataType, True, field.metadata) for field in parsed.fields])
        arrow = arrow_schema(added)
    except PySparkException as exc:
        reason = str(exc).strip().split("\n")[0]
        raise ConfigurationError(f'schema={schema!r} is no schema such as "score double, model string": {reason}') from None
    if not added.fields:
        raise ConfigurationError(
            "schema= has no column. Name at least one, or use spark_connector.notify() to ask for no reply."
        )
    is_plain = len(added.fields) == 1 and isinstance(added.fields[0].dataType, StringType | BinaryType)
    if mode == "rows" and reply is None and not is_plain:
        raise ConfigurationError(
            f"schema={schema!r} needs reply=, a function that makes these columns of a reply, such as json.loads. "
            "Without it there is one column, of binary or string."
        )
    return added, arrow


def _result_schema(df: DataFrame, added: StructType, on_error: str) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    error = [StructField(ERROR_COLUMN, StringType(), True)] if on_error == "column" else []
    return StructType([*df.schema.fields, *added.fields, *error])
