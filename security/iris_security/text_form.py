"""The text forms of secrets and keys: single lines for copying, with a checksum that detects typing errors."""

import base64
import hashlib
import hmac
import re

from iris_security.errors import SecretFormatError

#: The prefixes of confidential texts: a secret, an administrator key, the private key of a cloud.
SECRET_PREFIX = "iris1."  # noqa: S105 - how each secret begins, and no secret
ADMINISTRATION_PREFIX = "irisadmin1."
CLOUD_PREFIX = "irisidp1."

#: The characters after a prefix that make a text a secret, even a damaged one: half of a secret's characters. Too small: names
#: and paths with the prefix are refused; too large: an error shows so much of a truncated secret that the rest can be guessed.
SECRET_CHARACTERS_MIN = 24
# The three prefixes share a beginning, so scanning a text without it is cheap.
_SECRET = re.compile(rf"iris(?:1|admin1|idp1)\.[A-Za-z0-9_-]{{{SECRET_CHARACTERS_MIN},}}")

#: The size of the encoded value.
VALUE_BYTES = 32
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
#: 36 bytes are exactly 48 characters: without padding or unused bits, a value has exactly one text.
_CHARACTERS = 48
_CHECKSUM_BYTES = 4  # one of 4 thousand million mistyped texts passes

_HOW_TO_CORRECT = "copy the whole line as it was printed when the {what} was made"


def holds_secret(text: str) -> bool:
    """Return whether a text contains a secret or a private key, complete or damaged."""
    return _SECRET.search(text) is not None


def hide_secrets(text: str) -> str:
    """Return a text with each secret and private key in it replaced by `[secret]`."""
    return _SECRET.sub("[secret]", text)


def refuse_secret(text: str) -> None:
    """Refuse a secret in place of a name, because names are shown to people and sent to other nodes.

    Raises:
        ValueError: The text contains a secret or a private key. The error does not repeat it.
    """
    if holds_secret(text):
        raise ValueError(
            "a secret or a private key is given in place of a name. Write the name there, and make a new secret if others "
            "have seen this one"
        )


def encode_text(value: bytes, prefix: str, label: bytes) -> str:
    """Return the text form of a value: its prefix and 48 characters.

    Args:
        value: The value, `VALUE_BYTES`.
        prefix: The prefix for this kind of value, for example `SECRET_PREFIX`.
        label: The checksum label for this kind of value.
    """
    return prefix + base64.urlsafe_b64encode(value + _checksum(value, label)).decode("ascii")


def decode_text(text: str, prefix: str, label: bytes, what: str) -> bytes:
    """Check a text form and return its value; surrounding white space is ignored.

    Args:
        text: The text as typed.
        prefix: The prefix of the expected kind of value.
        label: The checksum label of the expected kind.
        what: The name of the expected kind, for the error.

    Raises:
        SecretFormatError: The text is not of this kind, or was damaged in copying.
    """
    text, advice = text.strip(), _HOW_TO_CORRECT.format(what=what)
    article = "an" if what[0] in "aeiou" else "a"
    if not text.startswith(prefix):
        raise SecretFormatError(f'{article} {what} starts with "{prefix}": {advice}')
    encoded = text.removeprefix(prefix)
    if len(encoded) != _CHARACTERS:
        raise SecretFormatError(f'{article} {what} has {_CHARACTERS} characters after "{prefix}", not {len(encoded)}: {advice}')
    # The standard decoder skips foreign characters and accepts "+" for "-", which would give a value many texts.
    if not _ALPHABET.issuperset(encoded):
        raise SecretFormatError(f'{article} {what} has only letters, digits, "-" and "_" after its prefix: {advice}')
    decoded = base64.urlsafe_b64decode(encoded)
    value, checksum = decoded[:VALUE_BYTES], decoded[VALUE_BYTES:]
    if not hmac.compare_digest(checksum, _checksum(value, label)):
        raise SecretFormatError(f"the checksum of the {what} is wrong, a character was changed: {advice}")
    return value


def _checksum(value: bytes, label: bytes) -> bytes:
    """Return the checksum of a value, as confidential as the value itself."""
    return hashlib.sha256(label + value).digest()[:_CHECKSUM_BYTES]
