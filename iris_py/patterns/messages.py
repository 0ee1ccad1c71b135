"""The values that handlers and subscribers receive: requests and messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Generic

import msgspec

from iris_py.patterns.request.registration import Execution
from iris_py.payloads import Payload
from iris_py.wire.headers import NO_HEADERS, HeaderValue, cloud_of, visible_headers


class Request(msgspec.Struct, Generic[Payload], frozen=True, eq=False, gc=False):
    """A request, as the handler receives it.

    Attributes:
        payload: The request's bytes, or its decoded value with a codec.
        cluster: The name of the addressed cluster.
        source: The id (hex) of the calling node; for a request from another cloud, the id of the relaying gateway.
        cloud: The alias of the originating cloud; empty for this cloud.
        headers: The caller's named values beside the payload, immutable; empty if there are none.
        time_left_s: The caller's remaining waiting time, in seconds. A repetition of the same idempotent request can extend it.
        is_sealed: Whether the caller sealed the payload end to end.
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
    """A message that was broadcast to a cluster or published to a topic.

    Attributes:
        payload: The message's bytes, or its decoded value with a codec.
        source: The id (hex) of the sending node.
        sequence: The number of the message among the node's broadcasts to the cluster, or among all publications of the node,
            whatever their topics. It is the same at every receiver, and increases from message to message. A subscription does
            not get all publications, so its numbers have holes that mean no loss.
        cluster: The name of the addressed cluster; empty for a published message.
        topic: The topic of publication; empty for a broadcast.
        gap: The number of the node's publications that this subscription missed right before the message: lost on the way, or
            dropped because the subscription was full. 0 for the first message of a node and for broadcasts. The number is
            exact in general, and never too small. It may be too large after an absence of the receiver of more than 180 s, with
            more than 4,096 missing messages, or when messages of another cloud have begun to take another path
            (docs/guarantees.md 4.3 and 4.9).
        headers: The sender's named values beside the payload, immutable; empty if there are none.
        cloud: The alias of the originating cloud; empty for this cloud. A message from another cloud has the publisher's
            pseudonym in this cloud as ``source``, and ``sequence`` and ``gap`` refer to the pseudonym.
        has_unknown_gap: Whether further publications may be missing, besides ``gap``, in an unknown number. True for the first
            message of a publisher that the receiver may have forgotten: it remembers 4,096 publishers, and for each
            subscription 8,192 of other clouds (docs/design.md 8.3 and 15.33).
    """

    payload: Payload
    source: str
    sequence: int
    cluster: str = ""
    topic: str = ""
    gap: int = 0
    headers: Mapping[str, HeaderValue] = NO_HEADERS
    cloud: str = ""
    has_unknown_gap: bool = False

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {show(self.payload)} to {self.topic or self.cluster!r} from {self.source[:8]}>"


class CountedMessage(Message[Payload], frozen=True, gc=False):
    """A message of a counted subscription (docs/design.md 8.17).

    Attributes:
        count: The number of the message among the publications of the node for the pattern, from 1 on, without holes.
        count_since: The publisher's number when the count began. Numbers of different counts have no relation.
    """

    count: int = 0
    count_since: int = 0


#: Returns the execution behind a request.
execution_of: Callable[[Request[Any]], Execution] = attrgetter("_execution")


def with_payload(request: Request[Any], payload: Payload, *, is_sealed: bool) -> Request[Payload]:
    """Return a request with another payload, decoded or decrypted."""
    return Request(payload, request._execution, request._clock, is_sealed)


def show(payload: Any) -> str:  # noqa: ANN401 - of whatever type
    """Return a payload's size or type for display; its contents must not appear in logs."""
    return f"{len(payload)} bytes" if isinstance(payload, bytes) else f"a {type(payload).__qualname__}"
