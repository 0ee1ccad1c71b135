"""A member process that traces, for the tests: takes part in everything, and tells its spans to who asks the cluster `spans`.

It sets OpenTelemetry up as programs do, and says nothing of it to Iris. Configuration comes from the environment. It serves
until the end of its standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import iris_py as iris

EXPORTER = InMemorySpanExporter()


class Member(iris.Handler):
    async def on_request(self, request: iris.Request) -> bytes:
        return json.dumps(dict(request.headers)).encode()

    async def on_broadcast(self, message: iris.Message) -> None:
        pass

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for message in tunnel:
            await tunnel.send(message)


def work_in_thread(request: iris.Request) -> bytes:
    with trace.get_tracer("work").start_as_current_span("in a thread"):
        return b""


async def tell_spans(request: iris.Request) -> bytes:
    spans = EXPORTER.get_finished_spans()
    return json.dumps(
        {
            f"{span.name} {span.kind.name}": [
                f"{span.context.trace_id:x}",
                f"{span.context.span_id:x}",
                f"{span.parent.span_id:x}" if span.parent is not None else "",
            ]
            for span in spans
        }
    ).encode()


async def main() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)
    async with iris.connect() as node:
        await node.join("traced", Member())
        await node.join("thread", work_in_thread)
        await node.join("spans", tell_spans)
        await node.subscribe("news.*", lambda message: None)
        print("serving", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    iris.run(main())
