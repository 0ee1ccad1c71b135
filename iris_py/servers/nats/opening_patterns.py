"""The patterns of NATS clients that not every publisher knows yet (docs/design.md 18.6)."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.doors.rights import covers

if TYPE_CHECKING:
    from collections.abc import Hashable

    from iris_py.doors.nats.subscription import PatternKey
    from iris_py.patterns.topic.names import Tokens

__all__ = ["OpeningPatterns"]

#: The longest wait of a PONG for new patterns (seconds): a publisher that does not answer must not stop a client.
KNOWN_S: Final = 1.0
#: In place of a client: the clients of all queue groups.
_GROUPS: Final = "groups"


class _PongWaiter(NamedTuple):
    """A task that waits for all patterns up to a number."""

    number: int
    known: asyncio.Future[None]


class OpeningPatterns:
    """The patterns that the node is about to subscribe to, and the tasks that wait, for example of a PONG.

    The patterns of a client have ascending numbers. A PONG waits until the oldest opening pattern of its client is younger than
    itself. Hence a client waits for own patterns alone, and for thousands at a constant cost per pattern.
    """

    def __init__(self) -> None:
        self._clients: dict[PatternKey, list[Hashable]] = {}
        self._numbers: dict[Hashable, dict[PatternKey, int]] = {}  # by client, in ascending order; also those of all groups
        self._groups: dict[PatternKey, Tokens] = {}  # the patterns of queue groups
        self._last = 0
        self._waiters: dict[Hashable, deque[_PongWaiter]] = {}  # by client, by ascending number

    def __len__(self) -> int:
        """Return the number of patterns that not every publisher knows."""
        return len(self._clients)

    def __contains__(self, key: PatternKey) -> bool:
        """Return whether not every publisher knows a pattern."""
        return key in self._clients

    def has_some_of(self, client: Hashable) -> bool:
        """Return whether not every publisher knows the patterns of a client."""
        return client in self._numbers

    def add(self, key: PatternKey, client: Hashable) -> None:
        """Add a pattern that the node is about to subscribe to, or a further client with it."""
        if key.group and key not in self._groups:
            self._groups[key] = tuple(key.pattern.split("."))
            self._add(key, _GROUPS)
        if key not in self._numbers.get(client, ()):
            self._add(key, client)

    def discard(self, key: PatternKey) -> None:
        """Forget a known, failed or closed pattern. Harmless if repeated."""
        self._groups.pop(key, None)
        for client in self._clients.pop(key, ()):
            numbers = self._numbers[client]
            del numbers[key]
            if not numbers:
                del self._numbers[client]
            if client in self._waiters:
                self._wake(client, next(iter(numbers.values()), inf))

    def has_group(self, topic: str) -> bool:
        """Return whether a pattern of a queue group matches a topic."""
        if not self._groups:
            return False
        tokens = tuple(topic.split("."))
        return any(covers(pattern, tokens) for pattern in self._groups.values())

    async def wait_for_groups(self) -> None:
        """Return when every publisher knows the present patterns of queue groups, after `KNOWN_S` at the latest."""
        await self.wait(_GROUPS)

    async def wait(self, client: Hashable) -> None:
        """Return when every publisher knows the present patterns of a client, after `KNOWN_S` at the latest."""
        if client not in self._numbers:
            return
        known = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(client, deque()).append(_PongWaiter(self._last, known))
        with suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                await known

    # --

    def _add(self, key: PatternKey, client: Hashable) -> None:
        self._last += 1
        self._numbers.setdefault(client, {})[key] = self._last
        self._clients.setdefault(key, []).append(client)

    def _wake(self, client: Hashable, first: float) -> None:
        """Wake the tasks that wait for patterns of a client before its first one."""
        waiters = self._waiters[client]
        while waiters and waiters[0].number < first:
            known = waiters.popleft().known
            if not known.done():
                known.set_result(None)
        if not waiters:
            del self._waiters[client]
