"""A cluster as a function of SQL: ``SELECT score(amount, country) FROM orders``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

import pyarrow as pa

from iris_py import ConfigurationError, IrisError
from spark_connector.compat import check_version
from spark_connector.dataframes.dispatch import (
    BATCH_ROWS,
    RETRIES,
    TIMEOUT_S,
    check_arguments,
    check_network,
    make_limits,
    reply_schema,
)
from spark_connector.dataframes.metrics import accumulator_of
from spark_connector.dataframes.plan import ERROR_COLUMN, Plan
from spark_connector.dataframes.sources import REQUEST_COLUMN
from spark_connector.dataframes.tasks import dispatch_batches, dispatch_rows
from spark_connector.dataframes.window import WAIT_FOR_MEMBERS_S
from spark_connector.shipment import Shipment, check_pickles

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

    from spark_connector.dataframes.metrics import DispatchMetrics
    from spark_connector.network import Network

__all__ = ["register"]


def register(
    spark: SparkSession,
    name: str,
    *,
    cluster: str,
    schema: str | StructType = "reply binary",
    columns: Sequence[str] | None = None,
    mode: Literal["rows", "batches"] = "batches",
    reply: Callable[[bytes], object] | None = None,
    window: int | None = None,
    batch_rows: int = BATCH_ROWS,
    timeout: float = TIMEOUT_S,
    retries: int = RETRIES,
    wait_for_members: float = WAIT_FOR_MEMBERS_S,
    on_error: Literal["raise", "null", "column"] = "raise",
    network: Network | None = None,
    metrics: DispatchMetrics | None = None,
) -> Callable[..., Any]:
    """Register a cluster as an SQL function of this session: the arguments are the request, and the result is the reply.

    It is :func:`dispatch` for SQL, with the same guarantees, keys and errors. Spark sends requests only for the rows that
    remain when it calls the function, so filter before you dispatch (docs/spark.md). Needs Spark 4.1 or newer.

    Args:
        spark: The session.
        name: The name of the function.
        cluster: The name of the cluster.
        schema: The function's result: the value of one column, as ``"score double"``, or a struct of several.
        columns: In mode ``batches``, the names of the request's columns, in the order of the arguments. By default the function
            takes a struct whose fields are the columns: ``score(struct(amount, country))``.
        mode: ``batches``: up to ``batch_rows`` rows are one request, as Arrow. ``rows``: the function takes a single argument,
            the request as text or bytes. A null sends no request and returns null.
        reply: In mode ``rows``, makes values from a reply, as for :func:`dispatch`.
        window: Number of requests in flight per task: by default 4 batches, or 64 rows.
        batch_rows: Maximum number of rows in a request.
        timeout: Timeout of each attempt, in seconds.
        retries: Number of retries of a request without a reply.
        wait_for_members: Number of seconds that the cluster may be without members until the task fails, as for
            :func:`dispatch`.
        on_error: The treatment of a row without a reply. ``raise``: the task fails. ``null``: the function returns null, or a
            struct of nulls. ``column``: the function always returns a struct, with a field ``error``.
        network: Settings of the calling nodes.
        metrics: Counts the requests and their outcomes.

    Returns:
        The function for DataFrames: ``orders.select(score("amount", "country"))``.

    Raises:
        ConfigurationError: An argument is wrong, or this Spark has no functions of Arrow.
    """
    if not callable(getattr(getattr(spark, "udf", None), "register", None)):
        raise ConfigurationError(f"spark is {type(spark).__qualname__}, but must be a SparkSession.")
    check_arguments(cluster, mode, batch_rows, on_error, name)
    limits = make_limits(mode, window, timeout, retries, wait_for_members)
    _check_columns(columns, mode, reply)
    check_pickles(reply=reply)
    added, arrow_schema = reply_schema(schema, reply, mode)
    if ERROR_COLUMN in added.names and on_error == "column":
        raise ConfigurationError(f"the result would have two fields {ERROR_COLUMN!r}. Rename the one of schema=.")
    accumulator = accumulator_of(metrics)
    plan = Plan(
        cluster=cluster,
        network=check_network(spark, network),
        reply_schema=arrow_schema,
        request=REQUEST_COLUMN if mode == "rows" else None,
        reply=reply,
        key=None,
        internal=(),
        limits=limits,
        batch_rows=batch_rows,
        on_error=on_error,
        name=f"sql-{name}",  # the same after a restart, whatever else the program dispatches
        token=uuid.uuid4().hex,
        metrics=accumulator,
        time_zone=str(spark.conf.get("spark.sql.session.timeZone")),
    )
    return _register(spark, name, plan, None if columns is None else tuple(columns), _returned(added, on_error))


def _register(
    spark: SparkSession, name: str, plan: Plan, columns: tuple[str, ...] | None, returned: DataType
) -> Callable[..., Any]:
    from pyspark.errors import PySparkException

    check_version(spark.version)
    try:
        from pyspark.sql import functions

        arrow_udf: Any = vars(functions)["arrow_udf"]
    except KeyError:
        raise ConfigurationError(
            f"this is Spark {spark.version}, but SQL functions on Arrow need 4.1 or newer. Use dispatch()."
        ) from None

    run = Shipment(evaluate, plan, columns)

    def iris_request(items: Iterator[Any]) -> Iterator[pa.Array[Any]]:
        replies: Iterator[pa.Array[Any]] = run(items)
        return replies

    iris_request.__name__ = shown = f"{name}[{plan.cluster}]"
    # Spark derives the kind of the function from its annotations, which must be types; here annotations are texts.
    iris_request.__annotations__ = {"items": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}  # type: ignore[type-arg]
    try:
        made = arrow_udf(iris_request, returned)
        iris_request.__annotations__ = {}  # else they travel along and import Arrow before its absence is reported
        return _register_as(spark, name, shown, made)
    except PySparkException as exc:
        reason = str(exc).strip().split("\n")[0]
        raise ConfigurationError(f"{name!r} cannot be a function of this session: {reason}") from None


def _register_as(spark: SparkSession, name: str, shown: str, made: Any) -> Callable[..., Any]:  # noqa: ANN401 - of PySpark
    """Register a function under a name for SQL, and under a longer name with the cluster for Spark's plans."""
    java_session = getattr(spark, "_jsparkSession", None)
    function: Callable[..., Any] = spark.udf.register(name, made)
    if java_session is None:
        return function
    java_session.udf().registerPython(name, made._unwrapped._judf if hasattr(made, "_unwrapped") else made._judf)
    return cast("Callable[..., Any]", made)


def _check_columns(columns: Any, mode: str, reply: object) -> None:  # noqa: ANN401 - any argument of the user
    if mode == "rows" and columns is not None:
        raise ConfigurationError("columns= is for mode='batches': in mode='rows' the one argument is the request.")
    if mode == "batches" and reply is not None:
        raise ConfigurationError("reply= is for mode='rows': a batch is answered by columns.")
    if columns is None:
        return
    is_list = isinstance(columns, Sequence) and not isinstance(columns, str)
    if not is_list or not columns or not all(isinstance(column, str) for column in columns):
        raise ConfigurationError(f"columns={columns!r} must be a list of names, one for each argument of the function.")
    if len(set(columns)) < len(columns):
        raise ConfigurationError(f"columns={columns!r} names a column twice.")


def _returned(added: StructType, on_error: str) -> DataType:
    from pyspark.sql.types import StringType, StructType

    if on_error == "column":
        return StructType([*added.fields]).add(ERROR_COLUMN, StringType())
    return added.fields[0].dataType if len(added.fields) == 1 else added


# -- in the tasks


def evaluate(plan: Plan, columns: tuple[str, ...] | None, items: Iterator[Any]) -> Iterator[pa.Array[Any]]:
    """Yield the replies to the arguments of SQL function calls, in the same order, perhaps in smaller or larger arrays.

    Args:
        plan: The plan of the dispatch.
        columns: The names of the arguments; None for a single argument, a struct or the payload.
        items: The arguments of some rows: an array for a single argument, else a tuple.

    Raises:
        IrisError: The arguments differ from the registration, or the node cannot send requests.
    """
    is_rows = plan.request is not None
    given: list[int] = []  # number of argument columns; the others hold replies

    def batches() -> Iterator[pa.RecordBatch]:
        for item in items:
            arrays = item if isinstance(item, tuple) else (item,)
            batch = _payloads(plan, arrays) if is_rows else _batch(plan, columns, arrays)
            given[:] = [batch.num_columns]
            yield batch

    for rows in (dispatch_rows if is_rows else dispatch_batches)(plan, batches()):
        replies = rows.columns[given[0] :]
        if len(replies) == 1:
            yield replies[0]
        else:
            yield pa.StructArray.from_arrays(replies, fields=list(rows.schema)[given[0] :])


def _payloads(plan: Plan, arrays: tuple[pa.Array[Any], ...]) -> pa.RecordBatch:
    if len(arrays) != 1 or not any(
        check(arrays[0].type)
        for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    ):
        raise IrisError(
            f"the function for the cluster {plan.cluster!r} takes one argument, of text or bytes, but was given "
            f"{_types(arrays)}. Call it with to_json(struct(...)), or register it with mode='batches'."
        )
    return pa.RecordBatch.from_arrays(list(arrays), names=[REQUEST_COLUMN])


def _batch(plan: Plan, columns: tuple[str, ...] | None, arrays: tuple[pa.Array[Any], ...]) -> pa.RecordBatch:
    if columns is None:
        if len(arrays) == 1 and isinstance(arrays[0], pa.StructArray):
            struct = arrays[0]
            fields = [struct.type.field(number) for number in range(struct.type.num_fields)]
            return pa.RecordBatch.from_arrays(struct.flatten(), schema=pa.schema(fields))
        raise IrisError(
            f"the function for the cluster {plan.cluster!r} takes one argument, a struct such as struct(amount, country), "
            f"but was given {_types(arrays)}. Or register it with columns=, a name for each argument."
        )
    if len(arrays) != len(columns):
        raise IrisError(
            f"the function for the cluster {plan.cluster!r} takes {len(columns)} arguments, {', '.join(columns)}, but was "
            f"given {len(arrays)}. Correct the query, or columns=."
        )
    return pa.RecordBatch.from_arrays(list(arrays), names=list(columns))


def _types(arrays: tuple[pa.Array[Any], ...]) -> str:
    return ", ".join(str(array.type) for array in arrays)
