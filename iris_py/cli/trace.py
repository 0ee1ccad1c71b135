"""The command `iris trace`: the route of a request to a cluster, step by step."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import Output
from iris_py.cli.payload_options import read_payload
from iris_py.errors import IrisError
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.observe.queries import SNAPSHOT_S
from iris_py.observe.reports import Candidate, Route  # noqa: TC001 - the schema of lines is made of them
from iris_py.overview.units import format_seconds, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import iris_py
    from iris_py import NodeName, Trace
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "trace"]

#: Maximum number of members in the output.
_SHOWN_MAX: Final = 32
#: Maximum number of members queried for their counts. Too small: the member with the request may not be among them; too large:
#: many queries for one request.
_COUNTED_MAX: Final = 64


class RouteLine(Line, tag="route", kw_only=True):
    """The route of a query through the ring to the root of the cluster, and the answer of the root."""

    route: Route
    """The hops with the microseconds each kept the query, the root, and its counts of members and watchers."""


class CandidateLine(Line, tag="candidate", kw_only=True):
    """A member known to this node, in the order of a request's choice."""

    candidate: Candidate
    """The member, with the criteria of the choice, and the reason for or against it."""


class WayLine(Line, tag="way", kw_only=True):
    """The way to the chosen member, and the time until the member answered an empty query."""

    member: str
    """The node id of the member."""
    way: str
    """`link`, `dialled`, `ring` or `local`."""
    dial_s: float | None
    """Time for opening a link, in seconds."""
    answer_s: float | None
    """Time until the answer, without running a handler, in seconds; None without an answer."""


class ExecutionLine(Line, tag="execution", kw_only=True):
    """The result of the real request (`--execute`)."""

    seconds: float
    """Duration of the request."""
    error: str
    """The error of the request; empty with a reply."""
    reply_bytes: int
    """Size of the reply."""
    members: list[str]
    """The members that finished a request to the cluster meanwhile; in a quiet cluster, the member with this request."""
    ended: int
    """Number of requests that these members finished. If it is 1, both times are of this request, otherwise means."""
    queue_s: float | None
    """Time the request waited for a handler, in seconds; None if no member reports it."""
    run_s: float | None
    """Time the handler ran, in seconds; None if no member reports it."""


class TraceSummary(Line, tag="summary", kw_only=True):
    """The end of `iris trace`: whether a request would arrive."""

    cluster: str
    """The cluster."""
    ends: bool
    """Whether the root and a member answered."""
    fault: str
    """The step at which the route ends early; empty otherwise."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"trace": (RouteLine, CandidateLine, WayLine, ExecutionLine, TraceSummary)}


async def trace(
    settings: Settings,
    cluster: str,
    *,
    text: str | None,
    key: str | None,
    prefer: str | None,
    require: str | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Show the route of a request to a cluster, with `--execute` also by sending a real request; return the exit code."""
    output, config = Output(as_json=as_json), settings.load()
    payload = None if text is None else read_payload(text, config.max_message_bytes, "Send less")
    async with settings.visit(config) as node:
        traced = await node.trace(cluster, prefer=prefer, require=require, timeout=timeout_s)
        _print_route(output, traced)
        for candidate in traced.candidates[:_SHOWN_MAX]:
            output.line(CandidateLine(candidate=candidate), _describe_candidate(candidate, traced))
        if traced.chosen is not None:
            output.line(
                WayLine(
                    member=traced.chosen.id,
                    way=traced.way,
                    dial_s=rounded(traced.dial_s),
                    answer_s=rounded(traced.answer_s),
                ),
                f"way      {_describe_way(traced)}",
            )
        fault = _fault_of(traced)
        if payload is not None and not fault:
            executed = await _execute(node, cluster, payload, traced, key, prefer, require, timeout_s)
            output.line(executed, _describe_execution(executed))
            fault = executed.error
    output.line(TraceSummary(cluster=cluster, ends=not fault, fault=fault))
    if fault:
        complain(fault)
        return ExitCode.NO_MEMBERS if not traced.candidates and traced.route is not None else ExitCode.FAULT
    return ExitCode.OK


def _print_route(output: Output, traced: Trace) -> None:
    route = traced.route
    if route is None:
        return
    if route.hops:
        rows = [f"root     {_name(route.root)}  after {format_seconds(route.round_trip_s)} (round trip)"]
    else:
        rows = [f"root     {_name(route.root)}  is this node itself"]
    for hop in route.hops:
        held = (
            "did not report its delay" if hop.held_us is None else (f"held the query for {format_seconds(hop.held_us / 1e6)}")
        )
        rows.append(f"  hop    {_name(hop.node)}  {held}")
    if route.hops:
        held_s = sum(hop.held_us or 0 for hop in route.hops) / 1e6
        rows.append(f"  links  {format_seconds(max(0.0, route.round_trip_s - held_s))} in all")
    counted = "reports no counts" if route.members is None else f"{route.members} members, {route.watchers} watchers"
    rows.append(f"  says   {counted}")
    output.line(RouteLine(route=route), "\n".join(rows))


async def _execute(
    node: iris_py.Node,
    cluster: str,
    payload: bytes,
    traced: Trace,
    key: str | None,
    prefer: str | None,
    require: str | None,
    timeout_s: float,
) -> ExecutionLine:
    """Send a real request, and compare the members' counts before and after: which member executed it, and how long."""
    asked = [each.node for each in traced.candidates[:_COUNTED_MAX]]
    before = await _ask_counts(node, asked, cluster, timeout_s)
    started = time.perf_counter()
    reply, error = b"", ""
    try:
        reply = await node.request(
            cluster, payload, timeout=timeout_s, idempotent=key is not None, key=key, prefer=prefer, require=require
        )
    except IrisError as exc:
        error = f"{type(exc).__name__}: {exc}"
    seconds = round(time.perf_counter() - started, 6)
    await asyncio.sleep(SNAPSHOT_S)  # members answer from a snapshot, which may be from before the request
    after = await _ask_counts(node, asked, cluster, timeout_s)
    spent = {id_: last.since(before[id_]) for id_, last in after.items() if id_ in before}
    ended = {id_: each for id_, each in spent.items() if each.handled}
    handled, queued = (sum(getattr(each, name) for each in ended.values()) for name in ("handled", "queued"))
    return ExecutionLine(
        seconds=seconds,
        error=error,
        reply_bytes=len(reply),
        members=sorted(ended),
        ended=handled,
        queue_s=rounded(sum(each.queue_s for each in ended.values()) / queued) if queued else None,
        run_s=rounded(sum(each.run_s for each in ended.values()) / handled) if handled else None,
    )


class _Spent(NamedTuple):
    """Counts of a member: the queued and handled requests, and their times."""

    queued: int
    queue_s: float
    handled: int
    run_s: float

    def since(self, before: _Spent) -> _Spent:
        """Return the growth since earlier counts."""
        return _Spent(
            self.queued - before.queued,
            self.queue_s - before.queue_s,
            self.handled - before.handled,
            self.run_s - before.run_s,
        )


async def _ask_counts(node: iris_py.Node, members: Sequence[NodeName], cluster: str, timeout_s: float) -> dict[str, _Spent]:
    """Query members for their counts of handled requests; return the counts by node id, without silent members."""
    found = await node.ask_nodes("clusters", nodes=members, cluster=cluster, timeout=timeout_s)
    counted = {}
    for report in found.reports:
        for each in report.statistics.clusters.values():  # only the requested cluster
            if (served := each.service) is not None:
                waits, runs = served.queue_wait, served.handling
                counted[report.node.id] = _Spent(waits.count, waits.sum_s, runs.count, runs.sum_s)
    return counted


def _describe_execution(executed: ExecutionLine) -> str:
    said = one_line(executed.error or f"a reply of {executed.reply_bytes} bytes")
    text = f"execute  {said} after {format_seconds(executed.seconds)}"
    if executed.run_s is None or executed.queue_s is None:
        return f"{text}\n  member did not report the execution"
    times = f"{format_seconds(executed.queue_s)} for a handler, which ran for {format_seconds(executed.run_s)}"
    if executed.ended == 1:
        return f"{text}\n  member {executed.members[0][:8]}  it waited {times}"
    where = f"{len(executed.members)} member{'s' * (len(executed.members) > 1)}"
    return f"{text}\n  member {executed.ended} requests ended meanwhile at {where}; on average each waited {times}"


def _describe_candidate(candidate: Candidate, traced: Trace) -> str:
    mark = "->" if traced.chosen is not None and candidate.node.id == traced.chosen.id else "  "
    expected = "" if candidate.expected_s is None else f", {format_seconds(candidate.expected_s)} expected"
    load = f"distance {candidate.distance}, {candidate.in_flight} in flight{expected}"
    return f"member{mark} {_name(candidate.node)}  {load}: {one_line(candidate.reason)}"


def _describe_way(traced: Trace) -> str:
    ways = {
        "link": "over a link that was open",
        "dialled": f"over a link, dialled in {format_seconds(traced.dial_s)}",
        "ring": "through the ring, because no link could be opened",
        "local": "it is this node itself",
    }
    answer = "no answer" if traced.answer_s is None else f"it answered after {format_seconds(traced.answer_s)}"
    return f"{ways.get(traced.way, traced.way)}; {answer}, and its handler was not called"


def _fault_of(traced: Trace) -> str:
    if traced.route is None:
        return f"no root of {traced.cluster!r} answered: the ring is not complete, or the root has just died. Try again."
    if traced.chosen is None:
        return f"nobody serves {traced.cluster!r}, or no member is where the request may go."
    if traced.answer_s is None:
        return f"the member {traced.chosen.short} of {traced.cluster!r} did not answer."
    return ""


def _name(node: iris_py.NodeName) -> str:
    """Return a node as text: id, label, address and zone, without control sequences."""
    return f"{node.id[:8]}  {node.name or '-'}  {one_line(node.address) or '-'}  {one_line(node.zone) or '-'}"
