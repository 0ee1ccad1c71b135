"""The end-to-end encryption of group packets' bodies (docs/design.md 4.1-4.3).

All members of a group hold one key. Random nonces under a shared key are safe for only 2^32 messages of all members together
(NIST SP 800-38D section 8.3). So no member uses the key itself: each sender derives a subkey per epoch and counts. This is the
deterministic construction of section 8.2.1, with the epoch as the fixed field.

Nodes without the group key cannot read, change or make a body, redirect it to another receiver or deliver it twice. Members are
not protected from each other: a holder of the key can seal as any sender.

Requirement: a (group, sender id, epoch) has only one `GroupSealer`, ever. A node with a new id at every start keeps one sealer
per group, or starts the next sealer above the last `epoch` of the previous one. A node with a permanent id has to store that
epoch.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import NONCE_BYTES
from iris_security.errors import AuthenticationError, KeyExhaustedError, ReplayError
from iris_security.hkdf import hkdf
from iris_security.keyring import GROUP_ID_BYTES, NODE_ID_BYTES, GroupKeys
from iris_security.replay import ReplayWindow

Buffer = bytes | bytearray | memoryview

EPOCH_BYTES = 4
EPOCH_MAX = (1 << 8 * EPOCH_BYTES) - 1
#: The largest number of bodies per key. All epochs together last 142 years at a million bodies a second.
EPOCH_MESSAGES_MAX = 1 << 20
#: The largest total size of bodies per key; a single body may have 64 MiB. 2^36 blocks per key keep an attacker's advantage
#: below 2^-56 (2^72 / 2^128), about the limit of 2^-57 in RFC 8446 section 5.5 (TLS 1.3). Too small: needless derivations of
#: keys.
EPOCH_BODIES_BYTES_MAX = 1 << 40
#: The largest number of senders with a remembered replay window, per group and receiver. Too small: the sender silent for
#: longest is forgotten, and an insider can replay its bodies here; too large: memory, about 5.5 KB with two epochs each, 22 MB
#: in all.
SENDERS_MAX = 4096

_NONCE = struct.Struct("!IQ")  # epoch, counter


def unicast_associated(group_id: bytes, sender: bytes, receiver: bytes) -> bytes:
    """Return the associated data (authenticated, not encrypted) of a body for one receiver (docs/design.md 4.2).

    All parts have a fixed size, so the result is longer than a multicast's and never confused with one.

    Raises:
        ValueError: An id has the wrong size.
    """
    _require_bytes("group id", group_id, GROUP_ID_BYTES)
    _require_bytes("sender id", sender, NODE_ID_BYTES)
    _require_bytes("receiver id", receiver, NODE_ID_BYTES)
    return group_id + sender + receiver


def multicast_associated(group_id: bytes, sender: bytes) -> bytes:
    """Return the associated data (authenticated, not encrypted) of a body for all members (docs/design.md 4.2).

    Raises:
        ValueError: An id has the wrong size.
    """
    _require_bytes("group id", group_id, GROUP_ID_BYTES)
    _require_bytes("sender id", sender, NODE_ID_BYTES)
    return group_id + sender


class GroupSealer:
    """Encrypts the bodies of a sender to a group; a group, sender id and epoch may have only one sealer, ever."""

    __slots__ = ("_bytes_left", "_counter", "_encrypt", "_epoch", "_epoch_messages", "_keys", "_sender")

    _counter: int
    _encrypt: Callable[[bytes, Buffer, bytes], bytes]

    def __init__(self, keys: GroupKeys, sender: bytes, epoch: int = 0, *, epoch_messages: int = EPOCH_MESSAGES_MAX) -> None:
        """Begin to encrypt, with the first epoch of this sealer.

        Args:
            keys: The keys of the group.
            sender: The id of this node.
            epoch: The first epoch; the id has used neither this nor a later epoch in the group.
            epoch_messages: The number of bodies per epoch; fewer than the default cost more key derivations.

        Raises:
            ValueError: The id has the wrong size, or a number is out of range.
        """
        _require_bytes("sender id", sender, NODE_ID_BYTES)
        if not 0 <= epoch <= EPOCH_MAX:
            raise ValueError(f"an epoch is a number from 0 to {EPOCH_MAX}, not {epoch}")
        if not 1 <= epoch_messages <= EPOCH_MESSAGES_MAX:
            raise ValueError(f"an epoch seals 1 to {EPOCH_MESSAGES_MAX} bodies, not {epoch_messages}")
        self._keys = keys
        self._sender = sender
        self._epoch_messages = epoch_messages
        self._start_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The current epoch, which begins a new key and grows by itself. The sender's next sealer has to start above it."""
        return self._epoch

    # Hot path. Measured with 64 bytes: 790 ns, against 515 for the bare AESGCM.encrypt with associated data.
    def seal(self, body: Buffer, associated: bytes) -> tuple[bytes, bytes]:
        """Encrypt a body; return the nonce and the sealed body, because the receiver needs both.

        Args:
            body: The plaintext.
            associated: From `unicast_associated` or `multicast_associated`; the receiver computes it itself.

        Raises:
            KeyExhaustedError: The last epoch has no body left.
        """
        counter = self._counter
        self._bytes_left -= len(body)
        if counter == self._epoch_messages or self._bytes_left < 0:
            if self._epoch == EPOCH_MAX:
                raise KeyExhaustedError("this sender has used all its epochs in the group: restart the node with a new id")
            self._start_epoch(self._epoch + 1)
            self._bytes_left -= len(body)
            counter = 0
        # Increment before encrypting: if the encryption fails, no later call reuses the nonce.
        self._counter = counter + 1
        nonce = _NONCE.pack(self._epoch, counter)
        return nonce, self._encrypt(nonce, body, associated)

    def _start_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        self._counter = 0
        self._bytes_left = EPOCH_BODIES_BYTES_MAX
        self._encrypt = AESGCM(_sender_key(self._keys, self._sender, epoch)).encrypt


class GroupOpener:
    """Decrypts the bodies sent by the members of one group and accepts each body once.

    The opener keeps the newest epoch of each sender and the one before, because a new epoch can overtake older bodies. Bodies
    of other epochs are rejected. Only an authentic body changes the state, so a forger can neither move a window nor evict a
    sender.
    """

    __slots__ = ("_keys", "_senders", "_senders_max")

    def __init__(self, keys: GroupKeys, *, senders_max: int = SENDERS_MAX) -> None:
        """Begin without known senders.

        Args:
            keys: The keys of the group.
            senders_max: The number of remembered senders. Too small: repeated bodies are accepted; too large: memory.

        Raises:
            ValueError: `senders_max` is not positive.
        """
        if senders_max < 1:
            raise ValueError(f"an opener must keep at least 1 sender, not {senders_max}")
        self._keys = keys
        self._senders_max = senders_max
        # The sender heard last is at the end.
        self._senders: OrderedDict[bytes, _SenderEpochs] = OrderedDict()

    # Hot path. Measured with 64 bytes in order: 1,040 ns, against 520 for the bare AESGCM.decrypt with associated data.
    def open(self, sender: bytes, nonce: bytes, sealed: Buffer, associated: bytes) -> bytes:
        """Verify and decrypt a body.

        Args:
            sender: The id of the claimed sender.
            nonce: The nonce as received.
            sealed: The sealed body as received.
            associated: From `unicast_associated` with the own id, or from `multicast_associated`.

        Raises:
            ReplayError: The body is authentic, but was opened before or is older than the window.
            AuthenticationError: The body is not authentic.
        """
        # AES-GCM accepts nonces of other sizes, but `GroupSealer` never makes one.
        if len(nonce) != NONCE_BYTES:
            raise AuthenticationError
        number, counter = _NONCE.unpack(nonce)
        known = self._senders.get(sender)
        if known is None:
            epoch = _Epoch(number, _sender_key(self._keys, sender, number))
        elif known.current.number == number:  # the usual case
            epoch = known.current
        elif known.previous is not None and known.previous.number == number:
            epoch = known.previous
        else:
            epoch = _Epoch(number, _sender_key(self._keys, sender, number))
        try:
            body = epoch.decrypt(nonce, sealed, associated)
        except InvalidTag:
            raise AuthenticationError from None
        # The body is authentic and may change the state.
        if known is None:
            self._senders[sender] = _SenderEpochs(epoch)
            if len(self._senders) > self._senders_max:
                self._senders.popitem(last=False)
        else:
            self._senders.move_to_end(sender)
            if epoch is not known.current:
                known.advance(epoch)
        if not epoch.accept(counter):
            raise ReplayError
        return body


class _Epoch:
    """The key and the replay window of one sender in one epoch."""

    __slots__ = ("accept", "decrypt", "number")

    def __init__(self, number: int, key: bytes) -> None:
        self.number = number
        self.decrypt = AESGCM(key).decrypt
        self.accept = ReplayWindow().accept


class _SenderEpochs:
    """The current and the previous epoch of one sender. Invariant: previous.number < current.number."""

    __slots__ = ("current", "previous")

    def __init__(self, epoch: _Epoch) -> None:
        self.current = epoch
        self.previous: _Epoch | None = None

    def advance(self, epoch: _Epoch) -> None:
        """Make a newer epoch the current epoch; ignore the previous epoch, and raise `ReplayError` for an older epoch."""
        if epoch is self.previous:
            return
        # An older epoch without state: its window is gone or never existed, so new and repeated bodies look alike.
        if epoch.number < self.current.number:
            raise ReplayError
        self.previous = self.current
        self.current = epoch


def _sender_key(keys: GroupKeys, sender: bytes, epoch: int) -> bytes:
    """Derive the key of a sender in an epoch (docs/design.md 4.1)."""
    return hkdf(keys.key, salt=sender, info=b"iris sender" + epoch.to_bytes(EPOCH_BYTES, "big"))


def _require_bytes(name: str, value: bytes, size: int) -> None:
    if len(value) != size:
        raise ValueError(f"a {name} has {size} bytes, not {len(value)}")
