"""Queues of publications at a gateway, for a node's tunnel or a neighbour's channel (docs/design.md 15.73).

A full queue drops the oldest publications, and notes the loss in the gap of the next publication. A *mark* is a message behind
all earlier publications: behind a mark, no older publication follows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.federation.items import ITEM_MESSAGE_BYTES, PUBLICATIONS_MAX, ItemError, count_fitting
from iris_py.patterns.topic.imported_sequences import GapBook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.federation.items import Item

#: The overhead of a message in a queue, counted besides its bytes.
MESSAGE_BYTES: Final = 256
#: Marks in one queue. Too small: an end that asks again while its first question is under way is cut off; too large: memory for
#: an end that asks and does not read.
MARKS_MAX: Final = 64


class Memory:
    """The memory shared by the queues for one neighbour's publications.

    Args:
        limit_bytes: The bound on the memory.

    Attributes:
        used_bytes: The memory in use.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def is_over(self) -> bool:
        """Whether the memory in use exceeds the bound."""
        return self.used_bytes > self._limit_bytes


class ItemQueue:
    """A queue of publications for a tunnel or channel. A full queue drops the oldest; the next of the sequence carries the gap.

    The queue counts batches for the marks: ``_put`` batches have entered, ``_gone`` batches have left.

    Args:
        count_drop: Called with the number of dropped messages.
        memory: The memory shared with other queues.
        slack_bytes: The tolerated excess over both bounds before drops, for a queue whose publishers are told to wait.

    Attributes:
        bytes: The queued bytes.
    """

    def __init__(
        self,
        bytes_max: int,
        messages_max: int,
        count_drop: Callable[[int], object],
        memory: Memory | None = None,
        *,
        slack_bytes: int = 0,
    ) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._messages_max = messages_max
        self._count_drop = count_drop
        self._memory = memory
        self._slack_bytes = slack_bytes
        self._waiting: deque[Item] = deque()
        self._messages = 0
        self._marks: deque[tuple[int, bytes]] = deque()  # each behind so many batches
        self._put = self._gone = 0
        # Losses upstream belong in front of the next incoming publication, drops in the queue in front of the next outgoing
        # one. A single book would report some losses too early, where the numbers show no gap.
        self._unwanted: GapBook | None = None
        self._dropped: GapBook | None = None
        self._more = asyncio.Event()
        self._less = asyncio.Event()

    def __len__(self) -> int:
        return self._messages

    @property
    def is_full(self) -> bool:
        """Whether another message would exceed a bound."""
        return self._messages >= self._messages_max or self.bytes >= self._bytes_max

    def owe(self, origin: bytes, sequence: bytes, count: int) -> None:
        """Record `count` messages as lost before a message that is not queued; the sequence's next queued one has the gap."""
        if self._unwanted is None:
            self._unwanted = GapBook()
        self._unwanted.owe(origin, sequence, count)

    def put(self, items: Sequence[Item]) -> None:
        """Append publications, in order and unchanged: other queues may share them."""
        for item in items:
            if self._unwanted is not None:
                item = _with_gap(item, self._unwanted)
            self._waiting.append(item)
            self._put += 1
            self._add(len(item.payloads), _cost(item))
        if self._is_over:
            self._drop_oldest()
        self._more.set()

    def mark(self, message: bytes) -> None:
        """Append a message behind all present publications: an answer, or GOING.

        Raises:
            ItemError: The other end asks too often without reading.
        """
        if len(self._marks) >= MARKS_MAX:
            raise ItemError("more questions than answers")
        self._marks.append((self._put, message))
        self._more.set()

    async def take(self) -> list[Item] | bytes:
        """Take the oldest publications that fit into one message, or a mark; wait for the first."""
        while not self._waiting and not self._marks:
            self._more.clear()
            await self._more.wait()
        if self._is_mark_due:
            return self._marks.popleft()[1]
        batch: list[Item] = []
        room, room_bytes = PUBLICATIONS_MAX, ITEM_MESSAGE_BYTES
        while self._waiting and not self._is_mark_due:
            oldest = self._waiting[0]
            count = count_fitting(oldest.payloads, oldest.headers, room, room_bytes) or int(not batch)
            if not count:
                break
            item = self._take_oldest(count)
            room -= count
            room_bytes -= item.size
            batch.append(item if self._dropped is None else _with_gap(item, self._dropped))
        self._less.set()
        return batch

    async def wait_for_room(self) -> None:
        """Wait until the queue is not full."""
        while self.is_full:
            self._less.clear()
            await self._less.wait()

    def close(self) -> None:
        """Drop all publications."""
        self._add(-self._messages, -self.bytes)
        self._waiting.clear()
        self._marks.clear()
        self._messages_max = self._bytes_max = 1 << 62  # nobody waits for room any more
        self._less.set()

    # --

    @property
    def _is_mark_due(self) -> bool:
        return bool(self._marks) and self._marks[0][0] <= self._gone

    @property
    def _is_over(self) -> bool:
        if self._memory is not None and self._memory.is_over:
            return True
        over = max(0, self.bytes - self._bytes_max) + max(0, self._messages - self._messages_max) * MESSAGE_BYTES
        return over > self._slack_bytes

    def _take_oldest(self, count: int) -> Item:
        """Take the first ``count`` publications of the oldest item."""
        item = self._waiting.popleft()
        if count < len(item.payloads):
            item, behind = item.split(count)
            self._waiting.appendleft(behind)
        else:
            self._gone += 1
        self._add(-count, -_cost(item))
        return item

    def _drop_oldest(self) -> None:
        dropped = 0
        while self._messages > 1 and self._is_over:
            oldest, count = self._waiting.popleft(), 0
            for payload in oldest.payloads:
                self._add(-1, -(len(payload) + len(oldest.headers) + MESSAGE_BYTES))
                count += 1
                if self._messages == 1 or not self._is_over:
                    break
            if count < len(oldest.payloads):
                self._waiting.appendleft(oldest.split(count)[1])
            else:
                self._gone += 1
            if self._dropped is None:
                self._dropped = GapBook()
            self._dropped.owe(oldest.origin, oldest.sequence, count + oldest.gap)
            dropped += count
        if dropped:
            self._count_drop(dropped)

    def _add(self, messages: int, size: int) -> None:
        self._messages += messages
        self.bytes += size
        if self._memory is not None:
            self._memory.used_bytes += size


def _cost(item: Item) -> int:
    return item.payload_bytes + len(item.payloads) * MESSAGE_BYTES


def _with_gap(item: Item, book: GapBook) -> Item:
    gap = book.pass_on(item.origin, item.sequence, item.number, len(item.payloads), item.gap)
    return item if gap == item.gap else msgspec.structs.replace(item, gap=gap)
