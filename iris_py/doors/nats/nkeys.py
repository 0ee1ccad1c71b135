"""Nkeys: Ed25519 keys of NATS users as text, and signatures of a door's nonce (docs/design.md 18.5).

A key is a prefix that begins with ``U``, 32 bytes and a CRC-16, in base32. The prefix of a seed, ``SU``, has two bytes. The
door knows public keys alone. Format: https://docs.nats.io/running-a-nats-service/configuration/securing_nats/auth_intro/nkey_auth.
"""

from __future__ import annotations

from base64 import b32decode, b32encode, urlsafe_b64decode
from binascii import Error, crc_hqx
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["KEY_BYTES", "decode_user_key", "encode_seed", "encode_user_key", "is_signed"]

#: Bytes of a public key, and of a seed.
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
#: Characters of a signature in base64, without padding.
SIGNATURE_CHARACTERS: Final = 86

_USER: Final = 20 << 3  # `U` in base32
_SEED: Final = 18 << 3  # `S`
_CRC_BYTES: Final = 2


def decode_user_key(text: str) -> bytes:
    """Return the public key of a user.

    Args:
        text: The key, as ``UDXU...`` with 56 characters.

    Raises:
        ValueError: It is no public key of a user; the text suggests a correction.
    """
    try:
        raw = b32decode(text)
    except (Error, ValueError):
        raw = b""
    if len(raw) != 1 + KEY_BYTES + _CRC_BYTES or raw[0] != _USER or crc_hqx(raw[:-_CRC_BYTES], 0) != _crc_of(raw):
        raise ValueError("it is no public nkey of a user. Give the half that begins with 'U', and has 56 characters.")
    return raw[1:-_CRC_BYTES]


def encode_user_key(public_key: bytes) -> str:
    """Return the text of a public key."""
    return _encode(bytes((_USER,)) + public_key)


def encode_seed(seed: bytes) -> str:
    """Return the text of the secret half of a user's key, which stays with the user."""
    # The type of the key stands in the five bits behind the five of the seed.
    prefix = (_SEED | _USER >> 5, (_USER & 0b11111) << 3)
    return _encode(bytes(prefix) + seed)


def is_signed(public_key: bytes, signature: str, nonce: bytes) -> bool:
    """Return whether the owner of a key has signed a nonce.

    Args:
        public_key: The public key.
        signature: The signature in base64url or base64, as clients write it.
        nonce: The signed bytes.
    """
    text = signature.rstrip("=").replace("+", "-").replace("/", "_")
    if len(text) != SIGNATURE_CHARACTERS or not text.isascii():
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(urlsafe_b64decode(text + "=="), nonce)
    except (InvalidSignature, ValueError):
        return False
    return True


def _encode(raw: bytes) -> str:
    return b32encode(raw + crc_hqx(raw, 0).to_bytes(_CRC_BYTES, "little")).decode().rstrip("=")


def _crc_of(raw: bytes) -> int:
    return int.from_bytes(raw[-_CRC_BYTES:], "little")
