"""Complete nodes on a simulated network with a virtual clock.

The nodes are complete, from the public interface to the encrypted streams; only the wire and the clock are simulated, so an
hour of virtual time costs only the work of its messages. One seed determines all random choices, so a failure can be reproduced
from its seed::

    async def scenario() -> None:
        async with NodeSimulation(seed=7) as simulation:
            first, second, third = await simulation.start_nodes(3)
            await first.join("echo", answer)
            await second.join("echo", answer)
            simulation.kill(second)
            assert await third.request("echo", b"hello", idempotent=True) == b"hello"

    iris_py.testing.run(scenario(), limit_s=60)

Simulations touch no files and no global state: they may follow each other or run in parallel processes.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final, Self

from iris_overlay.ring.config import PastryConfig
from iris_py.api.lifecycle import parts_of
from iris_py.api.node import Node, start_node
from iris_py.api.runtime import runtime_of
from iris_py.config import Config
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.testing.network import EventHash, MemoryNetwork
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from iris_overlay.groups.config import GroupConfig
    from iris_py.observe.journal import Observe
    from iris_py.tracing import TracingSetting

#: The polling interval of :meth:`NodeSimulation.until`, in virtual seconds: below every relevant latency.
LOOK_INTERVAL_S: Final = 0.005

#: The default limit of :meth:`NodeSimulation.until`, in virtual seconds.
UNTIL_LIMIT_S: Final = 60.0

#: The number of ring neighbours of a node on each side.
LEAF_HALF: Final = PastryConfig().leaf_half


class NodeSimulation:
    """Starts complete nodes on separate simulated hosts, and injects faults.

    Attributes:
        network: The network, for further faults.
        nodes: The started nodes, without those killed or closed by :meth:`close`, the oldest first.
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
        groups: GroupConfig | None = None,
    ) -> None:
        """Create a network without nodes.

        Args:
            seed: The seed of all random choices: keys, decisions, latencies, losses.
            bandwidth_bytes_s: The bandwidth of each connection and direction; None for no limit.
            name: The name of the Iris network.
            network: A network shared with other simulations, whose traffic is then not in :meth:`digest`. None for a separate
                one.
            site: The site of the simulation's hosts.
            first_host: The number of the first host, counted from 10.0.0.0: simulations on a shared network need separate
                hosts.
            groups: The configuration of groups, for example a smaller bound of whole views; None for the defaults.
        """
        self._trace = EventHash()
        if network is None:
            network = MemoryNetwork(seed, bandwidth_bytes_s=bandwidth_bytes_s)
            network.record = self._trace.record
        self.network = network
        self._site = site
        self._first_host = first_host
        self._groups = groups
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
        """Start a node; return the node after discovery, as :func:`iris_py.connect` does.

        Args:
            seeds: Nodes whose addresses serve as seeds.
            beacons: Whether the node sends and receives beacons.
            on_host_of: A node, running or dead, whose host the node shares or takes over. None for a separate host.
            zone: The zone of the node.
            name: The label of the node; empty by default, so that a run does not depend on the machine.
            keyring: Other secrets than the simulation's.
            tracing: As for :func:`iris_py.connect`.
            max_message_bytes: As for :func:`iris_py.connect`.
            advertise: As for :func:`iris_py.connect`.
            observe: As for :func:`iris_py.connect`.

        Raises:
            ConfigurationError: A setting is wrong.
            HandshakeError: All seeds answer, and none holds the secret.
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
        node = await start_node(config, self.network.host(host), rng, entropy.randbytes, groups=self._groups)
        self._hosts[node.id] = host
        self.nodes.append(node)
        return node

    async def start_nodes(self, count: int, *, seeds: Sequence[Node] = (), beacons: bool = True) -> list[Node]:
        """Start nodes, all at once."""
        starts = (self.start_node(seeds=seeds, beacons=beacons) for _ in range(count))
        return list(await asyncio.gather(*starts))

    def kill(self, node: Node) -> None:
        """End a node as a crash of its process or host would: at once, without cleanup or farewell.

        Peers see their links break; the node's own tasks are cancelled, and calls on the node raise ``NodeClosed``. Other nodes
        on the host die, too.
        """
        host = self.host_of(node)
        self.network.kill(host)
        for other in [other for other in self.nodes if self.host_of(other) == host]:
            self.nodes.remove(other)
            parts_of(other).abort()

    async def close(self) -> None:
        """Close all remaining nodes at once: one after the other, each death would be detected and repaired by the rest."""
        nodes, self.nodes = self.nodes, []
        await asyncio.gather(*(node.close(timeout=0.0) for node in nodes))

    # -- faults

    def partition(self, nodes: Iterable[Node], others: Iterable[Node]) -> None:
        """Cut two sets of nodes off from each other until :meth:`heal`."""
        self.network.partition(map(self.host_of, nodes), map(self.host_of, others))

    def stall(self, source: Node, target: Node) -> None:
        """Block traffic from one node to another until :meth:`heal`; the other direction still works."""
        self.network.stall(self.host_of(source), self.host_of(target))

    def half_open(self, source: Node, target: Node) -> None:
        """Drop bytes from one node to another over existing connections, permanently; new connections work."""
        self.network.half_open(self.host_of(source), self.host_of(target))

    def reset(self, node: Node) -> None:
        """Break every link of a node, which lives on."""
        self.network.reset(self.host_of(node))

    def heal(self) -> None:
        """Undo every :meth:`partition` and :meth:`stall`. Held bytes arrive then."""
        self.network.heal()

    def _place(self, number: int) -> str:
        """Return the name of a new host, in the site of the simulation."""
        number += self._first_host
        host = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        self.network.place(host, self._site)
        return host

    # -- what is the case

    def knows(self, node: object) -> bool:
        """Tell whether an object is a node that this simulation has started."""
        return isinstance(node, Node) and node.id in self._hosts

    def host_of(self, node: Node) -> str:
        """Return the name of a node's present or last host."""
        return self._hosts[node.id]

    def is_converged(self) -> bool:
        """Tell whether the remaining nodes form one ring, where every node has exactly its nearest nodes as neighbours.

        In a ring of up to 17 nodes, every node then knows all others.
        """
        order = sorted(self.nodes, key=lambda node: node.id)
        for index, node in enumerate(order):
            near = {order[(index + step) % len(order)].id for step in range(-LEAF_HALF, LEAF_HALF + 1)} - {node.id}
            if {info.id.hex() for info in runtime_of(node).core.overlay.leaves()} != near:
                return False
        return True

    async def until(self, condition: Callable[[], object], *, limit_s: float = UNTIL_LIMIT_S) -> None:
        """Wait until a condition holds.

        Args:
            condition: The condition, checked every ``LOOK_INTERVAL_S``.
            limit_s: The limit in virtual seconds.

        Raises:
            TimeoutError: The condition did not hold in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + limit_s
        while not condition():
            if loop.time() >= deadline:
                raise TimeoutError(f"not the case within {limit_s:g} virtual seconds (seed {self._seed})")
            await asyncio.sleep(LOOK_INTERVAL_S)

    def note(self, what: object) -> None:
        """Add an event of the scenario to :meth:`digest`."""
        self._trace.note(what)

    def digest(self) -> str:
        """Return a hash of every byte sent so far, with its time; equal for all runs with the same seed."""
        return self._trace.digest()
