"""`iris door nats` as a process: a client beside commands, wrong files, SIGHUP and SIGTERM."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest

from iris_py.doors.nats.passwords import hash_token
from tests.integration.test_cli import WAIT_S, Shell, finish, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = f"[users.ann]\ntoken = '{hash_token('t0ken')}'\npublish = ['news.>', '!news.internal']\nsubscribe = ['news.> queue q']\n"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


def test_a_client_and_the_commands_hear_each_other(shell: Shell, tmp_path: Path) -> None:
    process = shell.start("door", "nats", "--at", "127.0.0.1:0", "--json")
    ready = json.loads(read_line(process.stdout))
    assert (ready["kind"], ready["door"], ready["users"]) == ("ready", "nats", [])
    host, port = ready["address"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection, connection.makefile("rwb") as client:
        assert client.readline().startswith(b"INFO {")
        client.write(b'CONNECT {"verbose":false}\r\nSUB news.> 1\r\nPING\r\n')
        client.flush()
        assert client.readline() == b"PONG\r\n"
        assert shell.run("publish", "news.a", "hello")[0] == 0
        assert (client.readline(), client.readline()) == (b"MSG news.a 1 5\r\n", b"hello\r\n")
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 0
        assert client.read() == b""


def test_a_changed_file_counts_after_a_hangup_and_a_wrong_one_does_not(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "door.toml"
    file.write_text(USER)
    process, line = shell.serve("door", "nats", str(file), "--at", "127.0.0.1:0", stdin=subprocess.DEVNULL)
    host, port = line.split("nats://")[1].split(";")[0].rsplit(":", 1)

    def answer(token: str) -> bytes:
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection, connection.makefile("rwb") as client:
            client.readline()
            client.write(b'CONNECT {"verbose":false,"auth_token":"%b"}\r\nPING\r\n' % token.encode())
            client.flush()
            return client.readline()

    assert answer("t0ken") == b"PONG\r\n"
    assert answer("other") == b"-ERR 'Authorization Violation'\r\n"
    file.write_text(USER.replace(hash_token("t0ken"), hash_token("other")))
    process.send_signal(signal.SIGHUP)
    assert "read the settings and secrets again" in read_line(process.stderr)
    assert answer("other") == b"PONG\r\n"
    file.write_text("[users.ann]\ntoken = 7\n")
    process.send_signal(signal.SIGHUP)
    assert "the settings were not changed: door.toml:2" in read_line(process.stderr)
    assert answer("other") == b"PONG\r\n"


def test_a_file_is_checked_without_a_door(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "door.toml"
    file.write_text(USER)
    code, out, _error = shell.run("door", "nats", str(file), "--check")
    assert code == 0
    assert out.decode().splitlines() == [
        "ann:",
        "  publish to news.>",
        "  not publish to news.internal",
        "  subscribe to news.> in the queue group q",
        "1 user; listens at 127.0.0.1:4222",
    ]
    file.write_text("[nats]\nlisten = '0.0.0.0:4222'\n")
    code, _out, error = shell.run("door", "nats", str(file), "--check")
    assert code == 2
    assert "[users.NAME]" in error


def test_the_clients_of_doors_are_listed(shell: Shell, tmp_path: Path) -> None:
    assert "no door runs" in shell.run("door", "clients")[2]
    file = tmp_path / "door.toml"
    file.write_text(USER)
    process = shell.start("door", "nats", str(file), "--at", "127.0.0.1:0", "--json")
    address = json.loads(read_line(process.stdout))["address"]
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection, connection.makefile("rwb") as client:
        options = b'{"verbose":false,"auth_token":"t0ken","name":"shop\\u001b[31m","lang":"go","version":"1.34"}'
        client.write(b"CONNECT %b\r\nSUB news.> q 1\r\nPUB news.a 1\r\nx\r\nPING\r\n" % options)
        client.flush()
        while client.readline() != b"PONG\r\n":
            pass
        code, out, error = shell.run("door", "clients", "--json")
        line, summary = map(json.loads, out.splitlines())
        assert (code, error) == (0, "")
        assert {name: line[name] for name in ("user", "language", "version", "address", "subscriptions", "messages_in")} == {
            "user": "ann",
            "language": "go",
            "version": "1.34",
            "address": "127.0.0.1",
            "subscriptions": 1,
            "messages_in": 1,
        }
        assert (summary["shown"], summary["total"], summary["doors"], summary["silent"]) == (1, 1, 1, 0)
        for door in ("nats", address, line["door"][:8]):
            code, out, _error = shell.run("door", "clients", "--door", door)
            assert code == 0
            assert "go 1.34" in out.decode()
            assert "\x1b" not in out.decode()
        code, out, error = shell.run("door", "clients", "--door", "web")
        assert (code, out) == (3, b"")
        assert "none of the 1 doors is 'web'" in error
