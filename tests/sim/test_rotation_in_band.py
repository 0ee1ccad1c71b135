"""The secret of a network, exchanged by its administrator while everything runs (docs/design.md 2.10)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_py.api.keys import next_number
from iris_py.errors import MemberLost, NoMembers, RequestTimeout
from iris_py.testing import NodeSimulation, run
from iris_security import AdministrationKey, Keyring, Secret
from iris_security.administration import Rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_py.api.keys import RotationStep
    from iris_py.link.link import Link
    from iris_security import SignedGenerations

KEY = AdministrationKey(b"a" * 32)
OLD = Secret(b"o" * 32)
KEYRING = Keyring(OLD, administrator=KEY.administrator)
STEPS: tuple[RotationStep, ...] = ("add", "rotate", "retire")
NODES = 6


async def echo(request: iris.Request) -> bytes:
    await asyncio.sleep(0.05)
    return request.payload


def number(node: iris.Node) -> int:
    return node._core.peers.rotation.rank.number


def secrets(node: iris.Node) -> tuple[Secret, ...]:
    return node._runtime.keyring.secrets


async def everywhere(simulation: NodeSimulation, nodes: Iterable[iris.Node], step: int) -> None:
    """Wait until nodes have taken a step."""
    await simulation.until(lambda: {number(node) for node in nodes} == {step})
    assert len({secrets(node) for node in nodes}) == 1


def links(node: iris.Node) -> list[Link]:
    return [link for link in node._core.peers.links() if link.is_open]


@pytest.mark.parametrize("seed", range(3))
def test_a_step_reaches_every_node_and_no_request_fails(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(NODES)]
            for node in nodes[:3]:
                await node.join("echo", echo)
            answered, is_over = 0, False

            async def ask(node: iris.Node) -> None:
                nonlocal answered
                while not is_over:
                    assert await node.request("echo", b"1", timeout=10.0) == b"1"
                    answered += 1

            tasks = [asyncio.ensure_future(ask(node)) for node in nodes]
            for count, step in enumerate(STEPS, 1):
                before = answered
                status = await nodes[count].rotate_secret(step, KEY.text)
                assert status.number == count
                assert set(status.linked_nodes.values()) == {count}
                await everywhere(simulation, nodes, count)
                await simulation.until(lambda before=before: answered > before + 100)  # type: ignore[misc]
            is_over = True
            await asyncio.gather(*tasks)
            assert len(secrets(nodes[0])) == 1
            assert secrets(nodes[0]) != (OLD,)
            assert (await nodes[0].rotation()).generations == (nodes[5]._runtime.keyring.primary.key_id.hex(),)

    run(scenario(), limit_s=300)


@pytest.mark.parametrize("missed", [1, 2], ids=["one", "two"])
@pytest.mark.parametrize("seed", range(3))
def test_who_was_away_catches_up_while_one_of_its_generations_is_accepted(seed: int, missed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(NODES)]
            late, others = nodes[3], [*nodes[:3], *nodes[4:]]
            await others[0].join("echo", echo)
            await late.join("late", echo)
            for count, step in enumerate(STEPS, 1):
                if count == len(STEPS) + 1 - missed:
                    simulation.partition([late], others)
                    await simulation.until(lambda: late.id not in {member.id for node in others for member in node.nodes()})
                await others[1].rotate_secret(step, KEY)
                await everywhere(simulation, others, count)
            assert number(late) == len(STEPS) - missed
            simulation.heal()
            await everywhere(simulation, nodes, len(STEPS))
            assert await late.request("echo", b"1", timeout=30.0, idempotent=True) == b"1"
            assert await others[1].request("late", b"2", timeout=30.0, idempotent=True) == b"2"

    run(scenario(), limit_s=300)


def test_a_newcomer_with_the_first_secret_alone_is_told_what_counts() -> None:
    async def scenario() -> None:
        async with NodeSimulation(1) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(2)]
            await nodes[0].rotate_secret("add", KEY)
            await nodes[0].rotate_secret("rotate", KEY)
            newcomer = await simulation.start_node(keyring=KEYRING)
            await everywhere(simulation, [*nodes, newcomer], 2)

    run(scenario(), limit_s=60)


def test_an_insider_without_the_key_changes_nothing() -> None:
    async def scenario() -> None:
        async with NodeSimulation(2) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(3)]
            insider, *honest = nodes
            signed: list[SignedGenerations | None] = []
            for step in STEPS[:2]:
                await honest[0].rotate_secret(step, KEY)
                await everywhere(simulation, nodes, len(signed) + 1)
                signed.append(insider._core.peers.rotation.signed)
            assert signed[0] is not None
            own = AdministrationKey(b"i" * 32).sign("default", 3, [Secret(b"i" * 32)])
            for link in links(insider):
                link.tell_generations(own)
                link.tell_generations(signed[0])  # what counted once
                link.tell_rank(Rank(1 << 31))
                for _ in range(1000):
                    link.tell_rank(Rank())  # it is behind, and says so again and again
                insider._core._outbound.touch(link, insider._runtime.loop.time())
            insider._runtime.driver.wake()
            await simulation.until(lambda: all(node.statistics().drops.get("unsigned_generations") for node in honest))
            assert [number(node) for node in honest] == [2, 2]
            assert len({secrets(node) for node in nodes}) == 1
            await honest[1].rotate_secret("retire", KEY, timeout=1.0, force=True)
            await everywhere(simulation, nodes, 3)

    run(scenario(), limit_s=60)


def test_what_the_administrator_signed_once_undoes_no_exchange_in_files() -> None:
    """Whoever was put out with a file brings nothing back, also where it still has a link."""

    async def scenario() -> None:
        async with NodeSimulation(2) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(3)]
            for step in STEPS:
                await nodes[0].rotate_secret(step, KEY)
            await everywhere(simulation, nodes, 3)
            signed = nodes[0]._core.peers.rotation.signed
            other = Keyring(Secret(b"e" * 32), administrator=KEY.administrator)
            fresh = [await simulation.start_node(keyring=other) for _ in range(2)]
            for link in links(fresh[0]):
                assert signed is not None
                link.tell_generations(signed)
                fresh[0]._core._outbound.touch(link, fresh[0]._runtime.loop.time())
            fresh[0]._runtime.driver.wake()
            await fresh[1].rotate_secret("add", KEY)
            assert fresh[0]._runtime.keyring.primary.key_id == fresh[1]._runtime.keyring.primary.key_id == other.primary.key_id

    run(scenario(), limit_s=60)


def test_two_administrators_at_once_end_with_the_same_secret_everywhere() -> None:
    async def scenario() -> None:
        async with NodeSimulation(4) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(NODES)]
            await asyncio.gather(*(node.rotate_secret("add", KEY, timeout=5.0) for node in nodes[:2]), return_exceptions=True)
            await everywhere(simulation, nodes, 1)

    run(scenario(), limit_s=60)


def test_linked_nodes_that_know_no_administrator_are_not_put_out_by_mistake(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with NodeSimulation(5) as simulation:
            node, other, without = [await simulation.start_node(keyring=each) for each in (KEYRING, KEYRING, Keyring(OLD))]
            await other.join("echo", echo)
            with pytest.raises(iris.RotationIncomplete) as caught:
                await node.rotate_secret("add", KEY, timeout=2.0)
            assert caught.value.missing == (without.id,)
            assert caught.value.is_begun
            assert f"by the linked nodes {without.id}" in str(caught.value)
            with pytest.raises(iris.RotationIncomplete) as caught:
                await node.rotate_secret("rotate", KEY, timeout=2.0)
            assert not caught.value.is_begun
            assert number(node) == 1
            assert (await node.rotation()).linked_nodes == {other.id: 1, without.id: None}
            for step in STEPS[1:]:
                with contextlib.suppress(iris.RotationIncomplete):  # the last one ends the link to who is put out
                    await node.rotate_secret(step, KEY, timeout=2.0, force=True)
                await everywhere(simulation, [node, other], number(node))
                if step == "rotate":
                    assert await without.request("echo", b"1", timeout=5.0) == b"1"
            with pytest.raises((NoMembers, MemberLost, RequestTimeout)):
                await without.request("echo", b"1", timeout=2.0)
            assert await node.request("echo", b"1", timeout=5.0) == b"1"

    run(scenario(), limit_s=60)
    assert caplog.text.count("this node has no administrator") == 1


def test_what_is_wrong_with_a_step_is_said_and_nothing_is_changed() -> None:
    async def scenario() -> None:
        async with NodeSimulation(6) as simulation:
            alone = await simulation.start_node(keyring=KEYRING)
            with pytest.raises(iris.RotationIncomplete, match="no other node was reached"):
                await alone.rotate_secret("add", KEY, timeout=1.0)
            await simulation.start_node(keyring=KEYRING)
            with pytest.raises(iris.ConfigurationError, match="another administrator"):
                await alone.rotate_secret("add", AdministrationKey(b"i" * 32))
            with pytest.raises(iris.ConfigurationError, match="not an administration key"):
                await alone.rotate_secret("add", "irisadmin1.short")
            with pytest.raises(iris.ConfigurationError, match="not bytes"):
                await alone.rotate_secret("add", b"key")  # type: ignore[arg-type]
            with pytest.raises(iris.ConfigurationError, match="not a step"):
                await alone.rotate_secret("exchange", KEY)  # type: ignore[arg-type]
            for step in STEPS[1:]:
                with pytest.raises(iris.ConfigurationError, match="only one generation"):
                    await alone.rotate_secret(step, KEY)
            assert number(alone) == 0
            for _ in range(3):
                await alone.rotate_secret("add", KEY)
            with pytest.raises(iris.ConfigurationError, match="4 generations already"):
                await alone.rotate_secret("add", KEY)
            await alone.close()
            with pytest.raises(iris.NodeClosed):
                await alone.rotate_secret("add", KEY)

    run(scenario(), limit_s=60)


def test_a_generation_that_does_not_seal_yet_is_only_discarded_on_demand() -> None:
    """Also by a node that has come after it was added, which knows of the step by its number alone."""

    async def scenario() -> None:
        async with NodeSimulation(11) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(3)]
            await nodes[0].rotate_secret("add", KEY)
            late = await simulation.start_node(keyring=KEYRING)
            await everywhere(simulation, [*nodes, late], 1)
            before = late._runtime.keyring.secrets
            with pytest.raises(iris.ConfigurationError, match=r"To retire now would discard it.*iris keys retire --abandon"):
                await late.rotate_secret("retire", KEY)
            assert (number(late), late._runtime.keyring.secrets) == (1, before)
            for step in STEPS[:2]:
                with pytest.raises(iris.ConfigurationError, match="there is nothing to abandon"):
                    await late.rotate_secret(step, KEY, abandon=True)
            await late.rotate_secret("retire", KEY, abandon=True)
            await everywhere(simulation, [*nodes, late], 3)
            assert secrets(late) == (OLD,)
            for count, step in enumerate(STEPS, 4):
                assert (await late.rotate_secret(step, KEY)).number == count
            assert len(secrets(late)) == 1
            assert secrets(late) != (OLD,)

    run(scenario(), limit_s=300)


@pytest.mark.parametrize(
    ("before", "step", "after"),
    [
        (0, "add", 1),
        (1, "rotate", 2),
        (2, "retire", 3),
        (3, "add", 4),
        (1, "add", 4),
        (1, "retire", 3),
        (2, "rotate", 5),
        (2, "add", 4),
    ],
)
def test_the_number_of_a_step_says_which_step_it_was(before: int, step: RotationStep, after: int) -> None:
    assert next_number(before, step) == after


def test_a_node_that_has_no_administrator_takes_no_step() -> None:
    async def scenario() -> None:
        async with NodeSimulation(7) as simulation:
            nodes = await simulation.start_nodes(2)
            with pytest.raises(iris.ConfigurationError, match="no administrator"):
                await nodes[0].rotate_secret("add", KEY)
            assert all(not node._core.peers.rotation._sides[link].told for node in nodes for link in links(node))

    run(scenario(), limit_s=60)


def test_secrets_that_are_read_again_unchanged_stay_those_of_the_administrator() -> None:
    async def scenario() -> None:
        async with NodeSimulation(8) as simulation:
            nodes = [await simulation.start_node(keyring=KEYRING) for _ in range(2)]
            for step in STEPS:
                await nodes[0].rotate_secret(step, KEY)
            await everywhere(simulation, nodes, 3)
            before = secrets(nodes[1])
            nodes[1].reload_keys()
            assert secrets(nodes[1]) == before
            nodes[1].rekey(KEYRING)  # a program that says otherwise is taken at its word
            assert secrets(nodes[1]) == (OLD,)

    run(scenario(), limit_s=60)
