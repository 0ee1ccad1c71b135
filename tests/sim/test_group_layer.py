"""Whole networks of groups layers over a perfect ring: every promise of the groups, and random faults by seed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from iris_overlay.events import Cast, GroupJoined, GroupLeft, ViewChanged
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.messages import (
    FANOUT_MAX,
    SAMPLE_MAX,
    VIEW_MAX,
    WATCHERS_MAX,
    CastDown,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.ids import GroupId
from iris_py.testing.cores.groups import EPOCH_UNIX_S, GroupSimulation, SimulatedGroupNode
from tests.profiles import first_cases

ECHO = GroupId(b"echo".ljust(16))
GROUPS = [GroupId(bytes([fill]) * 16) for fill in (5, 45, 85)]

#: Every view and directory is right so long after the last fault: 3 s to detect a silent node, a second for the
#: acknowledgements that joins wait for, and repetitions of what a second crash swallowed.
LIMIT_S = 8.0


def start(count: int, seed: int = 1, **options: object) -> tuple[GroupSimulation, list[SimulatedGroupNode]]:
    simulation = GroupSimulation(seed, **options)  # type: ignore[arg-type]
    nodes = [simulation.start_node() for _ in range(count)]
    simulation.run_for(2.0)
    return simulation, nodes


def join_all(simulation: GroupSimulation, nodes: list[SimulatedGroupNode]) -> None:
    for node in nodes:
        simulation.join(node, ECHO)
    simulation.run_for(2.0)


def members_seen(node: SimulatedGroupNode, group: GroupId = ECHO) -> set[bytes]:
    return set(node.views[group].members)


def ids(nodes: list[SimulatedGroupNode]) -> set[bytes]:
    return {node.info.id for node in nodes}


def root_of(simulation: GroupSimulation, group: GroupId = ECHO) -> SimulatedGroupNode:
    (root,) = simulation.directories(group)
    return root


def test_an_unknown_group_is_empty_after_one_round_trip() -> None:
    simulation, nodes = start(50)
    simulation.watch(nodes[3], ECHO)
    simulation.run_for(6 * 0.02)
    assert nodes[3].views[ECHO].size == 0
    assert nodes[3].views[ECHO].members == {}


def test_a_lone_node_needs_no_messages() -> None:
    simulation, (node,) = start(1)
    simulation.watch(node, ECHO)
    simulation.join(node, ECHO, b"alone")
    simulation.cast(node, ECHO, b"to myself")
    assert members_seen(node) == {node.info.id}
    assert [cast.payload for cast in node.casts] == [b"to myself"]
    assert node.joined[ECHO] == simulation.now
    assert simulation.messages == 0


def test_joins_complete_after_all_watchers_were_told() -> None:
    simulation, nodes = start(60)
    watchers = nodes[:30]
    for node in watchers:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    for node in nodes[30:50]:
        simulation.join(node, ECHO)
        begun = simulation.now
        while ECHO not in node.joined:
            simulation.run_for(0.001)
            assert simulation.now - begun < 0.5
        assert all(node.info.id in members_seen(watcher) for watcher in watchers)
    assert all(node.counters.changes_unconfirmed == 0 for node in nodes)


def test_leaves_complete_after_all_watchers_were_told() -> None:
    simulation, nodes = start(30)
    for node in nodes[:10]:
        simulation.watch(node, ECHO)
    join_all(simulation, nodes[10:20])
    simulation.leave(nodes[12], ECHO)
    while not any(isinstance(event, GroupLeft) for _, event in nodes[12].log):
        simulation.run_for(0.001)
    assert all(nodes[12].info.id not in members_seen(watcher) for watcher in nodes[:10])
    assert simulation.now < 4.5


def test_a_stalled_watcher_holds_up_a_join_for_a_second_only() -> None:
    simulation, nodes = start(30)
    simulation.watch(nodes[0], ECHO)
    simulation.run_for(1.0)
    simulation.stall(nodes[0], 2.5)
    simulation.join(nodes[1], ECHO)
    begun = simulation.now
    simulation.run_for(1.2)
    assert 0.9 < nodes[1].joined[ECHO] - begun <= 1.1
    simulation.run_for(3.0)
    assert members_seen(nodes[0]) == {nodes[1].info.id}


def test_a_dead_member_leaves_every_view_as_soon_as_its_neighbours_notice() -> None:
    simulation, nodes = start(100)
    join_all(simulation, nodes[:20])
    for node in nodes[50:70]:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    dead = nodes[:4]
    for node in dead:
        simulation.crash(node)
    simulation.run_for(0.5 + 0.2)
    assert all(members_seen(node) == ids(nodes[4:20]) for node in nodes[50:70])


def test_a_stopped_member_leaves_the_views_and_comes_back() -> None:
    simulation, nodes = start(40)
    join_all(simulation, nodes[:10])
    simulation.watch(nodes[20], ECHO)
    simulation.run_for(1.0)
    simulation.stall(nodes[5], 10.0)
    simulation.run_for(3.5)
    assert members_seen(nodes[20]) == ids(nodes[:5] + nodes[6:10])
    simulation.run_for(7.0)
    assert members_seen(nodes[20]) == ids(nodes[:10])


def test_a_copy_takes_over_and_no_view_changes() -> None:
    simulation, nodes = start(60)
    join_all(simulation, nodes[:20])
    for node in nodes[30:40]:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    root = root_of(simulation)
    watchers = [node for node in nodes[30:40] if node is not root]
    before = {node.info.id: len(node.log) for node in watchers}
    simulation.crash(root)
    simulation.run_for(3.0)
    assert root_of(simulation) is not root
    left = ids([node for node in nodes[:20] if node is not root])
    assert all(members_seen(node) == left for node in watchers)
    assert all(len(node.log) <= before[node.info.id] + 2 * (root in nodes[:20]) for node in watchers)


def test_members_of_small_groups_bring_a_directory_back_at_once() -> None:
    simulation, nodes = start(60)
    join_all(simulation, nodes[:20])
    simulation.watch(nodes[30], ECHO)
    simulation.run_for(1.0)
    root = root_of(simulation)
    for info in [root.info, *root.ring.leaves(root.info.id)[6:10]]:
        if simulation.nodes[info.id] is not nodes[30]:
            simulation.crash(simulation.nodes[info.id])
    simulation.run_for(3.0)
    live = ids([node for node in nodes[:20] if node.is_live])
    assert set(root_of(simulation).layer.directory_of(ECHO) or {}) == live
    assert members_seen(nodes[30]) == live


def test_members_of_large_groups_bring_a_directory_back_by_renewal() -> None:
    simulation, nodes = start(100)
    join_all(simulation, nodes)
    root = root_of(simulation)
    for info in [root.info, *root.ring.leaves(root.info.id)[5:11]]:
        simulation.crash(simulation.nodes[info.id])
    simulation.run_for(66.0 + 1.5)
    assert set(root_of(simulation).layer.directory_of(ECHO) or {}) == ids(simulation.live_nodes())


def test_directories_move_to_nearer_nodes() -> None:
    simulation, nodes = start(5)
    for group in GROUPS:
        for node in nodes:
            simulation.join(node, group)
        simulation.watch(nodes[0], group)
    simulation.run_for(1.0)
    for _ in range(60):
        simulation.start_node()
        simulation.run_for(0.05)
        for group in GROUPS:
            assert members_seen(nodes[0], group) == ids(nodes)
    simulation.run_for(2.0)
    for group in GROUPS:
        root = root_of(simulation, group)
        assert root.info == root.ring.root(group)
        assert set(root.layer.directory_of(group) or {}) == ids(nodes)


def test_a_split_serves_both_halves_and_heals_into_one_directory() -> None:
    simulation, nodes = start(60)
    join_all(simulation, nodes[:20])
    for node in nodes[20:40]:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    simulation.split()
    simulation.run_for(LIMIT_S)
    for side in (0, 1):
        here = ids([node for node in nodes[:20] if node.side == side])
        assert all(members_seen(node) == here for node in nodes[20:40] if node.side == side)
    simulation.run_for(600.0)
    simulation.heal()
    simulation.run_for(5.0)
    assert set(root_of(simulation).layer.directory_of(ECHO) or {}) == ids(nodes[:20])
    assert all(members_seen(node) == ids(nodes[:20]) for node in nodes[20:40])


def test_leaving_the_network_is_told_before_it_happens() -> None:
    simulation, nodes = start(30)
    join_all(simulation, nodes[:10])
    simulation.watch(nodes[20], ECHO)
    simulation.run_for(1.0)
    nodes[3].layer.leave(simulation.now)
    simulation.apply(nodes[3])
    simulation.run_for(0.3)
    assert members_seen(nodes[20]) == ids(nodes[:3] + nodes[4:10])
    assert "Departed" in {type(event).__name__ for _, event in nodes[3].log}


def test_only_so_many_watch_and_the_others_may_ask_again() -> None:
    simulation, nodes = start(WATCHERS_MAX + 40)
    for node in nodes:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    unwatched = [node for node in nodes if not node.views[ECHO].is_watched]
    assert len(unwatched) == 40
    simulation.join(nodes[0], ECHO)
    simulation.run_for(1.0)
    assert members_seen(unwatched[0]) == set()
    unwatched[0].layer.use_group(ECHO, simulation.now)
    simulation.apply(unwatched[0])
    simulation.run_for(0.2)
    assert members_seen(unwatched[0]) == {nodes[0].info.id}
    assert root_of(simulation).layer.table_sizes()["watchers"] == WATCHERS_MAX


# Large groups


class CopyCounter:
    """Count how often each node sends each cast."""

    def __init__(self, simulation: GroupSimulation) -> None:
        self.copies: Counter[tuple[bytes, bytes]] = Counter()
        self._apply_output = simulation._apply_output
        simulation._apply_output = self.count  # type: ignore[method-assign]

    def count(self, node: SimulatedGroupNode, output: object) -> None:
        payload = getattr(output, "payload", b"")
        message = decode_group_message(payload) if payload else None
        if isinstance(message, CastDown):
            self.copies[node.info.id, message.payload] += 1
        self._apply_output(node, output)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_cast_to_a_thousand_members_with_crashes() -> None:
    simulation, nodes = start(1100)
    members, others = nodes[:1000], nodes[1000:]
    join_all(simulation, members)
    assert all(node.counters.changes_unconfirmed == 0 for node in nodes)
    counter = CopyCounter(simulation)
    root = root_of(simulation)
    tree = root.layer._roots.roots[ECHO].tree
    assert max(tree.depth(node.info.id) for node in members if node is not root) <= 3
    inner = [simulation.nodes[node] for node in tree.inner_nodes()]
    simulation.cast(others[0], ECHO, b"first")
    simulation.run_for(0.5)
    assert all([cast.payload for cast in node.casts] == [b"first"] for node in members)
    dead = [node for node in random.Random(1).sample(members, 100) if node is not root]
    for node in dead:
        simulation.crash(node)
    for index in range(10):
        simulation.cast(others[0], ECHO, b"during %d" % index)
        simulation.run_for(0.1)
    simulation.run_for(3.0)
    simulation.cast(others[1], ECHO, b"after")
    simulation.run_for(1.0)
    expected = Counter([b"first", b"after", *(b"during %d" % index for index in range(10))])
    live = [node for node in members if node.is_live]
    assert len(live) >= 899
    assert [len(node.casts) for node in live if Counter(cast.payload for cast in node.casts) != expected] == []
    assert all(
        [c.payload for c in node.casts if c.payload.startswith(b"d")] == [b"during %d" % i for i in range(10)] for node in live
    )
    # The root repeats what is younger than 5 s for each of those who took the place of a dead inner node, 31 at most.
    inner_dead = [node for node in dead if node in inner]
    assert max(copies for (node, _), copies in counter.copies.items() if node != root.info.id) <= FANOUT_MAX
    assert max(counter.copies.values()) <= FANOUT_MAX + len(inner_dead)
    assert max(copies for (_, payload), copies in counter.copies.items() if payload == b"after") <= FANOUT_MAX
    assert all(node.counters.casts_skipped == 0 for node in live)


@pytest.mark.long
def test_samples_of_a_hundred_watchers_cover_a_thousand_members_evenly() -> None:
    simulation, nodes = start(1100, seed=2)
    join_all(simulation, nodes[:1000])
    watchers = nodes[1000:]
    for node in watchers:
        simulation.watch(node, ECHO)
    simulation.run_for(1.0)
    assert all(node.views[ECHO].size == 1000 and len(members_seen(node)) == SAMPLE_MAX for node in watchers)

    def busiest() -> float:
        samples = Counter(member for node in watchers for member in members_seen(node))
        return max(samples.values()) / (
            len(watchers) * SAMPLE_MAX / root_of(simulation).layer.table_sizes()["directory_members"]
        )

    assert busiest() <= 1.5
    for node in nodes[:150]:
        simulation.crash(node)
    simulation.run_for(3.0)
    assert all(members_seen(node).isdisjoint(ids(nodes[:150])) and len(members_seen(node)) == SAMPLE_MAX for node in watchers)
    assert busiest() <= 1.5
    simulation.run_for(12.0)
    assert {node.views[ECHO].size for node in watchers} == {len([node for node in nodes[:1000] if node.is_live])}


def test_an_idle_node_does_nothing() -> None:
    simulation, nodes = start(50)
    simulation.run_for(30.0)
    assert simulation.messages == 0
    assert all(node.layer.deadline() is None for node in nodes)


def test_a_quiet_member_costs_little() -> None:
    simulation, nodes = start(100)
    for node in nodes:
        for group in GROUPS:
            simulation.join(node, group)
            simulation.watch(node, group)
    simulation.run_for(10.0)
    before = simulation.messages
    simulation.run_for(600.0)
    # Per minute, node and group: a renewal and a watch, each answered, and an acknowledgement.
    assert simulation.messages - before < 600 / 60 * 100 * 3 * 5.5


# Random faults


class Checker:
    """Check every promise a few times per second; what is wrong for longer than allowed fails."""

    def __init__(self, simulation: GroupSimulation) -> None:
        self.simulation = simulation
        self.wrong_since: dict[tuple[object, ...], float] = {}

    def check(self) -> None:
        for side in self.simulation.rings:
            for group in GROUPS:
                self._check_group(side, group)
        for node in self.simulation.live_nodes():
            sizes = node.layer.table_sizes()
            assert sizes["directories"] + sizes["copies"] <= 2 * len(GROUPS) + 3
            assert sizes["entrusted"] <= 64 * 3

    def _check_group(self, side: int, group: GroupId) -> None:
        simulation = self.simulation
        roots = simulation.directories(group, side)
        self._note(("roots", side, group), len(roots) > 1)
        ring = simulation.rings[side]
        if not ring.positions or any(node.is_live and node.side != node.ring_id for node in simulation.nodes.values()):
            self.wrong_since.clear()
            return
        root = simulation.nodes[ring.root(group).id]
        if root.is_stalled or not root.is_live:
            self._forget(lambda key: key[1:3] == (side, group))
            return
        directory = set(root.layer.directory_of(group) or {})
        for node in simulation.nodes.values():
            if node.side != side or node.is_stalled or not node.is_live:
                self._forget(lambda key, node=node: key[0] in ("lost", "view") and key[3] == node.info.id)
            else:
                self._note(("lost", side, group, node.info.id), group in node.wanted and node.info.id not in directory)
            is_ghost = node.info.id in directory and (not node.is_live or (node.side == side and group not in node.wanted))
            self._note(("ghost", side, group, node.info.id), is_ghost, LIMIT_S + 2)
            if group in node.watched and node.is_live and node.side == side and not node.is_stalled:
                seen = members_seen(node, group) if group in node.views else None
                is_sampled = len(directory) > VIEW_MAX and seen is not None and len(seen) >= SAMPLE_MAX - 8
                self._note(("view", side, group, node.info.id), seen != directory and not is_sampled)

    def _note(self, key: tuple[object, ...], is_wrong: bool, limit_s: float = LIMIT_S) -> None:
        if not is_wrong:
            self.wrong_since.pop(key, None)
            return
        since = self.wrong_since.setdefault(key, self.simulation.now)
        assert self.simulation.now - since <= limit_s, (key, since)

    def _forget(self, is_void: object) -> None:
        for key in [key for key in self.wrong_since if is_void(key)]:  # type: ignore[operator]
            del self.wrong_since[key]


def test_what_is_cast_reaches_whoever_has_joined_before_whatever_the_clocks_say() -> None:
    simulation, nodes = start(60, seed=3)
    join_all(simulation, nodes[:40])
    for number, newcomer in enumerate(nodes[40:]):
        simulation.join(newcomer, ECHO)
        simulation.run_for(1.0)
        assert ECHO in newcomer.joined
        for source in (nodes[number], newcomer):
            simulation.cast(source, ECHO, b"%d of %s" % (number, source.info.id))
        simulation.run_for(0.5)
        assert {cast.payload[:2].strip() for cast in newcomer.casts} == {b"%d" % number}, "and nothing that was cast before"
        assert len(newcomer.casts) == 2
        newcomer.casts.clear()
    assert len(nodes[0].casts) == 40


def test_nobody_has_an_old_cast_taken_by_a_newcomer() -> None:
    simulation, nodes = start(45, seed=4)
    source, newcomer = nodes[0], nodes[44]
    newcomer.layer.start(simulation.now, EPOCH_UNIX_S + simulation.now)
    source.layer.start(simulation.now, EPOCH_UNIX_S + simulation.now)
    join_all(simulation, nodes[:40])
    recorder = Recorder(simulation)
    simulation.cast(source, ECHO, b"old")
    simulation.run_for(1.0)
    simulation.join(newcomer, ECHO)
    simulation.run_for(1.0)
    old = recorder.casts[0]
    for sender in nodes[1:10]:
        simulation._input(newcomer, GroupLayer.received, sender.info, encode_group_message(old))
    assert newcomer.casts == []
    assert newcomer.counters.casts_early == 1
    simulation.cast(source, ECHO, b"new")
    simulation.run_for(1.0)
    assert [cast.payload for cast in newcomer.casts] == [b"new"]


class Recorder(CopyCounter):
    """Keep what goes down trees."""

    def __init__(self, simulation: GroupSimulation) -> None:
        super().__init__(simulation)
        self.casts: list[CastDown] = []

    def count(self, node: SimulatedGroupNode, output: object) -> None:
        payload = getattr(output, "payload", b"")
        message = decode_group_message(payload) if payload else None
        if isinstance(message, CastDown):
            self.casts.append(message)
        super().count(node, output)


FAULTS = ("crash", "stall", "split", "start", "leave", "join", "cast", "crash_many", "unwatch")


def inject(simulation: GroupSimulation, rng: random.Random, fault: str) -> None:
    """Inject one fault, or make one change."""
    awake = [node for node in simulation.live_nodes() if not node.is_stalled]
    group = rng.choice(GROUPS)
    if fault == "start" or len(awake) < 4:
        node = simulation.start_node()
        for group in GROUPS:
            take_part(simulation, rng, node, group)
        return
    node = rng.choice(awake)
    if fault == "crash":
        simulation.crash(node)
    elif fault == "crash_many":
        for other in rng.sample(awake, len(awake) // 5):
            simulation.crash(other)
    elif fault == "stall":
        simulation.stall(node, rng.uniform(0.5, 12.0))
    elif fault == "split":
        if any(node.side for node in simulation.nodes.values()):
            simulation.heal()
        elif len(awake) == len(simulation.live_nodes()):
            simulation.split()
    elif fault == "leave" and group in node.wanted:
        simulation.leave(node, group)
    elif fault == "join":
        simulation.join(node, group, rng.randbytes(2))
    elif fault == "cast":
        simulation.cast(node, group, rng.randbytes(8))
    elif fault == "unwatch" and group in node.watched:
        del node.watched[group]
        node.layer.unwatch_group(group, simulation.now)
        simulation.apply(node)


def take_part(simulation: GroupSimulation, rng: random.Random, node: SimulatedGroupNode, group: GroupId) -> None:
    if rng.random() < 0.5:
        simulation.join(node, group)
    if rng.random() < 0.4:
        simulation.watch(node, group)


def run_faults(seed: int, steps: int = 30) -> GroupSimulation:
    """Run random faults with checks, then demand that all is well."""
    rng = random.Random(seed)
    simulation, nodes = start(rng.randrange(6, 30), seed)
    checker = Checker(simulation)
    for node in nodes:
        for group in GROUPS:
            take_part(simulation, rng, node, group)
    enabled = [fault for fault in FAULTS if rng.random() < 0.7] or ["crash"]
    for _ in range(steps):
        inject(simulation, rng, rng.choice(enabled))
        simulation.run_for(rng.choice([0.01, 0.1, 0.5, 2.0, 5.0]), checker.check)
    simulation.heal()
    simulation.run_for(15.0, checker.check)
    live = simulation.live_nodes()
    for group in GROUPS:
        truth = ids([node for node in live if group in node.wanted])
        roots = simulation.directories(group)
        assert len(roots) <= 1
        assert set(roots[0].layer.directory_of(group) or {} if roots else {}) == truth
        if len(truth) <= VIEW_MAX:
            assert all(members_seen(node, group) == truth for node in live if group in node.watched)
        assert all(node.views[group].size == len(truth) for node in live if group in node.watched)
        assert all(group in node.joined for node in live if group in node.wanted)
        payloads = [b"finally %d" % index for index in range(5)]
        for payload in payloads:
            simulation.cast(live[0], group, payload)
        simulation.run_for(2.0)
        for node in live:
            received = [cast.payload for cast in node.casts if cast.group == group and cast.payload in payloads]
            assert received == (payloads if group in node.wanted else [])
            casts = [(cast.group, cast.source, cast.payload) for cast in node.casts]
            assert len(set(casts)) == len(casts)
    return simulation


@pytest.mark.parametrize("seed", first_cases(15, range(int(os.environ.get("IRIS_SEEDS", "45")))))
def test_random_faults(seed: int) -> None:
    run_faults(seed)


def test_the_same_seed_gives_the_same_run() -> None:
    assert run_faults(3).fingerprint() == run_faults(3).fingerprint()


def test_runs_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "import sys, hashlib, importlib.util as u; s = u.spec_from_file_location('t', sys.argv[1]); m = u.module_from_spec(s); "
        "s.loader.exec_module(m); r = m.run_faults(4); "
        "print(hashlib.sha256(repr((r.fingerprint(), r.messages, r.bytes)).encode()).hexdigest())"
    )
    digests = set()
    for hash_seed in ("0", "1"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        run = subprocess.run(
            [sys.executable, "-c", code, __file__], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout)
    assert len(digests) == 1


def test_events_are_reported_in_order() -> None:
    simulation, nodes = start(3)
    for node in nodes:
        simulation.watch(node, ECHO)
        simulation.join(node, ECHO)
    simulation.run_for(1.0)
    for node in nodes:
        kinds = [type(event) for _, event in node.log]
        assert kinds.index(ViewChanged) < kinds.index(GroupJoined)
        assert Cast not in kinds
