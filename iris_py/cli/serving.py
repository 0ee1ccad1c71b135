"""The commands that stay: `iris node` and `iris join`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import iris_py
from iris_py.cli.commanding import CommandHandler, parse_command
from iris_py.cli.outcome import ExitCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.cli.settings import Settings

__all__ = ["announce", "ending_by_signal", "join", "node"]


async def node(settings: Settings, *, as_json: bool) -> int:
    """Stay in the network until a signal comes."""
    async with ending_by_signal() as ended, iris_py.connect(**settings.connect_arguments()) as running:
        announce(running, {}, "", as_json=as_json)
        return await ended


async def join(
    settings: Settings, cluster: str, command: str, *, use_shell: bool, concurrency: int | None, weight: float, as_json: bool
) -> int:
    """Serve a cluster with a command until a signal comes, then leave without failing a request."""
    words = parse_command(command, use_shell=use_shell)
    async with (
        ending_by_signal() as ended,
        iris_py.connect(**settings.connect_arguments()) as running,
        running.join(
            cluster,
            CommandHandler(words, running.max_message_bytes),
            concurrency=concurrency or os.cpu_count() or 1,
            weight=weight,
        ),
    ):
        announce(running, {"cluster": cluster}, f"serves {cluster!r}", as_json=as_json)
        return await ended


@asynccontextmanager
async def ending_by_signal() -> AsyncIterator[asyncio.Future[int]]:
    """Turn the first SIGINT or SIGTERM into an exit code, so that leaving comes first; the next one ends the process."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    codes = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.OK}

    def end(code: ExitCode) -> None:
        for number in codes:
            loop.remove_signal_handler(number)
        ended.set_result(code)

    for number, code in codes.items():
        loop.add_signal_handler(number, end, code)
    try:
        yield ended
    finally:
        for number in codes:
            loop.remove_signal_handler(number)


def announce(running: iris_py.Node, doing: dict[str, str], doing_text: str, *, as_json: bool) -> None:
    """Say on standard error what runs; standard output belongs to what broadcasts print, or to JSON."""
    if as_json:
        document = {"id": running.id, "address": running.address, "network": running.network, "zone": running.zone}
        print(json.dumps(document | doing), flush=True)
        return
    what = f"node {running.id[:8]} {doing_text}".rstrip()
    text = f"iris: {what} in the network {running.network!r} at {running.address}; Ctrl-C ends it"
    print(text, file=sys.stderr, flush=True)
