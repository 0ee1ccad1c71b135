"""A member process of `iris demo --spark`. Unlike a member of `iris demo`, it receives Arrow batches of files.

It publishes the numbers of counted files, and the demo shows the progress.
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
    """Return the handler: a request has a number and a content in each row, and the reply has the member and the totals."""
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
