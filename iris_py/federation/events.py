"""The events of :class:`iris_py.federation.core.FederationCore`, for the gateway around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_overlay.events import DialRequested
from iris_py.federation.connections import HandshakeRefused

if TYPE_CHECKING:
    from iris_py.federation.bundle import Bundle, Incoming
    from iris_py.federation.channels import ChannelEnd, Channels
    from iris_py.federation.frames import Open
    from iris_py.federation.rules import ExportRule


@dataclass(slots=True)
class CloudChanged:
    """A neighbour can be reached now, or not any more."""

    alias: str
    is_usable: bool
    reason: str = ""
    """For people: why it cannot be reached, by line; empty if it can."""
    is_planned: bool = False
    """Whether its last gateways have said that they leave."""


@dataclass(slots=True)
class BundleSuspected:
    """Nothing is heard over a bundle, so it gets nothing new; or something is heard again."""

    bundle: Bundle
    silent_s: float
    """For how long nothing was heard, in seconds; 0 if it is heard again."""


@dataclass(slots=True)
class OffersChanged:
    """The catalogues of a neighbour have changed, or the gateways that they are of, or which of these can be reached."""

    alias: str


@dataclass(slots=True)
class BundleChanged:
    """A bundle is open, or has ended."""

    bundle: Bundle
    reason: str
    """Why it has ended; empty if it is open."""


@dataclass(slots=True)
class UseRefused:
    """A neighbour has asked for what it may not use, or for too much of it."""

    alias: str
    name: str
    use: str
    reason: str


@dataclass(slots=True)
class RequestsReceived:
    """Serve each of these, then call :meth:`FederationCore.reply`."""

    requests: list[Incoming]


@dataclass(slots=True)
class IncomingCancelled:
    """Nobody waits any more for the reply to a request of a neighbour."""

    request: Incoming


@dataclass(slots=True, eq=False)
class ChannelOffer:
    """A neighbour wants to open a channel.

    Call :meth:`Openings.accept` or :meth:`Openings.refuse`, once.
    """

    bundle: Bundle
    open: Open
    rule: ExportRule
    """The rule that allows it."""
    name: str
    """The name here; empty where the channel is for all that the rule covers."""
    deadline: float
    channels: Channels
    """Of the connection that it is to be on."""


@dataclass(slots=True)
class ChannelOpened:
    """A channel that this side asked for is open."""

    token: object
    end: ChannelEnd
    bundle: Bundle


@dataclass(slots=True)
class ChannelRefused:
    """A channel that this side asked for cannot be opened."""

    token: object
    outcome: bytes
    """As :mod:`iris_py.federation.calls` has it."""


@dataclass(slots=True)
class ChannelWithdrawn:
    """Nobody waits any more for the answer to a :class:`ChannelOffer`."""

    offer: ChannelOffer


@dataclass(slots=True)
class ChannelChanged:
    """Something changed in a channel that its user may wait for."""

    end: ChannelEnd


@dataclass(slots=True)
class WatchChanged:
    """A neighbour wants to know, or does not any more, how many members a cluster here has."""

    bundle: Bundle
    outside: str
    name: str
    is_on: bool


@dataclass(slots=True)
class CountTold:
    """A neighbour has said how many members one of its clusters has."""

    alias: str
    bundle: Bundle
    name: str
    members: int


FederationEvent: TypeAlias = (
    DialRequested
    | CloudChanged
    | OffersChanged
    | BundleChanged
    | BundleSuspected
    | HandshakeRefused
    | UseRefused
    | RequestsReceived
    | IncomingCancelled
    | ChannelOffer
    | ChannelOpened
    | ChannelRefused
    | ChannelWithdrawn
    | ChannelChanged
    | WatchChanged
    | CountTold
)
