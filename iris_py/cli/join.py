"""The long-running commands `iris node` and `iris join`, and the shared parts of long-running commands."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

import iris_py
from iris_py.api.awaitable_context import Opening
from iris_py.api.node import start_node
from iris_py.api.run import SIGNALS, stopping_of
from iris_py.api.seal import sealed_with
from iris_py.cli.exec import CommandHandler
from iris_py.cli.outcome import ExitCode
from iris_py.cli.output import Output
from iris_py.cli.standard_error import complain, tell
from iris_py.cli.text_log import begin_timed_log
from iris_py.json_lines import Line, Lines
from iris_py.net.addresses import parse_address
from iris_py.net.service_manager import service_manager
from iris_py.net.socket_probes import try_port
from iris_py.observe.node_name import short_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from iris_py.api.options import JoinOptions
    from iris_py.cli.settings import Settings
    from iris_py.metrics import StatusServer


class ReadyLine(Line, tag="ready", kw_only=True):
    """A started node, with its address and its clusters or topics."""

    id: str
    name: str
    """The label of the node; empty if it has none."""
    address: str
    network: str
    zone: str
    cluster: str | UnsetType = UNSET
    """The served cluster."""
    pattern: str | UnsetType = UNSET
    """The subscribed topics."""
    clusters: list[str] | UnsetType = UNSET
    """The served clusters, for a service of `iris serve`."""
    patterns: list[str] | UnsetType = UNSET
    """The consumed topics, for a service of `iris serve`."""
    http: str | UnsetType = UNSET
    """The address of metrics and health."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"node": (ReadyLine,), "join": (ReadyLine,)}

#: Interval at which `iris node` checks whether its configured port is free, after another program used it (seconds). Too small:
#: useless work; too large: no node answers at the address of a seed for this time.
PORT_LOOK_S: Final = 2.0

#: The tasks of running reloads. An event loop keeps no strong references to its tasks, so this set does.
_reloads: set[asyncio.Task[None]] = set()
#: Set by a SIGHUP before the node is able to reload; :func:`run_on_hangup` makes up for it.
_early_hangup: Final = threading.Event()

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
    """Run a node until a signal arrives; return the exit code.

    Other nodes find the network through this node, at the configured port. If another program had the port when the node
    started, the node restarts as soon as the port is free.
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
    """Wait until the configured port is free. Never return if the node has the port already, or may use any port."""
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
    command: Sequence[str],
    options: JoinOptions,
    *,
    seal: iris_py.Seal | None,
    http: str | None,
    as_json: bool,
) -> int:
    """Join a cluster as a member that runs a command, until a signal arrives; then leave without failing a request.

    Args:
        settings: The settings of the node.
        cluster: The name.
        command: The words of the command.
        options: The options of the membership.
        seal: The seal of the callers; None for payloads in clear.
        http: The address of metrics and health; None for none.
        as_json: Whether to print JSON.

    Returns:
        The exit code.
    """
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**settings.connect_arguments()) as running,
    ):
        if status is not None:
            status.show(running)  # from now on it reports that the cluster is being joined
        handler = CommandHandler(command, running.max_message_bytes)
        async with running.join(cluster, handler if seal is None else sealed_with(handler, seal), **options):
            reload_on_hangup(running)
            announce(running, f"serves {cluster!r}", cluster=cluster, http=address_of(status), as_json=as_json)
            return await ended


@asynccontextmanager
async def serving_status(http: str | None) -> AsyncIterator[StatusServer | None]:
    """Serve metrics and health at the address of ``--http``, from before the node starts until it has left.

    Args:
        http: The value of the option; None to serve nothing.

    Raises:
        ConfigurationError: The address is invalid or cannot be used, or a package is missing.
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
    """Return the address at which metrics and health are served; empty without a server."""
    return "" if status is None else status.address


@asynccontextmanager
async def ending_by_signal() -> AsyncIterator[asyncio.Future[int]]:
    """Yield a future for the exit code. The first SIGINT or SIGTERM sets the code, for a clean end; a second ends the process.

    SIGHUP does the same if the command has a terminal, which is then gone; for a service see :func:`reload_on_hangup`. Lines of
    the log begin with the time from now on, because these commands run for long.
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
        _early_hangup.clear()
        loop.add_signal_handler(signal.SIGHUP, _early_hangup.set)  # until the node runs
    signals = SIGNALS if _is_service() else (*SIGNALS, signal.SIGHUP)
    stopped = asyncio.create_task(stopping_of(loop).wait(signals))  # not until_stopped(), which reports the service as ready
    stopped.add_done_callback(end)
    await asyncio.sleep(0)  # the signal handlers are active from here on
    try:
        yield ended
    finally:
        stopped.cancel()


def end_with(ended: asyncio.Future[int], printing: asyncio.Task[None]) -> None:
    """End the command when the printing task is done: enough was printed, or the reader of standard output is gone."""
    if ended.done() or printing.cancelled():
        return
    error = printing.exception()
    if error is None:
        ended.set_result(ExitCode.OK)
    else:
        ended.set_exception(error)


def reload_on_hangup(running: iris_py.Node) -> None:
    """Make SIGHUP reload the node's secrets in a command without a terminal, as services do."""
    run_on_hangup(lambda: _reload_keys(running))


def run_on_hangup(reload: Callable[[], Coroutine[object, object, None]]) -> None:
    """Make SIGHUP run a coroutine function in a command without a terminal; run it now for a SIGHUP during the start."""

    def begin() -> None:
        service_manager().reloading()
        task = asyncio.get_running_loop().create_task(reload())
        task.add_done_callback(lambda _task: service_manager().reloaded())
        _reloads.add(task)
        task.add_done_callback(_reloads.discard)

    if _is_service():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin)
        if _early_hangup.is_set():
            _early_hangup.clear()
            begin()


async def _reload_keys(running: iris_py.Node) -> None:
    try:
        await running.reload_keys()
    except iris_py.IrisError as exc:
        complain(f"the secrets were not changed: {exc}", event="secrets_kept")
    else:
        tell("read the secrets again", event="secrets_read")


def _is_service() -> bool:
    """Return whether SIGHUP requests a reload: the process has no terminal, and SIGHUP is not ignored."""
    has_terminal = any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.__stderr__))
    return not has_terminal and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def describe_service(running: iris_py.Node, doing_text: str) -> str:
    """Return the state of the node in one line, for ``systemctl status``."""
    others = len(running.nodes()) - 1
    text = f"{doing_text or 'runs'} in the network {running.network!r} at {running.address}; {others} other nodes known"
    return f"{text}; not ready: {'; '.join(running.health().reasons)}" if not running.health().is_ready else text


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
    """Report the running node to the service manager and on standard error; with `as_json` on standard output.

    Args:
        running: The node.
        doing: The purpose of the node, as text.
        cluster: The only served cluster.
        pattern: The subscribed topics.
        clusters: The clusters of a service.
        patterns: The topics consumed by a service.
        http: The address of metrics and health; empty for none.
        as_json: Whether to report on standard output, in JSON.
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
