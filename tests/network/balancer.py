"""A load balancer: hands each connection on to the next of its targets, and knows nothing of what passes.

Usage: balancer.py HOST PORT TARGET_HOST:PORT [TARGET_HOST:PORT...]. It says that it listens (``listening``), and for each
connection which target it took (``passed``). It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from tests.network.member import tell

PIECE_BYTES = 1 << 16


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes one way, and their end."""
    try:
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main(host: str, port: int, targets: list[str]) -> None:
    """Hand connections on."""
    turns = itertools.cycle(targets)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for target in itertools.islice(turns, len(targets)):
            target_host, _, target_port = target.rpartition(":")
            try:
                far_reader, far_writer = await asyncio.open_connection(target_host, int(target_port))
            except OSError:
                continue
            tell("passed", target=target)
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
            return
        writer.close()

    server = await asyncio.start_server(pass_on, host, port)
    tell("listening")
    loop = asyncio.get_running_loop()
    loop.add_reader(0, lambda: os.read(0, PIECE_BYTES) or os._exit(0))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
