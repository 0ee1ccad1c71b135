"""The headers of a message: small named values beside its payload (docs/design.md 4.5).

Headers travel as a msgpack map in the head of the message and are encrypted with its body. Received headers are validated at
once and kept encoded, so a queued message takes as much memory as on the wire; they are decoded on first access.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

HeaderValue: TypeAlias = str | bytes | int | float | bool

#: Largest encoded size of one message's headers. Enough for a trace context with baggage, an identity token and a dozen names.
#: Larger values belong in the payload: headers are not chunked, and each queued message carries its own.
HEADERS_BYTES_MAX: Final = 4096
#: The longest name of a header.
NAME_BYTES_MAX: Final = 64
#: Visible ASCII, which the header names of every bridged protocol allow.
_NAME = re.compile(rf"[!-~]{{1,{NAME_BYTES_MAX}}}", re.ASCII)
#: Prefix of Iris's own header names. Applications neither set nor see these headers.
RESERVED_HEADERS: Final = "iris-"
#: Set by a gateway on a relayed message: the alias of the originating cloud.
CLOUD_HEADER: Final = "iris-cloud"
#: Set by a gateway on a relayed broadcast: pseudonym and sequence number of the original sender.
ORIGIN_HEADER: Final = "iris-origin"
NUMBER_HEADER: Final = "iris-number"
#: Set on a request to another cloud: how long the request waits there (seconds) for a member of its cluster.
MEMBERS_WAIT_HEADER: Final = "iris-members-wait"
#: Set on a request to another cloud: the number of members that may be lost while executing it there, and whether its execution
#: is exclusive.
MEMBERS_LOST_HEADER: Final = "iris-members-lost-max"
EXCLUSIVE_HEADER: Final = "iris-exclusive"
#: Iris's headers that applications see and may pass on: the id of a record that Spark writes to a topic.
_PASSED_ON: Final = frozenset(("iris-message-id",))
_TYPES: Final = frozenset((str, bytes, int, float, bool))

#: The size of headers, in front of them.
HEAD_SIZE: Final = struct.Struct(">H")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


class Headers(Mapping[str, HeaderValue]):
    """The headers of one message: an immutable mapping.

    Attributes:
        encoded: The encoded headers; empty without headers.
    """

    __slots__ = ("_values", "encoded")

    def __init__(self, encoded: bytes) -> None:
        """Wrap encoded headers that are already valid. Use :func:`encode_headers` or :func:`decode_headers` to make headers."""
        self.encoded = encoded
        self._values: dict[str, HeaderValue] | None = None

    def __getitem__(self, name: str) -> HeaderValue:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def __bool__(self) -> bool:
        return bool(self.encoded)

    def __hash__(self) -> int:
        return hash(frozenset(self.read().items()))

    def __repr__(self) -> str:
        return repr(self.read())

    def read(self) -> dict[str, HeaderValue]:
        """Return the values by name, not to be changed. Decoded once, which takes more memory from then on."""
        values = self._values
        if values is None:
            values = self._values = _decoder.decode(self.encoded) if self.encoded else {}
        return values


#: The headers of messages without headers.
NO_HEADERS: Final = Headers(b"")


def encode_headers(headers: Mapping[str, HeaderValue] | None, *, is_internal: bool = False) -> Headers:
    """Encode an application's headers; later changes to the mapping have no effect.

    Args:
        headers: Values by name, or the headers of a received message. None for no headers.
        is_internal: Whether Iris's own headers are allowed.

    Raises:
        ConfigurationError: A name or value is invalid, or the headers are too large.
    """
    if headers is None:
        return NO_HEADERS
    if isinstance(headers, Headers):
        return headers
    if not isinstance(headers, Mapping):
        raise ConfigurationError(f"headers={headers!r} must be a dictionary of values by name.")
    if not headers:
        return NO_HEADERS
    values: dict[str, HeaderValue] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"{name!r} is not a valid name of a header. Use 1 to {NAME_BYTES_MAX} visible ASCII characters, without blanks."
            )
        if name.startswith(RESERVED_HEADERS) and not is_internal and name not in _PASSED_ON:
            raise ConfigurationError(
                f"the header {name!r} begins with {RESERVED_HEADERS!r}, which is reserved for Iris. Choose another prefix."
            )
        values[name] = _plain(name, value)
    try:
        encoded = _encoder.encode(values)
    except (UnicodeEncodeError, OverflowError) as exc:
        raise ConfigurationError(f"a header cannot be encoded: {exc}. Pass it as bytes.") from exc
    if len(encoded) > HEADERS_BYTES_MAX:
        raise ConfigurationError(
            f"the headers take {len(encoded)} bytes, but at most {HEADERS_BYTES_MAX} are allowed. Put large values into the "
            "payload."
        )
    return Headers(encoded)


def decode_headers(encoded: bytes) -> Headers | None:
    """Validate headers from a peer; return None if they are malformed. Never raises."""
    if not encoded:
        return NO_HEADERS
    if len(encoded) > HEADERS_BYTES_MAX:
        return None
    try:
        values = _decoder.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder raises these for bad UTF-8 and deep nesting
        return None
    for name, value in values.items():
        if type(value) not in _TYPES or _NAME.fullmatch(name) is None:
            return None
    return Headers(encoded) if values else NO_HEADERS


def put_headers(encoded: bytes, behind: bytes) -> bytes:
    """Return encoded headers with their size, and a payload or a topic behind the headers."""
    return HEAD_SIZE.pack(len(encoded)) + encoded + behind


def take_headers(content: bytes) -> tuple[Headers, bytes] | None:
    """Return headers and the bytes behind the headers, of :func:`put_headers`; None for malformed headers. Never raises."""
    start = HEAD_SIZE.size
    if len(content) < start:
        return None
    stop = start + HEAD_SIZE.unpack_from(content)[0]
    headers = decode_headers(content[start:stop]) if stop <= len(content) else None
    return None if headers is None else (headers, content[stop:])


def visible_headers(headers: Headers) -> Headers:
    """Return the received headers an application sees: all except Iris's own."""
    if RESERVED_HEADERS.encode() not in headers.encoded:
        return headers
    shown = {name: value for name, value in headers.items() if not name.startswith(RESERVED_HEADERS) or name in _PASSED_ON}
    return headers if len(shown) == len(headers) else Headers(_encoder.encode(shown)) if shown else NO_HEADERS


def cloud_of(headers: Headers) -> str:
    """Return the alias of the cloud from which a message was relayed; empty for a message of this cloud."""
    if CLOUD_HEADER.encode() not in headers.encoded:
        return ""
    cloud = headers.get(CLOUD_HEADER)
    return cloud if isinstance(cloud, str) else ""


def origin_of(headers: Headers) -> tuple[str, int] | None:
    """Return the original sender and the sequence number of a broadcast from another cloud; None without them."""
    if ORIGIN_HEADER.encode() not in headers.encoded:
        return None
    origin, number = headers.get(ORIGIN_HEADER), headers.get(NUMBER_HEADER)
    return (origin, number) if isinstance(origin, str) and isinstance(number, int) else None


def _plain(name: str, value: object) -> HeaderValue:
    """Convert a value of a header to its plain type: an enumeration's member, for example, to its value."""
    if type(value) in _TYPES:
        return value  # type: ignore[return-value] # it is one of the types
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise ConfigurationError(
        f"the header {name!r} is a {type(value).__qualname__}, but must be str, bytes, int, float or bool. Convert it."
    )
