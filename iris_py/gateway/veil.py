"""The veil between two clouds: what a member sees of a caller in another one, and what is shown there of a member."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from iris_py.errors import IrisError, MemberLost, RemoteError, RequestTimeout, TooManyMembersLost
from iris_py.wire.headers import (
    CLOUD_HEADER,
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

#: Headers of tracing (W3C Trace Context), which pass where the rule says so.
TRACE_HEADERS = frozenset(("traceparent", "tracestate", "baggage"))


_TRACES = tuple(name.encode() for name in TRACE_HEADERS)
_MEMBERS_WAIT = MEMBERS_WAIT_HEADER.encode()


def passed_headers(headers: Headers, trace: bool) -> bytes:
    """Return the headers of a publication that pass to another cloud, or come from one, encoded.

    Args:
        headers: All of them.
        trace: Whether those of tracing pass.
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
    """Return the headers that a member gets: those of the caller, without what is ours alone, and where it is from.

    Args:
        encoded: Those of the caller.
        alias: The cloud of the caller.
        trace: Whether its trace goes on here.
    """
    given = (decode_headers(encoded) or NO_HEADERS) if encoded else NO_HEADERS
    kept = {
        name: value
        for name, value in given.items()
        if not name.startswith(RESERVED_HEADERS) and (trace or name not in TRACE_HEADERS)
    }
    return encode_headers({**kept, CLOUD_HEADER: alias}, is_internal=True)


def members_wait_of(encoded: bytes) -> float | None:
    """Return for how many seconds a request waits for a member, as its caller says; None if it does not say.

    Args:
        encoded: The headers of the request.
    """
    if _MEMBERS_WAIT not in encoded:
        return None
    value = (decode_headers(encoded) or NO_HEADERS).get(MEMBERS_WAIT_HEADER)
    return value if isinstance(value, float) and value >= 0.0 else None


def hide_members(error: Error, pseudonym_of: Callable[[str], str]) -> Error:
    """Put pseudonyms in place of the ids of members in an error, for a neighbour.

    Args:
        error: The error.
        pseudonym_of: Returns what the neighbour calls a node.
    """
    if isinstance(error, TooManyMembersLost):
        return type(error)(error.cluster, [pseudonym_of(member) for member in error.members])
    if isinstance(error, MemberLost | RemoteError | RequestTimeout) and error.member:
        error.member = pseudonym_of(error.member)
    return error
