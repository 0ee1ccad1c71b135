"""The secret of a network, or of one cluster (docs/design.md 2.1)."""

import hmac
from collections.abc import Callable

from iris_security.key_material import KeyMaterial
from iris_security.text_form import SECRET_PREFIX, VALUE_BYTES, decode_text, encode_text

#: A source of that many bytes which nobody can guess: the operating system's in production, a seeded one in a simulation.
Entropy = Callable[[int], bytes]

SECRET_BYTES = VALUE_BYTES  # one AES-256 or HMAC-SHA256 key: more would be cut by the derivation, less is guessed sooner

#: How the text of every secret begins.
TEXT_PREFIX = SECRET_PREFIX
_CHECKSUM_LABEL = b"iris secret checksum"


class Secret(KeyMaterial):
    """The 32 bytes from which all keys of a network, or of one cluster, derive.

    Args:
        value: The bytes.

    Raises:
        ValueError: It has another size.
    """

    __slots__ = ("value",)

    value: bytes

    def __init__(self, value: bytes) -> None:
        if len(value) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(value)}")
        object.__setattr__(self, "value", value)

    @classmethod
    def generate(cls, entropy: Entropy) -> "Secret":
        """Make a new secret.

        Args:
            entropy: In production the source of the operating system, as `os.urandom`.

        Raises:
            ValueError: The source gave another number of bytes.
        """
        return cls(entropy(SECRET_BYTES))

    @classmethod
    def from_bytes(cls, value: bytes) -> "Secret":
        """Take a secret of 32 bytes that was stored as bytes.

        Raises:
            ValueError: It has another size.
        """
        return cls(bytes(value))

    @classmethod
    def parse(cls, text: str) -> "Secret":
        """Read the text form; white space around it does not matter.

        Raises:
            SecretFormatError: The text is no secret, or was damaged when it was copied.
        """
        return cls(decode_text(text, TEXT_PREFIX, _CHECKSUM_LABEL, "secret"))

    @property
    def text(self) -> str:
        """The text form, one line to copy: `iris1.` and 48 characters. Whoever sees it has the secret."""
        return encode_text(self.value, TEXT_PREFIX, _CHECKSUM_LABEL)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.value, other.value)

    def __hash__(self) -> int:
        """Hash as equality demands. The hash of bytes is keyed per process and stays inside it."""
        return hash((Secret, self.value))

    def __repr__(self) -> str:
        """Return a text that is the same for every secret."""
        return "Secret(<hidden>)"
