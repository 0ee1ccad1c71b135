"""File transfer by tunnel: files of any size, in bounded memory, and the receiver says what it has got.

The message before each file is its name, the one that comes back is the checksum of what was written.
"""

import asyncio
import hashlib
import sys
import tempfile
from pathlib import Path

import iris_py as iris


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Store(iris.Handler):
    """Keeps the files that are sent to it in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for name in tunnel:
            target = self.directory / Path(name.decode()).name  # never a path that somebody else chose
            with target.open("wb") as file:
                size = await tunnel.receive_into(file)
            print(f"stored {target.name}: {size} bytes")
            await tunnel.send(checksum(target).encode())


async def send(node: iris.Node, paths: list[Path]) -> None:
    async with node.tunnel("store") as tunnel:
        for path in paths:
            await tunnel.send(path.name.encode())
            with path.open("rb") as file:
                await tunnel.send_from(file)
            stored = (await tunnel.receive()).decode()
            print(f"sent {path.name}:", "the checksum is right" if stored == checksum(path) else "DAMAGED")


async def main(paths: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        storage, node = await iris.connect(), await iris.connect()  # usually two machines
        await storage.join("store", Store(Path(directory)))
        await send(node, paths)
        await asyncio.gather(storage.close(), node.close())


if __name__ == "__main__":
    iris.run(main([Path(argument) for argument in sys.argv[1:]] or [Path(__file__), Path(sys.executable)]))
