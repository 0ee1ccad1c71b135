"""Encrypted datagrams between the two ends of a link, without signatures::

    version:u8=2  sender:16  counter:u64
    AES-256-GCM(key of the direction, nonce = 0^4 || counter, associated = all before, plaintext = payload)

The key of a direction is `HKDF(third key of the handshake, info = "iris datagram initiator" or "iris datagram responder")`. The
ephemeral keys of the link make it new, and both ends have signed the handshake. So only the node at the other end can have
made a datagram under the key of its direction. For the receiver this proves as much as a signature, and costs 2 us, where a
signature and its check cost 150. A third node cannot check the sender.

Either end may have lost the link without the knowledge of the other one, and then cannot read these datagrams. So an end
without recent datagrams of the peer signs (datagram.py), see `LinkDatagrams.may_seal`.
"""

from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import TAG_BYTES
from iris_security.datagram import COUNTER_BYTES, DATAGRAM_BYTES_MAX, DATAGRAMS_MAX
from iris_security.errors import AuthenticationError, ReplayError
from iris_security.hkdf import hkdf
from iris_security.keyring import NODE_ID_BYTES
from iris_security.replay import ReplayWindow

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION = 2
HEADER_BYTES = 1 + NODE_ID_BYTES + COUNTER_BYTES
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
#: Datagrams sealed in a row without one from the peer; the next ones are signed. Too small: nodes that probe each other, and so
#: send an answer and a ping in a row, sign every second one; too large: a peer that has lost the link misses too many pings of
#: a probe, or answers to its own.
UNANSWERED_MAX = 2
#: Signed datagrams in a row; then one is sealed, as a trial. Too small: a peer that has lost the link misses many pings, so the
#: network looks lossy; too large: after a cut of the network, probes stay expensive for long.
SIGNED_MAX = 16

_VERSION_BYTE = bytes([VERSION])
_NONCE_PREFIX = bytes(4)
_COUNTER_AT = 1 + NODE_ID_BYTES


class LinkDatagrams:
    """Encrypts and decrypts the datagrams of one end of a link; only one object per end of a link may ever exist.

    The keys are derived at the first use.
    """

    __slots__ = ("_counter", "_decrypt", "_encrypt", "_is_confirmed", "_is_initiator", "_secret", "_unanswered", "_window")

    def __init__(self, secret: bytes, *, initiator: bool) -> None:
        """Begin without datagrams.

        Args:
            secret: The key for datagrams of the handshake.
            initiator: Whether the local side dialled the link.
        """
        self._secret = secret
        self._is_initiator = initiator
        # Whether the peer holds the keys. The responder has its keys before the initiator, which waits for its answer.
        self._is_confirmed = initiator
        # Datagrams sent since the last one of the peer under these keys; at `UNANSWERED_MAX` and above with the signed ones.
        self._unanswered = 0
        self._counter = 0
        self._encrypt: Callable[[bytes, bytes, bytes], bytes] | None = None
        self._decrypt: Callable[[bytes, bytes, bytes], bytes] | None = None
        self._window = ReplayWindow()

    def __repr__(self) -> str:
        """Hide the keys."""
        return f"LinkDatagrams(initiator={self._is_initiator})"

    def may_seal(self) -> bool:
        """Return whether to seal the next datagram; otherwise the owner signs it.

        The peer has to hold the keys: it answered the handshake, or has sent a datagram of the link. And it may have lost them
        since, if it has sent none after the last `UNANSWERED_MAX` here. Then every `SIGNED_MAX`-th is sealed as a trial.
        """
        if not self._is_confirmed or self._counter >= DATAGRAMS_MAX:
            return False
        if self._unanswered >= UNANSWERED_MAX:
            self._unanswered += 1
            if self._unanswered <= UNANSWERED_MAX + SIGNED_MAX:
                return False
            self._unanswered = UNANSWERED_MAX - 1
        return True

    def seal(self, sender: bytes, payload: bytes) -> bytes:
        """Return the encrypted datagram for a payload.

        Args:
            sender: The id of the local node, by which the receiver finds the link.
            payload: The payload; with `OVERHEAD_BYTES` at most `DATAGRAM_BYTES_MAX`.
        """
        if self._encrypt is None:
            self._encrypt = AESGCM(self._key(self._is_initiator)).encrypt
        counter = self._counter
        # Increment before encrypting: if the encryption fails, no later call reuses the counter.
        self._counter = counter + 1
        self._unanswered += 1
        encoded = counter.to_bytes(COUNTER_BYTES, "big")
        header = _VERSION_BYTE + sender + encoded
        return header + self._encrypt(_NONCE_PREFIX + encoded, payload, header)

    def open(self, datagram: bytes) -> bytes:
        """Verify and decrypt a datagram of the peer; return the payload.

        Raises:
            ReplayError: The datagram is authentic, but was opened before or is older than the window.
            AuthenticationError: The datagram is not authentic.
        """
        if sender_of(datagram) is None:
            raise AuthenticationError
        if self._decrypt is None:
            self._decrypt = AESGCM(self._key(not self._is_initiator)).decrypt
        header = datagram[:HEADER_BYTES]
        counter = header[_COUNTER_AT:]
        try:
            payload = self._decrypt(_NONCE_PREFIX + counter, datagram[HEADER_BYTES:], header)
        except InvalidTag:
            raise AuthenticationError from None
        if not self._window.accept(int.from_bytes(counter, "big")):
            raise ReplayError
        self._is_confirmed = True
        self._unanswered = 0
        return payload

    def _key(self, of_initiator: bool) -> bytes:
        return hkdf(self._secret, info=b"iris datagram initiator" if of_initiator else b"iris datagram responder")


def sender_of(datagram: bytes) -> bytes | None:
    """Return the claimed sender of a datagram that looks like one of a link; None for any other datagram."""
    if not OVERHEAD_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX or datagram[0] != VERSION:
        return None
    return datagram[1:_COUNTER_AT]
