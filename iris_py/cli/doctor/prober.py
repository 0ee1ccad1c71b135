"""The doctor's node: an ordinary node of the network that serves no cluster, and leaves no trace on this machine."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from iris_overlay.events import DialChecked, EchoReturned, RootLocated
from iris_overlay.ids import clockwise
from iris_overlay.peers.reachability import ECHO_BYTES_MAX, ECHO_BYTES_MIN
from iris_py.api.keys import Keys
from iris_py.api.node import Node
from iris_py.api.parts import Parts, parts_of, seeded_rng
from iris_py.cli.doctor.answered import find_gaps
from iris_py.cli.doctor.host import PeersRead
from iris_py.cli.doctor.surroundings import Dialled, Echoes, Peer, Ring, RingNode, Seed, SeedOutcome
from iris_py.net.driver import is_absence
from iris_py.node.events import DialAnswered, DialBroken, DialRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
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
#: Timeout for nodes asked to dial: a silent dial fails after 3 s.
DIALLED_S: Final = 6.0
#: Timeout for seeds to identify themselves, and for finding other nodes.
SEEDS_S: Final = 5.0
#: How long a node without links listens for beacons, which are 3 s apart.
BEACONS_S: Final = 4.0
#: Maximum number of nodes queried for their neighbours, and the timeout.
RING_MAX: Final = 256
RING_S: Final = 4.0
#: Interval of checks for states without an event.
LOOK_S: Final = 0.1
#: Timeout for the root of a key before the query is repeated.
ROOT_S: Final = 1.0
#: Time after which a ring with recent arrivals or departures is checked again.
RING_AGAIN_S: Final = 2.0


class ProberKeys(Keys):
    """Secrets that leave no trace on this machine."""

    def remember(self) -> bool:
        """Read the peers remembered on this machine, without being remembered."""
        directory = self._runtime.config.state_directory
        if self.is_remembered and directory is not None:
            self._remembered = PeersRead(directory, self._runtime.keyring.primary.key_id.hex())
        return False

    def handle_signed(self, event: GenerationsSigned) -> None:
        """Use the secret's generations signed by the administrator, without storing them."""
        if self._runtime.closing is None:
            self.use(self._runtime.keyring.with_generations(event.signed.secrets))


class ProberParts(Parts):
    """The parts of the doctor's node, which record the results of dials and probes.

    Attributes:
        failed: By seed: the error of the last dial without a connection.
        taken: By seed: the reason why an accepted connection failed.
        echoed: The numbers of the echoes that came back.
        dial_outcomes: The outcomes of the nodes that were asked to dial this one.
        located: The roots found, by the number of the query.
        happened: Set by each of these.
    """

    keys_type: ClassVar[type[Keys]] = ProberKeys

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - as for Parts
        super().__init__(*arguments)
        self.failed: dict[str, OSError | IrisError] = {}
        self.taken: dict[str, str] = {}
        self.echoed: set[int] = set()
        self.dial_outcomes: dict[NodeId, DialChecked] = {}
        self.located: dict[int, RootLocated] = {}
        self.happened = asyncio.Event()

    async def check_seeds(self) -> None:
        """Accept seeds of other networks, because the doctor reports them."""

    def handle_events(self, events: list[NodeEvent]) -> None:
        """Record the results of probes, and handle all other events."""
        for event in events:
            if isinstance(event, EchoReturned):
                self.echoed.add(event.number)
            elif isinstance(event, DialChecked):
                self.dial_outcomes[event.peer] = event
            elif isinstance(event, RootLocated):
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
        """Record the error of a seed, and handle it."""
        if address in self.seeds:
            self.failed[address] = error
        super().handle_dial_failed(address, error)
        self.happened.set()


class Prober(Node):
    """A node that remembers the results of dials, and leaves no trace.

    Args:
        config: The settings.
        keyring: The keys.
    """

    _parts_type: ClassVar[type[Parts]] = ProberParts

    def __init__(self, config: Config, keyring: Keyring) -> None:
        super().__init__(config, keyring, None)
        self._seen = cast("ProberParts", self._parts)

    # -- properties

    def seed(self, address: str) -> Seed:
        """Return the state of a seed."""
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

    def peers(self) -> tuple[Peer, ...]:
        """Return the other known nodes of the network."""
        return tuple(Peer(member.id, member.address, member.zone, member.name) for member in self.nodes()[1:])

    def strangers(self) -> tuple[str, ...]:
        """Return the hosts with nodes of other networks."""
        return self._core.datagrams.other_networks.hosts(self._runtime.loop.time())

    @property
    def has_multicast(self) -> bool:
        """Whether beacons can be sent and received."""
        return self._runtime.driver.has_multicast

    # -- probing

    async def look_around(self) -> None:
        """Wait until every seed has identified itself and other nodes were found, within the timeouts."""

        def is_seen() -> bool:
            waiting = (SeedOutcome.UNREADY, SeedOutcome.UNANSWERED)
            return not any(self.seed(address).outcome in waiting for address in self._seen.seeds.unreached)

        await self._wait_until_seen(is_seen, SEEDS_S)
        await self._wait_until_seen(lambda: bool(self._linked() or self.strangers()), BEACONS_S if self.has_multicast else 0.0)

    async def send_echoes(self) -> Echoes:
        """Send datagrams of both sizes to some linked nodes, until they come back or the tries are used up."""
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
        """Ask some nodes to dial this one, those on other hosts first, and wait for the results."""
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

    async def look_at_ring(self) -> Ring | None:
        """Query nodes for their neighbours; check a faulty ring twice, because nodes come and go."""
        found = await self._walk_ring()
        if found is not None and (found.elsewhere or find_gaps(found)):
            await asyncio.sleep(RING_AGAIN_S)
            found = await self._walk_ring()
        return found

    async def _walk_ring(self) -> Ring | None:
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
        return Ring(tuple(nodes.values()), tuple(sorted(mute & linked)), is_partial=bool(waiting))

    async def _find_roots(self, keys: list[bytes], until: float) -> dict[bytes, RootLocated]:
        """Query the roots of keys for their identity, repeating unanswered queries; return the answers by key."""
        numbers = {int.from_bytes(os.urandom(8), "big") >> 1: key for key in keys}
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
        """Return the nodes with a link."""
        overlay, peers = self._core.overlay, self._core.peers
        return [info for info in overlay.peers() if peers.find(info.id) is not None]

    def _push(self) -> None:
        """Send the pending output of the overlay."""
        self._core.handle_timeout(self._runtime.loop.time())
        self._runtime.driver.wake()

    async def _wait_until_seen(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds; return whether it does."""
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
    """Return the outcome of a seed for an error of dialling."""
    if isinstance(error, ConnectionRefusedError):
        return SeedOutcome.REFUSED
    if is_absence(error):
        return SeedOutcome.UNKNOWN
    return SeedOutcome.SILENT if isinstance(error, TimeoutError) else SeedOutcome.UNREACHABLE


def ring_node(node: str, neighbours: Iterable[str]) -> RingNode:
    """Return a node with its nearest neighbours on both sides."""
    place = int(node, 16)
    ordered = sorted(neighbours, key=lambda each: clockwise(place, int(each, 16)))
    return RingNode(node, ordered[-1] if ordered else "", ordered[0] if ordered else "")


async def start_prober(config: Config, keyring: Keyring, port_seed: str = "") -> Prober:
    """Start the doctor's node.

    Args:
        config: The settings.
        keyring: The keys.
        port_seed: An address to dial besides the seeds, to identify the node there; empty for none.

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
