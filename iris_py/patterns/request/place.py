"""The place of a member for exclusive requests, and the waiting callers (docs/design.md 6.15).

A single request has the place at a time. It may have several callers: copies of a task share the request, and a request that
killed a member would kill a second member too. So a request waits at the member chosen by the key, and does not go elsewhere
because the place is taken.

Callers are trusted like members of the cluster, but a crashing or lying caller must not block the place. So a request has the
place for a bounded time, peers take turns, and the peer with the most waiting callers is evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_py.patterns.request.deduplication import Caller
    from iris_py.peers.group import Group
    from iris_py.peers.peer import Peer

__all__ = ["CALLERS_MAX", "HELD_S_MAX", "HOLDERS_MAX", "Asking", "Place"]

#: Callers that have the place of a member or wait for it. Too small: a request goes to another member, where its copy may kill
#: a second one; too large: memory, at 200 bytes each. Each Spark task has at most a window of requests (64) in flight.
CALLERS_MAX: Final = 4096
#: Callers of one request that have the place together; further callers wait. Too small: of many copies of a task some wait for
#: the others; too large: fewer callers of other requests can wait. Equals the bound on callers of one execution
#: (`deduplication`).
HOLDERS_MAX: Final = 256
#: Longest time for which a request has the place, for any number of callers (seconds). Too small: a longer request overlaps
#: with the next one, and if the member ends, the cause is ambiguous; too large: a caller that neither uses nor frees the place
#: blocks the others that long.
HELD_S_MAX: Final = 3600.0


class Asking:
    """A caller that asks for a node's place for exclusive requests.

    Args:
        group: The cluster, in the caller's generation.
        caller: The caller, and the id of its request.
        key: The cluster and the identity of the request.
        until: Time at which the caller stops waiting for the reply (seconds).
    """

    __slots__ = ("caller", "group", "key", "until")

    def __init__(self, group: Group, caller: Caller, key: bytes, until: float) -> None:
        self.group = group
        self.caller = caller
        self.key = key
        self.until = until


class Place:
    """The place of a node for exclusive requests, and the callers that have the place or wait for it."""

    def __init__(self) -> None:
        self._having: dict[Caller, Asking] = {}  # all of the same key
        self._held_until = 0.0  # time at which the request with the place loses it
        self._had: Peer | None = None  # the peer of the last turn
        # Peers in the order of their turns, each with its callers in the order of arrival. Peers without callers are absent.
        self._waiting: dict[Peer, dict[Caller, Asking]] = {}
        self._deadlines: DeadlineTable[Caller] = DeadlineTable()  # of all callers

    def deadline(self) -> float | None:
        """Return the earliest deadline of a caller, or None."""
        return self._deadlines.deadline()

    def ask(self, asking: Asking, now: float) -> Asking | None:
        """Let a caller wait for the place; :meth:`grant` gives it.

        Returns:
            The caller that must ask another member because too many wait: the newest of the peer with the most waiting callers,
            possibly this caller. None if there is room.
        """
        self._expire(now)
        self.give_back(asking.caller)  # honest callers never repeat an id; the last one counts
        peer = asking.caller[0]
        self._waiting.setdefault(peer, {})[asking.caller] = asking
        self._deadlines.set(asking.caller, asking.until)
        if len(self._deadlines) <= CALLERS_MAX:
            return None
        # On a tie the asking peer is evicted.
        largest = max(self._waiting, key=lambda each: (len(self._waiting[each]), each is peer))
        *_older, newest = self._waiting[largest].values()
        self.give_back(newest.caller)
        return newest

    def grant(self, now: float) -> list[Asking]:
        """Give the place to more callers of the current request, or if free to callers of the next; return these callers."""
        self._expire(now)
        if not self._waiting:
            return []
        if self._having:
            key = next(iter(self._having.values())).key
        else:
            if self._had in self._waiting:  # other peers go first, even those that came later
                self._waiting[self._had] = self._waiting.pop(self._had)
            self._had, callers = next(iter(self._waiting.items()))
            key = next(iter(callers.values())).key
            self._held_until = now + HELD_S_MAX
        waiting = [asking for each in self._waiting.values() for asking in each.values() if asking.key == key]
        granted = waiting[: HOLDERS_MAX - len(self._having)]
        for asking in granted:
            self._wait_no_longer(asking.caller)
            self._having[asking.caller] = asking
            self._deadlines.set(asking.caller, min(asking.until, self._held_until))
        return granted

    def give_back(self, caller: Caller) -> bool:
        """Free the caller's place, or end its wait; return whether it had the place or waited."""
        self._deadlines.cancel(caller)
        return self._wait_no_longer(caller) or self._having.pop(caller, None) is not None

    def forget_peer(self, peer: Peer) -> None:
        """Remove all callers of a node, with or without the place."""
        having = [caller for caller in self._having if caller[0] is peer]
        for caller in (*having, *self._waiting.get(peer, ())):
            self.give_back(caller)

    def turn_away(self, name: str) -> list[Asking]:
        """Remove and return the waiting callers of a cluster after the node has left."""
        waiting = [asking for callers in self._waiting.values() for asking in callers.values()]
        turned_away = [asking for asking in waiting if asking.group.name == name]
        for asking in turned_away:
            self.give_back(asking.caller)
        return turned_away

    def owes(self, peer: Peer) -> bool:
        """Tell whether a node waits for the place."""
        return peer in self._waiting

    def _wait_no_longer(self, caller: Caller) -> bool:
        callers = self._waiting.get(caller[0], {})
        if callers.pop(caller, None) is None:
            return False
        if not callers:
            del self._waiting[caller[0]]
        return True

    def _expire(self, now: float) -> None:
        """Remove the callers whose waiting time has ended."""
        for caller in self._deadlines.expired(now):
            self.give_back(caller)
