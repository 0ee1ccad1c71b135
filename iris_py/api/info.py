"""Views that a node gives of others: members, clouds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iris_py.api.unpicklable import Unpicklable
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from iris_overlay.messages import NodeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node, as others see it."""

    id: str
    """Its id: 32 hexadecimal digits, new for every process."""
    address: str
    """The first ``host:port`` where it listens."""
    zone: str
    """Where it says it is."""
    name: str = field(default="", compare=False)
    """Its name; empty if it tells none. A label for people: two nodes may have the same name, and any node can
    take any."""
    failed: float = field(default=0.0, compare=False)
    """The share of this node's requests that its handler failed of late, 0 to 1, in the view of a cluster. A member that fails
    much more often than others is asked rarely, until a try shows that it answers again."""
    is_stand_in: bool = field(default=False, compare=False)
    """Whether it stands in for members of another cloud, in the view of a cluster: it gets requests and tunnels while no other
    member can take them, and neither surveys nor broadcasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Another cloud, as the gateways of this one see it."""

    alias: str
    """Its name here: the part of ``databases@eu`` behind the ``@``."""
    is_up: bool
    """Whether some gateway has a way to it."""
    gateways: int
    """How many gateways of this cloud have one."""
    round_trip_s: float | None
    """The shortest round trip from a gateway to it and back, in seconds; None if none has been measured."""


class Members(Unpicklable, Collection[Member]):
    """The members of a cluster, live: each look shows who is there now, as far as this node knows.

    Of a cluster with more than 32 members it shows a sample of so many; ``total`` says how many there are, ``is_sample``
    whether these are more than it shows. Stand-ins are among them, for they answer requests (:attr:`Member.is_stand_in`).
    ``await`` it for a tuple: right after the first use of a name the view may still be
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
        try:
            of = f" of {self.total}" if self.is_sample else ""
            return f"<Members of {self._cluster!r}: {len(self)}{of}>"
        except ConfigurationError:  # in another event loop only their number is not to be had
            return f"<Members of {self._cluster!r}>"

    async def _complete(self) -> tuple[Member, ...]:
        await self._wait()
        return self._look()


def describe(info: NodeInfo, failed: float = 0.0, *, is_stand_in: bool = False, name: str = "") -> Member:
    """Show a node as others see it."""
    return Member(
        id=info.id.hex(),
        address=info.addresses[0] if info.addresses else "",
        zone=info.zone,
        name=name,
        failed=failed,
        is_stand_in=is_stand_in,
    )
