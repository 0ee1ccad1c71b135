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
#: What tasks use. Other processes that Spark has forked for it, such as those that plan, need no more than what they are.
OF_TASKS = ("iris_py.sync", "spark_connector.dataframes.dispatch", "spark_connector.topics.writer")


def main() -> None:
    """Be the daemon that Spark wants."""
    worker = sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker"  # before Spark 4.0 it is not told
    for name in (worker, *OF_TASKS) if worker == "pyspark.worker" else (worker,):
        with contextlib.suppress(ImportError):  # of what needs a newer Spark
            import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        print("tests: imports have started threads, so each worker of Spark imports for itself", file=sys.stderr)
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", worker])

    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()  # a collection in a worker copies nothing of it
    manager()


if __name__ == "__main__":
    main()
