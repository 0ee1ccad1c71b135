"""A secret that a command prints, in nodes that run: when it is run, and that no event loop waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
import iris_py.sync
from iris_security import Keyring, Secret
from tests.integration.test_cli import Shell, read_line, stop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.integration.conftest import Loops

SECRET, OTHER = (Secret(bytes((number,)) * 32) for number in (1, 2))
#: Says that it runs, and prints the content of a file when it is told to.
GATED = """
import pathlib, sys, time
directory = pathlib.Path(sys.argv[1])
(directory / "began").open("a").write("x")
ends_at = time.monotonic() + 60
while time.monotonic() < ends_at:
    try:
        (directory / "gate").unlink()  # of several that wait it lets one through
        break
    except FileNotFoundError:
        time.sleep(0.005)
else:
    sys.exit("nobody has opened the gate")
print((directory / "secret").read_text())
"""


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET.text)
    return path


def gated(directory: Path) -> list[str]:
    """Return a command that waits until somebody opens its gate."""
    return [sys.executable, "-c", GATED, str(directory)]


def times(directory: Path) -> int:
    """Return how often that has begun."""
    began = directory / "began"
    return len(began.read_text()) if began.exists() else 0


def open_gate(directory: Path) -> None:
    (directory / "gate").touch()


async def let_all_end(loops: Loops, directory: Path, count: int = 2) -> None:
    """Open the gate for commands that nobody waits for any more."""
    gate = directory / "gate"
    for _ in range(count):
        open_gate(directory)
        await loops.until(lambda: not gate.exists())


@contextlib.asynccontextmanager
async def closing(node: iris.Node) -> AsyncIterator[iris.Node]:
    """Close a node that was opened elsewhere."""
    try:
        yield node
    finally:
        await node.close()


def key_ids(*secrets: Secret) -> list[bytes]:
    return [Keyring(secret).primary.key_id for secret in secrets]


def of(node: iris.Node) -> list[bytes]:
    return [keys.key_id for keys in node._runtime.keyring.generations]


def test_the_event_loop_works_while_the_command_runs(loops: Loops, path: Path) -> None:
    command, directory = gated(path.parent), path.parent

    async def main() -> None:
        async with iris.connect(secret=SECRET, discovery=False) as first, first.join("echo", echo):
            opening = asyncio.ensure_future(start(secret_command=command, seeds=[first.address], discovery=False))
            await loops.until(lambda: times(directory) == 1)
            assert await first.request("echo", b"hello") == b"hello"
            assert not opening.done()
            open_gate(directory)
            second = await opening
            async with closing(second):
                assert await second.request("echo", b"hello") == b"hello"
                rotate(path)
                reloading = [second.reload_keys(), second.reload_keys()]
                await loops.until(lambda: times(directory) == 2)
                assert await second.request("echo", b"hello") == b"hello"
                assert of(second) == key_ids(SECRET)
                open_gate(directory)
                await reloading[0]
                assert of(second) == key_ids(SECRET, OTHER)
                await loops.until(lambda: times(directory) == 3)
                assert not reloading[1].done(), "one after the other"
                open_gate(directory)
                await reloading[1]

    loops.run(main())


async def start(**arguments: Any) -> iris.Node:
    return await iris.connect(**arguments)


def rotate(path: Path) -> None:
    path.write_text(f"{SECRET.text}\n{OTHER.text}\n")


def test_a_command_that_fails_starts_no_node_and_changes_no_keys(
    loop: Loops, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = ["cat", str(path)]

    async def main() -> None:
        async with iris.connect(secret_command=command, discovery=False) as node:
            await asyncio.to_thread(path.unlink)
            with pytest.raises(iris.ConfigurationError, match="secret_command: cat ended with exit status 1"):
                await node.reload_keys()
            assert of(node) == key_ids(SECRET)
            with pytest.raises(iris.ConfigurationError, match="secret_command: cat ended with exit status 1"):
                await iris.connect(secret_command=command, discovery=False)
            caplog.clear()
            node.reload_keys()  # as a signal handler does
            await loop.until(lambda: "the secrets were not changed: secret_command: cat ended" in caplog.text)
            await asyncio.to_thread(path.write_text, OTHER.text)
            await node.reload_keys()
            assert of(node) == key_ids(OTHER)
        with pytest.raises(iris.NodeClosed):
            node.reload_keys()

    with caplog.at_level(logging.ERROR):
        loop.run(main())


def test_a_node_that_closes_waits_for_no_command(loop: Loops, path: Path) -> None:
    command, directory = gated(path.parent), path.parent

    async def main() -> None:
        node = asyncio.ensure_future(start(secret_command=command, discovery=False))
        await loop.until(lambda: times(directory) == 1)
        open_gate(directory)
        opened = await node
        async with closing(opened):
            reloading = opened.reload_keys()
            await loop.until(lambda: times(directory) == 2)
        with pytest.raises(iris.NodeClosed):
            await reloading
        abandoned = asyncio.ensure_future(start(secret_command=command, discovery=False))
        await loop.until(lambda: times(directory) == 3)
        abandoned.cancel()
        with pytest.raises(asyncio.CancelledError):
            await abandoned
        await let_all_end(loop, directory)

    loop.run(main())


def test_a_file_is_read_before_reloading_returns(loop: Loops, path: Path) -> None:
    path.chmod(0o600)

    async def main() -> None:
        async with iris.connect(secret_file=path, discovery=False) as node:
            rotate(path)
            assert node.reload_keys().done()
            assert of(node) == key_ids(SECRET, OTHER)

    loop.run(main())


def test_without_await(home: Path, path: Path) -> None:
    with iris_py.sync.connect(secret_command=["cat", str(path)], discovery=False) as node:
        rotate(path)
        node.reload_keys()
        assert of(node._inner) == key_ids(SECRET, OTHER)
        path.unlink()
        with pytest.raises(iris.ConfigurationError, match="secret_command: cat ended with exit status 1"):
            node.reload_keys()


# -- the command line


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


def test_the_command_line_takes_a_command_and_runs_it_again_at_hangup(shell: Shell, path: Path) -> None:
    shell.environment["IRIS_SECRET_COMMAND"] = f"cat '{path}'"
    service, _ = shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    assert shell.run("request", "upper", "hello")[:2] == (0, b"HELLO")
    rotate(path)
    service.send_signal(signal.SIGHUP)
    assert read_line(service.stderr).endswith("Z INFO secrets_read: read the secrets again\n")
    del shell.environment["IRIS_SECRET_COMMAND"]
    assert shell.run("request", "upper", "hello", "--secret-command", f"cat '{path}'")[:2] == (0, b"HELLO")
    code, out, error = shell.run("keys", "list", "--secret-command", f"cat '{path}'")
    assert (code, error) == (0, "")
    assert [line.split()[:2] for line in out.decode().splitlines()] == [
        [key_id.hex(), use] for key_id, use in zip(key_ids(SECRET, OTHER), ("primary", "accepted"), strict=True)
    ]
    path.write_text("nothing")
    service.send_signal(signal.SIGHUP)
    told = read_line(service.stderr)
    assert "Z ERROR secrets_kept: the secrets were not changed: secret_command: the output of cat is not" in told
    assert stop(service)[0] == 0


def test_the_input_of_a_request_is_left_alone(shell: Shell, path: Path) -> None:
    shell.serve("join", "upper", "--exec", "tr a-z A-Z", "--secret-command", f"cat - '{path}'")
    code, out, error = shell.run("request", "upper", "-", "--secret-command", f"cat - '{path}'", stdin=b"from a pipe")
    assert (code, out, error) == (0, b"FROM A PIPE", "")
