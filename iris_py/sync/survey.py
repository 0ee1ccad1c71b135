"""Surveys: replies as they arrive, or all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic

from iris_py.api.survey import Survey as AsyncSurvey
from iris_py.api.unpicklable import Unpicklable
from iris_py.payloads import Payload
from iris_py.sync.documented import documented_as

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.api.survey import Answers, SurveyReply
    from iris_py.sync.background import Background


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
        """Wait until it has ended; return all that came.

        Raises:
            NoMembers: Nobody serves that name.
            NotConnected: This node reaches no other node, so it is not known who serves that name.
            RequestTimeout: Who serves it could not be found out in time. Members that do not answer raise nothing.
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
