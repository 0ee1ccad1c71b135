"""The handshake between gateways of two clouds, and the hello inside (docs/design.md 15.2, 15.3).

The handshake is that of a link (:mod:`iris_py.link.handshake`) with another magic, the id of a pair of keys in place of the id
of a secret, and Noise KK, which proves to both gateways that the peer holds the key of its cloud. So nothing is signed, and an
initiator's first record holds the hello alone.

In the hello, a gateway describes itself to the gateway of another cloud (docs/design.md 15.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from iris_py.link.handshake import Handshaking, Offer, ProtocolError
from iris_security import KnownKeysHandshake, pair_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_security import CloudKey

#: Largest encoded hello. Too small: later versions can add nothing; too large: a hello does not fit into the handshake.
HELLO_BYTES_MAX: Final = 2048
GATEWAY_ID_BYTES: Final = 16
BUNDLE_ID_BYTES: Final = 8
#: Connections of one bundle. Too small: one lost packet holds up more traffic; too large: useless sockets.
CONNECTIONS_MAX: Final = 8
#: Characters of a name or zone. Too small: owners have to shorten names; too large: names fill logs.
NAME_LENGTH_MAX: Final = 64

_INT64_MAX: Final = (1 << 63) - 1
_Text = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]


class HelloError(Exception):
    """A hello is not that of a gateway; this error ends the connection."""


class LineHello(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a hello, a msgpack map; a receiver ignores the fields of newer versions."""

    gateway: Annotated[bytes, msgspec.Meta(min_length=GATEWAY_ID_BYTES, max_length=GATEWAY_ID_BYTES)]
    """The id of the gateway: random bytes of the process."""
    bundle: Annotated[bytes, msgspec.Meta(min_length=BUNDLE_ID_BYTES, max_length=BUNDLE_ID_BYTES)] = bytes(BUNDLE_ID_BYTES)
    """The id of the connection's bundle: random bytes of the initiator. Zero from a responder, which does not know the bundle
    yet."""
    index: Annotated[int, msgspec.Meta(ge=0, lt=CONNECTIONS_MAX)] = 0
    """The index of the connection in the bundle, as numbered by the initiator."""
    count: Annotated[int, msgspec.Meta(ge=1, le=CONNECTIONS_MAX)] = 1
    """The number of connections planned by the initiator."""
    name: _Text = ""
    """The cloud's own name; only for logs."""
    zone: _Text = ""
    """The zone of the gateway; empty if unknown."""
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1, le=_INT64_MAX)]
    """The largest message accepted by the gateway."""
    time_ms: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)] = 0
    """The gateway's clock, in milliseconds since the epoch; 0 if undisclosed. Serves only to log the difference between
    clocks."""


_decoder = msgspec.msgpack.Decoder(LineHello)


def encode_hello(hello: LineHello) -> bytes:
    """Return the bytes of a hello.

    Raises:
        HelloError: A peer would refuse the hello.
    """
    encoded = msgspec.msgpack.encode(hello)
    decode_hello(encoded)
    return encoded


def decode_hello(data: bytes) -> LineHello:
    """Parse a received hello.

    Raises:
        HelloError: The hello is invalid.
    """
    if len(data) > HELLO_BYTES_MAX:
        raise HelloError("a hello over the limit")
    try:
        hello = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise HelloError("a malformed hello") from None
    if hello.index >= hello.count:
        raise HelloError("a connection number that its bundle does not have")
    if not (hello.name.isprintable() and hello.zone.isprintable()):
        raise HelloError("a name with unprintable characters")
    return hello


MAGIC: Final = b"IRIF"
#: The versions of the protocol after the handshake; the newest common version is used.
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
DEFAULT_OFFER: Final = Offer(version_min=VERSION_MIN, version_max=VERSION_MAX)


def pairs_of(own: Iterable[CloudKey], allowed: Iterable[bytes]) -> dict[bytes, tuple[CloudKey, bytes]]:
    """Return the pairs of keys that a responder accepts, indexed by the id of the pair.

    Args:
        own: The keys of the local cloud: one, or two during a rotation.

    Returns:
        Own key and peer's public key, by pair id. Own public keys are included as peers, so that a handshake with the own
        cloud is refused with a clear reason.
    """
    keys, publics = list(own), list(allowed)
    return {pair_id(key.public, public): (key, public) for key in keys for public in (*publics, key.public)}


class FederationHandshake(Handshaking):
    """The handshake between two gateways. An initiator needs its own key and the peer's, a responder the accepted pairs.

    Args:
        hello: The encoded hello of the gateway. A responder's hello travels in its handshake message, an initiator's in the
            link's first record.
        ephemeral_private: 32 fresh random bytes.
        key: The local cloud's key, for an initiator.
        peer: The neighbour's public key, for an initiator.
        pairs: The accepted keys by pair id, for a responder; see :func:`pairs_of`.
        offer: The offered versions and suites.

    Attributes:
        peer_id: The public key of the responder's cloud; for initiators, once the handshake is complete.

    Raises:
        ValueError: The peer's public key is the local cloud's, or invalid.
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
        """The part of the handshake that the link needs for an initiator's first record."""
        return GatewayIntroduction(self._peer_public, self._hello)

    def _make_noise(self, key_id: bytes, preamble: bytes) -> KnownKeysHandshake:
        found = self._pairs.get(key_id)  # a stranger can name a valid pair and cost us more time than this lookup
        if found is None:
            raise ProtocolError("its key is not the key of a neighbour, or it expects another key of this gateway")
        own, self._peer_public = found
        if own.public == self._peer_public:
            raise ProtocolError(
                "a gateway with the key of this cloud. Each cloud needs its own key, and must not dial its own gateways"
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
    """An initiator's first record between gateways: the hello alone. Decrypting the record proves the initiator's cloud.

    Args:
        peer_public: The public key of the peer's cloud.
    """

    __slots__ = ("_hello", "_peer_public")

    def __init__(self, peer_public: bytes, hello: bytes) -> None:
        self._peer_public = peer_public
        self._hello = hello

    def introduce(self, handshake_hash: bytes) -> bytes:
        """Return the hello, for an initiator's first record."""
        return self._hello

    def read_introduction(self, handshake_hash: bytes, data: bytes) -> tuple[bytes, bytes]:
        """Return the public key of the initiator's cloud, and the initiator's hello."""
        return self._peer_public, data
