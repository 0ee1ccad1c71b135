"""The two Noise patterns with fixed keys, and a script of each that makes messages which no honest peer makes."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security import Handshake, KnownKeysHandshake
from iris_security.symmetric import DH_KEY_BYTES, TwoMessages

PSK = bytes(range(100, 132))
STATICS = bytes(range(100, 132)), bytes(range(101, 133))
EPHEMERALS = bytes(range(1, 33)), bytes(range(2, 34))
STRANGER = bytes(range(50, 82))

# The points of low order of Curve25519, little-endian, with p = 2^255 - 19: 0, 1, two of order 8, p - 1, p, p + 1; and 0 with
# the top bit, which X25519 ignores (RFC 7748 section 5).
LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    ((1 << 255) - 20).to_bytes(32, "little"),
    ((1 << 255) - 19).to_bytes(32, "little"),
    ((1 << 255) - 18).to_bytes(32, "little"),
    bytes(31) + b"\x80",
]


def public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def dh(private: bytes, other_private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public(other_private)))


class Script:
    """Noise written out once more, with none of the code under test.

    Args:
        name: The protocol name.
        prologue: The data equal on both sides.
        psk: The pre-shared key of a pattern with psk0; then each ephemeral key is mixed into the key, too.
        statics: The static public keys of the initiator and of the responder, for a pattern that knows them in advance.
    """

    def __init__(self, name: bytes, prologue: bytes, *, psk: bytes = b"", statics: tuple[bytes, ...] = ()) -> None:
        self.chaining_key = name.ljust(32, b"\0")
        self.hash = hashlib.sha256(self.chaining_key + prologue).digest()
        self.key = b""
        self._has_psk = bool(psk)
        if psk:
            first, second, _third = self._derive(psk)
            self.chaining_key = first
            self.mix_hash(second)
        for static in statics:
            self.mix_hash(static)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self.chaining_key, self.key, _third = self._derive(material)

    def mix_message(self, ephemeral: bytes, *materials: bytes) -> None:
        """Mix in the tokens of a message."""
        self.mix_hash(ephemeral)
        for material in (ephemeral, *materials) if self._has_psk else materials:
            self.mix_key(material)

    def message(self, ephemeral: bytes, *materials: bytes, payload: bytes = b"") -> bytes:
        self.mix_message(ephemeral, *materials)
        sealed = AESGCM(self.key).encrypt(bytes(12), payload, self.hash)
        self.mix_hash(sealed)
        return ephemeral + sealed

    def split(self) -> tuple[bytes, bytes, bytes]:
        return self._derive(b"")

    def _derive(self, material: bytes) -> tuple[bytes, bytes, bytes]:
        extracted = hmac.new(self.chaining_key, material, "sha256").digest()
        first = hmac.new(extracted, b"\x01", "sha256").digest()
        second = hmac.new(extracted, first + b"\x02", "sha256").digest()
        return first, second, hmac.new(extracted, second + b"\x03", "sha256").digest()


@dataclass(frozen=True)
class Pattern:
    """One pattern.

    Attributes:
        kind: Its class.
        name: Its protocol name.
        ours: The arguments of the initiator.
        theirs: The arguments of the responder.
        firsts: The products of message 1 besides its ephemeral key, with `firsts_low` for an ephemeral key of low order.
        seconds: The products of message 2, with `seconds_low` for an ephemeral key of low order.
    """

    kind: Callable[..., TwoMessages]
    name: bytes
    ours: Mapping[str, bytes]
    theirs: Mapping[str, bytes]
    firsts: tuple[bytes, ...]
    firsts_low: tuple[bytes, ...]
    seconds: tuple[bytes, ...]
    seconds_low: tuple[bytes, ...]

    def initiator(self, **changed: bytes) -> TwoMessages:
        return self.kind(initiator=True, **{**self.ours, **changed})

    def responder(self, **changed: bytes) -> TwoMessages:
        return self.kind(initiator=False, **{**self.theirs, **changed})

    def script(self) -> Script:
        """Return a script before message 1."""
        if self.kind is Handshake:
            return Script(self.name, self.ours["prologue"], psk=self.ours["psk"])
        return Script(
            self.name, self.ours["prologue"], statics=(self.theirs["peer_static_public"], self.ours["peer_static_public"])
        )

    def completed(self, **changed: bytes) -> tuple[TwoMessages, TwoMessages]:
        """Return both sides after the handshake; the responder has other arguments if the caller wants so."""
        one, two = self.initiator(), self.responder(**changed)
        two.read_message(one.write_message())
        one.read_message(two.write_message())
        return one, two

    def awaiting(self, number: int) -> tuple[TwoMessages, bytes]:
        """Return a side that awaits message 1 or 2, and that message."""
        one, two = self.initiator(), self.responder()
        first = one.write_message(b"first")
        if number == 1:
            return two, first
        two.read_message(first)
        return one, two.write_message(b"second")


NN = Pattern(
    kind=Handshake,
    name=b"Noise_NNpsk0_25519_AESGCM_SHA256",
    ours={"psk": PSK, "prologue": b"IRIS and more", "ephemeral_private": EPHEMERALS[0]},
    theirs={"psk": PSK, "prologue": b"IRIS and more", "ephemeral_private": EPHEMERALS[1]},
    firsts=(),
    firsts_low=(),
    seconds=(dh(*EPHEMERALS),),
    seconds_low=(bytes(DH_KEY_BYTES),),
)
KK = Pattern(
    kind=KnownKeysHandshake,
    name=b"Noise_KK_25519_AESGCM_SHA256",
    ours={
        "static_private": STATICS[0],
        "peer_static_public": public(STATICS[1]),
        "prologue": b"IRIF and more",
        "ephemeral_private": EPHEMERALS[0],
    },
    theirs={
        "static_private": STATICS[1],
        "peer_static_public": public(STATICS[0]),
        "prologue": b"IRIF and more",
        "ephemeral_private": EPHEMERALS[1],
    },
    firsts=(dh(EPHEMERALS[0], STATICS[1]), dh(*STATICS)),
    firsts_low=(bytes(DH_KEY_BYTES), dh(*STATICS)),
    seconds=(dh(*EPHEMERALS), dh(STATICS[0], EPHEMERALS[1])),
    seconds_low=(bytes(DH_KEY_BYTES), bytes(DH_KEY_BYTES)),
)
PATTERNS = {"NN": NN, "KK": KK}
BOTH_PATTERNS = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
