"""The examples run, as a user would run them, and print what they say they print."""

from __future__ import annotations

import hashlib
import json
import os
import re
import select
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from tests import warm
from tests.notes_example import NotesExample
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from http.client import HTTPResponse

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 60
LINES_MAX = 60
SPARK_LINES_MAX = 80  # a session, a cluster and a job


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An isolated network: its own secret and its own remembered peers."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("IRIS_")},
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def run(example: str, environment: dict[str, str], stdin: str = "", complains: str | None = None) -> str:
    """Run an example; returns what it prints.

    Args:
        example: Its file.
        environment: Its environment.
        stdin: Its standard input.
        complains: What its standard error begins with, before the traceback; None if it is empty.
    """
    pipe = subprocess.PIPE
    command = [sys.executable, str(EXAMPLES / example)]
    with warm.Process(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True) as process:
        try:
            out, errors = process.communicate(stdin, timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    said = without_standstills(errors)
    assert bool(said) is (complains is not None), errors
    assert said.startswith(complains or "")
    return str(out)


def test_cache_invalidation(environment: dict[str, str]) -> None:
    lines = run("cache_invalidation.py", environment, stdin="motd\nmotd\n\n").splitlines()

    assert sorted(lines) == ["forget 'motd': gone", "forget 'motd': was not here", "told 1 caches", "told 1 caches"]


def test_service_discovery(environment: dict[str, str]) -> None:
    lines = run("service_discovery.py", environment).splitlines()

    assert sorted(line.split(" at ")[0] for line in lines[:-1]) == ["mail 2.4", "mail 2.5", "print 1.0"]
    assert lines[-1] == "mail is served by 2 of 3 nodes"


def test_sync_request(environment: dict[str, str]) -> None:
    lines = run("sync_request.py", environment).splitlines()

    digests = [hashlib.sha256(name).hexdigest()[:8] for name in (b"ada", b"grace", b"barbara", b"frances")]
    assert [line.split(" by ")[0] for line in lines[:-1]] == [
        f"one: {digests[0]}",
        *(f"many: {digest}" for digest in digests[1:]),
    ]
    assert lines[-1] == "none: nobody"


class Terminal:
    """A terminal in which an example runs."""

    def __init__(self, environment: dict[str, str], example: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / example), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )

    def type(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")

    def read(self) -> str:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        assert readable, "it prints nothing"
        return self.process.stdout.readline().decode().strip()

    def end(self) -> str:
        """Type an empty line, which ends it; return what was printed and not yet read."""
        out, errors = self.process.communicate(b"\n", timeout=TIMEOUT_S)
        assert (self.process.returncode, without_standstills(errors.decode())) == (0, "")
        return out.decode()


def test_hello(environment: dict[str, str]) -> None:
    terminals = [Terminal(environment, "hello.py") for _ in range(2)]
    try:
        first, second = terminals
        greetings = [f"hello ada, this is process {terminal.process.pid}" for terminal in terminals]
        seen = {second.read()}
        while seen != set(greetings):  # the requests go to both
            seen.add(second.read())
        first.process.kill()
        first.process.wait()
        while second.read() != greetings[1]:  # what had been printed before
            pass
        assert [second.read() for _ in range(2)] == [greetings[1]] * 2
        second.process.terminate()
        assert without_standstills(second.process.communicate(timeout=TIMEOUT_S)[1].decode()) == ""
        assert second.process.returncode == 0
    finally:
        for terminal in terminals:
            terminal.process.kill()
            terminal.process.communicate()


def test_chat_room(environment: dict[str, str]) -> None:
    visitors: list[Terminal] = []
    try:
        visitors.append(ada := Terminal(environment, "chat_room.py", "ada"))
        assert ada.read() == "you are in the lobby"
        visitors.append(grace := Terminal(environment, "chat_room.py", "grace", "lobby"))
        assert ada.read() == "[lobby] grace is here"
        assert grace.read() == "you are in the lobby"
        ada.type("hello grace")
        assert grace.read() == "[lobby] ada says: hello grace"
        grace.type("/kitchen")
        assert ada.read() == "[lobby] grace goes"
        assert grace.read() == "you are in the kitchen"
        ada.type("/kitchen")
        assert grace.read() == "[kitchen] ada is here"
        assert ada.read() == "you are in the kitchen"
        grace.type("tea?")
        assert ada.read() == "[kitchen] grace says: tea?"
        assert grace.end() == ""
        assert ada.read() == "[kitchen] grace goes home"
        assert ada.end() == ""
    finally:
        for visitor in visitors:
            visitor.process.kill()
            visitor.process.communicate()


def test_cache_invalidation_reaches_every_process(environment: dict[str, str]) -> None:
    terminals: list[Terminal] = []
    try:
        terminals.append(first := Terminal(environment, "cache_invalidation.py"))
        first.type("motd")
        assert sorted([first.read(), first.read()]) == ["forget 'motd': gone", "told 1 caches"]
        terminals.append(second := Terminal(environment, "cache_invalidation.py"))
        second.type("motd")
        assert first.read() == "forget 'motd': was not here"
        assert sorted([second.read(), second.read()]) == ["forget 'motd': gone", "told 2 caches"]
        assert second.end() == ""
        assert first.end() == ""
    finally:
        for terminal in terminals:
            terminal.process.kill()
            terminal.process.communicate()


def test_every_example_is_short() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    too_long = {name for name, count in lines.items() if count >= (SPARK_LINES_MAX if name.startswith("spark_") else LINES_MAX)}
    assert too_long == set()


def test_file_transfer(environment: dict[str, str]) -> None:
    lines = run("file_transfer.py", environment).splitlines()

    stored = sorted(line.split(":")[0] for line in lines if line.startswith("stored"))
    assert len(stored) == 2
    assert stored[0] == "stored file_transfer.py"
    assert [line.split(": ")[1] for line in lines if line.startswith("sent")] == ["the checksum is right"] * 2


def test_document_sync(environment: dict[str, str]) -> None:
    lines = run("document_sync.py", environment).splitlines()

    assert lines[:2] == ["author: all of us", "text: Hello"]
    assert lines[2] in ("title: Notes", "title: Our notes")
    assert lines[3:] == ["all the same"]


def test_scoring_together(environment: dict[str, str]) -> None:
    lines = run("scoring_together.py", environment, complains="the handler of 'scorers' failed: ValueError").splitlines()

    assert lines[0].startswith("b'144' for 12, and RemoteError(")
    assert "failed with ValueError: 'seven' is no number" in lines[0]
    assert lines[1:] == ["201 requests in fewer than 50 calls: True"]


def test_sealed_payloads(environment: dict[str, str]) -> None:
    lines = run("sealed_payloads.py", environment, complains="the handler of 'vault' failed: SealError").splitlines()

    assert lines == ["the desk reads: all is well", "the relay saw it: False", "without the seal: SealError"]


def test_typed_service(environment: dict[str, str]) -> None:
    lines = run("typed_service.py", environment, complains="the handler of 'shop' failed: DecodeError").splitlines()

    assert lines == ["tea: 5.00", "sold: Receipt(article='tea', total=5.0)", "DecodeError at $.count: True"]


def test_federation_two_clouds(environment: dict[str, str]) -> None:
    lines = run("federation_two_clouds.py", environment).splitlines()

    assert lines == ["b'rows for us'", "databases-v2@eu: NotExported", "databases@asia: CloudUnavailable"]


def test_federation_failover(environment: dict[str, str]) -> None:
    lines = run("federation_failover.py", environment, complains="the cloud link to 'us' at 127.0.0.1 is lost").splitlines()

    assert lines == ["200 answered; exit codes -9 and 0"]


def test_work_queue(environment: dict[str, str]) -> None:
    lines = run("work_queue.py", environment, complains="the handler of 'workers' failed: OSError").splitlines()

    assert lines == ["20 jobs done, 0 of them twice, some retried: True"]


def test_saga(environment: dict[str, str]) -> None:
    lines = run("saga.py", environment, complains="the handler of 'hotel' failed: LookupError").splitlines()

    assert lines == [
        "flight: book order-1",
        "hotel: book order-1",
        "car: book order-1",
        "order-1: booked",
        "order-1: booked",
        "flight: book order-2",
        "order-2: no hotel left for order-2, so it is taken back",
        "flight: cancel order-2",
        "left: 1 flight, 0 hotel, 4 car",
    ]


def read_event(events: HTTPResponse, kind: str) -> dict[str, Any]:
    """Return the next event of a kind from lines of JSON."""
    while True:
        event: dict[str, Any] = json.loads(events.readline())
        if event["kind"] == kind:
            return event


def test_browser_notifications(environment: dict[str, str]) -> None:
    with NotesExample(environment) as example:
        subscribers = {name: example.start(f"{name}.py") for name in ("mail", "monitoring")}
        tokens: dict[str, str] = {}
        cookie = cursor = ""
        for user in ("ann", "bob"):
            with example.ask("/login", {"name": user}) as answer:
                cookie = answer.headers["set-cookie"].partition(";")[0]
            with example.ask("/token", {}, Cookie=cookie) as answer:
                tokens[user] = json.load(answer)["token"]

        def follow(user: str, pattern: str, cursor: str = "") -> HTTPResponse:
            headers = {"Authorization": f"Bearer {tokens[user]}", "Accept": "application/x-ndjson", "Last-Event-ID": cursor}
            return example.ask(f"/iris/v1/topics/events?pattern={pattern}&from=last", None, **headers)

        for user in ("ann", "bob"):
            with follow(user, f"notes.{user}.%3E") as events:
                assert f"of {user} " in read_event(events, "message")["json"]["text"]
                cursor = read_event(events, "message")["id"]
        for pattern in ("notes.ann.%3E", "notes.%3E", "%3E"):
            with pytest.raises(HTTPError, match="403"):
                follow("bob", pattern)
        for path, content in (("/token", {}), ("/notes", None)):
            with pytest.raises(HTTPError, match="401"):
                example.ask(path, content)
        example.stop_app()
        example.start_app()
        with follow("bob", "notes.bob.%3E", cursor) as events:
            assert read_event(events, "gap")["missed"] is None
        with example.ask("/notes", None, Cookie=cookie) as answer:
            numbers = [note["number"] for note in json.load(answer)]
        assert numbers == [*range(numbers[0], numbers[-1] + 1)]
        lines = {name: process.stdout.readline() for name, process in subscribers.items() if process.stdout is not None}
        assert re.fullmatch(r"mail to (ann|bob): order \d+ of \1 is on its way\n", lines["mail"])
        assert re.fullmatch(r"(ann|bob) 1, missed 0\n", lines["monitoring"])


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text() + (Path(__file__).parents[1] / "spark" / "test_example.py").read_text()

    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.name}"' not in tested] == []
