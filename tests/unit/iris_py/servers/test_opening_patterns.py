"""PONGs of NATS clients: each waits for the patterns before it, and for no later one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from iris_py.doors.nats.subscription import PatternKey
from iris_py.servers.nats.opening_patterns import OpeningPatterns

if TYPE_CHECKING:
    from collections.abc import Callable


class Opened:
    """A subscription of the node, which is open when the test says so."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []

    def when_open(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    def open(self) -> None:
        for callback in self.callbacks:
            callback(self)


def add(patterns: OpeningPatterns, pattern: str = "a", group: str = "") -> Opened:
    opened = Opened()
    patterns.add(opened, PatternKey(pattern, group))  # type: ignore[arg-type]
    return opened


async def rest() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_pong_waits_for_the_patterns_before_it_and_for_no_later_one() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        first, second = add(patterns), add(patterns)
        pong = asyncio.create_task(patterns.wait())
        await rest()
        third = add(patterns)
        later = asyncio.create_task(patterns.wait())
        await rest()
        second.open()
        await rest()
        assert not pong.done(), "the first pattern is still opening"
        first.open()
        await rest()
        assert pong.done()
        assert not later.done()
        assert len(patterns) == 1
        patterns.discard(third)  # type: ignore[arg-type]
        await later

    asyncio.run(main())


def test_a_pong_does_not_wait_without_an_opening_pattern() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        add(patterns).open()
        pong = asyncio.create_task(patterns.wait())
        await rest()
        assert pong.done()

    asyncio.run(main())


def test_a_cancelled_wait_holds_up_no_other() -> None:
    async def main() -> None:
        patterns = OpeningPatterns()
        opened = add(patterns)
        cancelled, pong = (asyncio.create_task(patterns.wait()) for _ in range(2))
        await rest()
        cancelled.cancel()
        await rest()
        opened.open()
        await pong

    asyncio.run(main())


def test_topics_of_opening_queue_groups_are_known() -> None:
    patterns = OpeningPatterns()
    opened = add(patterns, "a.*", "q")
    add(patterns, "b.*")
    assert [patterns.has_group(topic) for topic in ("a.x", "a", "b.x")] == [True, False, False]
    opened.open()
    assert not patterns.has_group("a.x")
