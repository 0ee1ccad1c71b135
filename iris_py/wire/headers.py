"""The headers of a message: a few small values by name, beside its payload (docs/design.md 4.5).

They travel as one msgpack map in the head of the message, under the seal of its body. What is received is looked at once and
kept as it came, so what waits in a queue takes the memory that it took on the wire; it becomes values when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

HeaderValue: TypeAlias = str | bytes | int | float | bool

#: What the headers of one message take at most, encoded. Enough for a trace context with baggage, an identity token and a dozen
#: names; what is larger belongs into the payload, for headers are not chunked, and each message in a queue carries its own.
HEADERS_BYTES_MAX: Final = 4096
#: The longest name of a header.
NAME_BYTES_MAX: Final = 64
#: Visible ASCII: what every protocol that headers may come from, or go to, has in a name.
_NAME = re.compile(rf"[!-~]{{1,{NAME_BYTES_MAX}}}", re.ASCII)
#: Headers whose names begin so are Iris's own. Applications neither set nor see them.
RESERVED_HEADERS: Final = "iris-"
#: Of a message that came by a gateway: the alias of the cloud that it came from.
CLOUD_HEADER: Final = "iris-cloud"
#: Of a broadcast that came by a gateway: who has sent it there, as that is called here, and the number that it gave it.
ORIGIN_HEADER: Final = "iris-origin"
NUMBER_HEADER: Final = "iris-number"
#: Of a request to another cloud: for how many seconds it waits for a member while nobody serves the cluster there.
MEMBERS_WAIT_HEADER: Final = "iris-members-wait"
#: How many members it may lose there, and whether it is to be executed exclusively.
MEMBERS_LOST_HEADER: Final = "iris-members-lost-max"
EXCLUSIVE_HEADER: Final = "iris-exclusive"
#: Those that applications see and may pass on: the id of what Spark writes to a topic.
_PASSED_ON: Final = frozenset(("iris-message-id",))
_TYPES: Final = frozenset((str, bytes, int, float, bool))

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


class Headers(Mapping[str, HeaderValue]):
    """The headers of one message: a mapping that cannot be changed.

    Attributes:
        encoded: As they travel; empty if there are none.
    """

    __slots__ = ("_values", "encoded")

    def __init__(self, encoded: bytes) -> None:
        """Take headers that :func:`encode_headers` or :func:`decode_headers` has looked at; others by these."""
        self.encoded = encoded
        self._values: dict[str, HeaderValue] | None = None

    def __getitem__(self, name: str) -> HeaderValue:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __bool__(self) -> bool:
        return bool(self.encoded)

    def __hash__(self) -> int:
        return hash(frozenset(self._read().items()))

    def __repr__(self) -> str:
        return repr(self._read())

    def _read(self) -> dict[str, HeaderValue]:
        values = self._values
        if values is None:
            values = self._values = _decoder.decode(self.encoded) if self.encoded else {}
        return values


#: Those of every message that has none.
NO_HEADERS: Final = Headers(b"")


def encode_headers(headers: Mapping[str, HeaderValue] | None, *, is_internal: bool = False) -> Headers:
    """Encode what an application gives; later changes of it change nothing.

    Args:
        headers: Values by name, also those of a message that was received. None for no headers.
        is_internal: Whether they are Iris's own, or may be among them.

    Raises:
        ConfigurationError: A name or value is none, or they are too large.
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
                f"{name!r} is no name for a header. Use 1 to {NAME_BYTES_MAX} visible ASCII characters, without blanks."
            )
        if name.startswith(RESERVED_HEADERS) and not is_internal and name not in _PASSED_ON:
            raise ConfigurationError(
                f"the header {name!r} begins with {RESERVED_HEADERS!r}, as Iris's own headers do. Write another beginning."
            )
        values[name] = _plain(name, value)
    try:
        encoded = _encoder.encode(values)
    except (UnicodeEncodeError, OverflowError) as exc:
        raise ConfigurationError(f"a header cannot be encoded: {exc}. Pass it as bytes.") from exc
    if len(encoded) > HEADERS_BYTES_MAX:
        raise ConfigurationError(
            f"the headers take {len(encoded)} bytes, and at most {HEADERS_BYTES_MAX} are sent. "
            "Put what is large into the payload."
        )
    return Headers(encoded)


def decode_headers(encoded: bytes) -> Headers | None:
    """Take headers that came from a peer; None if they are malformed. Never raises."""
    if not encoded:
        return NO_HEADERS
    if len(encoded) > HEADERS_BYTES_MAX:
        return None
    try:
        values = _decoder.decode(encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # the decoder lets through bad UTF-8 and deep nesting
        return None
    for name, value in values.items():
        if type(value) not in _TYPES or _NAME.fullmatch(name) is None:
            return None
    return Headers(encoded) if values else NO_HEADERS


def visible_headers(headers: Headers) -> Headers:
    """Return the headers that an application sees of those that came: all but Iris's own."""
    if RESERVED_HEADERS.encode() not in headers.encoded:
        return headers
    shown = {name: value for name, value in headers.items() if not name.startswith(RESERVED_HEADERS) or name in _PASSED_ON}
    return headers if len(shown) == len(headers) else Headers(_encoder.encode(shown)) if shown else NO_HEADERS


def cloud_of(headers: Headers) -> str:
    """Return the alias of the cloud that a message came from; empty if it was the own one."""
    if CLOUD_HEADER.encode() not in headers.encoded:
        return ""
    cloud = headers.get(CLOUD_HEADER)
    return cloud if isinstance(cloud, str) else ""


def origin_of(headers: Headers) -> tuple[str, int] | None:
    """Return who has sent a broadcast of another cloud, and its number among those of that; None if that is not said."""
    if ORIGIN_HEADER.encode() not in headers.encoded:
        return None
    origin, number = headers.get(ORIGIN_HEADER), headers.get(NUMBER_HEADER)
    return (origin, number) if isinstance(origin, str) and isinstance(number, int) else None


def _plain(name: str, value: object) -> HeaderValue:
    """Return a value as one of the types that travel: of an enumeration, for example, what its member stands for."""
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
