"""The topic groups a node joins to receive all messages for its subscriptions (docs/design.md 8.3).

A subscription *wants* the group of its literal prefix. A membership in the wanted group or in the group of a shorter prefix
*covers* the subscription, because publishers send to the groups of all prefixes of a topic. In the steady state no membership
lies below another: a node in the group of ``a`` is in no group below ``a``.

Memberships are bounded: beyond ``TOPIC_GROUPS_MAX``, many narrow memberships are replaced by a wide one, and the node drops the
unwanted messages. With few subscriptions left, the wide membership is replaced by narrow ones again.

No message is missed meanwhile: a membership ends only when every publisher knows its replacement.
"""

from __future__ import annotations

from iris_py.patterns.topic.names import Tokens, prefixes

#: Memberships for topics, of the 1,024 that the overlay allows a node; the rest is for clusters. Each is registered, renewed
#: every minute, and announced to publishers. Too small: more unwanted messages arrive; too large: joining again after the death
#: of a root takes longer.
TOPIC_GROUPS_MAX = 256


class Coverage:
    """The memberships of one node, by prefix.

    Args:
        groups_max: Largest number of memberships, apart from those being replaced.

    Attributes:
        members: The memberships, with whether every publisher knows them.
        joins: Memberships to begin, for the owner to take.
        leaves: Memberships to end, for the owner to take after ``joins``.
        settled: Memberships whose waiting subscriptions are served, for the owner to take.
    """

    def __init__(self, groups_max: int = TOPIC_GROUPS_MAX) -> None:
        self.members: dict[Tokens, bool] = {}
        self.joins: list[Tokens] = []
        self.leaves: list[Tokens] = []
        self.settled: list[Tokens] = []
        self._groups_max = groups_max
        self._wanted: dict[Tokens, int] = {}
        self._under: dict[Tokens, int] = {}  # number of subscriptions that want this prefix or a longer one
        self._replaced: set[Tokens] = set()  # memberships below a wider one that some publishers do not know yet
        self._narrowing: dict[Tokens, set[Tokens]] = {}  # wide memberships to end when all publishers know these

    def cover(self, prefix: Tokens) -> Tokens | None:
        """Return the widest membership that covers a prefix."""
        members = self.members
        return next((each for each in prefixes(prefix) if each in members), None)

    def is_known(self, prefix: Tokens) -> bool:
        """Tell whether a prefix is covered by a membership known to every publisher."""
        members = self.members
        return any(members.get(each, False) for each in prefixes(prefix))

    def add(self, prefix: Tokens) -> Tokens:
        """Add a subscription's prefix; return its present or future membership."""
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
        """Remove a subscription's prefix."""
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
        """Handle a membership that every publisher knows now."""
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
        """Handle memberships that could not begin."""
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
        """Return the longest prefix shared by several memberships, to receive few unwanted messages."""
        counts: dict[Tokens, int] = {}
        for member in (*(self.members.keys() - self._replaced), prefix):
            for each in prefixes(member)[:-1]:
                counts[each] = counts.get(each, 0) + 1
        candidates = [each for each, count in counts.items() if count > 1]
        return max(candidates, key=lambda each: (len(each), counts[each]), default=())

    def _narrow(self, prefix: Tokens) -> bool:
        """Replace a wide, unwanted membership by the wanted narrow ones; return False if these are too many."""
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
        """Keep a wide membership instead of the planned narrow replacements, after new demand."""
        if self._narrowing.pop(cover, None) is not None:
            self._replaced.discard(cover)
            for each in self._below(cover):
                self.settled.append(each)
                self._leave(each)

    def _arrived(self, prefix: Tokens) -> None:
        """Handle a membership that is known to all or no longer needed: replaced wide memberships may end."""
        for wide, waited in list(self._narrowing.items()):
            waited.discard(prefix)
            if not waited and wide in self.members:
                self._leave(wide)
