"""A ring for tests of the group layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.node_info import NodeInfo


class StubRing:
    """A ring that says what the test wants."""

    def __init__(self) -> None:
        self.is_mine = True
        self.foreign: set[bytes] = set()
        self.neighbours: list[NodeInfo] = []

    def is_root(self, key: bytes, /) -> bool:
        """Return whether the local node is the root: of everything, but for keys that are somebody else's."""
        return self.is_mine and key not in self.foreign

    def replicas(self, key: bytes, count: int, /) -> Sequence[NodeInfo]:
        """Return the neighbours."""
        return self.neighbours[:count]
