"""A member whose handler ends its process at one row.

Arguments: the cluster, the network, the seed, the row, and the way in which the process ends (a key of ``WAYS``). The secret is
in the environment. It says ``serving`` when it serves. Its node ends with its standard input.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

import pyarrow as pa

import iris_py.sync as iris
from spark_connector import ArrowHandler

#: Address space that the process may take besides what it has when it begins to serve: room for the threads of its handlers.
SPARE_BYTES = 1 << 30
BLOCK_BYTES = 1 << 26


def end_by_signal() -> None:
    """End as the system ends a process that takes too much memory of its container."""
    os.kill(os.getpid(), signal.SIGKILL)


def end_by_exit() -> None:
    """End as native code does that gives up."""
    os._exit(9)


def end_by_memory() -> None:
    """End as native code does that meets the memory limit of its process, and does not look whether it was given memory.

    Python itself would raise a MemoryError, which is the failure of a handler and no death.
    """
    library = ctypes.CDLL(None)
    library.malloc.restype = library.memset.restype = ctypes.c_void_p
    library.malloc.argtypes = (ctypes.c_size_t,)
    library.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    while True:
        library.memset(library.malloc(BLOCK_BYTES), 1, BLOCK_BYTES)


WAYS = {"kill": end_by_signal, "exit": end_by_exit, "memory": end_by_memory}


def limit_memory() -> None:
    """Set the memory limit of this process; one that crashes leaves no image of its memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + SPARE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Serve until standard input ends."""
    cluster, network, seed, row, way = sys.argv[1:]

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        ids = [int(each) for each in batch["id"].to_pylist() if each is not None]
        if int(row) in ids:
            WAYS[way]()
        return pa.RecordBatch.from_pydict({"twice": [2 * each for each in ids]})

    def double_one(request: iris.Request) -> bytes:
        if request.payload.decode() == row:
            WAYS[way]()
        return b"%d" % (2 * int(request.payload))

    with iris.connect(network=network, listen="127.0.0.1:0", seeds=[seed], discovery=False) as node:
        node.join(cluster, ArrowHandler(double))
        node.join(f"{cluster}-rows", double_one)
        if way == "memory":
            limit_memory()
        print("serving", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
