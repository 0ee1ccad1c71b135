"""Meters: the bytes of one stream to another cloud, counted and slowed as its rule says (docs/design.md 15.82)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.federation.limits import Account, RuleLimits


class Meter:
    """The meter of one stream.

    Args:
        limits: Those of its rule.
        account: That of its rule.
    """

    def __init__(self, limits: RuleLimits, account: Account) -> None:
        self._limits = limits
        self._account = account
        self._loop = asyncio.get_running_loop()

    def send(self, size: int, *, is_last: bool) -> float:
        """Count bytes that are to go to the neighbour, if the limits allow them.

        Args:
            size: How many.
            is_last: Whether a message ends with them.

        Returns:
            0 if they may go; otherwise in how many seconds they may, and nothing was counted.
        """
        wait_s = self._limits.pass_stream(size, self._loop.time(), is_out=True)
        if not wait_s:
            self._account.sent(is_last, size)
        return wait_s

    def receive(self, size: int, *, is_last: bool) -> float:
        """Count bytes that came from the neighbour, if the limits allow them, as :meth:`send`."""
        wait_s = self._limits.pass_stream(size, self._loop.time(), is_out=False)
        if not wait_s:
            self._account.received(is_last, size)
        return wait_s

    async def wait_to_send(self, size: int) -> None:
        """Count a message that is to go to the neighbour, as soon as the limits allow it."""
        await _sleep(partial(self.send, size, is_last=True))

    async def wait_to_receive(self, size: int) -> None:
        """Count a message that came from the neighbour, as soon as the limits allow it."""
        await _sleep(partial(self.receive, size, is_last=True))


async def _sleep(wait_s: Callable[[], float]) -> None:
    """Sleep as long as it says, until it says 0."""
    left = wait_s()
    while left:
        await asyncio.sleep(left)
        left = wait_s()


async def wait_for_limits(limits: RuleLimits, size: int, *, is_out: bool) -> None:
    """Wait until so many bytes may pass, and count them.

    Args:
        limits: Those of the rule.
        size: How many.
        is_out: Whether they go out of this cloud.
    """
    now = asyncio.get_running_loop().time
    await _sleep(lambda: limits.pass_stream(size, now(), is_out=is_out))
