"""Two channels that are one: ends, breaks and memory are as if nobody were between them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.federation.channels import FAR_SIDE, NUMBER, QUEUED_BYTES_MAX
from iris_py.gateway.splice import splice
from iris_py.patterns.tunnel.duplex import DONE, FRAME, PIECE_CHARGE, Failure
from iris_py.testing import run
from tests.unit.iris_py.gateway.joined import JoinedChannels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.gateway.duplex import Channel

WINDOW_BYTES = 100_000
LARGE = bytes(range(250)) * 8000


class Chain:
    """One program, one line, a splice, another line, another program.

    Attributes:
        caller: The end of one program.
        member: The end of the other one.
        middle: What is spliced.
        splicing: The splice.
    """

    def __init__(self, lines: tuple[JoinedChannels, JoinedChannels]) -> None:
        self.lines = lines
        self.caller, one = lines[0].open(window_bytes=WINDOW_BYTES)
        other, self.member = lines[1].open(window_bytes=WINDOW_BYTES)
        self.middle = one, other
        self.splicing = asyncio.ensure_future(splice(one, other))

    async def settle(self) -> None:
        """Wait until nothing is left of it."""
        await asyncio.wait([self.splicing])
        await asyncio.sleep(1.0)
        for line in self.lines:
            assert [len(table) for table in line.tables] == [0, 0]


def chained(use: Callable[[Chain], Awaitable[None]]) -> None:
    async def main() -> None:
        async with JoinedChannels(0.02) as first, JoinedChannels(0.05) as second:
            chain = Chain((first, second))
            await use(chain)
            await chain.settle()

    run(main(), limit_s=600.0)


async def drain(end: Channel) -> list[bytes]:
    return [message async for message in end]


def test_messages_pass_both_ways_in_order_and_each_direction_ends_by_itself() -> None:
    async def use(chain: Chain) -> None:
        there, back = [b"", b"a", LARGE, b"b"], [LARGE, b"", LARGE]

        async def send(end: Channel, messages: list[bytes]) -> None:
            for message in messages:
                await end.send(message)
            await end.end()

        sending = asyncio.ensure_future(send(chain.caller, there))
        assert await drain(chain.member) == there
        await sending
        assert not chain.splicing.done()
        sending = asyncio.ensure_future(send(chain.member, back))
        assert await drain(chain.caller) == back
        await sending
        await asyncio.gather(chain.caller.close(), chain.member.close())
        await chain.splicing
        assert not any(line.drops for line in chain.lines)

    chained(use)


def test_closing_returns_when_the_far_program_has_taken_everything_and_not_before() -> None:
    async def use(chain: Chain) -> None:
        for number in range(5):
            await chain.caller.send(bytes([number]) * 1000)
        closing = asyncio.ensure_future(chain.caller.close())
        for number in range(5):
            await asyncio.sleep(5.0)
            assert not closing.done()
            assert await chain.member.receive() == bytes([number]) * 1000
        await closing
        await chain.member.close()
        await chain.splicing

    chained(use)


def test_closing_sees_that_something_moves_however_long_it_takes() -> None:
    async def use(chain: Chain) -> None:
        await chain.caller.send(bytes(2 * WINDOW_BYTES - 50_000))
        closing = asyncio.ensure_future(chain.caller.close(timeout=5.0))
        size, taken = 2 * WINDOW_BYTES - 50_000, 0
        while taken < size:
            entry = await chain.member.take_piece()
            assert entry is not None
            taken += len(entry[0])
            await asyncio.sleep(1.5)
        await closing
        await chain.member.close()
        await chain.splicing

    chained(use)


@pytest.mark.parametrize("unread", [1, 3])
def test_a_far_program_that_returns_early_is_not_said_to_have_taken_everything(unread: int) -> None:
    async def use(chain: Chain) -> None:
        for _ in range(unread):
            await chain.caller.send(b"never read")
        await asyncio.sleep(1.0)  # the middle has taken it
        await chain.member.close()
        with pytest.raises(iris.TunnelBroken, match="before it had received all data"):
            await chain.caller.close()
        await chain.splicing

    chained(use)


def test_a_piece_that_the_splice_holds_was_not_taken() -> None:
    async def use(chain: Chain) -> None:
        one, other = chain.middle
        while other._core.credit >= PIECE_CHARGE:
            other._core.write(bytes(min(30_000, other._core.credit - PIECE_CHARGE)), is_last=True)
        other._wake()
        await chain.caller.send(b"held")
        await chain.caller.end()
        await asyncio.sleep(1.0)
        assert not one._core.can_take
        # The far side has taken all that it was sent, and takes no more: that does not cover the piece in between.
        body = FRAME.pack(DONE, 8) + other._core.written.to_bytes(8, "big")
        chain.lines[1].tables[0].receive(NUMBER.pack(other._core.id | FAR_SIDE), body, 0, len(body), 0.0)
        chain.lines[1].wake()
        with pytest.raises(iris.TunnelBroken, match="before it had received all data"):
            await chain.caller.close()
        await chain.member._exit(LookupError("the test is over"))
        chain.splicing.cancel()

    chained(use)


def test_what_the_far_side_said_before_the_splice_counts() -> None:
    async def main() -> None:
        async with JoinedChannels() as first, JoinedChannels() as second:
            caller, one = first.open(window_bytes=WINDOW_BYTES)
            other, member = second.open(window_bytes=WINDOW_BYTES)
            member._core.stop()
            member._wake()
            await asyncio.sleep(1.0)
            splicing = asyncio.ensure_future(splice(one, other))
            await asyncio.sleep(1.0)
            assert one._core.is_stopped  # and the caller is told, before it sends anything
            with pytest.raises(iris.TunnelClosed):
                await caller.send(b"late")
            await asyncio.gather(caller.close(), member.close(), splicing)

    run(main(), limit_s=60.0)


def test_what_was_over_before_the_splice_stays_so() -> None:
    async def main() -> None:
        async with JoinedChannels() as first, JoinedChannels() as second:
            caller, one = first.open(window_bytes=WINDOW_BYTES)
            other, member = second.open(window_bytes=WINDOW_BYTES)
            await asyncio.gather(member.close(), other.close())
            splicing = asyncio.ensure_future(splice(one, other))
            with pytest.raises(iris.TunnelClosed):
                await caller.receive()
            await asyncio.gather(caller.close(), splicing)
            assert [len(table) for line in (first, second) for table in line.tables] == [0] * 4

    run(main(), limit_s=60.0)


def test_a_caller_that_stops_early_ends_what_the_member_sends() -> None:
    async def use(chain: Chain) -> None:
        sending = asyncio.ensure_future(chain.member.send(LARGE))
        await asyncio.sleep(1.0)
        await chain.caller.close()
        with pytest.raises(iris.TunnelBroken):
            await sending
        await chain.splicing

    chained(use)


def test_a_break_passes_with_type_and_text_behind_what_came_before_it() -> None:
    async def use(chain: Chain) -> None:
        for number in range(3):
            await chain.member.send(bytes([number]))
        await chain.member._exit(LookupError("no such file"))
        for number in range(3):
            assert await chain.caller.receive() == bytes([number])
        with pytest.raises(iris.TunnelBroken) as broken:
            await chain.caller.receive()
        assert (broken.value.type, broken.value.text) == ("LookupError", "no such file")
        with pytest.raises(iris.TunnelBroken, match="no such file"):
            await chain.splicing

    chained(use)


def test_a_break_passes_though_the_other_side_takes_nothing() -> None:
    async def use(chain: Chain) -> None:
        sending = asyncio.ensure_future(chain.caller.send(LARGE))
        await asyncio.sleep(5.0)
        assert not sending.done()  # both windows are full
        sending.cancel()
        await asyncio.sleep(1.0)
        failure = chain.member._core.failure
        assert failure is not None
        assert failure.type == "CancelledError"
        with pytest.raises(iris.TunnelBroken):
            await chain.splicing

    chained(use)


def test_a_break_after_one_direction_has_ended_passes_too() -> None:
    async def use(chain: Chain) -> None:
        await chain.caller.end()
        with pytest.raises(iris.TunnelClosed):
            await chain.member.receive()
        await chain.caller._exit(LookupError("oh"))
        with pytest.raises(iris.TunnelBroken, match="oh"):
            await chain.member.send(await asyncio.sleep(1.0, b"late"))
        with pytest.raises(iris.TunnelBroken, match="oh"):
            await chain.splicing

    chained(use)


def test_a_line_that_is_lost_breaks_the_other_one_and_says_why() -> None:
    async def use(chain: Chain) -> None:
        receiving = asyncio.ensure_future(chain.member.receive())
        await asyncio.sleep(1.0)
        chain.lines[0].cut("the line was cut")
        with pytest.raises(iris.TunnelBroken) as broken:
            await receiving
        assert (broken.value.type, broken.value.text) == ("TunnelBroken", "the line was cut")
        with pytest.raises(iris.TunnelBroken, match="the line was cut"):
            await chain.splicing

    chained(use)


def test_to_cancel_it_breaks_both_sides() -> None:
    async def use(chain: Chain) -> None:
        receiving = [asyncio.ensure_future(end.receive()) for end in (chain.caller, chain.member)]
        await asyncio.sleep(1.0)
        chain.splicing.cancel()
        for result in await asyncio.gather(*receiving, return_exceptions=True):
            assert isinstance(result, iris.TunnelBroken)
            assert result.type == "CancelledError"
        assert chain.splicing.cancelled()

    chained(use)


def test_what_was_broken_before_breaks_the_other_at_once() -> None:
    async def main() -> None:
        async with JoinedChannels() as first, JoinedChannels() as second:
            caller, one = first.open()
            other, member = second.open()
            one._core.fail(Failure("before"), is_told=True)
            with pytest.raises(iris.TunnelBroken, match="before"):
                await splice(one, other)
            for end in (caller, member):
                with pytest.raises(iris.TunnelBroken):
                    await end.receive()

    run(main(), limit_s=60.0)


def test_a_reader_that_stalls_costs_two_windows_and_no_more() -> None:
    async def use(chain: Chain) -> None:
        one, other = chain.middle
        digest, size, most = hashlib.sha256(), 30 * len(LARGE), 0

        async def send() -> None:
            for _ in range(30):
                await chain.caller._write_piece(LARGE, is_last=False)
            await chain.caller._write_piece(b"", is_last=True)
            await chain.caller.end()

        def held() -> int:
            return one._core.buffered_bytes + other._core.queued_bytes

        sending = asyncio.ensure_future(send())
        await asyncio.sleep(60.0)
        assert chain.caller._core.credit <= 64
        assert held() <= WINDOW_BYTES + QUEUED_BYTES_MAX
        taken = 0
        while (entry := await chain.member.take_piece()) is not None:
            digest.update(entry[0])
            taken += len(entry[0])
            most = max(most, held())
        await sending
        assert taken == size
        assert digest.digest() == hashlib.sha256(LARGE * 30).digest()
        assert most <= one._core.window_bytes + QUEUED_BYTES_MAX  # the window has grown meanwhile
        await asyncio.gather(chain.caller.close(), chain.member.close())
        await chain.splicing

    chained(use)
