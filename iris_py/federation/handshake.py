"""The first bytes between gateways of two clouds (docs/design.md 15.2, 15.3).

They are those of a link (:mod:`iris_py.link.handshake`) with another magic, the name of a pair of keys in the place of the id
of a secret, and Noise KK, under which each side shows that it holds the key of its cloud. So nothing is signed: in its first
record an initiator says its hello alone.

The hello: a gateway says in it what the gateway of another cloud has to know of it (docs/design.md 15.4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from iris_py.link.handshake import Handshaking, Offer, ProtocolError
from iris_security import KnownKeysHandshake, pair_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from iris_security import CloudKey

#: Largest hello, encoded. Too small: later versions can add nothing to it; too large: the handshake has no room for it.
HELLO_BYTES_MAX: Final = 2048
GATEWAY_ID_BYTES: Final = 16
BUNDLE_ID_BYTES: Final = 8
#: Of one bundle. Too small: one lost packet holds up more of what is under way; too large: sockets for nothing.
CONNECTIONS_MAX: Final = 8
#: Characters of a name, and of a zone. Too small: names are cut down by their owners; too large: they fill logs.
NAME_LENGTH_MAX: Final = 64

_INT64_MAX: Final = (1 << 63) - 1
_Text = Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)]


class HelloError(Exception):
    """A hello that no gateway says. It ends the connection."""


class LineHello(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a hello, a map of msgpack; those that a newer version adds are ignored."""

    gateway: Annotated[bytes, msgspec.Meta(min_length=GATEWAY_ID_BYTES, max_length=GATEWAY_ID_BYTES)]
    """The id of the gateway: random bytes of its process."""
    bundle: Annotated[bytes, msgspec.Meta(min_length=BUNDLE_ID_BYTES, max_length=BUNDLE_ID_BYTES)] = bytes(BUNDLE_ID_BYTES)
    """The id of the bundle of connections that this one is of: random bytes of the initiator. A responder's is zero: it
    does not know yet."""
    index: Annotated[int, msgspec.Meta(ge=0, lt=CONNECTIONS_MAX)] = 0
    """The number of this connection in its bundle, as the initiator counts."""
    count: Annotated[int, msgspec.Meta(ge=1, le=CONNECTIONS_MAX)] = 1
    """Connections of the bundle, as the initiator will have them."""
    name: _Text = ""
    """The name that the cloud has for itself; for logs alone."""
    zone: _Text = ""
    """The zone of the gateway; empty if it is not known."""
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1, le=_INT64_MAX)]
    """The largest message that the gateway takes."""
    time_ms: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)] = 0
    """The clock of the gateway, milliseconds since the epoch; 0 if it does not say. It serves to log a difference, and nothing
    is decided by it."""


_decoder = msgspec.msgpack.Decoder(LineHello)


def encode_hello(hello: LineHello) -> bytes:
    """Return a hello as bytes.

    Raises:
        HelloError: It is none that the other side would take.
    """
    encoded = msgspec.msgpack.encode(hello)
    decode_hello(encoded)
    return encoded


def decode_hello(data: bytes) -> LineHello:
    """Read a hello as it came.

    Raises:
        HelloError: It is none.
    """
    if len(data) > HELLO_BYTES_MAX:
        raise HelloError("a hello over the limit")
    try:
        hello = _decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise HelloError("a malformed hello") from None
    if hello.index >= hello.count:
        raise HelloError("a connection that its bundle does not have")
    if not (hello.name.isprintable() and hello.zone.isprintable()):
        raise HelloError("a name that cannot be shown")
    return hello


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
