"""The application of the web door: operations, rights, problems, origins; with a real node on the simulated network."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py as iris
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import Grant, Rights
from iris_py.doors.settings import DoorSettings, parse_settings
from iris_py.servers.web.app import WebApp
from iris_py.servers.web.topic_streams import TopicStreams
from iris_py.testing import NodeSimulation, run
from tests.unit.iris_py.servers.asgi import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.node import Node

ALL = Rights(request=("*",), survey=("*",), broadcast=("*",), publish=(">",), subscribe=(">",))
GRANTS = {
    "all": Grant("ann", (ALL,)),
    "quotes": Grant("bob", (Rights(request=("quotes",), publish=("notes.{sub}.*",)),)),
    "curious": Grant("eve", (Rights(request=("*",), subscribe=("news.*",), remote_errors=True),)),
    "nothing": Grant("zoe", (Rights(),)),
    "observer": Grant("dashboard", (Rights(observe=True),)),
}
AUTHORIZED = {"Authorization": "Bearer all"}


def verify(token: str) -> Grant:
    if token == "expired":
        raise DoorRefusal("token-expired")
    if token not in GRANTS:
        raise DoorRefusal("token-malformed")
    return GRANTS[token]


class Upper(iris.Handler):
    """Serves a cluster; some payloads fail or never end."""

    def __init__(self) -> None:
        self.broadcasts: list[bytes] = []
        self.cancelled = 0
        self.calls = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self.calls += 1
        if request.payload == b"fail":
            raise ValueError("the text of the failure")
        if request.payload == b"hang":
            await asyncio.sleep(3600)
        return request.payload.upper() + b"".join(str(value).encode() for value in request.headers.values())

    async def on_broadcast(self, message: iris.Message) -> None:
        self.broadcasts.append(message.payload)


class Door:
    """A door over a node, with a member of two clusters at another node."""

    def __init__(self, simulation: NodeSimulation, nodes: list[Node], handler: Upper, settings: DoorSettings) -> None:
        self.simulation = simulation
        self.nodes = nodes
        self.handler = handler
        self.streams = TopicStreams(nodes[0], settings, bytes(32), lambda _config: simulation.start_node())
        self.app = WebApp(nodes[0], settings, self.streams, verify)

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, **rest: Any
    ) -> Answer:
        return await ask(self.app, method, path, body, {**AUTHORIZED, **(headers or {})}, **rest)


def with_door(scenario: Callable[[Door], Awaitable[Any]], text: str = "") -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            nodes = await simulation.start_nodes(2)
            handler = Upper()
            await nodes[1].join("quotes", handler)
            await nodes[1].join("a/b", handler)
            door = Door(simulation, nodes, handler, parse_settings(text, "door.toml"))
            async with door.streams:
                await scenario(door)

    run(main())


def test_a_request_returns_the_reply() -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("POST", "/v1/clusters/quotes/request", b"hello")
        assert (answer.status, answer.content) == (200, b"HELLO")
        assert float(answer.headers["iris-seconds"]) >= 0
        assert answer.headers["cache-control"] == "no-store"
        answer = await door.ask("POST", "/v1/clusters/a%2Fb/request", b"x", {"Iris-Header-Shard": "7"})
        assert answer.content == b"X7"

    with_door(scenario)


def test_a_repeated_request_with_a_key_is_executed_once_for_each_subject() -> None:
    async def scenario(door: Door) -> None:
        for token in ("all", "all", "quotes", "quotes"):
            headers = {"Idempotency-Key": "order-7", "Authorization": f"Bearer {token}"}
            assert (await door.ask("POST", "/v1/clusters/quotes/request", b"x", headers)).content == b"X"
        assert door.handler.calls == 2

    with_door(scenario)


def test_a_broadcast_and_publications_say_how_many_got_them() -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("POST", "/v1/clusters/quotes/broadcast", b"all")
        assert (answer.status, answer.json()) == (202, {"members": 1})
        await door.simulation.until(lambda: door.handler.broadcasts == [b"all"])
        subscription = await door.nodes[1].subscribe("news.>")
        answer = await door.ask("POST", "/v1/topics/news.a", b"1")
        assert (answer.status, answer.json()) == (202, {"nodes": 1, "messages": 1})
        lines = {"Content-Type": "application/x-ndjson; charset=utf-8"}
        answer = await door.ask("POST", "/v1/topics/news.b", b'{"x":1}\n\n"two"\n', lines)
        assert answer.json() == {"nodes": 1, "messages": 2}
        taken = [(message.topic, message.payload) for message in [await anext(subscription) for _ in range(3)]]
        assert taken == [("news.a", b"1"), ("news.b", b'{"x":1}'), ("news.b", b'"two"')]

    with_door(scenario)


def test_a_survey_has_a_line_for_each_reply_and_a_summary() -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("POST", "/v1/clusters/quotes/survey?stop_after=5", b'"now"')
        assert answer.headers["content-type"] == "application/x-ndjson"
        reply, summary = map(msgspec.json.decode, answer.content.splitlines())
        assert reply == {"kind": "reply", "json": "NOW"}
        assert summary["kind"] == "summary"
        assert (summary["members"], summary["replies"], summary["failed"]) == (1, 1, 0)
        answer = await door.ask("POST", "/v1/clusters/quotes/survey", '[\r\n"\u2028",\n1]'.encode())
        reply, summary = map(msgspec.json.decode, answer.content.decode().splitlines())
        assert reply == {"kind": "reply", "json": ["\u2028", 1]}
        answer = await door.ask("POST", "/v1/clusters/quotes/survey?as=base64", b"fail")
        assert msgspec.json.decode(answer.content)["failed"] == 1
        assert (await door.ask("POST", "/v1/clusters/quotes/survey?as=xml")).json()["field"] == "as"
        assert (await door.ask("POST", "/v1/clusters/quotes/survey?stop_after=0")).json()["field"] == "stop_after"
        assert (await door.ask("POST", "/v1/clusters/nobody/survey")).problem == "no-members"

    with_door(scenario)


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "problem", "field"),
    [
        ("POST", "/v1/clusters/nobody/request", b"", {}, "no-members", None),
        ("POST", "/v1/clusters/quotes/request", b"fail", {}, "remote-error", None),
        ("POST", "/v1/clusters/quotes/request", b"hang", {"Iris-Timeout": "0.5"}, "timeout", None),
        ("POST", "/v1/clusters/quotes/request", b"", {"Iris-Timeout": "nan"}, "invalid", "Iris-Timeout"),
        ("POST", "/v1/clusters/quotes/request", b"", {"Iris-Timeout": "61"}, "invalid", "Iris-Timeout"),
        ("POST", "/v1/clusters/quotes/request", b"", {"Iris-If-Full": "maybe"}, "invalid", "Iris-If-Full"),
        ("POST", "/v1/clusters/quotes/request", b"", {"Idempotency-Key": "x" * 300}, "invalid", "Idempotency-Key"),
        # Without these an empty variable of a shell would change the operation.
        ("POST", "/v1/clusters/quotes/request", b"", {"Idempotency-Key": ""}, "invalid", "Idempotency-Key"),
        ("POST", "/v1/clusters/quotes/request", b"", {"Iris-Require": ""}, "invalid", "Iris-Require"),
        ("POST", "/v1/clusters/quotes/request", b"", {"Iris-Timeout": ""}, "invalid", "Iris-Timeout"),
        ("POST", "/v1/clusters/quotes/survey?stop_after=", b"", {}, "invalid", "stop_after"),
        ("POST", "/v1/clusters/iris.gateway/request", b"", {}, "invalid", "name"),
        ("POST", "/v1/clusters/%FF/request", b"", {}, "invalid", "name"),
        ("POST", "/v1/clusters/a%00b/request", b"", {}, "invalid", "name"),
        ("POST", "/v1/clusters/a@/request", b"", {}, "invalid", "name"),
        ("POST", "/v1/topics/a..b", b"", {}, "invalid", "name"),
        ("POST", "/v1/topics/a.*", b"", {}, "invalid", "name"),
        ("POST", "/v1/topics/a", b"{}\n{", {"Content-Type": "application/x-ndjson"}, "invalid", "line 2"),
        ("POST", "/v1/topics/a", b"\n", {"Content-Type": "application/x-ndjson"}, "invalid", "body"),
        pytest.param("POST", "/v1/topics/a", b"x" * 1_048_577, {}, "body-too-large", None, id="large"),
        ("GET", "/v1/topics/a", b"", {}, "unknown-method", "POST"),
        ("POST", "/v1/clusters//request", b"", {}, "unknown-path", None),
        ("POST", "/v2", b"", {}, "unknown-path", None),
        ("POST", "/v1/topics/a", b"", {"Authorization": "Bearer expired"}, "token-expired", None),
        ("POST", "/v1/topics/a", b"", {"Authorization": "Basic all"}, "token-malformed", None),
        ("POST", "/v1/topics/a", b"", {"Authorization": ""}, "no-token", None),
        ("POST", "/v1/topics/a", b"", {"Authorization": "Bearer nothing"}, "forbidden", "publish"),
        ("POST", "/v1/topics/notes.ann.x", b"", {"Authorization": "Bearer quotes"}, "forbidden", "publish"),
        ("POST", "/v1/clusters/quotes/broadcast", b"", {"Authorization": "Bearer quotes"}, "forbidden", "broadcast"),
        ("POST", "/v1/clusters/a%2Fb/request", b"", {"Authorization": "Bearer quotes"}, "forbidden", "request"),
        ("POST", "/v1/topics/a", b"", {"Host": "evil.example"}, "foreign-host", "Host"),
        ("POST", "/v1/topics/a", b"", {"Origin": "https://evil.example"}, "foreign-origin", "Origin"),
        ("OPTIONS", "/v1/topics/a", b"", {"Origin": "https://evil.example"}, "foreign-origin", "Origin"),
    ],
)
def test_each_wrong_request_has_its_problem(
    method: str, path: str, body: bytes, headers: dict[str, str], problem: str, field: str | None
) -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask(method, path, body, headers)
        assert answer.problem == problem
        assert answer.json().get("field") == field
        assert answer.json()["status"] == answer.status
        assert "executed" in answer.json()

    with_door(scenario)


def test_a_handlers_error_is_told_to_who_may_see_it_alone() -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("POST", "/v1/clusters/quotes/request", b"fail")
        assert b"failure" not in answer.content
        answer = await door.ask("POST", "/v1/clusters/quotes/request", b"fail", {"Authorization": "Bearer curious"})
        assert answer.json()["remote_text"] == "the text of the failure"

    with_door(scenario)


def test_a_client_that_leaves_cancels_its_request() -> None:
    async def scenario(door: Door) -> None:
        gone = asyncio.Event()
        asking = asyncio.create_task(door.ask("POST", "/v1/clusters/quotes/request", b"hang", gone=gone))
        await door.simulation.until(lambda: door.handler.calls == 1)
        gone.set()
        assert (await asking).status == 0

    with_door(scenario)


def test_a_client_that_leaves_cancels_its_publication() -> None:
    async def scenario(door: Door) -> None:
        await door.nodes[1].subscribe("full", policy="block", queue_messages=1)
        gone = asyncio.Event()
        asked = [asyncio.create_task(door.ask("POST", "/v1/topics/full", b"x" * 1_000_000, gone=gone)) for _ in range(90)]
        await door.simulation.until(lambda: any(task.done() for task in asked))
        gone.set()
        assert {(await task).status for task in asked} == {0, 202}  # the subscriber takes nothing, so some would wait for ever

    with_door(scenario)


def test_a_topic_may_be_called_events() -> None:
    async def scenario(door: Door) -> None:
        subscription = await door.nodes[1].subscribe("events")
        assert (await door.ask("POST", "/v1/topics/events", b"1")).status == 202
        assert (await anext(subscription)).payload == b"1"
        answer = await door.ask("PUT", "/v1/topics/events", b"1")
        assert (answer.problem, answer.headers["allow"]) == ("unknown-method", "GET, POST")

    with_door(scenario)


def test_too_many_operations_are_refused_for_a_time() -> None:
    async def scenario(door: Door) -> None:
        answers = [await door.ask("POST", "/v1/topics/a", b"") for _ in range(4)]
        assert [answer.status for answer in answers] == [202, 202, 202, 429]
        assert answers[3].problem == "too-many"
        assert int(answers[3].headers["retry-after"]) >= 1
        assert (await door.ask("POST", "/v1/topics/notes.bob.x", b"", {"Authorization": "Bearer quotes"})).status == 202

    with_door(scenario, "[web.limits]\nburst = 3\noperations_per_s = 1")


def test_pages_of_named_origins_may_use_the_door() -> None:
    async def scenario(door: Door) -> None:
        origin = {"Origin": "https://app.example"}
        answer = await door.ask("POST", "/v1/topics/a", b"", origin)
        assert answer.status == 202
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        wanted = {"Access-Control-Request-Headers": "authorization, iris-timeout, x-other"}
        answer = await door.ask("OPTIONS", "/v1/topics/a", b"", {**origin, **wanted})
        assert answer.status == 204
        assert answer.headers["access-control-allow-headers"] == "authorization, iris-timeout"
        answer = await door.ask("POST", "/v1/topics/a", b"", {"Origin": "http://127.0.0.1:7480"})
        assert answer.status == 202
        assert "access-control-allow-origin" not in answer.headers

    with_door(scenario, "[web]\norigins = ['https://app.example']")


def test_a_closing_door_refuses_and_says_so() -> None:
    async def scenario(door: Door) -> None:
        door.app.drain()
        answer = await door.ask("POST", "/v1/topics/a", b"")
        assert (answer.status, answer.problem, answer.json()["executed"]) == (503, "closing", "no")
        assert "retry-after" in answer.headers

    with_door(scenario)


def test_the_interface_is_described_for_everybody() -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("GET", "/v1/openapi.json", b"", {"Authorization": ""})
        described = answer.json()
        assert described["openapi"] == "3.1.0"
        assert set(described["paths"]) >= {"/v1/topics/{name}", "/v1/clusters/{name}/request"}
        assert "503" in described["paths"]["/v1/clusters/{name}/request"]["post"]["responses"]

    with_door(scenario)


def test_a_failure_of_the_door_is_logged_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(door: Door) -> None:
        async def fail(_call: object) -> None:
            raise KeyError("secret detail")

        door.app._operations = {"publish": fail}  # type: ignore[dict-item]
        answer = await door.ask("POST", "/v1/topics/a", b"")
        assert answer.problem == "failed"
        assert b"secret" not in answer.content

    with_door(scenario)
    assert "an operation of a client failed" in caplog.text


async def sign_in(door: Door) -> str:
    """Sign in with a one-time code; return the header with the cookie."""
    code = door.app.sessions.codes.make("observer", asyncio.get_running_loop().time())
    body = msgspec.json.encode({"code": code})
    answer = await door.ask("POST", "/v1/session", body, {"Authorization": "", "Iris-Request": "1"})
    assert answer.status == 204
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=Strict" in answer.headers["set-cookie"]
    again = await door.ask("POST", "/v1/session", body, {"Authorization": "", "Iris-Request": "1"})
    assert again.problem == "token-malformed"
    return answer.headers["set-cookie"].partition(";")[0]


def test_a_code_becomes_a_cookie_once() -> None:
    async def scenario(door: Door) -> None:
        cookie = {"Authorization": "", "Cookie": await sign_in(door)}
        answer = await door.ask("GET", "/v1/session", b"", cookie)
        assert answer.json()["observes"] is True
        assert (await door.ask("POST", "/v1/topics/a", b"", cookie)).problem == "foreign-origin"
        assert (await door.ask("POST", "/v1/topics/a", b"", {**cookie, "Iris-Request": "1"})).problem == "forbidden"
        assert (await door.ask("POST", "/v1/session", b"", {"Authorization": ""})).problem == "foreign-origin"
        answer = await door.ask("DELETE", "/v1/session", b"", {**cookie, "Iris-Request": "1"})
        assert "Max-Age=0" in answer.headers["set-cookie"]

    with_door(scenario)


@pytest.mark.parametrize(
    "page",
    [
        *(
            "overview",
            "clusters",
            "cluster:quotes",
            "topics",
            "topic:x",
            "nodes",
            "node:x",
            "links",
            "ring",
            "clouds",
            "events",
        ),
        *("findings", "door"),
    ],
)
def test_each_page_of_the_dashboard(page: str) -> None:
    async def scenario(door: Door) -> None:
        observer = {"Authorization": "Bearer observer"}
        answer = await door.ask("GET", f"/v1/pages/{page}", b"", observer)
        assert answer.status == 200
        assert answer.json()["head"]["page"] == page
        assert answer.json()["head"]["summary"]["answered"] == 2, "also the node of the door itself"
        if page == "cluster:quotes":
            assert [member["id"] for member in answer.json()["items"]] == [door.nodes[1].id]
        assert (await door.ask("GET", f"/v1/pages/{page}")).problem == "forbidden"
        assert (await door.ask("GET", f"/v1/watch?page={page}")).problem == "forbidden"

    with_door(scenario)


@pytest.mark.parametrize("page", ["", "other", "cluster", "cluster:", "clusters:x"])
def test_there_is_no_other_page(page: str) -> None:
    async def scenario(door: Door) -> None:
        observer = {"Authorization": "Bearer observer"}
        assert (await door.ask("GET", f"/v1/watch?page={page}", b"", observer)).problem == "invalid"
        assert (await door.ask("GET", f"/v1/pages/{page}", b"", observer)).problem == "unknown-path"

    with_door(scenario)


def test_the_files_of_the_dashboard_need_no_token_and_let_nothing_else_in() -> None:
    async def scenario(door: Door) -> None:
        stranger = {"Authorization": ""}
        answer = await door.ask("GET", "/", b"", stranger)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/html")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        tag = answer.headers["etag"]
        assert (await door.ask("GET", "/", b"", {**stranger, "If-None-Match": tag})).status == 304
        for name in ("dashboard.js", "dashboard.css", "uplot.min.js", "icon.svg"):
            assert (await door.ask("GET", f"/static/{name}", b"", stranger)).status == 200
        for name in ("vendored.toml", "..%2Fapp.py", "%2Fetc%2Fpasswd", ""):
            assert (await door.ask("GET", f"/static/{name}", b"", stranger)).problem == "unknown-path"

    with_door(scenario)


async def take_events(door: Door, path: str, count: int, headers: dict[str, str] | None = None) -> list[str]:
    """Return the first events of a stream, as texts."""
    gone = asyncio.Event()
    events: list[str] = []

    def note(content: bytes) -> None:
        events.extend(event for event in content.decode().split("\n\n") if "data:" in event)
        if len(events) >= count:
            gone.set()

    await door.ask("GET", path, b"", headers, gone=gone, note=note)
    return events[:count]


def test_messages_come_as_events_and_the_newest_one_can_be_asked_for() -> None:
    async def scenario(door: Door) -> None:
        taking = asyncio.create_task(take_events(door, "/v1/topics/events?pattern=notes.%3E&pattern=news.*", 2))
        await door.simulation.until(lambda: door.streams.status.streams == 1)
        await door.nodes[1].publish("notes.ann.new", b'{"x": 1}')
        await door.ask("POST", "/v1/topics/news.a", b"two")
        of_door, of_node = sorted(await taking, key=lambda event: "notes" in event)
        assert '"text":"two"' in of_door
        assert '"json":{"x": 1}' in of_node
        assert all("event: message" in event for event in (of_door, of_node))
        await door.simulation.until(lambda: not door.streams.status.streams)
        answer = await door.ask("GET", "/v1/topics/notes.ann.new/last")
        assert answer.json()["topic"] == "notes.ann.new"
        assert (await door.ask("GET", "/v1/topics/notes.bob.new/last")).problem == "no-message"

    with_door(scenario, "[histories]\n'notes.>' = {seconds = 60, last = true}")


@pytest.mark.parametrize(
    ("query", "token", "problem", "field"),
    [
        ("", "all", "invalid", "pattern"),
        ("?pattern=a..b", "all", "invalid", "pattern"),
        ("?pattern=a&as=xml", "all", "invalid", "as"),
        ("?pattern=a&policy=wait", "all", "invalid", "policy"),
        ("?pattern=a&policy=", "all", "invalid", "policy"),
        ("?pattern=a&from=first", "all", "invalid", "from"),
        ("?pattern=a", "nothing", "forbidden", "subscribe"),
        ("?pattern=a@eu", "all", "forbidden", "subscribe"),
    ],
)
def test_wrong_subscriptions_are_refused_before_the_answer_begins(query: str, token: str, problem: str, field: str) -> None:
    async def scenario(door: Door) -> None:
        answer = await door.ask("GET", f"/v1/topics/events{query}", b"", {"Authorization": f"Bearer {token}"})
        assert (answer.problem, answer.json()["field"]) == (problem, field)
        assert door.streams.status.streams == 0

    with_door(scenario)


def test_a_subject_has_a_number_of_event_streams_at_a_time() -> None:
    async def scenario(door: Door) -> None:
        path = "/v1/topics/events?pattern=news.*"
        taking = asyncio.create_task(take_events(door, path, 1))
        await door.simulation.until(lambda: door.streams.status.streams == 1)
        answer = await door.ask("GET", path)
        assert (answer.status, answer.problem) == (429, "too-many")
        other = asyncio.create_task(take_events(door, path, 1, {"Authorization": "Bearer curious"}))
        await door.simulation.until(lambda: door.streams.status.streams == 2)
        await door.nodes[1].publish("news.a", b"1")
        await asyncio.gather(taking, other)
        # Neither a closed stream nor a refused pattern counts.
        assert (await door.ask("GET", "/v1/topics/events?pattern=a..b")).problem == "invalid"
        taking = asyncio.create_task(take_events(door, path, 1))
        await door.simulation.until(lambda: door.streams.status.streams == 1)
        await door.nodes[1].publish("news.a", b"1")
        await taking

    with_door(scenario, "[web.limits]\nconnections_per_subject = 1")
