"""One handler under one cluster name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_py.api.membership import Membership as AsyncMembership
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.sync.closing import Closable
from iris_py.sync.documented import documented_as

if TYPE_CHECKING:
    from iris_py.sync.background import Background


class Membership(Closable):
    """One handler under one cluster name, as :meth:`Node.join` returns it."""

    def __init__(self, inner: AsyncMembership, loop: Background) -> None:
        self._inner = inner
        self._background = loop

    @property
    @documented_as(AsyncMembership.cluster)
    def cluster(self) -> str:
        return self._inner.cluster

    @property
    @documented_as(AsyncMembership.is_leaving)
    def is_leaving(self) -> bool:
        return self._inner.is_leaving

    def __repr__(self) -> str:
        return repr(self._inner)

    @documented_as(AsyncMembership.leave)
    def leave(self, *, timeout: float = DRAIN_TIMEOUT_S) -> None:
        if not self._background.is_gone:
            self._background.wait(self._inner.leave, timeout=timeout)

    _end = leave
