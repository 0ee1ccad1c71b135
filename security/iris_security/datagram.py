"""Sealed UDP datagrams, for discovery::

    version:u8=1  key_id:8  sender:16  counter:u64
    AES-256-GCM(subkey, nonce = 0^4 || counter, associated = all before, plaintext = signature:96 || payload)

The subkey is `HKDF(datagram key, salt = sender, info = "iris datagram sender")`: as in envelope.py, each sender
counts under a key of its own, because random nonces under a shared one run out of safety (NIST SP 800-38D section 8.3).

The signature (identity.py) is of the header and the payload, by the node whose id is the sender. Whoever holds the network
secret could derive the subkey of another node, but cannot sign for it; so it cannot speak for that node, nor use up the
counters of its window. It costs some 0.04 ms to make and 0.11 ms to check, of the few datagrams that a node sends and gets in
a second.

Who lacks the network secret learns from a datagram that Iris is here, which generation of a secret it uses, a node id and how
many datagrams that node has sent. It cannot make one; a repeated one is refused as long as its sender is remembered.

What it asks of the sender: one `DatagramSealer` per key and sender id in all time. A node has that when its id is new at
every start.
"""

from collections import OrderedDict

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import TAG_BYTES
from iris_security.errors import AuthenticationError, KeyExhaustedError, ReplayError
from iris_security.hkdf import hkdf
from iris_security.identity import Identity, Purpose, verify_signature
from iris_security.keyring import KEY_ID_BYTES, NODE_ID_BYTES, Keyring, NetworkKeys
from iris_security.replay import ReplayWindow
from iris_security.signature import SIGNATURE_BYTES

VERSION = 1
COUNTER_BYTES = 8
HEADER_BYTES = 1 + KEY_ID_BYTES + NODE_ID_BYTES + COUNTER_BYTES
OVERHEAD_BYTES = HEADER_BYTES + SIGNATURE_BYTES + TAG_BYTES
#: Every IPv6 link carries packets of 1280 bytes (RFC 8200 section 5); 1200 leaves room for headers and tunnels, as in QUIC
#: (RFC 9000 section 14). So a datagram is never fragmented, and no fragment has to be kept for a stranger.
DATAGRAM_BYTES_MAX = 1200
PAYLOAD_BYTES_MAX = DATAGRAM_BYTES_MAX - OVERHEAD_BYTES
#: 2^32 datagrams of at most 75 blocks: an attacker's advantage stays below 2^-51. At one per second this lasts 136 years.
DATAGRAMS_MAX = 1 << 32
#: Senders whose windows are kept. Beyond that the one that was silent the longest is forgotten; its repeated beacon would then
#: only announce a node that a dial proves absent. About 3 KB each: 12 MB in all.
SENDERS_MAX = 4096

_VERSION_BYTE = bytes([VERSION])
_NONCE_PREFIX = bytes(4)
_SENDER_AT = 1 + KEY_ID_BYTES
_COUNTER_AT = _SENDER_AT + NODE_ID_BYTES


class DatagramSealer:
    """Seals the datagrams of one sender. See the module for what it asks of the sender."""

    __slots__ = ("_counter", "_encrypt", "_identity", "_prefix")

    def __init__(self, keys: NetworkKeys, identity: Identity) -> None:
        """Start counting for a sender.

        Args:
            keys: The keys of the network, in production the primary ones.
            identity: This node.
        """
        self._identity = identity
        self._prefix = _VERSION_BYTE + keys.key_id + identity.node_id
        self._encrypt = AESGCM(_sender_key(keys, identity.node_id)).encrypt
        self._counter = 0

    def seal(self, payload: bytes) -> bytes:
        """Return a whole datagram.

        Raises:
            ValueError: The payload is larger than `PAYLOAD_BYTES_MAX`.
            KeyExhaustedError: After `DATAGRAMS_MAX` datagrams.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a datagram carries at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}: split the payload")
        counter = self._counter
        if counter == DATAGRAMS_MAX:
            raise KeyExhaustedError("this sender has sealed all its datagrams: restart the node with a new id")
        # Before the call: whatever happens in it, a counter is not used again.
        self._counter = counter + 1
        encoded = counter.to_bytes(COUNTER_BYTES, "big")
        header = self._prefix + encoded
        signature = self._identity.sign(Purpose.DATAGRAM, header + payload)
        return header + self._encrypt(_NONCE_PREFIX + encoded, signature + payload, header)


class DatagramOpener:
    """Opens the datagrams of all senders of a network, each once.

    What it remembers of a sender changes only after a datagram proved to be that sender's, so a forger moves no window and
    pushes nobody out.
    """

    __slots__ = ("_keyring", "_senders", "_senders_max")

    def __init__(self, keyring: Keyring, *, senders_max: int = SENDERS_MAX) -> None:
        """Start with no sender known.

        Args:
            keyring: The network's generations of keys; datagrams under each of them open.
            senders_max: How many senders to keep; too few and a repeated datagram passes, too many and memory goes.

        Raises:
            ValueError: The number is not positive.
        """
        if senders_max < 1:
            raise ValueError(f"an opener keeps at least 1 sender, not {senders_max}")
        self._keyring = keyring
        self._senders_max = senders_max
        # By key id and sender id, as they stand together in the header. The one heard last stands last.
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()

    def rekey(self, keyring: Keyring) -> None:
        """Open what is sealed under the generations of another keyring from now on, and nothing else."""
        self._keyring = keyring
        for identity in [each for each in self._senders if keyring.find(each[:KEY_ID_BYTES]) is None]:
            del self._senders[identity]

    def open(self, datagram: bytes) -> tuple[bytes, bytes]:
        """Return the sender's id and the payload.

        Raises:
            ReplayError: It is authentic, and was opened before or is too old to tell.
            AuthenticationError: It is not authentic.
        """
        if not OVERHEAD_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX or datagram[0] != VERSION:
            raise AuthenticationError
        header = datagram[:HEADER_BYTES]
        identity, counter = header[1:_COUNTER_AT], header[_COUNTER_AT:]
        sender = self._senders.get(identity) or self._introduce(identity)
        try:
            opened = sender.decrypt(_NONCE_PREFIX + counter, datagram[HEADER_BYTES:], header)
        except InvalidTag:
            raise AuthenticationError from None
        signature, payload = opened[:SIGNATURE_BYTES], opened[SIGNATURE_BYTES:]
        if verify_signature(Purpose.DATAGRAM, header + payload, signature) != identity[KEY_ID_BYTES:]:
            raise AuthenticationError
        # From here on it is authentic, and may change what we know.
        self._senders[identity] = sender
        self._senders.move_to_end(identity)
        if len(self._senders) > self._senders_max:
            self._senders.popitem(last=False)
        if not sender.accept(int.from_bytes(counter, "big")):
            raise ReplayError
        return identity[KEY_ID_BYTES:], payload

    def is_foreign(self, datagram: bytes) -> bool:
        """Tell whether a datagram looks like one of a network whose secret we do not hold. Anybody can make one that does."""
        is_ours_to_read = OVERHEAD_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX and datagram[0] == VERSION
        return is_ours_to_read and self._keyring.find(datagram[1:_SENDER_AT]) is None

    def _introduce(self, identity: bytes) -> "_Sender":
        """Make the state of a sender that we do not know, without keeping it."""
        keys = self._keyring.find(identity[:KEY_ID_BYTES])
        if keys is None:
            raise AuthenticationError
        return _Sender(_sender_key(keys, identity[KEY_ID_BYTES:]))


class _Sender:
    """The key and the window of one sender."""

    __slots__ = ("accept", "decrypt")

    def __init__(self, key: bytes) -> None:
        self.decrypt = AESGCM(key).decrypt
        self.accept = ReplayWindow().accept


def _sender_key(keys: NetworkKeys, sender: bytes) -> bytes:
    return hkdf(keys.datagram_key, salt=sender, info=b"iris datagram sender")
