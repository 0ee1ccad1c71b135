"""The command `iris monitor`: the events of a network, as read from its nodes."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, Final

from iris_py.cli.join import end_with, ending_by_signal, reload_on_hangup
from iris_py.cli.options import read_duration
from iris_py.cli.outcome import ExitCode, complain
from iris_py.cli.output import EMPTY, GAP, Output
from iris_py.cli.ping import find_targets
from iris_py.cli.standard_error import tell
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED
from iris_py.errors import ConfigurationError
from iris_py.json_lines import Line
from iris_py.logs import one_line
from iris_py.observe.journal import KINDS
from iris_py.observe.node_name import short_name
from iris_py.overview.deaths import DeathFolder
from iris_py.overview.event_stream import DeathLine, EventLine, Following, GapLine, NodeChangeLine
from iris_py.settings.values import refuse_secret_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py import Node, NodeName, NodeReports
    from iris_py.cli.settings import Settings
    from iris_py.json_lines import Lines

__all__ = ["LINES", "MonitorOptions", "WatchLine", "describe", "monitor", "read_kinds", "read_since"]

#: Interval of searches for nodes (seconds). Too small: the roots of a large network are queried constantly; too large: new
#: nodes appear late, though without losing events.
FIND_S: Final = 10.0
#: Interval of searches until the first node is found (seconds).
FIND_FIRST_S: Final = 1.0
#: Timeout for finding every node of a large network (seconds).
FIND_EVERY_TIMEOUT_S: Final = 120.0
#: Number of nodes that can be read within a second; more may take longer.
READ_PER_S: Final = 200

_KIND_WIDTH: Final = max(map(len, KINDS))
_NUMBER: Final = re.compile(r"\d{1,18}")
#: The text for each change of a watched node.
_CHANGES: Final = {
    "found": "is here now",
    "back": "answers again",
    "restarted": "has restarted its event numbers",
    "silent": "does not answer",
    "gone": "does not answer any more, and is not queried",
    "closed": "reports no events: its setting observe prevents it, it gets too many queries, or its version has no events",
}


class WatchLine(Line, tag="watching", kw_only=True):
    """The number of watched nodes, at the start and after each change."""

    watched: int
    """Number of watched nodes."""
    nodes: float
    """Number of other nodes in the network, exact or estimated."""
    is_sample: bool
    """Whether the watched nodes are a fair sample of a larger network."""
    is_whole: bool
    """Otherwise, whether the ring was walked without a gap, so that no node was missed."""


class MonitorSummary(Line, tag="summary", kw_only=True):
    """The end of `iris monitor`: the numbers of printed and of lost events."""

    events: int
    """Number of printed events."""
    missed: int
    """Number of lost events, as far as known."""
    watched: int
    """Number of watched nodes at the end."""
    nodes: float
    """Number of other nodes in the network, exact or estimated."""
    is_sample: bool
    """Whether only a fair sample was watched: events of other nodes may be missing."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {"monitor": (WatchLine, EventLine, DeathLine, GapLine, NodeChangeLine, MonitorSummary)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """The events that `iris monitor` prints, the nodes it watches, and the end of the command."""

    kinds: Sequence[str] = ()
    """Kinds of events or prefixes, separated by commas; empty for all."""
    target: str | None = None
    """A node, or a cluster for its members; None for all nodes, or a sample."""
    since: str | None = None
    """The past events to begin with, as for :func:`read_since`."""
    count: int | None = None
    """Number of events to print; None for no limit."""
    timeout_s: float | None = None
    """Duration of the command, in seconds; None for no limit."""
    interval_s: float = 1.0
    """Interval of queries to each node, in seconds."""
    is_every: bool = False
    """Whether to watch every node of a large network."""
    sample: int = NODES_SAMPLED
    """Number of watched nodes in a large network."""
    is_raw: bool = False
    """Whether to print every event of a death instead of one line for each death."""


async def monitor(settings: Settings, options: MonitorOptions, *, as_json: bool) -> int:
    """Print the events of nodes until a signal arrives, enough events are printed, or the time has passed.

    Raises:
        ConfigurationError: A kind does not exist, ``since`` is invalid, or no node matches the target.
    """
    wanted, (number, ago_s) = read_kinds(options.kinds), read_since(options.since)
    output, count = Output(as_json=as_json), options.count
    async with ending_by_signal() as ended, settings.visit() as node:
        reload_on_hangup(node)
        nodes = None if options.target is None else await find_targets(node, options.target, ASK_TIMEOUT_S)
        if number and (nodes is None or len(nodes) != 1):
            raise ConfigurationError(
                f"--since {number} is the number of an event, but each node has its own numbers. Choose a node with --node, "
                "or give a duration, as --since 10m; --since 0 shows all events that nodes keep."
            )
        following = Following(
            kinds=wanted,
            since_unix_s=-inf if number is not None else time.time() - ago_s,
            begin=0 if number is None and options.since is not None else number,
            sample=options.sample,
        )
        deaths = None
        if not options.is_raw and (not wanted or "died" in wanted):
            deaths = DeathFolder(lambda: len(following.watched), following.name_of)
        watch = _Monitor(node, following, deaths, output, nodes, options)
        watching = asyncio.create_task(watch.run())
        watching.add_done_callback(lambda done: end_with(ended, done))
        try:
            async with asyncio.timeout(options.timeout_s):
                code = await ended
        except TimeoutError:
            code = ExitCode.OK if count is None else ExitCode.TIMEOUT
        finally:
            watching.cancel()
            await asyncio.wait([watching])
    watch.end()
    if code == ExitCode.TIMEOUT:
        complain(f"fewer than {count} events came within {options.timeout_s:g} s. Allow more time with --timeout.")
    return code


class _Monitor:
    """The running `iris monitor`: searches for nodes, reads their events, and prints the events."""

    def __init__(
        self,
        node: Node,
        following: Following,
        deaths: DeathFolder | None,
        output: Output,
        nodes: Sequence[NodeName] | None,
        options: MonitorOptions,
    ) -> None:
        self._node = node
        self._following = following
        self._deaths = deaths
        self._output = output
        self._nodes = nodes
        self._options = options
        self._left = options.count
        self._events = 0
        self._missed = 0
        self._watching: WatchLine | None = None

    async def run(self) -> None:
        """Read the events of nodes at an interval, until enough events are printed."""
        loop = asyncio.get_running_loop()
        finding: asyncio.Task[NodeReports] | None = None
        self._found(await self._find())
        find_at = loop.time() + FIND_FIRST_S
        try:
            while self._left != 0:
                began, began_unix_s = loop.time(), time.time()
                self._read(await self._ask(), began_unix_s)
                if finding is not None and finding.done():
                    self._found(finding.result())
                    finding, find_at = None, loop.time() + (FIND_S if self._following.watched else FIND_FIRST_S)
                elif finding is None and loop.time() >= find_at:
                    finding = asyncio.create_task(self._find())
                if self._left != 0:
                    await asyncio.sleep(max(0.0, began + self._options.interval_s - loop.time()))
        finally:
            if finding is not None:
                finding.cancel()

    def end(self) -> None:
        """Print the held events, and then the summary."""
        self._print(self._following.take(), time.time())
        if self._deaths is not None:
            self._show(self._deaths.end())
        watching = self._watching or WatchLine(watched=0, nodes=0.0, is_sample=False, is_whole=True)
        self._output.line(
            MonitorSummary(
                events=self._events,
                missed=self._missed,
                watched=watching.watched,
                nodes=watching.nodes,
                is_sample=watching.is_sample,
            )
        )

    async def _find(self) -> NodeReports:
        every, sample = self._options.is_every, self._options.sample
        timeout_s = FIND_EVERY_TIMEOUT_S if every else ASK_TIMEOUT_S
        return await self._node.ask_nodes(nodes=self._nodes, every=every, sample=sample, timeout=timeout_s)

    async def _ask(self) -> NodeReports:
        due = self._following.due()
        timeout_s = ASK_TIMEOUT_S + len(due) / READ_PER_S
        return await self._node.ask_nodes("events", nodes=due, since=self._following.numbers(), timeout=timeout_s)

    def _found(self, found: NodeReports) -> None:
        self._tell(self._following.find(found, time.time()))
        before, watched = self._watching, len(self._following.watched)
        self._watching = WatchLine(
            watched=watched, nodes=round(found.size.nodes, 1), is_sample=found.is_sample, is_whole=found.is_whole
        )
        if before is not None and (before.watched, before.is_whole) == (watched, found.is_whole):
            return
        self._output.line(self._watching)
        tell(describe(self._watching, self._node.network), event="watching")

    def _read(self, found: NodeReports, began_unix_s: float) -> None:
        self._tell(self._following.read(found, time.time()))
        self._print(self._following.take(began_unix_s), began_unix_s)

    def _print(self, lines: Sequence[EventLine | GapLine], now_unix_s: float) -> None:
        self._show(lines if self._deaths is None else self._deaths.take(lines, now_unix_s))

    def _show(self, lines: Sequence[EventLine | GapLine | DeathLine]) -> None:
        shown: list[tuple[EventLine | GapLine | DeathLine, str]] = []
        for line in lines:
            if self._left == 0:
                break
            if isinstance(line, GapLine):
                self._missed += line.missed or 0
            else:
                self._events += 1
                self._left = None if self._left is None else self._left - 1
            shown.append((line, _text_of(line)))
        if shown:
            self._output.lines(shown)

    def _tell(self, changes: Sequence[NodeChangeLine]) -> None:
        if changes:
            self._output.lines((each, None) for each in changes)
        for each in changes:
            shown = short_name(each.id, each.name)
            tell(f"node {shown} {each.address or EMPTY} {_CHANGES[each.change]}", event=f"node_{each.change}")


def read_kinds(given: Sequence[str]) -> frozenset[str]:
    """Parse kinds of events, given by name or by the beginning of a name; empty for all kinds.

    Raises:
        ConfigurationError: A kind does not exist.
    """
    wanted: set[str] = set()
    for word in (word.strip() for each in given for word in each.split(",")):
        meant = [kind for kind in KINDS if word and kind.startswith(word)]
        if not meant:
            refuse_secret_value(word, "--kind")
            near = get_close_matches(word, KINDS, n=1, cutoff=0.0)
            raise ConfigurationError(
                f"there is no kind of event {word!r}; the nearest is {near[0]!r}. Kinds are {', '.join(KINDS)}."
            )
        wanted.update(meant)
    return frozenset(wanted)


def read_since(given: str | None) -> tuple[int | None, float]:
    """Parse the option `--since`: return an event number, or None and a duration in seconds.

    Raises:
        ConfigurationError: The text is neither a number nor a duration.
    """
    if given is None:
        return None, 0.0
    if _NUMBER.fullmatch(given):
        return int(given), 0.0
    try:
        return None, read_duration(given, "--since")
    except ConfigurationError:
        raise ConfigurationError(
            f"--since {given!r} is neither the number of an event nor a duration. Write 90s, 10m, 2h or 1d; 0 shows all "
            "events that nodes keep."
        ) from None


def describe(line: WatchLine, network: str) -> str:
    """Return a sentence about the number of watched nodes."""
    if not line.watched:
        return f"no other node found in the network {network!r}: waiting for one; Ctrl-C ends it"
    of = f"{line.watched} node{'s' * (line.watched != 1)}"
    if line.is_sample:
        of = f"{line.watched} of about {line.nodes:,.0f} nodes, drawn by chance: --all watches every node"
    overlooked = "" if line.is_whole else "; a part of the ring did not answer, so there may be more"
    return f"watching {of}{overlooked}; Ctrl-C ends it"


def _text_of(line: EventLine | GapLine | DeathLine) -> str:
    """Return a line as columns: time, reporting node, event, node concerned, count, name, detail.

    A death has the number of reporting nodes in the columns of the reporting node and of the count.
    """
    moment = line.time.astimezone()
    if isinstance(line, DeathLine):
        by, words = (
            f"{line.said_by}/{line.watched}",
            ["died", line.node[:8], str(line.said_by), line.node_name, _death_of(line)],
        )
    elif isinstance(line, GapLine):
        missed = "?" if line.missed is None else str(line.missed)
        by, words = line.id[:8], ["gap", EMPTY, missed, EMPTY, "overwritten before they were read"]
    else:
        about = f"{line.node_name}: " if line.node_name else ""
        detail = f"{about}{line.detail}".removesuffix(": ")
        by, words = line.id[:8], [line.event, line.node[:8], str(line.times), line.name, detail]
    event, about, times, name, detail = (one_line(word) or EMPTY for word in words)
    return GAP.join(
        [
            f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}",
            by.ljust(8),
            event.ljust(_KIND_WIDTH),
            about.ljust(8),
            times.rjust(3),
            name,
            detail,
        ]
    )


def _death_of(line: DeathLine) -> str:
    """Return a death as text: address, zone, number of reporting nodes, reason, lost links, and clusters."""
    count = f"{line.said_by} of {line.watched} watched nodes say{'s' * (line.said_by == 1)} so"
    facts = [
        line.node_address,
        f"zone {line.node_zone}" if line.node_zone else "",
        f"{count}: {line.detail}" if line.detail else count,
        f"{line.links_lost} link{'s' * (line.links_lost != 1)} lost" if line.links_lost else "",
        f"gone from {', '.join(line.clusters)}" if line.clusters else "",
    ]
    return ", ".join(fact for fact in facts if fact)
