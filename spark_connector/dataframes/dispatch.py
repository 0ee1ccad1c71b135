"""The driver's side of a dispatch: it checks as much as possible before Spark starts anything."""

from __future__ import annotations

import itertools
import math
import uuid
from typing import TYPE_CHECKING, Literal

from iris_py import ConfigurationError
from spark_connector.compat import arrow_schema, parse_type
from spark_connector.dataframes.metrics import accumulator_of
from spark_connector.dataframes.plan import ERROR_COLUMN, Plan, RequestLimits
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
from spark_connector.shipment import Shipment, check_pickles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_connector.dataframes.metrics import DispatchMetrics
    from spark_connector.dataframes.sources import BatchSource, RowSource

__all__ = ["check_arguments", "check_network", "dispatch", "make_limits", "reply_schema"]

#: Requests of a task in flight at once. Rows: enough to hide some milliseconds of latency. Batches: enough to keep members busy
#: while other batches are in transit; each takes about a megabyte at both ends.
WINDOW_ROWS = 64
WINDOW_BATCHES = 4
#: Larger windows are refused as mistakes: a member accepts 1,152 requests until it is full, and each request in flight takes
#: some KiB here.
WINDOW_MAX = 65_536
#: Rows in a request of mode ``batches``. At a thousand rows the cost per request is small already, so larger batches gain
#: nothing.
BATCH_ROWS = 1000
#: Timeout of one attempt (seconds), and the number of further attempts.
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
    id: str | Sequence[str] | None = None,  # noqa: A002 - the usual name of this column
    timeout: float = TIMEOUT_S,
    retries: int = RETRIES,
    wait_for_members: float = WAIT_FOR_MEMBERS_S,
    on_error: Literal["raise", "null", "column"] = "raise",
    network: Network | None = None,
    name: str | None = None,
    metrics: DispatchMetrics | None = None,
) -> DataFrame:
    """Request a reply from a cluster for each row of a DataFrame; return the rows with the replies as further columns.

    As everything in Spark this is lazy: tasks send the requests when an action needs the rows, and again for each action. It
    works for streaming DataFrames as well. docs/spark.md lists the guarantees.

    Args:
        df: The DataFrame.
        cluster: The name of the cluster.
        request: The payload of each request. In mode ``rows``: the name of a column of text or bytes; an expression of columns,
            such as ``to_json(struct("*"))``; or a function that takes a row as a dict and returns bytes or text. A row with a
            payload of None sends no request. In mode ``batches``: the columns to send, by default all; or a function that takes
            a ``pyarrow.RecordBatch`` and returns the batch to send, with as many rows.
        reply: In mode ``rows``, a function that takes a reply as bytes and returns the values of the new columns: a dict or a
            tuple, or for a single column the value itself. By default the single column is the reply as bytes or text.
        schema: The new columns, as ``"score double, model string"`` or a ``StructType``. In mode ``batches`` the reply must
            have columns of these names, with types that can be cast without loss (docs/spark-types.md); other columns of the
            reply are ignored. Times without a time zone are in the session's time zone.
        mode: ``rows``: each row is a request. ``batches``: up to ``batch_rows`` rows are one request, an Arrow IPC stream, for
            members that serve an :class:`~spark_connector.ArrowHandler`. Batches are far faster where the members can use them.
        window: Number of requests in flight per task: by default 64 rows, or 4 batches.
        batch_rows: In mode ``batches``, the maximum number of rows in a request; fewer where they do not fit into a message.
        key: In mode ``rows``, the idempotency key by which members recognize a request they have executed: a column of text,
            bytes or whole numbers, an expression, or a function of a row. Requests with the same key are the same request,
            whatever their sender (see :meth:`iris_py.Node.request`). By default the row's place in the job and a digest of the
            payload.
        id: Columns whose values identify a row in errors, such as ``order_id=17``: in the task's failure, and in the column
            ``error``. For a batch without a reply the first five rows are named.
        timeout: Timeout of each attempt, in seconds: longer than the slowest useful reply.
        retries: Number of retries of a request without a reply, with the same key. A request whose handler failed is not
            retried.
        wait_for_members: Number of seconds that the cluster may be without members, as seen by a task, until the task fails. It
            then fails at once if the cluster had no member since the task began; otherwise when requests have waited for
            ``timeout``.
        on_error: The treatment of a row without a reply that matches ``schema``. ``raise``: the task fails, and with it the job
            when Spark has tried often enough. ``null``: the new columns are null. ``column``: the new columns are null, and a
            column ``error`` has the reason; it is null in other rows. A cluster without members is not an error of single rows:
            the task fails. In mode ``batches`` a request whose handler failed is sent again in halves, until the bad rows are
            alone.
        network: Settings of the calling nodes; see :class:`Network`. By default the settings ``spark.iris.*`` of the session.
        name: The name of this dispatch in keys. By default its number in the program, so keys stay the same after a restart if
            the program dispatches in the same order. Inside ``foreachBatch``, give it a name.
        metrics: Counts the requests and their outcomes.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    check_frame(df)
    check_arguments(cluster, mode, batch_rows, on_error, name)
    limits = make_limits(mode, window, timeout, retries, wait_for_members)
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
        limits=limits,
        batch_rows=batch_rows,
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
    """Return the columns that identify rows in errors.

    Raises:
        ConfigurationError: ``id`` does not name columns of the DataFrame.
    """
    if id is None:
        return ()
    names = (id,) if isinstance(id, str) else tuple(id) if isinstance(id, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"id={id!r} must be the name of a column, or a list of names.")
    for name in names:
        if df.columns.count(name) != 1:
            known = ", ".join(df.columns)
            raise ConfigurationError(f"id={id!r}: {name!r} must be the name of one column, exactly as in: {known}.")
    return names


# -- checks


def check_network(spark: SparkSession, network: object) -> Network:
    """Return the settings of nodes, by default those of the session.

    Raises:
        ConfigurationError: ``network`` is not a ``Network``, or the session's settings are wrong.
    """
    if network is None:
        return network_of(spark)
    if not isinstance(network, Network):
        raise ConfigurationError(f"network={network!r} must be a spark_connector.Network.")
    return network


def check_arguments(cluster: object, mode: object, batch_rows: object, on_error: object, name: object) -> None:
    """Refuse invalid arguments of a dispatch.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    if not isinstance(cluster, str) or not 1 <= len(cluster.encode()) <= 255:
        raise ConfigurationError(f"cluster={cluster!r} must be a name of 1 to 255 bytes.")
    if mode not in ("rows", "batches"):
        raise ConfigurationError(f"mode={mode!r} is unknown. Choose rows or batches.")
    if on_error not in ERROR_MODES:
        raise ConfigurationError(f"on_error={on_error!r} is unknown. Choose one of {', '.join(ERROR_MODES)}.")
    if not is_whole(batch_rows, 1, 1 << 31):
        raise ConfigurationError(f"batch_rows={batch_rows!r} must be a number of rows, at least 1.")
    if name is not None and (not isinstance(name, str) or not name):
        raise ConfigurationError(f"name={name!r} must be text that is not empty.")


def make_limits(mode: str, window: object, timeout: object, retries: object, wait_for_members: object) -> RequestLimits:
    """Return the limits of the requests of a dispatch, with the usual window of the mode if none is given.

    Raises:
        ConfigurationError: An argument is wrong.
    """
    if window is None:
        window = WINDOW_ROWS if mode == "rows" else WINDOW_BATCHES
    if not is_whole(window, 1, WINDOW_MAX):
        raise ConfigurationError(f"window={window!r} must be from 1 to {WINDOW_MAX}.")
    if not is_whole(retries, 0, 1 << 31):
        raise ConfigurationError(f"retries={retries!r} must be a whole number, at least 0.")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ConfigurationError(f"timeout={timeout!r} must be a positive and finite number of seconds.")
    if (
        isinstance(wait_for_members, bool)
        or not isinstance(wait_for_members, int | float)
        or not 0 <= wait_for_members < math.inf
    ):
        raise ConfigurationError(f"wait_for_members={wait_for_members!r} must be a finite number of seconds, at least 0.")
    return RequestLimits(window, float(timeout), retries, float(wait_for_members))


def _check_names(df: DataFrame, names: Sequence[str], on_error: str) -> None:
    added = [*names, *([ERROR_COLUMN] if on_error == "column" else [])]
    is_exact = str(df.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"
    seen: dict[str, str] = {}
    for number, name in enumerate([*df.columns, *added]):
        other = seen.setdefault(name if is_exact else name.lower(), name)
        if number < len(seen):
            continue
        are = f"two columns {name!r}" if name == other else f"columns {other!r} and {name!r}, which are the same to Spark"
        if number < len(df.columns):
            raise ConfigurationError(f"the DataFrame has {are}. Rename one.")
        raise ConfigurationError(f"the result would have {are}. Rename the column of the DataFrame, or the one of schema=.")


# -- schemas


def reply_schema(schema: object, reply: object, mode: str) -> tuple[StructType, pa.Schema]:
    """Return the added columns, for Spark and for Arrow.

    Raises:
        ConfigurationError: ``schema`` has no columns, or columns that cannot be made from replies.
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
        raise ConfigurationError(f'schema={schema!r} is not a schema such as "score double, model string": {reason}') from None
    if not added.fields:
        raise ConfigurationError(
            "schema= has no column. Name at least one, or use spark_connector.notify() to send without replies."
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
