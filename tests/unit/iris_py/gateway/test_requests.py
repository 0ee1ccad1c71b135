"""Requests on their way through a gateway: each is answered once, and nothing is kept."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.errors import MemberLost, NoMembers
from iris_py.federation.calls import Call, Op, encode_call, encode_outcome
from iris_py.gateway.requests import MALFORMED, RelayedRequests
from iris_py.patterns.request.pending import Ticket
from iris_py.testing import run
from iris_py.wire.headers import NO_HEADERS
from iris_py.wire.packets import check_size

if TYPE_CHECKING:
    from iris_py.patterns.request.pending import RequestSpec


class Core:
    """The core of a gateway, as far as its requests need it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.cancelled: list[object] = []
        self.replied: list[tuple[Any, bytes]] = []
        self.is_refusing = False

    def request(self, alias: str, call: Call, headers: bytes, token: object, deadline: float, now: float, among: Any) -> Any:
        self.asked.append((alias, call))
        return None if self.is_refusing else (alias, token)

    def cancel(self, outgoing: object, now: float) -> None:
        self.cancelled.append(outgoing)

    def reply(self, incoming: Any, outcome: bytes, now: float) -> None:
        self.replied.append((incoming, outcome))


class Server:
    """Answers executions."""

    def __init__(self) -> None:
        self.answers: list[tuple[Any, bytes]] = []

    def answer(self, answers: list[tuple[Any, bytes]]) -> None:
        self.answers += answers


class Requester:
    """The requests of the node: refuses names that say so, and what is too large, and notes the rest."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.cancelled: list[int] = []

    def request(self, cluster: str, spec: RequestSpec, _token: object, _now: float) -> int:
        if cluster == "nobody":
            raise NoMembers(cluster, 0)
        check_size(spec.payload, 100)
        self.asked.append(cluster)
        return len(self.asked)

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


class Scene:
    """The requests of a gateway, and everybody around them."""

    def __init__(self) -> None:
        self.core, self.server, self.requester = Core(), Server(), Requester()
        self.ended: list[tuple[Any, str]] = []
        driver = SimpleNamespace(wake=lambda: None, transmit_now=lambda: None)
        port: Any = SimpleNamespace(
            loop=asyncio.get_running_loop(),
            request=self.requester.request,
            cancel_request=self.requester.cancel,
            wake=driver.wake,
        )
        self.known = {"us"}
        self.requests = RelayedRequests(
            port,
            self.core,  # type: ignore[arg-type]
            driver,  # type: ignore[arg-type]
            lambda op, name: encode_outcome(f"{op.name} {name}".encode()),
            self.pseudonym_of,
            lambda alias: alias.encode(),
            lambda incoming, how: self.ended.append((incoming, how)),
        )

    def pseudonym_of(self, alias: str, node_id: str) -> str:
        if alias not in self.known:
            raise KeyError(alias)
        return f"{alias}{node_id}".encode().hex()

    def execution(self, payload: bytes) -> Any:
        return Execution(payload)

    def relay(self, *executions: Any, alias: str = "eu") -> None:
        self.requests.relay(self.server, executions, alias)  # type: ignore[arg-type]

    def incoming(self, name: str = "db", payload: bytes = b"x") -> Any:
        incoming = Incoming(Call(name=name, payload=payload))
        self.requests.serve([incoming])  # type: ignore[list-item]
        return incoming

    def tell(self, incoming: Any, outcome: Any) -> None:
        self.requests.receive_outcome(Ticket(self.requests, incoming), outcome)

    def assert_empty(self) -> None:
        requests = self.requests
        assert (requests._out, requests._servers, requests._in, requests._answers) == ({}, {}, {}, [])


class Execution:
    """A request of a node."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.headers = NO_HEADERS
        self.deadline = 100.0


class Incoming:
    """A request of a neighbour."""

    def __init__(self, call: Call) -> None:
        self.call, self.name, self.headers, self.deadline = call, call.name, b"", 100.0
        self.bundle = SimpleNamespace(alias="us", is_closed=False)
        self.rule = SimpleNamespace(trace=False, audit="totals")


def scenario(do: Any) -> None:
    async def main() -> None:
        scene = Scene()
        result = do(scene)
        if result is not None:
            await result
        await asyncio.sleep(0)
        scene.assert_empty()

    run(main())


def test_what_is_no_request_to_another_cloud_is_answered_here() -> None:
    def do(scene: Scene) -> None:
        garbage, status, nowhere = (
            scene.execution(payload) for payload in (b"?", encode_call(Call(op=Op.STATUS)), encode_call(Call(name="db")))
        )
        scene.relay(garbage, status)
        scene.relay(nowhere, alias="")
        assert scene.server.answers == [(garbage, MALFORMED), (status, encode_outcome(b"STATUS ")), (nowhere, MALFORMED)]
        assert not scene.core.asked

    scenario(do)


def test_a_request_is_handed_on_and_its_outcome_is_the_answer() -> None:
    def do(scene: Scene) -> None:
        execution = scene.execution(encode_call(Call(name="db", payload=b"x")))
        scene.relay(execution)
        assert scene.core.asked == [("eu", Call(name="db", payload=b"x"))]
        assert not scene.server.answers
        scene.requests.handle_outcomes([(execution, b"\0done")])
        scene.requests.handle_outcomes([(execution, b"\0again")])
        assert scene.server.answers == [(execution, b"\0done")]

    scenario(do)


def test_a_request_that_is_refused_at_once_is_answered_when_its_outcome_comes() -> None:
    def do(scene: Scene) -> None:
        scene.core.is_refusing = True
        execution = scene.execution(encode_call(Call(name="db")))
        scene.relay(execution)
        scene.requests.handle_outcomes([(execution, b"\6\x80")])
        assert scene.server.answers == [(execution, b"\6\x80")]

    scenario(do)


@pytest.mark.parametrize("is_refusing", [False, True])
def test_a_request_that_is_cancelled_twice_ends_once(is_refusing: bool) -> None:
    def do(scene: Scene) -> None:
        scene.core.is_refusing = is_refusing
        execution = scene.execution(encode_call(Call(name="db")))
        scene.relay(execution)
        for _twice in range(2):
            scene.requests.relay_cancelled(execution)
        scene.requests.handle_outcomes([(execution, b"\0late")])
        assert len(scene.core.cancelled) == (not is_refusing)
        assert scene.server.answers == [(execution, MALFORMED)], "its place is free again, and nobody reads it"

    scenario(do)


def test_a_neighbour_is_told_what_became_of_its_request() -> None:
    async def do(scene: Scene) -> None:
        done, lost = scene.incoming(), scene.incoming()
        scene.tell(done, b"reply")
        scene.tell(lost, MemberLost("db", "ab" * 16))
        scene.tell(lost, b"a second one")
        await asyncio.sleep(0)
        assert scene.core.replied == [
            (done, encode_outcome(b"reply")),
            (lost, encode_outcome(MemberLost("db", f"us{'ab' * 16}".encode().hex()))),
        ]

    scenario(do)


def test_what_the_node_refuses_and_what_is_too_large_is_answered() -> None:
    async def do(scene: Scene) -> None:
        nobody, large = scene.incoming("nobody"), scene.incoming(payload=b"x" * 101)
        await asyncio.sleep(0)
        assert [incoming for incoming, _outcome in scene.core.replied] == [nobody, large]
        assert [outcome[0] for _incoming, outcome in scene.core.replied] == [1, 9]

    scenario(do)


def test_a_neighbour_that_waits_no_more_is_told_nothing() -> None:
    async def do(scene: Scene) -> None:
        incoming = scene.incoming()
        for _twice in range(2):
            scene.requests.cancel(incoming)
        assert scene.requester.cancelled == [1]
        scene.tell(incoming, b"late")
        await asyncio.sleep(0)
        assert not scene.core.replied

    scenario(do)


def test_a_neighbour_that_is_removed_before_it_is_told_takes_nobody_along() -> None:
    """Its pseudonyms are not known any more, and others wait behind it."""

    async def do(scene: Scene) -> None:
        removed, other = scene.incoming(), scene.incoming()
        removed.bundle.alias = "mars"
        scene.tell(removed, MemberLost("db", "ab" * 16))
        scene.tell(other, b"reply")
        removed.bundle.is_closed = True
        await asyncio.sleep(0)
        assert scene.core.replied == [(other, encode_outcome(b"reply"))]

    scenario(do)


def test_a_request_whose_bundle_has_ended_is_not_begun() -> None:
    def do(scene: Scene) -> None:
        incoming = Incoming(Call(name="db"))
        incoming.bundle.is_closed = True
        scene.requests.serve([incoming])  # type: ignore[list-item]
        assert not scene.requester.asked

    scenario(do)
