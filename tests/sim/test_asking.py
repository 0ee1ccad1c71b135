"""Many questions at once, on the simulated network: what becomes of each is told once, as a request would tell it."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import iris_py as iris
from iris_py.api.bulk_requester import Asker
from iris_py.testing import NodeSimulation, VirtualNetwork, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.node import Node


@dataclass(frozen=True)
class Question:
    key: Any
    payload: bytes | None


class Asking:
    """Asks a cluster, and keeps what it is told.

    Attributes:
        told: The outcomes, in the order in which they came.
        calls: How many of them came together.
        members: Who replied to each key.
    """

    def __init__(self, node: Node, cluster: str = "work", timeout: float = 5.0) -> None:
        self.told: list[tuple[Question, bytes | iris.IrisError]] = []
        self.calls: list[int] = []
        self._event = asyncio.Event()
        self.members: dict[object, str] = {}
        self.asker: Asker[Question] = Asker(node, cluster, timeout, self._receive, self._note)

    def ask(self, *questions: Question) -> None:
        before = len(self.told)
        self.asker.ask(questions)
        assert len(self.told) == before, "nothing is told while it asks"

    async def wait(self, count: int) -> dict[object, bytes | iris.IrisError]:
        """Return the outcomes by their keys, as soon as there are so many."""
        while len(self.told) < count:
            self._event.clear()
            await self._event.wait()
        return {question.key: outcome for question, outcome in self.told}

    def _note(self, question: Question, member: str) -> None:
        assert question not in [told for told, _outcome in self.told], "the member is told before the reply"
        self.members[question.key] = member

    def _receive(self, outcomes: Sequence[tuple[Question, bytes | iris.IrisError]]) -> None:
        self.told += outcomes
        self.calls.append(len(outcomes))
        self._event.set()


class Work(iris.Handler):
    """Answers with the payload, upper case; fails for b"fail"; keeps those of b"hold" until they are cancelled."""

    def __init__(self) -> None:
        self.executed: Counter[bytes] = Counter()
        self.cancelled = 0

    async def on_request(self, request: iris.Request) -> bytes:
        self.executed[request.payload] += 1
        if request.payload == b"fail":
            raise LookupError("as you wish")
        if request.payload.startswith(b"hold"):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return request.payload.upper()


def test_who_replied_is_told_with_each_reply() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, *servers = await simulation.start_nodes(3)
            work = {server.id: Work() for server in servers}
            for server in servers:
                await server.join("work", work[server.id])
            asking = Asking(caller)
            asking.ask(*[Question(f"k{number}", b"p%d" % number) for number in range(100)], Question("bad", b"fail"))
            await asking.wait(101)
            assert len(asking.members) == 100, "a failure is no reply"
            for number in range(100):
                assert work[asking.members[f"k{number}"]].executed[b"p%d" % number] == 1
            assert set(asking.members.values()) == set(work)

    run(scenario())


def test_each_question_gets_its_own_reply_and_those_that_come_together_are_told_together() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, *servers = await simulation.start_nodes(3)
            for server in servers:
                await server.join("work", Work())
            asking = Asking(caller)
            asking.ask(*[Question(f"k{number}", b"p%d" % number) for number in range(300)])
            outcomes = await asking.wait(300)

            assert outcomes == {f"k{number}": b"P%d" % number for number in range(300)}
            assert len(asking.told) == 300
            assert len(asking.calls) < 100
            statistics = caller.statistics()
            assert (statistics.requests, statistics.replies) == (300, 300)

    run(scenario(), limit_s=120)


def test_a_key_means_the_same_whoever_asks_and_how() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, other, server = await simulation.start_nodes(3)
            work = Work()
            await server.join("work", work)
            asking = Asking(caller)
            asking.ask(Question("text", b"a"), Question(b"bytes", b"b"), Question("ümlaut", b"c"))
            assert await asking.wait(3) == {"text": b"A", b"bytes": b"B", "ümlaut": b"C"}

            for key, reply in (("text", b"A"), ("bytes", b"B"), ("ümlaut", b"C")):
                assert await other.request("work", b"other", idempotent=True, key=key) == reply
            assert sum(work.executed.values()) == 3

    run(scenario(), limit_s=120)


def test_one_that_cannot_be_asked_or_fails_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, server = await simulation.start_nodes(2)
            await server.join("work", Work())
            asking = Asking(caller)
            large = bytes(caller.max_message_bytes + 1)
            asking.ask(
                Question("good", b"a"),
                Question("large", large),
                Question("", b"no key"),
                Question("none", None),
                Question(7, b""),
            )
            asking.ask(Question("bad", b"fail"), Question("fine", b"b"))
            outcomes = await asking.wait(7)

            assert (outcomes["good"], outcomes["fine"]) == (b"A", b"B")
            assert isinstance(outcomes["large"], iris.MessageTooLarge)
            assert isinstance(outcomes["bad"], iris.RemoteError)
            for key, reason in (("", "key= is empty"), ("none", "a payload is bytes"), (7, "a key is text or bytes")):
                assert isinstance(outcomes[key], iris.ConfigurationError)
                assert reason in str(outcomes[key])

    run(scenario(), limit_s=120)


def test_a_wrong_name_of_a_cluster_is_the_error_of_every_question() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            (caller,) = await simulation.start_nodes(1)
            asking = Asking(caller, cluster="")
            asking.ask(Question("a", b""), Question("b", b""))
            outcomes = await asking.wait(2)
            assert all(isinstance(outcome, iris.ConfigurationError) for outcome in outcomes.values())

    run(scenario(), limit_s=120)


def test_questions_wait_for_a_member_and_time_out() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, server = await simulation.start_nodes(2)
            early, late = Asking(caller, timeout=2.0), Asking(caller, timeout=60.0)
            began = asyncio.get_running_loop().time()
            early.ask(Question("a", b"a"), Question("b", b"b"))
            late.ask(Question("c", b"c"), Question("d", b"d"))

            outcomes = await early.wait(2)
            assert all(isinstance(outcome, iris.NoMembers) for outcome in outcomes.values()), outcomes
            assert 2.0 <= asyncio.get_running_loop().time() - began < 3.0
            await server.join("work", Work())
            assert await late.wait(2) == {"c": b"C", "d": b"D"}

    run(scenario(), limit_s=120)


@pytest.mark.parametrize("seed", range(5))
def test_a_member_that_dies_hands_its_questions_to_another(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            caller, doomed, other = await simulation.start_nodes(3)
            work = Work()

            async def hold(_request: iris.Request) -> bytes:
                await asyncio.sleep(3600)
                return b""

            await doomed.join("work", hold)
            asking = Asking(caller, timeout=60.0)
            asking.ask(*[Question(f"k{number}", b"%d" % number) for number in range(50)])
            await simulation.until(lambda: doomed.statistics().executed == 50)
            await other.join("work", work)
            simulation.kill(doomed)
            assert await asking.wait(50) == {f"k{number}": b"%d" % number for number in range(50)}
            assert set(work.executed.values()) == {1}

    run(scenario(), limit_s=120)


def test_cancelled_questions_are_told_nothing_and_members_stop() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, server = await simulation.start_nodes(2)
            work = Work()
            await server.join("work", work)
            asking = Asking(caller)
            asking.ask(*[Question(f"k{number}", b"hold%d" % number) for number in range(20)], Question("quick", b"q"))
            await asking.wait(1)
            await simulation.until(lambda: sum(work.executed.values()) == 21)

            asking.asker.cancel()
            asking.asker.cancel()
            await simulation.until(lambda: work.cancelled == 20)
            assert [question.key for question, _outcome in asking.told] == ["quick"]
            assert not caller._core.requester._pending

    run(scenario(), limit_s=120)


def test_what_came_in_the_turn_of_a_cancel_is_not_told() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            (caller,) = await simulation.start_nodes(1)
            asking = Asking(caller)
            asking.ask(Question("", b"is refused here"))
            asking.asker.cancel()
            await asyncio.sleep(1)
            assert asking.told == []

    run(scenario(), limit_s=120)


def test_a_node_that_closes_ends_every_question() -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed=1) as simulation:
            caller, server = await simulation.start_nodes(2)
            await server.join("work", Work())
            asking = Asking(caller)
            asking.ask(Question("a", b"hold"))
            await caller.close()
            asking.ask(Question("b", b"too late"))
            outcomes = await asking.wait(2)
            assert [type(outcome) for outcome in outcomes.values()] == [iris.NodeClosed] * 2

    run(scenario(), limit_s=120)


def test_each_question_has_a_span() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def scenario() -> None:
        async with VirtualNetwork(seed=1) as network:
            caller, server = await network.connect(tracing=provider), await network.connect()
            await server.join("work", Work())
            asking = Asking(caller)
            asking.ask(Question("a", b"a"), Question("b", b"fail"), Question("c", b"hold"))
            await asking.wait(2)
            asking.asker.cancel()

    run(scenario(), limit_s=120)
    spans = exporter.get_finished_spans()
    assert [span.name for span in spans] == ["work/request"] * 3
    marks = [{key: (span.attributes or {}).get(key) for key in ("error.type", "iris.cancelled")} for span in spans]
    assert marks == [
        {"error.type": None, "iris.cancelled": None},
        {"error.type": "RemoteError", "iris.cancelled": None},
        {"error.type": None, "iris.cancelled": True},
    ]
