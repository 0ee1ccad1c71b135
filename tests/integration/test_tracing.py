"""Traces from process to process, over real sockets, and what a node costs that does not trace."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import iris_py as iris
import iris_py.sync
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator

#: (trace, span, span of the parent) by name and kind
Spans = dict[str, list[str]]

PATIENCE_S = 60.0


@pytest.fixture
def traced_member(home: Path) -> Iterator[None]:
    """A process that traces."""
    command = [sys.executable, str(Path(__file__).with_name("traced_member.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        yield
        _out, errors = process.communicate(timeout=PATIENCE_S)
        assert not without_standstills(errors.decode()), errors.decode()
        assert process.returncode == 0
    finally:
        process.kill()
        process.communicate()


class Caller:
    """The spans that this process makes."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> Spans:
        found = {}
        for span in self.exporter.get_finished_spans():
            own = span.get_span_context()
            assert own is not None
            parent = f"{span.parent.span_id:x}" if span.parent is not None else ""
            found[f"{span.name} {span.kind.name}"] = [f"{own.trace_id:x}", f"{own.span_id:x}", parent]
        return found


def check(ours: Spans, theirs: Spans) -> None:
    """Each span of the member is the child of its counterpart here, in one trace."""
    for there, here in {
        "traced/request SERVER": "traced/request CLIENT",
        "traced/survey SERVER": "traced/survey CLIENT",
        "traced/tunnel SERVER": "traced/tunnel CLIENT",
        "thread/request SERVER": "thread/request CLIENT",
        "process traced CONSUMER": "broadcast traced PRODUCER",
        "process news.sport CONSUMER": "publish news.sport PRODUCER",
    }.items():
        trace_id, _span_id, parent = theirs[there]
        assert [trace_id, parent] == ours[here][:2], there
    in_thread = theirs["in a thread INTERNAL"]
    assert in_thread[::2] == theirs["thread/request SERVER"][:2]


def test_each_pattern_is_one_trace_over_two_processes(loop: Any, traced_member: None) -> None:
    async def main() -> None:
        caller = Caller()
        async with iris.connect(tracing=caller.provider) as node:
            seen = json.loads(await node.request("traced", b"", headers={"own": 1}))
            assert seen.keys() == {"own", "traceparent"}
            await node.survey("traced", b"", timeout=PATIENCE_S)
            await node.request("thread", b"")
            await node.broadcast("traced", b"")
            await node.publish("news.sport", b"")
            async with node.tunnel("traced") as tunnel:
                await tunnel.send(b"there and back")
                assert await tunnel.receive() == b"there and back"
            theirs: Spans = {}
            async with asyncio.timeout(PATIENCE_S):
                while len(theirs) < 8:  # those, what the thread began, and the question itself
                    theirs = json.loads(await node.request("spans", b""))
        check(caller.spans(), theirs)

    loop.run(main())


def test_without_await_the_span_of_the_thread_is_the_parent(traced_member: None) -> None:
    caller = Caller()
    with iris_py.sync.connect(tracing=caller.provider) as node:
        with caller.provider.get_tracer("mine").start_as_current_span("mine"):
            node.request("traced", b"")
            future = node.request_future("thread", b"")
            node.broadcast("traced", b"")
            node.publish("news.sport", b"")
            node.survey("traced", b"", timeout=PATIENCE_S).wait()
            with node.tunnel("traced", headers={"own": 1}) as tunnel:
                assert tunnel.headers["own"] == 1
            future.result()
        theirs: Spans = {}
        while len(theirs) < 8:
            theirs = json.loads(node.request("spans", b"", timeout=PATIENCE_S))
    ours = caller.spans()
    check(ours, theirs)
    mine = ours.pop("mine INTERNAL")
    ours.pop("spans/request CLIENT")
    assert {span[0] for span in ours.values()} == {mine[0]}
    assert {span[2] for span in ours.values()} == {mine[1]}


@pytest.mark.parametrize("is_traced", [False, True])
def test_a_plain_function_runs_in_a_thread_and_a_coroutine_in_the_loop(loop: Any, home: Path, is_traced: bool) -> None:
    ran_in: dict[str, threading.Thread] = {}

    def plain(request: iris.Request) -> bytes:
        ran_in["plain"] = threading.current_thread()
        return request.payload

    async def coroutine(request: iris.Request) -> bytes:
        ran_in["coroutine"] = threading.current_thread()
        return request.payload

    async def main() -> None:
        async with iris.connect(tracing=Caller().provider if is_traced else False) as node:
            await node.join("plain", plain, concurrency=1)
            await node.join("coroutine", coroutine)
            for name in ("plain", "coroutine"):
                assert await node.request(name, name.encode()) == name.encode()

    loop.run(main())
    assert ran_in["plain"].name.startswith("iris-handler")
    assert ran_in["coroutine"] is threading.current_thread()


def test_plain_handlers_and_callbacks_of_threads_see_headers(home: Path) -> None:
    taken: list[iris.Message] = []
    with iris_py.sync.connect() as node:
        with (
            node.join("echo", lambda request: json.dumps(dict(request.headers)).encode()),
            node.subscribe("t") as subscription,
            node.subscribe("*", taken.append),
        ):
            assert json.loads(node.request("echo", b"", headers={"a": 1})) == {"a": 1}
            node.publish("t", b"", headers={"b": "c"})
            assert next(subscription).headers == {"b": "c"}
        assert [message.headers for message in taken] == [{"b": "c"}]


@pytest.mark.parametrize("with_provider", [True, False])
def test_who_has_not_set_it_up_does_not_even_import_it(home: Path, with_provider: bool) -> None:
    program = f"""
import sys
import iris_py as iris
import iris_py.sync, iris_py.testing, iris_py.cli, iris_py.tracing

if {with_provider}:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())

async def main():
    async with iris.connect() as node:
        await node.join("echo", echo)
        assert (b"traceparent" in await node.request("echo", b"")) is {with_provider}
        assert (node._runtime.tracing is not None) is {with_provider}
    assert any(name.startswith("opentelemetry") for name in sys.modules) is {with_provider}

async def echo(request):
    return repr(request.headers).encode()

iris.run(main())
"""
    subprocess.run([sys.executable, "-X", "dev", "-c", program], check=True, timeout=PATIENCE_S)


@pytest.mark.parametrize(("value", "is_traced"), [("true", True), ("false", False)])
def test_the_environment_can_say_so(loop: Any, monkeypatch: pytest.MonkeyPatch, value: str, is_traced: bool) -> None:
    monkeypatch.setenv("IRIS_TRACING", value)

    async def main() -> None:
        async with iris.connect() as node:
            assert (node._runtime.tracing is not None) == is_traced

    loop.run(main())


def test_a_wish_that_cannot_be_fulfilled_says_what_to_install(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.setitem(sys.modules, name, None)

    async def main() -> None:
        with pytest.raises(iris.ConfigurationError, match=r"Run: pip install '?opentelemetry-api"):
            await iris.connect(tracing=True)
        with pytest.raises(iris.ConfigurationError, match=r"Run: pip install '?opentelemetry-api"):
            iris_py.tracing.context_of(iris.Message(b"", "", 1))
        async with iris.connect() as node:
            assert node._runtime.tracing is None

    import iris_py.tracing

    loop.run(main())


def test_what_is_no_setting_is_refused(home: Path) -> None:
    wrong: Any = 7
    with pytest.raises(iris.ConfigurationError, match="tracing is 7"):
        iris.connect(tracing=wrong)
