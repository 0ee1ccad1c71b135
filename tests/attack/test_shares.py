"""A hostile peer on a link where groups may be shared: bodies that only the records seal, with no proof or a wrong one.

The attacker holds the secret of the network, and that of the cluster "open", but not that of the cluster "vault".
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from tests.attack.recorder import Recorder, linked
from tests.wire.client import BODY, PING, PONG, REPLY, REQUEST, SHARE, UNICAST, Group, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.api.awaitable_context import Opening
    from tests.integration.conftest import Loops

SECRET, OWN = bytes(range(32)), bytes(range(32, 64))


class Work(iris.Handler):
    """Answers, and keeps what came."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.requests.append(request.payload)
        return b"re:" + request.payload


def connect(*seeds: str) -> Opening[iris.Node]:
    return iris.connect(secret=SECRET, clusters={"vault": OWN}, discovery=False, seeds=seeds)


def drops_of(node: iris.Node) -> dict[str, int]:
    return {
        reason: count for reason, count in node.statistics().drops.items() if reason in ("unproven", "replayed", "unauthentic")
    }


def request(number: int, payload: bytes) -> bytes:
    """Return a body with one request in it."""
    return struct.pack(">BBHIQI", REQUEST, 0, 0, len(payload), number, 5_000) + payload


def share(client: WireClient, group: Group, *, is_answer: bool = False, side: bytes = b"i", hash_of: bytes = b"") -> bytes:
    """Return a proof as it travels: by default the right one of an offer."""
    return bytes((is_answer,)) + group.id + group.link_proof(hash_of or client.handshake_hash, side)


async def let_read(client: WireClient) -> list[tuple[int, bytes]]:
    """Return when the node has read what was sent before: the frames that it said meanwhile, but for those of the ring."""
    client.send_frame(PING, b"")
    frames = []
    while (frame := await client.next_frame())[0] != PONG:
        frames.append(frame)
    return [(kind, body) for kind, body in frames if kind in (UNICAST, SHARE, BODY)]


def skip(client: WireClient, group: Group, other: WireClient) -> list[bytes]:
    """Prove nothing."""
    return []


def reflect(client: WireClient, group: Group, other: WireClient) -> list[bytes]:
    """Say the proof that the node itself would say."""
    return [share(client, group, side=b"r"), share(client, group, side=b"r", is_answer=True)]


def replay_from_another_link(client: WireClient, group: Group, other: WireClient) -> list[bytes]:
    """Say the proof of another link, which the attacker has to the same node."""
    return [
        share(client, group, hash_of=other.handshake_hash),
        share(client, group, hash_of=other.handshake_hash, is_answer=True),
    ]


def prove_another_group(client: WireClient, group: Group, other: WireClient) -> list[bytes]:
    """Prove a group that the attacker is in, and name it as this one."""
    elsewhere = Group(SECRET, "default", "cluster", "elsewhere")
    mine = share(client, elsewhere)
    return [mine, mine[:1] + group.id + mine[17:]]


def answer_unasked(client: WireClient, group: Group, other: WireClient) -> list[bytes]:
    """Say the right proof, as the answer to a question that nobody asked."""
    return [share(client, group, is_answer=True)]


@pytest.mark.parametrize(
    "lie", [skip, reflect, replay_from_another_link, prove_another_group, answer_unasked], ids=lambda lie: lie.__name__
)
def test_a_body_without_the_proof_of_its_group_on_its_link_is_dropped(
    loop: Loops, lie: Callable[[WireClient, Group, WireClient], list[bytes]]
) -> None:
    async def main() -> None:
        work = Work()
        async with (
            connect() as node,
            node.join("open", work),
            linked(WireClient(SECRET), node) as client,
            linked(WireClient(SECRET), node) as other,
        ):
            group = client.group("cluster", "open")
            for body in lie(client, group, other):
                client.send_frame(SHARE, body)
            client.send_frame(BODY, group.id + request(1, b"unproven"))
            assert [kind for kind, _body in await let_read(client)] == []
            assert drops_of(node)["unproven"] >= 1
            assert work.requests == []
            # The link goes on, and what is sealed as it has to be is taken.
            client.send(group, REQUEST, 2, 5_000, b"sealed")
            kind, _group, id_, *_rest = await client.next_body()
            assert (kind, id_, work.requests) == (REPLY, 2, [b"sealed"])

    loop.run(main())


def test_who_lacks_the_secret_of_a_cluster_shares_it_with_nobody(loop: Loops) -> None:
    """Not by the proof that the network's secret would give, nor by the words of a member that it stands between."""

    async def main() -> None:
        work = Work()
        async with connect() as node, node.join("vault", work), linked(Recorder(SECRET), node) as attacker:
            wrong, vault = Group(SECRET, "default", "cluster", "vault"), Group(OWN, "default", "cluster", "vault")
            forged = wrong.link_proof(attacker.handshake_hash, b"i")
            async with linked(WireClient(SECRET, proves=True), node) as member:
                member.groups[vault.id] = vault
                member.offer(vault)
                member.send(vault, REQUEST, 1, 5_000, b"a member")
                assert (await member.next_body())[:1] == (REPLY,)
                overheard = share(member, vault)[17:]
            for proof in (forged, overheard):
                for is_answer in (b"\0", b"\1"):
                    attacker.send_frame(SHARE, is_answer + vault.id + proof)
            attacker.send_frame(BODY, vault.id + request(2, b"an insider"))
            assert await let_read(attacker) == []
            assert drops_of(node) == {"unproven": 5}
            assert work.requests == [b"a member"]

    loop.run(main())


def test_both_forms_may_be_mixed_and_each_message_counts_once(loop: Loops) -> None:
    async def main() -> None:
        work = Work()
        async with connect() as node, node.join("open", work), linked(WireClient(SECRET, proves=True), node) as client:
            group = client.group("cluster", "open")
            client.offer(group)
            sealed = [client.seal_message(group, REQUEST, number, 5_000, b"%d" % number) for number in (1, 3, 5)]
            for number, body in zip((2, 4, 6), sealed, strict=True):
                client.send_frame(UNICAST, body)
                client.send_frame(BODY, group.id + request(number, b"%d" % number))
            for body in sealed:  # once more, now that the other form is known
                client.send_frame(UNICAST, body)
                client.send_frame(BODY, body)  # and in that form: it is no message
            answered: set[int] = set()
            while len(answered) < 6:
                kind, _group, id_, _argument, _head, payload, _flags = await client.next_body()
                assert (kind, payload) == (REPLY, b"re:%d" % id_)
                answered.add(id_)
            await let_read(client)
            assert sorted(work.requests) == [b"%d" % number for number in range(1, 7)]
            assert drops_of(node) == {"replayed": 3}

    loop.run(main())


def test_a_thousand_offers_are_answered_once(loop: Loops) -> None:
    async def main() -> None:
        async with connect() as node, node.join("open", Work()), linked(WireClient(SECRET), node) as client:
            group = client.group("cluster", "open")
            for _ in range(1000):
                client.send_frame(SHARE, share(client, group))
            assert [kind for kind, _body in await let_read(client)] == [SHARE]
            assert drops_of(node) == {}

    loop.run(main())


@pytest.mark.parametrize("size", [0, 1, 32, 34, 200])
def test_a_proof_of_another_size_breaks_the_rules(loop: Loops, size: int) -> None:
    async def main() -> None:
        async with connect() as node, node.join("open", Work()), linked(WireClient(SECRET), node) as client:
            client.send_frame(SHARE, bytes(size))
            await loop.until(lambda: client._reader.at_eof() or not node._core.peers._infos, "the link ended")

    loop.run(main())
