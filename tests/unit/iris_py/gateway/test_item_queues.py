"""Queues of publications at a gateway: what is dropped shows in a gap, at the right place."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.federation.items import ITEM_MESSAGE_BYTES, PUBLICATIONS_MAX, Item, ItemError
from iris_py.gateway.item_queues import MARKS_MAX, ItemQueue, Memory

ORIGIN, SEQUENCE = b"o" * 16, b"s" * 4


def item(number: int, size: int = 0, gap: int = 0, count: int = 1) -> Item:
    return Item("t", [bytes(size)] * count, number, ORIGIN, SEQUENCE, gap)


def singly(items: list[Item]) -> list[tuple[int, int]]:
    """Return the number of each publication, and the gap before it."""
    return [(item.number + at, 0 if at else item.gap) for item in items for at in range(len(item.payloads))]


async def take_all(queue: ItemQueue) -> list[tuple[int, int]]:
    taken: list[Item] = []
    while len(queue):
        taken += await take(queue)
    return singly(taken)


async def take(queue: ItemQueue) -> list[Item]:
    taken = await queue.take()
    assert isinstance(taken, list)
    return taken


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


def test_of_a_run_the_first_ones_are_dropped_and_no_more_than_needed() -> None:
    async def scenario() -> None:
        counted: list[int] = []
        queue = ItemQueue(1 << 20, 3, counted.append)
        run = item(0, count=10, gap=1)
        queue.put([run])
        assert (counted, len(queue)) == ([7], 3)
        assert await take_all(queue) == [(7, 8), (8, 0), (9, 0)]
        assert queue.bytes == 0
        assert len(run.payloads) == 10, "it may be in other queues"

    asyncio.run(scenario())


def test_a_message_takes_as_much_of_a_run_as_fits_and_the_next_one_the_rest() -> None:
    async def scenario() -> None:
        queue = ItemQueue(1 << 30, 1 << 20, lambda _count: None)
        queue.put([item(0, count=PUBLICATIONS_MAX - 1), item(PUBLICATIONS_MAX - 1, count=3, gap=2)])
        first, second = await take(queue)
        assert (len(first.payloads), len(second.payloads), second.gap) == (PUBLICATIONS_MAX - 1, 1, 2)
        queue.put([item(PUBLICATIONS_MAX + 2, 2 * ITEM_MESSAGE_BYTES, count=2)])
        assert singly(await take(queue)) == [(PUBLICATIONS_MAX, 0), (PUBLICATIONS_MAX + 1, 0)], "the large one goes by itself"
        assert singly(await take(queue)) == [(PUBLICATIONS_MAX + 2, 0)]
        assert singly(await take(queue)) == [(PUBLICATIONS_MAX + 3, 0)]
        assert (len(queue), queue.bytes) == (0, 0)

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
        queue.owe(ORIGIN, SEQUENCE, 3)
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


def test_a_mark_comes_behind_what_was_queued_before_it_whatever_is_dropped() -> None:
    async def scenario() -> None:
        queue = ItemQueue(1 << 20, 3, lambda _count: None)
        queue.mark(b"first")
        queue.put([item(1, count=2)])
        queue.mark(b"second")
        queue.put([item(3)])
        assert await queue.take() == b"first"
        assert singly(await take(queue)) == [(1, 0), (2, 0)]
        assert await queue.take() == b"second"
        queue.mark(b"third")
        queue.put([item(4, count=3)])
        assert await queue.take() == b"third", "those before it were dropped"
        assert singly(await take(queue)) == [(4, 1), (5, 0), (6, 0)]
        waiting = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        queue.mark(b"last")
        assert await waiting == b"last"

    asyncio.run(scenario())


def test_a_mark_comes_behind_a_run_that_is_taken_in_parts() -> None:
    async def scenario() -> None:
        queue = ItemQueue(1 << 20, 1 << 20, lambda _count: None)
        queue.put([item(1, count=PUBLICATIONS_MAX + 1)])
        queue.mark(b"mark")
        assert len((await take(queue))[0].payloads) == PUBLICATIONS_MAX
        assert singly(await take(queue)) == [(PUBLICATIONS_MAX + 1, 0)]
        assert await queue.take() == b"mark"

    asyncio.run(scenario())


def test_an_end_that_asks_and_does_not_read_has_few_marks() -> None:
    async def scenario() -> None:
        queue = ItemQueue(1 << 20, 3, lambda _count: None)
        for _ in range(MARKS_MAX):
            queue.mark(b"")
        with pytest.raises(ItemError):
            queue.mark(b"")

    asyncio.run(scenario())


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4), st.booleans()), max_size=40),
    st.integers(1, 5),
)
def test_nothing_is_missing_without_a_gap(steps: list[tuple[int, int, bool]], messages_max: int) -> None:
    """Runs come, with holes that were lost or that nobody wants; some are taken meanwhile."""

    async def scenario() -> None:
        queue = ItemQueue(1 << 20, messages_max, lambda _count: None)
        number, lost = 0, set[int]()
        taken: list[Item] = []
        for step, wanted, takes in steps:
            gap = step - 1
            lost.update(range(number + 1, number + step))
            number += step
            if wanted:
                queue.put([item(number, gap=gap, count=wanted)])
                lost.update(range(number, number + wanted))  # until they are taken
                number += wanted - 1
            elif gap:
                queue.owe(ORIGIN, SEQUENCE, gap)
            if takes and len(queue):
                taken += await take(queue)
        while len(queue):
            taken += await take(queue)
        lost.difference_update(number for number, _gap in singly(taken))
        before = 0
        for number, gap in singly(taken):
            assert gap == len([each for each in lost if before < each < number])
            before = number

    asyncio.run(scenario())
