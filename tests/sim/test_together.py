"""Handlers that answer several requests with one call, on the simulated network."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.api.bulk_requester import Asker
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(frozen=True)
class Question:
    key: str
    payload: bytes


class Batcher(iris.Handler):
    """Answers with the payload, upper case; fails for those of b"fail"; waits for ``gate`` if it is closed.

    Attributes:
        calls: The payloads of each call.
        ended: How many calls returned, or were cancelled.
        cancelled: How many calls were cancelled.
        answer: What a call returns instead, if not None.
    """

    def __init__(self) -> None:
        self.calls: list[list[bytes]] = []
        self.ended = 0
        self.cancelled = 0
        self.answer: Any = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun = asyncio.Event()
        self.over = asyncio.Event()

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        self.calls.append([request.payload for request in requests])
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.ended += 1
            self.over.set()
        if self.answer is not None:
            return self.answer  # type: ignore[no-any-return]
        return [LookupError("as you wish") if each.payload == b"fail" else each.payload.upper() for each in requests]


@asynccontextmanager
async def start_pair(
    *, bandwidth_bytes_s: float | None = None, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> AsyncIterator[tuple[iris.Node, iris.Node]]:
    """Start a caller and a server. Something is under way between them all the time: a request that is alone leaves at once,
    and those of the same turn behind it."""
    async with NodeSimulation(seed=1, bandwidth_bytes_s=bandwidth_bytes_s) as simulation:
        caller = await simulation.start_node()
        server = await simulation.start_node(max_message_bytes=max_message_bytes)
        held = asyncio.Event()

        async def hold(_request: iris.Request) -> bytes:
            held.set()
            await asyncio.sleep(3600)  # virtual
            return b""

        await server.join("hold", hold)
        holding = asyncio.create_task(caller.request("hold", b"", timeout=3600))
        await held.wait()
        yield caller, server
        holding.cancel()


async def ask(node: iris.Node, payloads: Sequence[bytes], *, idempotent: bool = True) -> list[bytes | BaseException]:
    """Ask all of these at the same time."""
    requests = [node.request("work", payload, timeout=60, idempotent=idempotent) for payload in payloads]
    return await asyncio.gather(*requests, return_exceptions=True)


@pytest.mark.parametrize("idempotent", [True, False])
def test_what_comes_together_is_one_call(idempotent: bool) -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            await server.join("work", handler)
            await caller.members("work")
            payloads = [b"p%d" % number for number in range(50)]
            assert await ask(caller, payloads, idempotent=idempotent) == [payload.upper() for payload in payloads]
            assert handler.calls == [payloads]

    run(scenario(), limit_s=60)


def test_a_call_gets_at_most_what_there_is_room_for_and_those_that_waited_come_together() -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            handler.gate.clear()
            await server.join("work", handler, concurrency=4)
            await caller.members("work")
            told: list[tuple[Question, bytes | iris.IrisError]] = []
            is_told = asyncio.Event()

            def tell(outcomes: list[tuple[Question, bytes | iris.IrisError]]) -> None:
                told.extend(outcomes)
                if len(told) == 10:
                    is_told.set()

            asker: Asker[Question] = Asker(caller, "work", 60.0, tell)
            asker.ask([Question(f"{number}", b"p%d" % number) for number in range(10)])
            await handler.begun.wait()
            handler.gate.set()
            await is_told.wait()
            assert sorted(outcome for _question, outcome in told if isinstance(outcome, bytes)) == [
                b"P%d" % number for number in range(10)
            ]
            assert list(map(len, handler.calls)) == [4, 4, 2]

    run(scenario(), limit_s=60)


def test_one_that_fails_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            await server.join("work", Batcher())
            one, failed, two = await ask(caller, [b"one", b"fail", b"two"])
            assert (one, two) == (b"ONE", b"TWO")
            assert isinstance(failed, iris.RemoteError)
            assert "LookupError: as you wish" in str(failed)
            assert await ask(caller, [b"after"]) == [b"AFTER"]

    run(scenario(), limit_s=60)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ([b"one"], "on_requests returned 1 replies to 3 requests"),
        (b"one", "on_requests returned bytes"),
        (iter([b"1", b"2", b"3"]), "on_requests returned list_iterator"),
        ([b"1", "2", b"3"], "the handler returned str, but a reply must be bytes"),
        ([b"1", None, b"3"], "the handler returned NoneType"),
        ([b"1", bytes(MAX_MESSAGE_BYTES + 1), b"3"], "MessageTooLarge"),
    ],
)
def test_an_answer_that_is_none_is_told(answer: object, told: str) -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            handler.answer = answer
            await server.join("work", handler)
            replies = await ask(caller, [b"a", b"b", b"c"])
            assert isinstance(replies[1], iris.RemoteError)
            assert told in str(replies[1])
            if isinstance(answer, list) and len(answer) == 3:
                assert (replies[0], replies[2]) == (b"1", b"3")
            handler.answer = None
            assert await ask(caller, [b"after"]) == [b"AFTER"]

    run(scenario(), limit_s=60)


def test_the_limit_of_the_node_holds_for_each_answer_of_a_call() -> None:
    """It may be lower than what is handed over at once."""

    async def scenario() -> None:
        async with start_pair(max_message_bytes=2048) as (caller, server):
            handler = Batcher()
            handler.answer = [bytes(2048), bytes(2049), bytes(2047)]
            await server.join("work", handler)
            fits, too_large, fits_too = await ask(caller, [b"a", b"b", b"c"])
            assert (fits, fits_too) == (bytes(2048), bytes(2047))
            assert isinstance(too_large, iris.RemoteError)
            assert "MessageTooLarge: a message of 2049 bytes is over the limit of 2048" in str(too_large)

    run(scenario(), limit_s=60)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_call_is_cancelled_when_nobody_waits_any_more(idempotent: bool) -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            handler.gate.clear()
            await server.join("work", handler, concurrency=3)
            await caller.members("work")
            asked = [
                asyncio.create_task(caller.request("work", payload, timeout=60, idempotent=idempotent))
                for payload in (b"a", b"b", b"c")
            ]
            await handler.begun.wait()
            assert handler.calls == [[b"a", b"b", b"c"]]
            for task in asked[:2]:
                task.cancel()
            await asyncio.wait(asked[:2])
            other = asyncio.create_task(caller.request("work", b"d", timeout=60))  # waits behind them, and comes behind CANCEL
            await asyncio.sleep(1.0)
            assert not handler.over.is_set()
            asked[2].cancel()
            await handler.over.wait()
            assert handler.cancelled == 1
            handler.gate.set()
            assert await other == b"D"

    run(scenario(), limit_s=60)


def test_of_those_that_nobody_waits_for_the_others_get_their_replies() -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            handler.gate.clear()
            await server.join("work", handler)
            asked = [asyncio.create_task(caller.request("work", payload, timeout=60)) for payload in (b"a", b"b", b"c")]
            await handler.begun.wait()
            asked[1].cancel()
            await asyncio.wait([asked[1]])
            await asyncio.sleep(1.0)  # virtual: the CANCEL has arrived
            handler.gate.set()
            assert [await asked[0], await asked[2]] == [b"A", b"C"]

    run(scenario(), limit_s=60)


def test_a_call_that_outlasts_its_membership_is_cancelled_and_everybody_is_told() -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            handler = Batcher()
            handler.gate.clear()
            membership = await server.join("work", handler)
            await caller.members("work")
            asking = asyncio.create_task(ask(caller, [b"a", b"b"], idempotent=False))
            await handler.begun.wait()
            await membership.leave(timeout=1.0)
            for reply in await asking:
                assert isinstance(reply, iris.RemoteError)
                assert "the handler was cancelled" in str(reply)
            assert handler.cancelled == 1

    run(scenario(), limit_s=60)


def test_surveys_are_answered_one_by_one() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, *servers = await simulation.start_nodes(3)
            for server in servers:
                await server.join("work", Batcher())
            await caller.members("work")
            survey = caller.survey("work", b"who", timeout=5)
            assert [reply.payload async for reply in survey] == [b"WHO", b"WHO"]
            failed = await caller.survey("work", b"fail", timeout=5)
            assert [failure.type for failure in failed.failed] == ["LookupError", "LookupError"]

    run(scenario(), limit_s=60)


def test_a_handler_of_nothing_says_so() -> None:
    async def scenario() -> None:
        async with start_pair() as (caller, server):
            await server.join("work", iris.Handler())
            (reply,) = await ask(caller, [b"a"])
            assert "Handler does not answer requests" in str(reply)

    run(scenario(), limit_s=60)


def test_large_replies_wait_for_room() -> None:
    """Each of them reaches its caller, and none ends the link, though together they are more than a link may queue."""

    async def scenario() -> None:
        async with start_pair(bandwidth_bytes_s=50e6) as (caller, server):
            handler = Batcher()
            handler.answer = [bytes((number,)) * 8_000_000 for number in range(12)]
            await server.join("work", handler)
            await caller.members("work")
            handler.gate.clear()
            asking = asyncio.create_task(ask(caller, [b"%d" % number for number in range(12)], idempotent=False))
            await handler.begun.wait()
            handler.gate.set()
            assert await asking == handler.answer
            assert server.statistics().drops == {}

    run(scenario(), limit_s=120)


def test_a_call_that_answers_though_it_was_cancelled_ends_once() -> None:
    """And what it answers waits for room on a link that is full: the end of its task must not end that as well."""

    async def scenario() -> None:
        async with start_pair(bandwidth_bytes_s=50e6) as (caller, server):
            handler = Stubborn()
            membership = await server.join("work", handler, concurrency=12)
            await caller.members("work")
            asking = asyncio.create_task(ask(caller, [b"%d" % number for number in range(12)]))
            await handler.begun.wait()
            leaving = asyncio.create_task(membership.leave(timeout=0.1))
            assert await asking == [bytes((number,)) * 8_000_000 for number in range(12)]
            await leaving

    run(scenario(), limit_s=120)


class Stubborn(Batcher):
    """Answers when it is cancelled, and only then."""

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
        return [bytes((int(request.payload),)) * 8_000_000 for request in requests]
