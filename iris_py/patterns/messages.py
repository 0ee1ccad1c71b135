"""Requests and messages as handlers and subscribers get them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic

import msgspec

from iris_py.patterns.request.registration import Execution
from iris_py.payloads import Payload
from iris_py.wire.headers import NO_HEADERS, HeaderValue, cloud_of, visible_headers


class Request(msgspec.Struct, Generic[Payload], frozen=True, eq=False, gc=False):
    """A request, as the handler gets it.

    Attributes:
        payload: The request; with a codec, what it says.
        cluster: The name that was addressed.
        source: The id (hex) of the node that asks; of a request from another cloud, that of the gateway which brings it.
        cloud: The alias of the cloud that the request comes from; empty if that is the own one.
        headers: What the caller gave beside the payload: values by name, which cannot be changed. Empty if it gave none.
        time_left_s: How long the caller still waits, in seconds. It grows when the same idempotent request comes again.
        is_sealed: Whether the payload came sealed from its caller, and nobody on the way could read it.
    """

    payload: Payload
    _execution: Execution
    _clock: Callable[[], float]
    is_sealed: bool = False

    @property
    def cluster(self) -> str:
        return self._execution.registration.group.name

    @property
    def source(self) -> str:
        return self._execution.peer.name

    @property
    def headers(self) -> Mapping[str, HeaderValue]:
        return visible_headers(self._execution.headers)

    @property
    def cloud(self) -> str:
        return cloud_of(self._execution.headers)

    @property
    def time_left_s(self) -> float:
        return self._execution.deadline - self._clock()

    def __repr__(self) -> str:
        return f"<Request {show(self.payload)} to {self.cluster!r} from {self.source[:8]}>"


class Message(msgspec.Struct, Generic[Payload], frozen=True, gc=False):
    """A message that was broadcast to a cluster, or published to a topic.

    Attributes:
        payload: The message; with a codec, what it says.
        source: The id (hex) of the node that sent it.
        sequence: Its number among those that this node sent to the cluster, or to the group of the topic (docs/design.md 8.2);
            it grows with each.
        cluster: The name of the cluster that was addressed; empty for a published message.
        topic: The topic that it was published to; empty for a broadcast.
        gap: How many published messages of this node to the same group of topics were missed right before this one: lost on
            the way, or dropped because the subscription was behind. They need not all have matched the pattern.
        headers: What the sender gave beside the payload: values by name, which cannot be changed. Empty if it gave none.
        cloud: The alias of the cloud that it comes from; empty if that is the own one. Of a message from another cloud,
            ``source`` is the name that this cloud gives its publisher, and ``sequence`` and ``gap`` are of that.
    """

    payload: Payload
    source: str
    sequence: int
    cluster: str = ""
    topic: str = ""
    gap: int = 0
    headers: Mapping[str, HeaderValue] = NO_HEADERS
    cloud: str = ""

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {show(self.payload)} to {self.topic or self.cluster!r} from {self.source[:8]}>"


def show(payload: Any) -> str:  # noqa: ANN401 - of whatever type
    """Return how a payload is shown: by its size or its type, for what it says is nobody's business in a log."""
    return f"{len(payload)} bytes" if isinstance(payload, bytes) else f"a {type(payload).__qualname__}"
