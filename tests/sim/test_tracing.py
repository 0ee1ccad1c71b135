"""Traces over nodes on the simulated network: a span on both sides of each pattern, the one a child of the other."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

import iris_py as iris
from iris_py.testing import VirtualNetwork, run
from iris_py.tracing import context_of, find_tracing
from iris_py.wire.headers import HEADERS_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from iris_py.api.node import Node


class Traces:
    """Two traced nodes, each with a provider of its own."""

    def __init__(self) -> None:
        self.exporters = {"caller": InMemorySpanExporter(), "member": InMemorySpanExporter()}
        self.providers = {}
        for name, exporter in self.exporters.items():
            self.providers[name] = TracerProvider(shutdown_on_exit=False)
            self.providers[name].add_span_processor(SimpleSpanProcessor(exporter))

    def of(self, name: str) -> list[ReadableSpan]:
        return list(self.exporters[name].get_finished_spans())

    def pair(self) -> tuple[ReadableSpan, ReadableSpan]:
        """Return the only span of each side, which are parent and child."""
        (ours,), (theirs,) = self.of("caller"), self.of("member")
        assert theirs.parent is not None
        assert theirs.parent.is_remote
        assert theirs.parent.span_id == ours.context.span_id
        assert theirs.context.trace_id == ours.context.trace_id
        return ours, theirs


class Working(iris.Handler):
    """Notes the span that it works in."""

    def __init__(self) -> None:
        self.spans: list[int] = []
        self.fails = False

    def _note(self) -> None:
        self.spans.append(trace.get_current_span().get_span_context().span_id)
        if self.fails:
            raise LookupError("as you wish")

    async def on_request(self, request: iris.Request) -> bytes:
        self._note()
        return b"reply"

    async def on_broadcast(self, message: iris.Message) -> None:
        self._note()

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        self._note()


def simulate(scenario: Callable[[VirtualNetwork, Node, Node, Traces], Awaitable[Any]], traces: Traces | None = None) -> Traces:
    """Run a scenario with (network, caller, member, traces)."""
    made = traces or Traces()

    async def main() -> None:
        async with VirtualNetwork(seed=1) as network:
            caller = await network.connect(tracing=made.providers["caller"])
            member = await network.connect(tracing=made.providers["member"])
            await scenario(network, caller, member, made)

    run(main(), limit_s=600.0)
    return made


@pytest.mark.parametrize("kind", ["request", "survey", "tunnel"])
def test_who_asks_and_who_answers_are_client_and_server(kind: str) -> None:
    working = Working()

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("working", working)
        if kind == "request":
            await caller.request("working", b"question", headers={"own": 1})
        elif kind == "survey":
            await caller.survey("working", b"question", headers={"own": 1})
        else:
            async with caller.tunnel("working", headers={"own": 1}) as tunnel:
                assert tunnel.headers["own"] == 1
        await network.until(lambda: traces.of("member"))

    traces = simulate(scenario)
    ours, theirs = traces.pair()
    assert (ours.kind, theirs.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert ours.name == theirs.name == f"working/{kind}"
    assert ours.attributes == {"rpc.system.name": "iris", "rpc.method": f"working/{kind}"}
    assert theirs.attributes is not None
    assert theirs.attributes["rpc.method"] == f"working/{kind}"
    assert working.spans == [theirs.context.span_id]
    assert (ours.status.status_code, theirs.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)


class WorkingTogether(Working):
    """Answers what comes together; fails for what it is told to."""

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        self._note()
        return [LookupError("as you wish") if request.payload == b"fail" else b"reply" for request in requests]


def test_of_those_that_are_answered_together_each_has_its_own_span() -> None:
    working = WorkingTogether()

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("working", working)
        asked = [caller.request("working", payload) for payload in (b"alone", b"one", b"fail", b"two")]
        await asyncio.gather(*asked, return_exceptions=True)
        await network.until(lambda: len(traces.of("member")) == 4)

    traces = simulate(scenario)
    ours = {span.context.span_id: span for span in traces.of("caller")}
    theirs = {span.parent.span_id: span for span in traces.of("member") if span.parent is not None}
    assert theirs.keys() == ours.keys()
    assert len({span.context.trace_id for span in theirs.values()}) == 4
    states = [(ours[each].status.status_code, theirs[each].status.status_code) for each in ours]
    assert sorted(states, key=str) == [(StatusCode.ERROR, StatusCode.ERROR), *[(StatusCode.UNSET, StatusCode.UNSET)] * 3]
    assert len(working.spans) < 4


def test_who_tells_and_who_is_told_are_producer_and_consumer() -> None:
    working = Working()

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("working", working)
        await caller.broadcast("working", b"told")
        await network.until(lambda: traces.of("member"))

    ours, theirs = simulate(scenario).pair()
    assert (ours.kind, theirs.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (ours.name, theirs.name) == ("broadcast working", "process working")
    assert ours.attributes == {
        "messaging.system": "iris",
        "messaging.operation.name": "broadcast",
        "messaging.operation.type": "send",
        "messaging.destination.name": "working",
        "messaging.message.body.size": 4,
    }
    assert theirs.attributes is not None
    assert theirs.attributes["messaging.operation.type"] == "process"
    assert len(str(theirs.attributes["iris.source"])) == 32
    assert working.spans == [theirs.context.span_id]


@pytest.mark.parametrize("tries", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_callbacks_of_subscriptions_are_consumers(tries: bool, is_async: bool) -> None:
    spans: list[int] = []

    def take(message: iris.Message) -> None:
        spans.append(trace.get_current_span().get_span_context().span_id)

    async def take_slowly(message: iris.Message) -> None:
        await asyncio.sleep(0.1)
        take(message)

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.subscribe("news.*", take_slowly if is_async else take)
        if tries:
            caller.try_publish("news.sport", b"goal")
        else:
            await caller.publish("news.sport", b"goal")
        await network.until(lambda: traces.of("member"))

    ours, theirs = simulate(scenario).pair()
    assert (ours.kind, theirs.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert (ours.name, theirs.name) == ("publish news.sport", "process news.sport")
    assert theirs.attributes is not None
    assert theirs.attributes["messaging.destination.subscription.name"] == "news.*"
    assert spans == [theirs.context.span_id]


def test_who_iterates_begins_a_span_in_the_context_of_the_message() -> None:
    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        async with member.subscribe("news") as news:
            await caller.publish("news", b"goal")
            message = await anext(news)
        tracer = traces.providers["member"].get_tracer("mine")
        with tracer.start_as_current_span("mine", context=context_of(message), kind=SpanKind.CONSUMER):
            pass

    _ours, theirs = simulate(scenario).pair()
    assert theirs.name == "mine"


def test_a_handler_that_asks_further_is_in_the_same_trace() -> None:
    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        async def ask_further(request: iris.Request) -> bytes:
            return await member.request("second", request.payload, headers=request.headers)

        await member.join("first", ask_further)
        await caller.join("second", Working())
        with traces.providers["caller"].get_tracer("mine").start_as_current_span("mine"):
            await caller.request("first", b"")

    traces = simulate(scenario)
    spans = {(span.name, span.kind): span for span in (*traces.of("caller"), *traces.of("member"))}
    chain = [
        ("mine", SpanKind.INTERNAL),
        ("first/request", SpanKind.CLIENT),
        ("first/request", SpanKind.SERVER),
        ("second/request", SpanKind.CLIENT),
        ("second/request", SpanKind.SERVER),
    ]
    assert set(spans) == set(chain)
    for above, below in itertools.pairwise(chain):
        parent = spans[below].parent
        assert parent is not None
        assert parent.span_id == spans[above].context.span_id
    assert len({span.context.trace_id for span in spans.values()}) == 1


def test_without_a_span_at_the_sender_the_handler_begins_a_trace_of_its_own() -> None:
    """Not within that of whoever happened to connect the node."""
    working, traces = Working(), Traces()

    async def main() -> None:
        async with VirtualNetwork(seed=1) as network:
            caller = await network.connect(tracing=False)
            with traces.providers["member"].get_tracer("mine").start_as_current_span("while it connects"):
                member = await network.connect(tracing=traces.providers["member"])
                await member.join("working", working)
            await caller.request("working", b"")
            await caller.broadcast("working", b"")
            await network.until(lambda: len(traces.of("member")) == 3)

    run(main(), limit_s=600.0)
    assert {span.name for span in traces.of("member") if span.parent is None} == {
        "while it connects",
        "working/request",
        "process working",
    }


def test_the_span_of_a_handler_is_current_while_it_runs_and_nobody_elses_child() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    tracing = find_tracing(provider, print)
    assert tracing is not None
    message = iris.Message(b"", "", 1)
    with provider.get_tracer("mine").start_as_current_span("mine") as mine:
        assert trace.get_current_span(context_of(message)) is trace.INVALID_SPAN
        with tracing.serve("request", "name", "source", message):
            assert trace.get_current_span().get_span_context().trace_id != mine.get_span_context().trace_id
        assert trace.get_current_span() is mine
        with pytest.raises(LookupError), tracing.process("name", "source", message, 0):
            raise LookupError
        assert trace.get_current_span() is mine


@pytest.mark.parametrize("kind", ["request", "tunnel", "broadcast"])
def test_failures_are_in_the_spans_where_they_are_seen(kind: str) -> None:
    working = Working()
    working.fails = True

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("working", working)
        if kind == "request":
            with pytest.raises(iris.RemoteError):
                await caller.request("working", b"")
        elif kind == "tunnel":
            with pytest.raises(iris.TunnelBroken):
                await (await caller.tunnel("working")).receive()
        else:
            await caller.broadcast("working", b"")
        await network.until(lambda: traces.of("member"))

    ours, theirs = simulate(scenario).pair()
    assert theirs.status.status_code is StatusCode.ERROR
    assert theirs.attributes is not None
    assert theirs.attributes["error.type"] == "LookupError"
    assert [event.name for event in theirs.events] == ["exception"]
    assert ours.attributes is not None
    assert ours.attributes.get("error.type") == ("RemoteError" if kind == "request" else None)


def test_an_outcome_without_a_member_and_a_survey_of_nobody_are_errors() -> None:
    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        for ask in (caller.request, caller.survey):
            with pytest.raises(iris.NoMembers):
                await ask("nobody", b"")

    traces = simulate(scenario)
    assert [span.name for span in traces.of("caller")] == ["nobody/request", "nobody/survey"]
    for span in traces.of("caller"):
        assert span.attributes is not None
        assert span.attributes["error.type"] == "NoMembers"
        assert span.status.status_code is StatusCode.ERROR


def test_to_be_cancelled_is_no_error() -> None:
    began = asyncio.Event()

    async def hang(request: iris.Request) -> bytes:
        began.set()
        await asyncio.sleep(1000.0)
        return b""

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("hanging", hang)
        asking = asyncio.create_task(caller.request("hanging", b"", timeout=60.0))
        await began.wait()
        asking.cancel()
        await network.until(lambda: traces.of("member") and traces.of("caller"))

    for span in simulate(scenario).pair():
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes is not None
        assert span.attributes["iris.cancelled"] is True


def test_inline_functions_and_those_in_threads_are_in_their_span() -> None:
    spans: list[int] = []

    def note(request: iris.Request) -> bytes:
        spans.append(trace.get_current_span().get_span_context().span_id)
        return b""

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("inline", note, inline=True)
        await member.join("thread", note)
        await caller.request("inline", b"")
        await caller.request("thread", b"")

    assert spans == [span.context.span_id for span in simulate(scenario).of("member")]
    assert len(spans) == 2


def test_a_sampler_decides_for_the_whole_trace() -> None:
    traces = Traces()
    traces.providers["caller"] = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    flags: list[bool] = []

    async def note(request: iris.Request) -> bytes:
        flags.append(trace.get_current_span().get_span_context().trace_flags.sampled)
        return b""

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("noting", note)
        await caller.request("noting", b"")

    simulate(scenario, traces)
    assert flags == [False]
    assert not traces.of("member")


def test_baggage_travels_and_what_does_not_fit_is_counted() -> None:
    seen: list[object] = []

    async def note(request: iris.Request) -> bytes:
        seen.append(baggage.get_baggage("tenant"))
        return b""

    async def scenario(network: VirtualNetwork, caller: Node, member: Node, traces: Traces) -> None:
        await member.join("noting", note)
        token = context.attach(baggage.set_baggage("tenant", "seven"))
        try:
            await caller.request("noting", b"")
            large = {"large": bytes(HEADERS_BYTES_MAX - 20)}
            await caller.request("noting", b"", headers=large)
        finally:
            context.detach(token)
        assert caller.statistics().drops == {"trace_context": 1}

    traces = simulate(scenario)
    assert seen == ["seven", None]
    assert [span.parent is None for span in traces.of("member")] == [False, True]


def test_headers_of_a_strange_type_are_no_trace_context() -> None:
    traces, working = Traces(), Working()

    async def main() -> None:
        async with VirtualNetwork(seed=1) as network:
            member = await network.connect(tracing=traces.providers["member"])
            other = await network.connect(tracing=False)
            await member.join("working", working)
            for value in (b"bytes", 1, "no traceparent", True):
                await other.request("working", b"", headers={"traceparent": value, "tracestate": value, "baggage": value})

    run(main(), limit_s=600.0)
    assert len(working.spans) == 4
    assert [span.parent for span in traces.of("member")] == [None] * 4


def test_a_node_traces_by_itself_only_if_a_provider_is_set_up() -> None:
    """None is, in this process; test_tracing.py of the integration tests has one that is."""
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert find_tracing(None, print) is None
    assert find_tracing(False, print) is None
    assert find_tracing(True, print) is not None
    assert find_tracing(TracerProvider(shutdown_on_exit=False), print) is not None
