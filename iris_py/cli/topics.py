"""The commands for topics: `iris publish` and `iris subscribe`."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import TYPE_CHECKING

import iris_py
from iris_py.cli.calling import read_headers, read_payload
from iris_py.cli.outcome import ExitCode, one_line, readable
from iris_py.cli.serving import announce, ending_by_signal, reload_on_hangup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.cli.settings import Settings

__all__ = ["publish", "subscribe"]


async def publish(settings: Settings, topic: str, text: str, *, header: Sequence[str] | None, as_json: bool) -> int:
    """Publish and say to how many nodes; that there is none is no failure."""
    config = settings.load()
    headers, payload = read_headers(header), read_payload(text, config.max_message_bytes, "Split it")
    async with iris_py.connect(config=config) as node:
        count = await node.publish(topic, payload, headers=headers)
    if as_json:
        print(json.dumps({"topic": topic, "nodes": count}))
    else:
        print(f"sent to {count} node{'s' * (count != 1)}")
    return ExitCode.OK


async def subscribe(settings: Settings, pattern: str, *, as_json: bool) -> int:
    """Print what is published, a line each, until a signal comes."""
    async with (
        ending_by_signal() as ended,
        iris_py.connect(**settings.connect_arguments()) as running,
        # Whoever reads our output decides how fast it goes.
        running.subscribe(pattern, policy="block") as subscription,
    ):
        reload_on_hangup(running)
        announce(running, {"pattern": pattern}, f"subscribes to {pattern!r}", as_json=as_json)
        printing = asyncio.create_task(_print_all(subscription, as_json=as_json))
        try:
            printing.add_done_callback(lambda done: _fail(ended, done))
            return await ended
        finally:
            printing.cancel()


def _fail(ended: asyncio.Future[int], printing: asyncio.Task[None]) -> None:
    """Pass on why nothing can be printed any more: whoever reads our output has gone."""
    if not ended.done() and not printing.cancelled():
        error = printing.exception()
        assert error is not None
        ended.set_exception(error)


async def _print_all(subscription: iris_py.Subscription, *, as_json: bool) -> None:
    show = _as_json if as_json else _as_line
    async for batch in subscription.batches():
        sys.stdout.write("".join(show(message) + "\n" for message in batch))
        sys.stdout.flush()


def _as_line(message: iris_py.Message) -> str:
    """Return the topic and the text; what could end the line or move the cursor is made harmless."""
    return f"{one_line(message.topic)} {one_line(message.payload.decode(errors='replace'))}"


def _as_json(message: iris_py.Message) -> str:
    document: dict[str, object] = {
        "topic": message.topic,
        "source": message.source,
        "sequence": message.sequence,
        "gap": message.gap,
    }
    if message.headers:
        document["headers"] = readable(message.headers)
    try:
        return json.dumps(document | {"payload": message.payload.decode()})
    except UnicodeDecodeError:
        return json.dumps(document | {"payload_base64": base64.b64encode(message.payload).decode()})
