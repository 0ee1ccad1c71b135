"""The command `iris tunnel`: pipes data of any size through one member."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

import iris_py
from iris_py.cli.outcome import ExitCode
from iris_py.cli.payload_options import read_headers
from iris_py.cli.standard_input import read_chunks
from iris_py.json_lines import Line, Lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from iris_py.cli.settings import Settings

__all__ = ["LINES", "tunnel"]


class TunnelLine(Line, tag="tunnel"):
    """The end of a successful tunnel, printed on standard error, because standard output has the data."""

    cluster: str
    member: str
    """The node id of the member."""
    sent_bytes: int
    received_bytes: int


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"tunnel": (TunnelLine,)}


async def tunnel(settings: Settings, cluster: str, *, timeout_s: float, header: Sequence[str] | None, as_json: bool) -> int:
    """Send standard input through a tunnel to a member, and print the data from the member; return the exit code."""
    headers = read_headers(header)
    async with (
        settings.visit() as node,
        node.tunnel(cluster, timeout=timeout_s, headers=headers) as opened,
    ):
        with _progress() as advance:
            received = 0
            sending = asyncio.create_task(_send(opened, advance))
            try:
                while True:
                    async for chunk in opened.receive_chunks():
                        received += len(chunk)
                        advance(0, len(chunk))
                        sys.stdout.buffer.write(chunk)
                        sys.stdout.buffer.flush()
            except iris_py.TunnelClosed:
                pass  # the member has ended the tunnel normally
            except BaseException:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                raise
            sent = await sending
    if as_json:
        passed = TunnelLine(cluster, opened.member, sent, received)
        print(msgspec.json.encode(passed).decode(), file=sys.stderr)
    return ExitCode.OK


async def _send(opened: iris_py.Tunnel, advance: Callable[[int, int], None]) -> int:
    async def counted() -> AsyncIterator[bytes]:
        async for chunk in read_chunks():
            yield chunk
            advance(len(chunk), 0)

    sent = await opened.send_chunks(counted())
    await opened.end()
    return sent


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """In the block, show the progress on standard error, if it is a terminal and not also the output."""
    if not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda sent, received: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    status = os.fstat(sys.stdin.fileno())
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        sending, receiving = progress.add_task("sent", total=size), progress.add_task("received", total=None)

        def advance(sent: int, received: int) -> None:
            progress.advance(sending, sent)
            progress.advance(receiving, received)

        yield advance
