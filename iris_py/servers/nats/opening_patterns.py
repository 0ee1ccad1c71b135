"""The patterns of NATS clients that not every publisher knows yet (docs/design.md 18.6)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.doors.rights import covers

if TYPE_CHECKING:
    from iris_py.doors.nats.subscription import PatternKey
    from iris_py.patterns.topic.names import Tokens
    from iris_py.servers.shared_subscription import SharedSubscription

__all__ = ["OpeningPatterns"]

#: The longest wait of a PONG for new patterns (seconds): a publisher that does not answer must not stop a client.
KNOWN_S: Final = 1.0


class _PongWaiter(NamedTuple):
    """A PONG that waits for all patterns up to a number."""

    number: int
    known: asyncio.Future[None]


class OpeningPatterns:
    """The subscriptions of the node that are just opened, and the PONGs that wait for them.

    Patterns have ascending numbers. A PONG waits until the oldest opening pattern is younger than itself. Hence thousands of
    clients that connect together wait for thousands of patterns, at a constant cost for each.
    """

    def __init__(self) -> None:
        self._numbers: dict[SharedSubscription, int] = {}  # in ascending order
        self._groups: dict[SharedSubscription, Tokens] = {}  # the patterns of queue groups
        self._last = 0
        self._waiters: deque[_PongWaiter] = deque()  # by ascending number

    def __len__(self) -> int:
        """Return the number of patterns that not every publisher knows."""
        return len(self._numbers)

    def __contains__(self, shared: SharedSubscription) -> bool:
        """Return whether not every publisher knows the pattern of a subscription."""
        return shared in self._numbers

    def add(self, shared: SharedSubscription, key: PatternKey) -> None:
        """Add a subscription that is just opened."""
        self._last += 1
        self._numbers[shared] = self._last
        if key.group:
            self._groups[shared] = tuple(key.pattern.split("."))
        shared.when_open(self.discard)

    def discard(self, shared: SharedSubscription) -> None:
        """Forget a subscription that every publisher knows, or that has failed or is closed. Harmless if repeated."""
        if self._numbers.pop(shared, None) is not None:
            self._groups.pop(shared, None)
            self._wake()

    def has_group(self, topic: str) -> bool:
        """Return whether a pattern of a queue group matches a topic."""
        if not self._groups:
            return False
        tokens = tuple(topic.split("."))
        return any(covers(pattern, tokens) for pattern in self._groups.values())

    async def wait(self) -> None:
        """Return when every publisher knows the present patterns, after `KNOWN_S` at the latest."""
        if not self._numbers:
            return
        known = asyncio.get_running_loop().create_future()
        self._waiters.append(_PongWaiter(self._last, known))
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await known

    # --

    def _wake(self) -> None:
        first = next(iter(self._numbers.values()), inf)
        while self._waiters and self._waiters[0].number < first:
            known = self._waiters.popleft().known
            if not known.done():
                known.set_result(None)
