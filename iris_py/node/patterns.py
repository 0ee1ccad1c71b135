"""The patterns of a node (requests, surveys, topics, tunnels), as one value for parts that serve several patterns.

Topics and tunnels are loaded and made at their first use: a process that only asks or serves needs neither the code nor the
tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from iris_py.patterns.broadcast import Broadcaster
    from iris_py.patterns.request.losses import Losses
    from iris_py.patterns.request.requester import Requester
    from iris_py.patterns.request.service import RequestService
    from iris_py.patterns.survey import Surveyor
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer


class Patterns:
    """The patterns of a node.

    Args:
        make_pubsub: Makes the publications and subscriptions at their first use.
        make_tunnels: Makes the tunnels at their first use.

    Attributes:
        requester: Its requests and tunnel openings.
        surveyor: Its surveys.
        service: Its registrations, which answer requests and surveys.
        losses: The members lost with requests.
        broadcaster: Its broadcasts.
        pubsub: Its publications and subscriptions; None before their first use.
        tunnels: Its tunnels; None before the first one is requested, here or by a peer.
        on_tunnels: Called once, at the first use of tunnels.
    """

    def __init__(
        self,
        requester: Requester,
        surveyor: Surveyor,
        service: RequestService,
        losses: Losses,
        broadcaster: Broadcaster,
        make_pubsub: Callable[[], PubSub],
        make_tunnels: Callable[[], Tunnels],
    ) -> None:
        self.requester = requester
        self.surveyor = surveyor
        self.service = service
        self.losses = losses
        self.broadcaster = broadcaster
        self.pubsub: PubSub | None = None
        self.tunnels: Tunnels | None = None
        self.on_tunnels: Callable[[], object] = int
        self._make_pubsub = make_pubsub
        self._make_tunnels = make_tunnels

    def use_pubsub(self) -> PubSub:
        """Return the publications and subscriptions; make them at the first use."""
        if self.pubsub is None:
            self.pubsub = self._make_pubsub()
        return self.pubsub

    def use_tunnels(self) -> Tunnels:
        """Return the tunnels; make them at the first use."""
        if self.tunnels is None:
            self.tunnels = self._make_tunnels()
            self.on_tunnels()
        return self.tunnels

    def view_changed(self, now: float) -> None:
        """Try waiting requests and surveys again after new members or a drained link."""
        self.requester.view_changed(now)
        self.surveyor.view_changed(now)

    def peer_released(self, peer: Peer, now: float, unsent: Container[int]) -> None:
        """Send unanswered requests and surveys again after a peer closed its link as idle, surely without starting them."""
        self.requester.peer_released(peer, now, unsent)
        self.surveyor.peer_released(peer, now, unsent)
        if self.pubsub is not None:
            self.pubsub.link_ended(peer, now)

    def peer_lost(
        self, peer: Peer, now: float, unsent: Container[int], *, is_broken: bool = False, is_silent: bool = False
    ) -> None:
        """Handle the loss of a peer, as :meth:`Requester.peer_lost` does."""
        self.requester.peer_lost(peer, now, unsent, is_broken=is_broken, is_silent=is_silent)
        self.surveyor.peer_lost(peer, unsent)
        self.service.peer_lost(peer, now)
        if self.pubsub is not None:
            self.pubsub.peer_lost(peer, now)

    def groups_pending(self) -> set[Group]:
        """Return the groups with a pending request or survey, or a tunnel."""
        pending = self.requester.groups_pending() | self.surveyor.groups_pending()
        return pending if self.tunnels is None else pending | self.tunnels.groups()
