"""`iris serve`: real processes, which are killed, and whose files change."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_cli import WAIT_S, Shell, finish, read_line, stop
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHOUT = """\
import os
import helper

async def upper(request):
    if request.payload == b"die":
        os._exit(3)
    return helper.change(request.payload)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


@pytest.fixture
def gate(tmp_path: Path, shell: Shell) -> Iterator[Path]:
    """A pipe: who opens it to read waits until the test writes, or has ended."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    yield path
    os.close(os.open(path, os.O_RDWR))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shout.py").write_text(SHOUT)
    change(tmp_path, "upper")
    return tmp_path


def change(project: Path, method: str) -> None:
    new = project / "helper.new"
    new.write_text(f"def change(text):\n    return text.{method}()  # {method}\n")
    new.replace(project / "helper.py")


def wait_for_answer(shell: Shell, answer: bytes) -> None:
    """Ask until those that have answered otherwise have left: they do when the others serve."""
    until_s, said = time.monotonic() + WAIT_S, shell.run("request", "upper", "HeLLo")
    while said != (0, answer, ""):
        assert time.monotonic() < until_s, said
        said = shell.run("request", "upper", "HeLLo")


def ask(address: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=WAIT_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as exc:
        return exc.code, json.loads(exc.read())


def wait_for_health(address: str, path: str, told: tuple[int, Any]) -> None:
    """Ask until this is told. A worker has 0.7 s to say how it is, and a busy machine may need longer for once."""
    until_s = time.monotonic() + WAIT_S
    while (said := ask(address, path)) != told:
        assert time.monotonic() < until_s, said


def test_a_function_is_a_service(shell: Shell, project: Path) -> None:
    service, line = shell.serve("serve", "shout:upper", "--cluster", "loud", "--directory", str(project))
    assert "serves 'loud'" in line
    assert shell.run("request", "loud", "hello") == (0, b"HELLO", "")
    assert stop(service, signal.SIGINT) == (130, b"", "")


def test_a_file_that_changes_starts_the_workers_again(shell: Shell, project: Path) -> None:
    shell.environment.pop("PYTHONPYCACHEPREFIX", None)
    service = shell.start("serve", "shout:upper", "--reload", "--directory", str(project), "--json")
    first = json.loads(read_line(service.stdout))["id"]
    change(project, "lower")
    assert json.loads(read_line(service.stdout))["id"] != first
    code, _, error = stop(service, signal.SIGTERM)
    assert (code, error.count("\n")) == (0, 1)
    assert "helper.py changed; the workers are replaced" in error
    # Python would take it for that of the changed file, for both have the same size, and may be from the same second.
    assert not (project / "__pycache__").exists()


def test_workers_go_on_while_changed_files_do_not_work(shell: Shell, project: Path) -> None:
    service = shell.start("serve", "shout:upper", "--reload", "--directory", str(project), "--json")
    first = json.loads(read_line(service.stdout))["id"]
    change(project, "no such method")
    assert "helper.py changed; the workers are replaced" in read_line(service.stderr)
    text = ""
    while "keeps running its old code" not in text:
        text += read_line(service.stderr)
    assert "SyntaxError" in text
    assert "ended with exit code 2" in text
    assert shell.run("request", "upper", "HeLLo")[1] == b"HELLO"
    change(project, "lower")
    assert json.loads(read_line(service.stdout))["id"] != first
    wait_for_answer(shell, b"hello")
    code, _, error = stop(service, signal.SIGTERM)
    assert (code, error.count("\n")) == (0, 1), "one change, tried once"


def test_a_worker_with_a_port_of_its_own_hands_it_over(shell: Shell, project: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    service = shell.start("serve", "shout:upper", "--reload", "--listen", listen, "--directory", str(project), "--json")
    first = json.loads(read_line(service.stdout))
    change(project, "no such method")
    text = ""
    while "keeps running its old code" not in text:
        text += read_line(service.stderr)
    assert shell.run("request", "upper", "HeLLo")[1] == b"HELLO"
    change(project, "lower")
    second = json.loads(read_line(service.stdout))
    assert (second["address"], first["address"]) == (listen, listen)
    assert second["id"] != first["id"]
    assert stop(service, signal.SIGTERM)[0] == 0


def test_one_address_tells_how_all_workers_are(shell: Shell, project: Path, gate: Path) -> None:
    (project / "shout.py").write_text(
        f"import os\nopen({str(gate)!r}).close()\ndef upper(request):\n    return str(os.getpid()).encode()\n"
    )
    service = shell.start("serve", "shout:upper", "--workers", "1", "--http", "0", "--directory", str(project), "--json")
    line = read_line(service.stderr)
    assert "metrics and health of all workers at http://127.0.0.1:" in line
    address = line.rstrip().rpartition("/")[2]
    assert ask(address, "/readyz") == (503, {"status": "NOT_SERVING", "reasons": ["worker 1: it is starting"]})
    assert ask(address, "/healthz") == (200, {"status": "SERVING"})
    gate.write_text("")  # which waits until it is read
    assert json.loads(read_line(service.stdout))["http"] == address
    wait_for_health(address, "/readyz", (200, {"status": "SERVING"}))  # it says to its shell that it serves first
    wait_for_health(address, "/readyz?cluster=upper", (200, {"status": "SERVING"}))
    unknown = {"status": "SERVICE_UNKNOWN", "reasons": ["worker 1: this node does not serve 'lower'"]}
    wait_for_health(address, "/readyz?cluster=lower", (503, unknown))
    pid = int(shell.run("request", "upper", "")[1])
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as response:
        metrics = response.read().decode()
    assert 'iris_worker_up{worker="1"} 1.0' in metrics
    assert 'iris_worker_ends_total{worker="1"} 0.0' in metrics
    assert 'iris_handled_total{cluster="upper",worker="1"} 1.0' in metrics
    os.kill(pid, signal.SIGSTOP)
    assert ask(address, "/readyz")[1]["reasons"] == ["worker 1: it has reported nothing for 0.7 s"]
    assert ask(address, "/healthz") == (503, {"status": "NOT_SERVING", "reasons": ["no event loop runs in the worker"]})
    os.kill(pid, signal.SIGCONT)
    wait_for_health(address, "/readyz", (200, {"status": "SERVING"}))
    code, out, errors = stop(service, signal.SIGTERM)
    assert (code, out) == (0, b"")
    assert all("the event loop stood still" in line for line in errors.splitlines()), errors


COUNTING = """
import prometheus_client

ASKED = prometheus_client.Counter("asked", "Questions.", ["worker"])
ROOM = prometheus_client.Gauge("room", "What is left.")

def upper(request):
    ASKED.labels("here").inc()
    ROOM.set(float("inf"))
    return request.payload.upper()
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_service_counts_itself_is_shown_beside_what_its_node_counts(shell: Shell, project: Path, workers: int) -> None:
    (project / "shout.py").write_text(COUNTING)
    options = ["--workers", str(workers)] if workers else []
    service = shell.start("serve", "shout:upper", *options, "--http", "0", "--directory", str(project), "--json")
    (address,) = {json.loads(read_line(service.stdout))["http"] for _ in range(workers or 1)}
    assert shell.run("request", "upper", "hello") == (0, b"HELLO", "")
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=WAIT_S) as response:
        lines = response.read().decode().splitlines()
    asked = [line for line in lines if line.startswith("asked_total")]
    if workers:
        assert len(asked) == 1
        assert re.fullmatch(r'asked_total\{exported_worker="here",worker="[12]"\} 1.0', asked[0])
        assert len([line for line in lines if line.startswith("process_open_fds{")]) == workers
    else:
        assert asked == ['asked_total{worker="here"} 1.0']
        assert "room +Inf" in lines
    assert lines.count("# TYPE asked_total counter") == 1
    assert not [line for line in lines if "_created" in line]
    assert any(line.startswith("iris_handled_total") for line in lines)
    assert stop(service, signal.SIGTERM)[0] == 0


@pytest.mark.long
def test_workers_are_started_again_when_they_end_and_when_files_change(shell: Shell, project: Path) -> None:
    options = ["serve", "shout:upper", "--workers", "2", "--reload", "--directory", str(project), "--json"]
    service = shell.start(*options)
    first = {json.loads(read_line(service.stdout))["id"] for _ in range(2)}
    assert len(first) == 2
    assert shell.run("request", "upper", "die")[0] == 1
    line = read_line(service.stderr)
    assert "ended with exit code 3; the next one starts in 0.5 s" in line
    third = json.loads(read_line(service.stdout))["id"]
    assert third not in first
    change(project, "lower")
    assert "helper.py changed" in read_line(service.stderr)
    second = {json.loads(read_line(service.stdout))["id"] for _ in range(2)}
    assert not second & {*first, third}
    wait_for_answer(shell, b"hello")
    change(project, "no such method")
    assert "helper.py changed" in read_line(service.stderr)
    text = ""
    while "keeps running its old code" not in text:
        text += read_line(service.stderr)
    assert text.count("changed files") == 1, "of the same files the other worker is not tried"
    assert shell.run("request", "upper", "die")[0] == 1
    while "a change of a file starts it again" not in text:
        text += read_line(service.stderr)
    change(project, "title")
    assert "helper.py changed" in read_line(service.stderr)
    for _ in range(2):
        read_line(service.stdout)
    wait_for_answer(shell, b"Hello")
    assert stop(service, signal.SIGTERM) == (0, b"", "")
    assert shell.run("members", "upper")[0] == 3


def test_workers_leave_when_their_supervisor_is_killed(shell: Shell, project: Path) -> None:
    service = shell.start("serve", "shout:upper", "--workers", "1", "--directory", str(project), "--json")
    read_line(service.stdout)
    service.kill()
    service.wait()
    assert service.stdout is not None
    assert service.stdout.read() == b""  # whose end the worker holds as long as it lives
    assert shell.run("members", "upper")[0] == 3


def test_a_worker_whose_import_never_ends_ends_with_its_supervisor(shell: Shell, project: Path, gate: Path) -> None:
    (project / "shout.py").write_text(f"open({str(gate)!r}).read()\n")
    service = shell.start("serve", "shout:upper", "--workers", "1", "--directory", str(project), "--json")
    held = os.open(gate, os.O_WRONLY)  # when it is being imported
    try:
        service.kill()
        service.wait()
        assert service.stdout is not None
        assert service.stdout.read() == b""
    finally:
        os.close(held)


def test_a_killed_worker_is_reported(shell: Shell, project: Path) -> None:
    (project / "shout.py").write_text("import os\ndef upper(request):\n    return str(os.getpid()).encode()\n")
    service = shell.start("serve", "shout:upper", "--workers", "1", "--directory", str(project), "--json")
    read_line(service.stdout)
    os.kill(int(shell.run("request", "upper", "")[1]), signal.SIGKILL)
    assert "was ended by SIGKILL; the next one starts in 0.5 s" in read_line(service.stderr)
    read_line(service.stdout)
    assert stop(service, signal.SIGINT) == (130, b"", "")


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]])
def test_what_cannot_start_says_why(shell: Shell, project: Path, workers: list[str]) -> None:
    code, out, error = finish(shell.start("serve", "shout:lower", "--directory", str(project), *workers))
    assert (code, out) == (2, b"")
    assert "iris: shout has no 'lower'. Use one of: upper." in error


def test_workers_have_ports_of_their_own(shell: Shell, project: Path) -> None:
    code, _, error = shell.run("serve", "shout:upper", "--workers", "2", "--listen", "127.0.0.1:7400")
    assert (code, error.count("\n")) == (2, 1)
    assert "2 workers cannot listen on one port" in error
