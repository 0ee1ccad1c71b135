"""Requests to another cloud, by way of gateways that only pretend to have one behind them: what the node that asks promises."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import iris_py as iris
from iris_py.api.bulk_requester import Asker, providers
from iris_py.api.membership import Capacity
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.federation.calls import Call, Op, decode_call, encode_outcome
from iris_py.federation.names import gateway_cluster
from iris_py.patterns.request.pending import RequestSpec
from iris_py.testing import NodeSimulation, run
from iris_py.wire.headers import encode_headers
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.errors import IrisError

MEMBER = "0123456789abcdef" * 2


class FarCloud:
    """Another cloud, as gateways see it: one member, which remembers what it has executed.

    Attributes:
        calls: All that came, by whichever gateway.
        executed: How often the member has executed each payload.
        cancelled: How many requests were cancelled at a gateway.
        headers: Of the last one.
        gates: Payloads that wait at a gateway until the event is set, before they are executed.
        held: Payloads that were executed, and whose replies wait for the event.
        outcome: Decides by gateway and call what becomes of it; None: it is executed.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.executed: Counter[bytes] = Counter()
        self.cancelled = 0
        self.headers: dict[str, Any] = {}
        self.held: dict[bytes, asyncio.Event] = {}
        self.outcome: Callable[[Gateway, Call], IrisError | None] = lambda _gateway, _call: None
        self._replies: dict[bytes, bytes] = {}

    def execute(self, call: Call) -> bytes:
        if call.identity in self._replies:
            return self._replies[call.identity]
        self.executed[call.payload] += 1
        reply = call.payload.upper()
        if call.identity:
            self._replies[call.identity] = reply
        return reply


class Gateway(iris.Handler):
    """One gateway to it."""

    def __init__(self, far: FarCloud, node: Node) -> None:
        self.far = far
        self.node = node
        self.held = 0
        self.passed_on = 0

    async def on_request(self, request: iris.Request) -> bytes:
        call = decode_call(request.payload)
        assert call is not None
        far = self.far
        if call.op == Op.STATUS:
            facts = {"gateway": self.node.id, "name": "us", "clouds": {"eu": {"is_up": True, "round_trip_s": 0.1, "new": 1}}}
            return encode_outcome(msgspec.msgpack.encode(facts))
        far.calls.append(call)
        far.headers = dict(request.headers)
        self.passed_on += 1
        try:
            outcome = far.outcome(self, call) or far.execute(call)
            event = far.held.get(call.payload)
            if event is not None:
                self.held += 1
                await event.wait()
            return encode_outcome(outcome)
        except asyncio.CancelledError:
            far.cancelled += 1
            raise


async def open_gateway(node: Node, far: FarCloud, **how: Any) -> tuple[Gateway, Membership]:
    """Let a node be a gateway to the cloud that we call eu."""
    gateway = Gateway(far, node)
    await node._parts.memberships.enlist(gateway_cluster(), gateway, Capacity(), remembers=False)
    memberships = node._parts.memberships
    return gateway, await memberships.enlist(gateway_cluster("eu"), gateway, Capacity(**how), remembers=False)


class Clouds:
    """A caller, and nodes that are gateways."""

    def __init__(self, simulation: NodeSimulation, caller: Node, far: FarCloud, gateways: list[Gateway]) -> None:
        self.simulation = simulation
        self.caller = caller
        self.far = far
        self.gateways = gateways


async def start(simulation: NodeSimulation, gateways: int = 1, **how: Any) -> Clouds:
    far = FarCloud()
    caller, *nodes = await simulation.start_nodes(1 + gateways)
    return Clouds(simulation, caller, far, [(await open_gateway(node, far, **how))[0] for node in nodes])


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_request_comes_to_the_other_cloud_with_all_that_was_asked() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            caller, far = clouds.caller, clouds.far
            assert await caller.request("databases@eu", b"select") == b"SELECT"
            assert far.calls[-1] == Call(name="databases", payload=b"select", waits=True)

            headers = {"trace": "abc"}
            assert await caller.request("d@eu", b"y", headers=headers, prefer="eu/a", require="eu", on_full="raise") == b"Y"
            assert far.calls[-1] == Call(name="d", payload=b"y", prefer="eu/a", require="eu")
            assert far.headers == headers

            assert await caller.request("d@eu", b"z", idempotent=True, key="k", retry_failed=True) == b"Z"
            keyed = far.calls[-1]
            assert (keyed.is_anchored, keyed.retries_failed, len(keyed.identity)) == (True, True, 16)
            assert await caller.request("d@eu", b"other", idempotent=True, key=b"k") == b"Z"
            assert far.calls[-1].identity == keyed.identity
            await caller.request("e@eu", b"z", idempotent=True, key="k")
            assert far.calls[-1].identity != keyed.identity

            await caller.request("d@eu", b"once", idempotent=True)
            await caller.request("d@eu", b"once", idempotent=True)
            assert far.executed[b"once"] == 2, "each call is a request of its own"
            assert not far.calls[-1].is_anchored

    run(scenario(), limit_s=120)


def test_a_key_means_the_same_from_another_node() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, gateways=2)
            other = await simulation.start_node()
            for node in (clouds.caller, other) * 20:
                assert await node.request("d@eu", b"x", idempotent=True, key="k") == b"X"
            assert clouds.far.executed == {b"x": 1}
            assert len(clouds.far.calls) == 40
            assert all(gateway.passed_on for gateway in clouds.gateways), "a key chooses no gateway"

    run(scenario(), limit_s=120)


@pytest.mark.parametrize(
    ("error", "kind", "facts"),
    [
        (iris.NoMembers("d", 3), iris.NoMembers, {"nodes": 0}),
        (iris.NoMembers("d", 3, "eu/b", 2), iris.NoMembers, {"zone": "eu/b", "elsewhere": 2}),
        (iris.Overloaded("d", 2), iris.Overloaded, {"tried": 2, "retry_after_s": None}),
        (iris.Overloaded("d", retry_after_s=0.5), iris.Overloaded, {"retry_after_s": 0.5}),
        (iris.MemberLost("d", MEMBER), iris.MemberLost, {"member": MEMBER}),
        (iris.RemoteError("d", MEMBER, "KeyError", "x"), iris.RemoteError, {"member": MEMBER, "type": "KeyError", "text": "x"}),
        (iris.RequestTimeout("d", 1.0, MEMBER), iris.RequestTimeout, {"member": MEMBER, "timeout_s": 5.0}),
        (iris.NotExported("d@eu"), iris.NotExported, {"cloud": "eu"}),
        (iris.CloudUnavailable("d@eu"), iris.CloudUnavailable, {"cloud": "eu"}),
        (iris.MessageTooLarge(2, 1), iris.MessageTooLarge, {"size_bytes": 2, "limit_bytes": 1}),
    ],
)
def test_an_error_there_is_the_callers_with_the_name_that_it_asked_for(
    error: IrisError, kind: type[IrisError], facts: dict[str, object]
) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            clouds.far.outcome = lambda _gateway, _call: error
            with pytest.raises(kind) as caught:
                await clouds.caller.request("d@eu", b"x")
            assert type(caught.value) is kind
            raised: Any = caught.value
            assert {name: getattr(raised, name) for name in facts} == facts
            assert raised.cluster == "d@eu"
            assert len(clouds.far.calls) == 1

    run(scenario(), limit_s=120)


def test_without_a_gateway_it_is_known_at_once() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            began = now()
            with pytest.raises(iris.CloudUnavailable) as caught:
                await clouds.caller.request("d@asia", b"x")
            assert (caught.value.cloud, caught.value.cluster, caught.value.nodes) == ("asia", "d@asia", 1)
            assert now() - began < 1.0
            assert await clouds.caller.request("d@eu", b"x") == b"X"

    run(scenario(), limit_s=120)


def test_an_idempotent_request_waits_for_a_gateway() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, node = await simulation.start_nodes(2)
            with pytest.raises(iris.CloudUnavailable):
                await caller.request("d@eu", b"x", idempotent=True, timeout=2.0)
            asking = asyncio.create_task(caller.request("d@eu", b"x", idempotent=True, timeout=30.0))
            await asyncio.sleep(1)
            await open_gateway(node, FarCloud())
            assert await asking == b"X"

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", first_cases(2, range(5)))
def test_a_gateway_that_dies_executes_nothing_twice(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            clouds = await start(simulation, gateways=2)
            clouds.far.held[b"x"] = asyncio.Event()
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"x", timeout=30.0))
            await simulation.until(lambda: any(gateway.held for gateway in clouds.gateways))
            (doomed,) = (gateway for gateway in clouds.gateways if gateway.held)
            simulation.kill(doomed.node)
            with pytest.raises(iris.MemberLost) as caught:
                await asking
            assert (caught.value.cluster, caught.value.member, caught.value.gateway) == ("d@eu", "", doomed.node.id)
            assert clouds.far.executed == {b"x": 1}
            assert len(clouds.far.calls) == 1
            assert await clouds.caller.request("d@eu", b"y") == b"Y", "the next one goes by the other gateway"

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", first_cases(2, range(5)))
@pytest.mark.parametrize("key", [None, "k"])
def test_an_idempotent_request_goes_by_another_gateway_as_the_same(seed: int, key: str | None) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            clouds = await start(simulation, gateways=2)
            far = clouds.far
            far.held[b"x"] = asyncio.Event()
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"x", timeout=30.0, idempotent=True, key=key))
            await simulation.until(lambda: any(gateway.held for gateway in clouds.gateways))
            (doomed,) = (gateway for gateway in clouds.gateways if gateway.held)
            far.held.clear()
            simulation.kill(doomed.node)
            assert await asking == b"X"
            assert far.executed == {b"x": 1}, "the member knows it"
            assert len(far.calls) == 2
            assert far.calls[0] == far.calls[1]

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("error", [iris.MemberLost("d", ""), iris.CloudUnavailable("d@eu")])
def test_an_idempotent_request_is_asked_again_where_the_line_broke(error: IrisError) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, gateways=2)
            ending = now() + 3.0
            clouds.far.outcome = lambda _gateway, _call: error if now() < ending else None
            assert await clouds.caller.request("d@eu", b"x", idempotent=True, timeout=30.0) == b"X"
            assert len({call.identity for call in clouds.far.calls}) == 1
            assert 5 < len(clouds.far.calls) < 30, "after pauses"

            clouds.far.calls.clear()
            clouds.far.outcome = lambda _gateway, _call: error
            with pytest.raises(type(error)):
                await clouds.caller.request("d@eu", b"x", idempotent=True, timeout=2.0)
            with pytest.raises(type(error)):
                await clouds.caller.request("d@eu", b"once", timeout=2.0)
            assert [call.payload for call in clouds.far.calls].count(b"once") == 1
            assert not clouds.caller._requests.crossings._under_way

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("error", [iris.NoMembers("d", 1), iris.NotExported("d@eu"), iris.Overloaded("d", 1)])
def test_no_error_says_unexecuted_after_a_gateway_was_lost(error: IrisError) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, gateways=2)
            clouds.far.held[b"x"] = asyncio.Event()
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"x", timeout=30.0, idempotent=True))
            await simulation.until(lambda: any(gateway.held for gateway in clouds.gateways))
            (doomed,) = (gateway for gateway in clouds.gateways if gateway.held)
            clouds.far.held.clear()
            clouds.far.outcome = lambda _gateway, _call: error
            simulation.kill(doomed.node)
            with pytest.raises(iris.MemberLost, match="may have been executed"):
                await asking

    run(scenario(), limit_s=120)


def test_a_gateway_that_is_silent_is_passed_over() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, gateways=2)
            for _ in range(40):
                await clouds.caller.request("d@eu", b"warm", idempotent=True)
            simulation.partition([clouds.gateways[0].node], [clouds.caller, clouds.gateways[1].node])
            began = now()
            for number in range(10):
                assert await clouds.caller.request("d@eu", b"%d" % number, idempotent=True, timeout=30.0) == b"%d" % number
            assert now() - began < 5.0
            assert set(clouds.far.executed.values()) <= {1, 40}

    run(scenario(), limit_s=120)


def test_to_cancel_a_request_cancels_it_at_the_gateway() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            clouds.far.held[b"x"] = asyncio.Event()
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"x", timeout=30.0))
            await simulation.until(lambda: clouds.gateways[0].held)
            asking.cancel()
            await simulation.until(lambda: clouds.far.cancelled)
            assert not clouds.caller._core.requester._pending

            clouds.far.outcome = lambda _gateway, _call: iris.CloudUnavailable("d@eu")
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"y", timeout=30.0, idempotent=True))
            await simulation.until(lambda: len(clouds.far.calls) > 3)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            count = len(clouds.far.calls)
            await asyncio.sleep(5)
            assert len(clouds.far.calls) == count
            assert not clouds.caller._requests.crossings._under_way

    run(scenario(), limit_s=120)


def test_the_time_of_a_request_is_over_for_the_gateway_too() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            clouds.far.held[b"x"] = asyncio.Event()
            began = now()
            with pytest.raises(iris.RequestTimeout) as caught:
                await clouds.caller.request("d@eu", b"x", timeout=2.0)
            assert (caught.value.cluster, caught.value.member, caught.value.timeout_s) == ("d@eu", None, 2.0)
            assert caught.value.gateway == clouds.gateways[0].node.id
            assert 2.0 <= now() - began < 2.5
            await simulation.until(lambda: clouds.far.cancelled)

    run(scenario(), limit_s=120)


def test_full_gateways_are_overloaded_or_waited_for() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, concurrency=1, queue_messages=0)
            event = clouds.far.held[b"x"] = asyncio.Event()
            asking = asyncio.create_task(clouds.caller.request("d@eu", b"x", timeout=30.0))
            await simulation.until(lambda: clouds.gateways[0].held)
            with pytest.raises(iris.Overloaded) as caught:
                await clouds.caller.request("d@eu", b"y", on_full="raise")
            assert caught.value.cluster == "d@eu"
            waiting = asyncio.create_task(clouds.caller.request("d@eu", b"z", timeout=30.0))
            await asyncio.sleep(1)
            event.set()
            assert (await asking, await waiting) == (b"X", b"Z")

    run(scenario(), limit_s=120)


def test_the_largest_message_passes_though_it_is_wrapped() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            large = await simulation.start_node(max_message_bytes=MESSAGE_BYTES_LIMIT)  # as gateways have it
            await open_gateway(large, FarCloud())
            for limit in (1024, MAX_MESSAGE_BYTES):
                node = await simulation.start_node(max_message_bytes=limit)
                payload = bytes(node.max_message_bytes)
                assert await node.request("d@eu", payload, idempotent=True, key="k" * node.max_message_bytes) == payload
                with pytest.raises(iris.MessageTooLarge):
                    await node.request("d@eu", payload + b"1")

    run(scenario(), limit_s=120)


def test_a_gateway_that_answers_nonsense_or_fails_is_one_error() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, node = await simulation.start_nodes(2)
            reply: bytes | Exception = b"\xff"

            async def answer(_request: iris.Request) -> bytes:
                if isinstance(reply, Exception):
                    raise reply
                return reply

            await node._parts.memberships.enlist(gateway_cluster("eu"), answer, Capacity())
            for answered, kind in ((b"\xff", "MalformedReply"), (b"", "MalformedReply"), (LookupError("x"), "LookupError")):
                reply = answered
                with pytest.raises(iris.RemoteError) as caught:
                    await caller.request("d@eu", b"x")
                assert (caught.value.cluster, caught.value.member, caught.value.type) == ("d@eu", "", kind)

    run(scenario(), limit_s=120)


def test_a_node_that_closes_ends_what_waits_to_be_asked_again() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            clouds.far.outcome = lambda _gateway, _call: iris.CloudUnavailable("d@eu")
            clouds.far.held[b"held"] = asyncio.Event()
            caller = clouds.caller
            paused = asyncio.create_task(caller.request("d@eu", b"x", timeout=30.0, idempotent=True))
            held = asyncio.create_task(caller.request("d@eu", b"held", timeout=30.0, idempotent=True))
            await simulation.until(lambda: [crossing for crossing in caller._requests.crossings._under_way if crossing.timer])
            await caller.close()
            for asking in (paused, held):
                with pytest.raises(iris.NodeClosed):
                    await asking
            with pytest.raises(iris.NodeClosed):
                await caller.request("d@eu", b"x")

    run(scenario(), limit_s=120)


def test_a_request_from_another_cloud_says_so() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            gateway, server = await simulation.start_nodes(2)
            seen: list[tuple[str, dict[str, Any]]] = []

            class Note(iris.Handler):
                async def on_request(self, request: iris.Request) -> bytes:
                    seen.append((request.cloud, dict(request.headers)))
                    return b""

                async def on_broadcast(self, message: iris.Message) -> None:
                    seen.append((message.cloud, dict(message.headers)))

            await server.join("d", Note())
            headers = encode_headers({"a": 1, "iris-cloud": "us", "iris-op": "x", "iris-message-id": "m"}, is_internal=True)
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            gateway._core.request("d", RequestSpec(b"", 5.0, headers=headers, waits=True), future, now())
            gateway._runtime.wake()
            await future
            gateway._core.broadcast("d", b"", now(), headers)
            gateway._runtime.wake()
            await simulation.until(lambda: len(seen) == 2)
            await gateway.request("d", b"", headers={"a": 1})
            passed_on = {"a": 1, "iris-message-id": "m"}
            assert seen == [("us", passed_on), ("us", passed_on), ("", {"a": 1})]

    run(scenario(), limit_s=120)


def test_names_of_other_clouds_and_of_iris_are_refused_where_own_ones_are_meant() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            caller = clouds.caller
            assert await caller.request("d@eu", b"x") == b"X"  # the node uses iris.gateway.eu by itself
            for name, advice in (("d@eu", "of the cloud 'eu'"), ("iris.gateway.eu", "begins with 'iris.'")):
                with pytest.raises(iris.ConfigurationError, match=advice):
                    caller.join(name, Gateway(clouds.far, caller))
            with pytest.raises(iris.ConfigurationError, match=r"begins with 'iris\.'"):
                caller.survey("iris.gateway.eu", b"")
            with pytest.raises(iris.ConfigurationError, match=r"begins with 'iris\.'"):
                caller.tunnel("iris.gateway.eu")
            for name in ("iris.gateway.eu", "iris.gateway.eu@eu", "d@E", "@eu", "d@asia@eu"):
                with pytest.raises(iris.ConfigurationError):
                    await caller.broadcast(name, b"")
                with pytest.raises(iris.ConfigurationError):
                    await caller.publish(name, b"")
                with pytest.raises(iris.ConfigurationError):
                    caller.try_publish(name, b"")
                with pytest.raises(iris.ConfigurationError):
                    caller.subscribe(name)
            with pytest.raises(iris.ConfigurationError, match=r"Query them with node\.survey\('d@eu'"):
                caller.members("d@eu")
            for name in ("iris.gateway.eu", "iris.gateway.eu@eu", "d@E", "@eu", "d@asia@eu"):
                with pytest.raises(iris.ConfigurationError):
                    await caller.request(name, b"")
            with pytest.raises(iris.ConfigurationError, match=r"'iris-cloud' begins with 'iris-'"):
                await caller.request("d@eu", b"", headers={"iris-cloud": "asia"})
            with pytest.raises(iris.ConfigurationError, match="key= is empty"):
                await caller.request("d@eu", b"", idempotent=True, key="")
            assert len(clouds.far.calls) == 1

    run(scenario(), limit_s=120)


def test_the_clouds_that_gateways_know() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, one, other, odd = await simulation.start_nodes(4)
            assert await caller.clouds() == ()
            far = FarCloud()
            for node in (one, other):
                await open_gateway(node, far)
            eu = iris.Cloud(alias="eu", is_up=True, gateways=2, round_trip_s=0.1)
            asia = iris.Cloud(alias="asia", is_up=False, gateways=0, round_trip_s=None)

            async def answer(_request: iris.Request) -> bytes:
                facts = {"clouds": {"eu": {"is_up": False, "round_trip_s": None}, "asia": {"is_up": False}}}
                return encode_outcome(msgspec.msgpack.encode(facts))

            assert await caller.clouds() == (eu,)
            await odd._parts.memberships.enlist(gateway_cluster(), answer, Capacity())
            assert await caller.clouds() == (asia, eu)
            with pytest.raises(iris.ConfigurationError):
                await caller.clouds(timeout=0)

    run(scenario(), limit_s=120)


# -- many at once, as Spark asks


@dataclass(frozen=True)
class Question:
    key: Any
    payload: bytes | None


class Asking:
    """Asks another cloud, and keeps what it is told."""

    def __init__(self, node: Node, cluster: str = "scorers@eu", timeout: float = 30.0) -> None:
        self.told: dict[object, bytes | IrisError] = {}
        self.calls = 0
        self.members: list[str] = []
        self._event = asyncio.Event()
        note = self._note
        self.asker: Asker[Question] = Asker(node, cluster, timeout, self._receive, note)

    async def wait(self, count: int) -> dict[object, bytes | IrisError]:
        while len(self.told) < count:
            self._event.clear()
            await self._event.wait()
        return self.told

    def _note(self, _question: Question, member: str) -> None:
        self.members.append(member)

    def _receive(self, outcomes: Sequence[tuple[Question, bytes | IrisError]]) -> None:
        assert not any(question.key in self.told for question, _outcome in outcomes)
        self.told |= {question.key: outcome for question, outcome in outcomes}
        self.calls += 1
        self._event.set()


def questions(count: int) -> list[Question]:
    return [Question(f"k{number}", b"p%d" % number) for number in range(count)]


def test_many_are_asked_at_once_without_a_task_for_any() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation, gateways=2)
            asking = Asking(clouds.caller)
            tasks = len(asyncio.all_tasks())
            asking.asker.ask(questions(300))
            assert len(asyncio.all_tasks()) == tasks
            assert await asking.wait(300) == {f"k{number}": b"P%d" % number for number in range(300)}
            assert asking.calls < 150
            assert all(gateway.passed_on > 50 for gateway in clouds.gateways)
            assert clouds.far.executed.total() == len({call.identity for call in clouds.far.calls}) == 300

            assert await clouds.caller.request("scorers@eu", b"other", idempotent=True, key="k7") == b"P7"
            assert not clouds.caller._requests.crossings._under_way

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", first_cases(1, range(3)))
def test_many_go_on_by_another_gateway(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            clouds = await start(simulation, gateways=2)
            for question in questions(50):
                assert question.payload is not None
                clouds.far.held[question.payload] = asyncio.Event()
            asking = Asking(clouds.caller)
            asking.asker.ask(questions(50))
            await simulation.until(lambda: sum(gateway.held for gateway in clouds.gateways) == 50)
            held = clouds.far.held.copy()
            clouds.far.held.clear()
            simulation.kill(clouds.gateways[0].node)
            for event in held.values():
                event.set()
            assert await asking.wait(50) == {f"k{number}": b"P%d" % number for number in range(50)}
            assert set(clouds.far.executed.values()) == {1}

    run(scenario(), limit_s=120)


def test_many_end_with_their_own_errors() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            failure = iris.RemoteError("scorers", MEMBER, "KeyError", "x")
            clouds.far.outcome = lambda _gateway, call: failure if call.payload == b"bad" else None
            asking = Asking(clouds.caller)
            large = bytes(clouds.caller.max_message_bytes + 1)
            asking.asker.ask([Question("good", b"a"), Question("bad", b"bad"), Question("large", large), Question("", b"")])
            outcomes = await asking.wait(4)
            assert outcomes["good"] == b"A"
            assert isinstance(outcomes["bad"], iris.RemoteError)
            assert outcomes["bad"].cluster == "scorers@eu"
            assert isinstance(outcomes["large"], iris.MessageTooLarge)
            assert isinstance(outcomes[""], iris.ConfigurationError)

            unreachable = Asking(clouds.caller, "scorers@asia", timeout=1.0)
            unreachable.asker.ask([Question("a", b"a")])
            assert isinstance((await unreachable.wait(1))["a"], iris.CloudUnavailable)
            assert len(await providers(clouds.caller, "scorers@asia")) == 0
            assert len(await providers(clouds.caller, "scorers@eu")) == 1
            wrong = Asking(clouds.caller, "scorers@A")
            wrong.asker.ask([Question("a", b"a")])
            assert isinstance((await wrong.wait(1))["a"], iris.ConfigurationError)

    run(scenario(), limit_s=120)


def test_many_are_cancelled() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            for question in questions(20):
                assert question.payload is not None
                clouds.far.held[question.payload] = asyncio.Event()
            asking = Asking(clouds.caller)
            asking.asker.ask(questions(20))
            await simulation.until(lambda: clouds.gateways[0].held == 20)
            asking.asker.cancel()
            await simulation.until(lambda: clouds.far.cancelled == 20)
            assert not asking.told
            assert not clouds.caller._requests.crossings._under_way
            assert not clouds.caller._core.requester._pending

    run(scenario(), limit_s=120)


def test_a_request_to_another_cloud_has_a_span() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            clouds = await start(simulation)
            caller = await simulation.start_node(tracing=provider)
            await caller.request("d@eu", b"x")
            with pytest.raises(iris.CloudUnavailable):
                await caller.request("d@asia", b"x")
            asking = Asking(caller)
            asking.asker.ask(questions(1))
            await asking.wait(1)
            assert "traceparent" in clouds.far.headers

    run(scenario(), limit_s=120)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["d@eu/request", "d@asia/request", "scorers@eu/request"]
    assert [(span.attributes or {}).get("error.type") for span in spans] == [None, "CloudUnavailable", None]
