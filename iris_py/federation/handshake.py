"""The first bytes between gateways of two clouds (docs/design.md 15.2, 15.3).

They are those of a link (:mod:`iris_py.link.handshake`) with another magic, the name of a pair of keys in the place of the id
of a secret, and Noise KK, under which each side shows that it holds the key of its cloud. So nothing is signed: in its first
record an initiator says its hello alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.link.handshake import Handshaking, Offer, ProtocolError
from iris_security import KnownKeysHandshake, pair_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_security import CloudKey

MAGIC: Final = b"IRIF"
#: The versions of all that comes after the handshake; the newest that both sides speak is taken.
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
DEFAULT_OFFER: Final = Offer(version_min=VERSION_MIN, version_max=VERSION_MAX)


def pairs_of(own: Iterable[CloudKey], allowed: Iterable[bytes]) -> dict[bytes, tuple[CloudKey, bytes]]:
    """Return the keys that a responder accepts, by the names of their pairs.

    Args:
        own: The keys of the own cloud: one, or two while it is changed.
        allowed: The public keys of neighbours.

    Returns:
        Own key and public key of the peer. The own public keys are among them, so that a handshake with ourselves is refused as
        what it is.
    """
    keys, publics = list(own), list(allowed)
    return {pair_id(key.public, public): (key, public) for key in keys for public in (*publics, key.public)}


class FederationHandshake(Handshaking):
    """The handshake between two gateways. An initiator is given its own key and that of its peer, a responder the pairs.

    Args:
        hello: What this gateway says of itself, encoded. A responder's goes into its message; an initiator's goes into its
            first record, which is the link's business.
        ephemeral_private: 32 fresh random bytes.
        key: The key of the own cloud, of an initiator.
        peer: The public key of the neighbour, of an initiator.
        pairs: The keys that a responder accepts, by the names of their pairs; see :func:`pairs_of`.
        offer: The versions and suites that this side speaks.

    Attributes:
        peer_id: The public key of the responder's cloud; for initiators, once the handshake is complete.

    Raises:
        ValueError: The public key is that of the own cloud, or none of a cloud.
    """

    magic = MAGIC

    def __init__(
        self,
        *,
        hello: bytes,
        ephemeral_private: bytes,
        key: CloudKey | None = None,
        peer: bytes = b"",
        pairs: Mapping[bytes, tuple[CloudKey, bytes]] | None = None,
        offer: Offer = DEFAULT_OFFER,
    ) -> None:
        assert (key is None) != (pairs is None), "an initiator has a key, and a responder pairs of them"
        super().__init__(initiator=key is not None, offer=offer)
        self._hello = hello
        self._ephemeral_private = ephemeral_private
        self._peer_public = b""
        self._pairs = pairs or {}
        if key is not None:
            if peer == key.public:
                raise ValueError("the key of the neighbour is that of the own cloud")
            pair = pair_id(key.public, peer)
            self._pairs = {pair: (key, peer)}
            self._begin(pair)

    @property
    def introduction(self) -> GatewayIntroduction:
        """The part that a link keeps."""
        return GatewayIntroduction(self._peer_public, self._hello)

    def _make_noise(self, key_id: bytes, preamble: bytes) -> KnownKeysHandshake:
        found = self._pairs.get(key_id)  # a stranger pays for more of our time than this with a pair that it knows
        if found is None:
            raise ProtocolError("it has another key than those of our neighbours, or takes us for another cloud")
        own, self._peer_public = found
        if own.public == self._peer_public:
            raise ProtocolError(
                "a gateway with our own key: each cloud needs a key of its own, and dials no gateway of its own"
            )
        return KnownKeysHandshake(
            initiator=self.initiator,
            static_private=own.value,
            peer_static_public=self._peer_public,
            prologue=preamble,
            ephemeral_private=self._ephemeral_private,
        )

    def _describe(self, payload_hash: bytes) -> bytes:
        return self._hello

    def _read_description(self, payload_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        return self._peer_public, data


class GatewayIntroduction:
    """An initiator among gateways says its hello alone: that its first record opens shows which cloud it is of.

    Args:
        peer_public: The public key of the cloud of the peer.
        hello: What this gateway says of itself, encoded.
    """

    __slots__ = ("_hello", "_peer_public")

    def __init__(self, peer_public: bytes, hello: bytes) -> None:
        self._peer_public = peer_public
        self._hello = hello

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return what an initiator says of itself in its first record."""
        return self._hello

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Return the public key of the initiator's cloud, and its hello."""
        return self._peer_public, data
