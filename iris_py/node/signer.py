"""The signatures and permits of a node, for the overlay (docs/design.md 2.7, 2.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_security import AuthenticationError, Purpose, is_permitted, verify_signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_overlay.ids import GroupId, NodeId
    from iris_py.peers.group import Group
    from iris_security import Identity


class OverlaySigner:
    """Signs and verifies for the overlay: implements :class:`iris_overlay.environment.Signer`.

    Args:
        groups: The groups in use, by id; the owner changes the mapping.
    """

    def __init__(self, identity: Identity, groups: Mapping[bytes, Group]) -> None:
        self._identity = identity
        self._groups = groups

    def sign(self, data: bytes) -> bytes:
        """Return this node's signature."""
        return self._identity.sign(Purpose.OVERLAY, data)

    def verify(self, node: NodeId, data: bytes, signature: bytes) -> bool:
        """Tell whether a signature is a node's."""
        try:
            return verify_signature(Purpose.OVERLAY, data, signature) == node
        except AuthenticationError:
            return False

    def permit(self, group: GroupId, data: bytes) -> bytes:
        """Return the permit (proof of the group's keys) for some data; empty if this node does not use the group."""
        used = self._groups.get(group)
        return b"" if used is None else used.keys.permit(data)

    def is_permitted(self, group: GroupId, data: bytes, permit: bytes) -> bool:
        """Tell whether a permit was made with the keys of a group."""
        return is_permitted(group, data, permit)
