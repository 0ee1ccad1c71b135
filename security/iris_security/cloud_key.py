"""The identity of a cloud for its neighbours: an X25519 key pair shared by all its gateways (docs/design.md 15.1).

The public key identifies the cloud. Operators exchange public halves only, for example by mail: a reader of the mail can
neither impersonate the cloud nor decrypt anything. The key signs nothing, because no third party needs a proof. Gateways use it
for the handshake between clouds (noise_kk.py) and for pseudonyms that are equal at all gateways.
"""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from iris_security.errors import AuthenticationError, SecretFormatError
from iris_security.hkdf import hkdf
from iris_security.key_material import KeyMaterial
from iris_security.secret import Entropy
from iris_security.symmetric import DH_KEY_BYTES, exchange
from iris_security.text_form import CLOUD_PREFIX, decode_text, encode_text

#: The size of a private or a public key.
CLOUD_KEY_BYTES = DH_KEY_BYTES
CLOUD_ID_BYTES = 16
#: The size of the id of a pair of clouds in the first handshake message. Too small: two pairs collide; too large: more bytes.
PAIR_BYTES = 8

#: The prefixes of the text forms of a cloud's private key and of its public key.
PRIVATE_PREFIX = CLOUD_PREFIX
PUBLIC_PREFIX = "irisid1."
_PRIVATE_LABEL = b"iris cloud private checksum"
_PUBLIC_LABEL = b"iris cloud public checksum"

#: A private key to detect public keys of low order. Any key reveals them, because all X25519 private keys are multiples of 8.
_PROBE = bytes(range(CLOUD_KEY_BYTES))


class CloudKey(KeyMaterial):
    """The private key of a cloud, held by all its gateways to prove the cloud's identity to neighbouring clouds.

    Args:
        value: The private key, `CLOUD_KEY_BYTES`.

    Attributes:
        value: The private key, `CLOUD_KEY_BYTES`.
        public: The public half, `CLOUD_KEY_BYTES`, for the settings of every neighbour.
        cloud_id: The id of the cloud, `CLOUD_ID_BYTES`, see `cloud_id_of`.

    Raises:
        ValueError: The key has another size.
    """

    __slots__ = ("cloud_id", "public", "value")

    value: bytes
    public: bytes
    cloud_id: bytes

    def __init__(self, value: bytes) -> None:
        if len(value) != CLOUD_KEY_BYTES:
            raise ValueError(f"the key of a cloud has {CLOUD_KEY_BYTES} bytes, not {len(value)}")
        public = X25519PrivateKey.from_private_bytes(value).public_key().public_bytes_raw()
        for name, given in (("value", value), ("public", public), ("cloud_id", cloud_id_of(public))):
            object.__setattr__(self, name, given)

    @classmethod
    def generate(cls, entropy: Entropy) -> "CloudKey":
        """Make a new private key of a cloud from random bytes.

        Args:
            entropy: The source of random bytes; in production `os.urandom`.

        Raises:
            ValueError: The source returned another number of bytes.
        """
        return cls(entropy(CLOUD_KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> "CloudKey":
        """Parse the text form of a cloud's private key; surrounding white space is ignored.

        Raises:
            SecretFormatError: The text is no private key of a cloud, or was damaged in copying.
        """
        if text.strip().startswith(PUBLIC_PREFIX):
            raise SecretFormatError(
                "this is the public half of the key of a cloud: the gateways of the cloud need the private half"
            )
        return cls(decode_text(text, PRIVATE_PREFIX, _PRIVATE_LABEL, "cloud key"))

    @property
    def text(self) -> str:
        """The text form of the key, one line to copy: `irisidp1.` and 48 characters. Its reader can impersonate the cloud."""
        return encode_text(self.value, PRIVATE_PREFIX, _PRIVATE_LABEL)

    @property
    def public_text(self) -> str:
        """The text form of the key's public half: `irisid1.` and 48 characters."""
        return cloud_public_key_text(self.public)

    def origin_key(self, neighbour_public: bytes) -> bytes:
        """Return the key of the pseudonyms of nodes for a neighbour, 32 bytes; equal at all gateways of the cloud.

        Args:
            neighbour_public: The public key of the neighbour.
        """
        return hkdf(self.value, info=b"iris origin" + neighbour_public)

    def __eq__(self, other: object) -> bool:
        """Compare two keys in constant time."""
        if not isinstance(other, CloudKey):
            return NotImplemented
        return hmac.compare_digest(self.value, other.value)

    def __hash__(self) -> int:
        """Hash the public half, consistently with `__eq__`."""
        return hash((CloudKey, self.public))

    def __repr__(self) -> str:
        """Return the same text for every key, without the key."""
        return "CloudKey(<hidden>)"


def parse_cloud_public_key(text: str) -> bytes:
    """Parse the text form of a cloud's public key; surrounding white space is ignored.

    Returns:
        The key, `CLOUD_KEY_BYTES`.

    Raises:
        SecretFormatError: The text is no such key, was damaged in copying, or encodes a point of low order, which is no real
            key.
    """
    if text.strip().startswith(PRIVATE_PREFIX):
        raise SecretFormatError(
            "this is the private half of the key of a cloud: give neighbours only the public half, see `iris keys public`"
        )
    public = decode_text(text, PUBLIC_PREFIX, _PUBLIC_LABEL, "public key of a cloud")
    try:
        exchange(X25519PrivateKey.from_private_bytes(_PROBE), public)
    except AuthenticationError:
        raise SecretFormatError("this is not a valid public key: ask the neighbour for its public key again") from None
    return public


def cloud_public_key_text(public: bytes) -> str:
    """Return the text form of a cloud's public key: `irisid1.` and 48 characters.

    Args:
        public: The key, `CLOUD_KEY_BYTES`.
    """
    return encode_text(public, PUBLIC_PREFIX, _PUBLIC_LABEL)


def cloud_id_of(public: bytes) -> bytes:
    """Return the id of a cloud by its public key: `CLOUD_ID_BYTES` of SHA-256("iris cloud" || public key)."""
    return hashlib.sha256(b"iris cloud" + public).digest()[:CLOUD_ID_BYTES]


def pair_id(one: bytes, other: bytes) -> bytes:
    """Return the id of a pair of clouds, for the first handshake message; the order of their public keys does not matter.

    Returns:
        `PAIR_BYTES` of SHA-256("iris federation pair" || smaller key || larger key).
    """
    return hashlib.sha256(b"iris federation pair" + min(one, other) + max(one, other)).digest()[:PAIR_BYTES]
