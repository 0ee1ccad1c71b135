"""Nodes in memory, and the programs around them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from iris_overlay.events import GroupJoined
from iris_overlay.node_info import NodeInfo
from iris_py.node.core import CoreConfig, NodeCore
from iris_py.patterns.request.pending import RequestSpec
from iris_py.patterns.request.registration import BroadcastReceived, Execution, Registration, RequestsStarted
from iris_py.patterns.request.retry import retry_of
from iris_py.testing.cores.pair import NodeCores
from iris_security import Keyring, Secret
from tests.unit.iris_py.identities import IDENTITIES, node_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.errors import IrisError
    from iris_py.peers.group import Group

SECRET = Secret(bytes(range(32)))


class Net:
    """Nodes by number, and what a program around each of them does: answer, and remember."""

    def __init__(self, count: int = 0) -> None:
        self.cores = NodeCores()
        for _ in range(count):
            self.add()

    @property
    def now(self) -> float:
        return self.cores.now

    def add(
        self,
        *,
        clusters: Mapping[str, Secret] | None = None,
        secret: Secret = SECRET,
        config: CoreConfig | None = None,
    ) -> NodeCore:
        number = len(self.cores.nodes) + 1
        rng = random.Random(number)
        core = NodeCore(
            NodeInfo(node_id(number), (f"node:{number}",)),
            IDENTITIES[number],
            Keyring(secret, network="test", clusters=clusters),
            rng=rng,
            entropy=rng.randbytes,
            config=config,
        )
        self.cores.add(core, tuple(self.cores.nodes)[:1])
        return core

    def settle(self) -> None:
        """Drive all nodes, with the timers that are due."""
        self.cores.drive_until(self.now)

    def join(
        self, core: NodeCore, cluster: str = "cluster", concurrency: int = 1000, queue: int = 1000, weight: float = 1.0
    ) -> Registration:
        registration = Registration(core.group(cluster, self.now), concurrency, queue, weight=weight)
        follows = core.join(registration, self.now)
        self.cores.drive()
        joined = self.take(core, GroupJoined)
        assert bool(joined) == follows
        return registration

    def watch(self, core: NodeCore, cluster: str = "cluster") -> Group:
        """Let a node know the members of a cluster."""
        group = core.group(cluster, self.now)
        self.cores.drive()
        assert group.members is not None
        return group

    def take(self, core: NodeCore, *kinds: type) -> list[object]:
        """Take the events of some kinds that a node reported."""
        address = core.info.addresses[0]
        events = self.cores.events[address]
        taken: list[object] = [event for event in events if isinstance(event, kinds)]
        self.cores.events[address] = [event for event in events if not isinstance(event, kinds)]
        return taken

    def started(self, core: NodeCore) -> list[Execution]:
        events = self.take(core, RequestsStarted)
        return [execution for event in events if isinstance(event, RequestsStarted) for execution in event.executions]

    def outcomes(self, core: NodeCore) -> dict[object, bytes | IrisError]:
        address = core.info.addresses[0]
        outcomes, self.cores.outcomes[address] = self.cores.outcomes[address], []
        assert len(dict(outcomes)) == len(outcomes)
        return dict(outcomes)

    def outcome(self, core: NodeCore) -> bytes | IrisError:
        ((_token, outcome),) = self.outcomes(core).items()
        return outcome

    def request(
        self,
        core: NodeCore,
        payload: bytes = b"question",
        cluster: str = "cluster",
        *,
        timeout_s: float = 5.0,
        idempotent: bool = False,
        token: object = None,
        waits: bool = True,
    ) -> int:
        identity = core.identity_of(cluster, None) if idempotent else b""
        spec = RequestSpec(payload, timeout_s, retry_of(idempotent=idempotent), identity, waits=waits)
        return core.request(cluster, spec, token, self.now)

    def serve(self, core: NodeCore) -> int:
        """Answer every request that has started with its payload; returns how many."""
        count = 0
        while executions := self.started(core):
            for execution in executions:
                count += 1
                core.service.reply(execution, b"re:" + execution.payload, self.now)
            self.cores.drive()
        return count

    def broadcasts(self, core: NodeCore) -> list[tuple[int, bytes]]:
        events = self.take(core, BroadcastReceived)
        return [(event.sequence, event.payload) for event in events if isinstance(event, BroadcastReceived)]

    def cut(self, one: NodeCore, other: NodeCore) -> None:
        self.cores.cut(one.info.addresses[0], other.info.addresses[0])
        self.cores.drive()

    def kill(self, core: NodeCore) -> None:
        """Let a node vanish: its connections break, and nobody answers there any more."""
        address = core.info.addresses[0]
        del self.cores.nodes[address]
        for ends in list(self.cores.connections):
            if address in (ends[0][0], ends[1][0]):
                self.cores.connections.remove(ends)
                for there, end in ends:
                    if there != address:
                        end.receive(None, self.now)
                        self.cores.nodes[there].link_received(end.link, self.now)
        self.cores.drive()
