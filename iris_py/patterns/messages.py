"""Requests and messages as handlers and subscribers get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from iris_py.patterns.request.registration import Execution
from iris_py.wire.headers import NO_HEADERS, HeaderValue


class Request(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A request, as the handler gets it.

    Attributes:
        payload: The request.
        cluster: The name that was addressed.
        source: The id (hex) of the node that asks.
        headers: What the caller gave beside the payload: values by name, which cannot be changed. Empty if it gave none.
        time_left_s: How long the caller still waits, in seconds. It grows when the same idempotent request comes again.
    """

    payload: bytes
    _execution: Execution
    _clock: Callable[[], float]

    @property
    def cluster(self) -> str:
        return self._execution.registration.group.name

    @property
    def source(self) -> str:
        return self._execution.peer.name

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        return self._execution.headers

    @property
    def time_left_s(self) -> float:
        return self._execution.deadline - self._clock()

    def __repr__(self) -> str:
        return f"<Request {len(self.payload)} bytes to {self.cluster!r} from {self.source[:8]}>"


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message that was broadcast to a cluster, or published to a topic.

    Attributes:
        payload: The message.
        source: The id (hex) of the node that sent it.
        sequence: Its number among those that this node sent to the cluster, or to the group of the topic (docs/design.md 8.2);
            it grows with each.
        cluster: The name of the cluster that was addressed; empty for a published message.
        topic: The topic that it was published to; empty for a broadcast.
        gap: How many published messages of this node to the same group of topics were missed right before this one: lost on
            the way, or dropped because the subscription was behind. They need not all have matched the pattern.
        headers: What the sender gave beside the payload: values by name, which cannot be changed. Empty if it gave none.
    """

    payload: bytes
    source: str
    sequence: int
    cluster: str = ""
    topic: str = ""
    gap: int = 0
    headers: Mapping[str, HeaderValue] = NO_HEADERS

    def __repr__(self) -> str:
        return (
            f"<Message {self.sequence} of {len(self.payload)} bytes to {self.topic or self.cluster!r} from {self.source[:8]}>"
        )
