"""The place of a member for exclusive requests, and the callers that wait for it (docs/design.md 6.15).

One request has the place at a time. It may have several callers: copies of one task ask for the same, and a second member
would end by a request that has ended the first. So a request waits at the member that its key chooses, and goes to no other one
because the place is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_py.patterns.request.repetitions import Caller
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

__all__ = ["CALLERS_MAX", "Asking", "Place"]

#: Callers that have the place of a member or wait for it. Too small: a request goes to another member, where a copy of it may
#: end a second one; too large: memory, at 200 bytes each. Each task of Spark has at most a window of requests (64) under way.
CALLERS_MAX: Final = 4096


class Asking:
    """A caller that asks for the place.

    Args:
        group: The cluster, as the caller asks it.
        caller: The caller, and the id of its request.
        key: The cluster and the identity of the request.
        until: How long the caller waits for the reply (seconds).
    """

    __slots__ = ("caller", "group", "key", "until")

    def __init__(self, group: Group, caller: Caller, key: bytes, until: float) -> None:
        self.group = group
        self.caller = caller
        self.key = key
        self.until = until


class Place:
    """The place of one node."""

    def __init__(self) -> None:
        self._having: dict[Caller, Asking] = {}  # all of one key
        self._waiting: dict[Caller, Asking] = {}  # in the order of their arrival

    def ask(self, asking: Asking, now: float) -> bool:
        """Let a caller wait for the place; returns False if too many wait. :meth:`grant` gives the place."""
        for caller in [caller for caller, having in self._having.items() if having.until <= now]:
            del self._having[caller]
        if len(self._having) + len(self._waiting) >= CALLERS_MAX:
            return False
        self._waiting[asking.caller] = asking
        return True

    def grant(self) -> list[Asking]:
        """Give the place to those that wait for the request which has it, or for the next one if it is free; returns them."""
        if not self._waiting:
            return []
        key = next(iter((self._having or self._waiting).values())).key
        granted = [asking for asking in self._waiting.values() if asking.key == key]
        for asking in granted:
            self._having[asking.caller] = self._waiting.pop(asking.caller)
        return granted

    def give_back(self, caller: Caller) -> bool:
        """Take the place from a caller, or let it wait no longer; returns whether it had the place or waited."""
        return (self._having.pop(caller, None) or self._waiting.pop(caller, None)) is not None

    def forget_peer(self, peer: Peer) -> None:
        """Remove all callers of a node, with or without the place."""
        for table in (self._having, self._waiting):
            for caller in [caller for caller in table if caller[0] is peer]:
                del table[caller]

    def turn_away(self, name: str) -> list[Asking]:
        """Remove the callers that wait for a cluster which this node has left; returns them."""
        turned_away = [asking for asking in self._waiting.values() if asking.group.name == name]
        for asking in turned_away:
            del self._waiting[asking.caller]
        return turned_away

    def owes(self, peer: Peer) -> bool:
        """Tell whether a node waits for the place."""
        return any(caller[0] is peer for caller in self._waiting)
