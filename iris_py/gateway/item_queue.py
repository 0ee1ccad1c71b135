"""Publications that wait at a gateway for a tunnel or a channel, with the gaps of what was dropped (docs/design.md 15.73)."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.federation.items import ITEM_MESSAGE_BYTES, PUBLICATIONS_MAX, count_fitting
from iris_py.patterns.topic.sequence import GapBook

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
        self._messages = 0
        # What was lost before something comes in here belongs to that; what is dropped here to what goes out next. One book for
        # both would tell some losses too early, where the numbers show that nothing is missing.
        self._unwanted: GapBook | None = None
        self._dropped: GapBook | None = None
        self._more = asyncio.Event()
        self._less = asyncio.Event()

    def __len__(self) -> int:
        return self._messages

    @property
    def is_full(self) -> bool:
        """Whether the next message would have others dropped."""
        return self._messages >= self._messages_max or self.bytes >= self._bytes_max

    def owe(self, origin: bytes, stream: bytes, count: int) -> None:
        """Note that so many were lost before something that nobody wants here."""
        if self._unwanted is None:
            self._unwanted = GapBook()
        self._unwanted.owe(origin, stream, count)

    def put(self, items: Sequence[Item]) -> None:
        """Take publications, in order. They may be shared with other queues and are not changed."""
        for item in items:
            if self._unwanted is not None:
                item = _with_gap(item, self._unwanted)
            self._waiting.append(item)
            self._add(len(item.payloads), _cost(item))
        if self._is_over:
            self._drop_oldest()
        self._more.set()

    async def take(self) -> list[Item]:
        """Take the oldest publications, as many as go into one message; waits for some."""
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        batch: list[Item] = []
        room, room_bytes = PUBLICATIONS_MAX, ITEM_MESSAGE_BYTES
        while self._waiting:
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
        """Wait until it is not full."""
        while self.is_full:
            self._less.clear()
            await self._less.wait()

    def close(self) -> None:
        """Let go of everything."""
        self._add(-self._messages, -self.bytes)
        self._waiting.clear()
        self._messages_max = self._bytes_max = 1 << 62  # nobody waits for room here
        self._less.set()

    # --

    @property
    def _is_over(self) -> bool:
        if self._memory is not None and self._memory.is_over:
            return True
        over = max(0, self.bytes - self._bytes_max) + max(0, self._messages - self._messages_max) * MESSAGE_BYTES
        return over > self._slack_bytes

    def _take_oldest(self, count: int) -> Item:
        """Take so many publications of the oldest item."""
        item = self._waiting.popleft()
        if count < len(item.payloads):
            item, behind = item.split(count)
            self._waiting.appendleft(behind)
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
            if self._dropped is None:
                self._dropped = GapBook()
            self._dropped.owe(oldest.origin, oldest.stream, count + oldest.gap)
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
    gap = book.pass_on(item.origin, item.stream, item.number, len(item.payloads), item.gap)
    return item if gap == item.gap else msgspec.structs.replace(item, gap=gap)
