"""`iris door web` as a process: the commands of docs/how-to/door.md, wrong files, SIGHUP, SIGTERM with a request under way."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_cli import WAIT_S, Shell, finish, read_line
from tests.integration.test_pages import sessions_of
from tests.pages import ROOT, blocks_of
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = "how-to/door.md"
#: The port of the page, in place of which a test has a free one.
PORT = 7480


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    shell.environment["PATH"] = f"{Path(sys.executable).parent}:{shell.environment['PATH']}"
    shell.environment["PYTHONPATH"] = str(ROOT)
    yield shell
    shell.end()


def bash(shell: Shell, command: str, directory: Path) -> str:
    """Run a command line to its end, and return its output."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=directory, env=shell.environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def curl(shell: Shell, directory: Path, *arguments: str) -> tuple[int, str]:
    """Ask the door; return the status and the content."""
    command = ["curl", "--silent", "--write-out", "\n%{http_code}", *arguments]
    done = subprocess.run(command, cwd=directory, env=shell.environment, capture_output=True, text=True, timeout=60, check=True)
    content, _, status = done.stdout.rpartition("\n")
    return int(status), content


def wait_for(file: Path) -> None:
    """Wait until a process has made a file."""
    deadline = time.monotonic() + WAIT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} was not made"
        time.sleep(0.01)


def test_the_commands_of_the_page(shell: Shell, tmp_path: Path) -> None:
    port = free_port()
    for block in blocks_of(ROOT / "docs" / PAGE):
        if block.file.endswith(".toml"):
            (tmp_path / block.file).write_text(block.text.replace(f":{PORT}", f":{port}"))
        if block.kind != "console" or block.is_only_read:
            continue
        for command, expected in sessions_of(block.text.replace(f":{PORT}", f":{port}")):
            if command.startswith("pip "):
                continue
            if command.endswith("&"):
                words = shlex.split(command.removesuffix("&"))[1:]
                shell.serve(*words, *(["--at", f"127.0.0.1:{port}"] if words[0] == "door" else []))
            elif assigned := re.fullmatch(r"(\w+)=\$\((.*)\)", command):
                shell.environment[assigned[1]] = bash(shell, assigned[2], tmp_path).strip()
            else:
                found = bash(shell, command, tmp_path)
                assert found.strip() == expected.strip(), command


def test_a_door_tells_where_it_is_and_ends_cleanly(shell: Shell, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shell.serve("join", "slow", "--exec", f"sh -c 'touch {begun}; sleep 1; tr a-z A-Z'")
    process = shell.start("door", "web", "--at", "127.0.0.1:0", "--json")
    ready = json.loads(read_line(process.stdout))
    assert ready["kind"] == "ready"
    token = bash(shell, "iris token new --request slow", tmp_path).strip()
    address = f"{ready['url']}/v1/clusters/slow/request"
    with subprocess.Popen(
        ["curl", "--silent", "-H", f"Authorization: Bearer {token}", "--data", "late", address],
        stdout=subprocess.PIPE,
        env=shell.environment,
    ) as asking:
        wait_for(begun)
        process.send_signal(signal.SIGTERM)
        assert finish(process)[0] == 0
        out, _ = asking.communicate(timeout=60)
    assert out == b"LATE"
    assert subprocess.run(["curl", "--silent", ready["url"]], check=False).returncode == 7  # nobody listens


def test_a_changed_file_counts_after_a_hangup_and_a_wrong_one_does_not(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "door.toml"
    file.write_text("[roles.viewer]\npublish = ['news.*']\n")
    process, line = shell.serve("door", "web", str(file), "--at", "127.0.0.1:0", stdin=subprocess.DEVNULL)
    url = line.split(" at ")[1].split(";")[0]
    read_line(process.stderr)  # the link of the dashboard
    token = bash(shell, "iris token new --sub ann --role viewer", tmp_path).strip()

    def publish(topic: str) -> tuple[int, str]:
        return curl(shell, tmp_path, "-H", f"Authorization: Bearer {token}", "--data", "x", f"{url}/v1/topics/{topic}")

    assert publish("news.a")[0] == 202
    assert publish("sports.a")[0] == 403
    file.write_text("[roles.viewer]\npublish = ['sports.*']\n")
    process.send_signal(signal.SIGHUP)
    assert "read the settings and secrets again" in read_line(process.stderr)
    assert publish("news.a")[0] == 403
    assert publish("sports.a")[0] == 202
    file.write_text("[roles.viewer]\npublish = 7\n")
    process.send_signal(signal.SIGHUP)
    assert "the settings were not changed: door.toml:2" in read_line(process.stderr)
    assert publish("sports.a")[0] == 202
    file.write_text("")
    process.send_signal(signal.SIGHUP)
    assert "read the settings" in read_line(process.stderr)
    status, content = publish("sports.a")
    assert (status, json.loads(content)["type"]) == (401, "/v1/problems/token-unknown-role")


def test_open_streams_and_limits_follow_the_file(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "door.toml"
    role = "[roles.viewer]\nsubscribe = ['news.*']\npublish = ['news.*']\n"
    file.write_text(f"{role}[histories]\n'news.*' = {{seconds = 60}}\n")
    process, line = shell.serve("door", "web", str(file), "--at", "127.0.0.1:0", stdin=subprocess.DEVNULL)
    url = line.split(" at ")[1].split(";")[0]
    read_line(process.stderr)  # the link of the dashboard
    token = bash(shell, "iris token new --sub ann --role viewer", tmp_path).strip()
    content = tmp_path / "content"
    content.write_bytes(b"x" * 2048)

    def publish() -> int:
        given = ("-H", f"Authorization: Bearer {token}", "--data-binary", f"@{content}", f"{url}/v1/topics/news.a")
        return curl(shell, tmp_path, *given)[0]

    def reload(text: str) -> str:
        file.write_text(text)
        process.send_signal(signal.SIGHUP)
        return read_line(process.stderr)

    def follow() -> subprocess.Popen[bytes]:
        command = ["curl", "--silent", "--no-buffer", "-H", f"Authorization: Bearer {token}"]
        address = f"{url}/v1/topics/events?pattern=news.b"
        found = subprocess.Popen([*command, address], stdout=subprocess.PIPE, env=shell.environment)
        assert read_line(found.stdout)
        return found

    def last_event(found: subprocess.Popen[bytes]) -> str:
        out, _ = found.communicate(timeout=WAIT_S)
        return out.decode().rpartition("data: ")[2]

    narrowed = follow()
    assert publish() == 202
    assert "read the settings" in reload(f"{role}[histories]\n'news.*' = {{seconds = 9}}\n[web.limits]\nbody_bytes = 1024\n")
    assert publish() == 413
    assert "restart of the door" in reload(f"{role}[histories]\n'news.>' = {{seconds = 9}}\n")
    assert publish() == 413
    assert narrowed.poll() is None
    histories = "[histories]\n'news.*' = {}\n"
    assert "read the settings" in reload(role.replace("subscribe = ['news.*']", "subscribe = ['news.a']") + histories)
    assert '"reason":"forbidden"' in last_event(narrowed)
    assert publish() == 202
    assert "read the settings" in reload(role + histories)
    gone = follow()
    assert "read the settings" in reload(histories)
    assert '"reason":"token-unknown-role"' in last_event(gone)


def test_a_token_is_revoked_at_all_doors_and_at_those_that_start_later(shell: Shell, tmp_path: Path) -> None:
    urls = []
    for _ in range(2):
        process = shell.start("door", "web", "--at", "127.0.0.1:0", "--json")
        urls.append(json.loads(read_line(process.stdout))["url"])
    rights = "--publish news.a --subscribe news.a --observe"
    token, other = (bash(shell, f"iris token new --sub {name} {rights}", tmp_path).strip() for name in ("ann", "bob"))

    def status(url: str, shown: str = token) -> tuple[int, str]:
        code, content = curl(shell, tmp_path, "-H", f"Authorization: Bearer {shown}", "--data", "x", f"{url}/v1/topics/news.a")
        return code, json.loads(content).get("type", "")

    assert [status(url)[0] for url in urls] == [202, 202]
    following = [
        subprocess.Popen(
            ["curl", "--silent", "--no-buffer", "-H", f"Authorization: Bearer {token}", f"{url}{path}"],
            stdout=subprocess.PIPE,
            env=shell.environment,
        )
        for url in urls
        for path in ("/v1/topics/events?pattern=news.a", "/v1/watch?page=overview")
    ]
    for each in following:
        assert read_line(each.stdout)
    code, out, error = shell.run("token", "revoke", "-", stdin=token.encode())
    assert (code, error) == (0, "")
    lines = out.decode().splitlines()
    assert [line.split(" (node ")[0] for line in sorted(lines[:2])] == [f"web door {url}" for url in sorted(urls)]
    assert all(line.endswith("): revoked") for line in lines[:2])
    assert lines[2].startswith("2 doors confirmed; the revocation ends at ")
    for each in following:
        content, _ = each.communicate(timeout=WAIT_S)
        assert each.returncode == 0
        assert b"closing" not in content or b'"reason":"token-revoked"' in content
    assert [status(url) for url in urls] == [(401, "/v1/problems/token-revoked")] * 2
    assert [status(url, other)[0] for url in urls] == [202, 202]
    late = shell.start("door", "web", "--at", "127.0.0.1:0", "--json")
    urls.append(json.loads(read_line(late.stdout))["url"])
    assert status(urls[2]) == (401, "/v1/problems/token-revoked")
    code, out, _error = shell.run("token", "revoke", "--subject", "bob", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {line["address"] for line in found[:3]} == set(urls)
    assert {line["outcome"] for line in found[:3]} == {"added"}
    assert (found[3]["confirmed"], found[3]["refused"], found[3]["silent"], found[3]["silent_nodes"]) == (3, 0, 0, [])
    assert [status(url, other) for url in urls] == [(401, "/v1/problems/token-revoked")] * 3


def test_a_revocation_outlives_the_last_door(shell: Shell, tmp_path: Path) -> None:
    def start() -> tuple[subprocess.Popen[bytes], str]:
        process = shell.start("door", "web", "--at", "127.0.0.1:0", "--json")
        return process, json.loads(read_line(process.stdout))["url"]

    def status(shown: str) -> int:
        return curl(shell, tmp_path, "-H", f"Authorization: Bearer {shown}", f"{url}/v1/session")[0]

    process, url = start()
    token, other = (bash(shell, f"iris token new --sub {name} --observe", tmp_path).strip() for name in ("ann", "bob"))
    assert shell.run("token", "revoke", "--subject", "ann")[0] == 0
    process.kill()
    finish(process)
    process, url = start()
    assert (status(token), status(other)) == (401, 200)


def test_without_a_door_or_a_secret_nothing_is_revoked(shell: Shell) -> None:
    code, out, error = shell.run("token", "revoke", "--all-before", "now")
    assert (code, out) == (2, b"")
    assert "this user has no network secret yet" in error
    shell.serve("join", "upper", "--exec", "cat")
    code, out, error = shell.run("token", "revoke", "--all-before", "now")
    assert (code, out) == (3, b"")
    assert "no door runs in the network" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("[web]\nlisten = 7\n", [], "door.toml:2"),
        ("[web]\nlisten = '0.0.0.0:7480'\n", [], "lacks certificate_file and key_file"),
        ("[web]\nlisten = '0.0.0.0:7480'\nbehind_proxy = '10.0.0.0/8'\n", [], "a table [roles.NAME]"),
        ("", ["--at", "0.0.0.0:0"], "lacks certificate_file"),
        ("", ["--at", "here"], "--at 'here' is not host:port"),
    ],
)
def test_a_door_that_would_be_open_to_strangers_does_not_start(
    shell: Shell, tmp_path: Path, text: str, arguments: list[str], words: str
) -> None:
    file = tmp_path / "door.toml"
    file.write_text(text)
    code, _out, error = shell.run("door", "web", str(file), *arguments)
    assert code == 2
    assert words in error


def test_a_port_that_is_taken_is_told(shell: Shell) -> None:
    _process, line = shell.serve("door", "web", "--at", "127.0.0.1:0")
    address = line.split("http://")[1].split(";")[0]
    code, _out, error = shell.run("door", "web", "--at", address)
    assert code == 2
    assert "another program" in error


def test_a_token_of_another_user_is_of_another_network(shell: Shell, tmp_path: Path) -> None:
    _process, line = shell.serve("door", "web", "--at", "127.0.0.1:0")
    url = line.split(" at ")[1].split(";")[0]
    other = Shell(tmp_path / "other")
    code, out, _error = other.run("token", "new", "--publish", "a")
    assert code == 0
    token = out.decode().strip()
    status, content = curl(shell, tmp_path, "-H", f"Authorization: Bearer {token}", "--data", "x", f"{url}/v1/topics/a")
    assert status == 401
    assert json.loads(content)["type"] in ("/v1/problems/token-unknown-key", "/v1/problems/token-of-other-network")


def test_a_door_serves_its_metrics_with_a_token_and_at_the_address_of_its_operator(shell: Shell, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    _process, line = shell.serve("door", "web", "--at", "127.0.0.1:0", "--http", address)
    door = line.split("http://")[1].split(";")[0]
    token = bash(shell, "iris token new --observe", tmp_path).strip()
    for place in (door, address):
        for path in ("healthz", "readyz"):
            status, content = curl(shell, tmp_path, f"http://{place}/{path}")
            assert (status, json.loads(content)) == (200, {"status": "SERVING"})
    assert curl(shell, tmp_path, f"http://{door}/metrics")[0] == 401
    authorized = ("--header", f"Authorization: Bearer {token}")
    for status, content in (
        curl(shell, tmp_path, f"http://{door}/metrics", *authorized),
        curl(shell, tmp_path, f"http://{address}/metrics"),
    ):
        assert status == 200
        assert 'iris_door_connections{kind="web"} ' in content
        assert 'iris_door_problems_total{kind="web",problem="no-token"} 1.0' in content
        assert "\niris_uptime_seconds " in content


def test_an_observer_lets_a_door_examine_its_network(shell: Shell, tmp_path: Path) -> None:
    shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    _process, line = shell.serve("door", "web", "--at", "127.0.0.1:0")
    url = "http://" + line.split("http://")[1].split(";")[0]
    token = bash(shell, "iris token new --observe", tmp_path).strip()
    authorized = ("--header", f"Authorization: Bearer {token}")
    status, content = curl(shell, tmp_path, *authorized, "--request", "POST", f"{url}/v1/findings")
    assert (status, json.loads(content)["state"]) == (202, "running")
    assert curl(shell, tmp_path, *authorized, "--request", "POST", f"{url}/v1/findings")[0] == 429
    deadline = time.monotonic() + WAIT_S
    page = json.loads(content)
    while page["state"] == "running":
        assert time.monotonic() < deadline, page
        page = json.loads(curl(shell, tmp_path, *authorized, f"{url}/v1/pages/findings")[1])
    assert page["state"] == "done"
    found = {item["cluster"] or item["check"]: (item["status"], item["cause"]) for item in page["items"]}
    assert len(found) == page["steps"]
    assert found["ring"] == ("ok", "one ring of 3 nodes")
    assert found["upper"][0] == "ok"
    assert not [cause for _status, cause in found.values() if "check itself failed" in cause]
