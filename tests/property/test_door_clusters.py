"""Doors that start, leave, die and are cut off, while tokens are revoked: in the end all doors have the same revocations."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING

import pytest

from iris_py.doors.revocations import RevocationTable, SubjectRevocation, TokenRevocation, TotalRevocation
from iris_py.errors import NoMembers, RequestTimeout
from iris_py.servers.door_cluster import DoorCluster, revoke_tokens
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.doors.revocations import Revocation

STEPS = 12
DOORS_MAX = 4
#: Virtual time in which a healed network is whole again, and the doors have greeted each other.
SETTLED_S = 300.0
ACTIONS = ("start", "leave", "kill", "partition", "heal", "revoke", "revoke", "revoke")


class Schedule:
    """A drawn schedule of one network."""

    def __init__(self, simulation: NodeSimulation, seed: int) -> None:
        self.running: list[tuple[Node, DoorCluster, RevocationTable]] = []
        self.confirmed: dict[str, list[Revocation]] = {}  # by node
        self._simulation = simulation
        self._rng = random.Random(seed)
        self._now = time.time()
        self._count = 0

    async def start(self) -> None:
        node = await self._simulation.start_node()
        table = RevocationTable()
        cluster = DoorCluster(node, "web", "", table, int)
        await cluster.join()
        self.running.append((node, cluster, table))

    async def step(self) -> None:
        rng, action = self._rng, self._rng.choice(ACTIONS)
        if action == "start" and len(self.running) < DOORS_MAX:
            await self.start()
        elif action in ("leave", "kill") and len(self.running) > 2:
            node, cluster, _table = self.running.pop(rng.randrange(len(self.running)))
            if action == "leave":
                await cluster.leave()
            else:
                self._simulation.kill(node)
        elif action == "partition":
            cut = rng.sample(self._simulation.nodes, len(self._simulation.nodes) // 2)
            self._simulation.partition(cut, [each for each in self._simulation.nodes if each not in cut])
        elif action == "heal":
            self._simulation.heal()
        elif action == "revoke":
            await self._revoke()
        await asyncio.sleep(rng.choice([0.0, 0.5, 20.0]))

    async def _revoke(self) -> None:
        revocation = self._draw()
        try:
            report = await revoke_tokens(self._rng.choice(self.running)[0], [revocation], 5.0)
        except (NoMembers, RequestTimeout):
            return
        for node, receipt in report.receipts:
            assert receipt.outcomes[0] in ("added", "known")
            self.confirmed.setdefault(node, []).append(revocation)

    def _draw(self) -> Revocation:
        self._count += 1
        kind = self._rng.randrange(10)
        if kind == 0:
            return TotalRevocation(self._now + self._count)
        if kind < 4:
            return SubjectRevocation(self._rng.choice(["ann", "bob"]), self._now + self._count)
        return TokenRevocation(f"{self._count:032x}", self._now + 3600)

    def is_settled(self) -> bool:
        """Return whether all doors know each other and have the same revocations."""
        count = len(self.running)
        return len({table.digest for _node, _cluster, table in self.running}) == 1 and all(
            len(cluster.doors.all) == count - 1 for _node, cluster, _table in self.running
        )


@pytest.mark.parametrize("seed", range(6))
def test_all_doors_have_each_confirmed_revocation_in_the_end(seed: int) -> None:
    async def main() -> None:
        async with NodeSimulation(seed) as simulation:
            schedule = Schedule(simulation, seed)
            await schedule.start()
            await schedule.start()
            for _ in range(STEPS):
                await schedule.step()
            simulation.heal()
            await simulation.until(schedule.is_settled, limit_s=SETTLED_S)
            for node, _cluster, table in schedule.running:
                for revocation in schedule.confirmed.get(node.id, []):
                    assert table.add(revocation, time.time()) == "known"
            for _node, cluster, _table in schedule.running:
                await cluster.leave()

    run(main())
