"""Tests of the servers of peers: found, started on a free port of this machine alone, and gone afterwards."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.harness import BenchmarkFailed
from benchmarks.peers.servers import Broker, find_server

if TYPE_CHECKING:
    from pathlib import Path

LISTENS = """
import socket, sys
listening = socket.create_server((sys.argv[sys.argv.index("--bind") + 1], int(sys.argv[sys.argv.index("--port") + 1])))
while True:
    listening.accept()
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
    path = folder / "redis-server"
    path.write_text(f"#!{sys.executable}\n{program}")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return path


def test_a_server_runs_as_long_as_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = install(tmp_path, monkeypatch, LISTENS)
    assert find_server("redis-server") == path
    with Broker("redis-server", tmp_path) as broker:
        socket.create_connection(("127.0.0.1", broker.port)).close()
        pid = broker.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "import sys; sys.exit('out of luck')")
    with pytest.raises(BenchmarkFailed, match="redis-server did not start:\nout of luck"):
        Broker("redis-server", tmp_path)


def test_a_server_that_nobody_has_is_not_found() -> None:
    assert find_server("no-such-server") is None
