"""The modules that a node loads: code that most nodes do not use stays out of memory."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

#: Parsers of files that most nodes do not have: some hundred KiB of each process.
PARSERS = ("tomllib", "json", "iris_py.federation.toml")
#: The runner of a secret command, which few nodes have, and the parser of its words.
COMMANDS = ("iris_py.files.secret_command", "shlex")
#: The uses of other clouds: a node in its own cloud has their maker alone, and of `federation` the names. With the messages to
#: gateways they would take 0.8 MiB of each process.
OTHER_CLOUDS = ("iris_py.api.cloud.", "iris_py.federation.")
ALLOWED = {"iris_py.api.cloud.parts", "iris_py.federation.names"}
PROGRAM = """
import asyncio, os, sys
import iris_py
from iris_security import Secret

class Echo(iris_py.Handler):
    async def on_request(self, request):
        return request.payload

    async def on_survey(self, request):
        return request.payload

    async def on_tunnel(self, tunnel):
        await tunnel.send(await tunnel.receive())

async def main():
    async with (
        iris_py.connect(secret=Secret.generate(os.urandom).text, discovery=False, listen="127.0.0.1:0") as node,
        node.join("users", Echo()),
        node.subscribe("news") as news,
    ):
        assert await node.request("users", b"7") == b"7"
        assert len(await node.survey("users", b"7")) == 1
        assert await node.broadcast("users", b"7") == 1
        assert await node.publish("news", b"7") == 1
        assert (await anext(news)).payload == b"7"
        async with node.tunnel("users") as tunnel:
            await tunnel.send(b"7")
            assert await tunnel.receive() == b"7"

asyncio.run(main())
print(*sys.modules)
"""


@cache
def loaded() -> frozenset[str]:
    """Return the modules of a process whose node has used each pattern in its own cloud, configured without a file."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split())


def test_a_node_without_a_file_loads_no_parser_of_files() -> None:
    assert loaded() & {*PARSERS} == frozenset()


def test_a_node_without_a_secret_command_loads_no_runner_of_commands() -> None:
    assert loaded() & {*COMMANDS} == frozenset()


def test_a_node_within_its_own_cloud_loads_no_use_of_other_clouds() -> None:
    assert {name for name in loaded() if name.startswith(OTHER_CLOUDS)} == ALLOWED
