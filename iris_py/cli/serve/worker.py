"""One process of `iris serve`: it serves a cluster with a handler until a signal comes, or until its supervisor has gone."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import msgspec

import iris_py
from iris_py.cli.outcome import ExitCode
from iris_py.cli.sealing import read_sealed
from iris_py.cli.serve.handlers import imported_files, load_handler, parse_target
from iris_py.cli.serve.line import SupervisorLine
from iris_py.cli.serve.messages import Report
from iris_py.cli.serving import ReadyLine, address_of, announce, ending_by_signal, reload_on_hangup, serving_status
from iris_py.metrics.program import ProgramCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py import Handler, Node
    from iris_py.cli.output import Lines
    from iris_py.cli.serve.handlers import AnyHandler, Target
    from iris_py.cli.settings import Settings

__all__ = ["LINES", "Service", "serve"]

#: What `--json` prints, by command.
LINES: Final[Lines] = {"serve": (ReadyLine,)}
#: Between looks at what has been imported since. Too small: processor time for nothing; too large: a change is missed so long.
LOOK_S: Final = 1.0


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `iris serve` that are those of each worker."""

    target: str
    directory: str
    """Where its module is looked for first, from the root."""
    cluster: str | None = None
    concurrency: int | None = None
    weight: float = 1.0
    seal_file: str | None = None
    seal_name: str | None = None
    as_json: bool = False

    def as_options(self) -> list[str]:
        """Return the options that say the same on the command line of a worker."""
        words = [f"--directory={self.directory}", f"--weight={self.weight}"]
        named = {
            "cluster": self.cluster,
            "concurrency": self.concurrency,
            "seal-file": self.seal_file,
            "seal-name": self.seal_name,
        }
        words += [f"--{name}={value}" for name, value in named.items() if value is not None]
        return [*words, *["--json"] * self.as_json]


async def serve(settings: Settings, service: Service, *, http: str | None = None) -> int:
    """Serve until a signal comes, or the supervisor has gone; then leave without failing a request.

    Args:
        settings: The settings of the node.
        service: What is served.
        http: Where metrics and health are served; None for nowhere. A supervisor does that for its workers.
    """
    line = await SupervisorLine.open()
    target = parse_target(service.target)
    handler = await _load(target, service.directory, line)
    own = [ProgramCollector()] if "prometheus_client" in sys.modules else []  # nobody else has imported it yet
    go = None if line is None else await line.go()
    if line is not None and go is None:
        return ExitCode.OK  # the supervisor has gone
    cluster = service.cluster or target.name
    seal_file = None if service.seal_file is None else Path(service.seal_file)
    async with (
        ending_by_signal() as ended,
        serving_status(http) as status,
        iris_py.connect(**settings.connect_arguments()) as running,
        _heeding(line, running, ended, target),
    ):
        if status is not None:
            status.show(running, *own)  # from here on it says that the cluster is being joined
        sealed = _sealed(handler, seal_file, service.seal_name)
        async with running.join(cluster, sealed, concurrency=service.concurrency, weight=service.weight):
            reload_on_hangup(running)
            address = address_of(status) if go is None else go.http
            announce(running, f"serves {cluster!r}", cluster=cluster, http=address, as_json=service.as_json)
            if line is not None:
                line.tell(Report(is_ready=True, files=imported_files(target)))
            return await ended


async def _load(target: Target, directory: str, line: SupervisorLine | None) -> AnyHandler:
    """Import the handler, and let the supervisor know which files that were, also where one of them is wrong."""
    try:
        with nullcontext() if line is None else line.ending_with_supervisor():
            handler = load_handler(target, directory)
    except Exception as exc:
        if line is not None:
            line.tell(Report(files=imported_files(target, exc)))
            await line.close()
        raise
    if line is not None:
        line.tell(Report(is_loaded=True, files=imported_files(target)))
    return handler


def _sealed(handler: AnyHandler, seal_file: Path | None, seal_name: str | None) -> Handler | iris_py.Sealed:
    """Return what a node joins with; functions are as good as handlers there."""
    return handler if isinstance(handler, iris_py.Sealed) else read_sealed(cast("Handler", handler), seal_file, seal_name)


@asynccontextmanager
async def _heeding(
    line: SupervisorLine | None, running: Node, ended: asyncio.Future[int], target: Target
) -> AsyncIterator[None]:
    """Answer the supervisor in the block, also while the cluster is being left, and end when it has gone."""
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


async def _look_for_imports(line: SupervisorLine, target: Target) -> None:
    """Report files that are imported later, such as those that a request needs."""
    known = len(sys.modules)
    while True:
        await asyncio.sleep(LOOK_S)
        if len(sys.modules) != known:
            known = len(sys.modules)
            line.tell(Report(files=imported_files(target)))
