"""Passwords and tokens of NATS users, as a door's file has them: hashes (docs/design.md 18.5).

People choose passwords, hence the slow hash (scrypt, RFC 7914). A machine draws tokens, hence a plain hash is safe, and finds
the user without a name. The caller verifies passwords outside of the event loop.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error
from collections import OrderedDict
from hashlib import scrypt, sha256
from typing import Final, NamedTuple

__all__ = ["NO_HASH", "KnownPasswords", "PasswordHash", "hash_password", "hash_token", "read_password_hash", "read_token_hash"]

#: Work of a new hash, as the exponent of 2, the block size and the parallel work: 16 MiB, some 50 ms. Too small: who reads the
#: file guesses passwords; too large: clients that reconnect together wait.
WORK_EXPONENT: Final = 14
BLOCK_SIZE: Final = 8
PARALLEL: Final = 1
#: The largest work of a hash in a file.
WORK_EXPONENT_MAX: Final = 17
BLOCK_SIZE_MAX: Final = 32
PARALLEL_MAX: Final = 16
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
#: Bytes of a password. Longer ones cost the door time.
PASSWORD_BYTES_MAX: Final = 1024
#: Passwords known to be right, and how long (seconds). Too small: a crowd that reconnects costs a hash each; too large: a
#: password works after the operator has changed it elsewhere.
KNOWN_MAX: Final = 10_000
KNOWN_S: Final = 600.0

_SCRYPT: Final = "scrypt"
_SHA256: Final = "sha256:"
_MEMORY_BYTES: Final = 128


class PasswordHash(NamedTuple):
    """The hash of a password, with its parameters."""

    exponent: int
    """The work, as an exponent of 2."""
    block_size: int
    parallel: int
    salt: bytes
    digest: bytes

    def verify(self, password: str) -> bool:
        """Return whether a password is the right one. Takes some 50 ms, and 16 MiB."""
        raw = password.encode(errors="replace")
        return len(raw) <= PASSWORD_BYTES_MAX and hmac.compare_digest(_derive(self, raw), self.digest)

    def text(self) -> str:
        """Return the form for a file."""
        numbers = f"{self.exponent}:{self.block_size}:{self.parallel}"
        return f"{_SCRYPT}:{numbers}:{b64encode(self.salt).decode()}:{b64encode(self.digest).decode()}"


#: Stands for the hash of a user that does not exist: a wrong name costs as much as a wrong password, and no password is right.
NO_HASH: Final = PasswordHash(WORK_EXPONENT, BLOCK_SIZE, PARALLEL, bytes(SALT_BYTES), bytes(HASH_BYTES))


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Return the hash of a password.

    Args:
        password: The password, 1 to 1,024 bytes.
        salt: Random bytes, `SALT_BYTES` of them.

    Raises:
        ValueError: The password is empty or too long.
    """
    raw = password.encode()
    if not 0 < len(raw) <= PASSWORD_BYTES_MAX:
        raise ValueError(f"a password has 1 to {PASSWORD_BYTES_MAX} bytes")
    parameters = (WORK_EXPONENT, BLOCK_SIZE, PARALLEL, salt)
    return PasswordHash(*parameters, _derive(PasswordHash(*parameters, b""), raw))


def read_password_hash(text: str) -> PasswordHash:
    """Return the hash in a text of `PasswordHash.text`.

    Raises:
        ValueError: It is no such text; the text of the error suggests a correction.
    """
    parts = text.split(":")
    try:
        if len(parts) != 6 or parts[0] != _SCRYPT:
            raise ValueError
        exponent, block_size, parallel = map(int, parts[1:4])
        found = PasswordHash(exponent, block_size, parallel, *(b64decode(part, validate=True) for part in parts[4:]))
    except (Error, ValueError):
        raise ValueError("it is no hash of a password. Make one with `iris door password`.") from None
    if not (0 < exponent <= WORK_EXPONENT_MAX and 0 < block_size <= BLOCK_SIZE_MAX and 0 < parallel <= PARALLEL_MAX):
        raise ValueError("its work is too large for a door. Make another hash with `iris door password`.")
    if not found.salt or len(found.digest) != HASH_BYTES:
        raise ValueError("it is cut. Make another hash with `iris door password`.")
    return found


def hash_token(token: str) -> str:
    """Return the hash of a token, as a file has it."""
    return f"{_SHA256}{sha256(token.encode(errors='replace')).hexdigest()}"


def read_token_hash(text: str) -> str:
    """Check the hash of a token, and return it.

    Raises:
        ValueError: It is no hash; the text suggests a correction.
    """
    digest = text.removeprefix(_SHA256)
    if digest == text or len(digest) != 2 * HASH_BYTES or not set(digest) <= set("0123456789abcdef"):
        raise ValueError("it is no hash of a token. Make a token with `iris door password --token`.")
    return text


class KnownPasswords:
    """Remembers passwords that were right, under a keyed hash.

    Args:
        key: Random bytes; another key for each start.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._until: OrderedDict[bytes, float] = OrderedDict()  # in the order of their ends

    def add(self, password_hash: PasswordHash, password: str, now: float) -> None:
        """Remember a password that was right.

        Args:
            now: The time (seconds).
        """
        digest = self._digest(password_hash, password)
        self._until.pop(digest, None)
        self._until[digest] = now + KNOWN_S
        if len(self._until) > KNOWN_MAX:
            self._until.popitem(last=False)

    def has(self, password_hash: PasswordHash, password: str, now: float) -> bool:
        """Return whether a password was right for this hash in the last minutes."""
        return self._until.get(self._digest(password_hash, password), 0.0) > now

    def _digest(self, password_hash: PasswordHash, password: str) -> bytes:
        text = f"{password_hash.text()}\0{password}"
        return hmac.digest(self._key, text.encode(errors="replace"), "sha256")


def _derive(given: PasswordHash, password: bytes) -> bytes:
    work = 1 << given.exponent
    memory = _MEMORY_BYTES * given.block_size * (work + given.parallel + 2)
    return scrypt(password, salt=given.salt, n=work, r=given.block_size, p=given.parallel, maxmem=memory, dklen=HASH_BYTES)
