"""An insider, who holds the network secret and speaks the wire format as it likes: its attacks, and honest nodes to attack.

The attacker is the stranger's node of tests/wire, which knows no rules.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import iris_py as iris
from tests.wire.client import CONTROL, DIRECT, MULTICAST, UNICAST, Group, WireClient, pack, pack_permit

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

SECRET, OWN = bytes(range(32)), bytes(range(32, 64))
#: How often each attack is made at each node.
TIMES = 20
#: Everything is whole again after so long (seconds), of the event loop; nothing takes a tenth of it on a quiet machine. A test
#: that waits for it has this as its patience, and as its limit so much.
WHOLE_S, WHOLE_PATIENCE_S, WHOLE_LIMIT_S = 60.0, 150.0, 180.0
#: What all repetitions of an attack together may cause: connections that the honest nodes make, and entries that stay in the
#: tables of a node. Some attacks name thousands of nodes, and each costs a few entries where it is believed.
DIALS_MAX, ENTRIES_MAX = 400, 600
EXTREME = (1 << 63) - 1
#: A record with one frame has so many bytes besides: its length, that of the frame with the type, and the tag.
RECORD_OVERHEAD_BYTES = 4 + 5 + 16
#: A message of a kind that nobody knows, and nothing in it.
EMPTY = struct.pack(">BBHIQI", 99, 0, 0, 0, 0, 0)
FRAGMENT, FRAGMENT_END = 7, 8
#: A little less than the largest body that a node takes, and what of it goes into a record.
BODY_BYTES, FRAGMENT_BYTES = 64 * 1024 * 1024 - 4096, 64 * 1024

Attack: TypeAlias = "Callable[[Insider], None]"


class Target(Protocol):
    """A node, as the attacker knows it."""

    @property
    def id(self) -> str:
        """Its id, as hexadecimal digits."""

    @property
    def address(self) -> str:
        """Where it listens."""


class Insider(WireClient):
    """The attacker: what it knows, and ways to send it."""

    def __init__(self, member: Target, caller: Target) -> None:
        super().__init__(SECRET)
        self.member, self.caller = bytes.fromhex(member.id), bytes.fromhex(caller.id)
        self.addresses = {self.member: member.address, self.caller: caller.address}
        self.echo = self.group("cluster", "echo")
        self.vault = self.group("cluster", "vault")  # under the network's secret, which is the wrong one
        self.topic = self.group("realm", "topics")
        self.bodies = 0
        self.sent_bytes = 0

    def send_frame(self, kind: int, body: bytes) -> None:
        super().send_frame(kind, body)
        self.sent_bytes += len(body) + RECORD_OVERHEAD_BYTES

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

    def registration(self, group: Group, stamp: int, since: int) -> list[Any]:
        """Return what the holder of a group's key says of itself in a registration."""
        attributes = group.proof(self.id)
        permit = group.permits.sign(b"permit", pack_permit([1, self.id, stamp, since, attributes]))
        return [group.id, attributes, stamp, permit, since]

    def record(self, info: list[Any], stamp: int, since: int) -> list[Any]:
        """Return what a directory of the cluster holds of a member: everybody has the key of this one."""
        attributes = self.echo.proof(info[0])
        return [info, attributes, stamp, self.permit([1, info[0], stamp, since, attributes]), since]

    def table_record(self, info: list[Any], *, has_proof: bool = True) -> list[Any]:
        """Return what a table holds of a member, without its entries."""
        attributes = self.topic.proof(info[0]) if has_proof else bytes(16)
        permit = self.topic.permits.sign(b"permit", pack_permit([1, info[0], 1 << 32, 0, attributes]))
        return [info, attributes, 1 << 32, permit, 0]

    def claim_entries(self, stamp: int, entries: bytes, base: int = 0, count: int | None = None) -> None:
        """Claim packed entries."""
        attributes = self.topic.proof(self.id)
        permit = self.topic.permits.sign(b"permit", pack_permit([1, self.id, stamp, 0, attributes]))
        checksum = hashlib.blake2b(entries, digest_size=8).digest()
        count = len(entries) // 20 if count is None else count
        self.tell([28, self.hello, self.topic.id, attributes, stamp, permit, base, count, checksum, entries, b""])

    def table_part(self, version: int, records: list[Any], entries: bytes, *rest: Any) -> list[Any]:
        """Return a whole table, told in the place of the root, in which all members have the same entries."""
        rows = [[record[0][0], 0, record[2], entries, b""] for record in records]
        return [31, self.hello, self.topic.id, 0, version, len(records), True, 0, 1, records, rows, [], *rest]

    def packet(self, body: bytes, epoch: int, counter: int) -> bytes:
        """Return a body for the peer as it travels in a frame."""
        nonce, sealing = struct.pack(">IQ", epoch, counter), self.echo.body_key(self.id, epoch)
        return self.echo.id + nonce + sealing.encrypt(nonce, body, self.echo.id + self.id + self.peer[0])

    def routed(self, key: bytes, source: list[Any], message: list[Any], signature: bytes = b"") -> list[Any]:
        self.bodies += 1
        return [18, self.bodies, 0, key, source, EXTREME - self.bodies, [source[0]], [], pack(message), [], signature]


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


def tell_a_view_of_invented_members_with_proofs(attacker: Insider) -> None:
    members = [attacker.record(invented(number), 1 << 32, 0) for number in range(32)]
    attacker.tell([10, attacker.hello, attacker.echo.id, EXTREME, 32, True, members])


def copy_invented_members(attacker: Insider) -> None:
    members = [[invented(number), bytes(16), 1 << 32, bytes(96)] for number in range(64)]
    for version in (1, 1 << 40, EXTREME):
        attacker.tell([13, attacker.echo.id, 0, version, True, True, members, [], [], []])


def copy_invented_members_with_permits(attacker: Insider) -> None:
    members = [attacker.record(invented(number), 1 << 32, 0) for number in range(2)]
    attacker.tell([13, attacker.echo.id, 0, 1 << 40, True, True, members, [], [], [], True])


def copy_that_everybody_left(attacker: Insider) -> None:
    attacker.tell([13, attacker.echo.id, 0, 1 << 40, True, True, [], [[attacker.member, EXTREME]], [], []])


def drop_the_copy(attacker: Insider) -> None:
    attacker.tell([15, attacker.echo.id])


def make_it_an_inner_node(attacker: Insider) -> None:
    children = [invented(number) for number in range(32)]
    attacker.tell([16, attacker.hello, attacker.echo.id, EXTREME, children])


def cast_in_the_name_of_another(attacker: Insider) -> None:
    permit, at = attacker.permit([2, attacker.caller]), EXTREME
    attacker.tell([20, attacker.echo.id, attacker.caller, EXTREME, False, EXTREME, b"x" * 100, bytes(96), at])
    attacker.tell([18, attacker.info(attacker.caller), attacker.echo.id, EXTREME, 0, b"x" * 100, bytes(96), permit, at])


def acknowledge_the_future(attacker: Insider) -> None:
    attacker.tell([2, attacker.hello, [[attacker.echo.id, EXTREME, EXTREME, False]]])
    attacker.tell([12, attacker.echo.id, EXTREME])
    attacker.tell([14, attacker.echo.id, EXTREME])
    attacker.tell([19, attacker.echo.id, EXTREME])
    attacker.tell([22, [attacker.echo.id]])


def register_with_extreme_numbers(attacker: Insider) -> None:
    for stamp, since in ((1 << 32, EXTREME), (EXTREME, 0), (EXTREME, EXTREME)):
        attacker.tell([0, attacker.hello, [attacker.registration(attacker.echo, stamp, since)]])
    attacker.tell([1, attacker.hello, [[attacker.echo.id, EXTREME]]])


def register_and_say_nothing_more(attacker: Insider) -> None:
    attacker.tell([0, attacker.hello, [attacker.registration(attacker.echo, 1 << 32, 0)]])


def register_without_the_secret_of_the_cluster(attacker: Insider) -> None:
    attacker.tell([0, attacker.hello, [attacker.registration(attacker.vault, 1 << 32, 0)]])
    _group, *rest = attacker.registration(attacker.vault, 1 << 32, 0)
    attacker.tell([0, attacker.hello, [[os.urandom(16), *rest]]])


def say_that_a_member_joined_at_the_end_of_time(attacker: Insider) -> None:
    for since in (EXTREME - 1, EXTREME):
        attacker.tell([23, attacker.echo.id, attacker.record(attacker.hello, 1 << 32, since)])


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
    attacker.ring([18, EXTREME, 3, os.urandom(16), attacker.hello, EXTREME, path, [attacker.id], bytes(1000), [], bytes(96)])
    attacker.ring([21, path, attacker.hello, pack([27]), attacker.member, EXTREME, bytes(96)])


def pause_the_publisher(attacker: Insider) -> None:
    entry = attacker.topic.entry("numbers.>")
    attacker.send(attacker.topic, 10, int.from_bytes(entry[12:], "big"), int.from_bytes(entry[8:12], "big"), b"")


def empty_messages(attacker: Insider) -> None:
    attacker.bodies += 1
    attacker.send_frame(UNICAST, attacker.packet(EMPTY * 3_000, 2, attacker.bodies))


def epochs_and_counters_at_their_ends(attacker: Insider) -> None:
    for epoch, counter in ((0xFFFF_FFFF, (1 << 64) - 1), (0xFFFF_FFFF, 0), (1 << 31, EXTREME), (0, (1 << 64) - 1)):
        attacker.send_frame(UNICAST, attacker.packet(EMPTY, epoch, counter))


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


def entries_of_many_shapes(first: bytes, count: int) -> bytes:
    """Return packed entries, each of a shape of its own as far as there are shapes, under one stem."""
    shapes = [length << 17 | 1 << 16 | literal for length in range(1, 16) for literal in range(1 << length)]
    usable = [shape for shape in shapes if (shape & 1) == (first != bytes(8))]
    packed = {first + struct.pack(">IQ", usable[number % len(usable)], number) for number in range(count)}
    return b"".join(sorted(packed))


def claim_as_many_entries_as_may_be(attacker: Insider) -> None:
    stem = attacker.topic.entry("numbers.x")[:8]
    attacker.claim_entries(1 << 32, entries_of_many_shapes(stem, 8_192))
    attacker.claim_entries((1 << 32) + 1, entries_of_many_shapes(bytes(8), 8_192))


def claim_more_entries_than_may_be(attacker: Insider) -> None:
    attacker.claim_entries(1 << 32, entries_of_many_shapes(bytes(8), 16_385), count=16_384)


def claim_without_end(attacker: Insider) -> None:
    for number in range(500):
        attacker.claim_entries((1 << 32) + number, attacker.topic.entry(f"numbers.x{number}"))


def claim_with_extreme_numbers(attacker: Insider) -> None:
    entry = attacker.topic.entry("numbers.>")
    for stamp, base in ((1 << 32, EXTREME), (EXTREME, 0), (EXTREME, EXTREME)):
        attacker.claim_entries(stamp, entry, base)
    attacker.tell([29, attacker.topic.id, EXTREME])


def claim_for_another(attacker: Insider) -> None:
    info, entry = attacker.info(attacker.member), attacker.topic.entry("other.>")
    attributes = attacker.topic.proof(attacker.member)
    permit = attacker.topic.permits.sign(b"permit", pack_permit([1, attacker.member, EXTREME, 0, attributes]))
    checksum = hashlib.blake2b(entry, digest_size=8).digest()
    attacker.tell([28, info, attacker.topic.id, attributes, EXTREME, permit, 0, 1, checksum, entry, b""])


def tell_an_empty_table(attacker: Insider) -> None:
    attacker.tell(attacker.table_part(EXTREME, [], b""))
    attacker.tell([31, attacker.hello, attacker.topic.id, 0, EXTREME, 1, True, 0, 1, [], [], [], b"", os.urandom(16)])


def tell_a_table_of_invented_members(attacker: Insider) -> None:
    for has_proof in (False, True):
        records = [attacker.table_record(invented(number), has_proof=has_proof) for number in range(4)]
        attacker.tell(attacker.table_part(1 << 40, records, attacker.topic.entry("numbers.>")))


def tell_entries_that_a_member_has_not(attacker: Insider) -> None:
    records = [attacker.table_record(attacker.info(node)) for node in (attacker.member, attacker.caller)]
    attacker.tell(attacker.table_part(1 << 40, records, attacker.topic.entry(">")))


def copy_a_table_of_invented_members(attacker: Insider) -> None:
    records = [attacker.table_record(invented(number)) for number in range(2)]
    rows = [[record[0][0], 0, record[2], attacker.topic.entry("numbers.>"), b""] for record in records]
    attacker.tell([32, attacker.topic.id, 0, 1 << 40, True, True, records, [], [], [], True, rows])
    attacker.tell([32, attacker.topic.id, 0, EXTREME, True, True, [], [[attacker.member, EXTREME]], [], [], False, []])


def promote_what_few_subscribe_to(attacker: Insider) -> None:
    entry = attacker.topic.entry("numbers.>")
    attacker.tell([33, attacker.topic.id, entry])
    attacker.tell([32, attacker.topic.id, 0, 1 << 40, True, True, [], [], [], [], True, [], entry])


def watch_the_table_with_extreme_versions(attacker: Insider) -> None:
    permit = attacker.topic.permits.sign(b"permit", pack_permit([2, attacker.id]))
    for version in (0, 1 << 40, EXTREME):
        attacker.tell([30, attacker.hello, EXTREME, attacker.topic.id, version, permit, True])


ATTACKS: list[Attack] = [
    unregister_another,
    unregister_another_through_the_ring,
    relay_in_the_name_of_another,
    accuse,
    doubt,
    accused,
    tell_an_empty_view,
    tell_a_view_of_invented_members,
    tell_a_view_of_invented_members_with_proofs,
    copy_invented_members,
    copy_invented_members_with_permits,
    copy_that_everybody_left,
    drop_the_copy,
    make_it_an_inner_node,
    cast_in_the_name_of_another,
    acknowledge_the_future,
    register_with_extreme_numbers,
    register_and_say_nothing_more,
    say_that_a_member_joined_at_the_end_of_time,
    register_without_the_secret_of_the_cluster,
    watch_with_extreme_versions,
    invent_leaves,
    be_active_and_silent,
    leave_for_another,
    route_in_circles,
    pause_the_publisher,
    empty_messages,
    epochs_and_counters_at_their_ends,
    bodies_that_do_not_open,
    answers_that_nobody_asked_for,
    frames_and_messages_of_the_future,
    malformed,
    claim_a_generation,
    claim_as_many_entries_as_may_be,
    claim_more_entries_than_may_be,
    claim_without_end,
    claim_with_extreme_numbers,
    claim_for_another,
    tell_an_empty_table,
    tell_a_table_of_invented_members,
    tell_entries_that_a_member_has_not,
    copy_a_table_of_invented_members,
    promote_what_few_subscribe_to,
    watch_the_table_with_extreme_versions,
]


def sizes_of(node: iris.Node) -> int:
    """Return how many entries the tables of a node have, without those that members of the table of interest may claim."""
    sizes = node._core.overlay.table_sizes()
    return sum(sizes.values()) - sizes["root_entries"]


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

    async def check_broadcasts(self, loop: Loops, caller: iris.Node, *, timeout: float) -> None:
        """Let a broadcast come to each cluster."""
        for cluster in ("vault", "echo"):
            payload = os.urandom(8)
            assert await caller.broadcast(cluster, payload) >= 1
            async with asyncio.timeout(timeout):  # one may go to a root that was made up; the next one need not
                await loop.until(partial(self.broadcasts.__contains__, payload), "the broadcast came")

    async def become_whole(self, loop: Loops, member: iris.Node, caller: iris.Node) -> None:
        """Work until everything is as it was before the attack, for at most `WHOLE_S`. Whoever is not there is found by use."""
        deadline = asyncio.get_running_loop().time() + WHOLE_S
        while True:
            try:
                await self.check(member, caller, timeout=5.0)
                await self.check_broadcasts(loop, caller, timeout=5.0)
                assert [each.id for each in caller.members("echo")] == [member.id]
            except (iris.IrisError, AssertionError, TimeoutError):
                if asyncio.get_running_loop().time() > deadline:
                    raise
            else:
                return


class Work(iris.Handler):
    """Answers, and notes broadcasts."""

    def __init__(self, broadcasts: list[bytes]) -> None:
        self.broadcasts = broadcasts

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.broadcasts.append(message.payload)


async def attack_one(target: Target, nodes: tuple[Target, Target], attack: Attack, times: int = TIMES) -> int:
    """Make an attack at a node, again and again; whoever is put out comes back. Returns the bytes of all records."""
    sent, client = 0, None
    for _ in range(times):
        try:
            if client is None:
                client = Insider(*nodes)
                host, port = target.address.split(":")
                await client.connect(host, int(port))
            before = client.sent_bytes
            attack(client)
            sent += client.sent_bytes - before
            await client._writer.drain()
            await asyncio.sleep(0)
        except (OSError, asyncio.IncompleteReadError):
            if client is not None and hasattr(client, "_writer"):
                client._writer.close()
            client = None
    if client is not None:
        client._writer.close()
    return sent


async def attack_both(nodes: tuple[Target, Target], attack: Attack) -> None:
    """Make an attack at both nodes."""
    for target in nodes:
        await attack_one(target, nodes, attack)
