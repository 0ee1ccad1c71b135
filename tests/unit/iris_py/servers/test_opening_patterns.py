"""A PONG waits for the earlier patterns of its NATS client, and not for the patterns of other clients."""

from __future__ import annotations

import asyncio

from iris_py.doors.nats.subscription import PatternKey
from iris_py.servers.nats.opening_patterns import OpeningPatterns


def add(patterns: OpeningPatterns, pattern: str, client: str = "ann", group: str = "") -> PatternKey:
    key = PatternKey(pattern, group)
    patterns.add(key, client)
    return key


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_pong_waits_for_the_patterns_before_it_and_for_no_later_one() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        first, second = add(patterns, "first"), add(patterns, "second")
        pong = asyncio.create_task(patterns.wait("ann"))
        await rest()
        third = add(patterns, "third")
        later = asyncio.create_task(patterns.wait("ann"))
        await rest()
        patterns.discard(second)
        await rest()
        assert not pong.done(), "the first pattern is still opening"
        patterns.discard(first)
        await rest()
        assert pong.done()
        assert not later.done()
        assert len(patterns) == 1
        patterns.discard(third)
        await later
        assert not patterns

    asyncio.run(main())


def test_a_pong_does_not_wait_for_the_patterns_of_other_clients() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        add(patterns, "other", "bob")
        assert not patterns.has_some_of("ann")
        await patterns.wait("ann")
        own = add(patterns, "own")
        pong = asyncio.create_task(patterns.wait("ann"))
        await rest()
        assert patterns.has_some_of("ann")
        assert not pong.done()
        patterns.discard(own)
        await pong

    asyncio.run(main())


def test_a_pong_waits_for_a_pattern_that_another_client_had_before() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        key = add(patterns, "both", "bob")
        for _ in range(2):
            add(patterns, "both", "ann")
        pongs = [asyncio.create_task(patterns.wait(client)) for client in ("ann", "bob")]
        await rest()
        assert not any(pong.done() for pong in pongs)
        patterns.discard(key)
        await asyncio.gather(*pongs)
        assert not patterns

    asyncio.run(main())


def test_a_pong_does_not_wait_without_an_opening_pattern() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        patterns.discard(add(patterns, "a"))
        pong = asyncio.create_task(patterns.wait("ann"))
        await rest()
        assert pong.done()

    asyncio.run(main())


def test_a_cancelled_wait_holds_up_no_other() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        key = add(patterns, "a")
        cancelled, pong = (asyncio.create_task(patterns.wait("ann")) for _ in range(2))
        await rest()
        cancelled.cancel()
        await rest()
        patterns.discard(key)
        await pong

    asyncio.run(main())


def test_topics_of_opening_queue_groups_are_known() -> None:
    patterns = OpeningPatterns()
    key = add(patterns, "a.*", group="q")
    add(patterns, "b.*")
    assert [patterns.has_group(topic) for topic in ("a.x", "a", "b.x")] == [True, False, False]
    patterns.discard(key)
    assert not patterns.has_group("a.x")


def test_a_message_waits_for_queue_groups_alone() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        add(patterns, "plain")
        await patterns.wait_for_groups()
        groups = [add(patterns, "a.*", client, "q") for client in ("ann", "bob")]
        message = asyncio.create_task(patterns.wait_for_groups())
        await rest()
        assert not message.done()
        patterns.discard(groups[0])
        await message

    asyncio.run(main())
