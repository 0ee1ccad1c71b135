"""Nodes of one program, on real sockets and both event loops."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

import iris_py as iris
from iris_overlay.config import OverlayConfig
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.net.busy_poll import BUSY_POLL_S, NEXT_POLL_S, BusyPoll
from iris_py.net.sockets import SocketNetwork
from iris_security import Secret
from tests.ports import has_ipv6, taken_port
from tests.standstills import STANDSTILL, without_standstills

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.integration.conftest import Loops


async def echo(request: iris.Request) -> bytes:
    return request.payload


def shout(request: iris.Request) -> bytes:
    return request.payload.upper()


class Recorder(iris.Handler):
    def __init__(self) -> None:
        self.messages: list[iris.Message] = []

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.messages.append(message)


# -- starting


@pytest.fixture
def no_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a node that waits for others at its start wait for ever, not for a second: who is ready has not waited."""
    monkeypatch.setattr("iris_py.api.lifecycle.OverlayConfig", partial(OverlayConfig, settle_timeout_s=3600.0))


@pytest.mark.usefixtures("no_wait_for_others")
def test_a_lone_node_is_ready_at_once_and_can_ask_itself(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as node:
            assert [other.id for other in node.nodes()] == [node.id]
            async with node.join("echo", echo):
                assert await node.request("echo", b"hello") == b"hello"
                assert [member.id for member in await node.members("echo")] == [node.id]
            with pytest.raises(iris.NoMembers):
                await node.request("echo", b"hello")

    loops.run(main())


@pytest.mark.usefixtures("no_wait_for_others")
def test_a_node_joins_a_running_network_of_three(loops: Loops) -> None:
    async def main() -> None:
        nodes = [await iris.connect(zone=f"zone/{number}") for number in range(3)]
        for node in nodes:
            await node.join("echo", echo)
        async with iris.connect() as fourth:
            assert len(fourth.nodes()) == 4, "found before connect() returns"
            assert len(await fourth.members("echo")) == 3
            assert {node.zone for node in fourth.nodes()} == {"zone/0", "zone/1", "zone/2", ""}
            assert {node.address for node in fourth.nodes()[1:]} == {node.address for node in nodes}
            assert await fourth.request("echo", b"?") == b"?"
        for node in nodes:
            await node.close()

    loops.run(main())


def test_many_nodes_that_start_at_once_find_each_other(loop: Loops) -> None:
    async def main() -> None:
        async def start() -> iris.Node:
            return await iris.connect()

        nodes = await asyncio.gather(*(start() for _ in range(12)))
        await loop.until(lambda: all(len(node.nodes()) == 12 for node in nodes))
        await asyncio.gather(*(node.close() for node in nodes))

    loop.run(main())


def test_seeds_and_beacons_each_suffice(loops: Loops) -> None:
    secret = "iris1." + "A" * 48
    with pytest.raises(iris.ConfigurationError):
        iris.connect(secret=secret)

    async def main() -> None:
        options: dict[str, Any] = {"secret": os.urandom(32), "network": "both ways"}  # beacons reach the whole machine
        async with (
            iris.connect(**options, discovery=False) as first,
            iris.connect(**options, discovery=False, seeds=[first.address]) as second,
            iris.connect(**options, discovery=True) as third,
        ):
            assert len(second.nodes()) == 2
            assert len(third.nodes()) == 1
            async with iris.connect(**options, discovery=True) as fourth:
                await loops.until(lambda: len(third.nodes()) == len(fourth.nodes()) == 2)

    loops.run(main())


def test_a_cluster_with_a_secret_of_its_own_is_closed_to_the_rest_of_its_network(loops: Loops, tmp_path: Path) -> None:
    own, network = (Secret.from_bytes(bytes((number,)) * 32) for number in (1, 2))
    path = tmp_path / "secret"
    path.write_text(network.text)
    path.chmod(0o600)

    async def main() -> None:
        async with (
            iris.connect(secret_file=path, clusters={"payroll": own}, discovery=False) as member,
            iris.connect(secret=network, clusters={"payroll": own.text}, seeds=[member.address], discovery=False) as insider,
            iris.connect(secret=network, seeds=[member.address], discovery=False) as outsider,
            member.join("payroll", echo),
            outsider.join("payroll", shout),  # another cluster, which happens to have the same name
        ):
            assert await insider.request("payroll", b"hello") == b"hello"
            assert await outsider.request("payroll", b"hello") == b"HELLO"
            assert [each.id for each in await insider.members("payroll")] == [member.id]
            assert [each.id for each in await outsider.members("payroll")] == [outsider.id]

    loops.run(main())


def test_an_address_that_is_taken_for_datagrams(loops: Loops) -> None:
    async def main() -> None:
        with taken_port(socket.SOCK_DGRAM) as port:
            address = f"127.0.0.1:{port}"
            for discovery in (True, False):
                with pytest.raises(iris.ConfigurationError, match=rf"cannot listen on {address}: .*in use \(UDP\)\. Choose"):
                    await iris.connect(listen=address, discovery=discovery)

    loops.run(main())


def test_an_address_that_is_taken_and_seeds_that_are_silent(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as node:
            with pytest.raises(iris.ConfigurationError, match="cannot listen"):
                await iris.connect(listen=node.address)
            with pytest.raises(iris.ConfigurationError):
                await iris.connect(listen="192.0.2.1:0", secret=bytes(32))
            with pytest.raises(iris.ConfigurationError):
                await iris.connect(seeds=[f"127.0.0.1:{port}" for port in range(1, 200)])
            address = node.address
        async with iris.connect(seeds=[address], discovery=False) as alone:  # nobody there: not an error, it may come
            assert len(alone.nodes()) == 1

    loops.run(main())


# -- handlers


def test_handlers_of_every_kind(loops: Loops) -> None:
    loop_thread = threading.get_ident()
    threads: dict[str, int] = {}

    class Callable_:
        async def __call__(self, request: iris.Request) -> bytes:
            return b"called"

    def in_thread(request: iris.Request) -> bytes:
        threads["thread"] = threading.get_ident()
        return request.payload

    def inline(request: iris.Request) -> bytearray:
        threads["inline"] = threading.get_ident()
        return bytearray(request.payload)

    def raises(request: iris.Request) -> bytes:
        raise LookupError("no such key")

    def stops(request: iris.Request) -> bytes:
        raise StopIteration

    async def raises_later(request: iris.Request) -> bytes:
        await asyncio.sleep(0)
        raise ZeroDivisionError("later")

    def text(request: iris.Request) -> bytes:
        return "text"  # type: ignore[return-value]

    def huge(request: iris.Request) -> bytes:
        return bytes(MAX_MESSAGE_BYTES + 1)

    def facts(request: iris.Request) -> bytes:
        assert 0 < request.time_left_s <= 5.01  # it travels in milliseconds, rounded up
        return f"{request.cluster} {request.source}".encode()

    async def main() -> None:
        async with iris.connect() as server, iris.connect() as node:
            await server.join("async", echo)
            await server.join("object", Callable_())
            await server.join("thread", in_thread)
            await server.join("inline", inline, inline=True)
            await server.join("raises", raises)
            await server.join("raises inline", raises, inline=True)
            await server.join("stops", stops, concurrency=1)
            await server.join("raises later", raises_later)
            await server.join("text", text)
            await server.join("huge", huge)
            await server.join("facts", facts)
            await server.join("nothing", iris.Handler())
            assert await node.request("async", b"x") == b"x"
            assert await node.request("object", b"x") == b"called"
            assert await node.request("thread", b"x") == b"x"
            assert await node.request("inline", b"x") == b"x"
            assert threads["inline"] == loop_thread != threads["thread"]
            assert await node.request("facts", b"") == f"facts {node.id}".encode()
            for cluster, type_, text_ in (
                ("raises", "LookupError", "no such key"),
                ("raises inline", "LookupError", "no such key"),
                ("raises later", "ZeroDivisionError", "later"),
                ("text", "TypeError", "bytes"),
                ("huge", "MessageTooLarge", "over the limit"),
                ("nothing", "NotImplementedError", "does not answer"),
                ("stops", "RuntimeError", "StopIteration"),
                ("stops", "RuntimeError", "StopIteration"),  # the only thread of it is free again
            ):
                with pytest.raises(iris.RemoteError) as caught:
                    await node.request(cluster, b"x")
                assert caught.value.type == type_
                assert text_ in caught.value.text
                assert (caught.value.cluster, caught.value.member) == (cluster, server.id)

    loops.run(main())


def test_a_handler_runs_only_as_long_as_somebody_waits(loops: Loops) -> None:
    async def main() -> None:
        events: list[str] = []

        async def slow(request: iris.Request) -> bytes:
            events.append("began")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                events.append("cancelled")
                raise
            return b""

        async with iris.connect() as server, iris.connect() as node:
            await server.join("slow", slow)
            asking = asyncio.create_task(node.request("slow", b""))
            await loops.until(lambda: events == ["began"])
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await loops.until(lambda: events == ["began", "cancelled"])
            timeout_s = 0.1
            while events.count("began") < 2:  # on a busy machine none may begin in so little time
                with pytest.raises(iris.RequestTimeout) as caught:
                    await node.request("slow", b"", timeout=timeout_s)
                assert isinstance(caught.value, TimeoutError)
                assert (caught.value.timeout_s, caught.value.member) == (timeout_s, server.id)
                timeout_s *= 4
            await loops.until(lambda: events.count("cancelled") == events.count("began"))

    loops.run(main())


def test_what_still_runs_at_the_close_is_finished_or_cancelled(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        may_end = asyncio.Event()
        begun: list[bytes] = []

        async def wait(request: iris.Request) -> bytes:
            begun.append(request.payload)
            await may_end.wait()
            return request.payload

        async with iris.connect() as node:
            async with iris.connect() as server:
                await server.join("wait", wait)
                asking = asyncio.create_task(node.request("wait", b"finished"))
                await loops.until(lambda: begun == [b"finished"])
                asyncio.get_running_loop().call_later(0.1, may_end.set)
            assert await asking == b"finished"
            may_end.clear()
            server = await iris.connect()
            await server.join("wait", wait)
            asking = asyncio.create_task(node.request("wait", b"cancelled"))
            await loops.until(lambda: begun == [b"finished", b"cancelled"])
            await server.close(timeout=0.1)
            with pytest.raises((iris.RemoteError, iris.MemberLost)):
                await asking

    loops.run(main())
    assert "still run" in caplog.text


def test_a_key_is_executed_once_by_a_member_whoever_asks(loops: Loops) -> None:
    async def main() -> None:
        may_end = asyncio.Event()
        executed: list[bytes] = []

        async def work(request: iris.Request) -> bytes:
            executed.append(request.payload)
            await may_end.wait()
            if request.payload == b"fails":
                raise ValueError("this time")
            return b"by " + request.payload

        async with iris.connect() as server, iris.connect() as one, iris.connect() as two:
            await server.join("work", work)
            first = asyncio.create_task(one.request("work", b"one", idempotent=True, key="task 7"))
            await loops.until(lambda: executed == [b"one"])
            second = asyncio.create_task(two.request("work", b"two", idempotent=True, key=b"task 7"))
            await loops.until(lambda: server.statistics().repeated == 1)
            first.cancel()  # somebody else still waits
            may_end.set()
            assert await second == b"by one"
            assert await one.request("work", b"three", idempotent=True, key="task 7") == b"by one"
            assert await one.request("work", b"four", idempotent=True, key="task 8") == b"by four"
            for _ in range(2):  # without a key each request is one of its own
                assert await one.request("work", b"five", idempotent=True) == b"by five"
            for _ in range(2):  # who raised has not done it
                with pytest.raises(iris.RemoteError, match="this time"):
                    await one.request("work", b"fails", idempotent=True, key="task 9")
            assert executed == [b"one", b"four", b"five", b"five", b"fails", b"fails"]
            assert server.statistics().repeated == 2
            for options in ({"key": "x"}, {"key": "", "idempotent": True}):
                with pytest.raises(iris.ConfigurationError, match="key="):
                    await one.request("work", b"", **options)
            with pytest.raises(TypeError, match="a key is text or bytes"):
                await one.request("work", b"", idempotent=True, key=7)  # type: ignore[call-overload]

    loops.run(main())


def test_a_full_member_says_so_and_others_are_tried(loops: Loops) -> None:
    async def main() -> None:
        may_end = asyncio.Event()

        async def wait(request: iris.Request) -> bytes:
            await may_end.wait()
            return b"waited"

        async with iris.connect() as one, iris.connect() as two, iris.connect() as node:
            await one.join("wait", wait, concurrency=1, queue_messages=0)
            waiting = asyncio.create_task(node.request("wait", b""))
            await loops.until(lambda: one.statistics().executed == 1)
            with pytest.raises(iris.Overloaded) as caught:
                await node.request("wait", b"", on_full="raise")
            assert caught.value.tried == 1
            patient = asyncio.create_task(node.request("wait", b""))
            await two.join("wait", echo)
            for _ in range(10):
                assert await node.request("wait", b"other") == b"other"
            assert await patient == b""
            may_end.set()
            assert await waiting == b"waited"
            assert one.statistics().rejected["overloaded"] >= 2
            assert node.statistics().retries > 0

    loops.run(main())


def test_a_thread_that_is_not_waited_for_counts_until_it_ends(loops: Loops) -> None:
    async def main() -> None:
        may_end = threading.Event()
        begun: list[tuple[str, bytes]] = []
        ended: list[tuple[str, bytes]] = []

        def wait(request: iris.Request) -> bytes:
            begun.append((request.cluster, request.payload))
            may_end.wait(60.0)
            ended.append((request.cluster, request.payload))
            return request.payload

        async with iris.connect() as server, iris.connect() as node:
            cluster, timeout_s = "", 0.05
            while [name for name, _payload in begun].count(cluster) < 2:  # a busy machine begins none in so little time
                timeout_s *= 4
                cluster = f"{timeout_s:g} s"
                await server.join(cluster, wait, concurrency=2, queue_messages=0)
                asking = [node.request(cluster, payload, timeout=timeout_s) for payload in (b"one", b"two")]
                for outcome in await asyncio.gather(*asking, return_exceptions=True):
                    assert isinstance(outcome, iris.RequestTimeout)
            with pytest.raises(iris.Overloaded):
                await node.request(cluster, b"three", on_full="raise")
            may_end.set()
            assert await node.request(cluster, b"four") == b"four"
            # The place of one of the others is enough for it.
            await loops.until(lambda: {(cluster, payload) for payload in (b"one", b"two", b"four")} <= set(ended))
            assert (cluster, b"three") not in ended

    loops.run(main())


def test_a_node_does_not_wait_for_a_thread_that_never_ends(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        may_end, begun, ended = threading.Event(), threading.Event(), threading.Event()

        def wait(request: iris.Request) -> bytes:
            begun.set()
            may_end.wait(60.0)
            ended.set()
            return b""

        async with iris.connect() as node:
            server = await iris.connect()
            await server.join("wait", wait)
            asking = asyncio.create_task(node.request("wait", b""))
            await loops.until(begun.is_set)
            await server.close(timeout=0.1)
            assert not ended.is_set()
            with pytest.raises(iris.RemoteError, match="the handler was cancelled"):
                await asking
            may_end.set()

    loops.run(main())
    assert "are abandoned" in caplog.text


def test_a_program_ends_though_its_handler_does_not(loop: Loops) -> None:
    program = """
import asyncio, threading, iris_py

begun = threading.Event()

def stuck(request):
    begun.set()
    threading.Event().wait()

async def main():
    async with iris_py.connect() as node:
        membership = await node.join("stuck", stuck)
        asking = asyncio.ensure_future(node.request("stuck", b"", timeout=60.0))
        await asyncio.to_thread(begun.wait)
        asking.cancel()
        await asyncio.wait([asking])
        await membership.leave(timeout=0.1)
    print("end")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "end\n")
    assert without_standstills(done.stderr).splitlines() == [
        "handlers of 'stuck' still run after 0.1 s and are cancelled",
        "1 handlers ignore their cancellation and are abandoned",
    ]


@pytest.mark.parametrize("way", ["leave", "close"])
def test_a_handler_that_does_not_run_needs_no_time_to_end(way: str, loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for handler in (echo, Recorder()):
            async with iris.connect() as node:
                membership = await node.join("quiet", handler)
                assert await node.request("quiet", b"x")
                await (membership.leave(timeout=0) if way == "leave" else node.close(timeout=0))

    loops.run(main())
    assert [record.getMessage() for record in caplog.records if STANDSTILL not in record.getMessage()] == []


# -- messages


def test_payloads_of_every_type_and_size(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as server, iris.connect() as node:
            recorder = Recorder()
            await server.join("echo", recorder)
            payloads: list[Any] = [b"", b"x", bytearray(b"array"), memoryview(b"a view")[2:]]
            for payload in [*payloads, bytes(32 * 1024), bytes(MAX_MESSAGE_BYTES)]:
                reply = await node.request("echo", payload, timeout=30.0)
                assert type(reply) is bytes
                assert reply == payload
                assert await node.broadcast("echo", payload) == 1
            await loops.until(lambda: len(recorder.messages) == 6)
            assert [message.sequence for message in recorder.messages] == [1, 2, 3, 4, 5, 6]
            assert [len(message.payload) for message in recorder.messages] == [0, 1, 5, 4, 32 * 1024, MAX_MESSAGE_BYTES]
            assert {(message.source, message.cluster) for message in recorder.messages} == {(node.id, "echo")}
            for send in (node.request, node.broadcast):
                with pytest.raises(iris.MessageTooLarge) as caught:
                    await send("echo", bytes(MAX_MESSAGE_BYTES + 1))
                assert (caught.value.size_bytes, caught.value.limit_bytes) == (MAX_MESSAGE_BYTES + 1, MAX_MESSAGE_BYTES)
                for wrong in ("text", None, 5, [b"list"]):
                    with pytest.raises(TypeError, match="a payload is bytes"):
                        await send("echo", wrong)  # type: ignore[call-overload]

    loops.run(main())


def test_the_largest_message_is_a_setting_of_who_sends(loops: Loops) -> None:
    async def main() -> None:
        async def double(request: iris.Request) -> bytes:
            return request.payload * 2

        limit = 20 * 1024 * 1024
        async with iris.connect(max_message_bytes=5000) as server, iris.connect(max_message_bytes=limit) as node:
            assert (server.max_message_bytes, node.max_message_bytes) == (5000, limit)
            await server.join("double", double)
            await server.join("echo", echo)
            assert len(await node.request("double", bytes(2500))) == 5000
            for size in (2501, limit):  # a reply that is too large is an error of its handler, and the member goes on
                with pytest.raises(iris.RemoteError, match="over the limit of 5000") as caught:
                    await node.request("double", bytes(size), timeout=30.0)
                assert caught.value.type == "MessageTooLarge"
            assert await node.request("double", b"x") == b"xx"
            with pytest.raises(iris.MessageTooLarge, match="max_message_bytes"):
                await node.request("echo", bytes(limit + 1))
            await node.subscribe("topic")
            assert await server.publish("topic", b"begins a run") == 1
            with pytest.raises(iris.MessageTooLarge):
                await server.publish("topic", bytes(5001))
            with pytest.raises(iris.MessageTooLarge):
                server.try_publish("topic", bytes(5001))
            with pytest.raises(iris.MessageTooLarge):
                server.survey("echo", bytes(5001))

    loops.run(main())


def test_a_burst_of_large_replies_waits_for_room(loops: Loops) -> None:
    """All of one turn: together they are more than a link may queue, so that it would break."""

    async def main() -> None:
        async with iris.connect() as server, iris.connect() as node:
            may_end = asyncio.Event()
            payload = bytes(12 * 1024 * 1024)
            begun = 0

            async def wait(request: iris.Request) -> bytes:
                nonlocal begun
                begun += 1
                await may_end.wait()
                return payload

            def at_once(request: iris.Request) -> bytes:
                return payload

            await server.join("wait", wait)
            await server.join("at once", at_once, inline=True)
            asking = [asyncio.create_task(node.request("wait", b"", timeout=60.0)) for _ in range(24)]
            await loops.until(lambda: begun == 24)
            may_end.set()
            assert {len(reply) for reply in await asyncio.gather(*asking)} == {len(payload)}
            inline = await asyncio.gather(*(node.request("at once", b"", timeout=60.0) for _ in range(24)))
            assert {len(reply) for reply in inline} == {len(payload)}
            assert node.statistics().retries == 0

    loops.run(main())


def test_wrong_arguments_are_told_before_anything_happens(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as node:
            for name in ("", "x" * 256, "null\0", "\ud800", b"bytes", None):
                for call in (node.request, node.broadcast):
                    with pytest.raises(iris.ConfigurationError):
                        await call(name, b"")  # type: ignore[arg-type]
                with pytest.raises(iris.ConfigurationError):
                    node.members(name)  # type: ignore[arg-type]
                with pytest.raises(iris.ConfigurationError):
                    node.join(name, echo)  # type: ignore[arg-type]
            for timeout in (0, -1.0, float("nan"), float("inf"), None, "5"):
                with pytest.raises(iris.ConfigurationError):
                    await node.request("echo", b"", timeout=timeout)  # type: ignore[arg-type]
            for options in ({"concurrency": 0}, {"queue_messages": -1}, {"queue_bytes": -1}):
                with pytest.raises(iris.ConfigurationError):
                    node.join("echo", echo, **options)  # type: ignore[call-overload]
            with pytest.raises(iris.ConfigurationError):
                node.join("echo", "no handler")  # type: ignore[call-overload]
            assert node.statistics().requests == 0
            assert not node._parts.memberships.servers

    loops.run(main())


def test_a_thousand_requests_at_once(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as one, iris.connect() as two, iris.connect() as node:
            await one.join("echo", echo)
            await two.join("echo", shout)
            payloads = [f"request {number}".encode() for number in range(1_000)]
            replies = await asyncio.gather(*(node.request("echo", payload, timeout=30.0) for payload in payloads))
            assert [reply.lower() for reply in replies] == payloads
            statistics = node.statistics()
            assert (statistics.requests, statistics.replies) == (1_000, 1_000)
            executed = [server.statistics().executed for server in (one, two)]
            assert sum(executed) == 1_000
            assert min(executed) > 0, "both were asked; the one that answers sooner gets more"
            assert not {reason for reason in statistics.drops if reason != "datagram"}, "those are beacons of other networks"

    loops.run(main())


@pytest.mark.parametrize("processors", [2, 1])
@pytest.mark.parametrize("setting", [None, False])
def test_a_reply_is_looked_for_only_if_it_is_the_only_one(
    loops: Loops, monkeypatch: pytest.MonkeyPatch, setting: bool | None, processors: int
) -> None:
    looked_for: list[float] = []
    monkeypatch.setattr(BusyPoll, "look_for", lambda self, _awaited: looked_for.append(self._look_s))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: set(range(processors)))

    async def main() -> None:
        async with (
            iris.connect(busy_poll=setting) as member,
            iris.connect(busy_poll=setting) as node,
            member.join("echo", echo),
            member.join("inline", lambda request: request.payload, inline=True),
        ):
            for name in ("echo", "inline"):
                assert await node.request(name, b"alone") == b"alone"
                assert looked_for == ([BUSY_POLL_S, NEXT_POLL_S] if setting is None and processors > 1 else [])
                looked_for.clear()
                await asyncio.gather(*(node.request(name, b"one of many") for _ in range(10)))
                assert looked_for.count(BUSY_POLL_S) <= 1, "only the first one was alone"
                assert looked_for.count(NEXT_POLL_S) <= 1, "likewise"
                looked_for.clear()
                assert len(await node.survey(name, b"all")) == 1
                assert looked_for == [], "a survey is followed by other work"

    loops.run(main())


def test_broadcasts_reach_every_member_in_order(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as one, iris.connect() as two, iris.connect() as node:
            recorders = [Recorder(), Recorder(), Recorder()]
            assert await node.broadcast("all", b"nobody") == 0
            for member, recorder in zip((one, two, node), recorders, strict=True):
                await member.join("all", recorder)
            payloads = [bytes(number % 7 * 9_000) + str(number).encode() for number in range(300)]
            for payload in payloads:
                assert await node.broadcast("all", payload) == 3
            await loops.until(lambda: all(len(recorder.messages) == 300 for recorder in recorders))
            for recorder in recorders:
                assert [message.payload for message in recorder.messages] == payloads

    loops.run(main())


# -- the end


def test_closing_twice_and_using_what_is_closed(loops: Loops) -> None:
    async def main() -> None:
        async with iris.connect() as other:
            await other.join("echo", echo)
            node = await iris.connect()
            membership = await node.join("mine", echo)
            members = node.members("echo")
            asking = asyncio.create_task(node.request("nobody yet", b"", idempotent=True))
            await asyncio.sleep(0)
            late = node.join("late", echo)
            await asyncio.gather(node.close(), node.close())
            await node.close()
            with pytest.raises(iris.NodeClosed):
                await late
            await membership.leave()
            with pytest.raises(iris.NodeClosed):
                await asking
            for use in (node.request, node.broadcast):
                with pytest.raises(iris.NodeClosed):
                    await use("echo", b"")
            with pytest.raises(iris.NodeClosed):
                node.join("echo", echo)
            with pytest.raises(iris.NodeClosed):
                node.members("echo")
            assert list(members) == []
            await loops.until(lambda: len(other.nodes()) == 1)

    loops.run(main())


def test_no_file_of_a_closed_node_is_left(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with iris.connect() as node:
            assert [path.name for path in (home / "state").rglob("*") if path.is_file()] == [node.id]
        assert [path for path in (home / "state").rglob("*") if path.is_file()] == []

    loop.run(main())


def test_a_directory_that_cannot_be_written_costs_a_warning(loop: Loops, home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "state").write_text("a file in the way")

    async def main() -> None:
        async with iris.connect() as one, iris.connect() as two:
            await loop.until(lambda: len(one.nodes()) == len(two.nodes()) == 2)

    loop.run(main())
    assert "remembered peers" in caplog.text


# -- cancellation


def test_cancelling_any_call_at_any_step_leaves_nothing_behind(loops: Loops, caplog: pytest.LogCaptureFixture) -> None:
    """Each call is cancelled after 0, 1, 2, ... turns of the event loop, until it ends by itself."""
    caplog.set_level(logging.WARNING)

    async def main() -> None:
        from_here = asyncio.get_running_loop()
        async with iris.connect() as node, iris.connect() as other:
            await other.join("echo", Recorder())
            await node.broadcast("echo", b"the task that takes broadcasts stays")
            assert await node.request("echo", b"") == b""
            await loops.until(lambda: len(node.nodes()) == 2)

            async def connect() -> None:
                await (await iris.connect()).close()

            async def join() -> None:
                await (await node.join("joined", echo)).leave()

            async def members() -> None:
                await node.members(f"new {from_here.time()}")

            calls: list[Callable[[], Coroutine[Any, Any, Any]]] = [
                connect,
                join,
                members,
                lambda: node.request("echo", b"?"),
                lambda: node.broadcast("echo", b"!"),
            ]
            for call in calls:
                sockets, tasks = loops.open_sockets(), set(asyncio.all_tasks())
                turns = 0
                has_ended = False
                while not has_ended:
                    task = asyncio.ensure_future(call())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                        if task.done():
                            break
                    has_ended = task.done()
                    task.cancel()
                    await asyncio.wait([task])
                    if not task.cancelled():
                        task.result()
                    # Turns of the loop take no time, and some calls wait for a time.
                    turns = turns + 1 if turns < 40 else turns * 2
                await loops.check_clean(sockets, tasks)
                await loops.until(lambda: len(node.nodes()) == len(other.nodes()) == 2)
                assert await node.request("echo", b"?") == b"?"
                assert not node.members("joined")

    loops.run(main())
    assert [record for record in caplog.records if STANDSTILL not in record.getMessage()] == []


def test_interrupting_a_program_closes_its_node(loops: Loops) -> None:
    async def main() -> None:
        served: list[bytes] = []

        async def program() -> None:
            async with iris.connect() as node, node.join("echo", echo):
                served.append(await node.request("echo", b"up"))
                await asyncio.Event().wait()

        async with iris.connect() as other:
            task = asyncio.create_task(program())
            await loops.until(lambda: served)
            assert len(await other.members("echo")) == 1
            task.cancel()  # what Ctrl-C does to the main task
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(other.members("echo")) == 0
            await loops.until(lambda: len(other.nodes()) == 1)

    loops.run(main())


class Silent(asyncio.BufferedProtocol):
    """Keeps its transport, to end it."""

    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(16)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


def test_a_cancelled_opening_takes_no_descriptor_but_its_own(loops: Loops) -> None:
    async def main() -> None:
        network = SocketNetwork()
        listener = await network.listen(Silent, "127.0.0.1", 0)
        for turns in range(7):
            openings: list[Coroutine[Any, Any, Any]] = [
                network.dial(Silent, *listener.address),
                network.listen(Silent, "127.0.0.1", 0),
                network.open_datagrams("127.0.0.1", 0),
                *([network.open_datagrams("::", 0)] if has_ipv6() else []),
            ]
            while openings:
                opening = openings.pop()
                task = asyncio.create_task(opening)
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                opened = None if task.cancelled() else task.result()
                pipes = [os.pipe() for _ in range(8)]  # they take the numbers that are free now
                del task, opening
                gc.collect()
                await asyncio.sleep(0.002)
                for read_end, write_end in pipes:
                    os.write(write_end, b"still ours")
                    assert os.read(read_end, 10) == b"still ours"
                    os.close(read_end)
                    os.close(write_end)
                if opened is not None:
                    opened.close()
            # And the numbers that became free serve whoever gets them next.
            again = await network.listen(Silent, "127.0.0.1", 0)
            _reader, writer = await asyncio.wait_for(asyncio.open_connection(*again.address), 10.0)
            writer.close()
            await writer.wait_closed()
            again.close()
        listener.close()

    loops.run(main())
