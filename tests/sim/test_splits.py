"""Tables of interest that are split, on the simulated network: nothing is missed, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.groups import promotions
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.entries import split
from iris_overlay.groups.splits import UNSPLIT
from iris_overlay.groups.table_root import TableRoot
from iris_py.patterns.topic.names import TopicTrie, parse_pattern, parse_topic
from iris_py.patterns.topic.table_paths import place_of
from iris_py.testing import NodeSimulation, run
from iris_security import Keyring, Secret
from tests.profiles import first_cases, seeds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import iris_py as iris
    from iris_py.api.node import Node

#: Entries beyond which a table is split.
FEW = 12

#: Members renew so often that all are told of a split soon.
CONFIG = GroupConfig(table_entries_max=FEW, renew_s=8.0, sweep_s=3.0)


def simulate(scenario: Callable[[NodeSimulation], Awaitable[Any]], *, seed: int = 1, limit_s: float = 900.0) -> Any:
    async def main() -> Any:
        async with NodeSimulation(seed, groups=CONFIG) as simulation:
            return await scenario(simulation)

    return run(main(), limit_s=limit_s)


def core_of(node: Node) -> Any:
    return node._runtime.core


class Tables:
    """All tables of interest of a network, as their roots have them."""

    def __init__(self, simulation: NodeSimulation) -> None:
        nodes = list(simulation.nodes)
        self.groups: dict[bytes, bytes] = {}
        for node in nodes:
            (realm,) = core_of(node).groups.realms()
            self.realm = realm
            for id_, group in core_of(node).groups.by_id.items():
                if group.is_realm or group.path:
                    self.groups[id_] = group.path
        self.entries: dict[bytes, dict[str, list[bytes]]] = {}
        self.splits: dict[bytes, Any] = {}
        for node in nodes:
            for id_, root in core_of(node).overlay._groups._roots.roots.items():
                if isinstance(root, TableRoot) and root.successor is None:
                    path = self.groups[id_]
                    assert path not in self.entries, f"two roots of {path.hex()}"
                    members = root.table.members.items()
                    self.entries[path] = {member.hex(): split(each.entries) for member, each in members}
                    self.splits[path] = root.table.splits.known()

    def places(self) -> Counter[tuple[str, bytes, bytes]]:
        """Return the node, the entry and the path of each entry."""
        return Counter(
            (member, entry, path) for path, table in self.entries.items() for member, its in table.items() for entry in its
        )

    def count(self, path: bytes) -> int:
        return sum(map(len, self.entries[path].values()))

    def check(self, simulation: NodeSimulation) -> None:
        """Check that each entry of a live node is once where it belongs."""
        wanted = Counter[tuple[str, bytes, bytes]]()
        for node in simulation.nodes:
            for own in core_of(node).pubsub.interest.entries.values():
                entry = own.hashed[self.realm.id]
                path = place_of(entry, lambda path: self.splits.get(path, UNSPLIT))
                wanted[node.id, entry.pack(), path] += 1
        found = self.places()
        assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"


class Listener:
    """A subscription, and what it has to get."""

    def __init__(self, load: Load, node: Node, pattern: str) -> None:
        self.load = load
        self.node = node
        self.pattern = pattern
        self.messages: list[iris.Message] = []
        self.since: dict[str, int] | None = None
        self._trie: TopicTrie[bool] = TopicTrie()
        self._trie.add(parse_pattern(pattern), True)

    async def start(self) -> None:
        self.subscription = await self.node.subscribe(self.pattern, self.messages.append, queue_messages=100_000)
        self.note_start()

    def note_start(self) -> None:
        """Note that all messages have to arrive from now on."""
        self.since = {id_: len(published) for id_, published in self.load.published.items()}

    def wants(self, topic: str) -> bool:
        return bool(self._trie.match(parse_topic(topic)))

    def check(self, *, has_gaps: bool = False, has_ended: bool = False) -> None:
        """Check that nothing came twice or late, and nothing is missing that was published after `subscribe` returned."""
        what = f"{self.pattern} at {self.node.id[:4]}"
        assert self.since is not None
        for publisher, published in self.load.published.items():
            got = [int(message.payload) for message in self.messages if message.source == publisher]
            assert got == sorted(set(got)), f"{what}: twice or out of order"
            begin = self.since.get(publisher, 0)
            due = [number for number, topic in enumerate(published) if number >= begin and self.wants(topic)]
            if has_ended:
                due = [number for number in due if got and number < got[-1] and not has_gaps]
            missing = sorted(set(due).difference(got))
            assert not missing, f"{what}: {missing} of {len(due)} missing from {publisher[:4]}"
        if not has_gaps:
            assert not [message for message in self.messages if message.gap or message.has_unknown_gap], what


class Load:
    """Publishers that publish without a pause, to random topics."""

    def __init__(self, nodes: list[Node], topics: list[str], seed: int, pause_s: float = 0.02) -> None:
        self.nodes = nodes
        self.topics = topics
        self.pause_s = pause_s
        self.rng = Random(seed)
        self.published: dict[str, list[str]] = {node.id: [] for node in nodes}
        self.listeners: list[Listener] = []
        self.is_over = False

    async def publish(self, node: Node) -> None:
        while not self.is_over:
            topic = self.rng.choice(self.topics)
            number = len(self.published[node.id])
            self.published[node.id].append(topic)
            await node.publish(topic, b"%d" % number)
            await asyncio.sleep(self.pause_s)

    async def subscribe(self, node: Node, pattern: str) -> None:
        listener = Listener(self, node, pattern)
        self.listeners.append(listener)
        await listener.start()

    async def run(self, changes: Awaitable[None]) -> None:
        tasks = [asyncio.create_task(self.publish(node)) for node in self.nodes]
        await changes
        self.is_over = True
        await asyncio.gather(*tasks)
        await asyncio.sleep(3.0)


STEMS = [f"{letter}.{number}" for letter in "abcdefgh" for number in range(8)]
ONE_STEM = [f"a.{number}" for number in range(40)] + [f"a.{number}.x" for number in range(10)]


def pattern_for(topic: str, rng: Random) -> str:
    tokens = topic.split(".")
    kind = rng.random()
    if kind < 0.75:
        return topic
    if kind < 0.85:
        return ".".join([*tokens[:-1], ">"])
    if kind < 0.95:
        return ".".join([tokens[0], "*", *tokens[2:]])
    return ".".join(["*", *tokens[1:]])


@pytest.mark.parametrize("topics", first_cases(1, [STEMS, ONE_STEM]), ids=["stems", "one_stem"])
def test_a_table_is_split_under_load_and_nothing_is_missed(topics: list[str]) -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(6)
        load = Load(publishers, topics, 1)
        rng = Random(1)

        async def change() -> None:
            for _ in range(60):
                await load.subscribe(rng.choice(subscribers), pattern_for(rng.choice(topics), rng))
                await asyncio.sleep(0.2)
            await asyncio.sleep(40.0)

        await load.run(change())
        for listener in load.listeners:
            listener.check()
        tables = Tables(simulation)
        tables.check(simulation)
        assert len(tables.entries) > 5

    simulate(scenario)


class Schedule:
    """Random joins, deaths, subscriptions that come and go, and perhaps a partition, while two publishers publish.

    A subscriber that was cut off may miss what was published meanwhile, and a while after: then its gaps tell it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"splits {seed}")
        self.seed = seed
        self.topics = STEMS if seed % 2 else ONE_STEM
        self.is_cut = seed % 4 >= 2

    async def run(self, simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(self.rng.randint(3, 7))
        self.load = Load(publishers, self.topics, self.seed)
        self.subscribers = subscribers
        await self.load.run(self.change(simulation))
        for listener in self.load.listeners:
            listener.check(has_gaps=self.is_cut)
        tables = Tables(simulation)
        tables.check(simulation)
        assert len(tables.entries) > 1

    async def change(self, simulation: NodeSimulation) -> None:
        rng = self.rng
        for step in range(rng.randint(25, 60)):
            kind = rng.random()
            if kind < 0.1 and len(self.load.listeners) > 10:
                ended = self.load.listeners.pop(rng.randrange(len(self.load.listeners)))
                await ended.subscription.close()
                ended.check(has_gaps=self.is_cut, has_ended=True)
            elif kind < 0.8 or len(self.subscribers) < 3:
                await self.load.subscribe(rng.choice(self.subscribers), pattern_for(rng.choice(self.topics), rng))
            elif kind < 0.87:
                self.subscribers.append(await simulation.start_node())
            elif kind < 0.93:
                node = self.subscribers.pop(rng.randrange(len(self.subscribers)))
                self.load.listeners = [each for each in self.load.listeners if each.node is not node]
                simulation.kill(node)
                await asyncio.sleep(rng.choice([0.0, 8.0]))
            if self.is_cut and step == 20:
                await self.cut(simulation)
            await asyncio.sleep(rng.choice([0.0, 0.1, 0.5]))
        await asyncio.sleep(60.0)

    async def cut(self, simulation: NodeSimulation) -> None:
        nodes = list(simulation.nodes)
        self.rng.shuffle(nodes)
        size = self.rng.randint(1, len(nodes) - 1)
        simulation.partition(nodes[:size], nodes[size:])
        for _ in range(10):
            await self.load.subscribe(self.rng.choice(self.subscribers), pattern_for(self.rng.choice(self.topics), self.rng))
            await asyncio.sleep(self.rng.choice([0.1, 2.0]))
        simulation.heal()
        await asyncio.sleep(30.0)
        for listener in self.load.listeners:
            listener.note_start()


@pytest.mark.parametrize("seed", first_cases(1, sorted(seeds(40), key=lambda seed: seed != 2)))
def test_nothing_is_missed_in_random_schedules(seed: int) -> None:
    simulate(Schedule(seed).run, seed=seed)


def test_a_node_with_far_too_many_entries_that_cannot_move_describes_them_by_fewer() -> None:
    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(1)
        greedy, honest = await simulation.start_nodes(2)
        topics = [f"{first}.{number}" for first in "ab" for number in range(80)]
        load = Load(publishers, topics, 1)

        async def change() -> None:
            for number in range(5):
                await load.subscribe(honest, f"*.{number}")
            for number in range(10, 70):
                await load.subscribe(greedy, f"*.{number}")
                await asyncio.sleep(0.2)
            await asyncio.sleep(30.0)

        await load.run(change())
        for listener in load.listeners:
            listener.check()
        tables = Tables(simulation)
        tables.check(simulation)
        assert len(tables.entries[b""][honest.id]) == 5
        assert tables.count(b"") <= 4 * FEW

    simulate(scenario)


@pytest.mark.long
def test_a_split_table_survives_the_rotation_of_the_secret() -> None:
    old, new = Secret(b"o" * 32), Secret(b"n" * 32)

    async def scenario(simulation: NodeSimulation) -> None:
        nodes = [await simulation.start_node(keyring=Keyring(old)) for _ in range(5)]
        load = Load(nodes[:1], STEMS, 1)
        rng = Random(1)

        async def change() -> None:
            for number in range(30):
                await load.subscribe(nodes[1 + number % 4], pattern_for(rng.choice(STEMS), rng))
            await asyncio.sleep(20.0)
            for keyring in (Keyring(old, accepted=[new]), Keyring(new, accepted=[old]), Keyring(new)):
                for node in nodes:
                    node.rekey(keyring)
                    await asyncio.sleep(1.0)
                await asyncio.sleep(30.0)

        await load.run(change())
        for listener in load.listeners:
            listener.check()
        tables = Tables(simulation)
        tables.check(simulation)
        assert len(tables.entries) > 3
        paths = Counter(group.path for group in core_of(nodes[1]).groups.by_id.values() if group.path)
        assert set(paths.values()) == {1}, "tables of the old generation are forgotten"

    simulate(scenario)


@pytest.mark.parametrize("topics", first_cases(1, [ONE_STEM, STEMS]), ids=["one_stem", "stems"])
def test_promotions_beside_splits_lose_nothing_and_repeat_nothing(topics: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promotions, "PROMOTED_NODES", 3)

    async def scenario(simulation: NodeSimulation) -> None:
        publishers = await simulation.start_nodes(2)
        subscribers = await simulation.start_nodes(7)
        load = Load(publishers, topics, 1)
        rng = Random(2)
        popular = topics[:3]

        async def change() -> None:
            for number in range(70):
                pattern = popular[number % 3] if number % 2 else pattern_for(rng.choice(topics), rng)
                await load.subscribe(rng.choice(subscribers), pattern)
                await asyncio.sleep(rng.choice([0.0, 0.2]))
            await asyncio.sleep(40.0)

        await load.run(change())
        for listener in load.listeners:
            listener.check()
        assert any(core_of(node).pubsub.deliveries.casts.by_group for node in subscribers)
        assert len(Tables(simulation).entries) > 3

    simulate(scenario)
