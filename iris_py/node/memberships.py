"""The clusters that a node serves: it is a member in every generation of their secrets (docs/design.md 2.9).

Nodes with another primary generation ask in another group. So a member is in the groups of all generations that it accepts, and
what comes in any of them goes to the same registrations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_overlay.errors import OverlayError
from iris_py.errors import ConfigurationError
from iris_py.node.refusals import refusals
from iris_py.peers.member import membership_attributes
from iris_py.wire.facts import named

if TYPE_CHECKING:
    from iris_overlay.ids import GroupId, NodeId
    from iris_overlay.overlay import Overlay
    from iris_py.patterns.request.registration import Registration
    from iris_py.patterns.request.service import Service
    from iris_py.peers.group import Group, Groups


class Memberships:
    """The clusters that one node serves.

    Args:
        local: The node.
        groups: The groups in use.
        overlay: Told of memberships.
        service: Serves.
        name: What the node calls itself; empty to tell nobody.
    """

    def __init__(self, local: NodeId, groups: Groups, overlay: Overlay, service: Service, name: str = "") -> None:
        self._local = local
        self._groups = groups
        self._overlay = overlay
        self._service = service
        self._facts = named(name)
        self._joined: set[GroupId] = set()

    def join(self, registration: Registration, now: float) -> bool:
        """Take part in a cluster; returns whether ``GroupJoined`` will follow (not for a further registration of the same).

        A registration that takes part already says anew with which rank.

        Raises:
            ConfigurationError: Too many groups, the node is leaving, or it takes part already, with another weight or rank.
        """
        group = registration.group
        standing = self._service.membership_of(group)
        groups = [group, *self._groups.accepted(group)]
        if standing is registration:
            self._joined.difference_update(each.id for each in groups)
            self._join(groups, registration, now)
            return True
        if standing is None:
            self._join(groups, registration, now)
        elif standing.weight != registration.weight:
            raise ConfigurationError(
                f"this node takes part in {group.name!r} with weight={standing.weight:g} already, and has one weight in a "
                "cluster. Use the same for all its handlers."
            )
        elif (standing.rank, standing.takes_overflow) != (registration.rank, registration.takes_overflow):
            raise ConfigurationError(
                f"this node takes part in {group.name!r} with rank {standing.rank} already, and has one rank in a cluster: "
                "it is a member or stands in for members, not both. Serve the name on another node."
            )
        return self._service.register(registration)

    def leave(self, registration: Registration, now: float) -> bool:
        """Begin to leave; returns whether ``GroupLeft`` will follow, before which requests are still served."""
        if not self._service.leave(registration):
            return False
        for group in (registration.group, *self._groups.accepted(registration.group)):
            self._leave(group, now)
        return True

    def rekey(self, left: list[Group], now: float) -> None:
        """Serve under other secrets: be in the group of each of their generations, and in no other one.

        Args:
            left: The groups of generations that are not accepted any more.
            now: The time.

        Raises:
            ConfigurationError: Too many groups, or the node is leaving.
        """
        for group in self._groups.clusters():
            standing = self._service.membership_of(group)
            if standing is not None:
                self._join([group, *self._groups.accepted(group)], standing, now)
        for group in left:
            if group.id in self._joined:
                self._leave(group, now)

    def _join(self, groups: list[Group], registration: Registration, now: float) -> None:
        """Become a member of those groups where the node is none: of all of them or, if the overlay refuses, of none."""
        joined = []
        with refusals:
            try:
                for group in groups:
                    if group.id not in self._joined:
                        attributes = membership_attributes(
                            group.keys,
                            self._local,
                            registration.weight,
                            registration.rank,
                            takes_overflow=registration.takes_overflow,
                            facts=self._facts,
                        )
                        self._overlay.join_group(group.id, attributes, now)
                        self._joined.add(group.id)
                        joined.append(group)
            except OverlayError:
                for group in joined:
                    self._leave(group, now)
                raise

    def _leave(self, group: Group, now: float) -> None:
        self._joined.discard(group.id)
        self._overlay.leave_group(group.id, now)
