"""Several clouds on one simulated network, joined by gateways, for tests of federation.

Nodes and gateways are complete and unchanged; only the wire and the clock are simulated. Each cloud is a site with its own
secret, so nodes of different clouds do not discover each other. A link names the dialling and the dialled cloud, and the
latency between them::

    async with VirtualFederation(
        seed=1,
        clouds={"us": 2, "eu": 3},
        links=[("us", "eu", 0.04)],
        exports={"eu": [{"cluster": "databases"}]},
        imports={"us": [{"cluster": "databases"}]},
    ) as federation:
        caller, member = federation.members("us")[0], federation.members("eu")[0]
        await member.join("databases", answer)
        assert await caller.request("databases@eu", b"SELECT 1") == b"1"
        federation.cut("us", "eu")

The federation needs the virtual loop: run the test with :func:`iris_py.testing.run`. docs/testing.md has more.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from iris_py.api.runtime import runtime_of
from iris_py.errors import ConfigurationError
from iris_py.federation.settings import parse_settings
from iris_py.gateway.gateway import abort_gateway
from iris_py.gateway.startup import start_gateway as start_real_gateway
from iris_py.testing.clock import VirtualLoop
from iris_py.testing.network import EventHash, MemoryNetwork
from iris_py.testing.nodes import LOOK_INTERVAL_S, UNTIL_LIMIT_S, NodeSimulation
from iris_security.cloud_key import CloudKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from iris_py.api.node import Node
    from iris_py.gateway.gateway import Gateway
    from iris_py.net.network import NetworkStack
    from iris_py.testing.sites import Tap, Verdict

#: The port of every gateway; each has its own host.
GATEWAY_PORT: Final = 7450

#: The drain timeout (virtual seconds) of a gateway closed for a restart.
CLOSE_TIMEOUT_S: Final = 30.0

#: Hosts of a cloud at most, so that each cloud has its own addresses: 10.1.0.0, 10.2.0.0 and so on.
_HOSTS_PER_CLOUD: Final = 1 << 16

#: A rule of a cloud, with the keys of its settings: ``{"cluster": "databases", "allow": ["request"]}``.
Rule = dict[str, Any]


@dataclass(eq=False, slots=True)
class Post:
    """A gateway's place in a cloud: its host, which stays the same through crashes and restarts."""

    node: Node
    """The present or last node of the gateway."""
    gateway: Gateway | None = None
    former: list[Gateway] = field(default_factory=list)
    """Earlier gateways at the place."""


class SimulatedCloud:
    """A cloud of a :class:`VirtualFederation`: the nodes, the key and the rules.

    Attributes:
        name: The name of the cloud, also used by its neighbours.
        key: The key of the cloud.
        simulation: The nodes, including those of the gateways.
        posts: The places of gateways.
        neighbours: For each neighbour, whether this cloud dials the neighbour.
        exports: Export rules, see :class:`VirtualFederation`.
        imports: Import rules, see :class:`VirtualFederation`.
        settings: Further settings, see :class:`VirtualFederation`.
    """

    def __init__(self, name: str, number: int, seed: int, network: MemoryNetwork) -> None:
        self.name = name
        self.key = CloudKey.generate(Random(f"{seed} key of {name}").randbytes)
        self.simulation = NodeSimulation(
            f"{seed} {name}", name=name, network=network, site=name, first_host=number * _HOSTS_PER_CLOUD
        )
        self.posts: list[Post] = []
        self.neighbours: dict[str, bool] = {}
        self.exports: list[Rule] = []
        self.imports: list[Rule] = []
        self.settings: dict[str, dict[str, object]] = {}
        self.gateways_started = 0

    def addresses(self) -> list[str]:
        """Return the addresses of the gateways."""
        return [f"{self.simulation.host_of(post.node)}:{GATEWAY_PORT}" for post in self.posts]


class VirtualFederation:
    """Clouds on a simulated network with a virtual clock and injected faults. Use with ``async with``.

    Attributes:
        network: The network, for lines with jitter or a bandwidth (:meth:`~iris_py.testing.MemoryNetwork.lay_line`; its sites
            are the clouds) and for further faults.
    """

    def __init__(
        self,
        *,
        seed: int = 1,
        clouds: Mapping[str, int],
        links: Iterable[tuple[str, str, float]] = (),
        gateways: int | Mapping[str, int] = 2,
        both_dial: bool = False,
        exports: Mapping[str, Iterable[Rule]] | None = None,
        imports: Mapping[str, Iterable[Rule]] | None = None,
        settings: Mapping[str, Mapping[str, Mapping[str, object]]] | None = None,
        captures: bool = False,
    ) -> None:
        """Describe a federation; entering the context starts all nodes and gateways.

        Args:
            seed: The seed of all random choices.
            clouds: The number of nodes of each cloud, without gateways.
            links: The dialling cloud, the dialled cloud, and the one-way latency between them in seconds. Clouds without a link
                can reach each other, but know nothing of each other.
            gateways: The number of gateways, of every cloud or by cloud.
            both_dial: Whether the second cloud of each link dials the first, too.
            exports: The export rules of each cloud, with the keys of its settings. Without ``to``, a rule is for all
                neighbours.
            imports: The import rules of each cloud. Without ``from``, a rule is from all neighbours.
            settings: Further settings of each cloud by table: ``{"us": {"gateway": {"bundles": 1}, "cloud.eu": {...}}}``. They
                override the settings derived from links.
            captures: Whether taps keep the captured bytes.
        """
        self.network: MemoryNetwork = MemoryNetwork(seed)
        self._trace = EventHash()
        self.network.record = self._trace.record
        self._seed = seed
        self._sizes = dict(clouds)
        self._gateways = {name: gateways if isinstance(gateways, int) else gateways.get(name, 0) for name in clouds}
        self._clouds = {name: SimulatedCloud(name, number, seed, self.network) for number, name in enumerate(clouds, start=1)}
        for dialler, dialled, latency_s in links:
            self._cloud(dialler).neighbours[dialled] = True
            self._cloud(dialled).neighbours.setdefault(dialler, both_dial)
            self.network.lay_line(dialler, dialled, latency_s=latency_s)
        self._taps = {
            frozenset(pair): self.network.tap(*pair, keeps=captures) for pair in itertools.combinations(self._clouds, 2)
        }
        for name in {**(exports or {}), **(imports or {}), **(settings or {})}:
            given = (exports or {}).get(name), (imports or {}).get(name)
            self.change_rules(name, exports=given[0] or (), imports=given[1] or ())
            tables = (settings or {}).get(name, {})
            self._cloud(name).settings = {table: dict(values) for table, values in tables.items()}

    async def __aenter__(self) -> Self:
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise ConfigurationError("a virtual federation needs the virtual clock. Run the test by iris_py.testing.run().")
        try:
            await asyncio.gather(*(self._populate(cloud) for cloud in self._clouds.values()))
            await asyncio.gather(*(self._start_gateway(cloud, post) for cloud, post in self._all_posts()))
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()

    # -- who is there

    def members(self, cloud: str) -> tuple[Node, ...]:
        """Return the running nodes of a cloud, without those of gateways, the oldest first."""
        found = self._cloud(cloud)
        own = {post.node.id for post in found.posts}
        return tuple(node for node in found.simulation.nodes if node.id not in own and runtime_of(node).closing is None)

    def gateways(self, cloud: str) -> tuple[Gateway, ...]:
        """Return the running gateways of a cloud, in the order of their addresses."""
        return tuple(post.gateway for post in self._cloud(cloud).posts if post.gateway is not None)

    def gateway_nodes(self, cloud: str) -> tuple[Node, ...]:
        """Return the nodes of a cloud's running gateways, in the order of :meth:`gateways`."""
        return tuple(post.node for post in self._cloud(cloud).posts if post.gateway is not None)

    async def start_node(self, cloud: str, *, zone: str = "") -> Node:
        """Start one more node in a cloud.

        Args:
            cloud: The cloud.
            zone: The zone of the node.
        """
        return await self._cloud(cloud).simulation.start_node(zone=zone)

    def kill(self, victim: Node | Gateway) -> None:
        """End a node, or a gateway with its node, as a crash of the process would: at once, without cleanup.

        Raises:
            ValueError: The gateway has already ended.
        """
        cloud, post = self._find(victim)
        if post is not None and victim in post.former:
            raise ValueError(f"{victim!r} has ended already")
        if post is not None:
            self._abort(post)
        node = post.node if post is not None else victim
        cloud.simulation.kill(node)  # type: ignore[arg-type]

    async def restart_gateway(self, gateway: Gateway) -> Gateway:
        """Start a gateway on the host of another one, either killed before or closed now as by SIGTERM.

        The new gateway has the cloud's key and settings, and no state of the old one. Its links to neighbours may still be
        opening when the call returns.
        """
        cloud, post = self._find(gateway)
        assert post is not None
        if post.gateway is not None:
            await self._close_gateway(post, CLOSE_TIMEOUT_S)
        post.node = await cloud.simulation.start_node(on_host_of=post.node)
        return await self._start_gateway(cloud, post)

    # -- faults

    def cut(self, a: str, b: str) -> None:
        """Block traffic between two clouds until :meth:`heal`. Connections do not break: they hold the bytes sent."""
        self.network.cut(self._cloud(a).name, self._cloud(b).name)

    def stall(self, source: str, target: str) -> None:
        """Block traffic from one cloud to another until :meth:`heal`; the other direction still works."""
        self.network.stall_line(self._cloud(source).name, self._cloud(target).name)

    def half_open(self, source: str, target: str) -> None:
        """Drop bytes that one cloud sends to another over existing connections, as a NAT does after forgetting them.

        Neither end is notified, new connections work, and :meth:`heal` does not restore the old ones.
        """
        self.network.half_open_line(self._cloud(source).name, self._cloud(target).name)

    def firewall(self, source: str, target: str, verdict: Verdict = "hang") -> None:
        """Set the fate of dials from one cloud to another: "hang", "refuse" or "pass". Not changed by :meth:`heal`."""
        self.network.firewall(self._cloud(source).name, self._cloud(target).name, verdict)

    def partition(self, here: Iterable[Node | Gateway], there: Iterable[Node | Gateway]) -> None:
        """Cut nodes and gateways off from others, within a cloud or across clouds, until :meth:`heal`.

        A gateway cut off from its cloud still reaches other clouds.
        """
        self.network.partition([self.host_of(each) for each in here], [self.host_of(each) for each in there])

    def isolate(self, lonely: Node | Gateway) -> None:
        """Cut a node or gateway off from all others until :meth:`heal`, as if its host stood still."""
        own = self.host_of(lonely)
        self.network.partition([own], [host for host in self._hosts() if host != own])

    def reset(self, victim: Node | Gateway) -> None:
        """Break every connection of a node or gateway, which lives on."""
        self.network.reset(self.host_of(victim))

    def heal(self, a: str | None = None, b: str | None = None) -> None:
        """Undo cuts, stalls and partitions. Held bytes arrive then.

        Args:
            a: A cloud, to heal only its traffic with another cloud; None for everything.
            b: The other cloud.
        """
        if a is None or b is None:
            self.network.heal()
        else:
            self.network.mend(self._cloud(a).name, self._cloud(b).name)

    # -- settings

    def change_rules(self, cloud: str, *, exports: Iterable[Rule] | None = None, imports: Iterable[Rule] | None = None) -> None:
        """Replace rules of a cloud for gateways that start later; :meth:`reload` also changes running gateways.

        Args:
            cloud: The cloud.
            exports: All export rules; None for no change.
            imports: All import rules; None for no change.
        """
        found = self._cloud(cloud)
        if exports is not None:
            found.exports = [{"to": list(found.neighbours)} | rule for rule in exports]
        if imports is not None:
            found.imports = [{"from": list(found.neighbours)} | rule for rule in imports]

    async def reload(self, cloud: str, *, exports: Iterable[Rule] | None = None, imports: Iterable[Rule] | None = None) -> None:
        """Replace rules of a cloud, and reload its gateways, one after the other.

        Args:
            cloud: The cloud.
            exports: All export rules; None for no change.
            imports: All import rules; None for no change.
        """
        self.change_rules(cloud, exports=exports, imports=imports)
        for number, post in enumerate(self._cloud(cloud).posts):
            if post.gateway is not None:
                await post.gateway.reload(parse_settings(self.settings_text(cloud, number), f"{cloud}.toml"))

    def settings_text(self, cloud: str, gateway: int = 0) -> str:
        """Return the settings of a gateway as the text of a file.

        Args:
            cloud: The cloud.
            gateway: The index of the gateway, from 0.
        """
        found = self._cloud(cloud)
        tables: dict[str, dict[str, object]] = {"gateway": {"name": cloud, "identity_file": f"{cloud}.identity"}}
        if any(self._cloud(name).neighbours[cloud] for name in found.neighbours):
            tables["gateway"]["listen"] = found.addresses()[gateway]
        for name, dials in found.neighbours.items():
            neighbour = self._cloud(name)
            table = tables[f"cloud.{name}"] = {"keys": [neighbour.key.public_text]}
            if dials:
                table["dial"] = neighbour.addresses()
        for name, values in found.settings.items():
            tables.setdefault(name, {}).update(values)
        lines = [line for name, values in tables.items() for line in (f"[{name}]", *_toml(values))]
        for kind, rules in (("export", found.exports), ("import", found.imports)):
            lines += [line for rule in rules for line in (f"[[{kind}]]", *_toml(rule))]
        return "\n".join(lines) + "\n"

    # -- what is the case

    def host_of(self, node: Node | Gateway) -> str:
        """Return the name of the present or last host of a node or gateway."""
        cloud, post = self._find(node)
        return cloud.simulation.host_of(node if post is None else post.node)  # type: ignore[arg-type]

    def tap(self, a: str, b: str) -> Tap:
        """Return the tap between two clouds, linked or not, with the number of bytes sent and the captured bytes."""
        return self._taps[frozenset((a, b))]

    def line_bytes(self, source: str, target: str) -> int:
        """Return the number of bytes sent from one cloud to another so far."""
        return self.tap(source, target).line_bytes(source)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return asyncio.get_running_loop().time()

    async def advance(self, seconds: float) -> None:
        """Advance the virtual time, while everything else runs."""
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object], *, timeout: float = UNTIL_LIMIT_S) -> None:
        """Advance the virtual time until a condition holds, checked every 5 virtual milliseconds.

        Raises:
            TimeoutError: The condition did not hold within ``timeout`` virtual seconds.
        """
        deadline = self.now + timeout
        while not condition():
            if self.now >= deadline:
                raise TimeoutError(f"not the case within {timeout:g} virtual seconds (seed {self._seed})")
            await asyncio.sleep(LOOK_INTERVAL_S)

    def note(self, what: object) -> None:
        """Add an event of the scenario to :meth:`digest`."""
        self._trace.note(what)

    def digest(self) -> str:
        """Return a hash of every byte sent so far, with its time; equal for all runs with the same seed."""
        return self._trace.digest()

    # -- life and death

    def _cloud(self, name: str) -> SimulatedCloud:
        if name not in self._clouds:
            raise ValueError(f"there is no cloud {name!r}: {', '.join(self._clouds)}")
        return self._clouds[name]

    def _all_posts(self) -> list[tuple[SimulatedCloud, Post]]:
        return [(cloud, post) for cloud in self._clouds.values() for post in cloud.posts]

    def _hosts(self) -> list[str]:
        return [cloud.simulation.host_of(node) for cloud in self._clouds.values() for node in cloud.simulation.nodes]

    def _find(self, what: Node | Gateway) -> tuple[SimulatedCloud, Post | None]:
        """Find a node or gateway, running or ended: its cloud and, for a gateway or its node, the gateway's place."""
        for cloud, post in self._all_posts():
            if what is post.node or what is post.gateway or what in post.former:
                return cloud, post
        for cloud in self._clouds.values():
            if cloud.simulation.knows(what):
                return cloud, None
        raise ValueError(f"{what!r} is neither a node nor a gateway of this federation")

    async def _populate(self, cloud: SimulatedCloud) -> None:
        nodes = await cloud.simulation.start_nodes(self._gateways[cloud.name] + self._sizes[cloud.name])
        cloud.posts = [Post(node) for node in nodes[: self._gateways[cloud.name]]]

    async def _start_gateway(self, cloud: SimulatedCloud, post: Post) -> Gateway:
        number = cloud.gateways_started
        cloud.gateways_started += 1
        text = self.settings_text(cloud.name, cloud.posts.index(post))
        chance = f"{self._seed} {cloud.name} gateway {number}"
        post.gateway = await start_gateway(
            post.node, text, f"{cloud.name}.toml", cloud.key, self.network.host(self.host_of(post.node)), chance
        )
        return post.gateway

    def _abort(self, post: Post) -> None:
        if post.gateway is not None:
            post.former.append(post.gateway)
            abort_gateway(post.gateway)
            post.gateway = None

    async def _close_gateway(self, post: Post, timeout: float) -> None:
        """Close the gateway at a place, if it runs, and the gateway's node."""
        if post.gateway is not None:
            post.former.append(post.gateway)
            gateway, post.gateway = post.gateway, None
            await gateway.close(timeout=timeout)
            await post.node.close(timeout=timeout)

    async def _close(self) -> None:
        await asyncio.gather(*(self._close_gateway(post, 0.0) for _, post in self._all_posts()))
        await asyncio.gather(*(cloud.simulation.close() for cloud in self._clouds.values()))


async def start_gateway(node: Node, text: str, path: str, key: CloudKey, network: NetworkStack, chance: str) -> Gateway:
    """Start a gateway from settings given as text.

    Args:
        node: The gateway's node.
        text: The settings.
        path: The file name for errors.
        key: The key of the cloud.
        network: The host of the gateway.
        chance: The seed of all random choices.
    """
    rng, entropy = Random(f"{chance} choices"), Random(f"{chance} entropy").randbytes
    return await start_real_gateway(node, parse_settings(text, path), key, network, rng=rng, entropy=entropy)


def _toml(values: Mapping[str, object]) -> list[str]:
    """Return the lines of a TOML table. Strings, numbers, booleans and lists are written as in JSON."""
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]
