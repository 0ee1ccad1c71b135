"""Queues of publications at a gateway: what is dropped shows in a gap, at the right place."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.items import Item
from iris_py.gateway.item_queue import ItemQueue, Memory

ORIGIN, STREAM = b"o" * 16, b"s" * 4


def item(number: int, size: int = 0, gap: int = 0) -> Item:
    return Item("t", bytes(size), number, ORIGIN, STREAM, gap)


async def take_all(queue: ItemQueue) -> list[tuple[int, int]]:
    taken: list[Item] = []
    while len(queue):
        taken += await queue.take()
    return [(each.number, each.gap) for each in taken]


def test_the_oldest_are_dropped_and_the_next_one_says_so() -> None:
    async def scenario() -> None:
        counted: list[int] = []
        queue = ItemQueue(1 << 20, 3, counted.append)
        queue.put([item(number) for number in range(10)])
        assert counted == [7]
        assert await take_all(queue) == [(7, 7), (8, 0), (9, 0)]
        queue.put([item(10, gap=2)])
        assert await take_all(queue) == [(10, 2)]

    asyncio.run(scenario())


def test_a_single_publication_is_kept_however_large_it_is() -> None:
    async def scenario() -> None:
        queue = ItemQueue(10, 3, lambda _count: None)
        queue.put([item(0, 1000), item(1, 1000)])
        assert await take_all(queue) == [(1, 1)]

    asyncio.run(scenario())


def test_what_was_lost_before_something_unwanted_is_told_with_the_next_that_comes_and_no_earlier_one() -> None:
    async def scenario() -> None:
        queue = ItemQueue(1 << 20, 100, lambda _count: None)
        queue.put([item(1)])
        queue.owe(ORIGIN, STREAM, 3)
        queue.put([item(7)])
        assert await take_all(queue) == [(1, 0), (7, 3)]

    asyncio.run(scenario())


def test_memory_is_shared_and_given_back() -> None:
    async def scenario() -> None:
        memory = Memory(10_000)
        one, two = (ItemQueue(1 << 20, 1000, lambda _count: None, memory) for _ in range(2))
        one.put([item(number, 1000) for number in range(6)])
        two.put([item(number, 1000) for number in range(6)])
        assert not memory.is_over
        assert len(one) == 6, "who comes later gives way"
        assert len(two) < 6
        one.close()
        assert await take_all(two)
        assert memory.used_bytes == 0

    asyncio.run(scenario())


def test_one_for_which_publishers_wait_has_slack() -> None:
    async def scenario() -> None:
        counted: list[int] = []
        queue = ItemQueue(1000, 10, counted.append, slack_bytes=10_000)
        queue.put([item(number, 100) for number in range(20)])
        assert queue.is_full
        assert not counted
        waiting = asyncio.ensure_future(queue.wait_for_room())
        await asyncio.sleep(0)
        assert not waiting.done()
        await take_all(queue)
        await waiting
        queue.put([item(number, 1000) for number in range(20, 40)])
        assert counted

    asyncio.run(scenario())


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(0, 2)), max_size=40), st.integers(1, 5))
def test_nothing_is_missing_without_a_gap(steps: list[tuple[int, bool, int]], messages_max: int) -> None:
    """Publications come, with holes that were lost or that nobody wants; some are taken meanwhile."""

    async def scenario() -> None:
        queue = ItemQueue(1 << 20, messages_max, lambda _count: None)
        number, lost, owed = 0, set[int](), 0
        taken: list[Item] = []
        for step, is_wanted, takes in steps:
            gap = step - 1
            lost.update(range(number + 1, number + step))
            number += step
            if is_wanted:
                queue.put([item(number, gap=gap)])
            elif gap:
                queue.owe(ORIGIN, STREAM, gap)
                owed += gap
            else:
                lost.discard(number)
            if is_wanted:
                lost.add(number)  # until it is taken
            if takes and len(queue):
                taken += await queue.take()
        while len(queue):
            taken += await queue.take()
        lost.difference_update(each.number for each in taken)
        before = 0
        for each in taken:
            missing = len([number for number in lost if before < number < each.number])
            assert each.gap == missing
            before = each.number

    asyncio.run(scenario())
