"""A member process of `iris demo --spark`: as that of `iris demo`, but it is asked in Arrow batches of files.

It publishes which files it has counted, so that somebody can watch the job.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from dataclasses import astuple
from typing import TYPE_CHECKING

import pyarrow as pa

from iris_py.cli.demo.lexer import count
from iris_py.cli.demo.member import serve
from iris_py.cli.demo.spark_terms import PROGRESS_TOPIC, TOTAL_NAMES
from iris_py.cli.outcome import execute
from spark_connector.dataframes.arrow import ArrowHandler

if TYPE_CHECKING:
    import iris_py

__all__ = ["make_counter"]


def make_counter(node: iris_py.Node) -> ArrowHandler:
    """Return the handler: a batch has a number and a content in each row, and the reply who has counted it and what."""
    loop = asyncio.get_running_loop()

    def count_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = [astuple(count(content or b"")) for content in batch.column("content").to_pylist()]
        numbers = batch.column("number").to_pylist()
        payload = struct.pack(f"!{len(numbers)}I", *numbers)
        asyncio.run_coroutine_threadsafe(node.publish(PROGRESS_TOPIC, payload), loop)
        columns = dict(zip(TOTAL_NAMES, zip(*rows, strict=True), strict=True))
        return pa.RecordBatch.from_pydict({"member": [node.id] * len(rows), **{name: list(c) for name, c in columns.items()}})

    return ArrowHandler(count_batch)


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1], make_counter)))
