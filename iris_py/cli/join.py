"""The commands that stay: `iris node` and `iris join`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

import iris_py
from iris_py.api.node import start_node
from iris_py.api.opening import Opening
from iris_py.api.run import SIGNALS, stopping_of
from iris_py.cli.exec import CommandHandler, parse_command
from iris_py.cli.lines import begin_timed_log, complain, tell
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Line, Lines, Output
from iris_py.cli.sealing import read_sealed
from iris_py.net.addresses import parse_address
from iris_py.net.service_manager import service_manager
from iris_py.net.soundings import try_port
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from iris_py.cli.settings import Settings
    from iris_py.metrics import StatusServer


class ReadyLine(Line, tag="ready", kw_only=True):
    """A node that runs, and what it does."""

    id: str
    name: str
    """Its name, a label for people; empty if it tells none."""
    address: str
    network: str
    zone: str
    cluster: str | UnsetType = UNSET
    """The cluster that it serves."""
    pattern: str | UnsetType = UNSET
    """The topics that it subscribes to."""
    clusters: list[str] | UnsetType = UNSET
    """The clusters that it serves, if it is a service of `iris serve`."""
    patterns: list[str] | UnsetType = UNSET
    """The topics that it consumes, likewise."""
    http: str | UnsetType = UNSET
    """Where it serves metrics and health."""


#: What `--json` prints, by command.
LINES: Final[Lines] = {"node": (ReadyLine,), "join": (ReadyLine,)}

#: How often `iris node` looks whether the port of the settings is free, if another program of the machine had it (seconds). Too
#: small: work for nothing; too large: nobody answers at the address of a seed for so long.
PORT_LOOK_S: Final = 2.0

#: Reloads that run: an event loop does not keep its tasks.
_reloads: set[asyncio.Task[None]] = set()

__all__ = [
    "LINES",
    "ReadyLine",
    "address_of",
    "announce",
    "describe_service",
    "end_with",
    "ending_by_signal",
    "join",
    "node",
    "reload_on_hangup",
    "run_on_hangup",
    "serving_status",
]


async def node(settings: Settings, *, http: str | None = None, as_json: bool) -> int:
    """Stay in the network until a signal comes.

    Others find the network through this node, at the port of the settings. If another program of the machine had that when the
    node started, the node starts again as soon as the port is free.
    """
    async with ending_by_signal() as ended, serving_status(http) as status:
        while not ended.done():
            config = settings.load()
            async with Opening(start_node(config, reload=settings.load)) as running:
                if status is not None:
                    status.show(running)
                reload_on_hangup(running)
                announce(running, "", http=address_of(status), as_json=as_json)
                freed = asyncio.create_task(_wait_for_port(running, config.listen))
                await asyncio.wait((ended, freed), return_when=asyncio.FIRST_COMPLETED)
                freed.cancel()
    return ended.result()


async def _wait_for_port(running: iris_py.Node, listen: str) -> None:
    """Wait until nobody has the port of the settings; for ever if the node has it itself, or is to take any."""
    host, port = parse_address(listen)
    if port in (0, running.port):
        await asyncio.Event().wait()
    while True:
        errors = [await try_port(host, port, is_udp=is_udp) for is_udp in (False, True)]
        if not any(errors):
            tell(f"{listen} is free, so the node starts again there", event="port_free")
            return
        await asyncio.sleep(PORT_LOOK_S)


async def join(
    settings: Settings,
    cluster: str,
    command: str,
    *,
    use_shell: bool,
    concurrency: int | None,
    weight: float,
    seal_file: Path | None = None,
    seal_name: str | None = None,
    http: str | None = None,
    as_json: bool,
) -> int:
    """Serve a cluster with a command until a signal comes, then leave without failing a request."""
    words = parse_command(command, use_shell=use_shell)
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**settings.connect_arguments()) as running,
    ):
        if status is not None:
            status.show(running)  # from here on it says that the cluster is being joined
        handler = read_sealed(CommandHandler(words, running.max_message_bytes), seal_file, seal_name)
        async with running.join(cluster, handler, concurrency=concurrency or os.cpu_count() or 1, weight=weight):
            reload_on_hangup(running)
            announce(running, f"serves {cluster!r}", cluster=cluster, http=address_of(status), as_json=as_json)
            return await ended


@asynccontextmanager
async def serving_status(http: str | None) -> AsyncIterator[StatusServer | None]:
    """Serve metrics and health where the option ``--http`` says, from before there is a node until it has left.

    Args:
        http: The value of the option; None to serve nothing.

    Raises:
        ConfigurationError: It is no address, it cannot be listened there, or a package is missing.
    """
    if http is None:
        yield None
        return
    from iris_py.metrics import StatusServer

    server = StatusServer()
    await server.listen(http)
    try:
        yield server
    finally:
        await server.close()


def address_of(status: StatusServer | None) -> str:
    """Return where metrics and health are served; empty for nowhere."""
    return "" if status is None else status.address


@asynccontextmanager
async def ending_by_signal() -> AsyncIterator[asyncio.Future[int]]:
    """Turn the first SIGINT or SIGTERM into an exit code, so that leaving comes first; a later one ends the process.

    SIGHUP does the same where the command has a terminal, which is gone then. A service has none: see :func:`reload_on_hangup`.
    Such a command runs for long, so from here on each line of its log begins with the time.
    """
    begin_timed_log()
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def end(done: asyncio.Task[signal.Signals]) -> None:
        if not done.cancelled():
            service_manager().stopping()
        if not done.cancelled() and not ended.done():
            ended.set_result(ExitCode.INTERRUPTED if done.result() is signal.SIGINT else ExitCode.OK)

    if _is_service():
        loop.add_signal_handler(signal.SIGHUP, _ignore)  # until there is a node
    signals = SIGNALS if _is_service() else (*SIGNALS, signal.SIGHUP)
    stopped = asyncio.create_task(stopping_of(loop).wait(signals))  # not until_stopped(), which says that the service is ready
    stopped.add_done_callback(end)
    await asyncio.sleep(0)  # it listens from here on
    try:
        yield ended
    finally:
        stopped.cancel()


def end_with(ended: asyncio.Future[int], printing: asyncio.Task[None]) -> None:
    """End because enough was printed, or because nothing can be printed any more: whoever reads our output has gone."""
    if ended.done() or printing.cancelled():
        return
    error = printing.exception()
    if error is None:
        ended.set_result(ExitCode.OK)
    else:
        ended.set_exception(error)


def reload_on_hangup(running: iris_py.Node) -> None:
    """Let SIGHUP make a command that has no terminal read its secrets again, as services do."""
    run_on_hangup(lambda: _reload_keys(running))


def run_on_hangup(reload: Callable[[], Coroutine[object, object, None]]) -> None:
    """Let SIGHUP run something in a command that has no terminal."""

    def begin() -> None:
        service_manager().reloading()
        task = asyncio.get_running_loop().create_task(reload())
        task.add_done_callback(lambda _task: service_manager().reloaded())
        _reloads.add(task)
        task.add_done_callback(_reloads.discard)

    if _is_service():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin)


async def _reload_keys(running: iris_py.Node) -> None:
    try:
        await running.reload_keys()
    except iris_py.IrisError as exc:
        complain(f"the secrets stay as they are: {exc}", event="secrets_kept")
    else:
        tell("read the secrets again", event="secrets_read")


def _is_service() -> bool:
    """Tell whether SIGHUP comes from somebody who means it, and not from a terminal that goes; one that is ignored stays so."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.__stderr__))
    return not has_terminal and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def describe_service(running: iris_py.Node, doing_text: str) -> str:
    """Return what a service does, in a line for ``systemctl status``."""
    others = len(running.nodes()) - 1
    text = f"{doing_text or 'runs'} in the network {running.network!r} at {running.address}; {others} other nodes known"
    return f"{text}; not ready: {'; '.join(running.health().reasons)}" if not running.health().is_ready else text


def _ignore() -> None:
    """Do nothing."""


def announce(
    running: iris_py.Node,
    doing: str,
    *,
    cluster: str | UnsetType = UNSET,
    pattern: str | UnsetType = UNSET,
    clusters: list[str] | UnsetType = UNSET,
    patterns: list[str] | UnsetType = UNSET,
    http: str = "",
    as_json: bool,
) -> None:
    """Say on standard error what runs; standard output belongs to what broadcasts print, or to JSON.

    The service manager is told that it runs, too.

    Args:
        running: The node.
        doing: What it does, in words.
        cluster: The cluster that it serves.
        pattern: The topics that it subscribes to.
        clusters: The clusters that it serves as a service.
        patterns: The topics that it consumes as a service.
        http: Where metrics and health are served; empty for nowhere.
        as_json: Whether to say it on standard output, in JSON.
    """
    service_manager().ready(partial(describe_service, running, doing))
    if as_json:
        line = ReadyLine(
            id=running.id,
            name=running.name,
            address=running.address,
            network=running.network,
            zone=running.zone,
            cluster=cluster,
            pattern=pattern,
            clusters=clusters,
            patterns=patterns,
            http=http or UNSET,
        )
        Output(as_json=True).line(line)
        return
    what = f"node {short_name(running.id, running.name)} {doing}".rstrip()
    where = f"{running.address}, status at http://{http}" if http else running.address
    text = f"{what} in the network {running.network!r} at {where}; Ctrl-C ends it"
    tell(text, event="running")
