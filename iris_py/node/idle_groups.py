"""Groups that nothing uses are forgotten: the longest unused one where there are too many, and those of retired generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.request.requester import Requester
    from iris_py.patterns.request.service import Service
    from iris_py.patterns.survey import Surveyor
    from iris_py.patterns.topic.pubsub import PubSub
    from iris_py.patterns.tunnel.table import Tunnels
    from iris_py.peers.group import Group, Groups
    from iris_py.peers.outbound import Outbound

#: A group whose generation is not accepted any more is kept for so long (seconds), for the overlay signs with its keys that the
#: node is no member any more, and tells it again if nobody confirms. Too small: it is shown as a member until that expires; too
#: large: the keys of a retired secret stay in memory.
LEFT_LINGER_S: Final = 5.0


class IdleGroups:
    """Finds the groups of one node that nothing uses, and forgets them.

    Args:
        groups: The groups in use.
        overlay: Watches them.
        outbound: May hold broadcasts with numbers in them.
        pubsub: Whose groups of topics are among them.
        requester: Asks in them.
        surveyor: Asks in them.
        service: Serves in them.
        tunnels: Have groups, too.
    """

    def __init__(
        self,
        groups: Groups,
        overlay: Overlay,
        outbound: Outbound,
        pubsub: PubSub,
        requester: Requester,
        surveyor: Surveyor,
        service: Service,
        tunnels: Tunnels,
    ) -> None:
        self._groups = groups
        self._overlay = overlay
        self._outbound = outbound
        self._pubsub = pubsub
        self._requester = requester
        self._surveyor = surveyor
        self._service = service
        self._tunnels = tunnels
        self._left: dict[Group, float] = {}  # when they may be forgotten

    def forget_one(self, now: float) -> None:
        """Forget the group that was not used for the longest time, if one is idle."""
        pending = self._pending() | self._pubsub.groups_joined()
        oldest = self._groups.oldest(lambda group: not self._service.serves(group) and group not in pending)
        if oldest is not None:
            self._forget(oldest, now)

    def leave(self, groups: list[Group], now: float) -> None:
        """Forget groups of generations that are not accepted any more, when no answer is due in them any more.

        Requests that nobody has answered there go on in the primary group of their cluster.
        """
        self._requester.rekey(self._groups.find, now)
        for group in groups:
            self._left[group] = now + LEFT_LINGER_S

    def handle_timeout(self, now: float) -> None:
        """Do what is due; harmless if early."""
        if not self._left:
            return
        pending = self._pending()
        for group, until in list(self._left.items()):
            is_there = self._groups.by_id.get(group.id) is group and group.is_left  # it may have come back
            if not is_there or (now >= until and group not in pending):
                del self._left[group]
                if is_there:
                    self._forget(group, now)

    def _pending(self) -> set[Group]:
        return self._requester.groups_pending() | self._surveyor.groups_pending() | self._tunnels.groups()

    def _forget(self, group: Group, now: float) -> None:
        self._outbound.seal_all_broadcasts(now)  # publications to others may have their numbers in it, too
        self._groups.forget(group)
        self._pubsub.forget(group)
        self._overlay.unwatch_group(group.id, now)
