"""A network for tests of programs that use Iris: real nodes, a wire in memory, a clock that jumps.

The nodes are those of :func:`iris_py.connect`, whole and unchanged. What a program does with them is tested within
milliseconds, whatever it waits for, and every run of one seed takes the same steps::

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

from iris_py.api.opening import Opening
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
    """Nodes on a network in memory, under the virtual clock, with faults at will. Use it with ``async with``.

    It needs the virtual loop: run the test by :func:`iris_py.testing.run`, or by the fixture ``iris_network``. When it ends,
    every node that is left is closed.
    """

    def __init__(self, *, seed: int = 0, bandwidth_bytes_s: float | None = None) -> None:
        """Create a network without nodes.

        Args:
            seed: Decides what is left to chance: ids, choices, latencies between 0.2 and 2 ms, losses.
            bandwidth_bytes_s: Of each connection in each direction; None for no limit.
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
        """The nodes that were neither killed nor closed, the oldest first."""
        return tuple(node for node in self._simulation.nodes if node._closing is None)

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
        """Start a node on a host of its own. Use with ``await`` or ``async with``, as :func:`iris_py.connect`.

        Args:
            zone: Where it says it is.
            name: What it calls itself; by default nothing.
            seeds: Nodes whose addresses it is given.
            discovery: Whether it sends and hears beacons. Without them it needs seeds, and reaches no farther than they do.
            keyring: Other secrets than those that the nodes share: for an outsider, or for clusters with a secret of their own.
            tracing: Whether to make spans of OpenTelemetry, or the provider of tracers to make them with.

        Raises:
            HandshakeError: Somebody answers at every seed, and none of them holds its secret.
        """
        return Opening(
            self._simulation.start_node(seeds=seeds, beacons=discovery, zone=zone, name=name, keyring=keyring, tracing=tracing)
        )

    async def connect_many(self, count: int) -> list[Node]:
        """Start nodes, all at the same time."""
        return await self._simulation.start_nodes(count)

    def kill(self, node: Node) -> None:
        """End a node as a crash of its process does: in the middle of everything, and without a word.

        Its links break at once; what waits in calls of it raises :exc:`~iris_py.NodeClosed`. For a host that vanishes, so that
        nothing breaks, :meth:`isolate` it first.
        """
        self._simulation.kill(node)

    # -- faults

    def partition(self, nodes: Iterable[Node], others: Iterable[Node]) -> None:
        """Cut every node of one side off from every node of the other, until :meth:`heal`.

        Nothing breaks: connections hold what is sent, as on a real network, until somebody gives them up.
        """
        self._simulation.partition(list(nodes), list(others))

    def isolate(self, node: Node) -> None:
        """Cut a node off from all others that are there, until :meth:`heal`: its host stands still, or its cable was pulled."""
        self._simulation.partition([node], [other for other in self.nodes if other is not node])

    def stall(self, source: Node, target: Node) -> None:
        """Swallow what one node sends to another, until :meth:`heal`; the way back still works."""
        self._simulation.stall(source, target)

    def half_open(self, source: Node, target: Node) -> None:
        """Swallow what one node sends to another over the connections that there are now, as a firewall that forgot them does.

        Neither node is told, new connections work, and :meth:`heal` does not undo it. For the other way, call it the other
        way round.
        """
        self._simulation.half_open(source, target)

    def heal(self) -> None:
        """Undo every :meth:`partition`, :meth:`isolate` and :meth:`stall`. What was held back arrives then."""
        self._simulation.heal()

    def reset(self, node: Node) -> None:
        """Break every connection of a node, which lives on."""
        self._simulation.reset(node)

    def loss(self, share: float) -> None:
        """Lose datagrams from now on: beacons, and the pings by which nodes watch each other.

        Connections lose nothing, for the system would send it again.

        Args:
            share: Of all datagrams; 0 for none.

        Raises:
            ConfigurationError: It is not between 0 and 1.
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
        """Let virtual time pass, and everything happen that happens in it. To wait for anything else does so as well."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object], *, timeout: float = UNTIL_LIMIT_S) -> None:
        """Let time pass until something is the case; it is looked at every 5 virtual milliseconds.

        Raises:
            TimeoutError: It was not the case within so many virtual seconds.
        """
        await self._simulation.until(condition, limit_s=timeout)


def run_in_network(
    main: Callable[[VirtualNetwork], Coroutine[Any, Any, Result]], *, seed: int = 0, limit_s: float = LIMIT_S
) -> Result:
    """Run a test on a virtual loop, in a network of its own.

    Args:
        main: Is given the network.
        seed: Decides what is left to chance.
        limit_s: The virtual time that it may take.

    Raises:
        DeadlockError: It waits for something that cannot happen any more.
        LimitError: It has not finished in time.
    """

    async def within() -> Result:
        async with VirtualNetwork(seed=seed) as network:
            return await main(network)

    if not inspect.iscoroutinefunction(main):
        raise ConfigurationError(f"{main!r} must be an async function of the network.")
    return run(within(), limit_s=limit_s)
