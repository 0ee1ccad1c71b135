"""Keys of requests: the same whenever Spark does the same work again, and different for everything else.

Spark runs a task again when it failed, when its executor was lost, when it is slow (speculation), and when a streaming query
goes on after a stop. Each time it is the same partition of the same action, or of the same micro-batch, so that is the *scope*
of keys. Within it rows have numbers. Numbers tell rows apart only if they come in the same order again, which Spark does not
promise after a shuffle. So a key also holds a fingerprint of the payload: a row that comes at another place is asked about
again, but never gets the reply of another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.connector import Fingerprinter

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scope", "scope_of", "task_scope"]


class Scope:
    """Keys of one task.

    Args:
        name: What all of them begin with.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._fingerprint = Fingerprinter(name).fingerprint
        self._count = 0

    def key(self, payload: bytes) -> str:
        """Return the key of the next request."""
        key = f"{self.name}/{self._count}/{self._fingerprint(payload).hex()}"
        self._count += 1
        return key

    def skip(self) -> str:
        """Return what to call the next row, which asks nothing: the rows behind it keep their numbers."""
        key = f"{self.name}/{self._count}"
        self._count += 1
        return key


def scope_of(get: Callable[[str], str | None], stage: int, partition: int, name: str, token: str) -> str:
    """Return the scope of a task.

    Args:
        get: Returns a local property of Spark, or None.
        stage: The id of the stage.
        partition: The id of the partition.
        name: What the dispatch is called.
        token: In place of the application's id, where that is not told.
    """
    query = get("sql.streaming.queryId")
    if query:
        run = f"{query}/{get('streaming.sql.batchId')}"
    else:
        # An action that is no query of Spark SQL, as df.rdd.count(), has no execution id; its stages are its own.
        run = f"{get('spark.app.id') or token}/{get('spark.sql.execution.id') or f'stage{stage}'}"
    return f"{run}/{name}/{partition}"


def task_scope(name: str, token: str) -> Scope:
    """Return the scope of the task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    return Scope(scope_of(context.getLocalProperty, context.stageId(), context.partitionId(), name, token))
