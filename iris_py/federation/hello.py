"""The hello: a gateway says in it what the gateway of another cloud has to know of it (docs/design.md 15.4)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

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
