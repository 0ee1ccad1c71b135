"""The administration key of a network: whoever holds it says which generations of the secret count (docs/design.md 2.10).

Its public half is known to every node. The generations travel from node to node inside the network, signed, with a number that
grows: so everybody inside can pass them on, and nobody without the key can change them, make others or bring old ones back.
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

#: How the text of the public half of every administration key begins.
ADMINISTRATOR_PREFIX = "irispublic1."
_KEY_LABEL = b"iris administration checksum"
_PUBLIC_LABEL = b"iris administrator checksum"
_SIGNATURE_LABEL = b"generations"
#: number, how many generations follow
_HEAD = struct.Struct(">IB")
_SIGNED_BYTES_MAX = _HEAD.size + GENERATIONS_MAX * SECRET_BYTES + SIGNATURE_BYTES
#: The largest number: one rotation in each second of a century.
NUMBER_MAX = 0xFFFF_FFFF
_DIGEST_BYTES = 8
#: number, digest
_RANK = struct.Struct(f">I{_DIGEST_BYTES}s")
RANK_BYTES = _RANK.size


class Rank(NamedTuple):
    """The order of signed generations: the larger number counts, and of two equal ones the larger digest, for all the same."""

    number: int = 0
    """How many steps the rotations of the network have taken; 0 before the first one."""
    digest: bytes = bytes(_DIGEST_BYTES)
    """Of the signed form; zeros before the first step."""

    @classmethod
    def decode(cls, encoded: bytes) -> "Rank":
        """Read what `encode` makes.

        Raises:
            ValueError: It has another size than `RANK_BYTES`.
        """
        if len(encoded) != RANK_BYTES:
            raise ValueError(f"a rank has {RANK_BYTES} bytes, not {len(encoded)}")
        return cls(*_RANK.unpack(encoded))

    def encode(self) -> bytes:
        """Return it as bytes: `number:u32 digest:8`."""
        return _RANK.pack(*self)


class SignedGenerations(KeyMaterial):
    """The generations of a network's secret, as its administrator has signed them. Made by `AdministrationKey.sign` and `open`.

    Attributes:
        encoded: `number:u32 count:u8 secret:32 ... signature:96`, the primary one first. Whoever sees it has the secrets.
        number: How many steps the rotations of the network have taken with this one.
        secrets: The generations, the primary one first.
        rank: Which of two counts.
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
        """Read generations that came from wherever.

        Args:
            encoded: As they came.
            network: The name of the network that they have to be for.
            administrator: The public half of the key that has to have signed them.

        Raises:
            AuthenticationError: They were not signed so, or say what no administrator signs.
        """
        if len(encoded) > _SIGNED_BYTES_MAX:
            raise AuthenticationError  # not worth a check of the signature
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
        """Show what is public."""
        return f"SignedGenerations(number={self.number}, generations={len(self.secrets)}, <hidden>)"


class AdministrationKey(KeyMaterial):
    """The key of who may exchange the secret of a network while it runs.

    Args:
        value: The private key, 32 bytes.

    Attributes:
        value: Likewise.
        administrator: Its public half, 32 bytes, which every node is to know.

    Raises:
        ValueError: It has another size.
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
        """Make a new key.

        Args:
            entropy: In production the source of the operating system, as `os.urandom`.

        Raises:
            ValueError: The source gave another number of bytes.
        """
        return cls(entropy(SEED_BYTES))

    @classmethod
    def parse(cls, text: str) -> "AdministrationKey":
        """Read the text form; white space around it does not matter.

        Raises:
            SecretFormatError: The text is no administration key, or was damaged when it was copied.
        """
        return cls(decode_text(text, ADMINISTRATION_PREFIX, _KEY_LABEL, "administration key"))

    @property
    def text(self) -> str:
        """The text form, one line to copy: `irisadmin1.` and 48 characters. Whoever sees it has the key."""
        return encode_text(self.value, ADMINISTRATION_PREFIX, _KEY_LABEL)

    @property
    def administrator_text(self) -> str:
        """The text form of its public half: `irispublic1.` and 48 characters."""
        return encode_text(self.administrator, ADMINISTRATOR_PREFIX, _PUBLIC_LABEL)

    def sign(self, network: str, number: int, secrets: Sequence[Secret]) -> SignedGenerations:
        """Say which generations count from now on.

        Args:
            network: The name of the network.
            number: One more than that of what counted before.
            secrets: The generations, the primary one first.

        Raises:
            ValueError: There are too many or none of them, one is there twice, the number is not from 1 to `NUMBER_MAX`, or the
                name is not valid, see `encode_name`.
        """
        if not 1 <= len(secrets) <= GENERATIONS_MAX or len(set(secrets)) != len(secrets):
            raise ValueError(f"a secret has 1 to {GENERATIONS_MAX} generations, each of them once")
        if not 1 <= number <= NUMBER_MAX:
            raise ValueError(f"the number of a step is from 1 to {NUMBER_MAX}, not {number}")
        said = _HEAD.pack(number, len(secrets)) + b"".join(secret.value for secret in secrets)
        return SignedGenerations(said + self._signing.sign(_SIGNATURE_LABEL, _signed(network, said)), number, tuple(secrets))

    def __repr__(self) -> str:
        """Return a text that is the same for every key."""
        return "AdministrationKey(<hidden>)"


def parse_administrator(text: str) -> bytes:
    """Read the text form of the public half of an administration key.

    Raises:
        SecretFormatError: The text is none, or was damaged when it was copied.
    """
    if text.strip().startswith(ADMINISTRATION_PREFIX):
        raise SecretFormatError("this is the private half of an administration key: nodes are given the public one alone")
    value = decode_text(text, ADMINISTRATOR_PREFIX, _PUBLIC_LABEL, "administrator")
    assert len(value) == PUBLIC_KEY_BYTES
    return value


def _signed(network: str, said: bytes) -> bytes:
    """Return what is signed. A name has no zero byte, so no two networks and statements are the same bytes."""
    return encode_name(network) + b"\0" + said
