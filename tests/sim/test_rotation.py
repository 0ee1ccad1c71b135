"""Secrets that are rotated while everything runs (docs/design.md 2.9)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_overlay.groups import layer
from iris_py.errors import MemberLost, NoMembers, RequestTimeout
from iris_py.testing import NodeSimulation, run
from iris_security import AuthenticationError, DatagramOpener, Keyring, Secret
from iris_security.link_datagrams import sender_of
from tests.profiles import first_cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.testing.sites import Record

OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)
NODES = 5
#: The steps of a rotation, as each node takes them: the new one is accepted, it seals, the old one is retired.
STEPS = (Keyring(OLD, accepted=[NEW]), Keyring(NEW, accepted=[OLD]), Keyring(NEW))
#: The same for the own secret of the cluster.
CLUSTER_STEPS = tuple(
    Keyring(Secret(b"w" * 32), clusters={"echo": secrets, "tunnels": Secret(b"t" * 32)})
    for secrets in ((OLD, NEW), (NEW, OLD), (NEW,))
)


async def echo(request: iris.Request) -> bytes:
    await asyncio.sleep(0.05)
    return request.payload


class Echoing(iris.Handler):
    """Sends back what comes through a tunnel."""

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for chunk in tunnel:
            await tunnel.send(chunk)


class Load:
    """Requests, broadcasts and publications without a pause, and what came of them."""

    def __init__(self, nodes: list[iris.Node]) -> None:
        self.nodes = nodes
        self.answered = 0
        self.is_over = False
        self.published: dict[str, int] = {}
        self.taken: dict[int, dict[str, list[int]]] = {}
        self.gaps = 0

    async def ask(self, node: iris.Node, *, is_idempotent: bool) -> None:
        while not self.is_over:
            payload = b"%d" % self.answered
            answer = await node.request("echo", payload, timeout=10.0, idempotent=is_idempotent)
            assert answer == payload
            self.answered += 1
            await asyncio.sleep(0.01)

    async def publish(self, node: iris.Node) -> None:
        number = self.published[node.id] = 0
        while not self.is_over:
            number += 1
            assert await node.publish("numbers.x", b"%d" % number) >= len(self.nodes) - 1
            self.published[node.id] = number
            await asyncio.sleep(0.02)

    async def pass_through(self, tunnel: iris.Tunnel) -> None:
        """Send numbers through a tunnel whose other end sends them back."""
        number = 0
        while not self.is_over:
            number += 1
            await tunnel.send(b"%d" % number)
            assert await tunnel.receive() == b"%d" % number
            await asyncio.sleep(0.02)
        await tunnel.close()

    def taker(self, index: int) -> Callable[[iris.Message], None]:
        taken = self.taken[index] = {}

        def take(message: iris.Message) -> None:
            self.gaps += message.gap
            taken.setdefault(message.source, []).append(int(message.payload))

        return take


@pytest.mark.parametrize("seed", first_cases(1, range(3)))
@pytest.mark.parametrize("steps", [STEPS, CLUSTER_STEPS], ids=["network", "cluster"])
def test_a_rotation_under_load_loses_nothing(seed: int, steps: tuple[Keyring, ...]) -> None:
    first = Keyring(OLD) if steps is STEPS else Keyring(Secret(b"w" * 32), clusters={"echo": OLD, "tunnels": Secret(b"t" * 32)})

    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            nodes = [await simulation.start_node(keyring=first) for _ in range(NODES)]
            load = Load(nodes)
            for node in nodes[:3]:
                await node.join("echo", echo)
            for index, node in enumerate(nodes):
                await node.subscribe("numbers.>", load.taker(index))
            await nodes[0].join("tunnels", Echoing())
            tunnel = await nodes[4].tunnel("tunnels")
            tasks = [asyncio.ensure_future(load.ask(node, is_idempotent=index % 2 == 0)) for index, node in enumerate(nodes)]
            tasks += [asyncio.ensure_future(load.publish(node)) for node in nodes[:2]]
            tasks.append(asyncio.ensure_future(load.pass_through(tunnel)))
            await asyncio.sleep(2.0)
            for keyring in steps:
                for node in nodes:  # one after the other, as they are deployed
                    node.rekey(keyring)
                    await asyncio.sleep(0.7)
                await asyncio.sleep(3.0)
            before = load.answered
            await asyncio.sleep(2.0)
            assert load.answered > before + 100
            load.is_over = True
            await asyncio.gather(*tasks)
            expected = {source: list(range(1, last + 1)) for source, last in load.published.items()}
            await simulation.until(lambda: all(taken == expected for taken in load.taken.values()))
            assert load.gaps == 0
            await asyncio.sleep(10.0)
            for node in nodes:
                assert all(not group.is_left for group in node._core.groups.by_id.values())

    run(scenario(), limit_s=300)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_that_missed_the_rest_of_a_rotation_is_back_when_it_takes_the_last_step(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            nodes = [await simulation.start_node(keyring=Keyring(OLD)) for _ in range(NODES)]
            late = nodes[4]
            await nodes[0].join("echo", echo)
            await late.join("late", echo)
            for node in nodes:
                node.rekey(STEPS[0])
            await asyncio.sleep(2.0)
            asking: list[asyncio.Future[bytes]] = []
            for keyring in STEPS[1:]:
                for node in nodes[:4]:
                    node.rekey(keyring)
                asking.append(asyncio.ensure_future(late.request("echo", b"0", timeout=30.0, idempotent=True)))
                await asyncio.sleep(5.0)
            late.rekey(STEPS[-1])
            assert await asyncio.gather(*asking) == [b"0", b"0"]  # in a group that is retired meanwhile
            assert await late.request("echo", b"1", timeout=30.0, idempotent=True) == b"1"
            assert await nodes[1].request("late", b"2", timeout=30.0, idempotent=True) == b"2"

    run(scenario(), limit_s=120)


def test_nothing_on_the_wire_opens_under_a_retired_secret() -> None:
    async def scenario() -> None:
        async with NodeSimulation(3) as simulation:
            nodes = [await simulation.start_node(keyring=Keyring(OLD)) for _ in range(3)]
            await nodes[0].join("echo", echo)
            for keyring in STEPS:
                for node in nodes:
                    node.rekey(keyring)
                await asyncio.sleep(2.0)
            captured: list[Record] = []
            simulation.network.record = captured.append
            simulation.reset(nodes[1])  # its links begin anew
            late = await simulation.start_node(keyring=STEPS[-1])
            for node in (*nodes, late):
                assert await node.request("echo", b"1", timeout=10.0, idempotent=True) == b"1"
            await asyncio.sleep(5.0)
        old, new = Keyring(OLD), STEPS[-1]
        openers = {keyring: DatagramOpener(keyring) for keyring in (old, new)}
        opened = {old: 0, new: 0}
        captured_datagrams = {record.data for record in captured if record.connection is None}
        # Those between linked nodes have keys of their link alone.
        datagrams = {data for data in captured_datagrams if sender_of(data) is None}
        for keyring, data in itertools.product(openers, datagrams):
            with contextlib.suppress(AuthenticationError):
                openers[keyring].open(data)
                opened[keyring] += 1
        assert opened == {old: 0, new: len(datagrams)}
        assert datagrams < captured_datagrams
        streams = b"".join(record.data for record in captured if record.connection is not None)
        assert new.primary.key_id in streams
        assert old.primary.key_id not in streams

    run(scenario(), limit_s=120)


def test_nodes_of_both_primary_generations_reach_each_other() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            old = await simulation.start_node(keyring=STEPS[0])
            new = await simulation.start_node(keyring=STEPS[1])
            await old.join("old", echo)
            await new.join("new", echo)
            assert await old.request("new", b"1", timeout=5.0) == b"1"
            assert await new.request("old", b"2", timeout=5.0) == b"2"

    run(scenario(), limit_s=60)


def test_who_has_not_the_new_secret_is_put_out_at_once() -> None:
    async def scenario() -> None:
        async with NodeSimulation(2) as simulation:
            member, friend, thief = [await simulation.start_node(keyring=Keyring(OLD)) for _ in range(3)]
            await member.join("echo", echo)
            assert await thief.request("echo", b"1", timeout=5.0) == b"1"
            for keyring in STEPS:
                for node in (member, friend):
                    node.rekey(keyring)
                await asyncio.sleep(1.0)
            assert await friend.request("echo", b"2", timeout=5.0) == b"2"
            with pytest.raises((NoMembers, MemberLost, RequestTimeout)):
                await thief.request("echo", b"3", timeout=2.0)
            await simulation.until(lambda: thief.id not in {node.id for node in member.nodes()})

    run(scenario(), limit_s=60)


def test_a_keyring_that_is_refused_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            member, caller = [await simulation.start_node(keyring=Keyring(OLD)) for _ in range(2)]
            await member.join("echo", echo)
            await member.subscribe("numbers.>", lambda _message: None)
            for bad in (Keyring(OLD, network="another"), Keyring(NEW, clusters={"other": OLD}, strict=True)):
                with pytest.raises(iris.ConfigurationError):
                    member.rekey(bad)
            with monkeypatch.context() as patch:
                patch.setattr(layer, "GROUPS_PER_NODE_MAX", len(member._core.overlay._groups._memberships.groups))
                with pytest.raises(iris.ConfigurationError):
                    member.rekey(STEPS[0])
            assert await caller.request("echo", b"1", timeout=5.0) == b"1"
            assert await caller.publish("numbers.x", b"1") == 1
            await asyncio.sleep(10.0)
            assert len(member._core.groups.by_id) == 2

    run(scenario(), limit_s=60)
