"""The command `iris broadcast`: sends a message to every member of a cluster, or a message per line of standard input."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

import iris_py
from iris_py.cli.explanation import explain
from iris_py.cli.outcome import ExitCode, complain, exit_code
from iris_py.cli.output import Output
from iris_py.cli.payload_options import read_headers
from iris_py.errors import IrisError
from iris_py.json_lines import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from iris_py.cli.payload_options import PayloadSource
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "broadcast"]


class SentLine(Line, tag="sent", kw_only=True):
    """A sent broadcast, with the number of members."""

    cluster: str
    members: int
    """Number of members to which the broadcast was sent."""
    number: int | UnsetType = UNSET
    """With `--lines` or `--count`: the number of the broadcast, from 1."""


class FailedBroadcastLine(Line, tag="failure"):
    """A failed broadcast, for example to a cluster without members."""

    cluster: str
    number: int
    type: str
    """The class of the error."""
    text: str


class BroadcastsSummary(Line, tag="summary"):
    """The numbers of sent and failed broadcasts of `--lines` or `--count`."""

    cluster: str
    broadcasts: int
    failed: int
    members: int
    """Number of members of the last broadcast."""
    seconds: float


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"broadcast": (SentLine, FailedBroadcastLine, BroadcastsSummary)}


async def broadcast(
    settings: Settings,
    cluster: str,
    source: PayloadSource,
    *,
    header: Sequence[str] | None,
    as_json: bool,
) -> int:
    """Send a message to every member, or several messages in order, and print the number of members; return the exit code."""
    config, headers, output = settings.load(), read_headers(header), Output(as_json=as_json)
    lone = source.read_lone(config.max_message_bytes)
    async with settings.visit(config) as node:
        if lone is None:
            payloads = source.batches(config.max_message_bytes)
            return await _send_all(node, cluster, payloads, headers, output, settings.options)
        members = await _send(node, cluster, lone, headers)
    output.line(SentLine(cluster=cluster, members=members), f"sent to {_counted(members, 'member')}")
    return ExitCode.OK


async def _send(node: iris_py.Node, cluster: str, payload: bytes, headers: Mapping[str, str]) -> int:
    """Send a message to every member, and return the number of members.

    Raises:
        NoMembers: The cluster has no members.
        IrisError: The message was not sent.
    """
    members = await node.broadcast(cluster, payload, headers=headers)
    if members == 0:
        raise iris_py.NoMembers(cluster, len(node.nodes()) - 1)
    return members


async def _send_all(
    node: iris_py.Node,
    cluster: str,
    batches: AsyncIterator[list[bytes]],
    headers: Mapping[str, str],
    output: Output,
    options: Collection[str],
) -> int:
    """Send messages one after the other, which keeps their order; return the exit code of the first failure."""
    started, code = time.perf_counter(), ExitCode.OK
    number = failed = members = 0
    async for payloads in batches:
        for payload in payloads:
            number += 1
            try:
                members = await _send(node, cluster, payload, headers)
            except IrisError as exc:
                failed += 1
                code = code or exit_code(exc)
                reason = explain(exc, options)
                output.line(FailedBroadcastLine(cluster, number, type(exc).__name__, reason))
                if not output.is_json:
                    complain(f"broadcast {number}: {reason}")
            else:
                output.line(SentLine(cluster=cluster, members=members, number=number))
    seconds = round(time.perf_counter() - started, 6)
    said = f"{_counted(number - failed, 'broadcast')} sent to {_counted(members, 'member')}"
    output.line(BroadcastsSummary(cluster, number, failed, members, seconds), said if number > failed else None)
    return code


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"
