"""The errors of the overlay.

- OverlayError
    - MessageError: a peer sent bytes that are no message. Never leaves `Overlay`: it becomes `ProtocolViolated`.
        - UnknownMessageError: it sent a message of a newer version, which is counted and ignored.
    - AddressError (also ValueError): you passed text that is no ``host:port``.
    - InfoError (also ValueError): you passed a NodeInfo, group id or attributes that no peer would accept.
    - TooManyGroupsError: you joined, or watch, more groups than the bound.
    - StateError: you called it at the wrong time: twice started, or joined after leaving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class OverlayError(Exception):
    """Base of every error of this package. A pickle or a copy has the same text and attributes."""

    def __reduce__(self) -> tuple[Callable[..., OverlayError], tuple[type[OverlayError], tuple[Any, ...]], dict[str, Any]]:
        # Exception.__reduce__ calls the class with the text, but subclasses build the text from other arguments.
        return _new_error, (type(self), self.args), vars(self)


def _new_error(kind: type[OverlayError], arguments: tuple[Any, ...]) -> OverlayError:
    error = kind.__new__(kind)
    error.args = arguments
    return error


class MessageError(OverlayError):
    """Report bytes from a peer that are no valid message."""


class UnknownMessageError(MessageError):
    """Report a message of a kind that this version does not know."""


class AddressError(OverlayError, ValueError):
    """Report an address that is not ``host:port``."""

    def __init__(self, address: str) -> None:
        super().__init__(f"{address!r} is no address: write host:port, or [host]:port for IPv6")
        self.address = address


class InfoError(OverlayError, ValueError):
    """Report a value of the caller that no peer would accept."""


class TooManyGroupsError(OverlayError):
    """Report a group beyond the bound."""

    def __init__(self, limit: int, verb: str) -> None:
        super().__init__(f"a node {verb} at most {limit} groups: leave one first, or spread them over more nodes")
        self.limit = limit


class StateError(OverlayError):
    """Report a call at the wrong time."""
