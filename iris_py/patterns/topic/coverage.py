"""The topic groups that a node takes part in, so that all messages for its subscriptions reach it (docs/design.md 8.3).

Theory of operation. A subscription *wants* the group of its literal prefix. It is *covered* by a membership in that group or in
the group of a shorter prefix, for publishers send to the groups of all prefixes of a topic. So in the steady state no
membership of a node lies below another one: a node that covers ``a`` is in no group below ``a``.

That also bounds the memberships: when there are ``TOPIC_GROUPS_MAX``, many narrow ones give way to a wide one, at the price of
receiving what nobody there subscribed to, and dropping it. When few subscriptions are left, the wide one gives way again.

Nothing may be missed in between: what is no longer needed is left only when what replaces it is known to every publisher.
"""

from __future__ import annotations

from iris_py.patterns.topic.names import Tokens, prefixes

#: Memberships that topics take, of the 1,024 that the overlay allows a node; the others are for clusters. Each is registered,
#: renewed every minute, and told to the publishers. Too small: more is received in vain; too large: joining again after the
#: death of a root takes longer.
TOPIC_GROUPS_MAX = 256


class Coverage:
    """The memberships of one node, by prefix.

    Args:
        groups_max: How many there may be, apart from those that are about to be replaced.

    Attributes:
        members: The memberships, and whether every publisher knows of each.
        joins: Memberships to begin, for the owner to take.
        leaves: Memberships to end, likewise; after the joins.
        settled: Memberships that what waits for them need not wait for any more, likewise.
    """

    def __init__(self, groups_max: int = TOPIC_GROUPS_MAX) -> None:
        self.members: dict[Tokens, bool] = {}
        self.joins: list[Tokens] = []
        self.leaves: list[Tokens] = []
        self.settled: list[Tokens] = []
        self._groups_max = groups_max
        self._wanted: dict[Tokens, int] = {}
        self._under: dict[Tokens, int] = {}  # subscriptions that want a prefix or a longer one
        self._replaced: set[Tokens] = set()  # memberships with a wider one above them that is not yet known to all
        self._narrowing: dict[Tokens, set[Tokens]] = {}  # to be left when these are known to all

    def cover(self, prefix: Tokens) -> Tokens | None:
        """Return the widest membership that covers a prefix."""
        members = self.members
        return next((each for each in prefixes(prefix) if each in members), None)

    def is_known(self, prefix: Tokens) -> bool:
        """Tell whether a prefix is covered by a membership that every publisher knows of."""
        members = self.members
        return any(members.get(each, False) for each in prefixes(prefix))

    def add(self, prefix: Tokens) -> Tokens:
        """Want a prefix once more; returns the membership that covers it, or will."""
        self._wanted[prefix] = self._wanted.get(prefix, 0) + 1
        for each in prefixes(prefix):
            self._under[each] = self._under.get(each, 0) + 1
        cover = self.cover(prefix)
        if cover is not None:
            self._stay(cover)
            return cover
        if len(self.members) - len(self._replaced) >= self._groups_max:
            wider = self._wider(prefix)
            self._join(wider)
            if prefix[: len(wider)] == wider:
                return wider
        self._join(prefix)
        return prefix

    def remove(self, prefix: Tokens) -> None:
        """Want a prefix once less."""
        self._wanted[prefix] -= 1
        if not self._wanted[prefix]:
            del self._wanted[prefix]
        for each in prefixes(prefix):
            self._under[each] -= 1
            if not self._under[each]:
                del self._under[each]
        cover = self.cover(prefix)
        for each in prefixes(prefix):
            if each in self.members and each not in self._under:
                self._leave(each)
                self._arrived(each)
        if cover in self.members and cover not in self._wanted and self.members[cover] and cover not in self._narrowing:
            self._narrow(cover)

    def joined(self, prefix: Tokens) -> None:
        """Every publisher knows of a membership."""
        if prefix not in self.members:
            return
        self.members[prefix] = True
        self.settled.append(prefix)
        if prefix in self._wanted or not self._narrow(prefix):
            for each in self._below(prefix):
                self.settled.append(each)
                self._leave(each)
        self._arrived(prefix)

    def failed(self, refused: list[Tokens]) -> None:
        """Memberships could not be begun."""
        for prefix in refused:
            del self.members[prefix]
            self._arrived(prefix)
        self._replaced = {each for each in self.members if self.cover(each) != each} | self._narrowing.keys()

    # --

    def _join(self, prefix: Tokens) -> None:
        if prefix not in self.members:
            self._replaced.update(self._below(prefix))
            self.members[prefix] = False
            self.joins.append(prefix)

    def _leave(self, prefix: Tokens) -> None:
        del self.members[prefix]
        self._replaced.discard(prefix)
        self._narrowing.pop(prefix, None)
        self.leaves.append(prefix)

    def _below(self, prefix: Tokens) -> list[Tokens]:
        length = len(prefix)
        return [each for each in self.members if len(each) > length and each[:length] == prefix]

    def _wider(self, prefix: Tokens) -> Tokens:
        """Return the longest prefix that several memberships go on from: the less is received in vain."""
        counts: dict[Tokens, int] = {}
        for member in (*(self.members.keys() - self._replaced), prefix):
            for each in prefixes(member)[:-1]:
                counts[each] = counts.get(each, 0) + 1
        candidates = [each for each, count in counts.items() if count > 1]
        return max(candidates, key=lambda each: (len(each), counts[each]), default=())

    def _narrow(self, prefix: Tokens) -> bool:
        """Replace a wide membership that nobody wants for itself by those that are wanted; returns whether these are few."""
        if len(self._wanted) > self._groups_max // 2:
            return False
        length = len(prefix)
        wanted = [each for each in self._wanted if each[:length] == prefix]
        needed = {each for each in wanted if not any(other in self._wanted for other in prefixes(each)[length:-1])}
        for each in self._below(prefix):
            if each not in needed:
                self.settled.append(each)
                self._leave(each)
        for each in needed:
            self._replaced.discard(each)
            if each not in self.members:
                self.members[each] = False
                self.joins.append(each)
        self._narrowing[prefix] = {each for each in needed if not self.members[each]}
        self._replaced.add(prefix)
        if not self._narrowing[prefix]:
            self._leave(prefix)
        return True

    def _stay(self, cover: Tokens) -> None:
        """A membership that was about to be replaced by narrower ones is needed for more again: it stays, and they go."""
        if self._narrowing.pop(cover, None) is not None:
            self._replaced.discard(cover)
            for each in self._below(cover):
                self.settled.append(each)
                self._leave(each)

    def _arrived(self, prefix: Tokens) -> None:
        """Something that a narrowing waited for is there, or not needed any more."""
        for wide, waited in list(self._narrowing.items()):
            waited.discard(prefix)
            if not waited and wide in self.members:
                self._leave(wide)
