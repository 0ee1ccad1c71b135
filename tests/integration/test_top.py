"""The full screen of `iris top` at a network of real nodes, and in real processes at terminals of their own."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import iris_py
from iris_py.cli.network import QueryOptions
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings
from iris_py.cli.top import command
from iris_py.cli.top.app import TopApp
from iris_py.cli.top.sheets import RowOrder, TablePlace
from iris_py.defaults import NODES_SAMPLED
from iris_py.doors.settings import parse_settings
from iris_py.servers.nats.door import open_nats_door
from tests.integration.conftest import PATIENCE_S, until
from tests.integration.test_cli import WAIT_S, Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NETWORK = "top"
#: What no program draws.
END = b"<end of the test>"


async def answer(request: iris_py.Request) -> bytes:
    return request.payload


def test_the_screen_shows_real_nodes_and_marks_one_that_leaves(home: Path) -> None:
    async def look() -> None:
        async with (
            iris_py.connect(network=NETWORK, zone="eu/a") as first,
            first.join("echo", answer, concurrency=3),
            first.subscribe("news.>"),
            iris_py.connect(network=NETWORK) as own,
        ):
            leaving = await iris_py.connect(network=NETWORK, zone="eu/b")
            await leaving.join("echo", answer)
            for _number in range(20):
                await own.request("echo", b"")
            app = TopApp(
                own.ask_nodes,
                network=NETWORK,
                start=TablePlace("clusters"),
                order=RowOrder("req/s"),
                sample=NODES_SAMPLED,
                interval_s=0.25,
                timeout_s=0.5,  # for the node that leaves
            )
            async with app.run_test() as pilot:
                await until(lambda: app.table.keys == ["echo"])
                app.action_show("nodes")
                await until(lambda: set(app.table.keys) == {first.id, leaving.id})
                app.action_show("topics")
                await until(lambda: "news.>" in app.table.keys)
                app.action_show("links")
                await until(lambda: f"{first.id} {own.id}" in app.table.keys)
                app.action_show("events")
                await until(lambda: any(each.kind == "joined" and each.name == "echo" for each in app.gathering.events))
                app.action_show("nodes")
                app.table.move_cursor(row=app.table.keys.index(first.id))
                app.table.action_select_cursor()
                await until(lambda: "clusters.echo.service.concurrency" in app.table.keys)
                app.action_show("nodes")
                await leaving.close()
                await until(lambda: _state_of(app, leaving.id) in ("SILENT", "GONE"))
                # A busy machine may be late with an answer, and then the next one shows it.
                await until(lambda: _state_of(app, first.id).endswith(" s"))
                await pilot.pause(0)
            assert app.failure is None

    asyncio.run(look())


def _state_of(app: TopApp, node: str) -> str:
    return str(app.table.get_row(node)[-1]).strip()


def test_once_may_be_of_one_cluster_or_of_one_node(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual: dict[str, Any] = {
        "sort": "name",
        "is_once": True,
        "query": QueryOptions(),
        "limit": 40,
        "as_json": False,
    }

    async def look() -> None:
        settings = Settings({"network": NETWORK})
        async with (
            iris_py.connect(network=NETWORK, clusters={"hidden": iris_py.Secret(b"h" * 32)}) as first,
            iris_py.connect(network=NETWORK) as second,
            first.join("one", answer),
            second.join("two", answer),
        ):
            assert await command.top(settings, cluster="one", node=None, **usual) == ExitCode.OK
            *_totals, line = capsys.readouterr().out.splitlines()
            assert line.startswith("one ")
            assert await command.top(settings, cluster=None, node=second.id[:10], **usual) == ExitCode.OK
            totals, _more, line = capsys.readouterr().out.splitlines()
            assert totals.startswith("1 of 1 nodes")
            assert line.startswith("two ")
            assert await command.top(settings, cluster="nobody", node=None, **usual) == ExitCode.NO_MEMBERS
            assert "no node that answered serves or uses 'nobody'" in capsys.readouterr().err

    asyncio.run(look())


def test_once_shows_the_doors_with_their_rates(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usual: dict[str, Any] = {"sort": "name", "cluster": None, "is_once": True, "limit": 40}

    async def look() -> None:
        settings = Settings({"network": NETWORK})
        async with (
            iris_py.connect(network=NETWORK) as node,
            open_nats_door(node, parse_settings('[nats]\nlisten = "127.0.0.1:0"\n', "door.toml")) as door,
            iris_py.connect(network=NETWORK) as other,
        ):
            query = QueryOptions(interval_s=0.25)
            assert await command.top(settings, node=None, query=query, as_json=False, **usual) == ExitCode.OK
            assert f"doors:  nats at {door.address}: 0 clients, 0/s in, 0/s out\n" in capsys.readouterr().out
            for target, count in ((door.node.id, 1), (other.id, 0)):
                assert await command.top(settings, node=target, query=query, as_json=True, **usual) == ExitCode.OK
                lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
                doors = [line for line in lines if line["kind"] == "door"]
                assert [(line["node"], line["address"]) for line in doors] == [(door.node.id, door.address)][:count]
            query = QueryOptions(interval_s=0.0)
            assert await command.top(settings, node=None, query=query, as_json=False, **usual) == ExitCode.OK
            assert f"doors:  nats at {door.address}: 0 clients\n" in capsys.readouterr().out
            await door.close(timeout=0.1)

    asyncio.run(look())


# -- real processes


@dataclass
class Terminal:
    """A terminal, of which the process at its other end is the session."""

    master: int
    slave: int
    before: list[Any]  # how it was set before there was a process
    process: subprocess.Popen[bytes]
    shown: bytes = b""

    def read_until(self, wanted: bytes) -> None:
        """Wait until something was drawn after the last thing that was waited for."""
        until_s = time.monotonic() + PATIENCE_S
        while wanted not in self.shown:
            assert time.monotonic() < until_s, self.shown[-2000:]
            if select.select([self.master], [], [], 1.0)[0]:
                self.shown += os.read(self.master, 1 << 16)
        self.shown = self.shown.partition(wanted)[2]

    def read_to_end(self) -> bytes:
        """Read what is drawn until the process has ended: a terminal may pass on its last words later, and before ours."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 1 << 16)
        os.write(self.slave, END)
        while END not in self.shown:
            assert select.select([self.master], [], [], PATIENCE_S)[0], self.shown[-2000:]
            self.shown += os.read(self.master, 1 << 16)
        return self.shown.partition(END)[0]

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminals:
    """Starts `iris` at terminals."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._open: list[Terminal] = []

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> Terminal:
        master, slave = os.openpty()
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        before = termios.tcgetattr(slave)

        def take_terminal() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)

        process = subprocess.Popen(
            [sys.executable, "-m", "iris_py.cli", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=take_terminal,
            env=self._shell.environment | {"TERM": "xterm-256color"} | (environment or {}),
        )
        terminal = Terminal(master, slave, before, process)
        self._open.append(terminal)
        return terminal

    def end(self) -> None:
        for terminal in self._open:
            if terminal.process.poll() is None:
                terminal.process.kill()
            terminal.process.wait()
            for descriptor in (terminal.master, terminal.slave):
                try:
                    os.close(descriptor)
                except OSError:
                    pass


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


@pytest.fixture
def terminals(shell: Shell) -> Iterator[Terminals]:
    terminals = Terminals(shell)
    yield terminals
    terminals.end()


def test_a_terminal_is_drawn_on_resized_and_given_back(terminals: Terminals) -> None:
    # Programs that read lines set these for what they start, and nobody changes them later.
    terminal = terminals.start("top", "--interval", "0.25", environment={"COLUMNS": "80", "LINES": "24"})
    terminal.read_until(b"Start one with")
    assert termios.tcgetattr(terminal.slave) != terminal.before
    terminal.resize(40, 120)
    terminal.read_until(b"\x1b[40;1H")
    os.write(terminal.master, b"\x03")
    end = terminal.read_to_end()
    assert terminal.process.returncode == ExitCode.INTERRUPTED
    assert termios.tcgetattr(terminal.slave) == terminal.before
    assert b"\x1b[?1049l" in end
    assert b"\x1b[?25h" in end
    assert b"Traceback" not in end


@pytest.mark.long  # a process of its own for each
def test_a_terminal_is_given_back_by_sigterm_and_has_no_colours_where_none_are_wanted(
    shell: Shell, terminals: Terminals
) -> None:
    shell.serve("join", "upper", "--exec", "cat")
    terminal = terminals.start("top", "--cluster", "upper", environment={"NO_COLOR": "1"})
    terminal.read_until(b"Members of upper")
    terminal.process.terminate()
    end = terminal.read_to_end()
    assert terminal.process.returncode == 128 + signal.SIGTERM
    assert termios.tcgetattr(terminal.slave) == terminal.before
    assert b"\x1b[?1049l" in end
    assert not re.search(rb"\x1b\[[0-9;]*\b(3[0-7]|4[0-7]|38|48)[0-9;]*m", end)


@pytest.mark.long
def test_a_terminal_that_is_closed_ends_the_screen(terminals: Terminals) -> None:
    terminal = terminals.start("top", "--interval", "0.25")
    terminal.read_until(b"Start one with")
    os.close(terminal.slave)
    os.close(terminal.master)
    assert terminal.process.wait(WAIT_S) == 128 + signal.SIGHUP
