"""The handshake state shared by all Noise patterns, and the base of patterns with two messages.

Section numbers are those of the Noise Protocol Framework, revision 34. The patterns are in noise.py and noise_kk.py; both use
X25519, AES-256-GCM and SHA-256.
"""

import enum
import hashlib
import hmac
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.backends import default_backend
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import TAG_BYTES
from iris_security.errors import AuthenticationError
from iris_security.key_material import KeyMaterial

# Import now: X25519 imports the backend at its first use, which would delay a process's first handshake by 4 ms.
default_backend()

DH_KEY_BYTES = 32  # an X25519 key, private or public (section 12.1)
MESSAGE_BYTES_MAX = 65535  # section 3
PAYLOAD_BYTES_MAX = MESSAGE_BYTES_MAX - DH_KEY_BYTES - TAG_BYTES

#: The nonce of section 12.4: 32 zero bits and the counter, big-endian. The counter is always 0 here, see `SymmetricState`.
_NONCE_ZERO = bytes(12)


class TransportKeys(KeyMaterial):
    """The keys of a link, as seen from the local side: of its two directions, and the common one for datagrams beside it."""

    __slots__ = ("datagrams", "receive", "send")

    send: bytes
    receive: bytes
    datagrams: bytes

    def __init__(self, send: bytes, receive: bytes, datagrams: bytes = b"") -> None:
        object.__setattr__(self, "send", send)
        object.__setattr__(self, "receive", receive)
        object.__setattr__(self, "datagrams", datagrams)

    def __repr__(self) -> str:
        """Hide all fields, which are secret."""
        return "TransportKeys(<hidden>)"


class SymmetricState:
    """The hash and key of a running handshake: SymmetricState of section 5.2, with its CipherState.

    Here every message mixes in a new key before its payload. So a key encrypts only one payload, under nonce 0; `_take_key`
    enforces this.
    """

    def __init__(self, protocol_name: bytes, prologue: bytes) -> None:
        # A protocol name no longer than a hash, padded with zeros, is the initial hash (section 5.2).
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

    def split(self) -> tuple[bytes, bytes, bytes]:
        """Return the record keys of the initiator and of the responder, and a third key, which no record uses."""
        of_initiator, of_responder, third = _noise_hkdf(self._chaining_key, b"", 3)
        return of_initiator, of_responder, third

    def _take_key(self) -> bytes:
        key, self._key = self._key, None
        assert key is not None, "a key would be used for a second payload"
        return key


class Turn(enum.Enum):
    """The states of a handshake of two messages: the next step, or the end."""

    WRITE = enum.auto()
    READ = enum.auto()
    COMPLETE = enum.auto()
    SPLIT = enum.auto()
    # A read failed. The state is final.
    DEAD = enum.auto()


class TwoMessages:
    """A handshake of one message each way, both with an ephemeral key first; subclasses mix in the tokens of a pattern.

    The initiator writes and then reads; the responder reads and then writes. Then `is_complete` is true, and `split` returns
    the keys.

    Args:
        initiator: Whether the local side writes the first message.
        ephemeral_private: Fresh entropy of `DH_KEY_BYTES`. Never use it for a second handshake.
        symmetric: The state after mixing in everything before the first ephemeral key.

    Attributes:
        payload_hash: The handshake hash before the payload of the last written or read message. From message 2 on, it covers
            both ephemeral keys.

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
        """Show the state without keys."""
        return f"{type(self).__name__}(initiator={self._initiator}, {self._turn.name})"

    @property
    def is_complete(self) -> bool:
        """Whether both messages have passed."""
        return self._turn in (Turn.COMPLETE, Turn.SPLIT)

    @property
    def handshake_hash(self) -> bytes:
        """The hash of the whole handshake, which binds other data to this link (section 11.2).

        Raises:
            RuntimeError: The handshake is not complete.
        """
        if not self.is_complete:
            raise RuntimeError(f"a handshake in state {self._turn.name} has no hash yet")
        return self._symmetric.hash

    def write_message(self, payload: bytes | Callable[[bytes], bytes] = b"") -> bytes:
        """Return the next handshake message to send to the peer.

        Message 1 can be replayed, and a later thief of the long-lived keys can read its payload: leave it empty.

        Args:
            payload: The payload; or a function that returns the payload for the `payload_hash`, for example a signature of it.

        Raises:
            ValueError: The payload is larger than `PAYLOAD_BYTES_MAX`.
            RuntimeError: The handshake does not write now.
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
        """Verify the peer's handshake message and return its payload.

        A failure ends the handshake; close the connection without an answer.

        Raises:
            AuthenticationError: The message is not valid, for any reason.
            RuntimeError: The handshake does not read now.
        """
        self._require(Turn.READ)
        self._turn = Turn.DEAD  # until the whole message is verified
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
        """Return the keys of the link (section 5.2, Split), once: two sealers with one key would reuse nonces.

        Raises:
            RuntimeError: The handshake is not complete, or was split before.
        """
        self._require(Turn.COMPLETE)
        self._turn = Turn.SPLIT
        of_initiator, of_responder, third = self._symmetric.split()
        if self._initiator:
            return TransportKeys(send=of_initiator, receive=of_responder, datagrams=third)
        return TransportKeys(send=of_responder, receive=of_initiator, datagrams=third)

    # -- the hooks of a pattern

    def _mix_first(self, public: bytes) -> None:
        """Mix in the tokens of message 1, with its ephemeral key."""
        raise NotImplementedError

    def _prepare_second(self, remote: bytes) -> None:
        """Compute, as the responder, the fallible inputs of message 2; message 1 is already authenticated."""
        raise NotImplementedError

    def _mix_second(self, public: bytes) -> None:
        """Mix in the tokens of message 2, with its ephemeral key; a responder has prepared them."""
        raise NotImplementedError

    def _require(self, turn: Turn) -> None:
        if self._turn is not turn:
            raise RuntimeError(f"a handshake in state {self._turn.name} was used as if in state {turn.name}")


def exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the secret shared by the owners of two X25519 keys.

    Raises:
        AuthenticationError: The secret is all zeros: the public key is a point of low order, which no honest side has. Section
            12.1 allows the check, and OpenSSL always makes it. The check keeps the handshake hash unique to a link (section 14,
            channel binding).
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise AuthenticationError from None


def _check_payload(payload: bytes) -> None:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a handshake message carries at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}")


def _noise_hkdf(chaining_key: bytes, material: bytes, outputs: int) -> list[bytes]:
    """Derive two or three keys of 32 bytes from the chaining key and new key material (section 4.3).

    The result equals RFC 5869 with the chaining key as salt and an empty info, cut into blocks.
    """
    extracted = hmac.digest(chaining_key, material, "sha256")
    keys: list[bytes] = []
    previous = b""
    for number in range(1, outputs + 1):
        previous = hmac.digest(extracted, previous + bytes([number]), "sha256")
        keys.append(previous)
    return keys
