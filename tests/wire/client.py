"""A node of Iris that does what docs/wire.md says: it imports nothing of Iris, and has a Noise and a msgpack of its own.

It speaks over one link to one real node. It does not take part in the ring (it says that it is in none), and it answers no
datagrams, so the real node takes it for dead after a few seconds: long enough for a test.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import struct
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from noise.connection import NoiseConnection

HELLO, PING, PONG, CLOSE, CONTROL, UNICAST, MULTICAST = range(7)
SHARE, BODY = 15, 16
TUNNEL, TUNNEL_SEALED = 9, 17
REQUEST, REPLY, BROADCAST, PUBLICATION, TUNNEL_OPEN, TUNNEL_ACCEPT = 1, 2, 6, 9, 12, 13
FLOW = 19
#: The frames of a tunnel.
MORE, LAST, CREDIT, END, DONE = range(5)
#: Epochs of bodies that are cast begin here.
CAST_EPOCH = 1 << 31
LEAF_PROBE, LEAF_ACK, DIRECT = 16, 17, 20
REGISTER, APPLIED, WATCH, VIEW, TOLD, CAST_UP, CAST_TAKEN, CLAIM = 0, 2, 8, 10, 12, 18, 19, 28


# -- keys


def hkdf(key: bytes, salt: bytes, info: bytes, length: int = 32) -> bytes:
    extracted = hmac.digest(salt or bytes(32), key, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")[:length]


class Signer:
    """An Ed25519 key pair."""

    def __init__(self, seed: bytes) -> None:
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._private.public_key().public_bytes_raw()

    def sign(self, purpose: bytes, data: bytes) -> bytes:
        return self.public + self._private.sign(b"iris " + purpose + b"\0" + data)


def check_signature(node_id: bytes, purpose: bytes, data: bytes, signature: bytes) -> None:
    """Raise an error unless a signature is that of a node."""
    assert hashlib.sha256(b"iris node id" + signature[:32]).digest()[:16] == node_id
    Ed25519PublicKey.from_public_bytes(signature[:32]).verify(signature[32:], b"iris " + purpose + b"\0" + data)


class Group:
    """The keys of a cluster or of the realm of topics."""

    def __init__(self, secret: bytes, network: str, kind: str, name: str) -> None:
        self.is_realm = kind == "realm"
        label = f"{kind} {name}".encode()
        self.key = hkdf(secret, network.encode(), b"iris " + label)
        self.permits = Signer(hkdf(secret, network.encode(), b"iris permit " + label))
        self.id = hashlib.sha256(b"iris group id" + self.permits.public).digest()[:16]

    def proof(self, node_id: bytes, statement: bytes = b"") -> bytes:
        return hmac.digest(hkdf(self.key, b"", b"iris member"), node_id + statement, "sha256")[:16]

    def entry(self, pattern: str) -> bytes:
        """Return the entry of a pattern in the table of the realm."""
        tokens, key = pattern.split("."), hkdf(self.key, b"", b"iris interest")
        has_rest = tokens[-1] == ">"
        tokens = tokens[:-1] if has_rest else tokens
        literal = [number for number, token in enumerate(tokens) if token != "*"]
        shape = len(tokens) << 17 | has_rest << 16 | sum(1 << number for number in literal)
        said = struct.pack(">I", shape) + ".".join(tokens[number] for number in literal).encode()
        tag = hashlib.blake2b(said, digest_size=8, key=key, person=b"iris tag").digest()
        stem = bytes(8)
        if 0 in literal:
            stem = hashlib.blake2b(tokens[0].encode(), digest_size=8, key=key, person=b"iris stem").digest()
        return stem + struct.pack(">I", shape) + tag

    def link_proof(self, handshake_hash: bytes, side: bytes) -> bytes:
        return hmac.digest(hkdf(self.key, b"", b"iris group link"), b"iris group " + side + handshake_hash, "sha256")[:16]

    def body_key(self, sender: bytes, epoch: int) -> AESGCM:
        return AESGCM(hkdf(self.key, sender, b"iris sender" + struct.pack(">I", epoch)))


# -- msgpack


def pack(value: Any) -> bytes:
    """Write msgpack, as far as the messages here need it."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if value < 0x80:
            return bytes((value,))
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xd9" + bytes((len(data),)) + data
    if isinstance(value, bytes):
        return (
            b"\xc5" + struct.pack(">H", len(value)) if len(value) < 0x10000 else b"\xc6" + struct.pack(">I", len(value))
        ) + value
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))


def unpack(data: bytes) -> Any:
    """Read one msgpack value."""
    value, _end = _unpack(data, 0)
    return value


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if 0xCC <= head <= 0xCF:
        size = 1 << (head - 0xCC)
        return int.from_bytes(data[at : at + size], "big"), at + size
    length, at = _length(data, head, at)
    if 0x90 <= head < 0xA0 or head in (0xDC, 0xDD):
        values = []
        for _ in range(length):
            value, at = _unpack(data, at)
            values.append(value)
        return values, at
    content = data[at : at + length]
    is_text = 0xA0 <= head < 0xC0 or head in (0xD9, 0xDA, 0xDB)
    return content.decode() if is_text else content, at + length


def _length(data: bytes, head: int, at: int) -> tuple[int, int]:
    if 0x90 <= head < 0xA0:
        return head & 0x0F, at
    if 0xA0 <= head < 0xC0:
        return head & 0x1F, at
    size = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4}[head]
    return int.from_bytes(data[at : at + size], "big"), at + size


# -- the node


class Tunnel:
    """The caller's end of a tunnel: what of its chunks a test needs.

    Args:
        client: The node.
        group: The group of the cluster.
        id_: That of the opening.
        noise: The handshake, when it is over.
    """

    def __init__(self, client: WireClient, group: Group, id_: int, noise: NoiseConnection) -> None:
        self._client = client
        self._group = group
        self._id = id_
        state = noise.noise_protocol
        self._seal, self._open = (AESGCM(bytes(each.k)) for each in (state.cipher_state_encrypt, state.cipher_state_decrypt))
        self._sent = self._received = 0

    def send(self, *frames: tuple[int, bytes]) -> None:
        """Send a chunk."""
        chunk = b"".join(struct.pack(">BI", kind, len(body)) + body for kind, body in frames)
        head, nonce = struct.pack(">Q", self._id), struct.pack(">IQ", 0, self._sent)
        if self._sent and self._group.id in self._client.shared:
            self._client.send_frame(TUNNEL, head + chunk)
        else:
            self._client.send_frame(TUNNEL_SEALED, head + self._seal.encrypt(nonce, chunk, None))
            self._sent += 1

    async def receive(self) -> list[tuple[int, bytes]]:
        """Return the frames of the next chunk of the member."""
        while True:
            kind, body = await self._client.next_frame()
            if kind == PING:
                self._client.send_frame(PONG, body)
            elif kind in (TUNNEL, TUNNEL_SEALED):
                break
        assert body[:8] == struct.pack(">Q", self._id | 1 << 63)
        assert (kind == TUNNEL) == (self._group.id in self._client.shared)
        chunk, frames = body[8:], []
        if kind == TUNNEL_SEALED:
            chunk = self._open.decrypt(struct.pack(">IQ", 0, self._received), chunk, None)
            self._received += 1
        while chunk:
            kind, length = struct.unpack_from(">BI", chunk)
            frames.append((kind, chunk[5 : 5 + length]))
            chunk = chunk[5 + length :]
        return frames


#: The fact that its topics are of version 2.
VERSION_OF_TOPICS = b"\x02\x01\x02"


class WireClient:
    """A node with one link.

    Args:
        secret: The 32 bytes of the network.
        network: Its name.
        suites: The ciphers that it offers, by number.
        proves: Whether it proves the keys of groups, so that the records alone seal what is for them.
        facts: What it says of itself in its hello and its registrations, in the typed form, beside the version of its topics.
    """

    def __init__(
        self,
        secret: bytes,
        network: str = "default",
        suites: tuple[int, ...] = (1, 2),
        *,
        proves: bool = False,
        facts: bytes = b"",
    ) -> None:
        self.proves = proves
        self.secret = secret
        self.network = network
        self.suites = suites
        self.suite = 0
        self.signer = Signer(os.urandom(32))
        self.id = hashlib.sha256(b"iris node id" + self.signer.public).digest()[:16]
        self.hello: list[Any] = [self.id, [], ""]  # nobody can dial it
        self.facts = facts
        self.peer: list[Any] = []
        self.groups: dict[bytes, Group] = {}
        self.handshake_hash = b""
        self.offered: set[bytes] = set()  # groups whose key this side has proved
        self.shared: set[bytes] = set()  # those whose key the peer has proved, too
        self._sent = self._received = 0
        self._bodies = 0
        self._frames: list[tuple[int, bytes]] = []
        self._messages: list[tuple[Any, ...]] = []
        self._seal: Any = None
        self._open: Any = None
        self.ephemeral = b""  # the private key of the link, for tests of what it protects
        self.datagrams = 0

    # -- the link

    async def connect(self, host: str, port: int) -> None:
        """Open the link.

        Raises:
            ConnectionRefusedError: The peer has closed it at once.
        """
        self._reader, self._writer = await self.dial(host, port)
        key_id = hkdf(self.secret, self.network.encode(), b"iris key id", 8)
        mask = sum(1 << (suite - 1) for suite in self.suites)
        preamble = b"IRIS" + bytes((1, 1, 1, mask, self.suites[-1])) + key_id
        noise = NoiseConnection.from_name(b"Noise_NNpsk0_25519_AESGCM_SHA256")
        noise.set_psks(hkdf(self.secret, self.network.encode(), b"iris link"))
        noise.set_prologue(preamble + self.network.encode())
        noise.set_as_initiator()
        noise.start_handshake()
        message = bytes(noise.write_message())
        self.ephemeral = noise.noise_protocol.handshake_state.e.private.private_bytes_raw()
        self._writer.write(preamble + struct.pack(">H", len(message)) + message)
        answer = await self._reader.readexactly(struct.unpack(">H", await self._reader.readexactly(2))[0])
        payload, transcript = self._read_answer(noise, answer)
        version, self.suite = payload[0], payload[1]
        assert version == 1
        assert self.suite in self.suites
        self.peer = unpack(payload[98:])
        check_signature(self.peer[0], b"link responder", transcript, payload[2:98])
        final = self.handshake_hash = bytes(noise.get_handshake_hash())
        cipher = {1: AESGCM, 2: ChaCha20Poly1305}[self.suite]
        state = noise.noise_protocol
        self._seal, self._open = (cipher(bytes(each.k)) for each in (state.cipher_state_encrypt, state.cipher_state_decrypt))
        self.send_frame(
            HELLO,
            bytes(8) + self.signer.sign(b"link initiator", final) + pack([*self.hello, self.facts + VERSION_OF_TOPICS]),
        )
        kind, body = await self.next_frame()
        if kind == CLOSE:
            raise ConnectionRefusedError(f"the peer does not want this link, for reason {body[0]}")
        assert (kind, body) == (PONG, b"")

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Make the connection."""
        return await asyncio.open_connection(host, port)

    def _read_answer(self, noise: NoiseConnection, answer: bytes) -> tuple[bytes, bytes]:
        """Return the payload of message 2, and the handshake hash as it was before that payload."""
        symmetric = noise.noise_protocol.symmetric_state
        original = symmetric.decrypt_and_hash
        seen: list[bytes] = []

        def note(sealed: bytes) -> bytes:
            seen.append(bytes(symmetric.get_handshake_hash()))
            return bytes(original(sealed))

        symmetric.decrypt_and_hash = note
        return bytes(noise.read_message(answer)), seen[-1]

    def send_frame(self, kind: int, body: bytes) -> None:
        """Send one frame in a record of its own."""
        nonce = bytes(4) + struct.pack(">Q", self._sent)
        self._sent += 1
        sealed = self._seal.encrypt(nonce, struct.pack(">BI", kind, len(body)) + body, None)
        self._writer.write(struct.pack(">I", len(sealed)) + sealed)

    async def next_frame(self) -> tuple[int, bytes]:
        """Return the next frame of the peer."""
        while not self._frames:
            sealed = await self._reader.readexactly(struct.unpack(">I", await self._reader.readexactly(4))[0])
            record = self._open.decrypt(bytes(4) + struct.pack(">Q", self._received), sealed, None)
            self._received += 1
            while record:
                kind, length = struct.unpack_from(">BI", record)
                self._frames.append((kind, record[5 : 5 + length]))
                record = record[5 + length :]
        return self._frames.pop(0)

    async def close(self) -> None:
        """Say CLOSE and end the connection."""
        self.send_frame(CLOSE, b"\x02")
        await self._writer.drain()
        self._writer.close()

    # -- datagrams

    def seal_datagram(self, payload: list[Any]) -> bytes:
        """Return a datagram as it travels."""
        network = self.network.encode()
        header = b"\x01" + hkdf(self.secret, network, b"iris key id", 8) + self.id + struct.pack(">Q", self.datagrams)
        nonce = bytes(4) + struct.pack(">Q", self.datagrams)
        self.datagrams += 1
        key = hkdf(hkdf(self.secret, network, b"iris datagram"), self.id, b"iris datagram sender")
        data = pack_permit(payload)  # the second byte of a datagram is its tag
        return header + AESGCM(key).encrypt(nonce, self.signer.sign(b"datagram", header + data) + data, header)

    # -- groups

    def group(self, kind: str, name: str) -> Group:
        """Return the keys of a cluster or of the realm, to be recognized from now on."""
        group = Group(self.secret, self.network, kind, name)
        self.groups[group.id] = group
        return group

    def send_to_root(self, message: list[Any]) -> None:
        """Send a message about groups to the peer, which is alone in its ring and so the root of every group."""
        self.send_frame(CONTROL, pack([DIRECT, self.hello, pack(message)]))

    async def register(self, group: Group) -> None:
        """Become a member; return when the root says that everybody knows."""
        statement = struct.pack(">HB", 100, 0) + self.facts if self.facts else b""
        stamp, since, attributes = 1 << 32, int(time.time() * 1000), group.proof(self.id, statement) + statement
        permit = group.permits.sign(b"permit", pack_permit([1, self.id, stamp, since, attributes]))
        self.send_to_root([REGISTER, self.hello, [[group.id, attributes, stamp, permit, since]]])
        await self.wait_for(lambda message: message[0] == APPLIED and [item[:2] for item in message[2]] == [[group.id, stamp]])

    async def claim(self, realm: Group, *patterns: str) -> None:
        """Subscribe to patterns; return when the root says that every publisher knows."""
        entries = b"".join(sorted(map(realm.entry, patterns)))
        stamp, attributes = 1 << 32, realm.proof(self.id)
        permit = realm.permits.sign(b"permit", pack_permit([1, self.id, stamp, 0, attributes]))
        checksum = hashlib.blake2b(entries, digest_size=8).digest()
        self.send_to_root([CLAIM, self.hello, realm.id, attributes, stamp, permit, 0, len(patterns), checksum, entries, b""])
        await self.wait_for(lambda message: message[0] == APPLIED and [item[:2] for item in message[2]] == [[realm.id, stamp]])

    async def members(self, group: Group) -> list[bytes]:
        """Return the ids of the members whose proof is right."""
        permit = group.permits.sign(b"permit", pack_permit([2, self.id]))
        self.send_to_root([WATCH, self.hello, 1 << 32, [[group.id, 0, permit]]])
        view = await self.wait_for(lambda message: message[0] == VIEW and message[2] == group.id and message[6])
        self.send_to_root([TOLD, group.id, view[3]])
        return [info[0] for info, attributes, *_rest in view[6] if attributes[:16] == group.proof(info[0], attributes[16:])]

    async def broadcast(self, group: Group, payload: bytes, sequence: int, pieces: int = 1) -> None:
        """Let the root send a broadcast down the tree of a group, in pieces; return when it has taken all of them."""
        body = struct.pack(">BBHIQI", BROADCAST, 0, 0, len(payload), sequence, 0) + payload
        nonce = struct.pack(">IQ", CAST_EPOCH, sequence)
        sealed = group.body_key(self.id, CAST_EPOCH).encrypt(nonce, body, group.id + self.id + b"cast")
        permit = group.permits.sign(b"permit", pack_permit([2, self.id]))
        size = -(-len(sealed) // pieces)
        for index in range(pieces):
            piece = struct.pack(">HH", index, pieces) + nonce + sealed[index * size : (index + 1) * size]
            at, number = int(time.time() * 1000), sequence + index
            signature = self.signer.sign(b"overlay", pack_permit([20, group.id, number, at, hashlib.sha256(piece).digest()]))
            self.send_to_root([CAST_UP, self.hello, group.id, number, sequence, piece, signature, permit, at])
        await self.wait_for(lambda message: message == [CAST_TAKEN, group.id, sequence + pieces - 1])

    async def wait_for(self, condition: Any) -> list[Any]:
        """Return the first message about groups for which something holds."""
        while True:
            message = await self.next_message()
            if message[0] == "control" and condition(message[1]):
                return list(message[1])

    # -- messages between members

    def offer(self, group: Group) -> None:
        """Prove the key of a group, so that the peer proves it, too."""
        self.offered.add(group.id)
        self.send_frame(SHARE, b"\0" + group.id + group.link_proof(self.handshake_hash, b"i"))

    def receive_share(self, body: bytes) -> None:
        """Check the proof of the peer, and answer it if it is an offer."""
        is_answer, group = body[0], self.groups[body[1:17]]
        assert body[17:] == group.link_proof(self.handshake_hash, b"r")
        assert not is_answer or group.id in self.offered
        if not is_answer and group.id not in self.shared:
            self.send_frame(SHARE, b"\1" + group.id + group.link_proof(self.handshake_hash, b"i"))
        self.shared.add(group.id)

    def send(self, group: Group, kind: int, id_: int, argument: int, payload: bytes) -> None:
        """Send a message to the peer."""
        if group.id in self.shared:
            self.send_frame(BODY, group.id + struct.pack(">BBHIQI", kind, 0, 0, len(payload), id_, argument) + payload)
        else:
            self.send_frame(UNICAST, self.seal_message(group, kind, id_, argument, payload))

    def seal_message(self, group: Group, kind: int, id_: int, argument: int, payload: bytes) -> bytes:
        """Return the body of a UNICAST frame with a message for the peer."""
        body = struct.pack(">BBHIQI", kind, 0, 0, len(payload), id_, argument) + payload
        nonce = struct.pack(">IQ", 1, self._bodies)
        self._bodies += 1
        sealed = group.body_key(self.id, 1).encrypt(nonce, body, group.id + self.id + self.peer[0])
        return group.id + nonce + sealed

    async def open_tunnel(self, group: Group, id_: int, window: int) -> Tunnel:
        """Open a tunnel to the peer."""
        noise = NoiseConnection.from_name(b"Noise_NNpsk0_25519_AESGCM_SHA256")
        noise.set_psks(hkdf(group.key, b"", b"iris tunnel"))
        noise.set_prologue(b"iris tunnel" + group.id + self.id + self.peer[0] + struct.pack(">Q", id_))
        noise.set_as_initiator()
        noise.start_handshake()
        self.send(group, TUNNEL_OPEN, id_, 5_000, struct.pack(">Q", window) + bytes(noise.write_message()))
        kind, _group, of, _argument, _head, payload, _flags = await self.next_body()
        assert (kind, of) == (TUNNEL_ACCEPT, id_)
        assert noise.read_message(payload[16:]) == b""
        return Tunnel(self, group, id_, noise)

    async def next_message(self) -> tuple[Any, ...]:
        """Return ("control", message about groups) or (kind, group, id, argument, head, payload, flags)."""
        while not self._messages:
            kind, body = await self.next_frame()
            if kind == PING:
                self.send_frame(PONG, body)
            elif kind == CONTROL:
                message = unpack(body)
                if message[0] == LEAF_PROBE:
                    self.send_frame(CONTROL, pack([LEAF_ACK, self.hello, [], False, False]))
                elif message[0] == DIRECT:
                    return "control", unpack(message[2])
            elif kind == SHARE and self.proves:
                self.receive_share(body)
            elif kind == BODY:
                assert body[:16] in self.shared
                self._read_body(self.groups[body[:16]], body[16:])
            elif kind in (UNICAST, MULTICAST):
                group, nonce, sealed = self.groups[body[:16]], body[16:28], body[28:]
                sender = self.peer[0]
                is_alone = kind == UNICAST or group.is_realm
                associated = group.id + sender + (self.id if is_alone else b"")
                (epoch,) = struct.unpack(">I", nonce[:4])
                self._read_body(group, group.body_key(sender, epoch).decrypt(nonce, sealed, associated))
        return self._messages.pop(0)

    async def next_body(self) -> tuple[Any, ...]:
        """Return the next message between members; the root may say something again meanwhile, if it had no answer in time."""
        while True:
            message = await self.next_message()
            if message[0] != "control":
                return message

    def _read_body(self, group: Group, body: bytes) -> None:
        while body:
            kind, flags, head, length, id_, argument = struct.unpack_from(">BBHIQI", body)
            end = 20 + head + length
            assert end <= len(body), "a message longer than its body"
            self._messages.append((kind, group, id_, argument, body[20 : 20 + head], body[20 + head : end], flags))
            body = body[end:]


def pack_permit(value: Any) -> bytes:
    """Write msgpack in its shortest form, which is what is signed: both sides have to write the same."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, bytes):
        size = len(value)
        return (b"\xc4" + bytes((size,)) if size < 256 else b"\xc5" + struct.pack(">H", size)) + value
    if isinstance(value, str):
        assert len(value.encode()) < 32
        return bytes((0xA0 | len(value.encode()),)) + value.encode()
    if isinstance(value, int):
        if value < 0x80:
            return bytes((value,))
        size, head = next((size, head) for size, head in ((1, 0xCC), (2, 0xCD), (4, 0xCE), (8, 0xCF)) if value < 1 << 8 * size)
        return bytes((head,)) + value.to_bytes(size, "big")
    return bytes((0x90 | len(value),)) + b"".join(map(pack_permit, value))
