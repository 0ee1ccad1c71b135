"""Services under `iris serve`: real processes with hooks, typed handlers and consumers, which signals stop and files change."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_cli import WAIT_S, Shell, finish, read_line, stop
from tests.integration.test_serve import ask
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOP = """\
import asyncio
import os
from collections.abc import AsyncIterator

import msgspec

import iris_py as iris
import iris_py.sync
from iris_py.service import Service

service = Service()


def note(text):
    with open("EVENTS", "w") as events:
        events.write(f"{os.getpid()} {text}\\n")


class Find(msgspec.Struct):
    id: int


class User(msgspec.Struct):
    id: int
    process: int


class Pool:
    pass


USERS = iris.Codec(Find, User | None)


@service.on_startup
async def open_pool(node: iris.Node) -> AsyncIterator[Pool]:
    note("opens")
    yield Pool()
    note("closes")


@service.handler("users")
async def find(find: Find, pool: Pool, node: iris.Node) -> User | None:
    await node.publish("found", b"%d" % find.id)
    return User(find.id, os.getpid()) if find.id else None


@service.handler("twice")
def twice(find: Find, node: iris_py.sync.Node) -> list[int]:
    return [node.request("users", find, codec=USERS).id for _ in range(2)]


@service.consumer("found")
def count(message: iris.Message) -> None:
    note(f"found {message.payload.decode()}")


async def alone(find: Find) -> User:
    return User(find.id, os.getpid())


async def unknown(find: Find, pool: Pool) -> User:
    return User(find.id, os.getpid())


class Users(iris.Handler[Find, User]):
    def __init__(self, node: iris.Node) -> None:
        self.node = node

    async def on_request(self, request):
        return User(request.payload.id, len(self.node.id))


class Threads(iris_py.sync.Handler[Find, User]):
    def on_request(self, request):
        return User(request.payload.id, 1)
"""

HANGING = """
@service.on_startup
async def hangs():
    note("hangs")
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        note("is cancelled")
"""

FAILING = """
@service.on_startup
def fails():
    raise ConnectionRefusedError("no database")
"""

LAST = """
@service.on_shutdown
def last():
    note("waits")
    open("GATE").close()
    note("goes on")


@service.handler("slow")
async def slow(request: iris.Request) -> bytes:
    note("is asked")
    await asyncio.to_thread(lambda: open("SLOW").close())
    return b"done"
"""


class Events:
    """A pipe into which processes write lines, each with the number of its process."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR)
        self._rest = b""

    def read(self) -> tuple[int, str]:
        """Wait for a line; return the process that wrote it, and the text."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._descriptor], [], [], WAIT_S)
            assert ready, "nothing came"
            self._rest += os.read(self._descriptor, 65536)
        line, _, self._rest = self._rest.partition(b"\n")
        process, _, text = line.decode().partition(" ")
        return int(process), text

    def texts(self, count: int) -> list[str]:
        """Return the next texts, in the order of the alphabet: several processes write them."""
        return sorted(self.read()[1] for _ in range(count))

    def close(self) -> None:
        """Close it."""
        os.close(self._descriptor)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


@pytest.fixture
def events(tmp_path: Path) -> Iterator[Events]:
    events = Events(tmp_path / "events")
    yield events
    events.close()


def write(project: Path, events: Events, more: str = "") -> None:
    """Write the module, in one step, as those who look whether it changes want it."""
    text = (SHOP + more).replace("EVENTS", str(events.path)).replace("GATE", str(project / "gate"))
    new = project / "shop.new"
    new.write_text(text.replace("SLOW", str(project / "slow")))
    new.replace(project / "shop.py")


def test_workers_run_a_service_each(shell: Shell, tmp_path: Path, events: Events) -> None:
    write(tmp_path, events)
    service = shell.start("serve", "shop:service", "--workers", "2", "--directory", str(tmp_path), "--json")
    ready = [json.loads(read_line(service.stdout)) for _ in range(2)]
    assert len({each["id"] for each in ready}) == 2
    assert all(each["clusters"] == ["users", "twice"] and each["patterns"] == ["found"] for each in ready)
    assert events.texts(2) == ["opens", "opens"]
    code, out, _ = shell.run("request", "users", '{"id": 7}')
    assert (code, json.loads(out)["id"]) == (0, 7)
    assert events.texts(2) == ["found 7", "found 7"], "each worker consumes each message"
    assert shell.run("request", "users", '{"id": 0}') == (0, b"null", "")
    assert events.texts(2) == ["found 0", "found 0"]
    assert shell.run("request", "twice", '{"id": 9}') == (0, b"[9,9]", "")
    assert events.texts(4) == ["found 9"] * 4
    code, _, error = shell.run("request", "users", '{"id": "seven"}')
    assert code == 1
    assert "Expected `int`, got `str` - at `$.id`" in error
    service.send_signal(signal.SIGTERM)
    assert events.texts(2) == ["closes", "closes"]
    code, out, _ = finish(service)
    assert (code, out) == (0, b"")


def test_a_change_starts_the_hooks_of_the_next_worker_before_those_of_the_old_one_end(
    shell: Shell, tmp_path: Path, events: Events
) -> None:
    write(tmp_path, events)
    service = shell.start("serve", "shop:service", "--reload", "--directory", str(tmp_path), "--json")
    read_line(service.stdout)
    old, text = events.read()
    assert text == "opens"
    write(tmp_path, events, FAILING)
    text = ""
    while "keeps running its old code" not in text:
        text += read_line(service.stderr)
    assert "ConnectionRefusedError: no database" in text
    assert "the start-up hook shop.fails failed: ConnectionRefusedError: no database" in text
    assert [events.read()[1], events.read()[1]] == ["opens", "closes"], "of the one that failed"
    assert shell.run("request", "users", '{"id": 0}')[0] == 0
    assert events.read() == (old, "found 0")
    write(tmp_path, events, "\n# changed again\n")
    read_line(service.stdout)
    new, text = events.read()
    assert (new != old, text) == (True, "opens")
    assert events.read() == (old, "closes")
    service.send_signal(signal.SIGTERM)
    assert events.read() == (new, "closes")
    service.communicate(timeout=WAIT_S)
    assert service.returncode == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_signal_cancels_start_up_hooks_and_ends_what_has_begun(
    shell: Shell, tmp_path: Path, events: Events, workers: list[str]
) -> None:
    write(tmp_path, events, HANGING)
    count = len(workers) or 1
    service = shell.start("serve", "shop:service", "--directory", str(tmp_path), "--json", *workers)
    assert events.texts(2 * count) == ["hangs"] * count + ["opens"] * count
    service.send_signal(signal.SIGTERM)
    assert events.texts(2 * count) == ["closes"] * count + ["is cancelled"] * count
    assert finish(service) == (0, b"", "")


def test_the_status_says_which_hook_runs(shell: Shell, tmp_path: Path, events: Events) -> None:
    write(tmp_path, events, HANGING)
    address = f"127.0.0.1:{free_port()}"
    service = shell.start("serve", "shop:service", "--directory", str(tmp_path), "--http", address)
    assert events.texts(2) == ["hangs", "opens"]
    reason = "the start-up hook shop.hangs runs"
    assert ask(address, "/readyz") == (503, {"status": "NOT_SERVING", "reasons": [reason]})
    assert ask(address, "/healthz") == (200, {"status": "SERVING"})
    assert stop(service, signal.SIGINT)[0] == 130


def test_requests_are_answered_before_shut_down_hooks_run(shell: Shell, tmp_path: Path, events: Events) -> None:
    write(tmp_path, events, LAST)
    for name in ("gate", "slow"):
        os.mkfifo(tmp_path / name)
    service = shell.start("serve", "shop:service", "--directory", str(tmp_path), "--json")
    read_line(service.stdout)
    assert events.read()[1] == "opens"
    asking = shell.start("request", "slow", "")
    assert events.read()[1] == "is asked"
    service.send_signal(signal.SIGTERM)
    (tmp_path / "slow").write_text("")  # which waits until it is read
    assert finish(asking) == (0, b"done", "")
    assert events.read()[1] == "waits"
    assert service.poll() is None
    (tmp_path / "gate").write_text("")
    assert [events.read()[1], events.read()[1]] == ["goes on", "closes"]
    assert finish(service)[:2] == (0, b"")


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_a_start_up_hook_that_fails_ends_the_command(shell: Shell, tmp_path: Path, events: Events, workers: list[str]) -> None:
    write(tmp_path, events, FAILING)
    service = shell.start("serve", "shop:service", "--directory", str(tmp_path), *workers)
    out, error = service.communicate(timeout=WAIT_S)
    assert (service.returncode, out) == (1, b"")
    assert b"in fails" in error
    assert b"Z ERROR complaint: the start-up hook shop.fails failed: ConnectionRefusedError: no database" in error


@pytest.mark.parametrize("options", [[], ["--workers", "2"]])
def test_an_unknown_signature_is_refused_before_the_process_connects(
    shell: Shell, tmp_path: Path, events: Events, options: list[str]
) -> None:
    write(tmp_path, events)
    with socket.create_server(("127.0.0.1", 0)) as seed:
        seed.setblocking(False)
        options = [*options, "--seed", f"127.0.0.1:{seed.getsockname()[1]}"]
        code, out, error = finish(shell.start("serve", "shop:unknown", "--directory", str(tmp_path), *options))
        with pytest.raises(BlockingIOError):
            seed.accept()
    assert (code, out) == (2, b"")
    assert "iris: shop.unknown cannot be served: its parameter 'pool' is annotated Pool, and no value for it is known" in error


@pytest.mark.parametrize(
    ("target", "reply"), [("alone", None), ("Users", {"id": 7, "process": 32}), ("Threads", {"id": 7, "process": 1})]
)
def test_annotations_count_for_a_handler_alone(
    shell: Shell, tmp_path: Path, events: Events, target: str, reply: dict[str, int] | None
) -> None:
    write(tmp_path, events)
    service = shell.start("serve", f"shop:{target}", "--cluster", "alone", "--directory", str(tmp_path), "--json")
    ready = json.loads(read_line(service.stdout))
    assert (ready["cluster"], ready["clusters"]) == ("alone", ["alone"])
    code, out, error = shell.run("request", "alone", '{"id": 7}')
    assert (code, error) == (0, "")
    assert json.loads(out) == (reply or {"id": 7, "process": service.pid})
    assert stop(service) == (0, b"", "")


def test_options_of_a_handler_alone_are_refused_for_a_service(shell: Shell, tmp_path: Path, events: Events) -> None:
    write(tmp_path, events)
    for option in (["--cluster", "x"], ["--concurrency", "3"], ["--seal-file", str(tmp_path / "x")]):
        code, _, error = shell.run("serve", "shop:service", "--directory", str(tmp_path), *option)
        assert code == 2
        assert f"service is a service, but {option[0]} is only for a single handler. Set it in the service" in error
