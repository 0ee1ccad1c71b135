"""The status of processes over HTTP: what balancers, supervisors and Prometheus are told while a service comes and goes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

import iris_py
from iris_py.cli.json_log import JsonFormatter
from iris_py.metrics import serve_status
from iris_py.metrics.status import StatusServer
from tests import warm
from tests.standstills import read_line, without_standstills

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 60.0
HERE = "127.0.0.1:0"


@pytest.fixture
def start(home: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `iris` with some arguments, in a network of this test alone."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "iris_py.cli", *arguments]
        process = warm.Process(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def ask(address: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as exc:
        return exc.code, json.loads(exc.read())


def test_a_service_says_that_it_serves_and_that_it_leaves_until_it_has_left(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    service = start("join", "work", "--exec", f"cat {pipe}", "--http", "0", "--json")
    assert service.stdout is not None
    address = json.loads(service.stdout.readline())["http"]
    assert address.startswith("127.0.0.1:"), "a port alone is one of loopback"
    assert ask(address, "/readyz") == ask(address, "/readyz?cluster=work") == (200, {"status": "SERVING"})
    assert ask(address, "/readyz?cluster=play") == (
        503,
        {"status": "SERVICE_UNKNOWN", "reasons": ["this node does not serve 'play'"]},
    )
    caller = start("request", "work", "", "--timeout", "60")
    with pipe.open("w") as writer:  # which waits until the command reads
        service.send_signal(signal.SIGTERM)
        while (answer := ask(address, "/readyz")) == (200, {"status": "SERVING"}):
            pass
        assert answer == (503, {"status": "NOT_SERVING", "reasons": ["it is leaving 'work'"]})
        assert ask(address, "/healthz") == (200, {"status": "SERVING"}), "a supervisor leaves it alone"
        writer.write("done")
    assert caller.communicate(timeout=PATIENCE_S)[0] == "done"
    assert service.wait(PATIENCE_S) == 0
    with pytest.raises(urllib.error.URLError):
        ask(address, "/healthz")


@pytest.mark.parametrize(
    ("address", "words"), [("nowhere", "the address for metrics and health 'nowhere'"), ("192.0.2.1:80", "Choose another")]
)
def test_where_nothing_can_be_served_nothing_is_started(
    start: Callable[..., subprocess.Popen[str]], address: str, words: str
) -> None:
    out, error = start("node", "--http", address).communicate(timeout=PATIENCE_S)
    assert out == ""
    assert words in error
    assert error.count("\n") == 1


def test_a_program_shows_its_own_metrics_beside_those_of_the_node_until_that_has_ended(home: Path) -> None:
    async def main() -> None:
        registry = CollectorRegistry()
        Counter("orders", "Orders.", registry=registry).inc(3)
        async with iris_py.connect(listen=HERE, discovery=False) as node:
            server = await serve_status(node, HERE, registry=registry)
            text = (await server._metrics()).decode()
            samples = {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}
            assert samples["orders_total"] == 3
            with pytest.raises(iris_py.ConfigurationError, match="Choose another address"):
                await serve_status(node, server.address)
            address = server.address
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address.split(":"))
        with pytest.raises(iris_py.NodeClosed):
            await serve_status(node, HERE)

    iris_py.run(main())


def test_before_there_is_a_node_the_process_lives_and_is_not_ready() -> None:
    server = StatusServer()
    assert server.health().reasons == ("the node is starting",)


@pytest.mark.parametrize("missing", ["prometheus_client", "h11"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "iris_py.net.http", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(iris_py.ConfigurationError, match=rf"needs {missing}\. Run: pip install"):
        StatusServer()


def test_every_line_of_a_command_is_an_object_if_that_is_wanted(start: Callable[..., subprocess.Popen[str]]) -> None:
    service = start("node", "--seed", "127.0.0.1:1", "--no-discovery", "--log-json")
    assert service.stderr is not None
    shown = [json.loads(read_line(service.stderr)) for _ in range(2)]
    service.send_signal(signal.SIGTERM)
    shown += [json.loads(line) for line in service.communicate(timeout=PATIENCE_S)[1].splitlines()]
    assert all(line["kind"] == "log" and line["time"].endswith("+00:00") for line in shown)
    told = {line["event"]: line for line in shown}
    assert told["seed_unreached"]["seed"] == "127.0.0.1:1"
    assert told["seed_unreached"]["level"] == "warning"
    assert "Ctrl-C ends it" in told["running"]["message"]
    _, error = start("request", "nobody", "x", "--no-discovery", "--log-json").communicate(timeout=PATIENCE_S)
    assert [(line["event"], line["level"]) for line in map(json.loads, without_standstills(error).splitlines())] == [
        ("complaint", "error")
    ]


def test_what_a_stranger_says_does_not_take_the_place_of_what_the_line_says() -> None:
    record = logging.makeLogRecord(
        {"name": "iris_py", "msg": "it\nfailed", "levelname": "ERROR", "iris": {"event": "x", "level": "info", "kind": "ready"}}
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    said = json.loads(line)
    assert (said["kind"], said["level"], said["event"], said["message"]) == ("log", "error", "x", "it\nfailed")
