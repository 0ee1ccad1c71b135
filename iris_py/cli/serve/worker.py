"""One worker process of `iris serve`: serves until a signal arrives, or until the supervisor has ended."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

import iris_py
from iris_py.cli.join import ReadyLine, address_of, announce, ending_by_signal, reload_on_hangup, serving_status
from iris_py.cli.outcome import ExitCode
from iris_py.cli.payload_options import read_seal
from iris_py.cli.serve.handlers import imported_files, load_target, parse_target
from iris_py.cli.serve.line import SupervisorLine
from iris_py.cli.serve.messages import Report
from iris_py.cli.standard_error import complain, show_traceback
from iris_py.errors import ConfigurationError
from iris_py.metrics.prometheus import ProgramCollector
from iris_py.service import Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py import Node
    from iris_py.cli.serve.handlers import HandlerTarget
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines
    from iris_py.service.service import Running

__all__ = ["LINES", "ServeOptions", "serve"]

#: The lines of `--json`, by command.
LINES: Final[Lines] = {"serve": (ReadyLine,)}
#: Interval at which a worker looks for newly imported modules (seconds). Too small: useless processor time; too large: a
#: change is missed for this time.
LOOK_S: Final = 1.0


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `iris serve` for each worker."""

    target: str
    directory: str
    """The first directory to search for the module, as an absolute path."""
    cluster: str | None = None
    concurrency: int | None = None
    weight: float = 1.0
    seal_file: str | None = None
    seal_name: str | None = None
    as_json: bool = False

    def as_options(self) -> list[str]:
        """Return the options as words for a worker's command line."""
        words = [f"--directory={self.directory}", f"--weight={self.weight}"]
        named = {
            "cluster": self.cluster,
            "concurrency": self.concurrency,
            "seal-file": self.seal_file,
            "seal-name": self.seal_name,
        }
        words += [f"--{name}={value}" for name, value in named.items() if value is not None]
        return [*words, *["--json"] * self.as_json]


async def serve(settings: Settings, options: ServeOptions, *, http: str | None = None) -> int:
    """Serve until a signal arrives or the supervisor has ended; then leave without failing a request. Return the exit code.

    Args:
        settings: The settings of the node.
        options: The target and its options.
        http: The address of metrics and health; None for none. Workers of a supervisor get None: the supervisor serves them.
    """
    line = await SupervisorLine.open()
    target = parse_target(options.target)
    service = await _load(target, options, line)
    own = [ProgramCollector()] if "prometheus_client" in sys.modules else []  # no other code has imported it yet
    go = None if line is None else await line.go()
    if line is not None and go is None:
        return ExitCode.OK  # the supervisor has ended
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**settings.connect_arguments()) as node,
        _heeding(line, node, ended, target),
    ):
        running = service.running(node, weight=options.weight)
        if status is not None:
            status.show(node, *own, reasons=running.reasons)  # until the node serves, the status reports what it waits for
        try:
            async with AsyncExitStack() as stack:
                if await _start(running, stack, ended):
                    reload_on_hangup(node)
                    _announce(node, service, options, address_of(status) if go is None else go.http)
                    if line is not None:
                        line.tell(Report(is_ready=True, files=imported_files(target)))
                return await ended
        except Exception as exc:
            if not running.failed_hook:
                raise
            show_traceback(exc, event="hook_failed")
            complain(f"{running.failed_hook} failed: {type(exc).__qualname__}: {exc}")
            return ExitCode.FAILED


async def _start(running: Running, stack: AsyncExitStack, ended: asyncio.Future[int]) -> bool:
    """Start a service, to be ended by the stack; return False if a signal arrived before the service had started.

    Hooks may take any time, and a signal cancels the running one. Hooks start and end in the same task, because task groups and
    timeouts in generator hooks require that.
    """
    limit, loop = asyncio.timeout(None), asyncio.get_running_loop()

    def give_up(_ended: object) -> None:
        with suppress(RuntimeError):  # started in the same turn
            limit.reschedule(loop.time())

    try:
        async with limit:
            ended.add_done_callback(give_up)
            await stack.enter_async_context(running)
    except TimeoutError:
        if not limit.expired():
            raise
        return False
    finally:
        ended.remove_done_callback(give_up)
    return True


def _announce(node: Node, service: Service, options: ServeOptions, address: str) -> None:
    announce(
        node,
        service.describe(),
        cluster=service.clusters[0] if len(service.clusters) == 1 else UNSET,
        clusters=list(service.clusters),
        patterns=list(service.patterns) or UNSET,
        http=address,
        as_json=options.as_json,
    )


async def _load(target: HandlerTarget, options: ServeOptions, line: SupervisorLine | None) -> Service:
    """Import the target and return it as a service. The supervisor gets the source files even if the import fails."""
    try:
        with nullcontext() if line is None else line.ending_with_supervisor():
            service = _as_service(load_target(target, options.directory), target, options)
            service.check()
    except Exception as exc:
        if line is not None:
            line.tell(Report(files=imported_files(target, exc)))
            await line.close()
        raise
    if line is not None:
        line.tell(Report(is_loaded=True, files=imported_files(target)))
    return service


def _as_service(found: Any, target: HandlerTarget, options: ServeOptions) -> Service:  # noqa: ANN401 - any object that can be served
    """Return a service unchanged; for a handler, return a service made of the handler.

    Raises:
        ConfigurationError: The handler cannot be served, or an option applies only to a handler.
    """
    if isinstance(found, Service):
        given = {"--cluster": options.cluster, "--concurrency": options.concurrency, "--seal-file": options.seal_file}
        for name, value in given.items():
            if value is not None:
                raise ConfigurationError(
                    f"{target.name} is a service, but {name} is only for a single handler. Set it in the service: "
                    '@service.handler("NAME", concurrency=..., seal=...).'
                )
        return found
    seal = read_seal(None if options.seal_file is None else Path(options.seal_file), options.seal_name)
    if isinstance(found, iris_py.Sealed):
        seal = None  # its own seal applies
    service = Service()
    service.handler(options.cluster or target.name, seal=seal, concurrency=options.concurrency)(found)
    return service


@asynccontextmanager
async def _heeding(
    line: SupervisorLine | None, running: Node, ended: asyncio.Future[int], target: HandlerTarget
) -> AsyncIterator[None]:
    """In the block, answer the supervisor's queries, also while leaving the cluster; end the command when the supervisor has
    ended.
    """
    if line is None:
        yield
        return
    tasks = [asyncio.create_task(_answer(line, running, ended)), asyncio.create_task(_look_for_imports(line, target))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _answer(line: SupervisorLine, running: Node, ended: asyncio.Future[int]) -> None:
    await line.answer(running)
    if not ended.done():
        ended.set_result(ExitCode.OK)


async def _look_for_imports(line: SupervisorLine, target: HandlerTarget) -> None:
    """Report later imported source files to the supervisor, such as modules first needed by a request."""
    known = len(sys.modules)
    while True:
        await asyncio.sleep(LOOK_S)
        if len(sys.modules) != known:
            known = len(sys.modules)
            line.tell(Report(files=imported_files(target)))
