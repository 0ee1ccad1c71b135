"""Privacy between two clouds: the headers that cross, and pseudonyms for the nodes of the other cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from iris_py.errors import IrisError, MemberLost, RemoteError, RequestTimeout, TooManyMembersLost
from iris_py.wire.headers import (
    CLOUD_HEADER,
    EXCLUSIVE_HEADER,
    MEMBERS_LOST_HEADER,
    MEMBERS_WAIT_HEADER,
    NO_HEADERS,
    RESERVED_HEADERS,
    decode_headers,
    encode_headers,
    visible_headers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.wire.headers import Headers

Error = TypeVar("Error", bound=IrisError)

#: Headers of tracing (W3C Trace Context), which cross if the rule allows tracing.
TRACE_HEADERS = frozenset(("traceparent", "tracestate", "baggage"))


_TRACES = tuple(name.encode() for name in TRACE_HEADERS)
_RESERVED = RESERVED_HEADERS.encode()


def passed_headers(headers: Headers, trace: bool) -> bytes:
    """Return the headers of a publication that cross between clouds, encoded.

    Args:
        trace: Whether tracing headers cross.
    """
    encoded = headers.encoded
    if not encoded:
        return b""
    if RESERVED_HEADERS.encode() in encoded:
        headers = visible_headers(headers)
    if not trace and any(name in headers.encoded for name in _TRACES):
        headers = encode_headers(
            {name: value for name, value in headers.items() if name not in TRACE_HEADERS}, is_internal=True
        )
    return headers.encoded


def headers_for_members(encoded: bytes, alias: str, *, trace: bool) -> Headers:
    """Return the headers for a member: the caller's headers without reserved ones, and the alias of the caller's cloud.

    Args:
        alias: The cloud of the caller.
        trace: Whether the caller's trace continues here.
    """
    given = (decode_headers(encoded) or NO_HEADERS) if encoded else NO_HEADERS
    kept = {
        name: value
        for name, value in given.items()
        if not name.startswith(RESERVED_HEADERS) and (trace or name not in TRACE_HEADERS)
    }
    return encode_headers({**kept, CLOUD_HEADER: alias}, is_internal=True)


class Wishes(NamedTuple):
    """The options of a caller in another cloud, sent as headers that older versions ignore."""

    members_wait_s: float | None = None
    """How many seconds the request waits for a member; None if unset."""
    members_lost_max: int | None = None
    """How many members the request may lose; None if unset."""
    is_exclusive: bool = False
    """Whether the member executes no other exclusive request at the same time."""


def wishes_of(encoded: bytes) -> Wishes:
    """Read the options of a caller from the encoded headers; invalid values count as unset."""
    if _RESERVED not in encoded:
        return _NO_WISHES
    headers = decode_headers(encoded) or NO_HEADERS
    wait, lost, exclusive = (headers.get(name) for name in (MEMBERS_WAIT_HEADER, MEMBERS_LOST_HEADER, EXCLUSIVE_HEADER))
    return Wishes(
        wait if isinstance(wait, float) and wait >= 0.0 else None,
        lost if type(lost) is int and lost >= 1 else None,
        exclusive is True,
    )


_NO_WISHES: Final = Wishes()


def hide_members(error: Error, pseudonym_of: Callable[[str], str]) -> Error:
    """Replace the member ids in an error by pseudonyms for a neighbour.

    Args:
        pseudonym_of: Returns a node's pseudonym for the neighbour.
    """
    if isinstance(error, TooManyMembersLost):
        return type(error)(error.cluster, [pseudonym_of(member) for member in error.members])
    if isinstance(error, MemberLost | RemoteError | RequestTimeout) and error.member:
        error.member = pseudonym_of(error.member)
    return error
