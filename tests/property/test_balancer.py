"""Properties of iris_py/peers/balancer.py: near members first, spilling over only for a reason, whatever happened before."""

from __future__ import annotations

import math
import random
from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from iris_py.peers.balancer import (
    SHARES_MAX,
    SPILL_IN_FLIGHT_MIN,
    MemberLoad,
    by_distance,
    choose_near,
    is_less_loaded,
)
from tests.profiles import examples

INDEX = st.integers(0, 30)


class Linked(MemberLoad):
    """A member with a link that may not be open yet."""

    __slots__ = ("is_linked", "weight")

    def __init__(self, distance: int, weight: float, is_linked: bool) -> None:
        super().__init__(distance)
        self.weight = weight
        self.is_linked = is_linked

    @property
    def is_ready(self) -> bool:
        return self.is_linked


class BalancerMachine(RuleBasedStateMachine):
    """Members that come and go, and are asked, answer and get links in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(1)
        self.members: list[Linked] = []
        self.levels: list[list[Linked]] = []
        self.running: list[Linked] = []

    def take_view(self) -> None:
        mean = sum(member.weight for member in self.members) / len(self.members) if self.members else 1.0
        for member in self.members:
            member.cost = mean / member.weight
        self.levels = by_distance(self.members)

    @rule(distance=st.integers(0, 2), weight=st.sampled_from((0.01, 0.5, 1.0, 1.0, 1.0, 100.0)), is_linked=st.booleans())
    def join(self, distance: int, weight: float, is_linked: bool) -> None:
        self.members.append(Linked(distance, weight, is_linked))
        self.take_view()

    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        if self.members:
            gone = self.members.pop(index % len(self.members))
            self.running = [member for member in self.running if member is not gone]
            self.take_view()

    @rule(index=INDEX)
    def link(self, index: int) -> None:
        if self.members:
            member = self.members[index % len(self.members)]
            member.is_linked = not member.is_linked

    @precondition(lambda self: self.members)
    @rule()
    def choose(self) -> None:
        near = self.levels[0]
        before = {id(member): member.service_time_s for member in self.members}
        chosen, unready = choose_near(self.levels, self.rng)
        assert chosen in self.members
        if unready is not None:
            assert not unready.is_ready
            assert unready is not chosen
            assert unready in self.members
        if not chosen.is_ready:  # nobody who was drawn is: two of the nearest, who are not ready either
            assert chosen in near
            assert sum(not member.is_ready for member in near) >= min(2, len(set(map(id, near))))
        if chosen not in near:
            assert chosen.is_ready
            assert any(
                member.in_flight >= SPILL_IN_FLIGHT_MIN and is_less_loaded(chosen, member)
                for level in self.levels
                for member in level
                if member.distance < chosen.distance
            )
        for member in self.members:  # who is asked, or busy, is not made to look faster
            faded = member.service_time_s < before[id(member)]
            assert not (faded and (member is chosen or member.in_flight))
        chosen.in_flight += 1
        self.running.append(chosen)

    @rule(index=INDEX, duration_s=st.sampled_from((0.0001, 0.01, 0.01, 2.0)))
    def reply(self, index: int, duration_s: float) -> None:
        if self.running:
            member = self.running.pop(index % len(self.running))
            member.in_flight -= 1
            before = member.service_time_s or duration_s
            member.observe(duration_s)
            assert min(before, duration_s) * 0.999 <= member.service_time_s <= max(before, duration_s) * 1.001

    @rule(index=INDEX)
    def reject(self, index: int) -> None:
        if self.running:
            self.running.pop(index % len(self.running)).in_flight -= 1

    @invariant()
    def levels_are_exact(self) -> None:
        assert [level[0].distance for level in self.levels] == sorted({member.distance for member in self.members})
        assert {id(member) for level in self.levels for member in level} == {id(member) for member in self.members}
        for level in self.levels:
            assert len({member.distance for member in level}) == 1
            heaviest = max(member.weight for member in level)
            counts = Counter(level)
            for member, count in counts.items():
                assert abs(count / max(counts.values()) - member.weight / heaviest) <= 1 / SHARES_MAX

    @invariant()
    def loads_are_exact(self) -> None:
        for member in self.members:
            assert member.in_flight == sum(other is member for other in self.running)
            assert math.isfinite(member.service_time_s)
            assert 0.0 <= member.service_time_s <= 2.0


TestBalancer = BalancerMachine.TestCase
TestBalancer.settings = settings(max_examples=examples(200), stateful_step_count=50, deadline=None)
