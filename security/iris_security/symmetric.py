"""The state of a Noise handshake, which every pattern shares, and the parts of a pattern of two messages.

Section numbers are those of the Noise Protocol Framework, revision 34. The patterns themselves are in noise.py and noise_kk.py;
both use X25519, AES-256-GCM and SHA-256.
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

DH_KEY_BYTES = 32  # an X25519 key, private or public (section 12.1)
MESSAGE_BYTES_MAX = 65535  # section 3
PAYLOAD_BYTES_MAX = MESSAGE_BYTES_MAX - DH_KEY_BYTES - TAG_BYTES

#: Section 12.4: 32 zero bits and the nonce, big-endian. In these patterns it is always 0, see `SymmetricState`.
_NONCE_ZERO = bytes(12)


@dataclass(frozen=True, slots=True, repr=False)
class TransportKeys:
    """The keys of the two directions of a link, from where we stand."""

    send: bytes
    receive: bytes

    def __repr__(self) -> str:
        """Show nothing: both fields are secret."""
        return "TransportKeys(<hidden>)"


class SymmetricState:
    """The SymmetricState of section 5.2, with its CipherState.

    In our patterns every message mixes a new key in before its payload, so each key seals exactly one payload under nonce 0.
    `_take_key` holds us to it.
    """

    def __init__(self, protocol_name: bytes, prologue: bytes) -> None:
        # A protocol name that is no longer than a hash is, with zeros behind it, the first one (section 5.2).
        assert len(protocol_name) <= hashlib.sha256().digest_size
        self.hash = protocol_name.ljust(hashlib.sha256().digest_size, b"\0")
        self._chaining_key = self.hash
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


class Turn(enum.Enum):
    """The states of a handshake of two messages."""

    WRITE = enum.auto()
    READ = enum.auto()
    COMPLETE = enum.auto()
    SPLIT = enum.auto()
    # A read failed. Nothing leads out of here.
    DEAD = enum.auto()


class TwoMessages:
    """A handshake of one message each way, each of which begins with an ephemeral key; a pattern says what is mixed in.

    The initiator writes and then reads, the responder reads and then writes; then `is_complete` holds, and `split` gives the
    keys.

    Args:
        initiator: Whether we write the first message.
        ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. It must never be used for a second handshake.
        symmetric: The state, with all that is mixed in before the first ephemeral key.

    Attributes:
        payload_hash: The hash of all before the payload of the last message that was written or read. It has both ephemeral
            keys in it once that is message 2.

    Raises:
        ValueError: The key has the wrong size.
    """

    def __init__(self, *, initiator: bool, ephemeral_private: bytes, symmetric: SymmetricState) -> None:
        if len(ephemeral_private) != DH_KEY_BYTES:
            raise ValueError(f"an ephemeral key has {DH_KEY_BYTES} bytes, not {len(ephemeral_private)}")
        self._initiator = initiator
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral_private)
        self._public = self._ephemeral.public_key().public_bytes_raw()
        self._symmetric = symmetric
        self.payload_hash: bytes = b""
        self._turn = Turn.WRITE if initiator else Turn.READ

    def __repr__(self) -> str:
        """Show the state and no key."""
        return f"{type(self).__name__}(initiator={self._initiator}, {self._turn.name})"

    @property
    def is_complete(self) -> bool:
        """Whether both messages have passed."""
        return self._turn in (Turn.COMPLETE, Turn.SPLIT)

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

        The payload of message 1 can be replayed and is read by whoever learns the long-lived keys later: leave it empty.

        Args:
            payload: What to carry; or a function that makes it of `payload_hash`, to sign that.

        Raises:
            ValueError: The payload is larger than `PAYLOAD_BYTES_MAX`.
            RuntimeError: It is not our turn.
        """
        self._require(Turn.WRITE)
        if not callable(payload):
            _check_payload(payload)
        if self._initiator:
            self._mix_first(self._public)
        else:
            self._mix_second(self._public)
        self.payload_hash = self._symmetric.hash
        if callable(payload):
            payload = payload(self.payload_hash)
            _check_payload(payload)
        message = self._public + self._symmetric.encrypt_and_hash(payload)
        self._turn = Turn.READ if self._initiator else Turn.COMPLETE
        return message

    def read_message(self, message: bytes) -> bytes:
        """Return the payload of the peer's message.

        After a failure the handshake is dead; close the connection without a word.

        Raises:
            AuthenticationError: Anything about the message is wrong.
            RuntimeError: It is not the peer's turn.
        """
        self._require(Turn.READ)
        self._turn = Turn.DEAD  # until all below has held
        if not DH_KEY_BYTES + TAG_BYTES <= len(message) <= MESSAGE_BYTES_MAX:
            raise AuthenticationError
        remote, sealed = message[:DH_KEY_BYTES], message[DH_KEY_BYTES:]
        if self._initiator:
            self._mix_second(remote)
        else:
            self._mix_first(remote)
        self.payload_hash = self._symmetric.hash
        try:
            payload = self._symmetric.decrypt_and_hash(sealed)
        except InvalidTag:
            raise AuthenticationError from None
        if not self._initiator:
            self._prepare_second(remote)
        self._turn = Turn.COMPLETE if self._initiator else Turn.WRITE
        return payload

    def split(self) -> TransportKeys:
        """Return the keys of the link (section 5.2, Split), once: two sealers of one key would use nonces twice.

        Raises:
            RuntimeError: The handshake is not complete, or was split before.
        """
        self._require(Turn.COMPLETE)
        self._turn = Turn.SPLIT
        ours, theirs = self._symmetric.split()
        return TransportKeys(send=ours, receive=theirs) if self._initiator else TransportKeys(send=theirs, receive=ours)

    # -- what a pattern is made of

    def _mix_first(self, public: bytes) -> None:
        """Mix in the tokens of message 1, of which this is the ephemeral key."""
        raise NotImplementedError

    def _prepare_second(self, remote: bytes) -> None:
        """Compute, as the responder, what message 2 mixes in and what may fail: message 1 has authenticated."""
        raise NotImplementedError

    def _mix_second(self, public: bytes) -> None:
        """Mix in the tokens of message 2, of which this is the ephemeral key; a responder has prepared them."""
        raise NotImplementedError

    def _require(self, turn: Turn) -> None:
        if self._turn is not turn:
            raise RuntimeError(f"a handshake in state {self._turn.name} was used as if in state {turn.name}")


def exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret of two keys.

    Raises:
        AuthenticationError: It is all zeros: the public key is a point of low order, which no honest side has. Section 12.1
            allows the check, and OpenSSL always makes it; it keeps the handshake hash unique to a link (section 14, channel
            binding).
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise AuthenticationError from None


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
