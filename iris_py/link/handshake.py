"""The first bytes of a link: who speaks, under which keys, and the Noise handshake (docs/design.md 3.1, 3.2).

Nothing is believed here, and nothing is allocated by a number that a stranger sent: one bounded message each way.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from iris_security import SIGNATURE_BYTES, Handshake, Purpose, Suite, verify_signature

if TYPE_CHECKING:
    from iris_security import Identity, Keyring, NetworkKeys, TransportKeys
    from iris_security.symmetric import TwoMessages

MAGIC = b"IRIS"
#: The form of the first message, and, with the magic, the handshake: that of nodes is Noise_NNpsk0_25519_AESGCM_SHA256. Another
#: one is another protocol.
FORMAT = 1
#: The versions of all that comes after the handshake. A node that speaks several is understood by those that speak any of them.
VERSION_MIN = VERSION_MAX = 1
#: Largest Noise message that is read from a stranger: a signature, and a hello with a page of addresses.
HANDSHAKE_BYTES_MAX = 4096

_PREAMBLE = struct.Struct(">4sBBBBB8sH")
#: Its length, which is no part of what both sides bind.
_LENGTH = struct.Struct(">H")
_CHOICE = struct.Struct(">BB")


@dataclass(frozen=True)
class Offer:
    """The versions and suites that a side speaks, and the suite that it would have.

    Attributes:
        version_min: The oldest version.
        version_max: The newest version; the newest that both speak is taken.
        suites: The ciphers for records.
        preferred: The one that its machine is quick with. ChaCha20-Poly1305 is taken if either side prefers it, for it is
            bearable everywhere, and AES-256-GCM is not.
    """

    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    suites: frozenset[Suite] = frozenset(Suite)
    preferred: Suite = Suite.AES_256_GCM

    @property
    def mask(self) -> int:
        """The suites as bits, the first for number 1."""
        return sum(1 << (suite - 1) for suite in self.suites)

    def choose(self, version_min: int, version_max: int, mask: int, preferred: int) -> tuple[int, Suite]:
        """Return the version and the suite for a link to a peer that offers these.

        Raises:
            ProtocolError: Nothing is spoken on both sides.
        """
        version = min(self.version_max, version_max)
        if version < max(self.version_min, version_min):
            raise ProtocolError("a node of another version")
        common = [suite for suite in self.suites if mask >> (suite - 1) & 1]
        if not common:
            raise ProtocolError("a node with other ciphers")
        wanted = {self.preferred, preferred}
        return version, max((suite for suite in common if suite in wanted), default=min(common))

    def includes(self, version: int, suite: int) -> bool:
        """Tell whether a choice of the peer is within this offer."""
        return self.version_min <= version <= self.version_max and suite in self.suites


DEFAULT_OFFER = Offer()


class ProtocolError(Exception):
    """The peer broke the protocol. Ends the link; never leaves :mod:`iris_py.link.link`."""


class Introducing(Protocol):
    """The part of a handshake that outlives it: it has no key of the link."""

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return what an initiator says of itself in its first record."""

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read what an initiator says of itself; return its id and its hello.

        Raises:
            AuthenticationError: It does not show that it is the one.
        """


class Handshaking:
    """The first bytes of a link, in both roles: a preamble, and one Noise message each way.

    Those that derive from it know the keys, and how each side shows who it is.

    Args:
        initiator: Whether this side dialled.
        offer: The versions and suites that this side speaks.

    Attributes:
        initiator: Whether this side dialled.
        version: The version that both sides speak, once the handshake is complete.
        suite: The cipher of the records, likewise.
        key_id: The name, in the preamble, of the keys that it is under; a responder's is empty until it is known.
        keys: The keys of the link, once the handshake is complete.
        link_id: What both sides can call this link, once it is complete: the handshake hash.
        peer_hello: What the responder said of itself; for initiators, once it is complete.
        peer_id: The id of the responder, which has shown that it is the one; as ``peer_hello``.
    """

    #: The first four bytes, which tell one protocol from another.
    magic: ClassVar[bytes]

    def __init__(self, *, initiator: bool, offer: Offer) -> None:
        self.initiator = initiator
        self.version = 0
        self.suite = Suite.AES_256_GCM
        self.key_id = b""
        self.keys: TransportKeys | None = None
        self.link_id = b""
        self.peer_hello = b""
        self.peer_id = b""
        self._offer = offer
        self._out: list[bytes] = []
        self._noise: TwoMessages | None = None

    @property
    def introduction(self) -> Introducing:
        """The part that a link keeps, once the handshake is complete."""
        raise NotImplementedError

    def receive_data(self, data: memoryview) -> int:
        """Read the peer's message if it is complete; return the bytes used, 0 if it is not.

        Raises:
            ProtocolError: Not a node, or not one that we can talk to.
            AuthenticationError: It does not hold the keys, or somebody changed the message.
        """
        if self._noise is not None:
            return self._receive_answer(self._noise, data)
        return self._receive_preamble(data)

    def data_to_send(self) -> list[bytes]:
        """Take the bytes to write."""
        out, self._out = self._out, []
        return out

    # -- for those that derive from it

    def _make_noise(self, key_id: bytes, preamble: bytes) -> TwoMessages:
        """Return the Noise handshake of this role under some keys.

        Args:
            key_id: The name of the keys, as the initiator has sent it.
            preamble: To be part of the prologue. So who is between cannot take back what was offered: both sides have to have
                seen it alike.

        Raises:
            ProtocolError: We do not hold them.
        """
        raise NotImplementedError

    def _describe(self, payload_hash: bytes) -> bytes:
        """Return what a responder says of itself in its message."""
        raise NotImplementedError

    def _read_description(self, payload_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read what a responder says of itself; return its id and its hello.

        Raises:
            AuthenticationError: It does not show that it is the one.
        """
        raise NotImplementedError

    def _begin(self, key_id: bytes) -> None:
        """Make the message of an initiator."""
        offer = self._offer
        self.key_id = key_id
        offered = (offer.version_min, offer.version_max, offer.mask, offer.preferred)
        preamble = _PREAMBLE.pack(self.magic, FORMAT, *offered, key_id, 0)[: -_LENGTH.size]
        self._noise = self._make_noise(key_id, preamble)
        message = self._noise.write_message()
        self._out.append(preamble + _LENGTH.pack(len(message)) + message)

    # --

    def _receive_preamble(self, data: memoryview) -> int:
        if bytes(data[:4]) != self.magic[: len(data)]:
            raise ProtocolError("not a node")
        if len(data) < _PREAMBLE.size:
            return 0
        _magic, format_, version_min, version_max, mask, preferred, key_id, length = _PREAMBLE.unpack_from(data)
        if format_ != FORMAT:
            raise ProtocolError("a node of another version")
        end = _PREAMBLE.size + _bounded(length)
        if len(data) < end:
            return 0
        noise = self._make_noise(key_id, bytes(data[: _PREAMBLE.size - _LENGTH.size]))
        self.key_id = key_id
        noise.read_message(bytes(data[_PREAMBLE.size : end]))
        self.version, self.suite = self._offer.choose(version_min, version_max, mask, preferred)
        choice = _CHOICE.pack(self.version, self.suite)
        answer = noise.write_message(lambda payload_hash: choice + self._describe(payload_hash))
        self._out.append(_LENGTH.pack(len(answer)) + answer)
        self._complete(noise)
        return end

    def _receive_answer(self, noise: TwoMessages, data: memoryview) -> int:
        if len(data) < _LENGTH.size:
            return 0
        end = _LENGTH.size + _bounded(_LENGTH.unpack_from(data)[0])
        if len(data) < end:
            return 0
        payload = noise.read_message(bytes(data[_LENGTH.size : end]))
        if len(payload) < _CHOICE.size:
            raise ProtocolError("an answer that chooses nothing")
        version, suite = _CHOICE.unpack_from(payload)
        if not self._offer.includes(version, suite):
            raise ProtocolError("an answer beyond what was offered")
        self.version, self.suite = version, Suite(suite)
        self.peer_id, self.peer_hello = self._read_description(noise.payload_hash, payload[_CHOICE.size :])
        self._complete(noise)
        return end

    def _complete(self, noise: TwoMessages) -> None:
        self.link_id = noise.handshake_hash
        self.keys = noise.split()


class LinkHandshake(Handshaking):
    """The handshake of a link between two nodes of a network: under its secret, and each side signs.

    Args:
        initiator: Whether this side dialled.
        keyring: The secrets of the network; a responder uses the generation that is asked for.
        identity: This node, which signs for that it is the one that speaks.
        hello: What this node says of itself. A responder's goes into its message; an initiator's goes into its first
            record, which is the link's business.
        ephemeral_private: 32 fresh random bytes.
        offer: The versions and suites that this side speaks.
        generation: Of the secret, which an initiator uses; the primary one by default.
    """

    magic = MAGIC

    def __init__(
        self,
        *,
        initiator: bool,
        keyring: Keyring,
        identity: Identity,
        hello: bytes,
        ephemeral_private: bytes,
        offer: Offer = DEFAULT_OFFER,
        generation: NetworkKeys | None = None,
    ) -> None:
        super().__init__(initiator=initiator, offer=offer)
        self._keyring = keyring
        self._identity = identity
        self._hello = hello
        self._ephemeral_private = ephemeral_private
        self._generation = (generation or keyring.primary) if initiator else None
        if self._generation is not None:
            self._begin(self._generation.key_id)

    @property
    def introduction(self) -> NodeIntroduction:
        """The part that a link keeps."""
        return NodeIntroduction(self._identity, self._hello)

    def _make_noise(self, key_id: bytes, preamble: bytes) -> Handshake:
        keys = self._generation or self._keyring.find(key_id)
        if keys is None:
            raise ProtocolError("a secret that we do not hold")
        return Handshake(
            initiator=self.initiator,
            psk=keys.link_psk,
            prologue=preamble + self._keyring.network.encode(),
            ephemeral_private=self._ephemeral_private,
        )

    def _describe(self, payload_hash: bytes) -> bytes:
        return self._identity.sign(Purpose.RESPONDER, payload_hash) + self._hello

    def _read_description(self, payload_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        return verify_signature(Purpose.RESPONDER, payload_hash, data[:SIGNATURE_BYTES]), data[SIGNATURE_BYTES:]


class NodeIntroduction:
    """An initiator among nodes says who it is by its signature for the handshake, and its hello.

    Args:
        identity: This node, which signs.
        hello: What this node says of itself.
    """

    __slots__ = ("_hello", "_identity")

    def __init__(self, identity: Identity, hello: bytes) -> None:
        self._identity = identity
        self._hello = hello

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return what an initiator says of itself in its first record: its signature for the handshake, and its hello."""
        return self._identity.sign(Purpose.INITIATOR, handshake_hash) + self._hello

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read what an initiator says of itself; return its node id and its hello.

        Raises:
            AuthenticationError: Its signature is not for this handshake.
        """
        return verify_signature(Purpose.INITIATOR, handshake_hash, data[:SIGNATURE_BYTES]), data[SIGNATURE_BYTES:]


def _bounded(length: int) -> int:
    if length > HANDSHAKE_BYTES_MAX:
        raise ProtocolError("a handshake message over the limit")
    return length
