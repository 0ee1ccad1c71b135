"""Counts what a subscriber gets, and finds out whether everything came, without work for each message but one step."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator
from operator import length_hint
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from benchmarks.worker import tell

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from benchmarks.peers.system import Inbox

#: A subscriber that gets nothing for this long, once everything was sent, takes the rest for lost. Too small: what is late on a
#: busy machine is taken for lost; too large: each measurement of a system that loses takes so much longer.
IDLE_S: Final = 5.0
_LOOK_S: Final = 0.02
#: The time at which a message was sent, at its begin, in nanoseconds of the clock that all processes of a machine share.
STAMP: Final = Struct(">Q")
#: A message of one byte only shows that the way is open.
GREETING: Final = b"\0"


class Tally:
    """The messages of one subscriber.

    Args:
        expected: How many are sent.
        is_stamped: Whether each says when it was sent.
    """

    def __init__(self, expected: int, *, is_stamped: bool = False) -> None:
        self._expected = expected
        self._steps: Iterator[int] = iter(range(expected - 1, -1, -1))
        self._is_stamped = is_stamped
        self._latencies_ns = array("Q")
        self.first = self.last = 0.0

    @property
    def seen(self) -> int:
        """How many have come."""
        return self._expected - length_hint(self._steps)

    async def take(self, inbox: Inbox, greeted: threading.Event) -> None:
        """Take everything, one message after the other; what blocks does so in a thread.

        Args:
            inbox: The messages.
            greeted: Set when a greeting has come.
        """
        messages = inbox.messages
        if not isinstance(messages, AsyncIterator):
            await asyncio.to_thread(self._take_blocking, inbox, messages, greeted)
            return
        rest: list[Any] = []
        async for got in messages:
            greeted.set()
            batch = got if inbox.has_batches else [got]
            rest = [message for message in batch if len(inbox.payload_of(message)) > len(GREETING)]
            if rest:
                break
        self.first = time.perf_counter()
        if self._take_batch(inbox, rest):
            if self._is_stamped:
                await self._take_stamped(inbox, messages)
            elif inbox.has_batches:
                await self._take_batches(messages)
            else:
                await self._take_each(messages)
        self.last = time.perf_counter()

    def tell_losses(self) -> None:
        """Once everything was sent: tell the parent what was lost, if something was. For a thread."""
        seen, since = self.seen, time.perf_counter()
        while seen < self._expected:
            time.sleep(_LOOK_S)
            now = time.perf_counter()
            if self.seen != seen:
                seen, since = self.seen, now
            elif now - since > IDLE_S:
                self.last = since
                self.tell()
                return

    def tell(self) -> None:
        """Tell the parent what was found."""
        # Latencies would be megabytes: the mean of the first 100, 1,000 and so on, as if no more had been sent.
        means, size = {}, 100
        while self._latencies_ns and size <= self.seen:
            means[str(size)] = sum(self._latencies_ns[:size]) / size / 1e6
            size *= 10
        tell(seen=self.seen, first=self.first, last=self.last, means_ms=means)

    def _take_batch(self, inbox: Inbox, batch: list[Any]) -> bool:
        """Count messages; returns whether more are to come."""
        for message in batch:
            if self._is_stamped:
                self._note(inbox.payload_of(message))
            if not next(self._steps):
                return False
        return True

    async def _take_each(self, messages: AsyncIterator[Any]) -> None:
        steps = self._steps
        async for _message in messages:
            if not next(steps):
                return

    async def _take_batches(self, messages: AsyncIterator[Any]) -> None:
        steps = self._steps
        async for batch in messages:
            for _message in batch:
                if not next(steps):
                    return

    async def _take_stamped(self, inbox: Inbox, messages: AsyncIterator[Any]) -> None:
        async for got in messages:
            if not self._take_batch(inbox, got if inbox.has_batches else [got]):
                return

    def _take_blocking(self, inbox: Inbox, messages: Iterator[Any], greeted: threading.Event) -> None:
        steps, payload_of = self._steps, inbox.payload_of
        for message in messages:
            greeted.set()
            if len(payload_of(message)) > len(GREETING):
                break
        else:
            return
        self.first = time.perf_counter()
        if self._take_batch(inbox, [message]):
            for message in messages:
                if self._is_stamped:
                    self._note(payload_of(message))
                if not next(steps):
                    break
        self.last = time.perf_counter()

    def _note(self, payload: bytes) -> None:
        self._latencies_ns.append(time.perf_counter_ns() - STAMP.unpack_from(payload)[0])
