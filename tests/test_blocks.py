"""Every block of code in the documentation is right: it is executed, or at least read as what it says that it is."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import logging
import shlex
import subprocess
import tomllib
import types
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import typer
import yaml

import iris_py as iris
from iris_py.cli.app import make_app
from iris_py.testing import VirtualNetwork, run
from tests.pages import ROOT, Block, all_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS = all_blocks()
#: Blocks that nothing executes and nothing reads. Each says why in a comment before it.
REASONS_MAX = 10
#: Which test executes the programs (with the name of a file in their first line) and the commands of a page.
EXECUTED_IN = {
    "README.md": "tests/integration/test_wheel.py",
    "docs/codecs.md": "tests/integration/test_docs.py",
    "docs/doctor.md": "tests/integration/test_doctor.py",
    "docs/federation.md": "tests/integration/test_docs.py",
    "docs/how-to/debug.md": "tests/integration/test_pages.py",
    "docs/how-to/door.md": "tests/integration/test_door.py",
    "docs/how-to/machines.md": "tests/network/test_machines.py",
    "docs/how-to/nats.md": "tests/integration/test_demo_nats.py",
    "docs/how-to/one-machine.md": "tests/integration/test_pages.py",
    "docs/how-to/retries.md": "tests/integration/test_pages.py",
    "docs/how-to/rotate.md": "tests/integration/test_pages.py",
    "docs/how-to/serve.md": "tests/integration/test_pages.py",
    "docs/how-to/shell.md": "tests/integration/test_pages.py",
    "docs/how-to/streams.md": "tests/integration/test_docs.py",
    "docs/how-to/web.md": "tests/integration/test_pages.py",
    "docs/metrics.md": "tests/integration/test_docs.py",
    "docs/observe.md": "tests/integration/test_pages.py",
    "docs/operations.md": "tests/network/test_operating.py",
    "docs/service.md": "tests/integration/test_docs.py",
    "docs/statistics.md": "tests/integration/test_docs.py",
    "docs/sync.md": "tests/integration/test_docs.py",
    "docs/testing.md": "tests/integration/test_docs.py",
    "docs/tracing.md": "tests/integration/test_docs.py",
    "docs/tutorial.md": "tests/integration/test_pages.py",
}
#: Pages whose other Python is executed below, each block in a network of its own, with `node` and members to ask.
FRAGMENTS_OF = ("docs/patterns.md", "docs/moving.md", "docs/how-to/notify.md", "docs/how-to/debug.md")


def read_python(text: str) -> object:
    return compile(text, "a block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def read_json_lines(text: str) -> object:
    """Read one value, or one in each line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def read_shell(text: str) -> object:
    return subprocess.run(["bash", "-n"], input=text.encode(), check=True)


def read_console(text: str) -> object:
    """Read the commands of a session, which is what follows a prompt."""
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    assert commands, "no line begins with a prompt: $"
    return read_shell("\n".join(commands))


READERS: dict[str, Callable[[str], object]] = {
    "python": read_python,
    "toml": tomllib.loads,
    "json": read_json_lines,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "sh": read_shell,
    "console": read_console,
}


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind in READERS and not block.reason], ids=str)
def test_a_block_is_what_it_says_that_it_is(block: Block) -> None:
    READERS[block.kind](block.text)


def test_few_blocks_are_not_executed_and_each_says_why() -> None:
    left_out = [block for block in BLOCKS if "not executed" in dict(block.notes)]
    assert all(block.reason for block in left_out)
    assert len(left_out) <= REASONS_MAX, "execute some of them: " + ", ".join(map(str, left_out))


def test_whatever_can_be_executed_has_a_test_that_does() -> None:
    runnable = [block for block in BLOCKS if block.kind == "console" or block.file.endswith(".py")]
    pages = {block.page for block in runnable if not block.reason and not block.is_only_read}
    assert pages <= EXECUTED_IN.keys(), "execute them, and say here where"
    for page, test in EXECUTED_IN.items():
        assert page.removeprefix("docs/") in (ROOT / test).read_text(), f"{test} does not name {page}"


def options_of(words: list[str]) -> tuple[set[str], list[str]]:
    """Return the options that a command line may have, and those that it has."""
    command: Any = typer.main.get_command(make_app())
    while words and words[0] in getattr(command, "commands", {}):
        command, *words = command.commands[words[0]], *words[1:]
    assert not hasattr(command, "commands"), f"there is no such command: {words}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return known, [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.is_only_read], ids=str)
def test_commands_that_are_only_read_exist(block: Block) -> None:
    for line in block.text.splitlines():
        words = shlex.split(line.removeprefix("$ ")) if line.startswith("$ iris ") else []
        if words:
            known, given = options_of(words[1:])
            assert set(given) <= known, line


class Everything(iris.Handler):
    """A member that serves whatever the pages ask of it."""

    async def on_request(self, request: iris.Request) -> bytes:
        return b"rows for " + request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        pass

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


#: What the topics of the pages are called, and what is published to them while a block runs.
TOPICS = ("clicks.shop", "news.sport", "orders.eu.new")
PUBLICATIONS = 50
BETWEEN_S = 0.1


@pytest.fixture
def unchanged_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back what a block does to loggers."""
    for name in ("", "iris_py"):
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logger.level)
        monkeypatch.setattr(logger, "handlers", list(logger.handlers))


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.page in FRAGMENTS_OF and block.kind == "python" and not block.file], ids=str
)
def test_a_fragment_runs(block: Block, unchanged_logging: None) -> None:
    """It runs among nodes that are real, under a virtual clock; a loop over a topic is left when no more is published."""
    printed: list[object] = []

    async def publish(node: iris.Node) -> None:
        for _ in range(PUBLICATIONS):
            for topic in TOPICS:
                await node.publish(topic, b"something")
            await asyncio.sleep(BETWEEN_S)

    async def main() -> None:
        async with VirtualNetwork() as network:
            node, member = await network.connect_many(2)
            await member.join("databases", Everything())
            names: dict[str, Any] = {
                "iris": iris,
                "asyncio": asyncio,
                "node": node,
                "print": lambda *words: printed.extend(words),
            }
            code = types.FunctionType(read_python(block.text), names)  # type: ignore[arg-type]
            publishing = asyncio.create_task(publish(member))
            running = asyncio.ensure_future(finish(code()))
            await asyncio.wait([running, publishing], return_when=asyncio.FIRST_COMPLETED)
            is_loop = "async for message in" in block.text or "async for batch in" in block.text
            assert running.done() or is_loop, "it waits for something that does not come"
            publishing.cancel()
            running.cancel()
            await asyncio.wait([running, publishing])
            if not running.cancelled():
                running.result()
            assert printed or "print(" not in block.text

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(main())


async def finish(outcome: object) -> None:
    """Wait for what a block returns, if it awaits anything at its top."""
    if inspect.isawaitable(outcome):
        await outcome
