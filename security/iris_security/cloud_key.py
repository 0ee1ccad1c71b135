"""The identity of a cloud towards its neighbours: an X25519 key pair that all its gateways share (docs/design.md 15.1).

A cloud is its public key. Only public halves are exchanged between operators, and they may go by mail: whoever sees them can
neither pose as the cloud nor read anything. Nothing is signed with the key, for nobody has to convince a third party; it serves
the handshake between gateways (noise_kk.py), and pseudonyms of what must look the same at all gateways.
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

#: A private key, or a public one.
CLOUD_KEY_BYTES = DH_KEY_BYTES
CLOUD_ID_BYTES = 16
#: Names the keys of two clouds in the first message of a handshake. Too small: two pairs collide; too large: more bytes.
PAIR_BYTES = 8

#: How the text of every private key of a cloud begins, and that of its public half.
PRIVATE_PREFIX = CLOUD_PREFIX
PUBLIC_PREFIX = "irisid1."
_PRIVATE_LABEL = b"iris cloud private checksum"
_PUBLIC_LABEL = b"iris cloud public checksum"

#: Any key will do to see whether another one is of low order: all private keys of X25519 are multiples of 8.
_PROBE = X25519PrivateKey.from_private_bytes(bytes(range(CLOUD_KEY_BYTES)))


class CloudKey(KeyMaterial):
    """The private key of a cloud.

    Args:
        value: The private key, `CLOUD_KEY_BYTES`.

    Attributes:
        value: Likewise.
        public: Its public half, `CLOUD_KEY_BYTES`, which every neighbour is to know.
        cloud_id: The id of the cloud, `CLOUD_ID_BYTES`, see `cloud_id_of`.

    Raises:
        ValueError: It has another size.
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
        """Make a new key.

        Args:
            entropy: In production the source of the operating system, as `os.urandom`.

        Raises:
            ValueError: The source gave another number of bytes.
        """
        return cls(entropy(CLOUD_KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> "CloudKey":
        """Read the text form; white space around it does not matter.

        Raises:
            SecretFormatError: The text is no private key of a cloud, or was damaged when it was copied.
        """
        if text.strip().startswith(PUBLIC_PREFIX):
            raise SecretFormatError("this is the public half of the key of a cloud: its own gateways need the private one")
        return cls(decode_text(text, PRIVATE_PREFIX, _PRIVATE_LABEL, "cloud key"))

    @property
    def text(self) -> str:
        """The text form, one line to copy: `irisidp1.` and 48 characters. Whoever sees it can pose as the cloud."""
        return encode_text(self.value, PRIVATE_PREFIX, _PRIVATE_LABEL)

    @property
    def public_text(self) -> str:
        """The text form of its public half: `irisid1.` and 48 characters."""
        return cloud_public_key_text(self.public)

    def origin_key(self, neighbour_public: bytes) -> bytes:
        """Return the key of pseudonyms towards one neighbour, 32 bytes: the same at all gateways of this cloud.

        Args:
            neighbour_public: The public key of the neighbour.
        """
        return hkdf(self.value, info=b"iris origin" + neighbour_public)

    def __eq__(self, other: object) -> bool:
        """Compare in constant time."""
        if not isinstance(other, CloudKey):
            return NotImplemented
        return hmac.compare_digest(self.value, other.value)

    def __hash__(self) -> int:
        """Hash as equality demands, and by what is public."""
        return hash((CloudKey, self.public))

    def __repr__(self) -> str:
        """Return a text that is the same for every key."""
        return "CloudKey(<hidden>)"


def parse_cloud_public_key(text: str) -> bytes:
    """Read the text form of the public key of a cloud; white space around it does not matter.

    Returns:
        The key, `CLOUD_KEY_BYTES`.

    Raises:
        SecretFormatError: The text is none, or was damaged when it was copied; or it is a point of low order, which nobody has
            made as a key.
    """
    if text.strip().startswith(PRIVATE_PREFIX):
        raise SecretFormatError(
            "this is the private half of the key of a cloud: neighbours are given the public one alone, see `iris keys public`"
        )
    public = decode_text(text, PUBLIC_PREFIX, _PUBLIC_LABEL, "public key of a cloud")
    try:
        exchange(_PROBE, public)
    except AuthenticationError:
        raise SecretFormatError("no cloud has this public key: ask the neighbour for its own again") from None
    return public


def cloud_public_key_text(public: bytes) -> str:
    """Return the text form of the public key of a cloud: `irisid1.` and 48 characters.

    Args:
        public: The key, `CLOUD_KEY_BYTES`.
    """
    return encode_text(public, PUBLIC_PREFIX, _PUBLIC_LABEL)


def cloud_id_of(public: bytes) -> bytes:
    """Return the id of the cloud with a public key: `CLOUD_ID_BYTES` of SHA-256("iris cloud" || public key)."""
    return hashlib.sha256(b"iris cloud" + public).digest()[:CLOUD_ID_BYTES]


def pair_id(one: bytes, other: bytes) -> bytes:
    """Return the name of two clouds' public keys, in either order.

    Returns:
        `PAIR_BYTES` of SHA-256("iris federation pair" || smaller key || larger key).
    """
    return hashlib.sha256(b"iris federation pair" + min(one, other) + max(one, other)).digest()[:PAIR_BYTES]
