"""A wrong type of any argument of a node is refused before anything happens, by an error that names it."""

from __future__ import annotations

import asyncio
import inspect
import io
import math
import re
import signal
import threading
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py import sync
from iris_py.api.arguments import check_count, check_file, check_flag, check_name, check_time
from iris_py.testing import NodeSimulation, run
from iris_security import AdministrationKey

if TYPE_CHECKING:
    from pathlib import Path

KEY = AdministrationKey(bytes(32))
#: What no argument is said to be.
STRANGE = object()
#: Values of types that the arguments of these names are not.
WRONG: dict[str, tuple[object, ...]] = {
    "cluster": (5, None, b"c", [], STRANGE),
    "topic": (5, None, b"t", [], STRANGE),
    "pattern": (5, None, b"t", [], STRANGE),
    "payload": (5, "text", None, STRANGE),
    "handler": (5, "h", None, STRANGE),
    "callback": (5, "f", STRANGE),
    "timeout": ("5", None, b"5", [], STRANGE, math.nan, -1),
    "idempotent": ("false", 1, None, STRANGE),
    "retry_failed": ("false", 1, None, STRANGE),
    "inline": ("no", 1, None, STRANGE),
    "concurrency": ("5", 1.5, True, b"5", [], STRANGE, 0),
    "queue_messages": ("5", 1.5, True, None, [], STRANGE, -1),
    "queue_bytes": ("5", 1.5, True, None, [], STRANGE, -1),
    "tunnels": ("5", 1.5, True, None, [], STRANGE, -1),
    "tunnel_window_bytes": ("5", 1.5, None, [], STRANGE),
    "window_bytes": ("5", 1.5, None, [], STRANGE),
    "weight": ("5", True, None, [], STRANGE, math.nan),
    "prefer": (5, b"eu", [], STRANGE),
    "require": (5, b"eu", [], STRANGE),
    "headers": (5, "text", [1], STRANGE),
    "on_full": (5, None, STRANGE, "never"),
    "policy": (5, None, STRANGE, "never"),
    "retry": (5, "3", STRANGE),
    "wait_for_members": ("5", [], STRANGE, math.nan, -1),
    "stop_after": ("5", 1.5, [], STRANGE, 0),
    "key": (5, [], STRANGE),
    "codec": (5, "xml", STRANGE),
    "max_bytes": ("5", 1.5, True, None, b"5", [], STRANGE, -1),
    "file": (5, "name", None, b"data", [], STRANGE, io.StringIO("text")),
    "chunks": (5, "text", None, b"data", bytearray(b"data"), STRANGE),
    "nodes": (5, "id", b"id", [5], ["id"], STRANGE),
    "every": ("no", 1, None, STRANGE),
    "sample": ("5", 1.5, True, None, [], STRANGE, 0),
    "since": ("5", 1.5, True, None, [], STRANGE, {5: 5}, {"id": "5"}),
    "step": (5, "next", None, b"add", [], STRANGE),
    "force": ("no", 1, None, STRANGE),
    "abandon": ("no", 1, None, STRANGE),
}


async def handle(request: iris.Request) -> bytes:
    return request.payload


class Serving(iris.Handler):
    """Answers requests, and keeps tunnels open."""

    async def on_request(self, request: iris.Request) -> bytes:
        return await handle(request)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


class SyncServing(sync.Handler):
    """Takes all messages of tunnels."""

    def on_tunnel(self, tunnel: sync.Tunnel) -> None:
        for _message in tunnel:
            pass


def wrong_calls(
    node: iris.Node, membership: iris.Membership, subscription: Any, tunnel: iris.Tunnel
) -> list[tuple[Any, dict[str, Any]]]:
    """Return each method with arguments that are right."""
    return [
        (node.join, {"cluster": "d", "handler": handle}),
        (node.request, {"cluster": "c", "payload": b"", "timeout": 1}),
        (node.broadcast, {"cluster": "c", "payload": b""}),
        (node.survey, {"cluster": "c", "payload": b"", "timeout": 1}),
        (node.publish, {"topic": "t", "payload": b""}),
        (node.try_publish, {"topic": "t", "payload": b""}),
        (node.publish_many, {"topic": "t", "payloads": [b""]}),
        (node.subscribe, {"pattern": "t"}),
        (node.tunnel, {"cluster": "c"}),
        (node.members, {"cluster": "c"}),
        (node.find_route, {"cluster": "c"}),
        (node.trace, {"cluster": "c"}),
        (node.ask_nodes, {}),
        (node.rotate_secret, {"step": "add", "key": KEY}),
        (node.close, {}),
        (tunnel.send, {"payload": b""}),
        (tunnel.send_from, {"file": io.BytesIO()}),
        (tunnel.send_chunks, {"chunks": [b""]}),
        (tunnel.receive, {}),
        (tunnel.receive_into, {"file": io.BytesIO()}),
        (tunnel.close, {}),
        (membership.leave, {}),
        (subscription.close, {}),
    ]


async def call(function: Any, arguments: dict[str, Any]) -> None:
    outcome = function(**arguments)
    if inspect.isawaitable(outcome):
        await asyncio.wait_for(outcome, 60)


async def look_at_all() -> set[str]:
    looked = set()
    async with NodeSimulation(1) as simulation:
        node, member = await simulation.start_nodes(2)
        membership = await member.join("c", Serving())
        subscription = await member.subscribe("t")
        tunnel = await node.tunnel("c")
        await tunnel.send(b"a message that waits")
        for function, right in wrong_calls(member, membership, subscription, tunnel):
            for name in inspect.signature(function).parameters:
                for value in WRONG.get(name, ()):
                    what = f"{function.__name__}({name}={value!r})"
                    if value is None and inspect.signature(function).parameters[name].default is None:
                        continue  # which means the usual
                    with pytest.raises((iris.ConfigurationError, TypeError)) as caught:
                        await call(function, {**right, name: value})
                    text = str(caught.value)
                    assert name in text or repr(value) in text or "codec" in text, f"{what}: {text}"
                    assert "not supported between" not in text, what
                    assert "unhashable" not in text, what
                    looked.add(name)
        assert await node.request("c", b"works", timeout=5) == b"works", "nothing was changed"
        await tunnel.send(b"the next one")
        assert [await tunnel.receive() for _ in range(2)] == [b"a message that waits", b"the next one"]
    return looked


def test_each_wrong_argument_is_named() -> None:
    assert run(look_at_all(), limit_s=3600) == WRONG.keys()


@pytest.mark.parametrize("part", [5, 1.5, True, None, b"counts", [], STRANGE, "count"])
def test_a_part_that_no_node_tells_of_is_named(part: Any) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            (node,) = await simulation.start_nodes(1)
            with pytest.raises(iris.ConfigurationError, match=f"^there is no part {re.escape(repr(part))}\\. Choose from "):
                await node.ask_nodes("counts", part)

    run(main())


#: Values that no argument of Retry or connect() is said to be.
MISFITS = (b"b", STRANGE, 1.5j, [STRANGE], {STRANGE: STRANGE})


@pytest.mark.parametrize("value", MISFITS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", [field.name for field in fields(iris.Retry)])
def test_each_wrong_value_of_a_retry_policy_is_named(name: str, value: Any) -> None:
    with pytest.raises(iris.ConfigurationError, match=f"^{name}="):
        iris.Retry(**{name: value})


@pytest.mark.parametrize("value", MISFITS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("connect", [iris.connect, sync.connect], ids=["async", "sync"])
@pytest.mark.parametrize("name", inspect.signature(iris.connect).parameters)
def test_each_wrong_value_of_a_setting_is_named_before_a_node_starts(name: str, connect: Any, value: Any) -> None:
    with pytest.raises((iris.ConfigurationError, TypeError), match=rf"\b{name}\b"):
        connect(**{name: value})


@pytest.mark.parametrize("connect", [iris.connect, sync.connect], ids=["async", "sync"])
def test_a_mistyped_setting_is_named_before_anything_starts(connect: Any) -> None:
    before = signal.getsignal(signal.SIGTERM), threading.enumerate()
    with pytest.raises(TypeError) as caught:
        connect(zoen="eu", secret="wrong as well")
    assert str(caught.value) == "connect() got an unexpected keyword argument 'zoen'. Did you mean 'zone'?"
    assert (signal.getsignal(signal.SIGTERM), threading.enumerate()) == before


def test_a_file_has_to_be_open_for_what_is_done_with_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as written:
        check_file("file", written, "write")
        with pytest.raises(iris.ConfigurationError, match="must be a file opened for reading in binary mode"):
            check_file("file", written, "read")
    with path.open("rb") as read:
        check_file("file", read, "read")
        with pytest.raises(iris.ConfigurationError, match="must be a file opened for writing in binary mode"):
            check_file("file", read, "write")


@pytest.mark.parametrize("chunks", [5, "text", None, b"data", STRANGE])
def test_without_await_wrong_chunks_are_named(chunks: Any) -> None:
    with (
        sync.connect(secret=iris.Secret(bytes(32)), discovery=False, listen="127.0.0.1:0") as node,
        node.join("c", SyncServing()),
        node.tunnel("c") as tunnel,
    ):
        with pytest.raises(iris.ConfigurationError, match=r"^chunks=.* must be an iterable of bytes"):
            tunnel.send_chunks(chunks)
        assert tunnel.send_chunks([b"a", b"b"]) == 2


@pytest.mark.parametrize("value", ["5", 1.5, True, None, b"", 0])
def test_a_count_is_a_whole_number(value: object) -> None:
    with pytest.raises(iris.ConfigurationError, match=r"^concurrency=.* must be a whole number, at least 1\.$"):
        check_count("concurrency", value, 1)
    check_count("concurrency", 1, 1)


def test_a_flag_a_time_and_a_name_are_what_they_are() -> None:
    check_flag("inline", True)
    check_time("timeout", 0)
    check_time("timeout", 2.5)
    check_name("topic", "t")
    with pytest.raises(iris.ConfigurationError, match=r"^inline='false' must be True or False\.$"):
        check_flag("inline", "false")
    with pytest.raises(iris.ConfigurationError, match=r"^timeout=inf must be a finite number of seconds, at least 0\.$"):
        check_time("timeout", math.inf)
    with pytest.raises(iris.ConfigurationError, match=r"^topic=b't' must be text"):
        check_name("topic", b"t")


REFUSED_SIGNALS = pytest.mark.parametrize("signals", [5, "SIGTERM", [], [15], ["SIGTERM"], None])
SIGNALS_TEXT = r"^signals=.* must be signals, such as \[signal\.SIGTERM\]\.$"


@REFUSED_SIGNALS
def test_signals_are_signals(signals: Any) -> None:
    with pytest.raises(iris.ConfigurationError, match=SIGNALS_TEXT):
        asyncio.run(iris.until_stopped(signals=signals))


@REFUSED_SIGNALS
def test_without_await_signals_are_signals(signals: Any) -> None:
    with pytest.raises(iris.ConfigurationError, match=SIGNALS_TEXT):
        sync.until_stopped(signals=signals)


@pytest.mark.parametrize("timeout", ["5", b"5", [], STRANGE, math.nan])
def test_without_await_a_wrong_time_to_take_is_named(timeout: Any) -> None:
    with (
        sync.connect(secret=iris.Secret(bytes(32)), discovery=False) as node,
        node.subscribe("t") as subscription,
        pytest.raises(iris.ConfigurationError, match=r"^timeout=.* must be a finite number of seconds, at least 0\.$"),
    ):
        subscription.take(timeout=timeout)
