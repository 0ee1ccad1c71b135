"""Simulates a cluster and a topic on a perfect ring: multicasts down their trees, and requests spread over known members."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_overlay.groups.io import SendTo
from iris_overlay.groups.messages import FANOUT_MAX, CastDown, decode_group_message
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_py.cli.simulate.pace import Trial
from iris_py.cli.simulate.report import Condition, SimulationReport
from iris_py.peers.balancer import MemberLoad, choose_near
from iris_py.testing.cores.groups import GroupSimulation

if TYPE_CHECKING:
    from iris_overlay.groups.io import GroupOutput
    from iris_py.cli.simulate.pace import SimulationPace
    from iris_py.cli.simulate.plan import SimulationPlan
    from iris_py.testing.cores.groups import SimulatedGroupNode

__all__ = ["run_groups"]

CLUSTER: Final = GroupId(b"cluster".ljust(ID_BYTES))
TOPIC: Final = GroupId(b"topic".ljust(ID_BYTES))

DEPTH_MAX: Final = 3
#: Maximum of the requests at the busiest member, divided by the mean of all members.
BUSIEST_MAX: Final = 1.5

#: Mean number of requests per member. While members are idle the choice within a sample is almost random: after 100 requests,
#: chance alone gives the busiest of 1,000 members 30 % more.
REQUESTS_PER_MEMBER: Final = 400

#: Rate of each requester: members are busy for a fraction of the time, and requests sometimes overlap.
REQUESTS_PER_S: Final = 50

SERVICE_S: Final = 0.005
#: Time for views and trees to recover after a kill (virtual seconds).
SETTLE_S: Final = 3.0


def run_groups(plan: SimulationPlan, pace: SimulationPace) -> SimulationReport:
    """Simulate a cluster and a topic; return the measurements, also after an interrupt."""
    return _GroupTrial(plan, pace).carry_out()


class _KnownLoad(MemberLoad):
    """The load of a member, as known to a requester."""

    __slots__ = ("member",)

    def __init__(self, member: NodeId) -> None:
        super().__init__()
        self.member = member


class _Trees(GroupSimulation):
    """A simulation of groups with a record of the copies of each multicast."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.parents: dict[NodeId, NodeId] = {}
        self.copies: Counter[NodeId] = Counter()

    def forget_copies(self) -> None:
        """Forget the recorded copies, before the next multicast."""
        self.parents.clear()
        self.copies.clear()

    def depth(self) -> int:
        """Return the number of hops on the longest path of the multicast from the root."""
        depths: dict[NodeId, int] = {}
        for node in self.parents:
            way = [node]
            while way[-1] in self.parents and way[-1] not in depths and len(way) <= len(self.parents):
                way.append(self.parents[way[-1]])
            base = depths.get(way[-1], 0)
            for distance, member in enumerate(reversed(way)):
                depths[member] = base + distance
        return max(depths.values(), default=0)

    def _apply_output(self, node: SimulatedGroupNode, output: GroupOutput) -> None:
        if isinstance(output, SendTo) and isinstance(decode_group_message(output.payload), CastDown):
            self.copies[node.info.id] += 1
            self.parents.setdefault(output.info.id, node.info.id)
        super()._apply_output(node, output)


class _GroupTrial(Trial):
    def __init__(self, plan: SimulationPlan, pace: SimulationPace) -> None:
        super().__init__(plan, pace)
        self._sim = _Trees(plan.seed)
        self._rng = random.Random(plan.seed)  # noqa: S311 - a simulation needs a seeded generator
        self._total = plan.members + plan.subscribers + plan.requesters
        self._nodes: list[SimulatedGroupNode] = []

    def run(self) -> None:
        """Start the nodes, and measure multicasts and requests, before and after a failure of nodes."""
        sim, plan, report = self._sim, self.plan, self.report
        for number in range(self._total):
            self._nodes.append(sim.start_node())
            if number % 20 == 0:
                self._pace.step(sim, 0.001)
                self._pace.show("starting", number, self._total)
        self._run_for(2.0, "starting, the last")
        members = self._nodes[: plan.members]
        subscribers = self._nodes[plan.members : plan.members + plan.subscribers]
        before = sim.messages
        for group, nodes in ((CLUSTER, members), (TOPIC, subscribers)):
            for node in nodes:
                sim.join(node, group)
        self._run_for(3.0, "joining")
        joins = len(members) + len(subscribers)
        report.add("join", "messages", "messages of the groups layer for a join", (sim.messages - before) / joins)
        joined = sum(CLUSTER in node.joined for node in members) + sum(TOPIC in node.joined for node in subscribers)
        report.checks.append(Condition("joined", joined == joins, f"{joined:,} of {joins:,}"))
        self._request(members)
        self._cast("cluster", CLUSTER, members)
        self._cast("topic", TOPIC, subscribers)
        if plan.kill:
            victims = sim.rng.sample(self._nodes[: plan.members + plan.subscribers], round(plan.kill * joins))
            for node in victims:
                sim.crash(node)
            self._run_for(SETTLE_S, "repair")
            self._cast("cluster after the kill", CLUSTER, [node for node in members if node.is_live])
            self._cast("topic after the kill", TOPIC, [node for node in subscribers if node.is_live])

    def _run_for(self, duration_s: float, what: str) -> None:
        self._pace.run_for(self._sim, duration_s, what, self._total)

    def _cast(self, name: str, group: GroupId, receivers: list[SimulatedGroupNode]) -> None:
        if not receivers:
            return
        sim, report = self._sim, self.report
        sim.forget_copies()
        payload = name.encode()
        before = sim.messages
        sim.cast(self._nodes[-1], group, payload)
        begun, took_s = sim.now, math.inf
        for _ in range(40):
            self._run_for(0.025, f"cast to the {name}")
            if took_s == math.inf and all(any(cast.payload == payload for cast in node.casts) for node in receivers):
                took_s = sim.now - begun
        counts = [sum(cast.payload == payload for cast in node.casts) for node in receivers]
        reached, most, depth = sum(count == 1 for count in counts), max(sim.copies.values(), default=0), sim.depth()
        section = f"cast: {name}"
        report.add(section, "receivers", "who should get it", len(receivers))
        report.add(section, "reached", "who got it once", reached)
        report.add(section, "seconds", "seconds until all had it", took_s)
        report.add(section, "copies_max", "copies sent by one node, most", most)
        report.add(section, "depth", "steps from the root, most", depth)
        report.add(section, "messages", "messages for it", sim.messages - before)
        report.checks.append(
            Condition(f"{name}: the cast reaches all, once", reached == len(receivers), f"{reached:,} of {len(receivers):,}")
        )
        report.demand(f"{name}: copies of a node", most, FANOUT_MAX)
        report.demand(f"{name}: depth", depth, DEPTH_MAX)

    def _request(self, members: list[SimulatedGroupNode]) -> None:
        """Let requesters send requests to known members, each to the less loaded of two, as a node does."""
        sim, rng = self._sim, self._rng
        requesters = self._nodes[-self.plan.requesters :]
        for node in requesters:
            sim.watch(node, CLUSTER)
        self._run_for(2.0, "watching")
        answered: Counter[NodeId] = Counter()
        each = math.ceil(REQUESTS_PER_MEMBER * len(members) / len(requesters))
        # By requester: its knowledge of the members in its view.
        choices = [[_KnownLoad(member) for member in node.views[CLUSTER].members] for node in requesters]
        over_s = each / REQUESTS_PER_S

        def done(load: MemberLoad, took_s: float) -> None:
            load.in_flight -= 1
            load.observe(took_s)

        def ask(index: int, left: int) -> None:
            known = choices[index]
            load, _ = choose_near((known,), rng)
            answered[load.member] += 1
            load.in_flight += 1
            took_s = SERVICE_S * rng.uniform(0.5, 1.5) + rng.uniform(0.002, 0.04)
            sim.call_at(sim.now + took_s, lambda: done(load, took_s))
            if left > 1:
                sim.call_at(sim.now + rng.expovariate(REQUESTS_PER_S), lambda: ask(index, left - 1))

        for index, known in enumerate(choices):
            if known:
                ask(index, each)
        self._run_for(1.5 * over_s + 1.0, "requests")
        mean = answered.total() / len(members)
        busiest = max(answered.values(), default=0)
        report = self.report
        sample = sum(len(known) for known in choices) / len(choices)
        report.add("requests", "requests", "requests", answered.total())
        report.add("requests", "sample_mean", "members a requester knows, mean", sample)
        report.add("requests", "mean", "requests at a member, mean", mean)
        report.add("requests", "busiest", "at the busiest", busiest)
        report.add("requests", "idlest", "at the idlest", min(answered[node.info.id] for node in members))
        report.series["requests"] = sorted(float(answered[node.info.id]) for node in members)
        report.demand("busiest member over the mean", busiest / mean if mean else 0.0, BUSIEST_MAX)
