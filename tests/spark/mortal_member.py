"""A member whose handler ends its process at one row.

Arguments: the cluster, the network, the seed, the row, and how it ends: ``kill`` or ``exit``. The secret is in the environment.
It says ``serving`` when it serves. Its node ends with its standard input.
"""

from __future__ import annotations

import os
import signal
import sys

import pyarrow as pa

import iris_py.sync as iris
from spark_connector import ArrowHandler


def main() -> None:
    """Serve until standard input ends."""
    cluster, network, seed, row, way = sys.argv[1:]

    def end() -> None:
        if way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(9)

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = [int(each) for each in batch["id"].to_pylist() if each is not None]
        if int(row) in ids:
            end()
        return pa.RecordBatch.from_pydict({"twice": [2 * each for each in ids]})

    def double_one(request: iris.Request) -> bytes:
        if request.payload.decode() == row:
            end()
        return b"%d" % (2 * int(request.payload))

    with iris.connect(network=network, listen="127.0.0.1:0", seeds=[seed], discovery=False) as node:
        node.join(cluster, ArrowHandler(double))
        node.join(f"{cluster}-rows", double_one)
        print("serving", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
