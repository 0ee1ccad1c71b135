"""A network for tests of programs that use Iris: real nodes, a simulated wire, a clock that jumps.

The nodes are complete and unchanged, as from :func:`iris_py.connect`. Tests finish within milliseconds of real time, however
long the program waits, and every run with the same seed takes the same steps::

    async def main() -> None:
        async with iris_py.testing.VirtualNetwork() as network:
            alice, bob = await network.connect(), await network.connect(zone="eu")
            await bob.join("echo", echo)
            network.kill(bob)
            await network.advance(5.0)

    iris_py.testing.run(main())

docs/testing.md has more.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Self

from iris_py.api.awaitable_context import Opening
from iris_py.api.runtime import runtime_of
from iris_py.errors import ConfigurationError
from iris_py.testing.clock import LIMIT_S, VirtualLoop, run
from iris_py.testing.nodes import UNTIL_LIMIT_S, NodeSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from types import TracebackType
    from typing import Any, TypeVar

    from iris_py.api.node import Node
    from iris_py.tracing import TracingSetting
    from iris_security import Keyring

    Result = TypeVar("Result")


class VirtualNetwork:
    """Nodes on a simulated network with a virtual clock and injected faults. Use with ``async with``.

    The network needs the virtual loop: run the test with :func:`iris_py.testing.run`, or with the fixture ``iris_network``. The
    end of the context closes all remaining nodes.
    """

    def __init__(self, *, seed: int = 0, bandwidth_bytes_s: float | None = None) -> None:
        """Create a network without nodes.

        Args:
            seed: The seed of all random choices: ids, decisions, latencies between 0.2 and 2 ms, losses.
            bandwidth_bytes_s: The bandwidth of each connection and direction; None for no limit.
        """
        self._simulation = NodeSimulation(seed, bandwidth_bytes_s=bandwidth_bytes_s, name="virtual")

    async def __aenter__(self) -> Self:
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise ConfigurationError("a virtual network needs the virtual clock. Run the test by iris_py.testing.run().")
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._simulation.close()

    # -- nodes

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The running nodes, the oldest first."""
        return tuple(node for node in self._simulation.nodes if runtime_of(node).closing is None)

    def connect(
        self,
        *,
        zone: str = "",
        name: str = "",
        seeds: Sequence[Node] = (),
        discovery: bool = True,
        keyring: Keyring | None = None,
        tracing: TracingSetting = None,
    ) -> Opening[Node]:
        """Start a node on its own host. Use with ``await`` or ``async with``, as :func:`iris_py.connect`.

        Args:
            zone: The zone of the node.
            name: The label of the node; empty by default.
            seeds: Nodes whose addresses serve as seeds.
            discovery: Whether the node sends and receives beacons. Without beacons the node needs seeds, and finds only the
                nodes known to them.
            keyring: Other secrets than the shared ones: for an outsider, or for clusters with their own secret.
            tracing: Whether to create OpenTelemetry spans, or the tracer provider for them.

        Raises:
            HandshakeError: All seeds answer, and none holds the node's secret.
        """
        return Opening(
            self._simulation.start_node(seeds=seeds, beacons=discovery, zone=zone, name=name, keyring=keyring, tracing=tracing)
        )

    async def connect_many(self, count: int) -> list[Node]:
        """Start nodes, all at the same time."""
        return await self._simulation.start_nodes(count)

    def kill(self, node: Node) -> None:
        """End a node as a crash of its process would: at once, without cleanup or farewell.

        Its links break at once, and pending calls on the node raise :exc:`~iris_py.NodeClosed`. For a host that vanishes
        without breaking links, call :meth:`isolate` first.
        """
        self._simulation.kill(node)

    # -- faults

    def partition(self, nodes: Iterable[Node], others: Iterable[Node]) -> None:
        """Cut two sets of nodes off from each other until :meth:`heal`.

        Connections do not break: they hold the bytes sent, as on a real network, until a timeout closes them.
        """
        self._simulation.partition(list(nodes), list(others))

    def isolate(self, node: Node) -> None:
        """Cut a node off from all others until :meth:`heal`, as if its host stood still or its cable was pulled."""
        self._simulation.partition([node], [other for other in self.nodes if other is not node])

    def stall(self, source: Node, target: Node) -> None:
        """Block traffic from one node to another until :meth:`heal`; the other direction still works."""
        self._simulation.stall(source, target)

    def half_open(self, source: Node, target: Node) -> None:
        """Drop bytes that one node sends to another over existing connections, as a firewall does after forgetting them.

        Neither node is notified, new connections work, and :meth:`heal` does not restore the old ones. For both directions,
        call the method twice.
        """
        self._simulation.half_open(source, target)

    def heal(self) -> None:
        """Undo every :meth:`partition`, :meth:`isolate` and :meth:`stall`. Held bytes arrive then."""
        self._simulation.heal()

    def reset(self, node: Node) -> None:
        """Break every connection of a node, which lives on."""
        self._simulation.reset(node)

    def loss(self, share: float) -> None:
        """Lose datagrams from now on: beacons, and the pings of the failure detector.

        Connections lose nothing, because TCP retransmits.

        Args:
            share: The share of lost datagrams; 0 for none.

        Raises:
            ConfigurationError: The share is not between 0 and 1.
        """
        if not 0 <= share <= 1:
            raise ConfigurationError(f"loss={share!r} must be a share, from 0 to 1.")
        self._simulation.network.datagram_loss = share

    # -- time

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return asyncio.get_running_loop().time()

    async def advance(self, seconds: float) -> None:
        """Advance the virtual time, while everything else runs; any other await advances the time as well."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object], *, timeout: float = UNTIL_LIMIT_S) -> None:
        """Advance the virtual time until a condition holds, checked every 5 virtual milliseconds.

        Raises:
            TimeoutError: The condition did not hold within ``timeout`` virtual seconds.
        """
        await self._simulation.until(condition, limit_s=timeout)


def run_in_network(
    main: Callable[[VirtualNetwork], Coroutine[Any, Any, Result]], *, seed: int = 0, limit_s: float = LIMIT_S
) -> Result:
    """Run a test on a virtual loop, in its own network.

    Args:
        main: The async function to call with the network.
        seed: The seed of all random choices.
        limit_s: The limit in virtual seconds.

    Raises:
        DeadlockError: The function waits for an event that can no longer happen.
        LimitError: The function has not finished in time.
    """

    async def within() -> Result:
        async with VirtualNetwork(seed=seed) as network:
            return await main(network)

    if not inspect.iscoroutinefunction(main):
        raise ConfigurationError(f"{main!r} must be an async function of the network.")
    return run(within(), limit_s=limit_s)
