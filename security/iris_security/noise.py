"""The handshake of a link: `Noise_NNpsk0_25519_AESGCM_SHA256` (docs/design.md 3.1).

Section numbers are those of the Noise Protocol Framework, revision 34.

Theory of operation. The pattern has two messages::

    -> psk, e
    <- e, ee

This is NN of section 7.5 with the modifier psk0 of section 9.4. Who lacks the pre-shared key can neither make nor read either
of them, and the ephemeral keys make every link's keys new: who learns the secret later cannot read what was recorded.

Message 1 carries nothing fresh from the responder, so it can be replayed. The responder must believe nothing, and do nothing of
consequence, before the first record opens.

There are no static keys in the pattern. A node shows which one it is by a signature over the handshake hash (identity.py),
which each side sends under the keys of the handshake: SIGMA-I of Krawczyk 2003, with the tag of Noise in the place of its MAC.

Because the pattern is fixed, this is not a general Noise engine: `write_message` and `read_message` spell the tokens out.
"""

import enum
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.backends import default_backend
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import TAG_BYTES
from iris_security.errors import AuthenticationError

# X25519 imports this at its first use: 4 ms, in the middle of the first handshake of a process.
default_backend()

PROTOCOL_NAME = b"Noise_NNpsk0_25519_AESGCM_SHA256"
PSK_BYTES = 32  # section 9
EPHEMERAL_BYTES = 32  # an X25519 key, private or public (section 12.1)
MESSAGE_BYTES_MAX = 65535  # section 3
PAYLOAD_BYTES_MAX = MESSAGE_BYTES_MAX - EPHEMERAL_BYTES - TAG_BYTES

#: Section 12.4: 32 zero bits and the nonce, big-endian. In this pattern it is always 0, see `_SymmetricState`.
_NONCE_ZERO = bytes(12)


@dataclass(frozen=True, slots=True, repr=False)
class TransportKeys:
    """The keys of the two directions of a link, from where we stand."""

    send: bytes
    receive: bytes

    def __repr__(self) -> str:
        """Show nothing: both fields are secret."""
        return "TransportKeys(<hidden>)"


class _Turn(enum.Enum):
    WRITE = enum.auto()
    READ = enum.auto()
    COMPLETE = enum.auto()
    SPLIT = enum.auto()
    # A read failed. Nothing leads out of here.
    DEAD = enum.auto()


class Handshake:
    """One handshake, in one of its two roles.

    The initiator writes and then reads, the responder reads and then writes; then `is_complete` holds, and `split` gives the
    keys.

    Attributes:
        payload_hash: The hash of all before the payload of the last message that was written or read. It has both ephemeral
            keys in it once that is message 2.
    """

    def __init__(self, *, initiator: bool, psk: bytes, prologue: bytes, ephemeral_private: bytes) -> None:
        """Prepare a handshake (section 5.3, Initialize).

        Args:
            initiator: Whether we write the first message.
            psk: The pre-shared key.
            prologue: What both sides have to agree on; a peer with another prologue fails.
            ephemeral_private: Fresh entropy of `EPHEMERAL_BYTES`. It must never be used for a second handshake.

        Raises:
            ValueError: A key has the wrong size.
        """
        if len(psk) != PSK_BYTES:
            raise ValueError(f"a pre-shared key has {PSK_BYTES} bytes, not {len(psk)}")
        if len(ephemeral_private) != EPHEMERAL_BYTES:
            raise ValueError(f"an ephemeral key has {EPHEMERAL_BYTES} bytes, not {len(ephemeral_private)}")
        self._initiator = initiator
        self._private = X25519PrivateKey.from_private_bytes(ephemeral_private)
        self._public = self._private.public_key().public_bytes_raw()
        self._symmetric = _SymmetricState(prologue)
        # Both roles begin with the first token of message 1, `psk` (section 9.2).
        self._symmetric.mix_key_and_hash(psk)
        # The result of `ee`. The responder has it after message 1, and mixes it in message 2.
        self._shared: bytes | None = None
        self.payload_hash = b""
        self._turn = _Turn.WRITE if initiator else _Turn.READ

    def __repr__(self) -> str:
        """Show the state and no key."""
        return f"Handshake(initiator={self._initiator}, {self._turn.name})"

    @property
    def is_complete(self) -> bool:
        """Whether both messages have passed."""
        return self._turn in (_Turn.COMPLETE, _Turn.SPLIT)

    @property
    def handshake_hash(self) -> bytes:
        """The hash of all that both sides sent, to bind something else to this link (section 11.2).

        Raises:
            RuntimeError: The handshake is not complete.
        """
        if not self.is_complete:
            raise RuntimeError(f"a handshake in state {self._turn.name} has no hash yet")
        return self._symmetric.hash

    def write_message(self, payload: bytes | Callable[[bytes], bytes] = b"") -> bytes:
        """Return the message of our turn; send it to the peer.

        The payload of message 1 can be replayed and is read by whoever learns the pre-shared key later: leave it empty.

        Args:
            payload: What to carry; or a function that makes it of `payload_hash`, to sign that.

        Raises:
            ValueError: The payload is larger than `PAYLOAD_BYTES_MAX`.
            RuntimeError: It is not our turn.
        """
        self._require(_Turn.WRITE)
        if not callable(payload):
            _check_payload(payload)
        self._mix_ephemeral(self._public)
        if not self._initiator:
            self._mix_shared()
        self.payload_hash = self._symmetric.hash
        if callable(payload):
            payload = payload(self.payload_hash)
            _check_payload(payload)
        message = self._public + self._symmetric.encrypt_and_hash(payload)
        self._turn = _Turn.READ if self._initiator else _Turn.COMPLETE
        return message

    def read_message(self, message: bytes) -> bytes:
        """Return the payload of the peer's message.

        After a failure the handshake is dead; close the connection without a word.

        Raises:
            AuthenticationError: Anything about the message is wrong.
            RuntimeError: It is not the peer's turn.
        """
        self._require(_Turn.READ)
        self._turn = _Turn.DEAD  # until all below has held
        if not EPHEMERAL_BYTES + TAG_BYTES <= len(message) <= MESSAGE_BYTES_MAX:
            raise AuthenticationError
        remote, sealed = message[:EPHEMERAL_BYTES], message[EPHEMERAL_BYTES:]
        self._mix_ephemeral(remote)
        if self._initiator:
            self._shared = self._exchange(remote)
            self._mix_shared()
        self.payload_hash = self._symmetric.hash
        try:
            payload = self._symmetric.decrypt_and_hash(sealed)
        except InvalidTag:
            raise AuthenticationError from None
        if not self._initiator:
            # Only now, with the tag verified: a stranger shall not make us multiply points. And not later, in our own message:
            # a point of low order is the peer's fault and has to show here.
            self._shared = self._exchange(remote)
        self._turn = _Turn.COMPLETE if self._initiator else _Turn.WRITE
        return payload

    def split(self) -> TransportKeys:
        """Return the keys of the link (section 5.2, Split), once: two sealers of one key would use nonces twice.

        Raises:
            RuntimeError: The handshake is not complete, or was split before.
        """
        self._require(_Turn.COMPLETE)
        self._turn = _Turn.SPLIT
        ours, theirs = self._symmetric.split()
        return TransportKeys(send=ours, receive=theirs) if self._initiator else TransportKeys(send=theirs, receive=ours)

    def _require(self, turn: _Turn) -> None:
        if self._turn is not turn:
            raise RuntimeError(f"a handshake in state {self._turn.name} was used as if in state {turn.name}")

    def _mix_ephemeral(self, public: bytes) -> None:
        """Process token `e`, which in a handshake with a pre-shared key goes into the key too (section 9.2)."""
        self._symmetric.mix_hash(public)
        self._symmetric.mix_key(public)

    def _mix_shared(self) -> None:
        """Process token `ee`."""
        assert self._shared is not None
        self._symmetric.mix_key(self._shared)

    def _exchange(self, remote: bytes) -> bytes:
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(remote))
        except ValueError:
            # The result was all zeros: the peer sent a point of low order, which no honest one does. Section 12.1 allows the
            # check, and OpenSSL always makes it; it keeps the handshake hash unique to a link (section 14, channel binding).
            raise AuthenticationError from None


class _SymmetricState:
    """The SymmetricState of section 5.2, with its CipherState.

    In this pattern every message mixes a new key in before its payload, so each key seals exactly one payload under nonce 0.
    `_take_key` holds us to it.
    """

    def __init__(self, prologue: bytes) -> None:
        # A protocol name of exactly the size of a hash is the first hash itself (section 5.2, InitializeSymmetric).
        assert len(PROTOCOL_NAME) == hashlib.sha256().digest_size
        self.hash = PROTOCOL_NAME
        self._chaining_key = PROTOCOL_NAME
        self._key: bytes | None = None
        self.mix_hash(prologue)

    def mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.sha256(self.hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self._chaining_key, self._key = _noise_hkdf(self._chaining_key, material, 2)

    def mix_key_and_hash(self, material: bytes) -> None:
        self._chaining_key, mixed, self._key = _noise_hkdf(self._chaining_key, material, 3)
        self.mix_hash(mixed)

    def encrypt_and_hash(self, plaintext: bytes) -> bytes:
        sealed = AESGCM(self._take_key()).encrypt(_NONCE_ZERO, plaintext, self.hash)
        self.mix_hash(sealed)
        return sealed

    def decrypt_and_hash(self, sealed: bytes) -> bytes:
        plaintext = AESGCM(self._take_key()).decrypt(_NONCE_ZERO, sealed, self.hash)
        self.mix_hash(sealed)
        return plaintext

    def split(self) -> tuple[bytes, bytes]:
        """Return the keys of the initiator's and of the responder's records."""
        of_initiator, of_responder = _noise_hkdf(self._chaining_key, b"", 2)
        return of_initiator, of_responder

    def _take_key(self) -> bytes:
        key, self._key = self._key, None
        assert key is not None, "a key would be used for a second payload"
        return key


def _check_payload(payload: bytes) -> None:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a handshake message carries at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")


def _noise_hkdf(chaining_key: bytes, material: bytes, outputs: int) -> list[bytes]:
    """Return two or three keys of 32 bytes (section 4.3).

    It equals RFC 5869 with the chaining key as salt and an empty info, cut into blocks.
    """
    extracted = hmac.digest(chaining_key, material, "sha256")
    keys: list[bytes] = []
    previous = b""
    for number in range(1, outputs + 1):
        previous = hmac.digest(extracted, previous + bytes([number]), "sha256")
        keys.append(previous)
    return keys
