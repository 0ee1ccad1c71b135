"""Tokens of `iris token new` at a NATS door: their rights, their end, and revocation."""

from __future__ import annotations

import secrets
import sys
import time
from typing import TYPE_CHECKING

import pytest

from iris_py.api.runtime import runtime_of
from iris_py.doors.revocations import TOKEN_KEPT_S, TokenRevocation
from iris_py.doors.rights import Rights
from iris_py.doors.settings import parse_settings
from iris_py.errors import ConfigurationError
from iris_py.servers.door_cluster import revoke_tokens
from iris_py.servers.nats.door import NatsDoor
from iris_py.servers.tokens import make_token, read_token
from tests.integration.test_nats_door import HERE, RawClient, dial, in_loop, opened

if TYPE_CHECKING:
    from iris_py.api.node import Node

TOKENS = HERE + "tokens = true\n[roles.viewer]\nsubscribe = ['notes.{sub}.>']\npublish = ['orders.>']\n"
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


def token_of(node: Node, *, lifetime_s: float = 3600.0, role: str = "viewer", rights: Rights | None = None) -> str:
    keys = runtime_of(node).keyring.primary
    return make_token(
        keys,
        subject="ann",
        lifetime_s=lifetime_s,
        role=role,
        rights=rights,
        now=time.time(),
        token_id=secrets.token_hex(16),
    )


def options(token: str) -> bytes:
    return b'{"verbose":false,"pedantic":false,"auth_token":"%b"}' % token.encode()


async def answer(door: NatsDoor, token: str) -> bytes:
    """Return the answer of a door to a token."""
    reader, writer = await dial(door)
    await reader.readline()
    writer.write(b"CONNECT %b\r\nPING\r\n" % options(token))
    return await reader.readline()


@in_loop
async def test_a_token_gives_its_rights_and_no_more() -> None:
    async with opened(TOKENS) as (door, native), native.subscribe("orders.>") as subscription:
        client = await RawClient.connect(
            door, options(token_of(native, rights=Rights(subscribe=(">",), publish=("orders.new",))))
        )
        assert b'"auth_required":true' in client.info
        client.send(b"PUB orders.new 1\r\na\r\nSUB notes.ann.> 1\r\n")
        assert await client.flush() == b""
        assert (await anext(subscription)).payload == b"a"
        client.send(b"PUB orders.old 1\r\na\r\nSUB notes.bob.> 2\r\nSUB > 3\r\n")
        refused = (await client.flush()).splitlines()
        assert refused == [
            b"-ERR 'Permissions Violation for Publish to \"orders.old\"'",
            b"-ERR 'Permissions Violation for Subscription to \"notes.bob.>\"'",
            b"-ERR 'Permissions Violation for Subscription to \">\"'",
        ]
        await native.publish("notes.ann.x", b"hello")
        assert await client.message() == (b"MSG notes.ann.x 1 5", b"hello")


@in_loop
async def test_a_wrong_token_opens_nothing() -> None:
    async with opened(TOKENS) as (door, native):
        right = token_of(native)
        assert await answer(door, right) == b"PONG\r\n"
        for wrong in ("t0ken", "", right[:-43] + "A" * 43, token_of(native, role="unknown"), f"{right}."):
            assert await answer(door, wrong) == VIOLATION


@in_loop
async def test_a_door_takes_tokens_only_if_its_file_says_so() -> None:
    users = f"{HERE}[users.ann]\ntoken = 'sha256:{'0' * 64}'\n[roles.viewer]\nsubscribe = ['notes.>']\n"
    async with opened(users) as (door, native):
        assert await answer(door, token_of(native)) == VIOLATION


@in_loop
async def test_a_revoked_token_ends_its_client_and_opens_nothing() -> None:
    async with opened(TOKENS) as (door, native):
        token = token_of(native)
        client, other = [await RawClient.connect(door, options(each)) for each in (token, token_of(native))]
        revocation = TokenRevocation(read_token(token).claims.jti, time.time() + TOKEN_KEPT_S)
        report = await revoke_tokens(native, [revocation], 10.0)
        assert [receipt.outcomes for _node, receipt in report.receipts] == [("added",)]
        assert await client.rest() == VIOLATION
        assert await answer(door, token) == VIOLATION
        assert await other.flush() == b""


@in_loop
async def test_a_client_ends_with_its_token() -> None:
    async with opened(TOKENS) as (door, native):
        client = await RawClient.connect(door, options(token_of(native, lifetime_s=1.0)))
        assert await client.rest() == VIOLATION


@in_loop
async def test_a_changed_role_changes_the_rights_of_its_clients() -> None:
    async with opened(TOKENS) as (door, native):
        client = await RawClient.connect(door, options(token_of(native)))
        client.send(b"SUB notes.ann.> 1\r\n")
        await client.flush()
        door.apply(parse_settings(TOKENS.replace("notes.{sub}", "news"), "door.toml"))
        assert await client.flush() == b"-ERR 'Permissions Violation for Subscription to \"notes.ann.>\"'\r\n"
        door.apply(parse_settings(TOKENS.replace("viewer", "other"), "door.toml"))
        assert await client.rest() == VIOLATION
        with pytest.raises(ConfigurationError, match="tokens changes only with a restart"):
            door.apply(parse_settings(HERE, "door.toml"))


@in_loop
async def test_a_door_without_the_package_for_tokens_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (_door, native):
        monkeypatch.setitem(sys.modules, "iris_py.servers.tokens", None)
        with pytest.raises(ConfigurationError, match="a door that takes tokens needs"):
            NatsDoor(native, parse_settings(TOKENS, "door.toml"))
