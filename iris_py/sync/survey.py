"""Surveys, views of members and memberships of the synchronous API."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Generic

from iris_py.api.awaitable_context import Unpicklable
from iris_py.api.info import Member
from iris_py.api.info import Members as AsyncMembers
from iris_py.api.membership import Membership as AsyncMembership
from iris_py.api.survey import Survey as AsyncSurvey
from iris_py.defaults import DRAIN_TIMEOUT_S
from iris_py.payloads import Payload
from iris_py.sync.counterpart import Closable, documented_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.api.survey import Answers, SurveyReply
    from iris_py.sync.background import Background


class Membership(Closable):
    """The membership of a node in a cluster with one handler, as returned by :meth:`Node.join`."""

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


@documented_as(AsyncMembers)
class Members(Unpicklable, Collection[Member]):
    def __init__(self, cluster: str, inner: AsyncMembers, loop: Background) -> None:
        self._cluster = cluster
        self._inner = inner
        self._background = loop

    def wait(self) -> tuple[Member, ...]:
        """Wait until the first membership view has arrived; return the members.

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
        return f"<Members of {self._cluster!r}>"  # without their number, which may have to wait

    def _look(self) -> tuple[Member, ...]:
        return self._background.call(tuple, self._inner)


@documented_as(AsyncSurvey)
class Survey(Unpicklable, Generic[Payload]):
    def __init__(self, inner: AsyncSurvey[Payload], loop: Background) -> None:
        self._inner = inner
        self._background = loop

    @property
    @documented_as(AsyncSurvey.answers)
    def answers(self) -> Answers[Payload]:
        return self._background.call(lambda: self._inner.answers)

    def wait(self) -> Answers[Payload]:
        """Wait until the survey has ended; return all answers.

        Raises:
            NoMembers: The cluster has no members.
            NotConnected: This node reaches no other node, so no members are known.
            RequestTimeout: The members could not be found in time. Missing answers raise no error.
            NodeClosed: The node was closed.
        """
        return self._background.wait(lambda: self._inner)

    @documented_as(AsyncSurvey.cancel)
    def cancel(self) -> None:
        self._background.call(self._inner.cancel)

    def __iter__(self) -> Iterator[SurveyReply[Payload]]:
        replies = self._background.call(self._inner.__aiter__)
        try:
            while True:
                yield self._background.wait(replies.__anext__)
        except StopAsyncIteration:
            return
        finally:
            self._background.soon(self._inner.cancel)

    def __repr__(self) -> str:
        return repr(self._inner)
