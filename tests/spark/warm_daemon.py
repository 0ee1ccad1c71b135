"""Spark's Python daemon, which has imported what tasks need before it forks: a worker is there in no time.

With Spark's own daemon every worker imports Arrow and Iris again: half a second of processor time, and the tests let many tasks
fail, each of which costs Spark its workers. pandas would be another second for each daemon, and Spark has several in a session:
it is left to the few workers that need it. To import before the fork is right only where that starts no threads, for
which :data:`ENVIRONMENT` is needed; where it does all the same, this becomes Spark's own daemon.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from importlib import import_module

#: What Spark calls this module, for ``spark.python.daemon.module``.
MODULE = "tests.spark.warm_daemon"
#: Without these OpenBLAS and the allocator of Arrow start threads when they are imported.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
#: What tasks use, by the module that a daemon runs in its workers.
OF_TASKS = {"pyspark.worker": ("iris_py.sync", "spark_connector.dataframes.dispatch", "spark_connector.topics.writer")}
#: What the processes use that plan for a data source.
OF_PLANS = ("spark_connector.topics.datasource", "spark_connector.topics.writer")
_TOLD = "TESTS_SPARK_WARM_DAEMON"


def import_for(worker: str) -> None:
    """Import what the workers of a daemon use; where that starts threads, become Spark's own daemon."""
    for name in (worker, *OF_TASKS.get(worker, OF_PLANS)):
        with contextlib.suppress(ImportError):  # of what needs a newer Spark
            import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        print("tests: imports have started threads, so each worker of Spark imports for itself", file=sys.stderr)
        os.environ[_TOLD] = "no"
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", worker])
    gc.collect()
    gc.freeze()  # a collection in a worker copies nothing of it


def import_for_plans() -> None:
    """Do so in a daemon whose workers plan: Spark always runs its own there, and a setting chooses only that of tasks."""
    command = sys.orig_argv[1:]
    is_warm = ENVIRONMENT.items() <= os.environ.items() and _TOLD not in os.environ
    if is_warm and command[:2] == ["-m", "pyspark.daemon"] and command[2:] not in ([], ["pyspark.worker"]):
        import_for(command[2])


def main() -> None:
    """Be the daemon that Spark wants."""
    import_for(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")  # before Spark 4.0 it is not told
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
