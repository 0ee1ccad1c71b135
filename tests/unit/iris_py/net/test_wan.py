"""Options of sockets for long lines, read back from real streams at both ends."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from iris_py.net import sockets
from iris_py.net.sockets import NOTSENT_BYTES_MAX, NOTSENT_WAN_BYTES_MAX, USER_TIMEOUT_S, SocketNetwork, WanNetwork

if TYPE_CHECKING:
    from collections.abc import Callable


HERE = "127.0.0.1"
PATIENCE_S = 30.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="options of Linux")


class Peer(asyncio.BufferedProtocol):
    """Knows its transport."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.made = asyncio.Event()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.made.set()

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(16)

    def buffer_updated(self, nbytes: int) -> None:
        raise AssertionError("nobody sends here")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.set()

    def option(self, option: int, size: int = 0) -> int | bytes:
        return cast("int | bytes", self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, option, size))

    def number(self, option: int) -> int:
        return int.from_bytes(cast("bytes", self.option(option, 4)), sys.byteorder)

    def congestion(self) -> str:
        return cast("bytes", self.option(socket.TCP_CONGESTION, 16)).rstrip(b"\0").decode()

    def buffer_bytes(self) -> int:
        return cast("int", self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))


@pytest.fixture(params=[asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return cast("Callable[[], asyncio.AbstractEventLoop]", request.param)


def look(
    network: SocketNetwork, loop_factory: Callable[[], asyncio.AbstractEventLoop], *looks: Callable[[Peer], object]
) -> object:
    """Return what is seen of a dialled stream and of the accepted end of it, each in the order of the looks."""

    async def main() -> list[list[object]]:
        accepted: asyncio.Queue[Peer] = asyncio.Queue()

        def accept() -> Peer:
            peer = Peer()
            accepted.put_nowait(peer)
            return peer

        listener = await network.listen(accept, HERE, 0)
        async with asyncio.timeout(PATIENCE_S):
            ends = [await network.dial(Peer, *listener.address), await accepted.get()]
            await ends[1].made.wait()
            seen = [[each(end) for each in looks] for end in ends]
            for end in ends:
                end.transport.close()
                await end.lost.wait()
        listener.close()
        return seen

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(main())


def test_both_ends_have_the_options(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    numbers = [
        lambda peer: bool(peer.number(socket.TCP_NODELAY)),
        lambda peer: peer.number(socket.TCP_NOTSENT_LOWAT),
        lambda peer: peer.number(socket.TCP_USER_TIMEOUT),
    ]
    expected = [True, NOTSENT_WAN_BYTES_MAX, 1_000 * USER_TIMEOUT_S]
    assert look(WanNetwork(), loop_factory, *numbers) == [expected, expected]
    for values in cast("list[list[int]]", look(SocketNetwork(), loop_factory, *numbers)):
        assert values == [True, NOTSENT_BYTES_MAX, 0]


def test_congestion_control_is_the_one_asked_for(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    # Every Linux has it, and nobody need be root for it.
    assert look(WanNetwork(congestion="reno"), loop_factory, Peer.congestion) == [["reno"], ["reno"]]
    assert not caplog.records


def test_a_short_line_keeps_the_congestion_control_of_the_system(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = look(WanNetwork(congestion=""), loop_factory, Peer.congestion)
    monkeypatch.setattr(sockets, "CONGESTION", "reno")  # which every Linux has, and nobody need be root for
    monkeypatch.setattr(sockets, "SHORT_S", 3600.0)
    assert look(WanNetwork(congestion="reno"), loop_factory, Peer.congestion) == usual
    monkeypatch.setattr(sockets, "SHORT_S", 0.0)
    assert look(WanNetwork(congestion="reno"), loop_factory, Peer.congestion) == [["reno"], ["reno"]]


def test_what_the_system_does_not_have_is_said_once(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    usual = look(WanNetwork(congestion=""), loop_factory, Peer.congestion)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        network = WanNetwork(congestion="no-such-thing")
        for _ in range(2):
            assert look(network, loop_factory, Peer.congestion) == usual
    (said,) = [record.getMessage() for record in caplog.records if record.name == "iris_py.net"]
    assert said.startswith("congestion control 'no-such-thing' is not available (No such file or directory)")
    assert "modprobe tcp_no-such-thing, and" in said


def test_the_buffer_is_left_to_the_kernel(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    assert look(WanNetwork(), loop_factory, Peer.buffer_bytes) == look(SocketNetwork(), loop_factory, Peer.buffer_bytes)
