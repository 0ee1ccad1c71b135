"""Publications that wait at a gateway for a tunnel or a channel, with the gaps of what was dropped (docs/design.md 15.73)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.federation.items import ITEM_MESSAGE_BYTES, ITEMS_MAX
from iris_py.patterns.topic.fence import GapBook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.federation.items import Item

#: Counted for each message besides its bytes: what it costs to hold an empty one.
MESSAGE_BYTES: Final = 256


class Memory:
    """The memory of the queues of one neighbour together.

    Args:
        limit_bytes: How much that is.

    Attributes:
        used_bytes: How much is taken.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes

    @property
    def is_over(self) -> bool:
        """Whether more is taken than there is."""
        return self.used_bytes > self._limit_bytes


class ItemQueue:
    """Publications that wait. When there are too many the oldest are dropped, and the next of their streams has a gap.

    Args:
        bytes_max: How many bytes may wait.
        messages_max: How many messages.
        count_drop: Told how many were dropped.
        memory: What it shares with others.
        slack_bytes: What it takes beyond both bounds before it drops: of one that is full, publishers are told to wait.

    Attributes:
        bytes: How many bytes wait.
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
        # What was lost before something comes in here belongs to that; what is dropped here to what goes out next. One book for
        # both would tell some losses too early, where the numbers show that nothing is missing.
        self._unwanted: GapBook | None = None
        self._dropped: GapBook | None = None
        self._more = asyncio.Event()
        self._less = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the next message would have others dropped."""
        return len(self._waiting) >= self._messages_max or self.bytes >= self._bytes_max

    def owe(self, origin: bytes, stream: bytes, count: int) -> None:
        """Note that so many were lost before something that nobody wants here."""
        if self._unwanted is None:
            self._unwanted = GapBook()
        self._unwanted.owe(origin, stream, count)

    def put(self, items: Sequence[Item]) -> None:
        """Take publications, in order. They may be shared with other queues and are not changed."""
        waiting, size = self._waiting, 0
        for item in items:
            if self._unwanted is not None:
                item = _with_gap(item, self._unwanted)
            waiting.append(item)
            size += len(item.payload) + len(item.headers) + MESSAGE_BYTES
        self._add_bytes(size)
        if self._is_over:
            self._drop_oldest()
        self._more.set()

    async def take(self) -> list[Item]:
        """Take the oldest publications, as many as go into one message; waits for some."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        waiting, size = self._waiting, 0
        batch: list[Item] = []
        while waiting and len(batch) < ITEMS_MAX and (not batch or size + waiting[0].size <= ITEM_MESSAGE_BYTES):
            item = waiting.popleft()
            size += item.size
            self._add_bytes(-_cost(item))
            batch.append(item if self._dropped is None else _with_gap(item, self._dropped))
        self._less.set()
        return batch

    async def wait_for_room(self) -> None:
        """Wait until it is not full."""
        while self.is_full:
            self._less.clear()
            await self._less.wait()

    def close(self) -> None:
        """Let go of everything."""
        self._add_bytes(-self.bytes)
        self._waiting.clear()
        self._messages_max = self._bytes_max = 1 << 62  # nobody waits for room here
        self._less.set()

    # --

    @property
    def _is_over(self) -> bool:
        if self._memory is not None and self._memory.is_over:
            return True
        over = max(0, self.bytes - self._bytes_max) + max(0, len(self._waiting) - self._messages_max) * MESSAGE_BYTES
        return over > self._slack_bytes

    def _drop_oldest(self) -> None:
        waiting, dropped = self._waiting, 0
        while len(waiting) > 1 and self._is_over:
            oldest = waiting.popleft()
            self._add_bytes(-_cost(oldest))
            if self._dropped is None:
                self._dropped = GapBook()
            self._dropped.owe(oldest.origin, oldest.stream, 1 + oldest.gap)
            dropped += 1
        if dropped:
            self._count_drop(dropped)

    def _add_bytes(self, size: int) -> None:
        self.bytes += size
        if self._memory is not None:
            self._memory.used_bytes += size


def _cost(item: Item) -> int:
    return len(item.payload) + len(item.headers) + MESSAGE_BYTES


def _with_gap(item: Item, book: GapBook) -> Item:
    gap = book.pass_on(item.origin, item.stream, item.number, 1, item.gap)
    return item if gap == item.gap else msgspec.structs.replace(item, gap=gap)
