"""The search after a node fell silent, because it may be the first of many, some of which would not be probed for a minute.

After a broken switch or a cut network, the node probes the other leaves, the roots of its groups and the table at once, so the
views of watchers are right within seconds. But where nodes come and go all the time, nearly every death is a single one, and a
search after each would be most of a detector's traffic. So a fruitless search is not repeated for a while. Until then a death
causes only a few probes. A full search follows if these find another death, or several nodes fall silent together.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.environment import Rng
    from iris_overlay.ids import NodeId

#: The largest number of nodes probed by one search: leaf set, some roots, table. Too small: after a cut, watchers trust dead
#: roots for longer. Too large: each search costs that number of pings.
ASKED_MAX: Final = 96

#: Nodes that fall silent within this time count as one event. Too small: a cut noticed bit by bit looks like single deaths. Too
#: large: under churn, single deaths look like a cut.
TOGETHER_S: Final = 5.0

#: The number of nodes silent together that always means a cut. Too small: in a network of nodes that live for five minutes,
#: chance reaches it three times as often. Too large: a cut hides behind an earlier death for longer.
SEVERAL: Final = 3

#: The time after a fruitless search during which a single death causes no full search. Too small: churn costs a search per node
#: and death. Too large: a cut soon after a death is noticed only by samples, a second later.
FRUITLESS_S: Final = 300.0

#: The number of leaves probed per death after a fruitless search, until the next search is due. Too small: a cut passes
#: unnoticed half of the time. Too large: traffic per death.
SAMPLE: Final = 2


class SilenceSearch:
    """Choose the nodes to probe after a node fell silent: it may be the first of many."""

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
        """Return the nodes to probe at once after another node fell silent.

        Args:
            silent: The node that just fell silent.
            leaves: The leaf set, without the silent node.
            roots: The roots of groups that this node joined or watches.
            table: All other nodes known to the ring.
            now: The time.
        """
        self._silent_at.append(now)
        is_found = now - self._asked_at < TOGETHER_S and silent in self._sample
        if len(self._silent_at) == SEVERAL and now - self._silent_at[0] < TOGETHER_S:
            # The table too: this node passes its entries on, and others would find the dead ones only one by one.
            asked = list(dict.fromkeys(chain(leaves, roots, table)))[:ASKED_MAX]
            self._silent_at.clear()
            self._again_at = now  # This was no single death, and the next one may not be single either.
        elif is_found or now >= self._again_at:
            asked = list(dict.fromkeys(chain(leaves, roots)))[:ASKED_MAX]
            self._again_at = now + FRUITLESS_S
        elif leaves:
            asked = [leaves[self._rng.randrange(len(leaves))] for _ in range(SAMPLE)]
            self._sample, self._asked_at = frozenset(asked), now
        else:
            asked = []
        return asked
