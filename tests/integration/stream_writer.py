"""A program that appends to a stream until it is killed; for test_stream_kills.py.

Usage: stream_writer.py DIRECTORY SEED. A line of the standard output, written at once, says each acknowledged record: its
partition, offset and payload.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

import iris_py as iris
from iris_py.testing import ShadowDisk

#: Tasks that append at the same time, and share syncs. Many go to the disk in two halves by turns.
TASKS = 4
MANY_TASKS = 128
#: The size of a segment is an eighth of it: the program crosses from segment to segment.
STREAM_BYTES = 1 << 20


def has_many_tasks(seed: int) -> bool:
    """Whether many tasks append in the run with a seed."""
    return seed % 4 == 3


async def append_forever(stream: iris.Stream, name: str, seed: int) -> None:
    """Append records of many sizes, and say each one that is safe."""
    chance = random.Random(f"{seed} {name}")
    number = 0
    while True:
        label = f"{name}-{number}"
        payload = label.encode() + b" " + bytes(chance.choice((0, 10, 600, 5000)))
        receipt = await stream.append(payload, key=name)
        os.write(1, f"{receipt.partition} {receipt.offset} {label}\n".encode())
        number += 1


async def main(directory: str, seed: int) -> None:
    """Append to both partitions of a stream."""
    async with iris.open_streams(directory, disk=ShadowDisk(seed)) as streams:
        stream = await streams.create_stream("kept", partitions=2, max_bytes=64 * STREAM_BYTES, exist_ok=True)
        await streams.change_stream("kept", max_bytes=STREAM_BYTES * (8 if seed % 2 else 64))
        tasks = MANY_TASKS if has_many_tasks(seed) else TASKS
        await asyncio.gather(*(append_forever(stream, f"{seed}.{task}", seed) for task in range(tasks)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
