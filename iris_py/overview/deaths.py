"""For `iris monitor`: the events that many nodes record about a dead node become one line.

When a node dies, every peer records a suspicion, a lost link, a death, and lost members of clusters. Events about a node are
held for some seconds, because failure detectors differ in speed. If a death is among them, they become one line; otherwise all
are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_py.overview.event_stream import DeathLine, EventLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.observe.node_name import NodeName
    from iris_py.overview.event_stream import GapLine

__all__ = ["FOLDED", "DeathFolder"]

#: The kinds of events that belong to a death.
FOLDED: Final = frozenset(("suspected", "link_lost", "link_closed", "left", "died"))
#: How long the events about a node are held, because a death may follow (seconds). Too small: a node with a slower failure
#: detector adds lines of its own; too large: all events about a node are shown late.
HOLD_S: Final = 5.0
#: How long after a death further events about the node are dropped (seconds). Too small: late witnesses add lines; too large: a
#: node that was falsely reported dead and dies again is shown only once.
LATE_S: Final = 30.0
#: Maximum number of nodes with held events, and of remembered deaths. Beyond it the oldest is shown at once. Too small: the
#: failure of half of a large network shows thousands of lines; too large: memory.
NODES_MAX: Final = 4096


@dataclass(slots=True)
class _HeldEvents:
    """The held events about one node."""

    since_unix_s: float
    lines: list[EventLine] = field(default_factory=list)


class DeathFolder:
    """Folds the events of a dead node into one line.

    Args:
        watched: Returns the number of watched nodes.
        find: Returns the name of a node by its id.
    """

    def __init__(self, watched: Callable[[], int], find: Callable[[str], NodeName]) -> None:
        self._watched = watched
        self._find = find
        self._held: dict[str, _HeldEvents] = {}  # by the node concerned
        self._told: dict[str, float] = {}  # times of shown deaths, by node

    def take(self, lines: Iterable[EventLine | GapLine], now_unix_s: float) -> list[EventLine | GapLine | DeathLine]:
        """Add events in order; return the events to show now, with a single line for each dead node."""
        told: list[EventLine | GapLine | DeathLine] = []
        for line in lines:
            if not isinstance(line, EventLine) or not line.node:
                told.append(line)
            elif line.event not in FOLDED:
                self._told.pop(line.node, None)  # the node is alive, so later events are new
                told += self._release(line.node)
                told.append(line)
            elif line.time.timestamp() - self._told.get(line.node, float("-inf")) > LATE_S:
                self._hold(line, now_unix_s, told)
        for node, held in list(self._held.items()):
            if now_unix_s - held.since_unix_s >= HOLD_S:
                told += self._release(node)
        return told

    def end(self) -> list[EventLine | GapLine | DeathLine]:
        """Return all held events, with a single line for each dead node."""
        told: list[EventLine | GapLine | DeathLine] = []
        for node in list(self._held):
            told += self._release(node)
        return told

    def _hold(self, line: EventLine, now_unix_s: float, told: list[EventLine | GapLine | DeathLine]) -> None:
        if line.node not in self._held and len(self._held) >= NODES_MAX:
            told += self._release(next(iter(self._held)))
        self._held.setdefault(line.node, _HeldEvents(now_unix_s)).lines.append(line)

    def _release(self, node: str) -> list[EventLine | DeathLine]:
        held = self._held.pop(node, None)
        if held is None:
            return []
        died = [line for line in held.lines if line.event == "died"]
        if not died:
            return list(held.lines)
        self._told[node] = max(line.time.timestamp() for line in died)
        if len(self._told) > NODES_MAX:
            del self._told[next(iter(self._told))]
        return [self._fold(node, died, held.lines)]

    def _fold(self, node: str, died: list[EventLine], lines: list[EventLine]) -> DeathLine:
        known = self._find(node)

        def first(field_: str) -> str:
            return next((text for line in lines if (text := str(getattr(line, field_)))), "")

        return DeathLine(
            time=min(line.time for line in lines),
            node=node,
            node_name=first("node_name") or known.name,
            node_address=first("node_address") or known.address,
            node_zone=first("node_zone") or known.zone,
            said_by=len({line.id for line in died}),
            watched=max(self._watched(), len({line.id for line in lines})),
            links_lost=len({line.id for line in lines if line.event in ("link_lost", "link_closed")}),
            clusters=sorted({line.name for line in lines if line.event == "left" and line.name}),
            detail=next((line.detail for line in died if line.detail), ""),
        )
