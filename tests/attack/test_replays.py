"""An attacker repeats what honest nodes have said: records of another link, datagrams, requests, registrations, broadcasts.

It is an outsider for records and datagrams. The rest it sees as an insider that forwards what others say, and sends it again.
"""

from __future__ import annotations

import itertools
import struct
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

import iris_py as iris
from tests.attack.insider import SECRET
from tests.attack.recorder import DatagramSocket, Recorder, linked
from tests.wire.client import CONTROL, DIRECT, MULTICAST, REQUEST, UNICAST, Group, WireClient, pack, pack_permit, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops, Proxy

ROUTED, RELAY, PAYLOAD = 18, 3, 0
REGISTER, UNREGISTER, CAST_DOWN = 0, 1, 20
BROADCAST = 6
PACKET = b"\0"
CLOCK_QUESTION, CLOCK_ANSWER = 32, 33
CAST_EPOCH = 1 << 31


class Work(iris.Handler):
    """Answers, and keeps what came."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.broadcasts: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.requests.append(request.payload)
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        self.broadcasts.append(message.payload)


def connect(*seeds: str) -> Opening[iris.Node]:
    return iris.connect(secret=SECRET, discovery=False, seeds=seeds)


def drops_of(node: iris.Node, reason: str) -> int:
    return node.statistics().drops.get(reason, 0)


# -- records


def one(at: int, number: int, mine: bytes, other: list[bytes]) -> bytes:
    return other[number] if number == at < len(other) else mine


def rest(at: int, number: int, mine: bytes, other: list[bytes]) -> bytes:
    return other[number] if number >= at and number < len(other) else mine


@pytest.mark.parametrize("is_dialler", [True, False], ids=["there", "back"])
@pytest.mark.parametrize("splice", [one, rest], ids=lambda splice: splice.__name__)
def test_records_of_one_link_break_another_one(
    loop: Loops, proxy: type[Proxy], splice: Callable[[int, int, bytes, list[bytes]], bytes], is_dialler: bool
) -> None:
    at = 12
    records: tuple[list[bytes], list[bytes]] = ([], [])  # of the first connection and the second
    changed: list[int] = []

    def change(connection: int, number: int, from_dialler: bool, record: bytes) -> list[bytes] | None:
        if from_dialler is not is_dialler or connection > 1:
            return [record]
        records[connection].append(record)
        spliced = splice(at, number, record, records[0]) if connection else record
        if spliced != record:
            changed.append(number)
        return [spliced]

    async def main() -> None:
        work = Work()
        async with (
            connect() as service,
            service.join("echo", work),
            proxy(service.address, change) as splicer,
            connect(splicer.address) as first,
            connect(splicer.address) as second,
        ):
            said = []
            for number in range(2 * at):  # the first connection has said more than the second, record by record
                for caller, times in ((first, 2), (second, 1)):
                    for part in range(times):
                        payload = f"{caller.id} {number} {part}".encode()
                        said.append(payload)
                        await caller.broadcast("echo", payload)
                        assert await caller.request("echo", payload, idempotent=True, timeout=30.0) == payload
            assert changed[:1] == [at]
            await loop.until(lambda: splicer.closed, "the link broken")
            assert set(work.requests) == set(said)
            assert len(set(work.broadcasts)) == len(work.broadcasts)
            for caller in (first, second):
                sent = [each for each in said if each.startswith(caller.id.encode())]
                came = [each for each in work.broadcasts if each.startswith(caller.id.encode())]
                assert came == [each for each in sent if each in set(came)], "order"

    loop.run(main())


# -- datagrams


def test_a_datagram_is_answered_once_in_any_order_and_by_nobody_else(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as node, connect(node.address) as other, linked(Recorder(SECRET), node) as client:
            target, elsewhere = client.peer[0], bytes.fromhex(other.id)
            with DatagramSocket(node) as socket, DatagramSocket(other) as further:
                answered = [await socket.ping(client, target) for _ in range(5)]
                replayed, refused = (drops_of(node, "datagram") for _ in range(2))
                for datagram in [*answered, *reversed(answered)] * 5:
                    socket.send(datagram)
                await loop.until(lambda: drops_of(node, "datagram") >= replayed + 50, "all were looked at")
                # Later ones first: each is answered, and only once.
                fresh = [client.seal_datagram([65, 1000 + number, client.id, target, None]) for number in range(10)]
                answers: list[bytes] = []
                for datagram in [*reversed(fresh), *fresh]:
                    socket.send(datagram)
                await loop.until(lambda: len(collect(answers, socket)) >= len(fresh), "all are answered")
                # The head of one with the rest of another, and what lacks its end.
                refused = drops_of(node, "datagram")
                pairs = [(one, other_one) for one, other_one in itertools.pairwise(fresh)]
                spliced = [head[:33] + tail[33:] for head, tail in pairs] + [each[:-1] for each in fresh] + [fresh[0][:33]]
                for datagram in spliced:
                    socket.send(datagram)
                await loop.until(lambda: drops_of(node, "datagram") >= refused + len(spliced), "all were looked at")
                await socket.ping(client, target)
                assert len(answers) == len(fresh)
                assert not socket.answers()
                # Another node opens them, for it has not seen them; but it is not the one that is asked.
                for datagram in [*answered, *fresh]:
                    further.send(datagram)
                await further.ping(client, elsewhere)
                assert not further.answers()

    loop.run(main())


def collect(answers: list[bytes], socket: DatagramSocket) -> list[bytes]:
    answers += socket.answers()
    return answers


# -- requests


def test_a_request_is_executed_once_however_often_its_sender_repeats_its_packet(loop: Loops) -> None:
    async def main() -> None:
        work = Work()
        async with connect() as node, node.join("echo", work):
            async with linked(Recorder(SECRET), node) as client:
                group = client.group("cluster", "echo")
                packets = [client.seal_message(group, REQUEST, number, 5_000, b"%d" % number) for number in range(4)]
                for number in (2, 0, 2, 3, 1, 0, 0, 3):  # repeated and reordered; each is a packet of its own
                    client.send_frame(UNICAST, packets[number])
                await loop.until(lambda: len(work.requests) >= len(packets), "all came")
            assert work.requests == [b"2", b"0", b"3", b"1"]
            again = Recorder(SECRET)
            again.signer, again.id, again.hello = client.signer, client.id, client.hello
            async with linked(again, node):  # another link of the same node
                for packet in packets:
                    again.send_frame(UNICAST, packet)
                await loop.until(lambda: drops_of(node, "replayed") == 8, "all were seen to be repeated")
            assert len(work.requests) == 4

    loop.run(main())


def test_a_packet_is_of_no_use_to_whoever_else_sends_it(loop: Loops) -> None:
    async def main() -> None:
        work, bystander = Work(), Work()
        async with (
            connect() as node,
            node.join("echo", work),
            connect(node.address) as other,
            other.join("echo", bystander),
            linked(Recorder(SECRET), node) as client,
            linked(Recorder(SECRET), node) as thief,
            linked(Recorder(SECRET), other) as elsewhere,
        ):
            group = client.group("cluster", "echo")
            for kind in (UNICAST, MULTICAST):
                packet = client.seal_message(group, REQUEST, 1, 5_000, b"mine")
                thief.send_frame(kind, packet)
                elsewhere.send_frame(kind, packet)
            await loop.until(lambda: drops_of(node, "unauthentic") == 2 and drops_of(other, "unauthentic") == 2, "none opens")
            assert not work.requests
            assert not bystander.requests
            assert await client.ask("echo", b"from its sender") == b"from its sender"

    loop.run(main())


class Source(Recorder):
    """An honest node that is reached through the ring: it makes messages, and others carry them."""

    def __init__(self, node: iris.Node) -> None:
        super().__init__(SECRET)
        self.peer = [bytes.fromhex(node.id), [node.address], ""]
        self.numbers = 0

    def route(self, kind: int, key: bytes, message: bytes) -> list[Any]:
        """Return a message for the root of a key."""
        self.numbers += 1
        said = pack_permit([ROUTED, kind, key, self.hello, self.numbers, [], message])
        signature = self.signer.sign(b"overlay", said)
        return [ROUTED, self.numbers, kind, key, self.hello, self.numbers, [self.id], [], message, [], signature]

    def packet(self, group: Group, number: int, payload: bytes) -> bytes:
        """Return a request as it goes through the ring, sent when the clock of this node shows a second."""
        body = self.seal_message(group, REQUEST, number, 60_000, payload)
        return PACKET + bytes((UNICAST,)) + body[:28] + struct.pack(">Q", 1000) + body[28:]

    async def tell_clock(self) -> None:
        """Answer the question for the clock of this node: it has just shown a second."""
        while True:
            kind, body = await self.next_frame()
            if (
                kind == CONTROL
                and (message := unpack(body))[0] == DIRECT
                and message[2][:2] == PACKET + bytes((CLOCK_QUESTION,))
            ):
                answer = PACKET + bytes((CLOCK_ANSWER,)) + message[2][2:] + struct.pack(">Q", 1001)
                self.send_frame(CONTROL, pack([DIRECT, self.hello, answer]))
                return

    def registration(self, tag: int, stamp: int) -> bytes:
        """Return that it is a member of the cluster from now on, or is it no more."""
        group = self.group("cluster", "echo")
        attributes, since = group.proof(self.id), int(time.time() * 1000)
        permit = group.permits.sign(b"permit", pack_permit([1, self.id, stamp, since, attributes]))
        item = [group.id, attributes, stamp, permit, since] if tag == REGISTER else [group.id, stamp]
        return pack([tag, self.hello, [item]])

    def cast_down(self, sequence: int, at: int, payload: bytes) -> list[Any]:
        """Return a broadcast as it comes down a tree."""
        group = self.group("cluster", "echo")
        nonce = struct.pack(">IQ", CAST_EPOCH, sequence)
        body = struct.pack(">BBHIQI", BROADCAST, 0, 0, len(payload), sequence, 0) + payload
        sealed = group.body_key(self.id, CAST_EPOCH).encrypt(nonce, body, group.id + self.id + b"cast")
        piece = struct.pack(">HH12s", 0, 1, nonce) + sealed
        signature = self.signer.sign(b"overlay", pack_permit([CAST_DOWN, group.id, sequence, at, sha256(piece).digest()]))
        return [CAST_DOWN, group.id, self.id, sequence, False, 1, piece, signature, at]


def forward(hop: WireClient, message: list[Any], number: int) -> None:
    """Send a message of another node on, as a hop does; each time under a number of the hop's own."""
    path = [*message[6], hop.id]
    hop.send_frame(CONTROL, pack([*message[:1], number, *message[2:6], path, *message[7:]]))


def test_a_routed_request_is_executed_once(loop: Loops) -> None:
    async def main() -> None:
        work = Work()
        async with (
            connect() as node,
            node.join("echo", work),
            linked(Recorder(SECRET), node) as hop,
            linked(Source(node), node) as source,
        ):
            numbers, group = itertools.count(1), source.group("cluster", "echo")
            packet = source.packet(group, 1, b"once")
            relayed = pack([DIRECT, source.hello, packet])
            first = source.route(RELAY, source.peer[0], relayed)
            for _ in range(5):
                forward(hop, first, next(numbers))
            await source.tell_clock()
            await loop.until(lambda: work.requests, "it came")
            # As if the ring had forgotten the number, which it remembers for a minute: the packet is known still.
            forward(hop, source.route(RELAY, source.peer[0], relayed), next(numbers))
            await loop.until(lambda: drops_of(node, "replayed") == 1, "it was seen to be repeated")
            # Changed, in the name of the hop, and for somebody else.
            forward(hop, [*first[:5], first[5] + 100, *first[6:]], next(numbers))
            forward(hop, [*first[:4], hop.hello, *first[5:]], next(numbers))
            hop.send_frame(CONTROL, pack([DIRECT, hop.hello, packet]))
            await loop.until(lambda: drops_of(node, "unauthentic") == 1, "the hop cannot have made it")
            assert work.requests == [b"once"]
            packet = source.packet(group, 2, b"twice")
            other = pack([DIRECT, source.hello, packet])
            forward(hop, source.route(RELAY, source.peer[0], other), next(numbers))
            await loop.until(lambda: work.requests == [b"once", b"twice"], "the next one comes")

    loop.run(main())


def test_a_registration_that_is_repeated_brings_nobody_back(loop: Loops) -> None:
    async def main() -> None:
        async with (
            connect() as node,
            node.join("echo", Work()),
            linked(Recorder(SECRET), node) as hop,
            linked(Source(node), node) as source,
            linked(Source(node), node) as another,
        ):
            numbers, key = itertools.count(1), source.group("cluster", "echo").id

            def members() -> set[str]:
                return {member.id for member in node.members("echo")}

            joins = source.registration(REGISTER, 1 << 32)
            leaves = source.registration(UNREGISTER, (1 << 32) + 1)
            routed = [source.route(PAYLOAD, key, joins), source.route(PAYLOAD, key, leaves)]
            forward(hop, routed[0], next(numbers))
            await loop.until(lambda: members() == {node.id, source.id.hex()}, "it is a member")
            forward(hop, routed[1], next(numbers))
            await loop.until(lambda: members() == {node.id}, "it is none")
            for message in (*routed, source.route(PAYLOAD, key, joins)):  # and as if the number was forgotten
                forward(hop, message, next(numbers))
            # All before was looked at when what comes after it counts.
            forward(hop, another.route(PAYLOAD, key, another.registration(REGISTER, 1 << 32)), next(numbers))
            await loop.until(lambda: another.id.hex() in members(), "another one is a member")
            assert members() == {node.id, another.id.hex()}

    loop.run(main())


# -- broadcasts


def test_a_broadcast_down_the_tree_comes_once_in_order_and_not_to_who_joins_later(loop: Loops) -> None:
    async def main() -> None:
        work = Work()
        async with connect() as node, linked(Recorder(SECRET), node) as parent:
            source = Source(node)

            def send(message: list[Any]) -> None:
                parent.send_to_root(message)

            membership = await node.join("echo", work)
            at = int(time.time() * 1000) + 1
            casts = [source.cast_down(number, at, b"%d" % number) for number in range(1, 5)]
            for index in (0, 2, 1, 0, 3, 3, 2, 0):  # reordered and repeated
                send(casts[index])
            await loop.until(lambda: len(work.broadcasts) >= 4, "all came")
            assert work.broadcasts == [b"1", b"2", b"3", b"4"]
            counters = node._core.overlay.counters
            for part in (
                2,
                3,
                5,
                6,
                8,
            ):  # changed: of another node, with another number, a later base, another body, a later time
                changed: list[Any] = list(source.cast_down(5, at, b"5"))
                changed[part] = {2: parent.id, 3: 6, 5: 6, 6: changed[6][:-1] + bytes([changed[6][-1] ^ 1]), 8: at + 10_000}[
                    part
                ]
                send(changed)
            await loop.until(lambda: counters.casts_invalid == 5, "none is believed")
            await membership.leave()
            await node.join("echo", work)
            early = counters.casts_early
            for cast in casts:
                send(cast)
            later = Source(node)
            send(later.cast_down(1, int(time.time() * 1000) + 60_000, b"new"))
            await loop.until(lambda: b"new" in work.broadcasts, "what is new comes")
            assert work.broadcasts == [b"1", b"2", b"3", b"4", b"new"]
            assert counters.casts_early == early + len(casts)

    loop.run(main())
