"""The doctor's node: an ordinary node of the network without a cluster. It leaves nothing behind on its machine."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from iris_overlay.events import DialChecked, EchoReturned, RootLocated
from iris_overlay.ids import clockwise
from iris_overlay.peers.reachability import ECHO_BYTES_MAX, ECHO_BYTES_MIN
from iris_py.api.keys import Keys
from iris_py.api.lifecycle import Parts, parts_of, seeded_rng
from iris_py.api.node import Node
from iris_py.doctor.answers import find_gaps
from iris_py.doctor.host import PeersRead
from iris_py.doctor.surroundings import Dialled, Echoes, ProbedPeer, RingNode, RingReport, Seed, SeedOutcome
from iris_py.net.driver import is_absence
from iris_py.node.events import DialAnswered, DialBroken, DialRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.config import Config
    from iris_py.errors import IrisError
    from iris_py.node.events import NodeEvent
    from iris_py.peers.rotation import GenerationsSigned
    from iris_security import Keyring

__all__ = ["Prober", "ring_node", "start_prober"]

#: Maximum number of nodes for echo datagrams and for dial checks. Too small: an odd node stands for all; too large: the checks
#: disturb.
ECHOED_MAX: Final = 8
DIALLERS_MAX: Final = 3
#: Number of datagrams sent to each silent node, and the time between them (seconds), because datagrams are lost occasionally.
ECHO_TRIES: Final = 4
ECHO_S: Final = 0.4
#: Timeout for nodes asked to dial this node (seconds): a silent dial fails after 3 s.
DIALLED_S: Final = 6.0
#: Timeout for the outcomes of all seeds (seconds).
SEEDS_S: Final = 5.0
#: How long a node without links listens for beacons, which come every 3 s (seconds).
BEACONS_S: Final = 4.0
#: Maximum number of nodes queried for their ring neighbours, and the timeout (seconds).
RING_MAX: Final = 256
RING_S: Final = 4.0
#: Interval at which conditions are tested that no event announces (seconds).
LOOK_S: Final = 0.1
#: Time without an answer of a key's root after which the query is repeated (seconds).
ROOT_S: Final = 1.0
#: Time after which a ring with a fault is read again (seconds).
RING_AGAIN_S: Final = 2.0


class ProberKeys(Keys):
    """The keys of the doctor's node: uses the machine's secrets and remembered peers, and stores nothing."""

    def remember(self) -> bool:
        """Read the peers remembered on the machine, without adding this node; return False: the node is not remembered."""
        directory = self._runtime.config.state_directory
        if self.is_remembered and directory is not None:
            self._remembered = PeersRead(directory, self._runtime.keyring.primary.key_id.hex())
        return False

    def handle_signed(self, event: GenerationsSigned) -> None:
        """Use the generations of the secret signed by the administrator, without storing them."""
        if self._runtime.closing is None:
            self.use(self._runtime.keyring.with_generations(event.signed.secrets))


class ProberParts(Parts):
    """The parts of the doctor's node, which record the results of dials and probes.

    Attributes:
        failed: By seed: the error of the last dial without a connection.
        taken: By seed: the reason why a connection failed after the seed had accepted it.
        awaited: The numbers of the echoes and queries that this node has sent. Answers with other numbers are ignored, so peers
            cannot fill the next tables.
        echoed: The numbers of the echoes that came back.
        dial_outcomes: The reports of nodes asked to dial this node, by node id.
        located: The answers of roots, by the number of the query.
        happened: An event set after each of these changes.
    """

    keys_type: ClassVar[type[Keys]] = ProberKeys

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as for Parts
        super().__init__(*arguments)
        self.failed: dict[str, OSError | IrisError] = {}
        self.taken: dict[str, str] = {}
        self.awaited: set[int] = set()
        self.echoed: set[int] = set()
        self.dial_outcomes: dict[NodeId, DialChecked] = {}
        self.located: dict[int, RootLocated] = {}
        self.happened = asyncio.Event()

    async def check_seeds(self) -> None:
        """Do nothing. An ordinary node refuses to start if all seeds belong to other networks; the doctor reports the seeds."""

    def handle_events(self, events: Sequence[NodeEvent]) -> None:
        """Record the results of dials and probes, and handle all events as any node does."""
        for event in events:
            if isinstance(event, EchoReturned):
                self.echoed |= {event.number} & self.awaited
            elif isinstance(event, DialChecked):
                self.dial_outcomes[event.peer] = event
            elif isinstance(event, RootLocated) and event.number in self.awaited:
                self.located[event.number] = event
            elif isinstance(event, DialAnswered):
                self.failed.pop(event.address, None)
                self.taken.pop(event.address, None)
            elif isinstance(event, DialBroken | DialRefused) and event.address in self.seeds:
                self.failed.pop(event.address, None)
                self.taken[event.address] = event.reason
        super().handle_events(events)
        self.happened.set()

    def handle_dial_failed(self, address: str, error: OSError | IrisError) -> None:
        """Record the error of a dial to a seed, and handle it as any node does."""
        if address in self.seeds:
            self.failed[address] = error
        super().handle_dial_failed(address, error)
        self.happened.set()


class Prober(Node):
    """The doctor's node. Keeps the results of dials for the checks, and stores nothing.

    Args:
        config: The settings.
        keyring: The keys.
    """

    def __init__(self, config: Config, keyring: Keyring) -> None:
        super().__init__(config, keyring, None)
        self._seen = cast("ProberParts", self._parts)

    @staticmethod
    def _parts_type() -> type[Parts]:
        return ProberParts

    # -- properties

    def seed(self, address: str) -> Seed:
        """Return the outcome of dialling a seed, so far."""
        strangers = self._seen.seeds.strangers
        if address not in self._seen.seeds.unreached:
            return Seed(address, SeedOutcome.REACHED)
        if address in strangers:
            return Seed(address, SeedOutcome.FOREIGN, strangers[address])
        error = self._seen.failed.get(address)
        if error is not None:
            outcome = _outcome_of(error)
            is_plain = outcome in (SeedOutcome.REFUSED, SeedOutcome.SILENT)
            return Seed(address, outcome, "" if is_plain else getattr(error, "strerror", None) or str(error))
        if address in self._seen.taken:
            return Seed(address, SeedOutcome.UNANSWERED, self._seen.taken[address])
        return Seed(address, SeedOutcome.UNREADY)

    def peers(self) -> tuple[ProbedPeer, ...]:
        """Return all known nodes of the network except the doctor's node."""
        return tuple(ProbedPeer(member.id, member.address, member.zone, member.name) for member in self.nodes()[1:])

    def strangers(self) -> tuple[str, ...]:
        """Return the hosts of received datagrams of other networks."""
        return self._core.datagrams.other_networks.hosts(self._runtime.loop.time())

    @property
    def has_multicast(self) -> bool:
        """Whether the node can send and receive beacons (multicast announcements of nodes)."""
        return self._runtime.driver.has_multicast

    # -- probing

    async def look_around(self) -> None:
        """Wait until the outcome of every seed is clear, and then until a node is found, each within a timeout."""

        def is_seen() -> bool:
            waiting = (SeedOutcome.UNREADY, SeedOutcome.UNANSWERED)
            return not any(self.seed(address).outcome in waiting for address in self._seen.seeds.unreached)

        await self._wait_until_seen(is_seen, SEEDS_S)
        await self._wait_until_seen(lambda: bool(self._linked() or self.strangers()), BEACONS_S if self.has_multicast else 0.0)

    async def send_echoes(self) -> Echoes:
        """Send small and large datagrams to some linked nodes, repeatedly until all come back or the tries are used up."""
        asked = [info for info in self._linked()[:ECHOED_MAX] if info.addresses]
        waiting: dict[tuple[NodeId, int], set[int]] = {}
        for info in asked:
            for size in (ECHO_BYTES_MIN, ECHO_BYTES_MAX):
                waiting[info.id, size] = set()
        unaddressed: set[NodeId] = set()
        for _try in range(ECHO_TRIES):
            for (peer, size), numbers in waiting.items():
                if numbers & self._seen.echoed or peer in unaddressed:
                    continue
                number = self._core.overlay.echo(
                    next(info for info in asked if info.id == peer), size, self._runtime.loop.time()
                )
                if number is None:
                    unaddressed.add(peer)
                else:
                    numbers.add(number)
                    self._seen.awaited.add(number)
            self._push()
            if await self._wait_until_seen(
                lambda: all(numbers & self._seen.echoed for (peer, _), numbers in waiting.items() if peer not in unaddressed),
                ECHO_S,
            ):
                break
        small, large = (
            tuple(peer.hex() for (peer, size), numbers in waiting.items() if size == wanted and numbers & self._seen.echoed)
            for wanted in (ECHO_BYTES_MIN, ECHO_BYTES_MAX)
        )
        return Echoes(len(asked) - len(unaddressed), small, large)

    async def have_it_dialled(self) -> Dialled:
        """Ask some nodes, preferably on other hosts, to dial this node; wait for the results."""
        own_host = self.address.rpartition(":")[0]
        linked = sorted(self._linked(), key=lambda info: any(own_host in address for address in info.addresses))
        asked = [info.id for info in linked[:DIALLERS_MAX]]
        for peer in asked:
            self._core.overlay.check_dial(peer, self._runtime.loop.time())
        self._push()
        await self._wait_until_seen(lambda: all(peer in self._seen.dial_outcomes for peer in asked), DIALLED_S)
        checked = [self._seen.dial_outcomes[peer] for peer in asked if peer in self._seen.dial_outcomes]
        outcomes = tuple(outcome for check in checked for outcome in check.outcomes)
        return Dialled(len(asked), outcomes, mute=sum(not check.outcomes for check in checked))

    async def look_at_ring(self) -> RingReport | None:
        """Ask nodes for their ring neighbours; return None without answers.

        A ring with a fault is read twice, because nodes come and go.
        """
        found = await self._walk_ring()
        if found is not None and (found.elsewhere or find_gaps(found)):
            await asyncio.sleep(RING_AGAIN_S)
            found = await self._walk_ring()
        return found

    async def _walk_ring(self) -> RingReport | None:
        until = self._runtime.loop.time() + RING_S
        leaves = self._core.overlay.leaves()
        nodes = {self.id: ring_node(self.id, [info.id.hex() for info in leaves])}
        waiting, seen = [peer.id for peer in self.peers()], {self.id}
        mute: set[str] = set()
        while waiting and len(seen) < RING_MAX:
            batch = [each for each in dict.fromkeys(waiting) if each not in seen][: RING_MAX - len(seen)]
            seen.update(batch)
            found = await self._find_roots([bytes.fromhex(each) for each in batch], until)
            waiting = []
            for wanted in batch:
                located = found.get(bytes.fromhex(wanted))
                if located is None or located.root.id.hex() != wanted:
                    mute.add(wanted)
                    continue
                neighbours = [info.id.hex() for info in located.leaves]
                nodes[wanted] = ring_node(wanted, neighbours)
                waiting += neighbours
        if len(nodes) == 1 and mute:
            return None
        linked = {info.id.hex() for info in self._linked()}
        return RingReport(tuple(nodes.values()), tuple(sorted(mute & linked)), is_partial=bool(waiting))

    async def _find_roots(self, keys: list[bytes], until: float) -> dict[bytes, RootLocated]:
        """Ask the root of each key for its identity and neighbours, repeating unanswered queries; return the answers by key."""
        numbers = {int.from_bytes(os.urandom(8), "big") >> 1: key for key in keys}
        self._seen.awaited.update(numbers)
        while self._runtime.loop.time() < until:
            now = self._runtime.loop.time()
            for number, key in numbers.items():
                if number not in self._seen.located:
                    self._core.overlay.find_root(key, number, now)
            self._push()
            if await self._wait_until_seen(lambda: numbers.keys() <= self._seen.located.keys(), min(ROOT_S, until - now)):
                break
        return {key: self._seen.located[number] for number, key in numbers.items() if number in self._seen.located}

    # --

    def _linked(self) -> list[NodeInfo]:
        """Return the nodes with a link to the doctor's node."""
        overlay, peers = self._core.overlay, self._core.peers
        return [info for info in overlay.peers() if peers.find(info.id) is not None]

    def _push(self) -> None:
        """Send the pending messages of the overlay at once."""
        self._core.handle_timeout(self._runtime.loop.time())
        self._runtime.driver.wake()

    async def _wait_until_seen(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds, or until the timeout; return whether it holds."""
        until = self._runtime.loop.time() + timeout_s
        while not condition():
            left_s = until - self._runtime.loop.time()
            if left_s <= 0.0:
                return False
            self._seen.happened.clear()
            try:
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._seen.happened.wait()
            except TimeoutError:
                pass  # not every change is an event
        return True


def _outcome_of(error: OSError | IrisError) -> SeedOutcome:
    """Return the outcome of a seed by the error of the dial."""
    if isinstance(error, ConnectionRefusedError):
        return SeedOutcome.REFUSED
    if is_absence(error):
        return SeedOutcome.UNKNOWN
    return SeedOutcome.SILENT if isinstance(error, TimeoutError) else SeedOutcome.UNREACHABLE


def ring_node(node: str, neighbours: Iterable[str]) -> RingNode:
    """Return a node with the nearest of the reported neighbours on each side."""
    place = int(node, 16)
    ordered = sorted(neighbours, key=lambda each: clockwise(place, int(each, 16)))
    return RingNode(node, ordered[-1] if ordered else "", ordered[0] if ordered else "")


async def start_prober(config: Config, keyring: Keyring, port_seed: str = "") -> Prober:
    """Start the doctor's node, and return it.

    Args:
        config: The settings.
        keyring: The keys.
        port_seed: An address to dial besides the seeds, to identify the program there; empty for none.

    Raises:
        ConfigurationError: The node cannot listen.
    """
    if port_seed and port_seed not in config.seeds:
        config = replace(config, seeds=(*config.seeds, port_seed))
    prober = Prober(config, keyring)
    try:
        await parts_of(prober).open(seeded_rng(os.urandom), os.urandom)
    except BaseException:
        await prober.close()
        raise
    return prober
