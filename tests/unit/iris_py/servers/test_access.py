"""Access to the operations of the web door: every operation with every right, token, origin and host. Default deny."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from iris_py.doors.rights import Rights
from iris_py.doors.settings import parse_settings
from iris_py.servers.tokens import TokenVerifier, make_token
from iris_py.servers.web.app import WebApp
from iris_py.servers.web.dashboard.findings_page import Examinations
from iris_py.servers.web.paths import PATHS
from iris_security import Keyring, Secret
from tests.unit.iris_py.servers.asgi import Answer, ask
from tests.unit.iris_py.servers.test_app import with_door

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from iris_security import NetworkKeys
    from tests.unit.iris_py.servers.test_app import Door

KEYRING = Keyring(Secret(bytes(range(32))), network="lab")
ID = "0123456789abcdef" * 2
SUBJECT = "ann"
LISTEN = "127.0.0.1:7480"
#: The rights, each with a value that allows everything of its kind.
EVERYTHING: Mapping[str, Any] = {
    "request": ("*",),
    "survey": ("*",),
    "broadcast": ("*",),
    "publish": (">",),
    "subscribe": (">",),
    "observe": True,
    "remote_errors": True,
}
#: The same rights for other names than those of the table below.
ELSEWHERE: Mapping[str, Any] = {
    "request": ("other", "quotes@eu"),
    "survey": ("other", "quotes@eu"),
    "broadcast": ("other", "quotes@eu"),
    "publish": ("other.>", "notes.*@eu", "notes.{sub}.x"),
    "subscribe": ("other.>", "notes.*@eu", "notes.{sub}.x"),
}
#: Needed by no operation, but by a field of answers.
OF_FIELDS = {"remote_errors"}


class Access(NamedTuple):
    """An operation, as a client asks for it."""

    path: str
    right: str
    """The right that allows the operation; empty if each token does."""
    body: bytes = b""


ACCESS: Mapping[str, Access] = {
    "request": Access("/v1/clusters/quotes/request", "request", b"x"),
    "broadcast": Access("/v1/clusters/quotes/broadcast", "broadcast", b"x"),
    "survey": Access("/v1/clusters/quotes/survey", "survey", b"x"),
    "publish": Access("/v1/topics/notes.new", "publish", b"x"),
    "events": Access("/v1/topics/events?pattern=notes.*", "subscribe"),
    "last": Access("/v1/topics/notes.kept/last", "subscribe"),
    "watch": Access("/v1/watch?page=overview", "observe"),
    "page": Access("/v1/pages/overview", "observe"),
    "session": Access("/v1/session", ""),
    "metrics": Access("/metrics", "observe"),
    "examine": Access("/v1/findings", "observe"),
}
#: Operations without a token.
PUBLIC: Mapping[str, str] = {
    "sign-in": "/v1/session",
    "sign-out": "/v1/session",
    "openapi": "/v1/openapi.json",
    "healthz": "/healthz",
    "readyz": "/readyz",
    "dashboard": "/",
    "asset": "/static/icon.svg",
}
METHODS = {spec.operation: spec.method for spec in PATHS}
PATH_OF = {**{name: each.path for name, each in ACCESS.items()}, **PUBLIC}
EVIL = "https://evil.example"
SETTINGS = f"""
[web]
listen = '{LISTEN}'
origins = ['https://app.example']
[web.limits]
operations_per_s = 100000
burst = 100000
[roles.all]
request = ['*']
survey = ['*']
broadcast = ['*']
publish = ['>']
subscribe = ['>']
observe = true
[roles.nothing]
[histories]
'notes.*' = {{seconds = 60, last = true}}
"""


#: The clusters of each examination of the network that a client has begun.
EXAMINED: list[Sequence[str]] = []


@pytest.fixture(autouse=True)
def no_examinations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let examinations begin, and do nothing."""
    EXAMINED.clear()
    monkeypatch.setattr(Examinations, "begin", lambda _self, clusters: EXAMINED.append(clusters))


class Client:
    """A client of a door that verifies real tokens."""

    def __init__(self, door: Door) -> None:
        settings = parse_settings(SETTINGS, "door.toml")
        verifier = TokenVerifier(lambda: KEYRING, settings.roles)
        self.door = door
        self.app = WebApp(door.nodes[0], settings, door.streams, lambda token: verifier.verify(token, time.time()))

    async def do(
        self, operation: str, headers: Mapping[str, str], *, body: bytes | None = None, path: str = "", method: str = ""
    ) -> Answer:
        """Ask for an operation, and leave after the first part of an answer without an end."""
        gone = asyncio.Event()
        own = ACCESS[operation].body if operation in ACCESS else b""
        return await ask(
            self.app,
            method or METHODS[operation],
            path or PATH_OF[operation],
            own if body is None else body,
            headers,
            gone=gone,
            note=lambda _content: gone.set(),
        )

    async def allowed(self, operation: str, token: str) -> bool:
        """Ask for an operation with a token. A refusal names the missing right."""
        answer = await self.do(operation, bearer(token))
        if answer.status < 300:
            return True
        assert (answer.status, answer.problem) == (403, "forbidden"), operation
        assert answer.json()["field"] == ACCESS[operation].right
        return False

    def executed(self) -> int:
        """Return how often a client had an effect."""
        handler = self.door.handler
        return handler.calls + len(handler.broadcasts) + self.door.streams.status.history_messages + len(EXAMINED)


def with_client(scenario: Callable[[Client], Awaitable[Any]]) -> None:
    async def main(door: Door) -> None:
        client = Client(door)
        await client.door.nodes[1].publish("notes.kept", b"1")
        await door.simulation.until(lambda: door.streams.status.history_messages == 1)
        await scenario(client)

    with_door(main, SETTINGS)


def token_of(keys: NetworkKeys = KEYRING.primary, *, role: str = "", **rights: Any) -> str:
    """Return a valid token."""
    return make_token(
        keys,
        subject=SUBJECT,
        lifetime_s=60,
        role=role,
        rights=None if role and not rights else Rights(**rights),
        now=time.time(),
        token_id=ID,
    )


def signed(header: Mapping[str, object], key: bytes, digest: str = "sha256", **claims: object) -> str:
    """Return a token made by hand."""
    said = {"sub": SUBJECT, "exp": int(time.time()) + 60, "aud": "lab", "jti": ID, "role": "all"} | claims
    parts = [json.dumps({"alg": "HS256", "kid": KEYRING.primary.key_id.hex(), **header}), json.dumps(said)]
    text = ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)
    signature = hmac.digest(key, text.encode(), digest) if key else b""
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def cookie(token: str) -> dict[str, str]:
    return {"Cookie": f"iris-token={token}"}


def test_the_table_has_every_path_and_every_right() -> None:
    assert {*ACCESS, *PUBLIC} == {spec.operation for spec in PATHS}
    assert {spec.operation for spec in PATHS if spec.is_public} == set(PUBLIC)
    assert set(EVERYTHING) == set(Rights.__struct_fields__)
    assert {each.right for each in ACCESS.values()} == {*EVERYTHING, ""} - OF_FIELDS


@pytest.mark.parametrize("operation", ACCESS)
def test_an_operation_needs_its_right_and_no_other(operation: str) -> None:
    needed = ACCESS[operation].right

    async def scenario(client: Client) -> None:
        for right in EVERYTHING:
            others = {name: value for name, value in EVERYTHING.items() if name != right}
            assert await client.allowed(operation, token_of(**others)) is (right != needed), right
        for right, value in EVERYTHING.items():
            assert await client.allowed(operation, token_of(**{right: value})) is (needed in ("", right)), right
        assert await client.allowed(operation, token_of(**EVERYTHING))

    with_client(scenario)


@pytest.mark.parametrize("operation", [name for name, each in ACCESS.items() if each.right])
def test_what_no_rule_allows_is_refused_and_not_executed(operation: str) -> None:
    async def scenario(client: Client) -> None:
        before = client.executed()
        assert not await client.allowed(operation, token_of())
        assert not await client.allowed(operation, token_of(role="nothing"))
        # A role and rules of its own: both have to allow.
        assert not await client.allowed(operation, token_of(role="nothing", **EVERYTHING))
        assert not await client.allowed(operation, token_of(role="all", remote_errors=True))
        assert not await client.allowed(operation, token_of(**ELSEWHERE))
        assert client.executed() == before
        assert client.door.streams.status.streams == 0
        assert await client.allowed(operation, token_of(role="all"))

    with_client(scenario)


def wrong_tokens() -> list[tuple[str, str]]:
    """Return invalid tokens, all with a role that allows every operation."""
    own = KEYRING.primary
    other = Keyring(Secret(b"o" * 32), network="lab").primary
    elsewhere = Keyring(Secret(bytes(range(32))), network="eu").primary
    public = own.key_id  # what everybody knows of the key
    return [
        ("", "no-token"),
        (signed({}, own.door_key, exp=int(time.time()) - 1), "token-expired"),
        (signed({}, own.door_key, nbf=int(time.time()) + 3600), "token-not-yet-valid"),
        (signed({}, own.door_key, exp=int(time.time()) + 10**6), "token-not-yet-valid"),
        (token_of(other, role="all"), "token-unknown-key"),
        (token_of(elsewhere, role="all"), "token-of-other-network"),
        (signed({}, other.door_key), "token-bad-signature"),
        (signed({}, own.door_key, aud="eu"), "token-of-other-network"),
        (signed({}, own.door_key, role="root"), "token-unknown-role"),
        (signed({"alg": "none"}, b""), "token-malformed"),
        (signed({"alg": "none"}, own.door_key), "token-malformed"),
        (signed({"alg": "NONE"}, b"x"), "token-malformed"),
        (signed({"alg": "HS512"}, own.door_key), "token-malformed"),
        # A public text taken for the key of HMAC
        (signed({"alg": "RS256"}, public), "token-malformed"),
        (signed({"alg": "ES256"}, public), "token-malformed"),
        (signed({}, public), "token-bad-signature"),
        (signed({}, public.hex().encode()), "token-bad-signature"),
        (signed({}, b"\0"), "token-bad-signature"),
        (signed({"jwk": {"kty": "oct", "k": "eA"}}, b"x"), "token-malformed"),
        (signed({"jku": EVIL}, b"x"), "token-malformed"),
        (signed({"kid": "/dev/null"}, b""), "token-malformed"),
        (signed({}, own.door_key)[:-1], "token-malformed"),
        ("x", "token-malformed"),
        ("x" * 10_000, "token-malformed"),
    ]


@pytest.mark.parametrize("operation", ACCESS)
def test_a_wrong_token_is_refused_in_the_header_and_in_the_cookie(operation: str) -> None:
    async def scenario(client: Client) -> None:
        before = client.executed()
        for token, problem in wrong_tokens():
            for headers in (bearer(token), {**cookie(token), "Iris-Request": "1"}):
                answer = await client.do(operation, headers)
                assert (answer.status, answer.problem) == (401, problem), token[:80]
                assert answer.headers["www-authenticate"] == "Bearer"
        # A token elsewhere than in the header and the cookie is none: it would stand in logs of proxies.
        token = token_of(**EVERYTHING)
        mark = "&" if "?" in PATH_OF[operation] else "?"
        for name in ("access_token", "token", "authorization"):
            answer = await client.do(operation, {}, path=f"{PATH_OF[operation]}{mark}{name}={token}")
            assert answer.problem == "no-token"
        for headers in ({"Authorization": f"Basic {token}"}, {"Authorization": token}):
            assert (await client.do(operation, headers)).problem == "token-malformed"
        assert client.executed() == before

    with_client(scenario)


def foreign_requests(token: str) -> Sequence[tuple[str, Mapping[str, str]]]:
    """Return the ways of a foreign page to send a request with the cookie of the user: a method, empty for that of the
    operation, and headers."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    plain = {"Content-Type": "text/plain;charset=UTF-8"}
    return [
        ("", {**cookie(token), "Origin": EVIL}),
        ("", {**bearer(token), "Origin": EVIL}),
        ("", {**cookie(token), "Origin": EVIL, "Iris-Request": "1"}),
        ("", {**cookie(token), "Origin": "null"}),
        ("", {**cookie(token), "Origin": "http://127.0.0.1:9999"}),
        ("", {**cookie(token), "Origin": f"https://{LISTEN}"}),
        ("", {**cookie(token), "Origin": f"http://{LISTEN}.evil.example"}),
        ("", {**cookie(token), "Origin": "https://app.example.evil.example"}),
        ("", {**cookie(token), "Origin": "https://APP.example"}),
        ("", {**cookie(token), **form, "Origin": EVIL}),
        ("", {**cookie(token), **plain, "Origin": EVIL}),
        ("", {**cookie(token), "Accept": "text/event-stream", "Origin": EVIL}),
        ("POST", {**cookie(token), **form, "Origin": EVIL}),
        (
            "OPTIONS",
            {"Origin": EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "iris-request"},
        ),
    ]


@pytest.mark.parametrize("operation", PATH_OF)
def test_a_page_of_a_foreign_origin_gets_nothing(operation: str) -> None:
    async def scenario(client: Client) -> None:
        before = client.executed()
        for method, headers in foreign_requests(token_of(**EVERYTHING)):
            answer = await client.do(operation, headers, method=method)
            assert (answer.status, answer.problem) == (403, "foreign-origin"), headers
            assert not [name for name in answer.headers if name.startswith("access-control-")]
            assert "set-cookie" not in answer.headers
        assert client.executed() == before
        assert client.door.streams.status.streams == 0

    with_client(scenario)


@pytest.mark.parametrize("operation", [name for name in PATH_OF if METHODS[name] not in ("GET", "HEAD")])
def test_a_form_without_an_origin_changes_nothing(operation: str) -> None:
    """Some browsers and proxies send none: then the header counts, which forms cannot set."""

    async def scenario(client: Client) -> None:
        before = client.executed()
        for value in ({}, {"Iris-Request": ""}, {"Iris-Request": "0"}):
            answer = await client.do(operation, {**cookie(token_of(**EVERYTHING)), **value})
            assert (answer.status, answer.problem) == (403, "foreign-origin")
            assert answer.json()["field"] == "Iris-Request"
            assert "set-cookie" not in answer.headers
        assert client.executed() == before

    with_client(scenario)


@pytest.mark.parametrize("operation", PATH_OF)
def test_an_answer_to_an_allowed_origin_is_for_this_origin_without_cookies(operation: str) -> None:
    async def scenario(client: Client) -> None:
        answer = await client.do(operation, {**bearer(token_of(**EVERYTHING)), "Origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in answer.headers
        assert "Origin" in answer.headers["vary"]

    with_client(scenario)


@pytest.mark.parametrize("operation", PATH_OF)
def test_a_rebound_name_gets_nothing(operation: str) -> None:
    async def scenario(client: Client) -> None:
        before = client.executed()
        token = token_of(**EVERYTHING)
        hosts = (
            *("evil.example", "evil.example:7480", "127.0.0.1.evil.example:7480", "localhost.evil.example", "localhost."),
            *("127.0.0.2:7480", "127.1:7480", "2130706433:7480", "0.0.0.0:7480", "[::]:7480", "[::ffff:127.0.0.1]:7480"),
            *("", ":7480", "127.0.0.1:7480@evil.example", "evil.example:7480:7480", "127.0.0.1:7480,evil.example"),
        )
        for host in hosts:
            for headers in (bearer(token), {**cookie(token), "Iris-Request": "1"}):
                answer = await client.do(operation, {**headers, "Host": host, "Origin": f"http://{host}"})
                assert (answer.status, answer.problem) == (421, "foreign-host"), host
                answer = await client.do(operation, {**headers, "Host": host, "X-Forwarded-Host": LISTEN})
                assert (answer.status, answer.problem) == (421, "foreign-host"), host
        assert client.executed() == before

    with_client(scenario)


def test_other_methods_of_a_path_reach_no_operation() -> None:
    async def scenario(client: Client) -> None:
        before = client.executed()
        for operation, path in PATH_OF.items():
            known = {spec.method for spec in PATHS if PATH_OF[spec.operation].partition("?")[0] == path.partition("?")[0]}
            known |= {"POST"} if operation == "events" else set()  # a topic may be called so
            for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "get", "X"} - known:
                answer = await client.do(operation, bearer(token_of(**EVERYTHING)), method=method)
                assert answer.problem == "unknown-method", (method, path)
        assert client.executed() == before

    with_client(scenario)
