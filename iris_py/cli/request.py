"""The commands `iris request` and `iris members`."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType

import iris_py
from iris_py.cli.explanation import explain
from iris_py.cli.many_requests import ask_all
from iris_py.cli.outcome import ExitCode, complain, exit_code
from iris_py.cli.output import Column, Output
from iris_py.json_lines import Line, Lines, PayloadLine, payload_fields
from iris_py.observe.node_name import short_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Collection
    from pathlib import Path

    from iris_py.api.options import RequestOptions
    from iris_py.cli.many_requests import CallOutcome
    from iris_py.cli.payload_options import PayloadSource
    from iris_py.cli.settings import Settings

__all__ = ["LINES", "members", "request"]


class ReplyLine(PayloadLine, tag="reply", kw_only=True):
    """The reply to a request."""

    cluster: str
    seconds: float
    """Time from sending the request, in seconds."""
    number: int | UnsetType = UNSET
    """With `--lines` or `--count`: the number of the request, from 1."""


class FailedRequestLine(Line, tag="failure"):
    """A request that ended with an error instead of a reply."""

    cluster: str
    number: int
    type: str
    """The class of the error."""
    text: str
    seconds: float


class RequestsSummary(Line, tag="summary"):
    """The numbers of requests, replies and failures of `--lines` or `--count`."""

    cluster: str
    requests: int
    replies: int
    failed: int
    seconds: float


class MemberLine(Line, tag="member"):
    """A member of a cluster, or a node of the network."""

    id: str
    name: str
    """The label of the node; empty if it has none."""
    address: str
    zone: str
    is_stand_in: bool
    """Whether this is a gateway, representing members of another cloud."""


class MembersSummary(Line, tag="summary"):
    """The numbers of listed and of all members or nodes."""

    network: str
    cluster: str | None
    """None for the nodes of the network."""
    shown: int
    total: int
    """Number of all members or nodes; in a large network an estimate."""
    unreached_seeds: dict[str, str]
    """The seeds where no node of this network answers, with the reason, by address."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "request": (ReplyLine, FailedRequestLine, RequestsSummary),
    "members": (MemberLine, MembersSummary),
}


async def request(
    settings: Settings,
    cluster: str,
    source: PayloadSource,
    options: RequestOptions,
    *,
    concurrency: int,
    path: Path | None,
    as_json: bool,
) -> int:
    """Send a request and print its reply without an added byte; with `--lines` or `--count`, send several.

    Args:
        settings: The settings of the node.
        cluster: The name.
        source: The payloads.
        options: The options of each request.
        concurrency: Maximum number of requests in flight.
        path: The file for replies; None for standard output.
        as_json: Whether to print JSON.

    Returns:
        The exit code.
    """
    config = settings.load()
    lone = source.read_lone(config.max_message_bytes, f"Pipe it through `iris tunnel {shlex.quote(cluster)}`")
    with Output(as_json=as_json, path=path) as output:
        async with settings.visit(config) as node:

            def ask(payload: bytes) -> Awaitable[bytes]:
                return node.request(cluster, payload, **options)

            if lone is None:
                outcomes = ask_all(ask, source.batches(config.max_message_bytes), concurrency)
                return await _print_all(output, cluster, outcomes, settings.options)
            started = time.perf_counter()
            reply = await ask(lone)
            seconds = round(time.perf_counter() - started, 6)
        if as_json:
            output.line(ReplyLine(cluster=cluster, seconds=seconds, **payload_fields(reply)))
        else:
            output.write(reply + b"\n" * (output.is_terminal and not reply.endswith(b"\n")))
    return ExitCode.OK


async def _print_all(
    output: Output, cluster: str, outcomes: AsyncIterator[CallOutcome[bytes]], options: Collection[str]
) -> int:
    """Print a line for each reply or failure; return the exit code of the first failure."""
    started, code = time.perf_counter(), ExitCode.OK
    number = failed = 0
    async for outcome in outcomes:
        number += 1
        seconds = round(outcome.seconds, 6)
        if outcome.error is not None:
            failed += 1
            code = code or exit_code(outcome.error)
            text = explain(outcome.error, options)
            output.line(FailedRequestLine(cluster, number, type(outcome.error).__name__, text, seconds))
            if not output.is_json:
                complain(f"request {number}: {text}")
        elif output.is_json:
            fields = payload_fields(outcome.reply or b"")
            output.line(ReplyLine(cluster=cluster, number=number, seconds=seconds, **fields))
        else:
            output.write((outcome.reply or b"").removesuffix(b"\n") + b"\n")
    output.line(RequestsSummary(cluster, number, number - failed, failed, round(time.perf_counter() - started, 6)))
    return code


async def members(settings: Settings, cluster: str | None, *, as_json: bool) -> int:
    """List the members of a cluster, or the nodes of the network. The exit code of an empty list is that of `NoMembers`.

    A node knows only a part of a large cluster or network; standard error then reports the total.
    """
    async with settings.visit() as node:
        network, found, total = node.network, list[iris_py.Member](), 0
        if cluster is None:
            # This command's own node is about to leave, and is not listed.
            found = [member for member in node.nodes() if member.id != node.id]
            total = node.network_size - 1
        else:
            view = node.members(cluster)
            found = list(await view)
            total = view.total
        seeds = node.unreached_seeds()
    for address, reason in seeds.items():
        complain(f"no node of this network answers at the seed {address}: it {reason}")
    output = Output(as_json=as_json)
    lines = [MemberLine(member.id, member.name, member.address, member.zone, member.is_stand_in) for member in found]
    output.table(lines, _COLUMNS if any(line.is_stand_in for line in lines) else _COLUMNS[:-1])
    output.line(MembersSummary(network, cluster, len(found), total, dict(seeds)))
    if total > len(found) > 0 and cluster is not None:
        complain(
            f"these are {len(found)} of {total} members of {cluster!r}: a node sees only a sample of a large cluster. `iris "
            "survey` queries all members."
        )
    elif total > len(found) > 0:
        complain(
            f"these are {len(found)} of about {total} nodes of the network {network!r}: a node knows only a part of a "
            "large network."
        )
    if found:
        return ExitCode.OK
    if not as_json:
        start = "iris node" if cluster is None else f"iris join {shlex.quote(cluster)} --exec ..."
        what = f"nobody serves {cluster!r}" if cluster is not None else f"no other node found in the network {network!r}"
        complain(f"{what}. Start one with `{start}`, or name one with --seed.")
    return ExitCode.NO_MEMBERS


#: Columns of the table of members. The last is shown only if a gateway stands in for members of another cloud.
_COLUMNS: Final = (
    Column[MemberLine]("id", lambda line: short_id(line.id)),
    Column[MemberLine]("name", lambda line: line.name),
    Column[MemberLine]("address", lambda line: line.address),
    Column[MemberLine]("zone", lambda line: line.zone),
    Column[MemberLine]("what", lambda line: "stand-in" if line.is_stand_in else "member"),
)
