"""The modules that a node and a command load: code that most do not use stays out of memory, and out of the way of a start."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from typing import NamedTuple

import pytest

from iris_security import Secret

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


#: Topics, tunnels and surveys: a fifth of the time until a first reply, and 2 MiB of each process.
UNUSED = (
    "iris_py.patterns.tunnel",
    "iris_py.api.tunnel",
    "iris_py.api.tunnel_caller",
    "iris_py.api.duplex",
    "iris_py.api.survey",
    "iris_py.api.introspection",
    "iris_py.api.trace",
    "iris_py.observe.queries",
    "iris_py.observe.reports",
    "iris_py.patterns.topic",
    "iris_py.api.topic",
    "iris_py.api.subscription",
    "iris_py.wire.shares",
)


#: The handlers of a member, which a process that only asks does not have.
SERVING = (
    "iris_py.api.membership",
    "iris_py.api.server",
    "iris_py.api.hooks",
    "iris_py.api.seal",
    "iris_security.sealed_requests",
)


class Start(NamedTuple):
    """A way in which a process starts, and the modules that it may load."""

    program: str
    own_max: int
    """Modules of Iris at most."""
    all_max: int
    """Modules at most beside those of a bare interpreter: a tenth more than on CPython 3.11."""
    absent: frozenset[str]
    """Modules, and packages with all of their modules, that are not loaded."""


def command(*words: str) -> str:
    """Return a program that runs `iris` with these words."""
    return f"import sys; from iris_py.cli.app import run; run({list(words)})"


CONNECT = """
import asyncio, iris_py

async def main():
    async with iris_py.connect(discovery=False, listen="127.0.0.1:0") as node:
        pass

asyncio.run(main())
"""
FIRST_REPLY = """
import asyncio, iris_py

class Echo(iris_py.Handler):
    async def on_request(self, request):
        return request.payload

async def main():
    async with (
        iris_py.connect(discovery=False, listen="127.0.0.1:0") as member,
        member.join("users", Echo()),
        iris_py.connect(discovery=False, listen="127.0.0.1:0", seeds=[member.address]) as caller,
    ):
        assert await caller.request("users", b"7") == b"7"

asyncio.run(main())
"""
#: pydantic makes validators for the options of typer: its import took half of the time of `iris version`.
NEVER = frozenset({"pydantic", "importlib.metadata"})
#: Parsers of Markdown and colours of source code, which the help of typer imports and no help of `iris` shows.
NOT_SHOWN = frozenset({"rich.markdown", "rich.traceback", "pygments", "markdown_it"})
#: The parts of a node, which the first node of a process loads: a third of the time of the import of these names.
NODE = frozenset({"iris_py.api.lifecycle", "iris_py.api.keys", "iris_py.config", "iris_py.link", "iris_py.node", "pathlib"})
STARTS = {
    "import iris_py": Start("import iris_py", 3, 40, NEVER | {"asyncio", "cryptography", "msgspec", "logging"}),
    "names": Start("from iris_py import Handler, connect, run", 92, 300, NEVER | NODE | {*UNUSED, *SERVING, "uvloop"}),
    "connect": Start(CONNECT, 218, 454, NEVER | {*UNUSED, *SERVING, "typer", "rich", "iris_py.cli"}),
    "first reply": Start(FIRST_REPLY, 227, 458, NEVER | {*UNUSED, "typer", "rich", "iris_py.cli"}),
    "iris version": Start(
        command("version"), 14, 140, NEVER | {"rich", "msgspec", "asyncio", "logging", "iris_security", "iris_overlay"}
    ),
    "iris --help": Start(
        command("--help"), 45, 242, NEVER | NOT_SHOWN | {"msgspec", "asyncio", "iris_security", "iris_overlay"}
    ),
    "iris request --help": Start(
        command("request", "--help"), 15, 210, NEVER | NOT_SHOWN | {"msgspec", "asyncio", "iris_security", "iris_overlay"}
    ),
    "iris request": Start(
        command("request", "nobody", "hello", "--no-discovery", "--listen", "127.0.0.1:0"),
        238,
        528,
        NEVER | {*UNUSED, *SERVING, "rich"},
    ),
}


def environment() -> dict[str, str]:
    """Return the environment of a process with a network of its own."""
    return os.environ | {"IRIS_SECRET": Secret.generate(os.urandom).text}


@cache
def start(program: str) -> frozenset[str]:
    """Return the modules of a process at the end of a program."""
    command = [sys.executable, "-c", f"{program}\nimport sys; print('\\n', *sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment())
    return frozenset(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", STARTS)
def test_a_start_loads_no_more_modules_than_it_needs(name: str) -> None:
    """Each module costs a start some 0.3 ms of processor time. Lower a limit when its figure falls."""
    wanted = STARTS[name]
    found = start(wanted.program)
    own = {each for each in found if each.partition(".")[0] in ("iris_py", "iris_overlay", "iris_security")}
    assert {each for each in found if any(each == name or each.startswith(f"{name}.") for name in wanted.absent)} == set()
    assert len(own) <= wanted.own_max, sorted(own)
    assert len(found - start("pass")) <= wanted.all_max, sorted(found - own)


#: Dataclasses of a connected node, all of them public. Each takes a start half a millisecond of processor time, because its
#: methods are compiled from text; a struct or a plain class takes a tenth of that.
DATACLASSES_MAX = 5
DATACLASSES = """
import sys
print(*[
    f"{name}.{each}"
    for name, module in sys.modules.items() if name.startswith("iris")
    for each, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == name and "__dataclass_fields__" in vars(value)
])
"""


def test_a_connected_node_has_few_dataclasses() -> None:
    command = [sys.executable, "-c", CONNECT + DATACLASSES]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment())
    names = done.stdout.split()
    assert 0 < len(names) <= DATACLASSES_MAX, names
