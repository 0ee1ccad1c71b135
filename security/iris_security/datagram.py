"""Encrypted and signed UDP datagrams, for discovery::

    version:u8=1  key_id:8  sender:16  counter:u64
    AES-256-GCM(subkey, nonce = 0^4 || counter, associated = all before, plaintext = signature:96 || payload)

The subkey is `HKDF(datagram key, salt = sender, info = "iris datagram sender")`. As in envelope.py, each sender counts under
its own key, because random nonces under a shared key are safe for too few messages (NIST SP 800-38D section 8.3).

The node with the sender's id signs header and payload (identity.py). An insider could derive the subkey of another node but
cannot sign for that node. So an insider can neither impersonate the node nor use up counters of its window. Signing takes about
0.04 ms and verifying 0.11 ms; a node sends and receives few datagrams a second.

An outsider learns from a datagram that Iris runs here, the generation of the secret, a node id and the number of datagrams sent
by that node. An outsider cannot make a datagram. Receivers reject a repeated datagram as long as they remember its sender.

Requirement: a pair of key and sender id has only one `DatagramSealer`, ever. A node with a new id at every start satisfies it.
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
#: Every IPv6 link carries packets of 1280 bytes (RFC 8200 section 5); 1200 leaves room for headers and tunnels, as in QUIC (RFC
#: 9000 section 14). So the network never fragments a datagram, and a node never stores fragments of strangers.
DATAGRAM_BYTES_MAX = 1200
PAYLOAD_BYTES_MAX = DATAGRAM_BYTES_MAX - OVERHEAD_BYTES
#: The largest number of datagrams of one sender: 2^32 datagrams of at most 75 blocks keep an attacker's advantage below 2^-51.
#: At one per second this lasts 136 years.
DATAGRAMS_MAX = 1 << 32
#: The largest number of senders with a remembered replay window. Too small: the sender silent for longest is forgotten, and its
#: repeated beacon announces a node until a dial fails; too large: memory, about 3 KB each, 12 MB in all.
SENDERS_MAX = 4096

_VERSION_BYTE = bytes([VERSION])
_NONCE_PREFIX = bytes(4)
_SENDER_AT = 1 + KEY_ID_BYTES
_COUNTER_AT = _SENDER_AT + NODE_ID_BYTES


class DatagramSealer:
    """Encrypts and signs the datagrams of one sender; only one sealer per key and sender id may ever exist."""

    __slots__ = ("_counter", "_encrypt", "_identity", "_prefix")

    def __init__(self, keys: NetworkKeys, identity: Identity) -> None:
        """Begin to encrypt the datagrams of this node.

        Args:
            keys: The keys of the network, in production the primary ones.
            identity: The identity of this node.
        """
        self._identity = identity
        self._prefix = _VERSION_BYTE + keys.key_id + identity.node_id
        self._encrypt = AESGCM(_sender_key(keys, identity.node_id)).encrypt
        self._counter = 0

    def seal(self, payload: bytes) -> bytes:
        """Return the complete, encrypted and signed datagram for a payload.

        Raises:
            ValueError: The payload is larger than `PAYLOAD_BYTES_MAX`.
            KeyExhaustedError: `DATAGRAMS_MAX` datagrams have been sealed.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"a datagram carries at most {PAYLOAD_BYTES_MAX} bytes, not {len(payload)}: split the payload")
        counter = self._counter
        if counter == DATAGRAMS_MAX:
            raise KeyExhaustedError("this sender has sealed all its datagrams: restart the node with a new id")
        # Increment before encrypting: if the encryption fails, no later call reuses the counter.
        self._counter = counter + 1
        encoded = counter.to_bytes(COUNTER_BYTES, "big")
        header = self._prefix + encoded
        signature = self._identity.sign(Purpose.DATAGRAM, header + payload)
        return header + self._encrypt(_NONCE_PREFIX + encoded, signature + payload, header)


class DatagramOpener:
    """Decrypts the datagrams of all senders of a network and accepts each datagram once.

    Only an authentic datagram changes the state of its sender, so a forger can neither move a window nor evict a sender.
    """

    __slots__ = ("_keyring", "_senders", "_senders_max")

    def __init__(self, keyring: Keyring, *, senders_max: int = SENDERS_MAX) -> None:
        """Begin without known senders.

        Args:
            keyring: The generations of the network's keys; datagrams of all generations are accepted.
            senders_max: The number of remembered senders. Too small: repeated datagrams are accepted; too large: memory.

        Raises:
            ValueError: `senders_max` is not positive.
        """
        if senders_max < 1:
            raise ValueError(f"an opener must keep at least 1 sender, not {senders_max}")
        self._keyring = keyring
        self._senders_max = senders_max
        # By key id and sender id, adjacent as in the header; the sender heard last is at the end.
        self._senders: OrderedDict[bytes, _Sender] = OrderedDict()

    def rekey(self, keyring: Keyring) -> None:
        """From now on, accept only datagrams of the generations in another keyring."""
        self._keyring = keyring
        for identity in [each for each in self._senders if keyring.find(each[:KEY_ID_BYTES]) is None]:
            del self._senders[identity]

    def open(self, datagram: bytes) -> tuple[bytes, bytes]:
        """Verify and decrypt a datagram; return the sender's id and the payload.

        Raises:
            ReplayError: The datagram is authentic, but was opened before or is older than the window.
            AuthenticationError: The datagram is not authentic.
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
        # The datagram is authentic and may change the state.
        self._senders[identity] = sender
        self._senders.move_to_end(identity)
        if len(self._senders) > self._senders_max:
            self._senders.popitem(last=False)
        if not sender.accept(int.from_bytes(counter, "big")):
            raise ReplayError
        return identity[KEY_ID_BYTES:], payload

    def is_foreign(self, datagram: bytes) -> bool:
        """Return whether a datagram looks like one of a network with an unknown secret. Anybody can fake this look."""
        is_ours_to_read = OVERHEAD_BYTES <= len(datagram) <= DATAGRAM_BYTES_MAX and datagram[0] == VERSION
        return is_ours_to_read and self._keyring.find(datagram[1:_SENDER_AT]) is None

    def _introduce(self, identity: bytes) -> "_Sender":
        """Return new state for an unknown sender, without storing it."""
        keys = self._keyring.find(identity[:KEY_ID_BYTES])
        if keys is None:
            raise AuthenticationError
        return _Sender(_sender_key(keys, identity[KEY_ID_BYTES:]))


class _Sender:
    """The key and the replay window of one sender."""

    __slots__ = ("accept", "decrypt")

    def __init__(self, key: bytes) -> None:
        self.decrypt = AESGCM(key).decrypt
        self.accept = ReplayWindow().accept


def _sender_key(keys: NetworkKeys, sender: bytes) -> bytes:
    return hkdf(keys.datagram_key, salt=sender, info=b"iris datagram sender")
