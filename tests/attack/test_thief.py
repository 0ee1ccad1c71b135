"""A thief of an old secret, who has recorded the traffic, too (docs/security.md)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import struct
from typing import TYPE_CHECKING, Final

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

import iris_py as iris
from iris_security import Keyring, Secret
from tests.attack.recorder import DatagramSocket, Recorder, address_of, linked
from tests.wire.client import CLOSE, MULTICAST, REPLY, REQUEST, UNICAST, Group, WireClient, hkdf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.conftest import Loops

OLD, NEW = b"o" * 32, b"n" * 32
IDLE = b"\x03"
REJECTION, NOT_A_MEMBER = 4, 2
#: The steps of a rotation, as each node takes them: the new one is accepted, it seals, the old one is retired.
STEPS: Final = (
    Keyring(Secret(OLD), accepted=[Secret(NEW)]),
    Keyring(Secret(NEW), accepted=[Secret(OLD)]),
    Keyring(Secret(NEW)),
)


class Echo(iris.Handler):
    """Answers, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        self.asked.append(request.payload)
        return request.payload

    async def on_broadcast(self, message: iris.Message) -> None:
        pass


def test_a_thief_is_an_insider_until_the_secret_is_retired(loop: Loops) -> None:
    async def main() -> None:
        handler = Echo()
        async with (
            iris.connect(keyring=Keyring(Secret(OLD)), discovery=False) as node,
            node.join("echo", handler),
            linked(Recorder(OLD), node) as friend,
        ):
            for keyring in STEPS[:2]:
                node.rekey(keyring)
                async with linked(Recorder(OLD), node) as insider:
                    with DatagramSocket(node) as datagrams:
                        await datagrams.ping(insider, insider.peer[0])
            assert await friend.ask("echo", b"as long as it is accepted") == b"as long as it is accepted"
            recorded, asked = b"".join(friend.recorded), list(handler.asked)

            node.rekey(STEPS[-1])
            assert await end_of(friend) == IDLE  # its link has shown no generation that is accepted now
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                async with linked(Recorder(OLD), node):
                    pass
            thief = Recorder(OLD)
            async with linked(Recorder(NEW), node) as honest:
                with DatagramSocket(node) as datagrams:
                    dropped = node.statistics().drops.get("datagram", 0)
                    for number in range(10):
                        datagrams.send(thief.seal_datagram([65, number, thief.id, honest.peer[0], None]))
                    await loop.until(lambda: node.statistics().drops.get("datagram", 0) >= dropped + 10, "all were looked at")
                    await datagrams.ping(honest, honest.peer[0])  # the first answer that comes is for who has the new one
                    assert not datagrams.answers()
                # What a friend said when it was accepted.
                reader, writer = await asyncio.open_connection(*address_of(node))
                writer.write(recorded)
                assert await reader.read() == b""
                writer.close()
                assert handler.asked == asked
                assert await honest.ask("echo", b"who has the new one") == b"who has the new one"

    loop.run(main())


async def end_of(client: WireClient) -> bytes:
    """Take what comes until the peer closes the link; return the reason."""
    while True:
        kind, body = await client.next_frame()
        if kind == CLOSE:
            return body


def test_who_has_a_retired_secret_of_a_cluster_neither_asks_nor_serves_it(loop: Loops) -> None:
    network = Secret(bytes(range(32)))
    steps = [Keyring(network, clusters={"vault": each}) for each in (Secret(OLD), (Secret(NEW), Secret(OLD)), Secret(NEW))]

    async def main() -> None:
        handler = Echo()
        async with (
            iris.connect(keyring=steps[0], discovery=False) as node,
            node.join("vault", handler),
            linked(Recorder(network.value), node) as thief,
        ):
            old, new = (Group(secret, "default", "cluster", "vault") for secret in (OLD, NEW))
            thief.groups |= {group.id: group for group in (old, new)}
            for keyring in steps[:2]:
                node.rekey(keyring)
                thief.send(old, REQUEST, 7, 5_000, b"accepted")
                assert (await thief.next_body())[:3] == (REPLY, old, 7)
            await thief.register(old)
            node.rekey(steps[-1])
            thief.send(old, REQUEST, 8, 5_000, b"retired")
            assert (await thief.next_body())[:4] == (REJECTION, old, 8, NOT_A_MEMBER)
            # It is a member where nobody looks.
            assert await node.request("vault", b"asked by a friend") == b"asked by a friend"
            assert await node.broadcast("vault", b"for friends") == 1
            assert [member.id for member in node.members("vault")] == [node.id]
            thief.send(new, REQUEST, 9, 5_000, b"new")
            assert (await thief.next_body())[:3] == (REPLY, new, 9)  # and nothing of the cluster came before
            assert handler.asked == [b"accepted", b"accepted", b"asked by a friend", b"new"]

    loop.run(main())


class Carrier(Recorder):
    """A node on the way: it keeps the packets that come, as they are sealed from end to end."""

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self.packets: list[bytes] = []

    async def next_frame(self) -> tuple[int, bytes]:
        kind, body = await super().next_frame()
        if kind in (UNICAST, MULTICAST):
            self.packets.append(bytes((kind,)) + body)
        return kind, body


def opens(packet: bytes, group: Group, sender: bytes, receiver: bytes) -> bool:
    """Tell whether the holder of a group's key can read a packet, whatever group it says that it is of."""
    group_id, nonce, sealed = packet[1:17], packet[17:29], packet[29:]
    key = group.body_key(sender, struct.unpack(">I", nonce[:4])[0])
    try:
        key.decrypt(nonce, sealed, group_id + sender + (receiver if packet[0] == UNICAST else b""))
    except InvalidTag:
        return False
    return True


def test_what_travels_under_one_secret_does_not_open_under_the_other(loop: Loops) -> None:
    async def main() -> None:
        async with iris.connect(keyring=STEPS[0], discovery=False) as node, node.join("echo", Echo()):
            for secret, other, keyring in ((OLD, NEW, STEPS[0]), (NEW, OLD, STEPS[-1])):
                node.rekey(keyring)
                async with linked(Carrier(secret), node) as carrier:
                    await carrier.register(carrier.group("cluster", "echo"))
                    assert await node.broadcast("echo", b"a broadcast") >= 1
                    assert (await carrier.next_body())[5] == b"a broadcast"
                    await carrier.ask("echo", b"a request")
                assert sorted(packet[0] for packet in carrier.packets) == [UNICAST, MULTICAST]
                for packet in carrier.packets:
                    assert opens(packet, Group(secret, "default", "cluster", "echo"), carrier.peer[0], carrier.id)
                    assert not opens(packet, Group(other, "default", "cluster", "echo"), carrier.peer[0], carrier.id)

    loop.run(main())


def test_what_a_cluster_says_under_one_secret_does_not_open_under_the_other(loop: Loops) -> None:
    """Nor under that of the network, which whoever is on the way has."""
    network = Secret(bytes(range(32)))

    async def main() -> None:
        async with (
            iris.connect(keyring=Keyring(network, clusters={"vault": Secret(OLD)}), discovery=False) as node,
            node.join("vault", Echo()),
        ):
            for secret, others in ((OLD, (NEW, network.value)), (NEW, (OLD, network.value))):
                steps = [(OLD, NEW), (NEW, OLD), (NEW,)] if secret == NEW else []
                for step in steps:
                    node.rekey(Keyring(network, clusters={"vault": [Secret(each) for each in step]}))
                group = Group(secret, "default", "cluster", "vault")
                async with linked(Carrier(network.value), node) as carrier:
                    carrier.groups[group.id] = group
                    await carrier.register(group)
                    assert await node.broadcast("vault", b"a broadcast") >= 1
                    assert (await carrier.next_body())[5] == b"a broadcast"
                    carrier.send(group, REQUEST, 7, 5_000, b"a request")
                    assert (await carrier.next_body())[:3] == (REPLY, group, 7)
                assert sorted(packet[0] for packet in carrier.packets) == [UNICAST, MULTICAST]
                for packet in carrier.packets:
                    assert opens(packet, group, carrier.peer[0], carrier.id)
                    for other in others:
                        assert not opens(packet, Group(other, "default", "cluster", "vault"), carrier.peer[0], carrier.id)

    loop.run(main())


# -- links of the past


def noise_hkdf(chaining_key: bytes, data: bytes, count: int) -> list[bytes]:
    """HKDF of the Noise Protocol Framework, section 4.3."""
    extracted, found = hmac.digest(chaining_key, data, "sha256"), [b""]
    for number in range(1, count + 1):
        found.append(hmac.digest(extracted, found[-1] + bytes((number,)), "sha256"))
    return found[1:]


class Transcript:
    """A recorded handshake (NNpsk0), as far as the holder of the secret can follow it: all but the exchange of keys.

    Args:
        secret: Of the network.
        first: The initiator's message, with its preamble.
        second: The responder's, without its length.
    """

    def __init__(self, secret: bytes, first: bytes, second: bytes) -> None:
        preamble, message = first[:17], first[19:]
        self._hash = self._chaining = b"Noise_NNpsk0_25519_AESGCM_SHA256"
        self._mix_hash(preamble + b"default")
        self._chaining, temporary, _key = noise_hkdf(self._chaining, hkdf(secret, b"default", b"iris link"), 3)
        self._mix_hash(temporary)
        self.initiator, sealed = message[:32], message[32:]
        key = self._mix(self.initiator)
        AESGCM(key).decrypt(bytes(12), sealed, self._hash)  # so far the secret is all that it takes
        self._mix_hash(sealed)
        self.responder, self._sealed = second[:32], second[32:]
        self._mix(self.responder)

    def record_keys(self, exchanged: bytes | None) -> tuple[bytes, bytes]:
        """Return the keys of both directions if that is what both ephemeral keys make; None leaves the exchange out.

        Raises:
            InvalidTag: It is not: the rest of the second message does not open.
        """
        chaining, key = self._chaining, noise_hkdf(self._chaining, b"", 2)[1]
        if exchanged is not None:
            chaining, key = noise_hkdf(self._chaining, exchanged, 2)
        AESGCM(key).decrypt(bytes(12), self._sealed, self._hash)
        there, back = noise_hkdf(chaining, b"", 2)
        return there, back

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _mix(self, public: bytes) -> bytes:
        """Handle an ephemeral key: it is hashed, and a part of the keys, for there is a pre-shared one (section 9.2)."""
        self._mix_hash(public)
        self._chaining, key = noise_hkdf(self._chaining, public, 2)
        return key


def guesses(transcript: Transcript) -> Iterator[bytes | None]:
    """Yield what a thief may take for the result of the exchange, who has neither of the two private keys."""
    yield None
    yield from (bytes(32), transcript.initiator, transcript.responder, hkdf(OLD, b"default", b"iris link"), OLD)
    for private in (OLD, hkdf(OLD, b"default", b"iris link"), transcript.initiator, transcript.responder):
        for public in (transcript.initiator, transcript.responder):
            yield X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))


def test_a_recorded_link_does_not_open_with_the_stolen_secret(loop: Loops) -> None:
    async def main() -> None:
        async with (
            iris.connect(secret=OLD, discovery=False) as node,
            node.join("echo", Echo()),
            linked(Recorder(OLD), node) as client,
        ):
            assert await client.ask("echo", b"of the past") == b"of the past"
        first, hello, *_rest = client.recorded
        length = struct.unpack_from(">H", client.heard)[0]
        transcript = Transcript(OLD, first, bytes(client.heard[2 : 2 + length]))
        for guess in guesses(transcript):
            with pytest.raises(InvalidTag):
                transcript.record_keys(guess)
        # With the private key of either side everything opens: that is what the thief lacks.
        private = X25519PrivateKey.from_private_bytes(client.ephemeral)
        there, back = transcript.record_keys(private.exchange(X25519PublicKey.from_public_bytes(transcript.responder)))
        cipher = AESGCM if client.suite == 1 else ChaCha20Poly1305
        assert cipher(there).decrypt(bytes(12), hello[4:], None)[:1] == b"\0"
        at = 2 + length
        size = struct.unpack_from(">I", client.heard, at)[0]
        assert cipher(back).decrypt(bytes(12), bytes(client.heard[at + 4 : at + 4 + size]), None)[:1] == b"\x02"

    loop.run(main())
