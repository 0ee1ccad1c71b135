"""Requests of a node, before they leave it: what is refused, and the value that the options become."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from iris_py.api.request import Requests
from iris_py.patterns.request.deduplication import identity_of_key
from iris_py.patterns.request.pending import RequestSpec, Ticket
from iris_py.patterns.request.retry import IDEMPOTENT
from iris_py.peers.member import Placement
from iris_py.testing import NodeSimulation, run
from iris_py.wire.headers import encode_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = iris.Secret(bytes(range(32)))


def simulate(scenario: Callable[[NodeSimulation], Awaitable[None]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            await scenario(simulation)

    run(main(), limit_s=60.0)


@pytest.mark.parametrize("name", [[], {}, 7, None, b"work", "", "work@", "@eu", "iris.gateway.eu"])
@pytest.mark.parametrize(
    "options", [{}, {"idempotent": True}, {"idempotent": True, "key": "k"}, {"retry": iris.Retry()}, {"codec": "json"}]
)
def test_an_invalid_name_is_refused_with_any_options(name: Any, options: dict[str, Any]) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        with pytest.raises(iris.ConfigurationError):
            await node.request(name, b"", **options)
        assert node._core.requester.last_id == 0

    simulate(scenario)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, RequestSpec(b"x", 5.0, waits=True)),
        ({"timeout": 2, "on_full": "raise"}, RequestSpec(b"x", 2)),
        ({"wait_for_members": 0.0}, RequestSpec(b"x", 5.0, waits=True, members_wait_s=0.0)),
        ({"headers": {"a": 1}}, RequestSpec(b"x", 5.0, headers=encode_headers({"a": 1}), waits=True)),
        ({"prefer": "eu", "require": "eu/a"}, RequestSpec(b"x", 5.0, placement=Placement("eu", "eu/a"), waits=True)),
        (
            {"idempotent": True, "key": "k"},
            RequestSpec(b"x", 5.0, IDEMPOTENT, identity_of_key("work", "k"), is_anchored=True, waits=True),
        ),
    ],
)
def test_the_options_become_one_value(options: dict[str, Any], expected: RequestSpec) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        asked: list[tuple[Any, ...]] = []

        def answer(*arguments: Any) -> int:
            asked.append(arguments)
            arguments[2].set_result(b"done")
            return 1

        node._core.request = answer  # type: ignore[method-assign,assignment]
        assert await node.request("work", bytearray(b"x"), **options) == b"done"
        ((name, spec, token, _now),) = asked
        assert (name, isinstance(token, asyncio.Future)) == ("work", True)
        for field in RequestSpec.__struct_fields__:
            assert getattr(spec, field) == getattr(expected, field), field

    simulate(scenario)


def test_each_idempotent_request_without_a_key_has_its_own_identity_and_no_fixed_member() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)
        seen: list[bytes] = []

        async def handler(request: iris.Request) -> bytes:
            seen.append(request._execution.identity)
            return b""

        async with member.join("work", handler):
            await asyncio.gather(*(caller.request("work", b"", idempotent=True) for _ in range(20)))
            assert len(set(seen)) == 20
            assert all(seen)

    simulate(scenario)


@pytest.mark.parametrize("seal", [None, SECRET])
def test_a_codec_learns_the_member_whose_reply_it_cannot_decode(seal: iris.Secret | None) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        caller, member = await simulation.start_nodes(2)

        async def handler(_request: iris.Request) -> bytes:
            return b"no JSON"

        async with member.join("work", handler if seal is None else iris.Sealed(handler, seal)):
            with pytest.raises(iris.DecodeError) as raised:
                await caller.request("work", {"a": 1}, codec="json", seal=seal)
            assert raised.value.member == member.id

    simulate(scenario)


class Ends:
    """Takes the outcomes of tickets."""

    def __init__(self) -> None:
        self.outcomes: list[object] = []

    def receive_outcome(self, _ticket: Ticket, outcome: object) -> None:
        self.outcomes.append(outcome)


class Text(bytes):
    """A reply of a local handler may be of a subclass."""


def test_outcomes_reach_futures_and_tickets_unless_nobody_waits() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        node = await simulation.start_node()
        explained = iris.NotConnected("work", {}, ())
        requests, ends, loop = Requests(node._runtime, lambda _error: explained), Ends(), asyncio.get_running_loop()
        replied, local, failed, alone, cancelled = (loop.create_future() for _ in range(5))
        cancelled.cancel()
        error = iris.NodeClosed()
        requests.handle_outcomes(
            [
                (replied, b"reply"),
                (local, Text(b"reply")),
                (failed, error),
                (alone, iris.NoMembers("work", 0)),
                (cancelled, b"reply"),
                (cancelled, error),
                (Ticket(ends, None), b"reply"),
                (Ticket(ends, None), iris.NoMembers("work", 0)),
            ]
        )
        assert (replied.result(), local.result(), failed.exception()) == (b"reply", b"reply", error)
        assert alone.exception() is explained
        assert ends.outcomes == [b"reply", explained]

    simulate(scenario)
