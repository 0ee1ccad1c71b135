"""Questions of a node to other nodes about themselves, and to the ring about the roots of keys (docs/observe.md).

The root of a key is the node whose id is nearest to the key. A query finds the nodes of a network by asking for roots: all
nodes by a walk round the ring, or a random sample.

Roots may lie about themselves and their neighbours, and any node on the path of a question may answer in place of the root. So
a step of a walk stays near the length expected from the ring's density, and no answer makes a walk endless. An invented node is
asked later and does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from iris_overlay.ids import ID_BYTES, RING, NodeId, clockwise, position
from iris_overlay.node_info import NodeInfo, check_info
from iris_overlay.peers.reachability import ECHO_BYTES_MIN
from iris_overlay.ring.config import PastryConfig
from iris_py.api.arguments import check_count, check_flag, check_name
from iris_py.api.request import check_timeout
from iris_py.build import build
from iris_py.defaults import ASK_TIMEOUT_S, NODES_SAMPLED
from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.link.handshake import VERSION_MAX, VERSION_MIN
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import BUSY, PARTS, Desk, NodeQuestion, Pages, decode_answer, encode_question
from iris_py.observe.reports import Hop, NodeReport, NodeReports, Route, Size, size_of
from iris_py.wire.facts import TOPIC_VERSION
from iris_py.wire.names import refusals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_overlay.events import EchoReturned, RootLocated
    from iris_py.api.runtime import Runtime
    from iris_py.node.questions import NodeAnswered, NodeAsked
    from iris_py.observe.statistics import Statistics
    from iris_security import Entropy

#: Asks the ring for the root of a key; returns None if no answer came in time.
Locate: TypeAlias = "Callable[[bytes], Awaitable[RootLocated | None]]"

#: The number of neighbours of a node on the ring; a node of a smaller network has fewer.
LEAVES: Final = 2 * PastryConfig().leaf_half
#: Parts of the ring walked in parallel, and the least number of nodes in each. Too small: a walk takes long; too large: a walk
#: is a burst of questions.
STRANDS_MAX: Final = 16
STRAND_NODES: Final = 64
#: Bounds of a step of a walk, as a share of the step expected from the network's size: roots may lie about their neighbours.
STEP_SHARE_MIN: Final = 1 / 16
STEP_SHARE_MAX: Final = 4
#: Unanswered questions in a row that end the walk of a part of the ring. Too small: two deaths end a walk; too large: a caller
#: without a network waits long.
SILENT_MAX: Final = 4


async def walk(
    locate: Locate, local: NodeInfo, leaves: Sequence[NodeInfo], size: int, found_max: int
) -> tuple[list[NodeInfo], bool]:
    """Find all other nodes by a walk round the ring: each asked root names its neighbours on both sides.

    Args:
        locate: Asks for a root.
        local: The calling node.
        leaves: The neighbours of the calling node.
        size: The approximate number of nodes in the network.
        found_max: The number of found nodes that ends the walk.

    Returns:
        The nodes, and whether the walk is complete: every question was answered, and ``found_max`` was not reached.
    """
    found = {info.id: info for info in (local, *leaves)}
    is_whole = True
    if len(leaves) >= LEAVES:
        strands = max(1, min(STRANDS_MAX, size // STRAND_NODES))
        length = -(-RING // strands)
        starts = (position(local.id) + strand * length for strand in range(strands))
        whole = await asyncio.gather(*(_walk_strand(locate, start, length, size, found, found_max) for start in starts))
        is_whole = all(whole)
    del found[local.id]
    return list(found.values()), is_whole


async def _walk_strand(
    locate: Locate, start: int, length: int, size: int, found: dict[NodeId, NodeInfo], found_max: int
) -> bool:
    """Find the nodes of a part of the ring, with a step from each root to its last neighbour; return whether all were found."""
    usual = max(1, RING * (LEAVES // 2) // size)
    gone, silent, is_whole = 0, 0, True
    while gone < length:
        if len(found) >= found_max or silent >= SILENT_MAX:
            return False
        place = (start + gone) % RING
        located = await locate(place.to_bytes(ID_BYTES, "big"))
        if located is None:
            is_whole, silent = False, silent + 1
            gone += usual
            continue
        silent = 0
        at, leaves = position(located.root.id), located.leaves[:LEAVES]
        found.update((info.id, info) for info in (located.root, *leaves))
        ways = sorted(clockwise(at, position(leaf.id)) for leaf in leaves)
        behind = clockwise(at, place)  # the root may lie on either side of the key
        step = (ways[(len(ways) - 1) // 2] if ways else usual) - (behind if behind < RING // 2 else behind - RING)
        gone += round(min(max(step, usual * STEP_SHARE_MIN), usual * STEP_SHARE_MAX))
    return is_whole


async def draw(locate: Locate, local: NodeInfo, count: int, entropy: Entropy) -> tuple[list[NodeInfo], Size] | None:
    """Draw other nodes at random, each with equal probability (:mod:`iris_py.observe.reports`).

    Args:
        locate: Asks for a root.
        local: The calling node.
        count: The number of draws; repeated nodes and missing answers make the result smaller.
        entropy: Randomness.

    Returns:
        The drawn nodes, and an estimate of the number of all other nodes; None if no answer came.
    """
    answers = await asyncio.gather(*(locate(entropy(ID_BYTES)) for _ in range(count)))
    located = [answer for answer in answers if answer is not None]
    if not located:
        return None
    drawn: dict[NodeId, NodeInfo] = {}
    for each in located:
        near = [info for info in (each.root, *each.leaves) if info.id != local.id and info.id not in drawn]
        if near:
            chosen = near[int.from_bytes(entropy(8), "big") % len(near)]
            drawn[chosen.id] = chosen
    size = size_of([(each.root, each.leaves[:LEAVES]) for each in located], LEAVES)
    return list(drawn.values()), Size(max(0.0, size.nodes - 1), size.deviation)


#: Questions of one node in flight. Too small: a walk of a large network takes long. Too large: each query of a network is a
#: burst to forward for the neighbours.
QUESTIONS_MAX: Final = 32
#: Timeout of one try of a question (seconds). Too small: nodes across an ocean, or busy ones, are missing. Too large: each node
#: that has just died delays a walk.
ANSWER_S: Final = 1.0
#: How often a question is sent, if no answer comes.
TRIES: Final = 2
#: Pause before a busy node is asked again (seconds), and the number of repetitions.
BUSY_S: Final = 0.3
BUSY_TRIES: Final = 4
#: Networks up to this size are walked, larger ones sampled. Too small: a sample where all could be asked in a second. Too
#: large: every query asks this many nodes.
WALKED_MAX: Final = 256
#: The largest event number that fits the wire format.
NUMBER_MAX: Final = (1 << 63) - 1
#: Nodes after which a walk stops and reports that it is incomplete. Each takes 1 KiB of memory.
FOUND_MAX: Final = 250_000


#: The oldest and the newest link version of this version of Iris.
LINK_VERSIONS: Final = (VERSION_MIN, VERSION_MAX)


class _PendingQuestion(msgspec.Struct):
    """A question in flight, to a node or to the root of a key."""

    source: NodeId | None
    """The node whose answer counts; None for a root, which is unknown beforehand."""
    answer: asyncio.Future[Any]


class Introspection:
    """The questions of a node to other nodes about themselves, and its answers to such questions.

    Args:
        runtime: The node.
        take_statistics: Returns the statistics of the node.
        read_unix_s: Returns the time of day.
        clock: Returns the time in seconds, more finely than the clock of the loop.

    Attributes:
        desk: Answers the questions of other nodes.
        clock: As passed.
    """

    def __init__(
        self,
        runtime: Runtime,
        take_statistics: Callable[[], Statistics],
        read_unix_s: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        core = runtime.core
        said = (build(), LINK_VERSIONS, core.name, TOPIC_VERSION)
        self.desk = Desk(runtime.config.observe, take_statistics, core.journal, self._hide, *said)
        self.clock = clock
        self._runtime = runtime
        self._core, self._driver, self._loop = core, runtime.driver, runtime.loop
        self._read_unix_s = read_unix_s
        self._asked: dict[int, _PendingQuestion] = {}
        self._echoes: dict[tuple[NodeId, int], asyncio.Future[None]] = {}  # by the echoing node and number
        self._places = asyncio.Semaphore(QUESTIONS_MAX)

    async def ask_nodes(
        self,
        *parts: str,
        nodes: Sequence[NodeName] | None = None,
        cluster: str = "",
        every: bool = False,
        sample: int = NODES_SAMPLED,
        since: int | Mapping[str, int] = 0,
        timeout: float = ASK_TIMEOUT_S,
    ) -> NodeReports:
        """Ask the other nodes of the network about themselves, as :meth:`iris_py.Node.ask_nodes` describes."""
        self._runtime.check_open()
        check_timeout(timeout)
        unknown = [part for part in parts if part not in PARTS]
        if unknown:
            raise ConfigurationError(f"there is no part {unknown[0]!r}. Choose from {', '.join(PARTS)}.")
        _check_nodes(nodes)
        check_name("cluster", cluster)
        check_flag("every", every)
        check_count("sample", sample, 1)
        _check_since(since)
        until = self._loop.time() + timeout
        if cluster:
            self._runtime.check_own_name(cluster)
        told_name = self._told_name(cluster) if cluster else ""

        def question(info: NodeInfo) -> NodeQuestion:
            last = since if isinstance(since, int) else since.get(info.id.hex(), 0)
            return NodeQuestion(parts=parts, cluster=told_name, since=max(0, min(last, NUMBER_MAX)))

        overlay, is_whole, is_sample, size = self._core.overlay, True, False, None

        async def locate(key: bytes) -> RootLocated | None:
            found = await self._locate(key, until)
            return None if found is None else found[0]

        if nodes is not None:
            chosen = [_info_of(node) for node in nodes]
        elif every or overlay.size_estimate() <= WALKED_MAX:
            found_max = FOUND_MAX if every else 4 * WALKED_MAX
            chosen, is_whole = await walk(locate, self._core.info, overlay.leaves(), overlay.size_estimate(), found_max)
        else:
            drawn = await draw(locate, self._core.info, sample, self._runtime.entropy)
            chosen, size = drawn or ([], Size(overlay.size_estimate() - 1.0))
            is_sample = True
        return await self._ask_all(chosen, question, until, is_whole=is_whole, is_sample=is_sample, size=size)

    def own_report(self, *parts: str, since: int = 0) -> NodeReport | None:
        """Return the report of this node, as other nodes get it by `ask_nodes`; None if the node refuses such questions.

        Args:
            parts: The parts, as for `ask_nodes`.
            since: The number of the last known event.
        """
        pages = Pages(NodeQuestion(parts=parts, since=since))
        while not pages.is_complete:
            content = self.desk.answer(encode_question(pages.question), self._loop.time(), self._read_unix_s())
            answer = None if content is None else decode_answer(content)
            if answer is None or answer.refused:
                return None
            pages.take(answer)
        return self._report_of(self._core.info, pages, 0.0)

    async def find_route(self, cluster: str, timeout: float) -> Route | None:
        """Ask the ring for the root of a cluster, as :meth:`iris_py.Node.find_route` describes."""
        self._runtime.check_open()
        check_timeout(timeout)
        self._runtime.check_own_name(cluster)
        with refusals:
            key = self._runtime.keyring.cluster(cluster).group_id
        return await self.find_route_of_key(key, self._loop.time() + timeout)

    async def find_route_of_key(self, key: bytes, until: float) -> Route | None:
        """Ask the ring for the root of a key, and for the path to the root.

        Args:
            key: The key.
            until: When to give up, by the clock of the loop.
        """
        found = await self._locate(key, until)
        if found is None:
            return None
        located, round_trip_s = found
        held = located.held if len(located.held) == len(located.path) else (None,) * len(located.path)
        way = zip(located.path, held, strict=True) if located.root.id != self._core.info.id else ()
        known = {info.id: self._named(info) for info in (self._core.info, *self._core.overlay.peers())}
        return Route(
            key=key.hex(),
            root=self._named(located.root),
            hops=tuple(Hop(known.get(node, NodeName(node.hex())), held_us) for node, held_us in way),
            round_trip_s=round_trip_s,
            neighbours=tuple(map(self._named, located.leaves)),
            members=located.member_count,
            watchers=located.watcher_count,
        )

    async def echo(self, node: NodeName, timeout: float) -> float | None:
        """Send a node a datagram for it to echo; return the round trip in seconds, or None if no echo came in time.

        Raises:
            ConfigurationError: The node has no numeric address for datagrams.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        meant = _info_of(node)
        info = next((info for info in self._core.overlay.peers() if info.id == meant.id), meant)
        started = self.clock()
        number = self._core.overlay.echo(info, ECHO_BYTES_MIN, self._loop.time())
        if number is None:
            raise ConfigurationError(f"the node {node.id[:8]} has no numeric address, so no datagrams can be sent to it.")
        echoed = self._echoes[info.id, number] = self._loop.create_future()
        try:
            self._core.handle_timeout(self._loop.time())  # sends the overlay's datagrams
            self._driver.wake()
            async with asyncio.timeout(timeout):
                await echoed
        except TimeoutError:
            return None
        else:
            return self.clock() - started
        finally:
            del self._echoes[info.id, number]

    def close(self) -> None:
        """Fail all questions in flight with NodeClosed, because the node ends."""
        for echoed in self._echoes.values():
            if not echoed.done():
                echoed.set_exception(NodeClosed())
        for asked in self._asked.values():
            if not asked.answer.done():
                asked.answer.set_exception(NodeClosed())

    # -- answers

    def _told_name(self, cluster: str) -> str:
        """Return the name of a cluster as in answers: ``#`` and the group id if the cluster has a secret of its own."""
        group = self._core.groups.find(cluster)
        if group is not None:
            return f"#{group.id.hex()}" if group.is_own else cluster
        with refusals:
            keys = self._runtime.keyring.cluster(cluster)
        return f"#{keys.group_id.hex()}" if self._runtime.keyring.is_own(cluster, keys) else cluster

    def _hide(self, cluster: str) -> str:
        """Return the name for answers of a cluster in use here: ``#`` and the group id if it has a secret of its own."""
        group = self._core.groups.find(cluster)
        if group is not None and group.is_own:
            return f"#{group.id.hex()}"
        return cluster

    # -- events of the core

    def handle_asked(self, event: NodeAsked) -> None:
        """Answer the question of another node."""
        answer = self.desk.answer(event.question, self._loop.time(), self._read_unix_s())
        if answer is not None:
            self._core.questions.answer(event.asker, event.number, answer, self._loop.time())
            self._driver.wake()

    def handle_answered(self, event: NodeAnswered) -> None:
        """Pass the answer of another node to the waiting question."""
        asked = self._asked.get(event.number)
        if asked is not None and asked.source == event.source and not asked.answer.done():
            asked.answer.set_result(event.answer)

    def handle_located(self, event: RootLocated) -> None:
        """Pass the answer of a root to the waiting question."""
        asked = self._asked.get(event.number)
        if asked is not None and asked.source is None and not asked.answer.done():
            asked.answer.set_result(event)

    def handle_echo(self, event: EchoReturned) -> None:
        """Pass the echo of a datagram to the waiting :meth:`echo`."""
        echoed = self._echoes.get((event.peer, event.number))
        if echoed is not None and not echoed.done():
            echoed.set_result(None)

    # -- single questions

    async def _put(self, ask: Callable[[int], None], source: NodeId | None, until: float) -> tuple[Any, float] | None:
        """Ask a question, twice if necessary; return the answer and the round trip in seconds, or None if no answer came."""
        for _try in range(TRIES):
            async with self._places:
                wait_s = min(ANSWER_S, until - self._loop.time())
                if wait_s <= 0.0:
                    return None
                number = int.from_bytes(self._runtime.entropy(8), "big") >> 1
                asked = self._asked[number] = _PendingQuestion(source, self._loop.create_future())
                try:
                    self._runtime.check_open()
                    started = self.clock()  # the loop's clock has milliseconds, and stands still during a turn
                    ask(number)
                    self._driver.wake()
                    async with asyncio.timeout(wait_s):
                        return await asked.answer, self.clock() - started
                except TimeoutError:
                    continue
                finally:
                    del self._asked[number]
        return None

    async def _locate(self, key: bytes, until: float) -> tuple[RootLocated, float] | None:
        return await self._put(lambda number: self._core.questions.find_root(key, number, self._loop.time()), None, until)

    async def _ask(self, info: NodeInfo, question: NodeQuestion, until: float) -> NodeReport | str:
        """Ask a node for all pages of its report; return the report, or the reason without one: ``missing`` or ``refused``."""
        pages, round_trip_s, busy = Pages(question), 0.0, 0
        is_first = True
        while not pages.is_complete:
            content = encode_question(pages.question)
            found = await self._put(partial(self._send_question, info, content), info.id, until)
            answer = None if found is None else decode_answer(found[0])
            if found is None or answer is None:
                return _MISSING
            if answer.refused == BUSY and busy < BUSY_TRIES:
                busy += 1
                await asyncio.sleep(BUSY_S)
                continue
            if answer.refused:
                return _REFUSED
            if is_first:
                round_trip_s, is_first = found[1], False
            pages.take(answer)
        return self._report_of(info, pages, round_trip_s) or _MISSING

    def _report_of(self, info: NodeInfo, pages: Pages, round_trip_s: float) -> NodeReport | None:
        """Return the report of a node, from all pages of its answer; None if the answer is malformed."""
        statistics, events, departures = pages.statistics(), pages.events(), pages.departures()
        if statistics is None or events is None or departures is None:
            return None
        return NodeReport(
            node=msgspec.structs.replace(self._named(info), name=pages.about.name),
            about=pages.about,
            statistics=statistics,
            round_trip_s=round_trip_s,
            received_unix_s=self._read_unix_s(),
            events=events if pages.tells("events") else None,
            departures=departures if pages.tells("departures") else None,
            left_out=pages.left_out,
            pages=pages.taken,
        )

    def _named(self, info: NodeInfo) -> NodeName:
        """Return the name of a node for reports: id, address, zone, and the label if known."""
        name = self._core.name if info.id == self._core.info.id else self._core.peers.known_nodes.find(info.id).name
        return NodeName(info.id.hex(), info.addresses[0] if info.addresses else "", info.zone, name)

    def _send_question(self, info: NodeInfo, content: bytes, number: int) -> None:
        self._core.questions.ask(info, number, content, self._loop.time())

    # -- many nodes

    async def _ask_all(
        self,
        chosen: Sequence[NodeInfo],
        question: Callable[[NodeInfo], NodeQuestion],
        until: float,
        *,
        is_whole: bool,
        is_sample: bool,
        size: Size | None,
    ) -> NodeReports:
        told = await asyncio.gather(*(self._ask(info, question(info), until) for info in chosen))
        pairs = list(zip(chosen, told, strict=True))
        return NodeReports(
            reports=tuple(each for each in told if isinstance(each, NodeReport)),
            missing=tuple(self._named(info) for info, each in pairs if each == _MISSING),
            refused=tuple(self._named(info) for info, each in pairs if each == _REFUSED),
            size=Size(float(len(chosen))) if size is None else size,
            is_sample=is_sample,
            is_whole=is_whole,
        )


_MISSING: Final = "missing"
_REFUSED: Final = "refused"


def _info_of(node: NodeName) -> NodeInfo:
    """Convert a node of a report to a node description of the overlay.

    Raises:
        ConfigurationError: The argument has no valid node id, address or zone.
    """
    try:
        id_ = bytes.fromhex(node.id)
    except ValueError:
        id_ = b""
    if len(id_) != ID_BYTES:
        raise ConfigurationError(f"{node.id!r} is not a node id. Pass the 32 hexadecimal digits that reports have as node.")
    info = NodeInfo(NodeId(id_), (node.address,) if node.address else (), node.zone)
    with refusals:
        check_info(info)
    return info


def _check_nodes(nodes: object) -> None:
    if nodes is None or (isinstance(nodes, Sequence) and all(isinstance(node, NodeName) for node in nodes)):
        return
    raise ConfigurationError(f"nodes={nodes!r} must be a list of NodeName from an earlier answer, or None for all nodes.")


def _check_since(since: object) -> None:
    numbers = list(since.values()) if isinstance(since, Mapping) else [since]
    names = list(since) if isinstance(since, Mapping) else []
    if not all(isinstance(name, str) for name in names) or not all(type(number) is int for number in numbers):
        raise ConfigurationError(
            f"since={since!r} must be the number of an event, or a mapping from node ids to numbers of events."
        )
