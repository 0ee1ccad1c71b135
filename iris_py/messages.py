"""What handlers are given: requests and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.patterns.service import BroadcastReceived, Execution


class Request:
    """What a handler is asked.

    Attributes:
        payload: The request.
        cluster: The name that was addressed.
        source: The id (hex) of the node that asks.
        time_left_s: How long the caller still waits, in seconds.
    """

    __slots__ = ("_clock", "_deadline", "cluster", "payload", "source")

    def __init__(self, execution: Execution, clock: Callable[[], float]) -> None:
        self.payload = execution.payload
        self.cluster = execution.registration.group.name
        self.source: str = execution.peer.id.hex()
        self._deadline = execution.deadline
        self._clock = clock

    @property
    def time_left_s(self) -> float:
        return self._deadline - self._clock()

    def __repr__(self) -> str:
        return f"<Request {len(self.payload)} bytes to {self.cluster!r} from {self.source[:8]}>"


class Message:
    """What was broadcast.

    Attributes:
        payload: The message.
        cluster: The name that was addressed.
        source: The id (hex) of the node that sent it.
        sequence: Its number among the broadcasts of that node to the cluster; it grows by one with each.
    """

    __slots__ = ("cluster", "payload", "sequence", "source")

    def __init__(self, event: BroadcastReceived) -> None:
        self.payload = event.payload
        self.cluster = event.registration.group.name
        self.source: str = event.source.id.hex()
        self.sequence = event.sequence

    def __repr__(self) -> str:
        return f"<Message {self.sequence} of {len(self.payload)} bytes to {self.cluster!r} from {self.source[:8]}>"
