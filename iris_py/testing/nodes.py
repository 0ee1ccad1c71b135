"""Complete nodes on a simulated network, under the virtual clock.

The nodes are the ones that applications hold, from the public interface down to encrypted streams; only the wire and the clock
are simulated, so an hour takes as long as its messages do. Everything random comes from one seed, and a failure is found again
by its seed::

    async def scenario() -> None:
        async with NodeSimulation(seed=7) as simulation:
            first, second, third = await simulation.start_nodes(3)
            await first.join("echo", answer)
            await second.join("echo", answer)
            simulation.kill(second)
            assert await third.request("echo", b"hello", idempotent=True) == b"hello"

    iris_py.testing.run(scenario(), limit_s=60)

No files are touched, and nothing is global: simulations may follow each other or run in processes side by side.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Self

from iris_overlay.ring.config import PastryConfig
from iris_py.api.node import Node, start_node
from iris_py.config import Config
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.testing.network import MemoryNetwork, Trace
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from iris_py.observe.queries import Observe
    from iris_py.tracing import TracingSetting

#: How often :meth:`NodeSimulation.until` looks, in virtual seconds: below every latency that matters, so little is missed.
LOOK_INTERVAL_S: Final = 0.005

#: Virtual seconds that :meth:`NodeSimulation.until` waits unless it is told otherwise.
UNTIL_LIMIT_S: Final = 60.0

#: How many neighbours a node has on each side.
LEAF_HALF: Final = PastryConfig().leaf_half


class NodeSimulation:
    """Start, kill and separate nodes, each on a host of its own.

    Create it in a coroutine that runs on a :class:`~iris_py.testing.clock.VirtualLoop`; with ``async with`` every node that
    is left in the end is closed.

    Attributes:
        network: The network, for faults that this class has no word for.
        nodes: The nodes that were started and neither killed nor closed by :meth:`close`, the oldest first.
    """

    def __init__(
        self,
        seed: int | str,
        *,
        bandwidth_bytes_s: float | None = None,
        name: str = "simulation",
        network: MemoryNetwork | None = None,
        site: str = "",
        first_host: int = 0,
    ) -> None:
        """Create a network without nodes.

        Args:
            seed: Decides everything that is left to chance: keys, choices, latencies, losses.
            bandwidth_bytes_s: Of each connection in each direction; None for no limit.
            name: The name of the Iris network.
            network: A network that other simulations share; what is put on its wire is then not in :meth:`digest`. None for one
                of its own.
            site: The site that its hosts belong to.
            first_host: The number of its first host, counted from 10.0.0.0: simulations on one network need hosts of their own.
        """
        self._trace = Trace()
        if network is None:
            network = MemoryNetwork(seed, bandwidth_bytes_s=bandwidth_bytes_s)
            network.record = self._trace.record
        self.network = network
        self._site = site
        self._first_host = first_host
        self.nodes: list[Node] = []
        self._seed = seed
        self._keyring = Keyring(Secret(Random(f"{seed} secret").randbytes(32)), network=name)
        self._started = 0
        self._hosts: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # -- life and death

    async def start_node(
        self,
        *,
        seeds: Sequence[Node] = (),
        beacons: bool = True,
        on_host_of: Node | None = None,
        zone: str = "",
        name: str = "",
        keyring: Keyring | None = None,
        tracing: TracingSetting = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        advertise: Sequence[str] = (),
        observe: Observe = "all",
    ) -> Node:
        """Start a node; returns it when it has found the others, as :func:`iris_py.connect` does.

        Args:
            seeds: Nodes whose addresses it is given.
            beacons: Whether it sends and hears beacons.
            on_host_of: A node, alive or dead, whose host it shares or takes over. None for a host of its own.
            zone: Where it says it is.
            name: What it calls itself; by default nothing, so that a run does not depend on the machine.
            keyring: Other secrets than those of the simulation.
            tracing: As for :func:`iris_py.connect`.
            max_message_bytes: As for :func:`iris_py.connect`.
            advertise: As for :func:`iris_py.connect`.
            observe: As for :func:`iris_py.connect`.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: Somebody answers at every seed, and none of them holds this secret.
        """
        number = self._started
        self._started += 1
        host = self._place(number) if on_host_of is None else self.host_of(on_host_of)
        config = Config(
            keyring=keyring or self._keyring,
            listen=f"{host}:0",
            advertise=tuple(advertise),
            seeds=tuple(seed.address for seed in seeds),
            discovery=beacons,
            zone=zone,
            name=name,
            tracing=tracing,
            max_message_bytes=max_message_bytes,
            observe=observe,
        )
        rng, entropy = Random(f"{self._seed} choices {number}"), Random(f"{self._seed} entropy {number}")
        node = await start_node(config, self.network.host(host), rng, entropy.randbytes)
        self._hosts[node.id] = host
        self.nodes.append(node)
        return node

    async def start_nodes(self, count: int, *, seeds: Sequence[Node] = (), beacons: bool = True) -> list[Node]:
        """Start nodes, all at once."""
        starts = (self.start_node(seeds=seeds, beacons=beacons) for _ in range(count))
        return list(await asyncio.gather(*starts))

    def kill(self, node: Node) -> None:
        """End a node as a crash of its process, or its host, does: in the middle of everything, and without a word.

        Whoever has a link to it sees it break; its own tasks are cancelled, and calls of it raise ``NodeClosed``. Other nodes
        on its host die with it.
        """
        host = self.host_of(node)
        self.network.kill(host)
        for other in [other for other in self.nodes if self.host_of(other) == host]:
            self.nodes.remove(other)
            other._abort()

    async def close(self) -> None:
        """Close every node that is left, all at once: one after the other, each would be mourned and replaced by those left."""
        nodes, self.nodes = self.nodes, []
        await asyncio.gather(*(node.close(timeout=0.0) for node in nodes))

    # -- faults

    def partition(self, nodes: Iterable[Node], others: Iterable[Node]) -> None:
        """Cut every node of one side off from every node of the other, until :meth:`heal`."""
        self.network.partition(map(self.host_of, nodes), map(self.host_of, others))

    def stall(self, source: Node, target: Node) -> None:
        """Swallow what one node sends to another, until :meth:`heal`: a black hole, for the way back still works."""
        self.network.stall(self.host_of(source), self.host_of(target))

    def half_open(self, source: Node, target: Node) -> None:
        """Swallow what one node sends to another over the connections that there are now, for good; new ones work."""
        self.network.half_open(self.host_of(source), self.host_of(target))

    def reset(self, node: Node) -> None:
        """Break every link of a node, which lives on."""
        self.network.reset(self.host_of(node))

    def heal(self) -> None:
        """Undo every :meth:`partition` and :meth:`stall`. What was held back arrives then."""
        self.network.heal()

    def _place(self, number: int) -> str:
        """Return the name of a new host, in the site of this simulation."""
        number += self._first_host
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        self.network.place(host, self._site)
        return host

    # -- what is the case

    def knows(self, node: object) -> bool:
        """Tell whether something is a node that was started here."""
        return isinstance(node, Node) and node.id in self._hosts

    def host_of(self, node: Node) -> str:
        """Return the name of the host that a node runs, or ran, on."""
        return self._hosts[node.id]

    def is_converged(self) -> bool:
        """Tell whether the nodes that are left are one ring: each has exactly those for neighbours that are next to it.

        Of up to 17 nodes, everybody knows everybody then.
        """
        order = sorted(self.nodes, key=lambda node: node.id)
        for index, node in enumerate(order):
            near = {order[(index + step) % len(order)].id for step in range(-LEAF_HALF, LEAF_HALF + 1)} - {node.id}
            if {info.id.hex() for info in node._core.overlay.leaves()} != near:
                return False
        return True

    async def until(self, condition: Callable[[], object], *, limit_s: float = UNTIL_LIMIT_S) -> None:
        """Wait until something is the case.

        Args:
            condition: Looked at every ``LOOK_INTERVAL_S``.
            limit_s: The virtual time that it may take.

        Raises:
            TimeoutError: It took longer.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while not condition():
            if loop.time() >= deadline:
                raise TimeoutError(f"not the case within {limit_s:g} virtual seconds (seed {self._seed})")
            await asyncio.sleep(LOOK_INTERVAL_S)

    def note(self, what: object) -> None:
        """Add something that happened in a scenario to :meth:`digest`."""
        self._trace.note(what)

    def digest(self) -> str:
        """Return a hash of every byte that was put on the wire so far, with its time: two runs of a seed have the same."""
        return self._trace.digest()
