"""The first bytes of a link: a preamble that names versions, ciphers and keys, and a Noise handshake (docs/design.md 3.1, 3.2).

Each side sends one bounded message. Before authentication, no claim of the peer is trusted and no memory is allocated by a
number from the peer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from iris_security import SIGNATURE_BYTES, Handshake, Purpose, Suite, verify_signature

if TYPE_CHECKING:
    from iris_security import Identity, Keyring, NetworkKeys, TransportKeys
    from iris_security.symmetric import TwoMessages

MAGIC = b"IRIS"
#: Format of the first message. Together with the magic it selects the handshake; nodes use Noise_NNpsk0_25519_AESGCM_SHA256.
#: Another handshake is another protocol.
FORMAT = 1
#: The protocol versions after the handshake. Two nodes connect if they have a version in common.
VERSION_MIN = VERSION_MAX = 1
#: Largest Noise message accepted from an unauthenticated peer: a signature, and a hello with a page of addresses.
HANDSHAKE_BYTES_MAX = 4096

_PREAMBLE = struct.Struct(">4sBBBBB8sH")
#: The length before each message, which the handshake does not authenticate.
_LENGTH = struct.Struct(">H")
_CHOICE = struct.Struct(">BB")


class Offer(msgspec.Struct, frozen=True):
    """The versions and ciphers a side supports, and its preferred cipher.

    Attributes:
        version_min: The oldest version.
        version_max: The newest version; both sides use the newest common version.
        suites: The ciphers for records.
        preferred: The fastest cipher on this machine. A link uses ChaCha20-Poly1305 if either side prefers it: it is acceptable
            on every machine, unlike AES-256-GCM.
    """

    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX
    suites: frozenset[Suite] = frozenset(Suite)
    preferred: Suite = Suite.AES_256_GCM

    @property
    def mask(self) -> int:
        """The supported ciphers as bits; bit 0 stands for cipher number 1."""
        return sum(1 << (suite - 1) for suite in self.suites)

    def choose(self, version_min: int, version_max: int, mask: int, preferred: int) -> tuple[int, Suite]:
        """Return the version and the cipher for a link to a peer with this offer.

        Raises:
            ProtocolError: No common version or cipher.
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
        """Tell whether this offer contains the version and the cipher the peer has chosen."""
        return self.version_min <= version <= self.version_max and suite in self.suites


DEFAULT_OFFER = Offer()


class ProtocolError(Exception):
    """The peer broke the protocol. Ends the link; never leaves :mod:`iris_py.link.link`."""


class Introducing(Protocol):
    """The proofs of identity after the handshake: a part the link keeps when it drops the keys of the handshake."""

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return the initiator's first record: its proof of identity and its hello."""

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read an initiator's proof of identity and hello; return its id and its hello.

        Raises:
            AuthenticationError: The proof is invalid.
        """


class Handshaking:
    """The first bytes of a link, in both roles: a preamble, and a Noise message in both directions.

    Subclasses supply the keys and the proofs of identity.

    Args:
        offer: The versions and ciphers this side supports.

    Attributes:
        initiator: Whether this side dialled.
        version: The chosen version, once the handshake is complete.
        suite: The chosen cipher, likewise.
        key_id: The id of the keys, from the preamble; empty on the responder until the preamble arrives.
        keys: The keys of the link, once the handshake is complete.
        link_id: The handshake hash, which both sides use as the link's id, once the handshake is complete.
        peer_hello: The responder's hello; on initiators, once the handshake is complete.
        peer_id: The responder's authenticated id; on initiators, once the handshake is complete.
    """

    #: The first four bytes, which identify the protocol.
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
        """The part the link keeps, once the handshake is complete."""
        raise NotImplementedError

    def receive_data(self, data: memoryview) -> int:
        """Read the peer's message if it is complete; return the number of bytes read, or 0 if the message is incomplete.

        Raises:
            ProtocolError: The other side is not a node, or an incompatible node.
            AuthenticationError: The peer does not hold the keys, or the message was changed in transit.
        """
        if self._noise is not None:
            return self._receive_answer(self._noise, data)
        return self._receive_preamble(data)

    def data_to_send(self) -> list[bytes]:
        """Take the bytes to write."""
        out, self._out = self._out, []
        return out

    # # -- for subclasses

    def _make_noise(self, key_id: bytes, preamble: bytes) -> TwoMessages:
        """Return the Noise handshake of this role under the named keys.

        Args:
            key_id: The id of the keys, as the initiator sent it.
            preamble: Part of the prologue, which must be the same on both sides; so an attacker in between cannot remove
                versions or ciphers from the offer.

        Raises:
            ProtocolError: This side does not hold the keys.
        """
        raise NotImplementedError

    def _describe(self, payload_hash: bytes) -> bytes:
        """Return the responder's proof of identity and its hello, for the responder's handshake message."""
        raise NotImplementedError

    def _read_description(self, payload_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read a responder's proof of identity and hello; return its id and its hello.

        Raises:
            AuthenticationError: The proof is invalid.
        """
        raise NotImplementedError

    def _begin(self, key_id: bytes) -> None:
        """Make the initiator's message."""
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
            raise ProtocolError("an answer without a version")
        version, suite = _CHOICE.unpack_from(payload)
        if not self._offer.includes(version, suite):
            raise ProtocolError("an answer with a version or ciphers that were not offered")
        self.version, self.suite = version, Suite(suite)
        self.peer_id, self.peer_hello = self._read_description(noise.payload_hash, payload[_CHOICE.size :])
        self._complete(noise)
        return end

    def _complete(self, noise: TwoMessages) -> None:
        self.link_id = noise.handshake_hash
        self.keys = noise.split()


class LinkHandshake(Handshaking):
    """The handshake of a link between two nodes of a network: encrypted under the network's secret, and signed by both nodes.

    Args:
        keyring: The secrets of the network; a responder uses the generation the initiator names.
        identity: The identity of this node, for its signature.
        hello: This node's description of itself. A responder sends it in its message; an initiator's link sends it in the first
            record.
        ephemeral_private: 32 fresh random bytes.
        offer: The versions and ciphers this side supports.
        generation: The generation of the secret an initiator uses; the primary generation by default.
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
        """The part the link keeps."""
        return NodeIntroduction(self._identity, self._hello)

    def _make_noise(self, key_id: bytes, preamble: bytes) -> Handshake:
        keys = self._generation or self._keyring.find(key_id)
        if keys is None:
            raise ProtocolError("a secret that this node does not hold")
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
    """The introduction of an initiator among nodes: its signature of the handshake, and its hello."""

    __slots__ = ("_hello", "_identity")

    def __init__(self, identity: Identity, hello: bytes) -> None:
        self._identity = identity
        self._hello = hello

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return the initiator's signature of the handshake and its hello, for its first record."""
        return self._identity.sign(Purpose.INITIATOR, handshake_hash) + self._hello

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Read an initiator's signature and hello; return its node id and its hello.

        Raises:
            AuthenticationError: The signature is not of this handshake.
        """
        return verify_signature(Purpose.INITIATOR, handshake_hash, data[:SIGNATURE_BYTES]), data[SIGNATURE_BYTES:]


def _bounded(length: int) -> int:
    if length > HANDSHAKE_BYTES_MAX:
        raise ProtocolError("a handshake message over the limit")
    return length
