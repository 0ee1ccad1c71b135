"""The public methods of a node about itself and its network, with their documentation; the parts of the node do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.awaitable_context import AsyncClosable
from iris_py.api.info import describe
from iris_py.api.request import check_timeout
from iris_py.defaults import (
    ASK_TIMEOUT_S,
    DRAIN_TIMEOUT_S,
    NODES_SAMPLED,
    ROTATION_ANSWER_S,
    ROTATION_TIMEOUT_S,
    SURVEY_TIMEOUT_S,
)
from iris_py.errors import NoMembers
from iris_py.federation.names import gateway_cluster
from iris_py.net.addresses import parse_address
from iris_py.observe.node_name import short_name
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from iris_py.api.info import Cloud, Member
    from iris_py.api.keys import Reloading, RotationStatus, RotationStep
    from iris_py.api.lifecycle import Parts
    from iris_py.api.runtime import Runtime
    from iris_py.api.status import Health
    from iris_py.node.core import NodeCore
    from iris_py.observe.journal import EventRecord
    from iris_py.observe.node_name import NodeName
    from iris_py.observe.reports import NodeReports, Route, Trace
    from iris_py.observe.statistics import Statistics
    from iris_security import AdministrationKey, Keyring


class Administration(AsyncClosable):
    """Base of :class:`iris_py.Node`: properties, secrets, statistics, questions to other nodes, and the end of the node."""

    _runtime: Runtime
    _parts: Parts
    _core: NodeCore

    # -- properties

    def __repr__(self) -> str:
        if not self._parts.is_open:
            return "<Node that is not open>"
        state = "" if self._runtime.closing is None else ", closed"
        return f"<Node {short_name(self.id, self.name)} of {self.network!r} at {self.address}{state}>"

    @property
    def id(self) -> str:
        """The node id: 32 hexadecimal digits, new for every process."""
        return self._core.info.id.hex()

    @property
    def name(self) -> str:
        """The label of the node, for people: by default host and program, as in ``web-1/orders.py``; empty without a label."""
        return self._core.name

    @property
    def address(self) -> str:
        """The ``host:port`` for other nodes to dial: the first advertised address."""
        return self._core.info.addresses[0]

    @property
    def port(self) -> int:
        """The listening port. Differs from the setting if another node of the network already had the port of the setting."""
        return parse_address(self._runtime.listened)[1]

    @property
    def zone(self) -> str:
        """The zone of the node, as in its settings; empty without a zone."""
        return self._core.info.zone

    @property
    def network(self) -> str:
        """The name of the network."""
        return self._runtime.keyring.network

    @property
    def max_message_bytes(self) -> int:
        """The size limit in bytes of a payload that the node sends."""
        return self._runtime.config.max_message_bytes

    def nodes(self) -> tuple[Member, ...]:
        """Return the known nodes of the network, beginning with this node: a small part of a large network.

        :attr:`network_size` estimates the number of all nodes.
        """
        self._runtime.check_loop()
        known = self._core.peers.known_nodes
        others = (describe(info, name=known.find(info.id).name) for info in self._core.overlay.peers())
        return (describe(self._core.info, name=self.name), *others)

    def unreached_seeds(self) -> dict[str, str]:
        """Return the seeds at which no node of the network answers, each with its state, for example "is silent".

        The node keeps dialling these seeds.
        """
        self._runtime.check_loop()
        return self._parts.seeds.unreached

    @property
    def network_size(self) -> int:
        """The approximate number of nodes in the network, including this node: exact up to 16 others, else within a quarter."""
        self._runtime.check_loop()
        return max(self._core.overlay.size_estimate(), len(self._core.overlay.peers()) + 1)

    def health(self, cluster: str | None = None) -> Health:
        """Return whether the node is ready for work, and if not, why: for balancers and supervisors.

        Args:
            cluster: The name of a cluster; None for all clusters of the node.
        """
        return self._parts.observation.health(cluster)

    def statistics(self) -> Statistics:
        """Return the statistics of the node since its start: counters, gauges and histograms.

        Counters never fall. Each call reads the gauges, which takes some tenths of a millisecond. docs/statistics.md
        describes the result; ``msgspec.json.encode`` writes the result as JSON.
        """
        return self._parts.observation.statistics()

    def recent_events(self, since: int = 0) -> tuple[EventRecord, ...]:
        """Return the kept events of this node after the event of a given number, the oldest first.

        The node keeps 512 events. docs/statistics.md lists their kinds.

        Args:
            since: The number of the last known event; 0 for all kept events.
        """
        return self._parts.observation.recent_events(since)

    def events(self, since: int | None = None) -> AsyncIterator[EventRecord]:
        """Iterate over new events of this node, until the node is closed: ``async for event in node.events()``.

        A reader more than 512 events behind misses events, visible as a gap in the numbers.

        Args:
            since: The number of the last known event: the iteration begins with the kept events after it. None: only events
                from now on.
        """
        return self._parts.observation.events(since)

    # -- questions to other nodes

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
        """Ask the other nodes of the network about themselves. Their programs notice nothing.

        In a network of up to 256 nodes, all are asked. In a larger network a uniform sample is asked: sums are then estimates
        with an error.

        Args:
            parts: The parts to ask for, of ``counts``, ``clusters``, ``far_requests``, ``topics``, ``shares``,
                ``interest``, ``subscriptions``, ``tunnels``, ``links``, ``peers``, ``overlay``, ``security``, ``questions``,
                ``process`` and ``histograms``, which are the fields of :class:`Statistics` (``counts`` are its numbers,
                ``peers`` its ``links.each``), ``events``, and ``departures``: the nodes that have left or died. Without parts,
                an answer has only the version, clock and sizes of a node.
            nodes: The nodes to ask, for example those of an earlier answer. None for all, or a sample.
            cluster: The only cluster in ``clusters``; empty for all.
            every: Whether to ask every node of a large network, too.
            sample: The number of nodes in a sample.
            since: For ``events``, the number of the last known event: of every node, or of each by its id. 0, the default, asks
                for all kept events.
            timeout: Seconds for the whole query, including the search for nodes. A query of all of 100,000 nodes takes a minute
                or more.

        Returns:
            The answers, and lists of the nodes that did not answer or refused.

        Raises:
            ConfigurationError: A part is unknown, or another argument is wrong.
            NodeClosed: The node was closed.
        """
        return await self._parts.introspection.ask_nodes(
            *parts, nodes=nodes, cluster=cluster, every=every, sample=sample, since=since, timeout=timeout
        )

    async def find_route(self, cluster: str, *, timeout: float = ASK_TIMEOUT_S) -> Route | None:
        """Ask the ring for the root of a cluster, which keeps its directory, and for the path to the root.

        Args:
            cluster: The name. The node does not begin to watch it.
            timeout: Seconds to wait.

        Returns:
            The path; None if no answer came in time.

        Raises:
            ConfigurationError: The name or the timeout is wrong.
            NodeClosed: The node was closed.
        """
        return await self._parts.introspection.find_route(cluster, timeout)

    async def trace(
        self, cluster: str, *, prefer: str | None = None, require: str | None = None, timeout: float = ASK_TIMEOUT_S
    ) -> Trace:
        """Trace the path of a request to a cluster, without sending one: the handlers notice nothing.

        The trace asks the ring for the root of the cluster, chooses a member as a request would now, opens a link to the member
        if necessary, and pings it.

        Args:
            cluster: The name.
            prefer: As for :meth:`request`.
            require: As for :meth:`request`.
            timeout: Seconds for each step.

        Returns:
            The results of the steps; a failed step has None or an empty value.

        Raises:
            ConfigurationError: An argument is wrong.
            NodeClosed: The node was closed.
        """
        return await self._parts.explanation.trace(cluster, prefer, require, timeout)

    async def clouds(self, *, timeout: float = SURVEY_TIMEOUT_S) -> tuple[Cloud, ...]:
        """Ask the gateways of this cloud for the known and the reachable other clouds.

        Args:
            timeout: Seconds to wait for gateways.

        Returns:
            The clouds in the order of their aliases; empty without a gateway.

        Raises:
            NotConnected: This node reaches no other node, so no gateways are known.
            RequestTimeout: The gateways could not be found in time.
            ConfigurationError: The timeout is wrong.
            NodeClosed: The node was closed.
        """
        # As the parts for other clouds: few nodes need this code (iris_py/api/cloud/parts.py).
        from iris_py.api.cloud.outgoing_requests import clouds_of
        from iris_py.federation.calls import Call, Op, encode_call

        self._runtime.check_open()
        check_timeout(timeout)
        asked = encode_call(Call(op=Op.STATUS))
        try:
            answers = await self._parts.surveys.begin(gateway_cluster(), asked, timeout, None, NO_HEADERS)
        except NoMembers:
            return ()
        return clouds_of(reply.payload for reply in answers.replies)

    # -- secrets

    def rekey(self, keyring: Keyring) -> None:
        """Use other secrets from now on, without a restart: a step of a rotation (docs/security.md).

        Nodes with a common generation lose no messages: running requests are answered, and links, tunnels and subscriptions
        stay. Links to nodes that have proved none of the accepted generations are closed.

        Args:
            keyring: The new keys, for the same network.

        Raises:
            ConfigurationError: The keyring is for another network, or more groups are in use than the overlay takes. The node
                keeps its present secrets.
            NodeClosed: The node was closed.
        """
        self._parts.keys.rekey(keyring)

    def reload_keys(self) -> Reloading:
        """Read the secrets again from the source that :func:`iris_py.connect` used, and use them as :meth:`rekey` does.

        A secret command runs in a thread; several calls run one after the other. If the source still has the same network
        secret, the administrator's rotation of it stays in effect.

        Returns:
            ``await`` it for the end of a command and its errors, which are logged otherwise.

        Raises:
            ConfigurationError: A setting is wrong now, there is no secret, the network has another name, or as for
                :meth:`rekey`. The node keeps its present secrets.
            NodeClosed: The node was closed.
        """
        return self._parts.keys.reload()

    async def rotation(self, *, timeout: float = ROTATION_ANSWER_S) -> RotationStatus:
        """Return the progress of the rotation of the network's secret at this node and the linked nodes.

        Args:
            timeout: Seconds to wait for the answers of the linked nodes.

        Raises:
            NodeClosed: The node was closed.
        """
        return await self._parts.keys.rotation(timeout)

    async def rotate_secret(
        self,
        step: RotationStep,
        key: AdministrationKey | str,
        *,
        timeout: float = ROTATION_TIMEOUT_S,
        force: bool = False,
        abandon: bool = False,
    ) -> RotationStatus:
        """Take a step in the rotation of the network's secret, which every node then takes by itself.

        A generation is one of the secrets accepted during a rotation. ``"add"`` makes a new generation, which only decrypts;
        ``"rotate"`` lets the newest generation encrypt; ``"retire"`` keeps the encrypting generation only, and is refused
        while an added generation does not encrypt yet. A step spreads from node to node; this
        node waits for the linked nodes. Absent nodes catch up as long as one of their generations is accepted.

        Args:
            step: The step.
            key: The administrator key, or its text from ``iris keys administrator``.
            timeout: Seconds to wait for the linked nodes: before the step for their answers, and again after it.
            force: Whether to continue although linked nodes have not taken the step before; they may lose the network.
            abandon: Whether ``"retire"`` may discard an added generation that does not encrypt yet; the old one stays.

        Returns:
            The progress of the rotation.

        Raises:
            ConfigurationError: The key is not the administrator's, or the step is not possible now.
            RotationIncomplete: Before the step: the node has no links, or some linked nodes have not taken the step before, and
                nothing was changed. After the step: some linked nodes have not taken it in time.
            NodeClosed: The node was closed.
        """
        return await self._parts.keys.rotate(step, key, timeout, force=force, abandon=abandon)

    # -- the end

    async def close(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        """Leave every cluster, finish running requests, and end the node. Harmless if repeated.

        Within a handler or callback, this returns when all others have finished; the node ends after the handler or callback
        has returned.

        Args:
            timeout: Seconds after which running handlers are cancelled and unsent messages dropped.

        Raises:
            ConfigurationError: ``timeout`` is no time.
        """
        await self._parts.close(timeout)

    _end = close
