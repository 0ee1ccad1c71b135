"""Another root of the same group: its version and watchers, and the rate at which the local root answers them.

Two nodes may both be roots of a group, while one does not know the other as a neighbour: their rings merge, or the network
between them is broken. Each hears of the other by copies, and begins an epoch above the other's version so that all followers
accept its messages. The other hears of that by the next copy, and does the same. So answers to a rival have a rate. News of
members needs none: of two entries for a member the later is right, so both roots have the same members after a few copies.

Method: the virtual scheduling algorithm of ITU-T I.371, a token bucket without a count of tokens.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from iris_overlay.groups.messages import WATCHERS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_overlay.ids import NodeId
    from iris_overlay.node_info import NodeInfo

#: The time between answers to a rival in the long run. Too small: two roots send everything to all followers again and again,
#: also to watchers that have ended their watch. Too large: watchers of the other root refuse the views of this one for that
#: time, and ask for them.
ANSWER_S: Final = 1.0

#: The number of answers without a wait. Too small: the copies of several neighbours, which come one after another when two
#: rings merge, wait for each other. Too large: two roots begin with that number of epochs, a round trip after one another.
ANSWERS_MAX: Final = 8


class Rival:
    """The other roots of a group, as far as the local root has not answered them.

    Attributes:
        version: The highest version that they told.
        watchers: Their watchers, which may be unknown here; at most WATCHERS_MAX.
        ready_at: The time of the next answer.
    """

    __slots__ = ("ready_at", "version", "watchers")

    def __init__(self) -> None:
        self.version = 0
        self.watchers: dict[NodeId, NodeInfo] = {}
        self.ready_at = -inf

    def hear(self, version: int, watchers: Iterable[NodeInfo]) -> None:
        """Note the version and watchers in a copy of another root."""
        self.version = max(self.version, version)
        for info in watchers:
            if len(self.watchers) < WATCHERS_MAX:
                self.watchers[info.id] = info

    def may_answer(self, now: float) -> bool:
        """Count an answer. Return False if the last ones are too recent."""
        if now < self.ready_at:
            return False
        self.ready_at = max(self.ready_at, now - (ANSWERS_MAX - 1) * ANSWER_S) + ANSWER_S
        return True
