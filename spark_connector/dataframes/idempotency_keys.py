"""Keys of requests: the same whenever Spark repeats the same work, and different for all other work.

Spark runs a task again after a failure, after the loss of its executor, when it is slow (speculation), and when a streaming
query continues after a stop. Each time it is the same partition of the same action or micro-batch, which makes the *scope* of
keys. Within a scope, rows have numbers. Numbers identify rows only if the rows come in the same order again, which Spark does
not guarantee after a shuffle. So a key also holds a fingerprint of the payload: a row in another place is requested again, but
never receives the reply of another row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.connector import Fingerprinter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scope", "scope_of", "task_scope"]


class Scope:
    """Makes the idempotency keys for the requests of one task.

    Args:
        name: The common beginning of the keys.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._fingerprint = Fingerprinter(name).fingerprint
        self._count = 0

    def key(self, payload: bytes) -> str:
        """Return the idempotency key for the task's next request."""
        key = f"{self.name}/{self._count}/{self._fingerprint(payload).hex()}"
        self._count += 1
        return key

    def skip(self) -> str:
        """Count a row that sends no request, so that the numbers of later rows stay the same; return a name for the row."""
        key = f"{self.name}/{self._count}"
        self._count += 1
        return key


def scope_of(get: Callable[[str], str | None], stage: int, partition: int, name: str, token: str) -> str:
    """Return the scope of a task: the common beginning of its requests' keys.

    Args:
        get: Returns a local property of Spark, or None.
        stage: The id of the stage.
        partition: The id of the partition.
        name: The name of the dispatch.
        token: Replaces the application's id where tasks do not know it.
    """
    query = get("sql.streaming.queryId")
    if query:
        run = f"{query}/{get('streaming.sql.batchId')}"
    else:
        # An action outside Spark SQL, such as df.rdd.count(), has no execution id, but stages of its own.
        run = f"{get('spark.app.id') or token}/{get('spark.sql.execution.id') or f'stage{stage}'}"
    return f"{run}/{name}/{partition}"


def task_scope(name: str, token: str) -> Scope:
    """Return the scope of the running task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    return Scope(scope_of(context.getLocalProperty, context.stageId(), context.partitionId(), name, token))
