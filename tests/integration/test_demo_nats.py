"""`iris demo --nats`: its own check, clients of others at its doors, and the end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop

from iris_py.cli.app import run
from iris_py.cli.demo.nats_client import PlainClient, client_name
from tests.integration.test_demo import WAIT_S, children_of, environment, wait_until_gone
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["environment"]

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "iris_py.cli", "demo", "--nats", "--json", "--members", "2"]
CLAIMS = 4


@pytest.fixture
def demo(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running demo without a terminal."""
    pipe = subprocess.PIPE
    with subprocess.Popen(COMMAND, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment, text=True) as process:
        yield process
        if process.poll() is None:
            process.kill()


@pytest.mark.timeout(180)
def test_a_member_and_a_door_are_killed_and_the_losses_are_told(environment: dict[str, str]) -> None:
    done = subprocess.run([*COMMAND, "--check"], env=environment, capture_output=True, text=True, timeout=180, check=False)
    line = json.loads(done.stdout)
    assert [finding for finding in line["findings"] if not finding["holds"]] == []
    assert (done.returncode, len(line["findings"])) == (0, CLAIMS)
    native = line["native_requests"]
    assert native["native"] + native["nats"] == native["sent"]
    assert min(native["native"], native["nats"]) > 0
    for name in ("to_native", "to_client"):
        messages = line[name]
        assert messages["received"] + messages["lost"] == messages["published"]
        assert messages["repeated"] == 0
    killed = [text for text in done.stderr.splitlines() if "SIGKILL" in text]
    assert [text.split()[0] for text in killed] == ["member", "door"]


def test_other_clients_are_welcome_and_a_signal_ends_the_demo_with_its_counts(demo: subprocess.Popen[str]) -> None:
    assert demo.stdout is not None
    ready = json.loads(demo.stdout.readline())
    processes = [*ready["members"], *(door["process"] for door in ready["doors"])]
    assert sorted(processes) == sorted(children_of(demo.pid))
    for door in ready["doors"]:
        host, port = door["url"].removeprefix("nats://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection, connection.makefile("rwb") as client:
            client.write(b'CONNECT {"verbose":false}\r\nSUB _INBOX.test 1\r\nSUB ticks.> 2\r\nPING\r\n')
            client.write(b"PUB upper _INBOX.test 5\r\nhello\r\n")
            client.flush()
            found: set[bytes] = set()
            while len(found) < 2:
                line = client.readline()
                assert line, "the door has ended"
                if line.startswith(b"MSG"):
                    payload = client.readline().strip()
                    found.add(b"tick" if payload.isdigit() else payload.partition(b" ")[2])
            assert found == {b"tick", b"HELLO"}
    demo.send_signal(signal.SIGTERM)
    out, errors = demo.communicate(timeout=WAIT_S)
    counts = json.loads(out)
    assert (demo.returncode, without_standstills(errors), counts["findings"]) == (0, "", [])
    assert [counts[name]["lost"] for name in ("native_requests", "client_requests", "to_native", "to_client")] == [0, 0, 0, 0]
    assert counts["to_client"]["published"] > 0
    wait_until_gone(processes)


def shape(text: str) -> str:
    """Return a line of the demo with its numbers and the name of its client left out."""
    return re.sub(r"\d[\d,.]*", "0", text.replace(client_name(), "nats-py"))


def test_the_keys_kill_a_door_and_the_output_is_that_of_the_page(environment: dict[str, str]) -> None:
    page = (ROOT / "docs" / "how-to/nats.md").read_text()
    _, *shown = page.partition("$ iris demo --nats\n")[2].partition("```")[0].splitlines()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "iris_py.cli", "demo", "--nats"], environment)
    found = []
    with os.fdopen(terminal, "rb+", buffering=0) as stream, suppress(OSError):  # at its end a terminal has no more input
        while line := stream.readline().decode():
            found.append(line.strip())
            if line.startswith("press k"):
                stream.write(b"d")
            elif "SIGKILL" in line:
                stream.write(b"q")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    ends = tuple(shape(line) for line in found)
    assert [line for line in shown if not any(end.endswith(shape(line)) for end in ends)] == []  # a terminal may echo the key


def test_the_plain_client_takes_another_connection_for_a_broken_one() -> None:
    greeted = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.append(writer)
        writer.write(b"INFO {}\r\nPONG\r\n")
        with suppress(ConnectionError):
            await reader.readuntil(b"PUB")
        writer.transport.abort()

    async def publish_without_pause() -> None:
        server = await asyncio.start_server(greet, "127.0.0.1")
        host, port = server.sockets[0].getsockname()
        client = PlainClient([f"nats://{host}:{port}"], "publisher")
        async with server, asyncio.timeout(WAIT_S):
            while len(greeted) < 3:
                await client.publish("ticks", b"x" * 1000)
                await asyncio.sleep(0)
            await client.close()

    uvloop.run(publish_without_pause())  # its transports raise an error for a write that comes too late


def test_the_demos_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--nats", "--web"]) == 2
    assert "these demos exclude each other" in capsys.readouterr().err
