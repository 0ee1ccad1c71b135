"""Payloads that are values: between nodes, in every pattern, and what becomes of those that do not fit."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py as iris
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SECRET = iris.Secret(bytes(range(32)))


class Ask(msgspec.Struct):
    """A question."""

    symbol: str


class Quote(msgspec.Struct):
    """An answer."""

    symbol: str
    price: float


QUOTES = iris.Codec(Ask, Quote)


class Quotes(iris.Handler[Ask, Quote]):
    """Answers, declines what it does not know, and notes what it is told."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.told: list[iris.Message[Ask]] = []

    async def on_request(self, request: iris.Request[Ask]) -> Quote:
        self.asked.append(request.payload)
        if request.payload.symbol == "wrong":
            return "no quote"  # type: ignore[return-value] # that is the point
        return Quote(request.payload.symbol, 1.5)

    async def on_survey(self, request: iris.Request[Ask]) -> Quote | None:
        return None if request.payload.symbol == "unknown" else await self.on_request(request)

    async def on_broadcast(self, message: iris.Message[Ask]) -> None:
        self.told.append(message)

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await tunnel.send((await tunnel.receive())[::-1])


class Together(iris.Handler[Ask, Quote]):
    """Answers several at once."""

    async def on_requests(self, requests: Sequence[iris.Request[Ask]]) -> Sequence[Quote | Exception]:
        given: list[Quote | Exception] = []
        for request in requests:
            symbol = request.payload.symbol
            wrong: Any = {"symbol": symbol}
            given.append(ValueError(symbol) if symbol == "fail" else wrong if symbol == "wrong" else Quote(symbol, 2.0))
        return given


async def answer(request: iris.Request[Ask]) -> Quote:
    return Quote(request.payload.symbol, 3.0)


def answer_at_once(request: iris.Request[Ask]) -> Quote:
    return Quote(request.payload.symbol, 4.0)


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            await scenario(simulation)

    run(main(), limit_s=120)


SEALABLE = {"together": (Together(), 2.0), "async function": (answer, 3.0), "function": (answer_at_once, 4.0)}


@pytest.mark.parametrize(
    ("handler", "price", "seal"),
    [
        pytest.param(Quotes(), 1.5, None, id="handler"),  # it takes broadcasts, too, and what is sealed takes none
        *(pytest.param(*served, None, id=name) for name, served in SEALABLE.items()),
        *(pytest.param(*served, SECRET, id=f"{name}, sealed") for name, served in SEALABLE.items()),
    ],
)
def test_values_are_asked_and_answered(handler: Any, price: float, seal: iris.Secret | None) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        joined = handler if seal is None else iris.Sealed(handler, seal)
        await member.join("quotes", joined, codec=QUOTES, inline=True)
        assert await caller.request("quotes", Ask("X"), codec=QUOTES, seal=seal) == Quote("X", price)
        answers = await caller.survey("quotes", Ask("Y"), codec=QUOTES, seal=seal)
        assert [reply.payload for reply in answers] == [Quote("Y", price)]
        with pytest.raises(iris.RemoteError) as refused:
            await caller.request("quotes", {"symbol": 3}, codec="json", seal=seal)
        assert refused.value.type == "DecodeError"
        assert "was not executed: Expected `str`, got `int` - at `$.symbol`" in refused.value.text

    simulate(scenario)


def test_a_request_that_does_not_fit_is_refused_and_the_handler_not_run() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        handler = Quotes()
        await member.join("quotes", handler, codec=QUOTES)
        with pytest.raises(iris.RemoteError, match="the request to 'quotes' does not fit the codec of its members") as refused:
            await caller.request("quotes", b"\xff")
        assert refused.value.member == member.id
        assert handler.asked == []
        assert (await caller.request("quotes", b'{"symbol":"X"}')) == b'{"symbol":"X","price":1.5}'

    simulate(scenario)


def test_those_that_fit_are_answered_together_beside_those_that_do_not() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("quotes", Together(), codec=QUOTES)
        asked: list[object] = [{"symbol": "X"}, {"symbol": 1}, {"symbol": "fail"}, {"symbol": "wrong"}, {"symbol": "Y"}]
        outcomes = await asyncio.gather(
            *(caller.request("quotes", each, codec="json") for each in asked), return_exceptions=True
        )
        assert [each.type if isinstance(each, iris.RemoteError) else each for each in outcomes] == [
            {"symbol": "X", "price": 2.0},
            "DecodeError",
            "ValueError",
            "EncodeError",
            {"symbol": "Y", "price": 2.0},
        ]

    simulate(scenario)


def test_a_payload_that_cannot_be_said_is_refused_before_anything_is_sent() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        handler = Quotes()
        await member.join("quotes", handler, codec=QUOTES)
        received: list[iris.Message] = []
        await member.subscribe("quotes.>", received.append)
        wrong: Any = Quote("X", 1.0)
        with pytest.raises(iris.EncodeError, match="for 'quotes'"):
            await caller.request("quotes", wrong, codec=QUOTES)
        with pytest.raises(iris.EncodeError, match="for 'quotes'"):
            await caller.broadcast("quotes", wrong, codec=QUOTES)
        with pytest.raises(iris.EncodeError, match="for 'quotes'"):
            caller.survey("quotes", wrong, codec=QUOTES)
        with pytest.raises(iris.EncodeError, match=r"for 'quotes\.x'"):
            await caller.publish("quotes.x", wrong, codec=QUOTES)
        with pytest.raises(iris.EncodeError, match=r"for 'quotes\.x'"):
            caller.try_publish("quotes.x", wrong, codec=QUOTES)
        with pytest.raises(iris.ConfigurationError, match="codec='yaml' is unknown"):
            await caller.request("quotes", b"", codec="yaml")  # type: ignore[call-overload] # that is the point
        assert caller.statistics().requests == 0
        await caller.publish("quotes.x", Ask("end"), codec=QUOTES)
        with pytest.raises(iris.EncodeError):
            await caller.publish_many("quotes.x", [Ask("one"), wrong, Ask("two")], codec=QUOTES)
        await asyncio.sleep(1.0)
        assert [message.payload for message in received] == [b'{"symbol":"end"}', b'{"symbol":"one"}']
        assert (handler.asked, handler.told) == ([], [])

    simulate(scenario)


def test_a_reply_that_does_not_fit_names_the_cluster_and_the_member() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member, other = await simulation.start_nodes(3)
        await member.join("quotes", lambda _request: b'{"symbol":"X"}', inline=True)
        for seal in (None, SECRET):
            cluster = "quotes" if seal is None else "sealed"
            if seal is not None:
                await member.join(cluster, iris.Sealed(lambda _request: b"[]", seal), inline=True)
            with pytest.raises(iris.DecodeError, match=r"missing required field `price`|Expected `object`") as caught:
                await caller.request(cluster, Ask("X"), codec=QUOTES, seal=seal)
            assert (caught.value.cluster, caught.value.member) == (cluster, member.id)
            assert member.id[:8] in str(caught.value)
        await other.join("quotes", Quotes(), codec=QUOTES)
        answers = await caller.survey("quotes", Ask("X"), codec=QUOTES)
        assert [(reply.payload, reply.member.id) for reply in answers] == [(Quote("X", 1.5), other.id)]
        assert [(failure.member.id, failure.type) for failure in answers.failed] == [(member.id, "DecodeError")]

    simulate(scenario)


def test_a_member_of_a_survey_may_have_nothing_to_say() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("quotes", Quotes(), codec=QUOTES)
        answers = await caller.survey("quotes", Ask("unknown"), codec=QUOTES)
        assert [one.id for one in answers.declined] == [member.id]
        replies = [reply.payload async for reply in caller.survey("quotes", Ask("X"), codec=QUOTES)]
        assert replies == [Quote("X", 1.5)]

    simulate(scenario)


def test_a_broadcast_that_does_not_fit_is_dropped_and_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        handler = Quotes()
        await member.join("quotes", handler, codec=QUOTES)
        assert await caller.broadcast("quotes", b"nonsense") == 1
        assert await caller.broadcast("quotes", Ask("X"), codec=QUOTES) == 1
        await asyncio.sleep(1.0)
        assert [message.payload for message in handler.told] == [Ask("X")]
        assert member.statistics().drops["undecodable"] == 1

    with caplog.at_level(logging.ERROR, "iris_py"):
        simulate(scenario)
    assert "for 'quotes' does not fit the codec" in caplog.text
    assert "nonsense" not in caplog.text


def test_what_goes_through_a_tunnel_stays_bytes() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        await member.join("quotes", Quotes(), codec=QUOTES)
        async with caller.tunnel("quotes") as tunnel:
            await tunnel.send(b"abc")
            assert await tunnel.receive() == b"cba"

    simulate(scenario)


def test_a_subscription_goes_on_after_a_message_that_does_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publisher, subscriber = await simulation.start_nodes(2)
        called: list[Ask] = []
        await subscriber.subscribe("quotes", lambda message: called.append(message.payload), codec=QUOTES)
        async with subscriber.subscribe("quotes", codec=QUOTES) as one, subscriber.subscribe("quotes", codec=Ask) as many:
            batches = many.batches()
            assert await publisher.publish("quotes", Ask("A"), codec=Ask) == 1
            for payload in (b"junk", b"more junk"):
                await publisher.publish("quotes", payload)
            await publisher.publish_many("quotes", [Ask("B"), Ask("C")], codec=QUOTES)
            assert publisher.try_publish("quotes", {"symbol": "D"}, codec="json") == 1
            taken = [(await anext(one)).payload.symbol for _ in range(2)]
            async for message in one:
                taken.append(message.payload.symbol)
                if message.payload.symbol == "D":
                    break
            assert taken == ["A", "B", "C", "D"]
            gathered: list[str] = []
            while len(gathered) < 4:
                gathered += [message.payload.symbol for message in await anext(batches)]
            assert gathered == taken
            for subscription in (one, many):
                assert dict(subscription.dropped) == {"undecodable": 2}
                error = subscription.undecodable
                assert error is not None
                assert (error.topic, error.member, error.payload) == ("quotes", publisher.id, b"more junk")
        assert called == [Ask("A"), Ask("B"), Ask("C"), Ask("D")]
        assert subscriber.statistics().drops["undecodable"] == 6

    with caplog.at_level(logging.ERROR, "iris_py"):
        simulate(scenario)
    assert caplog.text.count("reading a message of the subscription to 'quotes' failed: DecodeError") == 3


def test_a_plain_subscription_has_no_such_message() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        async with node.subscribe("quotes") as subscription:
            await node.publish("quotes", b"\xff")
            assert (await anext(subscription)).payload == b"\xff"
            assert (dict(subscription.dropped), subscription.undecodable) == ({}, None)

    simulate(scenario)


def test_a_handler_with_a_slip_is_refused_although_it_has_a_codec() -> None:
    class Slip(iris.Handler[Ask, Quote]):
        """Misspells a hook."""

        async def on_reqest(self, request: iris.Request[Ask]) -> Quote:
            raise AssertionError

    async def scenario(simulation: NodeSimulation) -> None:
        (node,) = await simulation.start_nodes(1)
        with pytest.raises(iris.ConfigurationError, match="is on_request\\(\\) meant"):
            node.join("quotes", Slip(), codec=QUOTES)
        with pytest.raises(iris.ConfigurationError, match="a handler is an"):
            node.join("quotes", 3, codec=QUOTES)  # type: ignore[call-overload] # that is the point
        with pytest.raises(iris.ConfigurationError, match="no codec can be made of"):
            node.join("quotes", answer, codec=object())  # type: ignore[call-overload] # that is the point

    simulate(scenario)
