"""Questions for the root of a key (the nearest node), used to walk the ring, sample it and trace a route.

A question is routed like any message, and every hop adds its time. The root answers along the path of the question, so no dial
is needed. A question leaves no state.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.events import RootLocated
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.messages import FindRoot, RootFound
from iris_overlay.ids import GroupId
from iris_overlay.ring.messages import LEAVES_TOLD_MAX

if TYPE_CHECKING:
    from iris_overlay.events import Counters
    from iris_overlay.groups.config import GroupConfig
    from iris_overlay.groups.io import GroupRing, Outbox, Path
    from iris_overlay.groups.root_store import Roots
    from iris_overlay.node_info import NodeInfo

#: The largest number of answers of a root within a second; more questions are dropped and counted. Too small: several
#: simultaneous observers of a network hinder each other. Too large: a flood of questions costs the root a signature each, 0.1
#: ms.
ANSWERS_PER_S_MAX: Final = 100


class RootQueries:
    """Ask the roots of keys for their identity, and answer as a root.

    Attributes:
        held: The time that the message being handled spent in each node on its way (microseconds).
        events: The received answers.
    """

    def __init__(
        self, local: NodeInfo, config: GroupConfig, ring: GroupRing, roots: Roots, outbox: Outbox, counters: Counters
    ) -> None:
        self.held: tuple[int, ...] = ()
        self.events: list[RootLocated] = []
        self._local = local
        self._config = config
        self._ring = ring
        self._roots = roots
        self._outbox = outbox
        self._counters = counters
        self._second_began = -inf
        self._answered = 0  # within that second

    def ask(self, key: bytes, number: int) -> None:
        """Ask the root of a key for its identity; the answer repeats the number."""
        self._outbox.route(GroupId(key), FindRoot(GroupId(key), number))

    def answer(self, message: FindRoot, path: Path | None, now: float) -> None:
        """Answer a question as the root of its key; ignore a question that was not routed here."""
        if path is None:
            return  # it was not routed here
        held, self.held = self.held, ()
        if now - self._second_began >= 1.0:
            self._second_began, self._answered = now, 0
        if self._answered >= ANSWERS_PER_S_MAX:
            self._counters.questions_refused += 1
            return
        self._answered += 1
        counts: tuple[int, ...] = ()
        root = self._roots.roots.get(message.key)
        if root is not None and root.successor is None and self._config.tells_counts:
            counts = len(root.directory.members), len(root.followers.members[FollowerKind.WATCHER])
        leaves = list(self._ring.replicas(self._local.id, LEAVES_TOLD_MAX))
        found = RootFound(self._local, message.key, message.number, path, held, leaves, counts)
        self._outbox.answer(path, found)

    def found(self, message: RootFound) -> None:
        """Report an answer as an event; the owner of the overlay checks whether it asked."""
        self.events.append(
            RootLocated(
                message.number,
                message.root,
                message.key,
                message.path,
                message.held,
                tuple(message.leaves),
                *(message.counts if len(message.counts) == 2 else (None, None)),
            )
        )
