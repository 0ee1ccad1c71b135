"""Clients in C, Go and JavaScript find at doors all that they find at nats-server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from tests.nats.languages import CHECKS, CLIENTS, ENVIRONMENT, built, missing_clients
from tests.nats.places import ROOT, SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LANGUAGES = [language for language in CLIENTS if language not in missing_clients()]
START_S, CHECKS_S = 60.0, 120
SERVERS = {
    "nats-server": [str(SERVER)],
    "door": [sys.executable, "-P", "-m", "tests.nats.stand_in"],
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Start a server; returns its address once it listens."""
    with ExitStack() as stack:

        def begin(kind: str, *arguments: str) -> str:
            port, monitor = free_port(), free_port()
            command = [*SERVERS[kind], "-a", "127.0.0.1", "-p", str(port), "-m", str(monitor), *arguments]
            environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
            process = stack.enter_context(subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL))
            stack.callback(process.kill)
            until = time.monotonic() + START_S
            while True:
                try:
                    with urlopen(f"http://127.0.0.1:{monitor}/varz", timeout=5):
                        return f"nats://127.0.0.1:{port}"
                except OSError:
                    assert process.poll() is None, f"{kind} has ended"
                    assert time.monotonic() < until, f"{kind} does not listen"
                    time.sleep(0.05)

        yield begin


def checks(language: str, *urls: str) -> list[str]:
    """Run the client; return the names of the checks that hold."""
    command = [*built(language), *urls]
    done = subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, timeout=CHECKS_S, text=True)
    assert done.returncode == 0, f"after {done.stdout!r}: {done.stderr}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.timeout(600)
def test_all_checks_hold_at_one_server(language: str, kind: str, start: Callable[..., str]) -> None:
    assert checks(language, start(kind)) == [*CHECKS]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.timeout(600)
def test_all_checks_hold_over_two_doors(language: str, start: Callable[..., str]) -> None:
    together = ("--routes", "nats://127.0.0.1:1", "--cluster_name", "doors")
    assert checks(language, start("door", *together), start("door", *together)) == [*CHECKS]
