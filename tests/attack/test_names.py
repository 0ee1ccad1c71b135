"""Many names of one host: in whatever message an insider names them, a node dials that host now and then, and not once a name.

All names are those of one victim, as a wildcard of the attacker's domain makes them. Only the resolver knows where they lead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Self, get_args

import msgspec
import pytest

import iris_py as iris
from iris_overlay.groups.messages import (
    CastUp,
    GroupMessage,
    GroupRegistration,
    Look,
    MemberRecord,
    Register,
    Watch,
    encode_group_message,
    member_part,
    user_part,
)
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo, encode_beacon
from iris_overlay.peers.dial_back import DIAL_BACK
from iris_overlay.peers.reachability import CHECK_DIAL, DIAL_CHECKED
from iris_overlay.ring.messages import (
    Direct,
    Returned,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
    signed_part,
)
from iris_py.net import sockets
from iris_py.net.resting_addresses import DIALS_MAX, REST_S
from tests.attack.insider import SECRET, Insider
from tests.attack.recorder import DatagramSocket, let_read, linked
from tests.attack.test_hearsay import KINDS
from tests.fuzz.source import Source
from tests.fuzz.values import Values
from tests.wire.client import CONTROL, PING, PONG, WireClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.integration.conftest import Loops

DOMAIN = ".victim.example"
HERE = "127.0.0.1"
#: How many messages of a kind an insider sends over each of its links, and how many links it has one after the other.
MESSAGES, LINKS = 10, 10
#: A node that has looked up so many names would have dialled as often; it has its time to answer an insider (seconds).
NAMES_MIN, READ_S = 12, 5.0
#: Messages that name other nodes to dial at once; of most others the node dials only who says them.
SURELY_DIALLED = {"LeafProbe", "LeafAck", "JoinAnswer", "RowAnswer", "MergeHint", "Copy"}


class Victim:
    """A program that is no node, which closes every connection; every name of the domain leads to its host.

    Attributes:
        dialled: How many connections came.
        asked: The looked-up names with the victim's port.
    """

    def __init__(self, asked: defaultdict[int, list[str]]) -> None:
        self.dialled = 0
        self.port = 0
        self._lookups = asked
        self._named = 0
        self._began = 0.0

    @property
    def asked(self) -> list[str]:
        return self._lookups[self.port]

    def names(self, count: int = 8) -> tuple[str, ...]:
        """Return new addresses, with a name each."""
        first, self._named = self._named, self._named + count
        return tuple(f"n{number}{DOMAIN}:{self.port}" for number in range(first, first + count))

    def made_up(self) -> NodeInfo:
        """Return a node that does not exist, with names of the victim for addresses."""
        return NodeInfo(NodeId(os.urandom(16)), self.names())

    def _accept(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        writer.close()

    async def __aenter__(self) -> Self:
        self._began = asyncio.get_running_loop().time()
        self._server = await asyncio.start_server(self._accept, HERE, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Accept no more."""
        self._server.close()
        await self._server.wait_closed()

    @property
    def most(self) -> float:
        """The most connections that one address may have got until now."""
        return DIALS_MAX * ((asyncio.get_running_loop().time() - self._began) / REST_S + 1)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> defaultdict[int, list[str]]:
    """Let all names of the domain lead to this machine; return the names that were looked up, by the port of the dial."""
    found = defaultdict[int, list[str]](list)
    resolve = sockets._resolve

    async def look_up(loop: Any, host: str, port: int) -> list[Any]:
        if not host.endswith(DOMAIN):
            return await resolve(loop, host, port)
        found[port].append(host)
        return [(socket.AF_INET, (HERE, port))]

    monkeypatch.setattr(sockets, "_resolve", look_up)
    return found


class Liar(Insider):
    """An insider that names nodes which do not exist, with every proof that it can make, and the victim as its own address.

    Args:
        node: The node to lie to.
        victim: Has the names.
        before: The same insider on an earlier link.
    """

    def __init__(self, node: iris.Node, victim: Victim, before: Liar | None = None) -> None:
        super().__init__(node, node)
        if before is not None:
            self.signer, self.id = before.signer, before.id
        self.own = NodeInfo(NodeId(self.id), victim.names())
        self.hello = [self.id, list(self.own.addresses), ""]

    def say(self, message: Any) -> None:
        """Send a message of the ring or of groups."""
        if isinstance(message, get_args(GroupMessage)):
            message = Direct(self.own, encode_group_message(message))
        self.send_frame(CONTROL, encode_ring_message(message))

    async def next_answer(self, first: bytes) -> bytes:
        """Return the next payload of the node that begins with a byte."""
        while True:
            kind, body = await self.next_frame()
            if kind == PING:
                self.send_frame(PONG, body)
            elif kind == CONTROL:
                message = decode_ring_message(body)
                if isinstance(message, Direct) and message.payload[:1] == first:
                    return message.payload

    def prove(self, value: Any) -> Any:
        """Return a message or a part of one, with the permits and signatures of this node and of the cluster's key."""
        sign, own = self.echo.permits.sign, self.own
        if isinstance(value, list | tuple):
            return type(value)(self.prove(each) for each in value)
        if not isinstance(value, msgspec.Struct):
            return value
        value = msgspec.structs.replace(value, **{name: self.prove(getattr(value, name)) for name in value.__struct_fields__})
        senders = {name: own for name in ("info", "source") if isinstance(getattr(value, name, None), NodeInfo)}
        if senders and not isinstance(value, MemberRecord):
            value = msgspec.structs.replace(value, **senders)
        if isinstance(value, MemberRecord):
            value = msgspec.structs.replace(value, attributes=self.echo.proof(value.info.id), stamp=1 << 32, since=0)
            return msgspec.structs.replace(value, permit=sign(b"permit", member_part(value, value.info.id)))
        if isinstance(value, GroupRegistration):
            value = msgspec.structs.replace(value, attributes=self.echo.proof(own.id), stamp=1 << 32, since=0)
            return msgspec.structs.replace(value, permit=sign(b"permit", member_part(value, own.id)))
        permit = sign(b"permit", user_part(own.id))
        if isinstance(value, Register):
            return Register(own, value.items)
        if isinstance(value, Watch):
            return Watch(own, 1 << 32, [(group, version, permit) for group, version, _ in value.items])
        if isinstance(value, Look | CastUp):
            return msgspec.structs.replace(value, permit=permit)
        if isinstance(value, Routed | Returned):
            return msgspec.structs.replace(value, signature=self.signer.sign(b"overlay", signed_part(value)))
        return value


async def use(node: iris.Node) -> None:
    """Ask the cluster, so that the node needs links to its members."""
    with contextlib.suppress(iris.IrisError):
        await node.request("echo", b"", timeout=0.3, idempotent=True)


async def lie(node: iris.Node, victim: Victim, messages: Callable[[Liar], list[Any]]) -> None:
    """Say something over a few links of one insider, the last of which ends."""
    liar = None
    for _ in range(LINKS):
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            liar = Liar(node, victim, liar)
            async with linked(liar, node):
                for message in messages(liar):
                    liar.say(message)
                async with asyncio.timeout(READ_S):
                    await let_read(liar)
    await use(node)


async def until_dialled(loop: Loops, node: iris.Node, victim: Victim) -> None:
    """Return when a node has looked up several names, or has no more names to dial."""

    def is_over() -> bool:
        sizes = node._core.overlay.table_sizes()
        is_quiet = not (sizes["waited_for"] or sizes["dials"] or sizes["candidates"])
        return is_quiet or (victim.dialled > 0 and len(victim.asked) >= NAMES_MIN)

    await loop.until(is_over, "the node has dialled whom it wants to")


def test_names_of_one_host_in_a_message_are_dialled_as_one_address(loop: Loops, lookups: defaultdict[int, list[str]]) -> None:
    most: dict[str, float] = {}
    dialled: dict[str, int] = {}

    async def attack(kind: Any) -> None:
        async with Victim(lookups) as victim, iris.connect(secret=SECRET, discovery=False) as node:
            rng, made_up = random.Random(7), [victim.made_up() for _ in range(192)]
            await node.join("echo", lambda _request: b"")

            def messages(liar: Liar) -> list[Any]:
                values = Values([liar.own] * 64 + made_up, [GroupId(liar.echo.id)])
                return [liar.prove(values.message(kind, Source(rng.randbytes(400)))) for _ in range(MESSAGES)]

            await lie(node, victim, messages)
            await until_dialled(loop, node, victim)
            most[kind.__name__], dialled[kind.__name__] = victim.most, victim.dialled

    async def main() -> None:
        await asyncio.gather(*map(attack, KINDS))

    loop.run(main())
    assert not {kind: count for kind, count in dialled.items() if count > most[kind]}
    assert {kind for kind, count in dialled.items() if count} >= SURELY_DIALLED


def relayed(liar: Liar, victim: Victim, payload: bytes) -> Routed:
    """Return a message through the ring by another identity of the attacker, which never had a link."""
    other = WireClient(SECRET)
    source = NodeInfo(NodeId(other.id), victim.names())
    data, peer = encode_ring_message(Direct(source, payload)), NodeId(liar.peer[0])
    message = Routed(1, RoutedKind.RELAY, peer, source, 1, (source.id, liar.own.id), (), data)
    return msgspec.structs.replace(message, signature=other.signer.sign(b"overlay", signed_part(message)))


@pytest.mark.parametrize("payload", [DIAL_BACK, CHECK_DIAL], ids=["dial back", "dial check"])
def test_identities_that_ask_for_dials_of_names_of_one_host_get_few(
    loop: Loops, lookups: defaultdict[int, list[str]], payload: bytes
) -> None:
    async def main() -> None:
        async with (
            Victim(lookups) as victim,
            iris.connect(secret=SECRET, discovery=False) as node,
            linked(Liar(node, victim), node) as liar,
        ):
            for _ in range(MESSAGES):
                liar.say(relayed(liar, victim, payload))
            await let_read(liar)
            await until_dialled(loop, node, victim)
            assert 0 < victim.dialled <= victim.most

    loop.run(main())


def test_a_met_insider_that_asks_for_dial_checks_of_names_of_one_host_gets_few(
    loop: Loops, lookups: defaultdict[int, list[str]]
) -> None:
    async def main() -> None:
        async with (
            Victim(lookups) as victim,
            iris.connect(secret=SECRET, discovery=False) as node,
            linked(Liar(node, victim), node) as liar,
        ):
            said = 0
            while len(victim.asked) < NAMES_MIN:
                liar.say(Direct(NodeInfo(liar.own.id, victim.names()), CHECK_DIAL))
                said += 1
                answer = await liar.next_answer(DIAL_CHECKED)
                assert b"victim" in answer, "each address was dialled in its turn"
                assert 0 < victim.dialled <= victim.most
            assert said < NAMES_MIN

    loop.run(main())


def test_beacons_with_names_of_one_host_cause_few_dials(loop: Loops, lookups: defaultdict[int, list[str]]) -> None:
    secret = os.urandom(32)  # beacons reach the whole machine

    async def main() -> None:
        async with Victim(lookups) as victim, iris.connect(secret=secret, network="names") as node:
            with DatagramSocket(node) as datagrams:

                def is_heard() -> bool:
                    client = WireClient(secret, "names")
                    beacon = encode_beacon(NodeInfo(NodeId(client.id), victim.names(4)), wants_answer=True, peers=0)
                    assert beacon is not None
                    datagrams.send(client.seal_datagram(msgspec.msgpack.decode(beacon)))
                    return len(victim.asked) >= NAMES_MIN

                await loop.until(is_heard, "the node has looked up many names")
                assert 0 < victim.dialled <= victim.most

    loop.run(main())
