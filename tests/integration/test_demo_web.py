"""`iris demo --web` without a browser: the page and its door, the keys at a terminal, and the end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from iris_py.cli.app import run
from tests.integration.test_demo import WAIT_S, children_of, environment, wait_until_gone
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

__all__ = ["environment"]

COMMAND = [sys.executable, "-m", "iris_py.cli", "demo", "--web"]


@pytest.fixture
def demo(environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A running demo without a terminal."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, "--json"], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment, text=True
    ) as process:
        yield process
        if process.poll() is None:
            process.kill()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def ask(url: str, cookie: str = "", body: bytes | None = None) -> HTTPResponse:
    headers = {"Iris-Request": "1", "Content-Type": "application/json"} | ({"Cookie": cookie} if cookie else {})
    answer: HTTPResponse = urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=WAIT_S)
    return answer


def test_the_link_opens_the_page_and_its_cookie_has_the_rights_of_the_page_alone(demo: subprocess.Popen[str]) -> None:
    line = ready(demo)
    url, _, code = line["url"].partition("#code=")
    assert sorted(line["members"]) == sorted(children_of(demo.pid))
    with ask(url) as page:
        assert "require-trusted-types-for 'script'" in page.headers["content-security-policy"]
        content = page.read().decode()
    for name in re.findall(r'(?:href|src)="([^"]+)"', content):
        if not name.startswith("#"):
            with ask(url + name) as asset:
                assert asset.status == 200
    with pytest.raises(HTTPError, match="404"):
        ask(f"{url}static/other.js")
    door = f"{url}iris/v1"
    with ask(f"{door}/session", body=json.dumps({"code": code}).encode()) as answer:
        cookie = answer.headers["set-cookie"].partition(";")[0]
    with ask(f"{door}/clusters/quotes/request", cookie, b"IRIS") as answer:
        quote = json.load(answer)
    assert quote["symbol"] == "IRIS"
    assert quote["process"] in line["members"]
    with ask(f"{door}/topics/events?pattern=news.prices.%3E&pattern=chat.room&from=last", cookie) as events:
        while not (text := events.readline()).startswith(b"data: "):
            pass
    assert set(json.loads(text[6:])["json"]) == {"price", "change"}
    with ask(f"{door}/pages/overview", cookie) as answer:
        assert answer.status == 200
    for path in ("clusters/other/request", "topics/news.prices.IRIS"):
        with pytest.raises(HTTPError, match="403"):
            ask(f"{door}/{path}", cookie, b"x")
    with pytest.raises(HTTPError, match="401"):
        ask(f"{door}/session", body=json.dumps({"code": code}).encode())


def test_a_signal_ends_the_demo_and_leaves_nothing(demo: subprocess.Popen[str]) -> None:
    members = ready(demo)["members"]
    demo.send_signal(signal.SIGTERM)
    out, errors = demo.communicate(timeout=WAIT_S)
    assert (demo.returncode, out, without_standstills(errors)) == (0, "", "")
    wait_until_gone(members)


def test_the_keys_kill_a_member_and_end_the_demo(environment: dict[str, str]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, COMMAND, environment)
    with os.fdopen(terminal, "rb+", buffering=0) as stream:

        def read_until(text: bytes) -> bytes:
            line = b""
            while text not in line:
                line = stream.readline()
                assert line, "the demo has ended"
            return line

        assert b"/#code=" in read_until(b"open this link")
        read_until(b"press k to kill")
        members = children_of(pid)
        stream.write(b"xk")  # other keys do nothing
        killed = re.search(rb"killed at work \(SIGKILL to process (\d+)\)", read_until(b"killed at work"))
        assert killed is not None
        wait_until_gone([int(killed[1])])
        stream.write(b"kq")
        read_until(b"its successor comes first")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert int(killed[1]) in members
    wait_until_gone(members)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--web", "--spark"], "these demos exclude each other"),
        (["--check"], "'--check': it needs --web or --nats"),
    ],
)
def test_wrong_options(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_check_without_playwright_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "playwright.async_api", None)
    sys.modules.pop("iris_py.cli.demo.web_check", None)
    assert run(["demo", "--web", "--check"]) == 2
    assert "`iris demo --web --check` needs playwright" in capsys.readouterr().err
