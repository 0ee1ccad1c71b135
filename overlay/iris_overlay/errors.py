"""The errors of the overlay.

- OverlayError
    - MessageError: a peer sent an invalid message. Never leaves `Overlay`, which reports `ProtocolViolated`.
        - UnknownMessageError: a peer sent a message of a newer version, which is counted and ignored.
    - AddressError (also ValueError): the caller passed text that is no ``host:port``.
    - InfoError (also ValueError): the caller passed a NodeInfo, group id or attributes that every peer would reject.
    - TooManyGroupsError: the caller joined or watched more groups than the bound.
    - StateError: the call came at the wrong time, such as a second start or a join after leaving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class OverlayError(Exception):
    """The base of every error of this package. Pickles and copies keep text and attributes."""

    def __reduce__(self) -> tuple[Callable[..., OverlayError], tuple[type[OverlayError], tuple[Any, ...]], dict[str, Any]]:
        # Exception.__reduce__ calls the class with the text, but subclasses build the text from other arguments.
        return _new_error, (type(self), self.args), vars(self)


def _new_error(kind: type[OverlayError], arguments: tuple[Any, ...]) -> OverlayError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class MessageError(OverlayError):
    """A peer sent bytes that are no valid message."""


class UnknownMessageError(MessageError):
    """A peer sent a message of a kind unknown to this version."""


class AddressError(OverlayError, ValueError):
    """An address is not ``host:port``."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address!r} is not an address: write host:port, or [host]:port for IPv6")
        self.address = address


class InfoError(OverlayError, ValueError):
    """The caller passed a value that every peer would reject."""


class TooManyGroupsError(OverlayError):
    """The caller joined or watched more groups than the bound."""

    def __init__(self, limit: int, verb: str) -> None:
        super().__init__(f"a node {verb} at most {limit} groups: leave one first, or spread them over more nodes")
        self.limit = limit


class StateError(OverlayError):
    """A call came at the wrong time."""
