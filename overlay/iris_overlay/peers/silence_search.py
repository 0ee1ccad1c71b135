"""The search after a node fell silent: it may be the first of many, and some of them would not be probed for a minute.

A switch breaks, a network is cut: then the other leaves, the roots of own groups and the table are asked at once, and the views
of watchers are right within seconds. But where nodes come and go all the time, nearly every death is one alone, and to ask
everybody at each of them is most of what a detector sends. So a search that found nobody else is not repeated for a while;
until then a death is followed by a few questions, and only when those find another one, or several fall silent together, by a
search.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId

#: Nodes that one search asks: leaf set, some roots, table. Too small: after a cut, watchers believe old roots for longer. Too
#: large: each search costs that many pings.
ASKED_MAX: Final = 96

#: Who falls silent within this time after another one is taken for a part of the same event. Too small: a cut that is noticed
#: piece by piece looks like single deaths. Too large: under churn, single deaths look like a cut.
TOGETHER_S: Final = 5.0

#: So many that fall silent together are a cut, whatever was found before. Too small: in a network whose nodes stay for five
#: minutes, chance does it three times as often. Too large: a cut hides behind an earlier death for longer.
SEVERAL: Final = 3

#: How long a search that found nobody else stands for the next ones. Too small: churn costs a search per node and death. Too
#: large: a cut soon after a death is noticed by samples alone, a second later.
FRUITLESS_S: Final = 300.0

#: Leaves that are asked in the meantime. Too small: a cut passes unnoticed half of the time. Too large: traffic per death.
SAMPLE: Final = 2


class SilenceSearch:
    """Decide whom to ask after a silent death."""

    __slots__ = ("_again_at", "_asked_at", "_rng", "_sample", "_silent_at")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._silent_at: deque[float] = deque(maxlen=SEVERAL)
        self._again_at = float("-inf")
        self._sample: frozenset[NodeId] = frozenset()
        self._asked_at = float("-inf")

    def whom(
        self, silent: NodeId, leaves: Sequence[NodeId], roots: Iterable[NodeId], table: Iterable[NodeId], now: float
    ) -> list[NodeId]:
        """Return whom to ask at once.

        Args:
            silent: Who just fell silent.
            leaves: The leaf set, without it.
            roots: The roots of groups that this node takes part in or watches.
            table: All others that the ring knows.
            now: The time.
        """
        self._silent_at.append(now)
        is_found = now - self._asked_at < TOGETHER_S and silent in self._sample
        if len(self._silent_at) == SEVERAL and now - self._silent_at[0] < TOGETHER_S:
            # The table too: it is told to others, who would probe the dead in it one after the other.
            asked = list(dict.fromkeys(chain(leaves, roots, table)))[:ASKED_MAX]
            self._silent_at.clear()
            self._again_at = now  # This was no single death, and the next one may not be, either.
        elif is_found or now >= self._again_at:
            asked = list(dict.fromkeys(chain(leaves, roots)))[:ASKED_MAX]
            self._again_at = now + FRUITLESS_S
        elif leaves:
            asked = [leaves[self._rng.randrange(len(leaves))] for _ in range(SAMPLE)]
            self._sample, self._asked_at = frozenset(asked), now
        else:
            asked = []
        return asked
