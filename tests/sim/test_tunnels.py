"""Tunnels of complete nodes on the simulated network: order, ends, back-pressure, and what happens when something breaks."""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.node.spare_links import LINK_IDLE_S
from iris_py.patterns.tunnel.table import TunnelOpened
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from iris_py.api.node import Node

#: The bound of docs/design.md 3.6, and a round trip on top of it.
LOST_WITHIN_S = 3.1
LARGE = random.Random(1).randbytes(3_000_000)


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, **options: Any) -> None:
    async def main() -> None:
        async with NodeSimulation(seed, **options) as simulation:
            await scenario(simulation)

    run(main(), limit_s=600.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Server(iris.Handler):
    """Does with a tunnel what a test wants; keeps what became of it."""

    def __init__(self, serve: Callable[[iris.Tunnel], Awaitable[None]]) -> None:
        self.serve = serve
        self.tunnels: list[iris.Tunnel] = []
        self.ends: list[object] = []

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        self.tunnels.append(tunnel)
        try:
            await self.serve(tunnel)
        except BaseException as exc:
            self.ends.append(exc)
            raise
        self.ends.append(None)


async def echo(tunnel: iris.Tunnel) -> None:
    async for message in tunnel:
        await tunnel.send(message)


async def idle(tunnel: iris.Tunnel) -> None:
    await asyncio.get_running_loop().create_future()


async def forget(tunnel: iris.Tunnel) -> None:
    """Read one message of any size."""
    async for _chunk in tunnel.receive_chunks():
        pass


async def pair(
    simulation: NodeSimulation, serve: Callable[[iris.Tunnel], Awaitable[None]] = echo, **options: Any
) -> tuple[Node, Node, Server]:
    caller, member = await simulation.start_nodes(2)
    server = Server(serve)
    await member.join("files", server, **options)
    return caller, member, server


def open_tunnels(*nodes: Node) -> list[int]:
    return [len(node._core.tunnels) for node in nodes]


def is_forgotten(*nodes: Node) -> bool:
    """Tell whether nothing of any tunnel is left."""
    cores = [node._core for node in nodes]
    peers = [peer for core in cores for peer in core.peers._known.values()]
    tables = [table for core in cores for table in (core.tunnels._live, core.tunnels._running, core.tunnels._links)]
    return not any(tables) and not any(peer.awaited for peer in peers)


# -- messages


def test_messages_go_both_ways_in_order() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation)
        messages = [bytes([number % 251]) * (number * number % 5000) for number in range(300)]
        async with caller.tunnel("files") as tunnel:
            assert (tunnel.cluster, tunnel.member, tunnel.source) == ("files", member.id, caller.id)
            sending = asyncio.create_task(send_all(tunnel, messages))
            assert [message async for message in tunnel] == messages
            await sending
            theirs = server.tunnels[0]
            assert (theirs.id, theirs.cluster, theirs.member, theirs.source) == (tunnel.id, "files", member.id, caller.id)
        await simulation.until(lambda: is_forgotten(caller, member))
        assert caller.statistics().drops == member.statistics().drops == {}

    simulate(scenario)


async def send_all(tunnel: iris.Tunnel, messages: list[bytes]) -> None:
    for message in messages:
        await tunnel.send(message)
    await tunnel.end()


def test_a_node_has_tunnels_to_itself() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        await node.join("files", Server(echo))
        async with node.tunnel("files") as tunnel:
            sending = asyncio.create_task(send_all(tunnel, [b"", b"a", LARGE]))
            assert [message async for message in tunnel] == [b"", b"a", LARGE]
            await sending
        await simulation.until(lambda: is_forgotten(node))

    simulate(scenario)


def test_a_message_far_larger_than_the_window_needs_no_more_memory_than_that() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        most = 0

        async def count(tunnel: iris.Tunnel) -> None:
            nonlocal most
            digest = hashlib.sha256()
            async for chunk in tunnel.receive_chunks():
                most = max(most, tunnel._core.buffered_bytes)
                digest.update(chunk)
            await tunnel.send(digest.digest())

        caller, _member, _server = await pair(simulation, count, tunnel_window_bytes=20_000)
        async with caller.tunnel("files") as tunnel:
            sending = asyncio.create_task(tunnel.send_from(io.BytesIO(LARGE)))
            while not sending.done():
                await asyncio.sleep(0.001)
                assert tunnel._core.queued_bytes <= 20_000
            assert await sending == len(LARGE)
            assert await tunnel.receive() == hashlib.sha256(LARGE).digest()
        assert 10_000 < most <= 20_000

    simulate(scenario)


def test_files_pass_through(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(LARGE)

    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files") as tunnel:
            with source.open("rb") as file, target.open("wb") as copy:
                receiving = asyncio.create_task(tunnel.receive_into(copy))
                assert await tunnel.send_from(file) == len(LARGE)
                assert await receiving == len(LARGE)
        assert target.read_bytes() == LARGE

    simulate(scenario)


def test_a_file_that_cannot_be_written_costs_its_message_alone() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            raise OSError("no space left")

    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files") as tunnel:
            sending = asyncio.create_task(send_all(tunnel, [LARGE, b"next"]))
            with pytest.raises(OSError, match="no space left"):
                await tunnel.receive_into(Full())
            assert await tunnel.receive() == b"next"
            await sending

    simulate(scenario)


def test_a_message_over_the_bound_of_its_receiver_is_left_out_and_no_other() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files") as tunnel:
            sending = asyncio.create_task(send_all(tunnel, [b"a", bytes(101), LARGE, b"b" * 100]))
            assert await tunnel.receive(max_bytes=100) == b"a"
            for least in (101, 102):
                with pytest.raises(iris.MessageTooLarge, match="receive_into") as raised:
                    await tunnel.receive(max_bytes=100)
                assert raised.value.limit_bytes == 100
                assert raised.value.size_bytes >= least
            assert await tunnel.receive(max_bytes=100) == b"b" * 100
            await sending

    simulate(scenario)


def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files", window_bytes=5000) as tunnel:
            sending = asyncio.create_task(send_all(tunnel, [LARGE, b"next"]))
            interrupted, message = 0, b""
            while not message:
                try:
                    async with asyncio.timeout(0.0005):
                        message = await tunnel.receive()
                except TimeoutError:
                    interrupted += 1
            assert interrupted > 10
            assert message == LARGE
            assert await tunnel.receive() == b"next"
            await sending

    simulate(scenario)


def test_chunks_that_are_not_taken_are_left_out() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files") as tunnel:
            sending = asyncio.create_task(send_all(tunnel, [LARGE, b"next"]))
            async for chunk in tunnel.receive_chunks():
                assert LARGE.startswith(chunk)
                break
            assert await tunnel.receive() == b"next"
            await sending

    simulate(scenario)


def test_messages_of_several_tasks_do_not_mix() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        messages = [bytes([number]) * 400_000 for number in range(12)]
        async with caller.tunnel("files") as tunnel:
            sending = [asyncio.create_task(tunnel.send(bytearray(message))) for message in messages]
            received = await asyncio.gather(*(tunnel.receive() for _ in messages))
            await asyncio.gather(*sending)
            assert sorted(received) == messages

    simulate(scenario)


def test_what_is_no_payload_is_refused() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation)
        async with caller.tunnel("files") as tunnel:
            with pytest.raises(TypeError, match="encode it first"):
                await tunnel.send("text")  # type: ignore[arg-type]
            await tunnel.send(memoryview(b"bytes"))
            assert await tunnel.receive() == b"bytes"

    simulate(scenario)


# -- the end


def test_half_close_lets_the_other_half_go_on() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def answer(tunnel: iris.Tunnel) -> None:
            count = len([message async for message in tunnel])
            for number in range(count):
                await tunnel.send(b"%d" % number)

        caller, _member, _server = await pair(simulation, answer)
        async with caller.tunnel("files") as tunnel:
            for _ in range(3):
                await tunnel.send(b"question")
            await tunnel.end()
            await tunnel.end()
            with pytest.raises(iris.TunnelClosed) as raised:
                await tunnel.send(b"too late")
            assert raised.value.is_ours
            assert [message async for message in tunnel] == [b"0", b"1", b"2"]
            with pytest.raises(iris.TunnelClosed) as raised:
                await tunnel.receive()
            assert not raised.value.is_ours
            assert raised.value.member == tunnel.member

    simulate(scenario)


def test_a_close_returns_when_everything_was_taken() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        taken: list[bytes] = []

        async def slow(tunnel: iris.Tunnel) -> None:
            async for message in tunnel:
                await asyncio.sleep(1.0)
                taken.append(message)

        caller, _member, _server = await pair(simulation, slow)
        started = now()
        async with caller.tunnel("files") as tunnel:
            for message in (b"a", b"b", b"c"):
                await tunnel.send(message)
        assert taken == [b"a", b"b"]  # and the third is in its hands
        assert now() - started >= 2.0
        await tunnel.close()
        with pytest.raises(iris.TunnelClosed):
            await tunnel.send(b"c")

    simulate(scenario)


def test_a_close_that_nobody_follows_breaks_the_tunnel() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation, idle)
        tunnel = await caller.tunnel("files")
        await tunnel.send(b"never read")
        started = now()
        with pytest.raises(iris.TunnelBroken, match="made no progress for 5 s"):
            await tunnel.close(timeout=5.0)
        assert 5.0 <= now() - started <= 5.1
        await simulation.until(lambda: open_tunnels(caller, member) == [0, 0])
        assert server.ends == []  # the handler is not cancelled: it will see it

    simulate(scenario)


def test_a_member_that_returns_early_says_what_it_did_not_take() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def first_only(tunnel: iris.Tunnel) -> None:
            await tunnel.send(await tunnel.receive())

        caller, member, server = await pair(simulation, first_only)
        tunnel = await caller.tunnel("files")
        await tunnel.send(b"taken")
        await tunnel.send(b"not taken")
        assert await tunnel.receive() == b"taken"
        with pytest.raises(iris.TunnelClosed):
            await tunnel.receive()
        with pytest.raises(iris.TunnelBroken, match="before it had received all data"):
            await tunnel.send(b"more")
        with pytest.raises(iris.TunnelBroken, match="before it had received all data"):
            await tunnel.close()
        async with caller.tunnel("files") as tunnel:  # and if it has taken everything, all is well
            await tunnel.send(b"taken")
            assert [message async for message in tunnel] == [b"taken"]
            with pytest.raises(iris.TunnelClosed) as raised:
                await tunnel.send(b"more")
            assert not raised.value.is_ours
        await simulation.until(lambda: is_forgotten(caller, member))
        assert server.ends == [None, None]

    simulate(scenario)


def test_what_a_handler_raises_reaches_the_caller_after_what_it_sent() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def fail(tunnel: iris.Tunnel) -> None:
            await tunnel.send(b"before")
            raise LookupError("no such file")

        caller, member, _server = await pair(simulation, fail)
        tunnel = await caller.tunnel("files")
        assert await tunnel.receive() == b"before"
        for attempt in (tunnel.receive(), tunnel.send(b"more")):
            with pytest.raises(iris.TunnelBroken, match="LookupError: no such file"):
                await attempt
        with pytest.raises(iris.TunnelBroken, match="LookupError: no such file") as raised:
            await tunnel.close()
        error = raised.value
        assert (error.type, error.text, error.cluster, error.member) == ("LookupError", "no such file", "files", member.id)
        await tunnel.close()  # it was closed before
        await simulation.until(lambda: is_forgotten(caller, member))

    simulate(scenario)


def test_an_exception_that_leaves_the_block_breaks_the_tunnel() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation)

        async def fail() -> None:
            async with caller.tunnel("files") as tunnel:
                await tunnel.send(b"message")
                raise ZeroDivisionError("oh")

        with pytest.raises(ZeroDivisionError):
            await fail()
        await simulation.until(lambda: server.ends)
        (error,) = server.ends
        assert isinstance(error, iris.TunnelBroken)
        assert (error.type, error.text, error.member) == ("ZeroDivisionError", "oh", caller.id)
        await simulation.until(lambda: is_forgotten(caller, member))

    simulate(scenario)


def test_a_send_that_is_cancelled_between_messages_harms_nothing_and_within_one_breaks() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation, idle, tunnel_window_bytes=5000)
        tunnel = await caller.tunnel("files")
        await tunnel.send(bytes(4900))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await tunnel.send(b"message")  # no credit, so nothing of it has left
        assert tunnel._core.failure is None
        tunnel = await caller.tunnel("files")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await tunnel.send(LARGE)
        with pytest.raises(iris.TunnelBroken, match="in the middle of a message"):
            await tunnel.send(b"message")

    simulate(scenario)


def test_a_source_that_fails_in_the_middle_of_a_message_breaks_the_tunnel() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def failing() -> AsyncIterator[bytes]:
            yield b"some"
            raise OSError("the disk is gone")

        caller, _member, server = await pair(simulation)
        tunnel = await caller.tunnel("files")
        with pytest.raises(OSError, match="the disk is gone"):
            await tunnel.send_chunks(failing())
        await simulation.until(lambda: server.ends)
        assert isinstance(server.ends[0], iris.TunnelBroken)
        assert server.ends[0].type == "OSError"

    simulate(scenario)


# -- opening


def test_nobody_or_nobody_with_tunnels_is_said_at_once() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("plain", lambda request: request.payload, inline=True)
        started = now()
        with pytest.raises(iris.NoMembers, match="nobody serves") as raised:
            await caller.tunnel("files", timeout=60.0)
        with pytest.raises(iris.NoMembers, match="serves tunnels") as raised:
            await caller.tunnel("plain", timeout=60.0)
        assert raised.value.without_tunnels == 1
        assert now() - started < 0.1
        assert member.statistics().rejected == {"no_tunnels": 1}

    simulate(scenario)


def test_a_full_member_is_passed_over_and_all_full_are_overloaded() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, *members = await simulation.start_nodes(3)
        for member in members:
            await member.join("files", Server(echo), tunnels=2)
        tunnels = [await caller.tunnel("files") for _ in range(4)]
        assert sorted(tunnel.member for tunnel in tunnels) == sorted(member.id for member in members * 2)
        with pytest.raises(iris.Overloaded) as raised:
            await caller.tunnel("files", on_full="raise")
        assert raised.value.tried == 2
        await tunnels[0].close()
        async with caller.tunnel("files") as again:
            assert again.member == tunnels[0].member
        await asyncio.gather(*(tunnel.close() for tunnel in tunnels))

    simulate(scenario)


def test_an_opening_that_is_given_up_starts_no_handler_and_leaves_nothing() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation, tunnels=1)
        await caller.members("files")
        for delay_s in (0.0, 0.0001, 0.0005, 0.001, 0.002, 0.004):
            opening = asyncio.ensure_future(_open(caller))
            await asyncio.sleep(delay_s)
            opening.cancel()
            try:
                await (await opening).close()
            except asyncio.CancelledError:
                pass
            await simulation.until(lambda: is_forgotten(caller, member))
        assert len(server.tunnels) == len(server.ends)
        async with caller.tunnel("files") as tunnel:  # the only place is free
            await tunnel.send(b"here")
            assert await tunnel.receive() == b"here"

    simulate(scenario)


async def _open(node: Node) -> iris.Tunnel:
    return await node.tunnel("files")


@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5, 6, 7, 8])
def test_a_member_that_is_lost_before_it_accepts_is_replaced(seed: int) -> None:
    """Also if it has kept the list of members, which the caller asks the next node for then.

    With some other ids the next node is the caller, which was told nothing of the second member while the first one was silent.
    """

    async def scenario(simulation: NodeSimulation) -> None:
        caller, first, second = await simulation.start_nodes(3)
        await first.join("files", Server(echo))
        await caller.members("files")
        simulation.stall(first, caller)
        opening = asyncio.ensure_future(_open_patiently(caller))
        await asyncio.sleep(0.1)
        await second.join("files", Server(echo))
        tunnel = await opening
        assert tunnel.member == second.id
        await tunnel.close()

    simulate(scenario, seed=seed)


async def _open_patiently(node: Node) -> iris.Tunnel:
    return await node.tunnel("files", timeout=30.0)


def test_an_opening_without_an_answer_times_out_and_the_member_forgets_it() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation)
        await caller.members("files")
        simulation.stall(member, caller)
        with pytest.raises(iris.RequestTimeout):
            await caller.tunnel("files", timeout=1.0)
        await simulation.until(lambda: open_tunnels(member) == [0], limit_s=2.0)
        assert server.tunnels == []

    simulate(scenario)


@pytest.mark.parametrize(
    "options", [{"timeout": 0.0}, {"timeout": float("inf")}, {"window_bytes": 4095}, {"window_bytes": 1 << 31}]
)
def test_arguments_are_checked(options: dict[str, Any]) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        with pytest.raises(iris.ConfigurationError):
            node.tunnel("files", **options)
        with pytest.raises(iris.ConfigurationError):
            await node.tunnel("")
        with pytest.raises(iris.ConfigurationError):
            node.join("files", Server(echo), tunnel_window_bytes=1)
        with pytest.raises(iris.ConfigurationError):
            node.join("files", Server(echo), tunnels=-1)

    simulate(scenario)


# -- what breaks


def test_a_member_that_is_killed_breaks_its_tunnels_at_once() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, _server = await pair(simulation, idle, tunnel_window_bytes=5000)
        receiving, sending = await caller.tunnel("files"), await caller.tunnel("files")
        tasks = [asyncio.create_task(receiving.receive()), asyncio.create_task(sending.send(LARGE))]
        await asyncio.sleep(1.0)
        simulation.kill(member)
        started = now()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, iris.TunnelBroken)
        assert now() - started < 0.1
        assert is_forgotten(caller)

    simulate(scenario)


def test_a_caller_that_is_killed_breaks_its_tunnels_at_once() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation)
        await caller.tunnel("files")
        await simulation.until(lambda: server.tunnels)
        simulation.kill(caller)
        await simulation.until(lambda: server.ends, limit_s=0.1)
        assert isinstance(server.ends[0], iris.TunnelBroken)
        await simulation.until(lambda: is_forgotten(member), limit_s=0.1)

    simulate(scenario)


def test_a_half_open_link_breaks_an_idle_tunnel_on_both_sides() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation)
        tunnel = await caller.tunnel("files")
        await asyncio.sleep(60.0)  # an open tunnel keeps its link, though nothing moves
        await tunnel.send(b"there?")
        assert await tunnel.receive() == b"there?"
        receiving = asyncio.create_task(tunnel.receive())
        await asyncio.sleep(20.0)
        simulation.partition([caller], [member])
        started = now()
        with pytest.raises(iris.TunnelBroken, match="nothing heard for"):
            await receiving
        assert now() - started <= LOST_WITHIN_S
        await simulation.until(lambda: server.ends, limit_s=1.0)
        assert isinstance(server.ends[0], iris.TunnelBroken)

    simulate(scenario)


def test_a_link_is_kept_while_a_tunnel_is_open_on_it() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        nodes = await simulation.start_nodes(20)  # more than neighbours keep links to
        await simulation.until(simulation.is_converged)
        order = sorted(nodes, key=lambda node: node.id)
        caller, member = order[0], order[10]
        server = Server(echo)
        await member.join("files", server)
        tunnel = await caller.tunnel("files")
        await asyncio.sleep(3 * LINK_IDLE_S)
        await tunnel.send(b"there?")
        assert await tunnel.receive() == b"there?"
        await tunnel.close()

    simulate(scenario)


def test_a_node_that_closes_breaks_the_tunnels_that_it_has_open() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, server = await pair(simulation)
        tunnel = await caller.tunnel("files")
        await tunnel.send(b"message")
        receiving = asyncio.create_task(tunnel.receive())
        assert await receiving == b"message"
        receiving = asyncio.create_task(tunnel.receive())
        await asyncio.sleep(0.1)
        await caller.close()
        with pytest.raises(iris.TunnelBroken, match="this node was closed"):
            await receiving
        with pytest.raises(iris.NodeClosed):
            caller.tunnel("files")
        assert isinstance(server.ends[0], iris.TunnelBroken)
        assert server.ends[0].type == "NodeClosed"

    simulate(scenario)


def test_leaving_lets_tunnels_finish_and_cuts_them_off_in_time() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        server = Server(echo)
        membership = await member.join("files", server)
        finishing, staying = await caller.tunnel("files"), await caller.tunnel("files")
        leaving = asyncio.create_task(membership.leave(timeout=5.0))
        await asyncio.sleep(1.0)
        with pytest.raises(iris.NoMembers):
            await caller.tunnel("files")
        await finishing.send(b"last")
        assert await finishing.receive() == b"last"
        await finishing.close()
        assert not leaving.done()
        started = now()
        with pytest.raises(iris.TunnelBroken, match="CancelledError"):
            await staying.receive()
        assert now() - started <= 4.1
        await leaving
        await simulation.until(lambda: is_forgotten(caller, member))

    simulate(scenario)


# -- back-pressure and fairness


def test_a_slow_reader_slows_the_writer() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        async def slow(tunnel: iris.Tunnel) -> None:
            async for _message in tunnel:
                await asyncio.sleep(0.01)  # 100 messages of 10 KB a second

        caller, _member, _server = await pair(simulation, slow, tunnel_window_bytes=100_000)
        tunnel = await caller.tunnel("files")
        sent, started = 0, now()
        while now() - started < 10.0:
            await tunnel.send(bytes(10_000))
            sent += 1
        assert 990 <= sent <= 1_000 + 25

    simulate(scenario)


def test_a_hundred_tunnels_share_a_link_evenly() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        received: dict[str, int] = {}

        async def count(tunnel: iris.Tunnel) -> None:
            async for chunk in tunnel.receive_chunks():
                received[tunnel.id] = received.get(tunnel.id, 0) + len(chunk)

        caller, _member, _server = await pair(simulation, count)
        tunnels = [await caller.tunnel("files") for _ in range(100)]
        tasks = []
        for number, tunnel in enumerate(tunnels):
            # Some send large pieces and some small ones, some began earlier: each gets the same.
            tasks.append(asyncio.create_task(_pour(tunnel, 500 + 997 * number)))
            await asyncio.sleep(0.001)
        await asyncio.sleep(2.0)
        before = dict(received)
        await asyncio.sleep(20.0)
        moved = [received[each] - before[each] for each in before]
        assert len(moved) == 100
        assert sum(moved) > 0.9 * 20.0 * 10e6
        assert max(moved) - min(moved) <= 0.1 * sum(moved) / 100
        for task in tasks:
            task.cancel()
        assert {str(type(each)) for each in await asyncio.gather(*tasks, return_exceptions=True)} == {
            "<class 'asyncio.exceptions.CancelledError'>"
        }

    simulate(scenario, bandwidth_bytes_s=10e6)


async def _pour(tunnel: iris.Tunnel, size: int) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(size)

    await tunnel.send_chunks(endless())


def test_a_small_request_does_not_wait_behind_a_tunnel() -> None:
    class Both(Server):
        async def on_request(self, request: iris.Request) -> bytes:
            return request.payload

    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("files", Both(forget), tunnel_window_bytes=64_000_000)
        tunnel = await caller.tunnel("files")
        pouring = asyncio.create_task(_pour(tunnel, 100_000))
        await asyncio.sleep(5.0)
        waited = []
        for _ in range(50):
            started = now()
            assert await caller.request("files", b"?") == b"?"
            waited.append(now() - started)
            await asyncio.sleep(0.01)
        # The link takes 100 ms for a megabyte, of which the window lets 64 through. The first request finds half a one queued.
        assert waited[0] < 0.1
        assert max(waited[1:]) < 0.03
        assert not pouring.done()
        pouring.cancel()
        await asyncio.gather(pouring, return_exceptions=True)

    simulate(scenario, bandwidth_bytes_s=10e6)


def test_a_small_request_does_not_wait_behind_large_ones() -> None:
    async def answer(request: iris.Request) -> bytes:
        return request.payload[:1]

    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("files", answer)
        large = [asyncio.create_task(caller.request("files", bytes(8_000_000), timeout=60.0)) for _ in range(3)]
        await asyncio.sleep(0.5)
        for _ in range(10):
            started = now()
            assert await caller.request("files", b"?") == b"?"
            assert now() - started < 0.1  # half a megabyte at most is in the buffers of the system
        assert not all(task.done() for task in large)
        assert await asyncio.gather(*large) == [b"\0"] * 3

    simulate(scenario, bandwidth_bytes_s=10e6)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_silently_whatever_breaks(seed: int) -> None:
    """A sender numbers its messages, links break at any time: what is received is a beginning of what was sent."""

    async def scenario(simulation: NodeSimulation) -> None:
        rng = random.Random(seed)
        received: dict[str, list[int]] = {}

        async def record(tunnel: iris.Tunnel) -> None:
            async for message in tunnel:
                received.setdefault(tunnel.id, []).append(int.from_bytes(message[:4], "big"))

        caller, member, _server = await pair(simulation, record)
        outcomes = 0
        for _ in range(15):
            sent, id_ = 0, ""
            try:
                async with caller.tunnel("files", timeout=10.0) as tunnel:
                    id_ = tunnel.id
                    asyncio.get_running_loop().call_later(
                        rng.uniform(0.0, 0.05), simulation.reset, rng.choice([caller, member])
                    )
                    for _number in range(rng.randrange(200)):
                        await tunnel.send(sent.to_bytes(4, "big") + bytes(rng.randrange(20_000)))
                        sent += 1
            except iris.TunnelBroken:
                assert received.get(id_, []) == list(range(len(received.get(id_, []))))
                outcomes |= 1
            except (iris.RequestTimeout, iris.NoMembers):
                outcomes |= 4
            else:
                assert received.get(id_, []) == list(range(sent))
                outcomes |= 2
        assert outcomes & 3 == 3

    simulate(scenario, seed=seed, bandwidth_bytes_s=20e6)


def test_a_tunnel_that_opens_while_its_caller_gives_up_is_broken() -> None:
    """Both in one turn of the event loop: the caller never sees the tunnel, so nobody else could end it."""

    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, server = await pair(simulation, echo)
        handle = caller._parts.tunnels.handle_opened

        async def open_tunnel() -> iris.Tunnel:
            return await caller.tunnel("files")

        opening = asyncio.ensure_future(open_tunnel())

        def open_and_give_up(event: Any) -> None:
            handle(event)
            opening.cancel()

        caller._parts.reactions[TunnelOpened] = open_and_give_up
        with pytest.raises(asyncio.CancelledError):
            await opening
        await simulation.until(lambda: server.ends)
        assert isinstance(server.ends[0], iris.TunnelBroken)
        await simulation.until(lambda: is_forgotten(caller, member))

    simulate(scenario)


def test_a_small_message_is_sent_without_a_turn_of_the_event_loop_and_many_let_others_have_theirs() -> None:
    async def drain(tunnel: iris.Tunnel) -> None:
        async for _message in tunnel:
            pass

    async def scenario(simulation: NodeSimulation) -> None:
        caller, _member, _server = await pair(simulation, drain)
        async with caller.tunnel("files") as tunnel:
            with pytest.raises(StopIteration):
                tunnel.send(b"small").send(None)
            turns = 0
            for _ in range(8000):
                try:
                    tunnel.send(b"small").send(None)
                except StopIteration:
                    continue
                turns += 1
                await asyncio.sleep(0)
            assert 0 < turns < 80

    simulate(scenario)
