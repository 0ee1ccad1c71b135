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
from iris_py.api.stopping import SIGNALS
from iris_py.cli.commanding import CommandHandler, parse_command
from iris_py.cli.outcome import ExitCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.cli.settings import Settings

#: Reloads that run: an event loop does not keep its tasks.
_reloads: set[asyncio.Task[None]] = set()

__all__ = ["announce", "ending_by_signal", "join", "node", "reload_on_hangup"]


async def node(settings: Settings, *, as_json: bool) -> int:
    """Stay in the network until a signal comes."""
    async with ending_by_signal() as ended, iris_py.connect(**settings.connect_arguments()) as running:
        reload_on_hangup(running)
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
        reload_on_hangup(running)
        announce(running, {"cluster": cluster}, f"serves {cluster!r}", as_json=as_json)
        return await ended


@asynccontextmanager
async def ending_by_signal() -> AsyncIterator[asyncio.Future[int]]:
    """Turn the first SIGINT or SIGTERM into an exit code, so that leaving comes first; a later one ends the process.

    SIGHUP does the same where the command has a terminal, which is gone then. A service has none: see :func:`reload_on_hangup`.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(done: asyncio.Task[signal.Signals]) -> None:
        if not done.cancelled() and not ended.done():
            ended.set_result(ExitCode.INTERRUPTED if done.result() is signal.SIGINT else ExitCode.OK)

    if _is_service():
        loop.add_signal_handler(signal.SIGHUP, _ignore)  # until there is a node
    stopped = asyncio.create_task(iris_py.until_stopped(signals=SIGNALS if _is_service() else (*SIGNALS, signal.SIGHUP)))
    stopped.add_done_callback(end)
    await asyncio.sleep(0)  # it listens from here on
    try:
        yield ended
    finally:
        stopped.cancel()


def reload_on_hangup(running: iris_py.Node) -> None:
    """Let SIGHUP make a command that has no terminal read its secrets again, as services do."""
    if _is_service():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _begin_to_reload_keys, running)


def _begin_to_reload_keys(running: iris_py.Node) -> None:
    task = asyncio.get_running_loop().create_task(_reload_keys(running))
    _reloads.add(task)
    task.add_done_callback(_reloads.discard)


async def _reload_keys(running: iris_py.Node) -> None:
    try:
        await running.reload_keys()
    except iris_py.IrisError as exc:
        print(f"iris: the secrets stay as they are: {exc}", file=sys.stderr, flush=True)
    else:
        print("iris: read the secrets again", file=sys.stderr, flush=True)


def _is_service() -> bool:
    """Tell whether SIGHUP comes from somebody who means it, and not from a terminal that goes; one that is ignored stays so."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    return not has_terminal and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def _ignore() -> None:
    """Do nothing."""


def announce(running: iris_py.Node, doing: dict[str, str], doing_text: str, *, as_json: bool) -> None:
    """Say on standard error what runs; standard output belongs to what broadcasts print, or to JSON."""
    if as_json:
        document = {"id": running.id, "address": running.address, "network": running.network, "zone": running.zone}
        print(json.dumps(document | doing), flush=True)
        return
    what = f"node {running.id[:8]} {doing_text}".rstrip()
    text = f"iris: {what} in the network {running.network!r} at {running.address}; Ctrl-C ends it"
    print(text, file=sys.stderr, flush=True)
