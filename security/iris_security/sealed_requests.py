"""End-to-end sealed requests to members of a cluster, and their sealed answers (docs/design.md 15).

A request is `0x01 salt:16` and an AES-256-GCM ciphertext, with a key derived from a secret, the salt and a name. The plaintext
is `flags:u8 sealed_ms:u64`, with flag 1 `bond:16`, and the payload. An answer has the same form, with a key derived from the
secret, its own salt, the name and the bond of the request. The bond is the salt of the request or, for a request with a key, a
hash of that key. So a caller that repeats a request with the same key can open the remembered answer.

Each key seals one message, so the nonce is zero. An answer needs its own salt because a retried request or a survey has several
answers, and a shared key would reuse the nonce and expose them all.

Forwarding nodes hold no keys. They see the length of a payload, and can drop or replay it. Members reject replays by
`sealed_ms` and a `SaltTable`.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import NONCE_BYTES, TAG_BYTES
from iris_security.errors import AuthenticationError, ReplayError
from iris_security.hkdf import hkdf
from iris_security.key_material import KeyMaterial
from iris_security.keyring import encode_name
from iris_security.secret import Secret

Buffer = bytes | bytearray | memoryview

#: The first byte of all sealed data, covered by the tag.
VERSION = 1
SALT_BYTES = 16
BOND_BYTES = 16
#: The accepted difference between the sealing time and the member's clock, either way (milliseconds). Too small: wrong clocks
#: and long waits make members reject requests; too large: members keep salts for longer.
WINDOW_MS = 300_000
#: The largest number of salts remembered by one handler, of about 250 bytes each: 218 requests a second during the window. Too
#: small: at higher rates delayed requests are rejected, because they may be replays; too large: memory.
SALTS_MAX = 65_536

_HAS_BOND = 1
_INNER = struct.Struct(">BQ")  # flags, sealed_ms
_OUTER_BYTES = 1 + SALT_BYTES
_NONCE = bytes(NONCE_BYTES)

#: The bytes added by sealing to a request without a key, to a request with a key, and to an answer.
REQUEST_OVERHEAD_BYTES = _OUTER_BYTES + _INNER.size + TAG_BYTES
KEYED_OVERHEAD_BYTES = REQUEST_OVERHEAD_BYTES + BOND_BYTES
ANSWER_OVERHEAD_BYTES = _OUTER_BYTES + TAG_BYTES


class SealedExchange(KeyMaterial):
    """The keys of one sealed request and its answers: seal answers at the member and open answers at the caller.

    Args:
        secret: The secret that sealed the request.
        label: The UTF-8 form of the name used for sealing.
        bond: The value that binds the answers to the request, `BOND_BYTES`.
    """

    __slots__ = ("bond", "label", "secret")

    secret: Secret
    label: bytes
    bond: bytes

    def __init__(self, secret: Secret, label: bytes, bond: bytes) -> None:
        object.__setattr__(self, "secret", secret)
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "bond", bond)

    def seal_reply(self, reply: Buffer, salt: bytes) -> bytes:
        """Encrypt a reply to the request.

        Args:
            reply: The plaintext.
            salt: Fresh random bytes, `SALT_BYTES`.
        """
        return _seal(self.secret, b"iris sealed reply" + self.bond + self.label, reply, salt)

    def open_reply(self, sealed: Buffer) -> bytes:
        """Verify and decrypt a reply to the request.

        Raises:
            AuthenticationError: The data is no reply to this request.
        """
        return _open(self.secret, b"iris sealed reply" + self.bond + self.label, sealed)

    def seal_failure(self, failure: Buffer, salt: bytes) -> bytes:
        """Encrypt the description of a handler's failure, which cannot pass for a reply; see `seal_reply`."""
        return _seal(self.secret, b"iris sealed failure" + self.bond + self.label, failure, salt)

    def open_failure(self, sealed: Buffer) -> bytes:
        """Verify and decrypt the description of a handler's failure.

        Raises:
            AuthenticationError: The data is no failure of this request.
        """
        return _open(self.secret, b"iris sealed failure" + self.bond + self.label, sealed)


class OpenedRequest:
    """An authentic, decrypted request. It may be a replay until a `SaltTable` accepts it.

    Args:
        payload: The plaintext of the request.
        salt: The random bytes unique to the request.
        sealed_ms: The sealing time by the caller's clock: milliseconds since 1970.
        exchange: The exchange that seals the answers.
    """

    __slots__ = ("exchange", "payload", "salt", "sealed_ms")

    def __init__(self, payload: bytes, salt: bytes, sealed_ms: int, exchange: SealedExchange) -> None:
        self.payload = payload
        self.salt = salt
        self.sealed_ms = sealed_ms
        self.exchange = exchange


def seal_request(
    secret: Secret, name: str, payload: Buffer, *, salt: bytes, sealed_ms: int, key: bytes | None = None
) -> tuple[bytes, SealedExchange]:
    """Encrypt a request; return the sealed request, and the exchange for opening the answers.

    Args:
        secret: The secret shared by caller and members.
        name: The name of the request, equal on both sides.
        payload: The plaintext.
        salt: Fresh random bytes, `SALT_BYTES`.
        sealed_ms: The time, in milliseconds since 1970.
        key: The identity of an idempotent request: the caller can open an answer to any request sealed with the same key.

    Raises:
        ValueError: The salt has the wrong size, or the name is not valid.
    """
    label = encode_name(name)
    if key is None:
        bond, inner = salt, _INNER.pack(0, sealed_ms)
    else:
        bond = hashlib.blake2b(key, digest_size=BOND_BYTES, person=b"iris seal key").digest()
        inner = _INNER.pack(_HAS_BOND, sealed_ms) + bond
    sealed = _seal(secret, b"iris sealed request" + label, b"".join((inner, payload)), salt)
    return sealed, SealedExchange(secret, label, bond)


def open_request(secrets: Sequence[Secret], name: str, sealed: Buffer) -> OpenedRequest:
    """Verify and decrypt a sealed request.

    Args:
        secrets: The generations of the secret; each is tried.
        name: The name of the request, equal on both sides.
        sealed: The request as received.

    Raises:
        AuthenticationError: No secret of `secrets` sealed the request with this name.
        ValueError: The name is not valid.
    """
    label = encode_name(name)
    for secret in secrets:
        try:
            opened = _open(secret, b"iris sealed request" + label, sealed)
        except AuthenticationError:
            continue
        salt = bytes(sealed[1:_OUTER_BYTES])
        return _decode(opened, salt, secret, label)
    raise AuthenticationError


def _decode(opened: bytes, salt: bytes, secret: Secret, label: bytes) -> OpenedRequest:
    if len(opened) < _INNER.size:
        raise AuthenticationError
    flags, sealed_ms = _INNER.unpack_from(opened)
    start = _INNER.size
    if flags not in (0, _HAS_BOND) or len(opened) < start + flags * BOND_BYTES:
        raise AuthenticationError
    bond = salt
    if flags:
        bond = opened[start : start + BOND_BYTES]
        start += BOND_BYTES
    return OpenedRequest(opened[start:], salt, sealed_ms, SealedExchange(secret, label, bond))


class SaltTable:
    """The salts of the requests received by one handler, to reject replayed requests.

    A salt is kept until its request is too old to be accepted. A full table forgets its first salt early, and from then on
    rejects all requests sealed at that time or earlier, so a forgotten request cannot return.
    """

    __slots__ = ("_ages", "_floor_ms", "_identities", "_salts_max")

    def __init__(self, salts_max: int = SALTS_MAX) -> None:
        """Create an empty table.

        Args:
            salts_max: The number of remembered salts.

        Raises:
            ValueError: `salts_max` is not positive.
        """
        if salts_max < 1:
            raise ValueError(f"a table must keep at least 1 salt, not {salts_max}")
        self._salts_max = salts_max
        self._identities: dict[bytes, bytes] = {}
        self._ages: deque[tuple[int, bytes]] = deque()  # (sealed_ms, salt), in order of arrival
        # Invariant: every accepted and forgotten request was sealed at this time or before.
        self._floor_ms = -1

    def __len__(self) -> int:
        return len(self._identities)

    def take(self, request: OpenedRequest, identity: bytes, now_ms: int) -> None:
        """Accept and remember a request, or reject it as a replay.

        Args:
            request: An authentic request; forgers must not fill the table.
            identity: The identity of an idempotent request that the caller may send to this member again: constant, not empty.
                The same salt with the same identity is accepted again.
            now_ms: The time, in milliseconds since 1970.

        Raises:
            ReplayError: The request was accepted before, or its sealing time is too old or in the future beyond `WINDOW_MS`.
        """
        while self._ages and self._ages[0][0] + WINDOW_MS < now_ms:
            self._forget_first()
        if not -WINDOW_MS <= now_ms - request.sealed_ms <= WINDOW_MS:
            raise ReplayError
        known = self._identities.get(request.salt)
        if known is not None:
            if known and known == identity:
                return
            raise ReplayError
        if request.sealed_ms <= self._floor_ms:
            raise ReplayError
        self._identities[request.salt] = identity
        self._ages.append((request.sealed_ms, request.salt))
        if len(self._ages) > self._salts_max:
            self._forget_first()

    def _forget_first(self) -> None:
        sealed_ms, salt = self._ages.popleft()
        del self._identities[salt]
        self._floor_ms = max(self._floor_ms, sealed_ms)


def _seal(secret: Secret, info: bytes, payload: Buffer, salt: bytes) -> bytes:
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes, not {len(salt)}")
    outer = bytes((VERSION,)) + salt
    return outer + AESGCM(hkdf(secret.value, salt=salt, info=info)).encrypt(_NONCE, payload, outer)


def _open(secret: Secret, info: bytes, sealed: Buffer) -> bytes:
    if len(sealed) < _OUTER_BYTES + TAG_BYTES or sealed[0] != VERSION:
        raise AuthenticationError
    outer = bytes(sealed[:_OUTER_BYTES])
    try:
        return AESGCM(hkdf(secret.value, salt=outer[1:], info=info)).decrypt(_NONCE, memoryview(sealed)[_OUTER_BYTES:], outer)
    except InvalidTag:
        raise AuthenticationError from None
