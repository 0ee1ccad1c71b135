"""The veil between two clouds: what a member sees of a caller in another one, and what is shown there of a member."""

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

#: Headers of tracing (W3C Trace Context), which pass where the rule says so.
TRACE_HEADERS = frozenset(("traceparent", "tracestate", "baggage"))


_TRACES = tuple(name.encode() for name in TRACE_HEADERS)
_RESERVED = RESERVED_HEADERS.encode()


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


class Wishes(NamedTuple):
    """The wishes of a caller in another cloud, in headers that older versions ignore."""

    members_wait_s: float | None = None
    """For how many seconds the request waits for a member; None if the caller does not say."""
    members_lost_max: int | None = None
    """How many members it may lose; None if the caller does not say."""
    is_exclusive: bool = False
    """Whether its member is to execute no other exclusive request meanwhile."""


def wishes_of(encoded: bytes) -> Wishes:
    """Return the wishes of a caller; what is none counts as not said.

    Args:
        encoded: The headers of the request.
    """
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
