"""Public views that a node has of others: nodes, the members of a cluster, and other clouds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from iris_py.api.awaitable_context import Unpicklable
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from iris_overlay.node_info import NodeInfo

#: Peers whose public view is kept, of all nodes of the process. Too small: surveys describe their members anew; too large:
#: memory, some 500 bytes each.
DESCRIBED_MAX: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node as other nodes see it: a member of a cluster, or any node of the network."""

    id: str
    """The node id: 32 hexadecimal digits, new for every process."""
    address: str
    """The first ``host:port`` for dialling the node."""
    zone: str
    """The zone that the node claims; empty for none."""
    name: str = field(default="", compare=False)
    """The label of the node; empty for none. A label proves nothing: any node can take any label."""
    failed: float = field(default=0.0, compare=False)
    """The share of this node's recent requests to the member that its handler failed, 0 to 1, in the membership view of a
    cluster. A member that fails much more often than others gets few requests, until a trial request succeeds.
    """
    is_stand_in: bool = field(default=False, compare=False)
    """Whether the node represents members of another cloud, in the membership view of a cluster. A stand-in gets requests and
    tunnels while no other member can take them, and neither surveys nor broadcasts.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """Another cloud, as seen by this cloud's gateways."""

    alias: str
    """The name of the cloud in this cloud: ``eu`` in ``databases@eu``."""
    is_up: bool
    """Whether some gateway of this cloud reaches the other cloud."""
    gateways: int
    """The number of this cloud's gateways with a connection to the other cloud."""
    round_trip_s: float | None
    """The shortest round trip from a gateway to the other cloud and back, in seconds; None if not measured."""


class Members(Unpicklable, Collection[Member]):
    """The members of a cluster, as a live view: each access shows the members known at that moment.

    For a cluster with more than 256 members the view is a sample of 32; ``total`` is the number of all members, ``is_sample``
    tells whether the view is incomplete. Stand-ins are included, because they answer requests (:attr:`Member.is_stand_in`).

    ``await`` it for a tuple: right after the first use of a name the view may still be on its way.
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
        """The number of members, including those outside the sample."""
        return max(self._count(), len(self))

    @property
    def is_sample(self) -> bool:
        """Whether the view is a sample: the cluster has more members."""
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
        except ConfigurationError:  # in another event loop only the number is unavailable
            return f"<Members of {self._cluster!r}>"

    async def _complete(self) -> tuple[Member, ...]:
        await self._wait()
        return self._look()


@lru_cache(DESCRIBED_MAX)
def describe_peer(info: NodeInfo, name: str) -> Member:
    """Return the public view of a peer. The same peer is described again and again, once by each survey."""
    return describe(info, name=name)


def describe(info: NodeInfo, failed: float = 0.0, *, is_stand_in: bool = False, name: str = "") -> Member:
    """Return the public view of a node from its description in the overlay."""
    return Member(
        id=info.id.hex(),
        address=info.addresses[0] if info.addresses else "",
        zone=info.zone,
        name=name,
        failed=failed,
        is_stand_in=is_stand_in,
    )
