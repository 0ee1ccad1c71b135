"""The secret of a network, or of one cluster (docs/design.md 2.1)."""

import hmac
from collections.abc import Callable

from iris_security.key_material import KeyMaterial
from iris_security.text_form import SECRET_PREFIX, VALUE_BYTES, decode_text, encode_text

#: A source of the given number of unguessable bytes: the operating system in production, a seeded source in a simulation.
Entropy = Callable[[int], bytes]

SECRET_BYTES = VALUE_BYTES  # one AES-256 or HMAC-SHA256 key; derivations would truncate more, and less is easier to guess

#: The prefix of the text form of a secret.
TEXT_PREFIX = SECRET_PREFIX
_CHECKSUM_LABEL = b"iris secret checksum"


class Secret(KeyMaterial):
    """The secret of a network or cluster: 32 bytes from which all its keys derive.

    Args:
        value: The bytes, `SECRET_BYTES`.

    Raises:
        ValueError: The value has another size.
    """

    __slots__ = ("value",)

    value: bytes

    def __init__(self, value: bytes) -> None:
        if len(value) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(value)}")
        object.__setattr__(self, "value", value)

    @classmethod
    def generate(cls, entropy: Entropy) -> "Secret":
        """Make a new secret from random bytes.

        Args:
            entropy: The source of random bytes; in production `os.urandom`.

        Raises:
            ValueError: The source returned another number of bytes.
        """
        return cls(entropy(SECRET_BYTES))

    @classmethod
    def from_bytes(cls, value: bytes) -> "Secret":
        """Make a secret from 32 stored bytes.

        Raises:
            ValueError: The value has another size.
        """
        return cls(bytes(value))

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """Parse the text form of a secret; surrounding white space is ignored.

        Raises:
            SecretFormatError: The text is no secret, or was damaged in copying.
        """
        return cls(decode_text(text, TEXT_PREFIX, _CHECKSUM_LABEL, "secret"))

    @property
    def text(self) -> str:
        """The text form of the secret, one line to copy: `iris1.` and 48 characters. The line contains the secret."""
        return encode_text(self.value, TEXT_PREFIX, _CHECKSUM_LABEL)

    def __eq__(self, other: object) -> bool:
        """Compare two secrets in constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.value, other.value)

    def __hash__(self) -> int:
        """Hash consistently with `__eq__`. Python keys the hash of bytes per process, and the hash stays inside the process."""
        return hash((Secret, self.value))

    def __repr__(self) -> str:
        """Return the same text for every secret, without the secret."""
        return "Secret(<hidden>)"
