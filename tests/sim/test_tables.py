"""Whole networks of groups layers over a perfect ring: the promises of tables, and random faults by seed."""

from __future__ import annotations

import random

import pytest

from iris_overlay.events import TableChanged
from iris_overlay.groups import entries
from iris_overlay.groups.entries import ENTRIES_MAX
from iris_overlay.groups.messages import VIEW_MAX, WATCHERS_MAX
from iris_overlay.ids import GroupId
from iris_py.testing.cores.groups import GroupSimulation, SimulatedGroupNode

TABLE = GroupId(b"table".ljust(16))

#: Every table is right so long after the last fault: as in test_group_layer.py, and a further question for all entries.
LIMIT_S = 10.0


def entry(number: int) -> bytes:
    return entries.pack([(number, 1, number)])


def several(first: int, count: int) -> bytes:
    return entries.pack((number, 1, number) for number in range(first, first + count))


def start(count: int, seed: int = 1) -> tuple[GroupSimulation, list[SimulatedGroupNode]]:
    simulation = GroupSimulation(seed)
    nodes = [simulation.start_node() for _ in range(count)]
    simulation.run_for(2.0)
    return simulation, nodes


def root_of(simulation: GroupSimulation, side: int = 0) -> SimulatedGroupNode:
    (root,) = simulation.directories(TABLE, side)
    return root


def wanted(nodes: list[SimulatedGroupNode]) -> dict[bytes, bytes]:
    return {node.info.id: node.entries[TABLE] for node in nodes if node.is_live and TABLE in node.entries}


def watch(simulation: GroupSimulation, nodes: list[SimulatedGroupNode]) -> None:
    for node in nodes:
        simulation.watch_table(node, TABLE)
    simulation.run_for(1.0)


def check(simulation: GroupSimulation, side: int = 0) -> None:
    """Check that the table is where the ring says, and that root and watchers have what the members want."""
    nodes = simulation.live_nodes(side)
    root = root_of(simulation, side)
    assert root.info == root.ring.root(TABLE)
    table = root.layer.entries_of(TABLE)
    assert table == wanted(nodes)
    assert all(node.tables[TABLE] == table for node in nodes if TABLE in node.watched)


def test_an_unknown_table_is_empty_after_one_round_trip() -> None:
    simulation, nodes = start(50)
    simulation.watch_table(nodes[3], TABLE)
    simulation.run_for(6 * 0.02)
    assert nodes[3].tables[TABLE] == {}


def test_a_lone_node_needs_no_messages() -> None:
    simulation, (node,) = start(1)
    simulation.watch_table(node, TABLE)
    simulation.claim(node, TABLE, entry(1))
    simulation.claim(node, TABLE, entry(2), entry(1))
    simulation.run_for(0.0)
    assert node.tables[TABLE] == {node.info.id: entry(2)}
    assert not node.claims
    assert simulation.messages == 0


def test_claims_complete_after_all_watchers_were_told() -> None:
    simulation, nodes = start(60)
    watchers = nodes[:30]
    watch(simulation, watchers)
    for node in nodes[20:50]:
        simulation.claim(node, TABLE, entry(0))
        simulation.run_for(0.001)
        for number in (1, 2):  # while the first one is in transit, so they share a claim
            simulation.claim(node, TABLE, entry(number))
        assert 1 <= len(node.claims) <= 2, "at the root itself, the first one is done"
        begun = simulation.now
        while node.claims:
            simulation.run_for(0.001)
            assert simulation.now - begun < 1.0
            said = (3, 1, 0)[len(node.claims)]
            known = [entries.count(watcher.tables[TABLE].get(node.info.id, b"")) for watcher in watchers]
            assert min(known) >= said, f"{said} entries are said to be known"
    check(simulation)
    assert all(node.counters.changes_unconfirmed == 0 for node in nodes)


def test_claims_of_one_turn_are_one_message() -> None:
    simulation, nodes = start(20)
    watch(simulation, nodes[:1])
    simulation.claim(nodes[1], TABLE, entry(0))
    simulation.run_for(1.0)

    def cost(count: int, first: int) -> int:
        before = simulation.messages
        for number in range(count):
            simulation.claim(nodes[1], TABLE, entry(first + number))
        simulation.run_for(1.0)
        return simulation.messages - before

    assert cost(100, 1) == cost(1, 200)
    check(simulation)


def test_leaves_complete_after_all_watchers_were_told() -> None:
    simulation, nodes = start(30)
    watch(simulation, nodes[:10])
    for node in nodes[10:20]:
        simulation.claim(node, TABLE, entry(1))
    simulation.run_for(1.0)
    simulation.leave(nodes[12], TABLE)
    while not any("GroupLeft" in type(event).__name__ for _, event in nodes[12].log):
        simulation.run_for(0.001)
    assert all(nodes[12].info.id not in watcher.tables[TABLE] for watcher in nodes[:10])
    simulation.claim(nodes[12], TABLE, entry(7))  # and back with other entries
    simulation.run_for(1.0)
    check(simulation)


def test_a_stalled_watcher_holds_up_a_claim_for_a_second_only_and_gets_it_later() -> None:
    simulation, nodes = start(30)
    watch(simulation, nodes[:2])
    simulation.stall(nodes[0], 2.5)
    simulation.claim(nodes[3], TABLE, entry(1))
    simulation.run_for(1.2)
    assert not nodes[3].claims
    assert nodes[1].tables[TABLE] == {nodes[3].info.id: entry(1)}
    simulation.run_for(3.0)
    check(simulation)


def test_a_table_larger_than_a_message_reaches_watchers_and_copies() -> None:
    """A node with as many entries as there may be, and more members than other groups show in a view."""
    simulation, nodes = start(3 * VIEW_MAX)
    watch(simulation, nodes[:2])
    simulation.claim(nodes[5], TABLE, several(0, ENTRIES_MAX))
    for node in nodes:
        simulation.claim(node, TABLE, several(100_000, 300) if node is not nodes[5] else b"")
    simulation.run_for(3.0)
    watch(simulation, nodes[2:4])
    check(simulation)
    simulation.claim(nodes[5], TABLE, b"", several(0, ENTRIES_MAX // 2))
    simulation.crash(root_of(simulation))
    simulation.run_for(LIMIT_S)
    check(simulation)


def test_a_change_of_a_large_table_costs_little() -> None:
    simulation, nodes = start(40)
    watch(simulation, nodes[:4])
    for node in nodes:
        simulation.claim(node, TABLE, several(0, 1000))
    simulation.run_for(3.0)
    before = simulation.bytes
    simulation.claim(nodes[7], TABLE, entry(5_000), entry(3))
    simulation.run_for(1.0)
    assert simulation.bytes - before < 4_000, "one claim, four changes, two copies, and their acknowledgements"
    check(simulation)


def test_a_copy_takes_over_and_the_owner_of_a_watcher_hears_nothing_else() -> None:
    simulation, nodes = start(60)
    for node in nodes[:20]:
        simulation.claim(node, TABLE, several(0, 50))
    watch(simulation, nodes[30:40])
    root = root_of(simulation)
    watchers = [node for node in nodes[30:40] if node is not root]
    before = {node.info.id: len(node.log) for node in watchers}
    simulation.crash(root)
    simulation.run_for(3.0)
    check(simulation)
    assert all(len(node.log) <= before[node.info.id] + (root in nodes[:20]) for node in watchers)


def test_a_new_root_does_not_send_a_table_to_watchers_that_have_it() -> None:
    simulation, nodes = start(60)
    for node in nodes[:20]:
        simulation.claim(node, TABLE, several(0, 1000))
    watch(simulation, nodes[20:60])
    table_bytes = 20 * 1000 * entries.ENTRY_BYTES
    root = root_of(simulation)
    before = simulation.bytes
    simulation.crash(root)
    simulation.run_for(3.0)
    check(simulation)
    assert simulation.bytes - before < 4 * table_bytes, "one copy for a new keeper, and not 40 tables"


def test_members_bring_a_table_back_when_root_and_copies_died() -> None:
    simulation, nodes = start(60)
    for number, node in enumerate(nodes[:20]):
        simulation.claim(node, TABLE, several(number, 10))
    watch(simulation, nodes[30:31])
    root = root_of(simulation)
    for info in [root.info, *root.ring.leaves(root.info.id)[6:10]]:
        if simulation.nodes[info.id] is not nodes[30]:
            simulation.crash(simulation.nodes[info.id])
    simulation.run_for(LIMIT_S)
    check(simulation)


def test_a_member_that_was_declared_dead_comes_back_with_its_entries() -> None:
    simulation, nodes = start(40)
    for node in nodes[:10]:
        simulation.claim(node, TABLE, several(0, 5))
    watch(simulation, nodes[20:21])
    simulation.stall(nodes[5], 10.0)
    simulation.run_for(3.5)
    assert nodes[5].info.id not in nodes[20].tables[TABLE]
    simulation.run_for(7.0)
    check(simulation)


def test_a_node_beyond_the_watchers_gets_the_table_when_it_asks() -> None:
    simulation, nodes = start(WATCHERS_MAX + 5)
    simulation.claim(nodes[0], TABLE, several(0, 100))
    watch(simulation, nodes)
    late = next(node for node in nodes[::-1] if not is_watched(node))
    simulation.claim(nodes[0], TABLE, entry(200))
    simulation.run_for(1.5)
    assert late.tables[TABLE] == {nodes[0].info.id: several(0, 100)}
    before = simulation.bytes
    late.layer.use_group(TABLE, simulation.now)
    simulation.apply(late)
    simulation.run_for(0.2)
    assert late.tables[TABLE] == {nodes[0].info.id: nodes[0].entries[TABLE]}
    assert simulation.bytes - before < 1_000, "it gets the changes alone"


def is_watched(node: SimulatedGroupNode) -> bool:
    """Tell whether the root tells the node of changes."""
    return [event for _, event in node.log if isinstance(event, TableChanged)][-1].is_watched


def test_tables_move_to_nearer_nodes() -> None:
    simulation, nodes = start(5)
    for number, node in enumerate(nodes):
        simulation.claim(node, TABLE, several(number, 20))
    watch(simulation, nodes[:1])
    for number in range(60):
        simulation.start_node()
        simulation.claim(nodes[number % 5], TABLE, entry(1000 + number), entry(number))
        simulation.run_for(0.05)
        assert nodes[0].tables[TABLE].keys() == {node.info.id for node in nodes}
    simulation.run_for(2.0)
    check(simulation)


def test_a_split_serves_both_halves_and_heals_into_one_table() -> None:
    simulation, nodes = start(60)
    for number, node in enumerate(nodes[:20]):
        simulation.claim(node, TABLE, several(number, 5))
    watch(simulation, nodes[20:40])
    simulation.split()
    simulation.run_for(LIMIT_S)
    for side in (0, 1):
        check(simulation, side)
    for number, node in enumerate(nodes[:20]):
        simulation.claim(node, TABLE, entry(1000 + number), entry(number))
    simulation.run_for(2.0)
    for side in (0, 1):
        check(simulation, side)
    simulation.run_for(600.0)
    simulation.heal()
    simulation.run_for(LIMIT_S)
    check(simulation)


@pytest.mark.parametrize("seed", range(6))
def test_a_confirmed_claim_is_known_to_all_watchers_while_tables_move(seed: int) -> None:
    """Nodes start, so that tables are handed over; others begin and end to watch; nobody dies."""
    rng = random.Random(seed)
    simulation, nodes = start(8, seed)
    watch(simulation, nodes[:4])
    made: dict[tuple[bytes, int], tuple[bytes, list[SimulatedGroupNode], int]] = {}
    checked = 0

    def unconfirmed() -> int:
        return sum(node.counters.changes_unconfirmed for node in simulation.nodes.values())

    def on_claimed(node: SimulatedGroupNode, number: int) -> None:
        nonlocal checked
        added, watchers, before = made.pop((node.info.id, number))
        if unconfirmed() == before:
            assert all(added in watcher.tables[TABLE][node.info.id] for watcher in watchers if TABLE in watcher.watched)
            checked += 1

    simulation.on_claimed = on_claimed
    for step in range(150):
        choice, node = rng.random(), rng.choice(nodes)
        if choice < 0.1:
            nodes.append(simulation.start_node())
        elif choice < 0.2 and TABLE not in node.watched:
            simulation.watch_table(node, TABLE)
        elif choice < 0.25 and TABLE in node.tables:
            del node.watched[TABLE], node.tables[TABLE]
            node.layer.unwatch_group(TABLE, simulation.now)
            simulation.apply(node)
        else:
            watchers = [each for each in nodes if TABLE in each.tables]
            number = simulation.claim(node, TABLE, entry(step))
            made[node.info.id, number] = (entry(step), watchers, unconfirmed())
        simulation.run_for(rng.choice((0.0, 0.001, 0.02, 0.2)))
    simulation.run_for(3.0)
    check(simulation)
    assert not made
    assert checked > 90


@pytest.mark.parametrize("seed", range(12))
def test_tables_converge_after_random_faults(seed: int) -> None:
    """After the last fault the table is where the ring says, with the entries of each live member once."""
    rng = random.Random(seed)
    simulation, nodes = start(30, seed)
    watch(simulation, rng.sample(nodes, 8))
    for _ in range(40):
        act(simulation, rng)
        simulation.run_for(rng.choice((0.0, 0.02, 0.3, 2.0)))
    if any(node.side for node in simulation.nodes.values()):
        simulation.heal()
    simulation.run_for(2 * LIMIT_S)
    check(simulation)
    assert not any(node.claims for node in simulation.live_nodes())


def act(simulation: GroupSimulation, rng: random.Random) -> None:
    """Let a node claim or leave, die, stand still or start, or split or heal the network."""
    live = [node for node in simulation.live_nodes(None) if node.is_active and not node.is_stalled]
    node, choice = rng.choice(live), rng.random()
    if choice < 0.6:
        numbers = rng.sample(range(40), 4)
        added, removed = (entries.pack((number, 1, 1) for number in part) for part in (numbers[:2], numbers[2:]))
        simulation.claim(node, TABLE, added, removed)
    elif choice < 0.7:
        simulation.leave(node, TABLE)
    elif choice < 0.8 and len(live) > 15:
        simulation.crash(node)
    elif choice < 0.87:
        simulation.stall(node, rng.choice((0.5, 4.0)))
    elif choice < 0.95:
        simulation.start_node(side=0)
    elif any(node.side for node in simulation.nodes.values()):
        simulation.heal()
    elif len(live) == len(simulation.live_nodes(None)):
        simulation.split()
