"""Payloads that only their two ends read: requests for members of a cluster, and the answers (docs/design.md 15).

A request is `0x01 salt:16` and AES-256-GCM, under a key that derives from a secret, that salt and a name; within it
`flags:u8 sealed_ms:u64`, with flag 1 `bond:16`, and the payload. An answer is `0x01 salt:16` and the same cipher, under a key
that derives from the secret, a salt of its own, the name and the bond of the request. The bond is the salt of the request, or,
where the request has a key, a hash of that: whoever asks for the same thing again opens the answer that is remembered.

Each key seals one message, so the nonce is zero. That is why an answer has a salt of its own: a request that is retried at
another member, or that all members answer, has several answers, and one key for them would betray them all.

Nodes on the way hold none of this. They see the length of a payload, and can drop it or hand it over again: against that a
member looks at `sealed_ms` and keeps the salts of a `SaltTable`.
"""

import hashlib
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_security.aead import NONCE_BYTES, TAG_BYTES
from iris_security.errors import AuthenticationError, ReplayError
from iris_security.hkdf import hkdf
from iris_security.key_material import KeyMaterial
from iris_security.keyring import encode_name
from iris_security.secret import Secret

Buffer = bytes | bytearray | memoryview

#: The first byte of everything sealed; it is authenticated.
VERSION = 1
SALT_BYTES = 16
BOND_BYTES = 16
#: How far the time at which a request was sealed may be from the clock of the member, either way (milliseconds). Too small:
#: clocks that nobody sets, and requests that wait, are refused; too large: salts have to be kept for longer.
WINDOW_MS = 300_000
#: Salts that one handler keeps, of some 250 bytes each: those of 218 requests a second during the window. Too small: of more,
#: what took long on its way is refused, as it cannot be told from what came before; too large: memory.
SALTS_MAX = 65_536

_HAS_BOND = 1
_INNER = struct.Struct(">BQ")  # flags, sealed_ms
_OUTER_BYTES = 1 + SALT_BYTES
_NONCE = bytes(NONCE_BYTES)

#: What sealing adds to a request without and with a key, and to an answer.
REQUEST_OVERHEAD_BYTES = _OUTER_BYTES + _INNER.size + TAG_BYTES
KEYED_OVERHEAD_BYTES = REQUEST_OVERHEAD_BYTES + BOND_BYTES
ANSWER_OVERHEAD_BYTES = _OUTER_BYTES + TAG_BYTES


class Exchange(KeyMaterial):
    """One request and its answers: seals these at the member, and opens them at the caller.

    Args:
        secret: The secret that the request is sealed with.
        label: The UTF-8 form of the name that it is sealed under.
        bond: What the answers are bound to, `BOND_BYTES`.
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
        """Return a reply, sealed.

        Args:
            reply: What to seal.
            salt: `SALT_BYTES` that nobody has used before.
        """
        return _seal(self.secret, b"iris sealed reply" + self.bond + self.label, reply, salt)

    def open_reply(self, sealed: Buffer) -> bytes:
        """Return a reply.

        Raises:
            AuthenticationError: It is none to this request.
        """
        return _open(self.secret, b"iris sealed reply" + self.bond + self.label, sealed)

    def seal_failure(self, failure: Buffer, salt: bytes) -> bytes:
        """Return what is said of a handler that raised, sealed; nobody can pass it as a reply. As `seal_reply`."""
        return _seal(self.secret, b"iris sealed failure" + self.bond + self.label, failure, salt)

    def open_failure(self, sealed: Buffer) -> bytes:
        """Return what is said of a handler that raised.

        Raises:
            AuthenticationError: It is none to this request.
        """
        return _open(self.secret, b"iris sealed failure" + self.bond + self.label, sealed)


@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """A request that is authentic; whether it came before, a `SaltTable` says."""

    payload: bytes = field(repr=False)
    """The request."""
    salt: bytes
    """The bytes that make it different from all others."""
    sealed_ms: int
    """When it was sealed: milliseconds since 1970, by the clock of the caller."""
    exchange: Exchange
    """Seals the answers."""


def seal_request(
    secret: Secret, name: str, payload: Buffer, *, salt: bytes, sealed_ms: int, key: bytes | None = None
) -> tuple[bytes, Exchange]:
    """Return a request, sealed, and what opens its answers.

    Args:
        secret: The secret that caller and members share.
        name: The name that both sides give what is asked.
        payload: What to seal.
        salt: `SALT_BYTES` that nobody has used before.
        sealed_ms: The time, in milliseconds since 1970.
        key: What this request is, if answers to others with the same key are answers to it, too.

    Raises:
        ValueError: The salt has the wrong size, or the name is none.
    """
    label = encode_name(name)
    if key is None:
        bond, inner = salt, _INNER.pack(0, sealed_ms)
    else:
        bond = hashlib.blake2b(key, digest_size=BOND_BYTES, person=b"iris seal key").digest()
        inner = _INNER.pack(_HAS_BOND, sealed_ms) + bond
    sealed = _seal(secret, b"iris sealed request" + label, b"".join((inner, payload)), salt)
    return sealed, Exchange(secret, label, bond)


def open_request(secrets: Sequence[Secret], name: str, sealed: Buffer) -> OpenedRequest:
    """Return a request.

    Args:
        secrets: The generations of the secret: any of them may have sealed it.
        name: The name that both sides give what is asked.
        sealed: As it came.

    Raises:
        AuthenticationError: It is not sealed with one of these secrets and under this name.
        ValueError: The name is none.
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
    return OpenedRequest(opened[start:], salt, sealed_ms, Exchange(secret, label, bond))


class SaltTable:
    """The salts that one handler has seen: none is taken twice, however long ago that was.

    A salt is kept while its request would be young enough to be taken. If there are too many, the one that came first is
    forgotten before its time, and with it all that was sealed earlier is refused: what was forgotten cannot come again.
    """

    __slots__ = ("_ages", "_floor_ms", "_identities", "_salts_max")

    def __init__(self, salts_max: int = SALTS_MAX) -> None:
        """Start with nothing seen.

        Args:
            salts_max: How many to keep.

        Raises:
            ValueError: The number is not positive.
        """
        if salts_max < 1:
            raise ValueError(f"a table keeps at least 1 salt, not {salts_max}")
        self._salts_max = salts_max
        self._identities: dict[bytes, bytes] = {}
        self._ages: deque[tuple[int, bytes]] = deque()  # (sealed_ms, salt), as they came
        # Invariant: whatever was taken and forgotten was sealed at this time or before.
        self._floor_ms = -1

    def __len__(self) -> int:
        return len(self._identities)

    def take(self, request: OpenedRequest, identity: bytes, now_ms: int) -> None:
        """Remember a request.

        Args:
            request: An authentic one; a forger must not fill the table.
            identity: Of an idempotent request that is given to this member again if it was not done: the same each time, and
                not empty. The same salt with the same identity is taken again.
            now_ms: The time, in milliseconds since 1970.

        Raises:
            ReplayError: It was taken before, or sealed too long ago, or at a time that is yet to come.
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
