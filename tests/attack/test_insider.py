"""An insider, who holds the network secret and speaks the wire format as it likes, against real nodes (docs/security.md).

The attacker is the stranger's node of tests/wire, which knows no rules. Each attack is repeated while honest nodes work; they
have to go on, and everything has to be whole when it is over.
"""

from __future__ import annotations

import asyncio
import os
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

import iris_py as iris
from tests.wire.client import CONTROL, DIRECT, MULTICAST, UNICAST, WireClient, pack, pack_permit

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.opening import Opening
    from tests.integration.conftest import Loops

SECRET, OWN = bytes(range(32)), bytes(range(32, 64))
#: How often each attack is made at each node.
TIMES = 20
#: Everything is whole again after so long (seconds), of the event loop.
WHOLE_S = 30.0
EXTREME = (1 << 63) - 1

Attack: TypeAlias = "Callable[[Insider], None]"


class Insider(WireClient):
    """The attacker: what it knows, and ways to send it."""

    def __init__(self, member: iris.Node, caller: iris.Node) -> None:
        super().__init__(SECRET)
        self.member, self.caller = bytes.fromhex(member.id), bytes.fromhex(caller.id)
        self.addresses = {self.member: member.address, self.caller: caller.address}
        self.echo = self.group("cluster", "echo")
        self.vault = self.group("cluster", "vault")  # under the network's secret, which is the wrong one
        self.topic = self.group("topic", "numbers")
        self.bodies = 0

    def info(self, node: bytes) -> list[Any]:
        return [node, [self.addresses[node]], ""]

    def tell(self, message: list[Any]) -> None:
        """Send a message about groups."""
        self.send_to_root(message)

    def ring(self, message: list[Any]) -> None:
        """Send a message of the ring."""
        self.send_frame(CONTROL, pack(message))

    def permit(self, statement: list[Any]) -> bytes:
        return self.echo.permits.sign(b"permit", pack_permit(statement))

    def routed(self, key: bytes, source: list[Any], message: list[Any], signature: bytes = b"") -> list[Any]:
        self.bodies += 1
        return [18, self.bodies, 0, key, source, EXTREME - self.bodies, [source[0]], False, pack(message), [], signature]


def invented(number: int) -> list[Any]:
    """Return a node that does not exist."""
    return [os.urandom(16), [f"127.0.0.1:{20_000 + number}"], ""]


def unregister_another(attacker: Insider) -> None:
    attacker.tell([1, attacker.info(attacker.member), [[attacker.echo.id, EXTREME]]])


def unregister_another_through_the_ring(attacker: Insider) -> None:
    victim = attacker.info(attacker.member)
    forged = attacker.signer.sign(b"overlay", b"something else")
    attacker.ring(attacker.routed(attacker.echo.id, victim, [1, victim, [[attacker.echo.id, EXTREME]]], forged))


def relay_in_the_name_of_another(attacker: Insider) -> None:
    attacker.ring([DIRECT, attacker.info(attacker.member), pack([1, attacker.info(attacker.member), [[attacker.echo.id, 1]]])])


def accuse(attacker: Insider) -> None:
    attacker.tell([5, attacker.member, EXTREME, attacker.echo.id])
    attacker.tell([5, attacker.member, (1 << 32) + 5, attacker.echo.id])


def doubt(attacker: Insider) -> None:
    attacker.tell([6, attacker.echo.id, attacker.member])


def accused(attacker: Insider) -> None:
    attacker.tell([3, attacker.member, EXTREME])


def tell_an_empty_view(attacker: Insider) -> None:
    attacker.tell([10, attacker.hello, attacker.echo.id, EXTREME, 0, True, []])
    attacker.tell([11, attacker.echo.id, 0, EXTREME, 0, [], [attacker.member]])


def tell_a_view_of_invented_members(attacker: Insider) -> None:
    members = [[invented(number), bytes(16), 1 << 32, b""] for number in range(32)]
    attacker.tell([10, attacker.hello, attacker.echo.id, 1 << 20, 32, True, members])


def copy_invented_members(attacker: Insider) -> None:
    members = [[invented(number), bytes(16), 1 << 32, bytes(96)] for number in range(64)]
    for version in (1, 1 << 40, EXTREME):
        attacker.tell([13, attacker.echo.id, 0, version, True, True, members, [], [], []])


def copy_that_everybody_left(attacker: Insider) -> None:
    attacker.tell([13, attacker.echo.id, 0, 1 << 40, True, True, [], [[attacker.member, EXTREME]], [], []])


def drop_the_copy(attacker: Insider) -> None:
    attacker.tell([15, attacker.echo.id])


def make_it_an_inner_node(attacker: Insider) -> None:
    children = [invented(number) for number in range(32)]
    attacker.tell([16, attacker.hello, attacker.echo.id, EXTREME, children])


def cast_in_the_name_of_another(attacker: Insider) -> None:
    attacker.tell([20, attacker.echo.id, attacker.caller, EXTREME, False, EXTREME, b"x" * 100, bytes(96)])
    attacker.tell([18, attacker.info(attacker.caller), attacker.echo.id, EXTREME, 0, b"x" * 100, bytes(96), bytes(96)])


def acknowledge_the_future(attacker: Insider) -> None:
    attacker.tell([2, attacker.hello, [[attacker.echo.id, EXTREME, EXTREME, False]]])
    attacker.tell([12, attacker.echo.id, EXTREME])
    attacker.tell([14, attacker.echo.id, EXTREME])
    attacker.tell([19, attacker.echo.id, EXTREME])
    attacker.tell([22, [attacker.echo.id]])


def register_with_extreme_numbers(attacker: Insider) -> None:
    stamp, attributes = EXTREME, attacker.echo.proof(attacker.id)
    permit = attacker.permit([1, attacker.id, stamp, attributes])
    attacker.tell([0, attacker.hello, [[attacker.echo.id, attributes, stamp, permit]]])
    attacker.tell([1, attacker.hello, [[attacker.echo.id, EXTREME]]])


def register_without_the_secret_of_the_cluster(attacker: Insider) -> None:
    attributes = attacker.vault.proof(attacker.id)
    permit = attacker.vault.permits.sign(b"permit", pack_permit([1, attacker.id, 1 << 32, attributes]))
    for group in (attacker.vault.id, os.urandom(16)):
        attacker.tell([0, attacker.hello, [[group, attributes, 1 << 32, permit]]])


def watch_with_extreme_versions(attacker: Insider) -> None:
    permit = attacker.permit([2, attacker.id])
    attacker.tell([8, attacker.hello, EXTREME, [[attacker.echo.id, EXTREME, permit]]])
    attacker.tell([8, attacker.hello, EXTREME, [[attacker.echo.id, EXTREME, bytes(96)]]])


def invent_leaves(attacker: Insider) -> None:
    leaves = [invented(number) for number in range(64)]
    attacker.ring([16, attacker.hello, leaves, True])
    attacker.ring([22, attacker.hello, leaves, leaves])
    attacker.ring([26, invented(1), 1])


def be_active_and_silent(attacker: Insider) -> None:
    attacker.ring([17, attacker.hello, [], True, True])


def leave_for_another(attacker: Insider) -> None:
    attacker.ring([27])


def route_in_circles(attacker: Insider) -> None:
    path = [attacker.member, attacker.caller] * 16
    attacker.ring([18, EXTREME, 3, os.urandom(16), attacker.hello, EXTREME, path, True, bytes(1000), [], bytes(96)])
    attacker.ring([21, path, attacker.hello, pack([27]), attacker.member, EXTREME, bytes(96)])


def pause_the_publisher(attacker: Insider) -> None:
    attacker.send(attacker.topic, 10, 0, 0, b"")


def empty_messages(attacker: Insider) -> None:
    body = struct.pack(">BBHIQI", 99, 0, 0, 0, 0, 0) * 3_000
    nonce = struct.pack(">IQ", 2, attacker.bodies)
    attacker.bodies += 1
    sealed = attacker.echo.body_key(attacker.id, 2).encrypt(nonce, body, attacker.echo.id + attacker.id + attacker.peer[0])
    attacker.send_frame(UNICAST, attacker.echo.id + nonce + sealed)


def bodies_that_do_not_open(attacker: Insider) -> None:
    for kind in (UNICAST, MULTICAST):
        attacker.send_frame(kind, attacker.echo.id + os.urandom(12) + os.urandom(200))
        attacker.send_frame(kind, os.urandom(16) + os.urandom(12) + os.urandom(200))


def answers_that_nobody_asked_for(attacker: Insider) -> None:
    for kind in (2, 3, 4, 5, 8, 13):
        for id_ in (0, 1, 2, 3, EXTREME, (1 << 64) - 1):
            attacker.send(attacker.echo, kind, id_, 0xFFFF_FFFF, b"\x92\xa1x\xa1y")


def frames_and_messages_of_the_future(attacker: Insider) -> None:
    attacker.send_frame(200, os.urandom(100))
    attacker.ring([120, b"something"])
    attacker.tell([120, b"something"])


def malformed(attacker: Insider) -> None:
    attacker.send_frame(CONTROL, b"\xc1")


def claim_a_generation(attacker: Insider) -> None:
    attacker.send_frame(11, b"\0" + os.urandom(24))


ATTACKS: list[Attack] = [
    unregister_another,
    unregister_another_through_the_ring,
    relay_in_the_name_of_another,
    accuse,
    doubt,
    accused,
    tell_an_empty_view,
    tell_a_view_of_invented_members,
    copy_invented_members,
    copy_that_everybody_left,
    drop_the_copy,
    make_it_an_inner_node,
    cast_in_the_name_of_another,
    acknowledge_the_future,
    register_with_extreme_numbers,
    register_without_the_secret_of_the_cluster,
    watch_with_extreme_versions,
    invent_leaves,
    be_active_and_silent,
    leave_for_another,
    route_in_circles,
    pause_the_publisher,
    empty_messages,
    bodies_that_do_not_open,
    answers_that_nobody_asked_for,
    frames_and_messages_of_the_future,
    malformed,
    claim_a_generation,
]


class Honest:
    """Two nodes that work: a member with a cluster, one with a secret of its own and a subscription, and its caller."""

    def __init__(self) -> None:
        self.executed: list[bytes] = []
        self.broadcasts: list[bytes] = []
        self.published: list[bytes] = []

    def connect(self, *seeds: str) -> Opening[iris.Node]:
        return iris.connect(secret=SECRET, clusters={"vault": OWN}, discovery=False, seeds=seeds)

    async def check(self, member: iris.Node, caller: iris.Node, *, timeout: float = 10.0) -> None:
        """Let each way of talking work once."""
        payload = os.urandom(8)
        for cluster in ("echo", "vault"):
            assert await caller.request(cluster, payload, timeout=timeout, idempotent=True) == payload
        assert await asyncio.wait_for(caller.publish("numbers.x", payload), timeout) >= 1
        assert [each.id for each in caller.members("vault")] == [member.id]

    async def check_broadcasts(self, loop: Loops, caller: iris.Node) -> None:
        """Let a broadcast come to each cluster."""
        for cluster in ("vault", "echo"):
            payload = os.urandom(8)
            assert await caller.broadcast(cluster, payload) >= 1
            await loop.until(partial(self.broadcasts.__contains__, payload), "the broadcast came")


class Work(iris.Handler):
    """Answers, and notes broadcasts."""

    def __init__(self, broadcasts: list[bytes]) -> None:
        self.broadcasts = broadcasts

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.broadcasts.append(message.payload)


async def attack_both(attacker: tuple[iris.Node, iris.Node], attack: Attack) -> None:
    """Make an attack at both nodes, again and again; whoever is put out comes back."""
    for target in attacker:
        client: Insider | None = None
        for _ in range(TIMES):
            try:
                if client is None:
                    client = Insider(*attacker)
                    host, port = target.address.split(":")
                    await client.connect(host, int(port))
                attack(client)
                await client._writer.drain()
                await asyncio.sleep(0)
            except (OSError, asyncio.IncompleteReadError):
                if client is not None and hasattr(client, "_writer"):
                    client._writer.close()
                client = None
        if client is not None:
            client._writer.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_insider_breaks_nothing_for_good(loop: Loops, attack: Attack) -> None:
    async def main() -> None:
        honest = Honest()
        async with honest.connect() as member, honest.connect(member.address) as caller:
            published: list[bytes] = []
            handler = Work(honest.broadcasts)
            async with (
                member.join("echo", handler),
                member.join("vault", handler),
                member.subscribe("numbers.>", lambda message: published.append(message.payload)),
            ):
                await caller.members("vault")
                await honest.check(member, caller)
                await attack_both((member, caller), attack)
                deadline = asyncio.get_running_loop().time() + WHOLE_S
                while True:
                    try:
                        await honest.check(member, caller, timeout=5.0)
                        await honest.check_broadcasts(loop, caller)
                        break
                    except (iris.IrisError, AssertionError, TimeoutError):
                        if asyncio.get_running_loop().time() > deadline:
                            raise
                await loop.until(lambda: [each.id for each in caller.members("echo")] == [member.id], "one member")
                assert not set(published) & {b"x" * 100}
                for node in (member, caller):
                    sizes = node._core.overlay.table_sizes()
                    assert max(sizes.values()) < 2_000, sizes

    loop.run(main(), patience_s=150)
