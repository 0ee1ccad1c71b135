"""A root of the table of interest that lies: it leaves out nodes, adds entries, forges members, or repeats an old table.

The root is a node like the others, but for the rows that it tells watchers. What it can reach is in docs/security.md.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from iris_overlay.groups import entries
from iris_overlay.groups.messages import EntryRow, MemberRecord, TablePart, member_part
from iris_overlay.groups.root_store import Roots
from iris_overlay.groups.table_root import TableRoot
from iris_py.patterns.topic.names import parse_pattern
from iris_py.patterns.topic.shapes import EntryHasher
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo
    from iris_py.api.node import Node
    from iris_py.peers.group import Group

MESSAGES = 40


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=600.0)


def realm_of(node: Node) -> Group:
    (realm,) = node._core.groups.realms()
    return realm


def info_of(node: Node) -> NodeInfo:
    return node._core.info


def packed(node: Node, *patterns: str) -> bytes:
    """Return entries as a node with the key of the realm writes them."""
    hasher = EntryHasher(realm_of(node).keys.interest_key())
    return entries.pack(hasher.entry(parse_pattern(pattern)) for pattern in patterns)


def forged(node: Node, *, has_proof: bool) -> MemberRecord:
    """Return a record that makes a node a member: every insider holds the key for the permit, and for the proof."""
    keys = realm_of(node).keys
    info = info_of(node)
    attributes = keys.proof(info.id) if has_proof else bytes(16)
    record = MemberRecord(info, attributes, 1 << 40)
    return MemberRecord(info, attributes, 1 << 40, keys.permit(member_part(record, info.id)))


class Liar:
    """The root of the table, and the changes that it makes in what it tells watchers.

    Attributes:
        left_out: The nodes that it leaves out.
        added: The entries that it gives to nodes, by their ids.
        forged: The members that it makes up, with their entries.
        told: The parts that it has sent.
    """

    def __init__(self, nodes: list[Node], patch: pytest.MonkeyPatch) -> None:
        table = realm_of(nodes[0]).id
        (self.node,) = [node for node in nodes if node._core.overlay.directory_of(table) is not None]
        self.left_out: set[NodeId] = set()
        self.added: dict[NodeId, bytes] = {}
        self.forged: list[tuple[MemberRecord, bytes]] = []
        self.told: list[TablePart] = []
        parts_of = TableRoot._parts_of

        def lie(root: TableRoot, *arguments: Any, **options: Any) -> list[TablePart]:
            parts = parts_of(root, *arguments, **options)
            if root._local.id != info_of(self.node).id or len(parts) > 1:
                return parts
            self.told.append(self._change(parts[0]))
            return [self.told[-1]]

        patch.setattr(TableRoot, "_parts_of", lie)

    def _change(self, part: TablePart) -> TablePart:
        members = [record for record in part.members if record.info.id not in self.left_out]
        rows = [self._widen(row) for row in part.rows if row.node not in self.left_out]
        if not part.base:
            members += [record for record, _ in self.forged]
            rows += [EntryRow(record.info.id, 0, record.stamp, own) for record, own in self.forged]
        return structs.replace(part, members=members, rows=rows)

    def _widen(self, row: EntryRow) -> EntryRow:
        return structs.replace(row, added=entries.apply(row.added, self.added.get(row.node, b"")))

    async def tell(self, part: TablePart, node: Node, teller: Node | None = None) -> None:
        """Send a part to a node, and wait until it has arrived."""
        teller = teller or self.node
        overlay = teller._core.overlay
        overlay._groups._outbox.send(info_of(node), part)
        overlay.use_group(realm_of(teller).id, asyncio.get_running_loop().time())  # ends the turn of the groups
        teller._core._outbound.has_events = True
        teller._runtime.wake()
        await asyncio.sleep(0.1)


def _note(heard: list[tuple[str, bytes]], message: iris.Message) -> None:
    heard.append((message.topic, message.payload))


class Network:
    """A publisher that is not the root, and subscribers, each to a topic of its own and to the common one.

    Attributes:
        heard: What each subscriber was given: topic and payload.
    """

    def __init__(self) -> None:
        self.heard: dict[str, list[tuple[str, bytes]]] = {}

    async def start(self, simulation: NodeSimulation, patch: pytest.MonkeyPatch) -> None:
        nodes = await simulation.start_nodes(7)
        for number, node in enumerate(nodes[:4]):
            note = partial(_note, self.heard.setdefault(node.id, []))
            await node.subscribe("common.>", note)
            await node.subscribe(f"own.{number}", note)
        self.liar = Liar(nodes, patch)
        self.subscribers = [node for node in nodes[:4] if node is not self.liar.node]
        self.publisher, self.other = [node for node in nodes[4:] if node is not self.liar.node][:2]

    async def publish(self, topic: str = "common.x") -> list[int]:
        """Publish messages; return the numbers of nodes that they were sent to."""
        counts = [await self.publisher.publish(topic, b"%d" % number) for number in range(MESSAGES)]
        await asyncio.sleep(2.0)
        return counts

    def note_changes(self, patch: pytest.MonkeyPatch) -> list[object]:
        """Return what the publisher is told about the table from now on."""
        changes: list[object] = []
        patch.setattr(self.publisher._core.pubsub, "table_changed", lambda event, *_rest: changes.append(event))
        return changes

    def count(self, node: Node, topic: str = "common.x") -> int:
        return sum(1 for heard, _ in self.heard[node.id] if heard == topic)


@pytest.fixture
def network() -> Network:
    return Network()


def test_who_is_left_out_misses_messages_until_another_node_is_the_root(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        victim, *others = network.subscribers
        network.liar.left_out.add(info_of(victim).id)
        await network.publish()
        assert network.count(victim) == 0
        assert [network.count(node) for node in others] == [MESSAGES] * len(others)
        simulation.kill(network.liar.node)
        await simulation.until(lambda: info_of(victim).id in network.publisher._core.pubsub.publisher._targets)
        await network.publish("common.y")
        assert [network.count(node, "common.y") for node in network.subscribers] == [MESSAGES] * len(network.subscribers)

    simulate(scenario)


@pytest.mark.parametrize("is_member", [True, False])
def test_entries_that_nobody_claimed_bring_messages_that_nobody_is_given(
    network: Network, monkeypatch: pytest.MonkeyPatch, is_member: bool
) -> None:
    """The node drops and counts them; one without subscriptions does so, too."""

    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        victim = network.subscribers[0] if is_member else network.other
        if is_member:
            network.liar.added[info_of(victim).id] = packed(victim, ">")
        else:
            network.liar.forged.append((forged(victim, has_proof=True), packed(victim, ">")))
        await network.publish()
        await network.publish("secret.y")
        assert [network.count(node) for node in network.subscribers] == [MESSAGES] * len(network.subscribers)
        assert not [topic for heard in network.heard.values() for topic, _ in heard if topic.startswith("secret")]
        assert victim.statistics().drops["publication_unwanted"] == MESSAGES * (1 if is_member else 2)
        others = [node for node in simulation.nodes if node is not victim]
        assert not any("publication_unwanted" in node.statistics().drops for node in others)

    simulate(scenario)


def test_a_member_without_a_proof_is_not_sent_anything(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        network.liar.forged.append((forged(network.other, has_proof=False), packed(network.other, ">")))
        counts = await network.publish()
        assert set(counts) == {4}
        assert network.publisher.statistics().drops["unproven_member"] == 1
        assert "publication_unwanted" not in network.other.statistics().drops

    simulate(scenario)


def test_a_table_of_before_changes_nothing(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        await network.publish()
        await network.subscribers[0].subscribe("late.x", lambda message: None)
        whole = next(part for part in network.liar.told if part.base == 0)
        change = next(part for part in network.liar.told if part.base)
        assert await network.publisher.publish("late.x", b"") == 1
        changes = network.note_changes(monkeypatch)
        for part in (whole, change, whole):
            await network.liar.tell(part, network.publisher)
        await asyncio.sleep(5.0)
        assert changes == []
        assert await network.publisher.publish("late.x", b"") == 1
        await network.publish("common.y")
        assert [network.count(node, "common.y") for node in network.subscribers] == [MESSAGES] * len(network.subscribers)

    simulate(scenario)


def test_a_table_of_an_earlier_epoch_does_not_count_against_a_new_root(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        victim = network.subscribers[0]
        network.liar.left_out.add(info_of(victim).id)
        await network.publish()
        old = next(part for part in network.liar.told if part.base == 0)
        simulation.kill(network.liar.node)
        await simulation.until(lambda: info_of(victim).id in network.publisher._core.pubsub.publisher._targets)
        old = structs.replace(old, root=info_of(network.other))
        changes = network.note_changes(monkeypatch)
        await network.liar.tell(old, network.publisher, network.other)
        assert changes == []
        await network.publish("common.y")
        assert network.count(victim, "common.y") == MESSAGES

    simulate(scenario)


def test_an_insider_that_is_not_the_root_is_believed_for_little_more_than_a_minute(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells a table of the same size in which a victim has other entries. A much smaller table is not believed at all."""

    async def scenario(simulation: NodeSimulation) -> None:
        await network.start(simulation, monkeypatch)
        await network.publish()
        victim, insider = network.subscribers[0], network.other
        (whole, *_) = [part for part in network.liar.told if part.base == 0]
        rows = [row for row in whole.rows if row.node != info_of(victim).id]
        wrong = EntryRow(info_of(victim).id, 0, 1 << 40, packed(victim, "wrong.x"))
        empty = structs.replace(whole, root=info_of(insider), version=whole.version + 1000, rows=[], members=[], size=0)
        table = structs.replace(whole, root=info_of(insider), version=whole.version + 1000, rows=[*rows, wrong])
        await network.liar.tell(empty, network.publisher, insider)
        assert set(await network.publish()) == {4}
        acknowledge = Roots.acknowledge
        monkeypatch.setattr(  # it does not say that it is no root
            Roots,
            "acknowledge",
            lambda self, *rest: None if self._local.id == info_of(insider).id else acknowledge(self, *rest),
        )
        await network.liar.tell(table, network.publisher, insider)
        assert set(await network.publish()) == {3}
        assert network.count(victim) == 2 * MESSAGES
        await asyncio.sleep(80.0)
        assert set(await network.publish()) == {4}

    simulate(scenario)
