"""The names that the application uses, and what must outlive a name that is forgotten and used again.

A name has a group in each generation of its secret (docs/design.md 2.9). What this node asks, broadcasts and publishes goes
through the group of the primary generation. The others are made when the node takes part in a name, so that nodes with another
primary generation reach it too.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from iris_py.observe.counts import CountTable
from iris_py.peers.group import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from iris_overlay.ids import NodeId
    from iris_security import GroupKeys, Keyring

#: Names that the application used and that nothing is registered under are forgotten beyond this number, the longest unused
#: first. Each costs a few KiB; forgetting one in use costs deriving its keys again.
GROUPS_MAX = 2048
#: Forgotten names of which it is remembered how many messages they had, the last forgotten ones. Beyond it, what a receiver
#: missed before the name was forgotten is in no gap. Each costs a few hundred bytes, a tenth of a group.
NUMBERS_MAX = 16_384


class Groups:
    """The groups of one node.

    Args:
        local: The node.
        keyring: The secrets of the network.

    Attributes:
        by_id: Those in use, by group id.
        cluster_counts: What was done in each cluster.
        topic_counts: What was done under each prefix of topics.
    """

    def __init__(self, local: NodeId, keyring: Keyring) -> None:
        self.by_id: dict[bytes, Group] = {}
        self.cluster_counts = CountTable()
        self.topic_counts = CountTable()
        self._by_name: dict[str, Group] = {}
        self._topics: dict[str, Group] = {}
        self._local = local
        self._keyring = keyring
        self._last_epoch = 0
        self._last_sequence = 0
        self._numbers: dict[tuple[bool, str], tuple[int, int]] = {}  # of those forgotten: the first and the last one

    @property
    def is_full(self) -> bool:
        """Whether one should be forgotten before another one is added."""
        return len(self.by_id) >= GROUPS_MAX

    def find(self, name: str) -> Group | None:
        """Return the primary group of a cluster, if it is in use."""
        return self._by_name.get(name)

    def find_topic(self, name: str) -> Group | None:
        """Return the primary group of topics of that name, if it is in use."""
        return self._topics.get(name)

    def clusters(self) -> list[Group]:
        """Return the primary group of each cluster in use."""
        return list(self._by_name.values())

    def topics(self) -> list[Group]:
        """Return the primary group of each prefix of topics in use."""
        return list(self._topics.values())

    def accepted(self, group: Group) -> list[Group]:
        """Return the groups of the same name in the other generations of its secret; those that are missing are added."""
        return [self._use(group, keys) for keys in self._keyring.accepted(group.name, is_topic=group.is_topic)]

    def rekey(self, keyring: Keyring) -> list[Group]:
        """Use other secrets from now on; returns the groups of generations that are not among them, which are left.

        Raises:
            ValueError: A cluster in use has to have a secret of its own, and has none; nothing has changed then.
        """
        used = [*self._by_name.values(), *self._topics.values()]
        primaries = [keyring.topic(group.name) if group.is_topic else keyring.cluster(group.name) for group in used]
        accepted = [keyring.accepted(group.name, is_topic=group.is_topic) for group in used]
        self._keyring = keyring  # from here on nothing is refused
        kept: set[bytes] = set()
        for group, primary, others in zip(used, primaries, accepted, strict=True):
            kept |= {keys.group_id for keys in (primary, *others)}
            names = self._topics if group.is_topic else self._by_name
            names[group.name] = self._use(group, primary)
        left = [group for group in self.by_id.values() if group.id not in kept]
        for group in left:
            group.is_left = True
        return left

    def _use(self, group: Group, keys: GroupKeys) -> Group:
        """Return the group of the same name with other keys, and add it if it is missing."""
        found = self.by_id.get(keys.group_id)
        if found is None:
            self._last_epoch += 1
            found = Group(group.name, keys, self._local, self._last_epoch, self._last_sequence, is_topic=group.is_topic)
            found.last_used = group.last_used
            found.is_own = not group.is_topic and self._keyring.is_own(group.name, keys)
            self.by_id[found.id] = found
            found.counts = self._counts_of(found).use(found.name)
        found.is_left = False
        return found

    def make(self, name: str, *, is_topic: bool = False) -> Group:
        """Return a new group.

        Raises:
            ValueError: The name is empty or too long.
        """
        # No epoch is used twice, so a group that is forgotten and made again never repeats a nonce. Its numbers go on where
        # they were, so that what was missed shows; if that is not known, beyond all others, or they would be taken for late.
        self._last_epoch += 1
        keys = self._keyring.topic(name) if is_topic else self._keyring.cluster(name)
        first, last = self._numbers.get((is_topic, name), (self._last_sequence, self._last_sequence))
        group = Group(name, keys, self._local, self._last_epoch, first, is_topic=is_topic)
        group.sequence = last
        group.is_own = not is_topic and self._keyring.is_own(name, keys)
        return group

    def add(self, group: Group) -> None:
        """Use a group from now on."""
        names = self._topics if group.is_topic else self._by_name
        names[group.name] = self.by_id[group.id] = group
        group.counts = self._counts_of(group).use(group.name)
        self._numbers.pop((group.is_topic, group.name), None)

    @contextmanager
    def adding(self, group: Group) -> Iterator[Group]:
        """Use a group from now on, unless what follows raises."""
        self.add(group)
        try:
            yield group
        except BaseException:
            self.forget(group)
            raise

    def oldest(self, is_idle: Callable[[Group], bool]) -> Group | None:
        """Return the idle group that was not used for the longest time, if one is idle."""
        return min(filter(is_idle, self.by_id.values()), key=lambda group: group.last_used, default=None)

    def forget(self, group: Group) -> None:
        """Do not use a group any more."""
        self._last_epoch = max(self._last_epoch, group.epoch)
        group.end_run()
        self._counts_of(group).release(group.name)
        self._last_sequence = max(self._last_sequence, group.sequence)
        names = self._topics if group.is_topic else self._by_name
        if names.get(group.name) is not group:  # of another generation
            del self.by_id[group.id]
            return
        if group.sequence > group.first_sequence:
            if len(self._numbers) >= NUMBERS_MAX:
                del self._numbers[next(iter(self._numbers))]
            self._numbers[group.is_topic, group.name] = group.first_sequence, group.sequence
        del self.by_id[group.id], names[group.name]

    def _counts_of(self, group: Group) -> CountTable:
        return self.topic_counts if group.is_topic else self.cluster_counts
