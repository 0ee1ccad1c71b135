"""The text forms of secrets and keys: lines that people copy, with a checksum that shows a mistyped one."""

import base64
import hashlib
import hmac
import re

from iris_security.errors import SecretFormatError

#: How the texts begin that nobody but their owner may see: of a secret, an administration key, the private key of a cloud.
SECRET_PREFIX = "iris1."  # noqa: S105 - how each secret begins, and no secret
ADMINISTRATION_PREFIX = "irisadmin1."
CLOUD_PREFIX = "irisidp1."

#: Characters behind such a beginning that make a text a secret, also a damaged one: half of those of a secret. Too small: names
#: and paths that begin so are refused; too large: an error shows so much of a cut secret that the rest can be guessed.
SECRET_CHARACTERS_MIN = 24
# One beginning that the three have in common, so that a text without it costs little.
_SECRET = re.compile(rf"iris(?:1|admin1|idp1)\.[A-Za-z0-9_-]{{{SECRET_CHARACTERS_MIN},}}")

#: What a text stands for.
VALUE_BYTES = 32
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
#: 36 bytes are exactly 48 characters: no padding and no unused bits, so every text stands for a value of its own.
_CHARACTERS = 48
_CHECKSUM_BYTES = 4  # one of 4 thousand million mistyped texts goes unnoticed

_HOW_TO_CORRECT = "copy the whole line as it was printed when the {what} was made"


def holds_secret(text: str) -> bool:
    """Tell whether a text has a secret or a private key in it, whole or damaged."""
    return _SECRET.search(text) is not None


def hide_secrets(text: str) -> str:
    """Return a text with a mark in place of each secret and private key."""
    return _SECRET.sub("[secret]", text)


def refuse_secret(text: str) -> None:
    """Refuse a secret in place of a name. Names are shown to people and told to other nodes.

    Raises:
        ValueError: The text holds a secret or a private key. The error does not repeat it.
    """
    if holds_secret(text):
        raise ValueError(
            "a secret or a private key stands where a name belongs. Write the name there, and make a new secret if others have "
            "seen this one"
        )


def encode_text(value: bytes, prefix: str, label: bytes) -> str:
    """Return the text form of a value: its prefix and 48 characters.

    Args:
        value: `VALUE_BYTES`.
        prefix: How texts of its kind begin.
        label: Of the checksum of its kind.
    """
    return prefix + base64.urlsafe_b64encode(value + _checksum(value, label)).decode("ascii")


def decode_text(text: str, prefix: str, label: bytes, what: str) -> bytes:
    """Return the value that a text stands for; white space around it does not matter.

    Args:
        text: As somebody gave it.
        prefix: How texts of its kind begin.
        label: Of the checksum of its kind.
        what: The name of its kind, for the error.

    Raises:
        SecretFormatError: It is no such text, or was damaged when it was copied.
    """
    text, advice = text.strip(), _HOW_TO_CORRECT.format(what=what)
    article = "an" if what[0] in "aeiou" else "a"
    if not text.startswith(prefix):
        raise SecretFormatError(f'{article} {what} starts with "{prefix}": {advice}')
    encoded = text.removeprefix(prefix)
    if len(encoded) != _CHARACTERS:
        raise SecretFormatError(f'{article} {what} has {_CHARACTERS} characters after "{prefix}", not {len(encoded)}: {advice}')
    # The decoder of the standard library skips foreign characters and takes "+" for "-": one value would have many texts.
    if not _ALPHABET.issuperset(encoded):
        raise SecretFormatError(f'{article} {what} has only letters, digits, "-" and "_" after its prefix: {advice}')
    decoded = base64.urlsafe_b64decode(encoded)
    value, checksum = decoded[:VALUE_BYTES], decoded[VALUE_BYTES:]
    if not hmac.compare_digest(checksum, _checksum(value, label)):
        raise SecretFormatError(f"the checksum of the {what} is wrong, a character was changed: {advice}")
    return value


def _checksum(value: bytes, label: bytes) -> bytes:
    """Return what shows a mistyped text; it is part of it, and as secret as that."""
    return hashlib.sha256(label + value).digest()[:_CHECKSUM_BYTES]
