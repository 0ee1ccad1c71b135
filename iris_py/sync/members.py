"""The members of a cluster."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from iris_py.api.info import Member
from iris_py.api.info import Members as AsyncMembers
from iris_py.api.unpicklable import Unpicklable
from iris_py.sync.documented import documented_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.sync.background import Background


@documented_as(AsyncMembers)
class Members(Unpicklable, Collection[Member]):
    def __init__(self, cluster: str, inner: AsyncMembers, loop: Background) -> None:
        self._cluster = cluster
        self._inner = inner
        self._background = loop

    def wait(self) -> tuple[Member, ...]:
        """Wait until the first view has surely arrived; return the members.

        Raises:
            NodeClosed: The node was closed.
        """
        return self._background.wait(lambda: self._inner)

    @property
    @documented_as(AsyncMembers.total)
    def total(self) -> int:
        return self._background.call(lambda: self._inner.total)

    @property
    @documented_as(AsyncMembers.is_sample)
    def is_sample(self) -> bool:
        return self._background.call(lambda: self._inner.is_sample)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._look())

    def __len__(self) -> int:
        return len(self._look())

    def __contains__(self, member: object) -> bool:
        return member in self._look()

    def __repr__(self) -> str:
        return f"<Members of {self._cluster!r}>"  # not their number: to find it out may wait

    def _look(self) -> tuple[Member, ...]:
        return self._background.call(tuple, self._inner)
