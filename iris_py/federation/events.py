"""The events of :class:`iris_py.federation.core.FederationCore`, for the surrounding gateway."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_overlay.events import DialRequested
from iris_py.federation.connections import HandshakeRefused

if TYPE_CHECKING:
    from iris_py.federation.bundle import Bundle, Incoming
    from iris_py.federation.channels import ChannelEnd, Channels
    from iris_py.federation.messages import Open
    from iris_py.federation.rules import ExportRule


@dataclass(slots=True)
class CloudChanged:
    """A neighbour (other cloud) has become reachable or unreachable."""

    alias: str
    is_usable: bool
    reason: str = ""
    """The faults of all cloud links, for people; empty if the neighbour is reachable."""
    is_planned: bool = False
    """Whether the neighbour's last gateways had announced their departure."""


@dataclass(slots=True)
class BundleSuspected:
    """A bundle (connections to one gateway) has fallen silent and gets no new work, or works again."""

    bundle: Bundle
    silent_s: float
    """The length of the silence in seconds; 0 if the peer is heard again."""


@dataclass(slots=True)
class OffersChanged:
    """A neighbour's catalogues (offered names), or the reachable gateways that offer them, have changed."""

    alias: str


@dataclass(slots=True)
class BundleChanged:
    """A bundle has opened or ended."""

    bundle: Bundle
    reason: str
    """The reason of the end; empty for an open bundle."""


@dataclass(slots=True)
class UseRefused:
    """A neighbour has asked for a use that is not allowed or over a limit."""

    alias: str
    name: str
    use: str
    reason: str


@dataclass(slots=True)
class RequestsReceived:
    """Requests to serve; answer every request with :meth:`FederationCore.reply`."""

    requests: list[Incoming]


@dataclass(slots=True)
class IncomingCancelled:
    """A neighbour has stopped waiting for the reply to a request."""

    request: Incoming


@dataclass(slots=True, eq=False)
class ChannelOffer:
    """A neighbour wants to open a channel.

    Call :meth:`Openings.accept` or :meth:`Openings.refuse`, once.
    """

    bundle: Bundle
    open: Open
    rule: ExportRule
    """The rule that allows the channel."""
    name: str
    """The local name; empty for a channel to all names of the rule."""
    deadline: float
    channels: Channels
    """The channel table of the connection."""


@dataclass(slots=True)
class ChannelOpened:
    """The peer has accepted a channel opened here."""

    token: object
    end: ChannelEnd
    bundle: Bundle


@dataclass(slots=True)
class ChannelRefused:
    """A channel requested here cannot be opened."""

    token: object
    outcome: bytes
    """The error, as an outcome of :mod:`iris_py.federation.calls`."""


@dataclass(slots=True)
class ChannelWithdrawn:
    """A neighbour has stopped waiting for the answer to a :class:`ChannelOffer`."""

    offer: ChannelOffer


@dataclass(slots=True)
class ChannelChanged:
    """A channel has changed (data, credit or end); its user may be waiting for the change."""

    end: ChannelEnd


@dataclass(slots=True)
class WatchChanged:
    """A neighbour starts or stops watching the member count of a local cluster."""

    bundle: Bundle
    outside: str
    name: str
    is_on: bool


@dataclass(slots=True)
class CountTold:
    """A neighbour has reported the member count of one of its clusters."""

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
