"""Views that a node gives of itself and of others: members, statistics."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping

    from iris_overlay.messages import NodeInfo


@dataclass(frozen=True, slots=True)
class Member:
    """A node, as others see it."""

    id: str
    """Its id: 32 hexadecimal digits, new for every process."""
    address: str
    """The first ``host:port`` where it listens."""
    zone: str
    """Where it says it is."""
    failed: float = field(default=0.0, compare=False)
    """The share of this node's requests that its handler failed of late, 0 to 1, in the view of a cluster. A member that fails
    much more often than others is asked rarely, until a try shows that it answers again."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts of a node since it started."""

    requests: int
    """Requests that this node made."""
    replies: int
    """Requests that ended with a reply."""
    retries: int
    """Times that a request was given to another member."""
    executed: int
    """Requests that handlers of this node were given."""
    rejected: Mapping[str, int]
    """Requests that this node refused, by reason."""
    drops: Mapping[str, int]
    """The messages that were dropped, by reason. Late replies are among them."""
    repeated: int = 0
    """Requests that handlers of this node were not given, for they had executed them, or still do: repeated idempotent ones."""
    failed: int = 0
    """Requests of this node that ended because a handler had failed."""
    hedged: int = 0
    """Times that an idempotent request of this node was given to a second member, for the first was slower than nearly all
    are."""


class Members(Collection[Member]):
    """The members of a cluster, live: each look shows who is there now, as far as this node knows.

    Of a cluster with more than 32 members it shows a sample of so many; ``total`` says how many there are, ``is_sample``
    whether these are more than it shows. ``await`` it for a tuple: right after the first use of a name the view may still be
    on its way.
    """

    def __init__(
        self,
        cluster: str,
        look: Callable[[], tuple[Member, ...]],
        wait: Callable[[], Awaitable[None]],
        count: Callable[[], int],
    ) -> None:
        self._cluster = cluster
        self._look = look
        self._wait = wait
        self._count = count

    @property
    def total(self) -> int:
        """How many members there are, also of a cluster of which it shows a sample."""
        return max(self._count(), len(self))

    @property
    def is_sample(self) -> bool:
        """Whether there are more members than it shows."""
        return self._count() > len(self)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._look())

    def __len__(self) -> int:
        return len(self._look())

    def __contains__(self, member: object) -> bool:
        return member in self._look()

    def __await__(self) -> Generator[object, object, tuple[Member, ...]]:
        return self._complete().__await__()

    def __repr__(self) -> str:
        of = f" of {self.total}" if self.is_sample else ""
        return f"<Members of {self._cluster!r}: {len(self)}{of}>"

    async def _complete(self) -> tuple[Member, ...]:
        await self._wait()
        return self._look()


def describe(info: NodeInfo, failed: float = 0.0) -> Member:
    """Show a node as others see it."""
    return Member(info.id.hex(), info.addresses[0] if info.addresses else "", info.zone, failed)
