"""The administrator key of a network, which signs the current generations of its secret (docs/design.md 2.10).

Every node knows the public half. Nodes pass the signed generations on inside the network. Only the holder of the key can change
or sign generations; a growing number in the signed data keeps old generations from returning.
"""

import hashlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

from iris_security.errors import AuthenticationError, SecretFormatError
from iris_security.key_material import KeyMaterial
from iris_security.keyring import GENERATIONS_MAX, encode_name
from iris_security.secret import SECRET_BYTES, Entropy, Secret
from iris_security.signature import PUBLIC_KEY_BYTES, SEED_BYTES, SIGNATURE_BYTES, SigningKey, verify
from iris_security.text_form import ADMINISTRATION_PREFIX, decode_text, encode_text

#: The prefix of the text form of an administrator's public key.
ADMINISTRATOR_PREFIX = "irispublic1."
_KEY_LABEL = b"iris administration checksum"
_PUBLIC_LABEL = b"iris administrator checksum"
_SIGNATURE_LABEL = b"generations"
#: number, count of generations
_HEAD = struct.Struct(">IB")
_SIGNED_BYTES_MAX = _HEAD.size + GENERATIONS_MAX * SECRET_BYTES + SIGNATURE_BYTES
#: The largest number: one rotation in each second of a century.
NUMBER_MAX = 0xFFFF_FFFF
_DIGEST_BYTES = 8
#: number, digest
_RANK = struct.Struct(f">I{_DIGEST_BYTES}s")
RANK_BYTES = _RANK.size


class Rank(NamedTuple):
    """The order of signed generations of a secret: the larger number wins, then the larger digest, equally at every node."""

    number: int = 0
    """The number of rotations of the network so far; 0 before the first."""
    digest: bytes = bytes(_DIGEST_BYTES)
    """The start of the SHA-256 of the signed form; zeros before the first rotation."""

    @classmethod
    def decode(cls, encoded: bytes) -> "Rank":
        """Decode a rank from the bytes made by `encode`.

        Raises:
            ValueError: `encoded` has not `RANK_BYTES`.
        """
        if len(encoded) != RANK_BYTES:
            raise ValueError(f"a rank has {RANK_BYTES} bytes, not {len(encoded)}")
        return cls(*_RANK.unpack(encoded))

    def encode(self) -> bytes:
        """Encode a rank as `number:u32 digest:8`."""
        return _RANK.pack(*self)


class SignedGenerations(KeyMaterial):
    """The generations of a network's secret, signed by its administrator. Made by `AdministrationKey.sign` and `open`.

    Attributes:
        encoded: `number:u32 count:u8 secret:32 ... signature:96`, the primary secret first. The bytes contain the secrets.
        number: The number of rotations of the network, including this one.
        secrets: The generations, the primary first.
        rank: The position in the order of signed generations.
    """

    __slots__ = ("encoded", "number", "rank", "secrets")

    encoded: bytes
    number: int
    secrets: tuple[Secret, ...]
    rank: Rank

    def __init__(self, encoded: bytes, number: int, secrets: tuple[Secret, ...]) -> None:
        rank = Rank(number, hashlib.sha256(encoded).digest()[:_DIGEST_BYTES])
        for name, value in (("encoded", encoded), ("number", number), ("secrets", secrets), ("rank", rank)):
            object.__setattr__(self, name, value)

    @classmethod
    def open(cls, encoded: bytes, network: str, administrator: bytes) -> "SignedGenerations":
        """Verify and decode generations from an untrusted source.

        Args:
            encoded: The bytes as received.
            network: The name of the expected network.
            administrator: The public half of the expected signing key, 32 bytes.

        Raises:
            AuthenticationError: The signature is of another key or network, or the content is malformed.
        """
        if len(encoded) > _SIGNED_BYTES_MAX:
            raise AuthenticationError  # too long for an honest sender; spare the signature check
        said, signature = encoded[:-SIGNATURE_BYTES], encoded[-SIGNATURE_BYTES:]
        if verify(_SIGNATURE_LABEL, _signed(network, said), signature) != administrator:
            raise AuthenticationError
        number, count = _HEAD.unpack_from(said) if len(said) >= _HEAD.size else (0, 0)
        values = [said[start : start + SECRET_BYTES] for start in range(_HEAD.size, len(said), SECRET_BYTES)]
        if not number or not 1 <= count <= GENERATIONS_MAX or not len(values) == len(set(values)) == count:
            raise AuthenticationError
        if len(values[-1]) != SECRET_BYTES:
            raise AuthenticationError
        return cls(encoded, number, tuple(map(Secret, values)))

    def __repr__(self) -> str:
        """Show the number of rotations and the count of generations, but no secret."""
        return f"SignedGenerations(number={self.number}, generations={len(self.secrets)}, <hidden>)"


class AdministrationKey(KeyMaterial):
    """The administrator key of a network: signs the generations to which the secret of the running network rotates.

    Args:
        value: The private key, 32 bytes.

    Attributes:
        value: The private key, 32 bytes.
        administrator: The public half, 32 bytes, for the settings of every node.

    Raises:
        ValueError: The key has another size.
    """

    __slots__ = ("_signing", "administrator", "value")

    value: bytes
    administrator: bytes
    _signing: SigningKey

    def __init__(self, value: bytes) -> None:
        signing = SigningKey(value)
        for name, given in (("value", value), ("administrator", signing.public_key), ("_signing", signing)):
            object.__setattr__(self, name, given)

    @classmethod
    def generate(cls, entropy: Entropy) -> "AdministrationKey":
        """Make a new administrator key from random bytes.

        Args:
            entropy: The source of random bytes; in production `os.urandom`.

        Raises:
            ValueError: The source returned another number of bytes.
        """
        return cls(entropy(SEED_BYTES))

    @classmethod
    def parse(cls, text: str) -> "AdministrationKey":
        """Parse the text form of an administrator key; surrounding white space is ignored.

        Raises:
            SecretFormatError: The text is no administrator key, or was damaged in copying.
        """
        return cls(decode_text(text, ADMINISTRATION_PREFIX, _KEY_LABEL, "administration key"))

    @property
    def text(self) -> str:
        """The text form of the key, one line to copy: `irisadmin1.` and 48 characters. The line contains the private key."""
        return encode_text(self.value, ADMINISTRATION_PREFIX, _KEY_LABEL)

    @property
    def administrator_text(self) -> str:
        """The text form of the key's public half: `irispublic1.` and 48 characters."""
        return encode_text(self.administrator, ADMINISTRATOR_PREFIX, _PUBLIC_LABEL)

    def sign(self, network: str, number: int, secrets: Sequence[Secret]) -> SignedGenerations:
        """Sign the generations of the secret that all nodes of the network have to use from now on.

        Args:
            network: The name of the network.
            number: The number of the previously signed generations, plus one; 1 for the first.
            secrets: The generations, the primary first.

        Raises:
            ValueError: There are no secrets, too many or a duplicate; `number` is not from 1 to `NUMBER_MAX`; or the name is
                not valid, see `encode_name`.
        """
        if not 1 <= len(secrets) <= GENERATIONS_MAX or len(set(secrets)) != len(secrets):
            raise ValueError(f"a secret has 1 to {GENERATIONS_MAX} different generations")
        if not 1 <= number <= NUMBER_MAX:
            raise ValueError(f"the number of a step is from 1 to {NUMBER_MAX}, not {number}")
        said = _HEAD.pack(number, len(secrets)) + b"".join(secret.value for secret in secrets)
        return SignedGenerations(said + self._signing.sign(_SIGNATURE_LABEL, _signed(network, said)), number, tuple(secrets))

    def __repr__(self) -> str:
        """Return the same text for every key, without the key."""
        return "AdministrationKey(<hidden>)"


def parse_administrator(text: str) -> bytes:
    """Parse the text form of an administrator's public key.

    Raises:
        SecretFormatError: The text is no such key, or was damaged in copying.
    """
    if text.strip().startswith(ADMINISTRATION_PREFIX):
        raise SecretFormatError("this is the private half of an administration key: give nodes only the public half")
    value = decode_text(text, ADMINISTRATOR_PREFIX, _PUBLIC_LABEL, "administrator")
    assert len(value) == PUBLIC_KEY_BYTES
    return value


def _signed(network: str, said: bytes) -> bytes:
    """Return the bytes to sign: network name and generations. A name has no zero byte, so the separator is unambiguous."""
    return encode_name(network) + b"\0" + said
