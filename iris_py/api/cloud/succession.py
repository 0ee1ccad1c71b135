"""The succession of upstreams: when the gateway at the other end breaks or leaves, the next upstream takes over (design 15.76).

An *upstream* is a duplex by which publications of another cloud come from a gateway. The next upstream replaces a broken
upstream after a pause. When a gateway leaves in order, the receiver opens the *successor* beside the present upstream. The
receiver holds the successor's publications until the gateway has confirmed all patterns, and the leaving gateway has sent all
publications. No publication is missing between the two, and the order stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from iris_py.errors import TunnelBroken, TunnelClosed
from iris_py.federation import items

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_py.api.cloud.duplex import GatewayDuplex
    from iris_py.federation.items import Item

#: The pause before the next gateway is tried after a break, at first and at most (seconds). Too small: nodes crowd a gateway
#: that has just started; too large: messages are missed or wait although a gateway is available.
RETRY_MIN_S: Final = 0.1
RETRY_MAX_S: Final = 5.0
#: Failures in a row that are counted for the length of a pause, which is at its maximum long before.
FAILURES_MAX: Final = 16
#: Bytes of publications held for one upstream. Beyond it, publishers that wait go on waiting, and for others the upstream takes
#: over at once. Too small: under load, messages that still come from a leaving gateway are given up; too large: memory.
HELD_BYTES_MAX: Final = 16 * 1024 * 1024

AnyDuplex = TypeVar("AnyDuplex", bound="GatewayDuplex[Any]")
AnyUpstream = TypeVar("AnyUpstream", bound="Upstream[Any]")


class Upstream(Generic[AnyDuplex]):
    """A duplex by which publications come.

    Args:
        duplex: The duplex, just opened.
        is_blocking: Whether publishers wait for the receiver.
        look_s: The longest time without a call of :meth:`write`, in seconds; no limit by default.

    Attributes:
        duplex: The duplex.
        is_blocking: Whether publishers wait for the receiver.
        is_leaving: Whether another upstream should take over, because the gateway leaves.
        is_ready: Whether all wanted patterns are confirmed.
        is_full: Whether the held publications fill their bound.
        is_over: Whether the duplex is no longer used.
    """

    def __init__(self, duplex: AnyDuplex, *, is_blocking: bool, look_s: float | None = None) -> None:
        self.duplex = duplex
        self.is_leaving = self.is_ready = self.is_full = self.is_over = False
        self.is_blocking = is_blocking
        self._look_s = look_s
        self._due = asyncio.Event()  # something may have to be written
        self._note: Callable[[], object] = _ignore
        self._held: list[list[Item]] | None = None
        self._held_bytes = 0
        self._released = asyncio.Event()
        self._flush: asyncio.Future[None] | None = None  # of the question that is open
        self._next_flush: asyncio.Future[None] | None = None  # of all questions that came meanwhile
        self._last_flush = 0
        self._task: asyncio.Task[None] | None = None

    # -- for the subclass

    async def read(self) -> None:
        """Read the duplex until the end; must not raise an error of the duplex."""
        raise NotImplementedError

    async def write(self) -> bool:
        """Send the due messages; return whether the duplex is still wanted."""
        raise NotImplementedError

    def deliver(self, received: list[Item]) -> None:
        """Hand out received publications."""
        raise NotImplementedError

    async def take(self, received: list[Item]) -> bool:
        """Hand out or hold received publications; return whether the publications were handed out."""
        if self._held is None:
            self.deliver(received)
            return True
        self._held.append(received)
        self._held_bytes += sum([item.size for item in received])
        if self._held_bytes >= HELD_BYTES_MAX:
            self.is_full = True
            self._note()
            await self._released.wait()
        return False

    def note(self, *, is_ready: bool | None = None, is_leaving: bool | None = None) -> None:
        """Change the state of the upstream."""
        self.is_ready = self.is_ready if is_ready is None else is_ready
        self.is_leaving = self.is_leaving if is_leaving is None else is_leaving
        self._note()

    def handle_flushed(self, message: bytes) -> None:
        """Handle a FLUSHED message.

        Raises:
            ItemError: The message is malformed.
        """
        if items.decode_flush(message) == self._last_flush and self._flush is not None:
            _resolve(self._flush)
            self._flush = None
            self._due.set()

    # -- for the owner

    async def flush(self) -> None:
        """Return when all publications received by the other end so far have come, or at the end of the duplex.

        All callers that wait for an answer share the next question.
        """
        if self.is_over:
            return
        if self._next_flush is None:
            self._next_flush = asyncio.get_running_loop().create_future()
            self._due.set()
        await asyncio.shield(self._next_flush)

    # -- for the succession

    def start(self, spawn: Callable[[Any], asyncio.Task[None]], note: Callable[[], object], *, is_held: bool) -> None:
        """Begin to read and write.

        Args:
            spawn: Runs a coroutine as a task.
            note: Called after a change of the state.
            is_held: Whether publications are held until :meth:`release`.
        """
        self._note = note
        self._held = [] if is_held else None
        self._task = spawn(self._run(spawn))

    def handle_changed(self) -> None:
        """Call :meth:`write`, to send new messages."""
        self._due.set()

    def release(self) -> None:
        """Hand out the held publications, and from now on all publications at once."""
        held, self._held = self._held, None
        for received in held or ():
            self.deliver(received)
        self._released.set()

    async def end(self) -> None:
        """End the use of the duplex.

        Raises:
            Exception: The code of the subclass has failed.
        """
        task = self._task
        if task is not None:
            self.abort()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def abort(self) -> None:
        """End the use of the duplex, without waiting."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, spawn: Callable[[Any], asyncio.Task[None]]) -> None:
        reader = spawn(self.read())
        reader.add_done_callback(lambda _reader: self._due.set())
        try:
            while not reader.done():
                self._due.clear()
                if not await self.write():
                    break
                await self._ask_flush()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._look_s):
                        await self._due.wait()
        except (TunnelBroken, TunnelClosed):
            pass
        finally:
            self.is_over = True
            reader.cancel()
            self.duplex.break_off("nobody subscribes here any more")
            for flushed in (self._flush, self._next_flush):
                _resolve(flushed)
            self._note()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def _ask_flush(self) -> None:
        """Send the next question, if the last question is answered."""
        if self._next_flush is not None and self._flush is None:
            self._flush, self._next_flush = self._next_flush, None
            self._last_flush = self._last_flush + 1 & 0xFFFF_FFFF
            await self.duplex.send(items.encode_flush(items.FLUSH, self._last_flush))


class Succession(Generic[AnyUpstream]):
    """The upstreams of a receiver in succession.

    Args:
        open_next: Opens an upstream, beside the present upstream if given; returns None without success.
        is_wanted: Tells whether an upstream is wanted.
        handle_ended: Called after the end of an upstream, before the next upstream hands out publications.
        spawn: Runs a coroutine as a task.
        seed: Seeds the random lengths of the pauses.
    """

    def __init__(
        self,
        open_next: Callable[[AnyUpstream | None], Awaitable[AnyUpstream | None]],
        is_wanted: Callable[[], bool],
        handle_ended: Callable[[AnyUpstream], object],
        spawn: Callable[[Any], asyncio.Task[None]],
        seed: str,
    ) -> None:
        self._open_next = open_next
        self._is_wanted = is_wanted
        self._handle_ended = handle_ended
        self._spawn = spawn
        self._rng = random.Random(seed)  # noqa: S311 - when to try again
        self._changed = asyncio.Event()
        self._failures = 0
        self._present: AnyUpstream | None = None
        self._successor: AnyUpstream | None = None

    @property
    def upstreams(self) -> list[AnyUpstream]:
        """The upstreams in use: the present upstream and the successor."""
        return [each for each in (self._present, self._successor) if each is not None]

    def handle_changed(self) -> None:
        """Write to the upstreams, or end the pause: the owner has new work."""
        self._changed.set()
        for upstream in self.upstreams:
            upstream.handle_changed()

    def succeed(self) -> None:
        """Begin with the shortest pause again: the other side has accepted."""
        self._failures = 0

    async def run(self) -> None:
        """Use upstreams in succession, as long as the owner wants an upstream."""
        try:
            while self._is_wanted():
                if self._successor is None:
                    opened = await self._open_next(None)
                    if opened is not None:
                        self._start(opened, is_held=False)
                        self._successor = opened
                present, self._successor = self._successor, None
                if present is not None:
                    self._present = present
                    present.release()
                    await self._follow(present)
                    self._present = None
                    self._handle_ended(present)
                if self._is_wanted() and self._successor is None:
                    await self.pause()
        finally:
            for upstream in self.upstreams:
                upstream.abort()

    async def pause(self) -> None:
        """Wait before the next attempt, or until a change. The pause doubles with every failure."""
        self._changed.clear()
        delay_s = min(RETRY_MAX_S, RETRY_MIN_S * 2**self._failures) * self._rng.uniform(0.5, 1)
        self._failures = min(self._failures + 1, FAILURES_MAX)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._changed.wait()

    # --

    def _start(self, upstream: AnyUpstream, *, is_held: bool) -> None:
        upstream.start(self._spawn, self._changed.set, is_held=is_held)

    async def _follow(self, present: AnyUpstream) -> None:
        """Use an upstream until the end, or until a successor takes over."""
        while not present.is_over:
            if present.is_leaving and self._is_wanted():
                await self._hand_over(present)
                if self._successor is not None:
                    break
                await self.pause()
            else:
                await self._until(lambda: present.is_over or present.is_leaving)
        await present.end()

    async def _hand_over(self, present: AnyUpstream) -> None:
        """Open a successor, and wait until all publications have come over the present upstream."""
        successor = await self._open_next(present)
        if successor is None:
            return
        self._start(successor, is_held=True)
        self._successor = successor
        await self._until(lambda: successor.is_ready or successor.is_full or successor.is_over or present.is_over)
        if not successor.is_over and not present.is_over:
            flushing = asyncio.ensure_future(present.flush())
            flushing.add_done_callback(lambda _flushing: self._changed.set())
            waits = successor.is_blocking  # nothing is lost, so the publications of the present one are waited for
            await self._until(lambda: flushing.done() or (successor.is_full and not waits) or successor.is_over)
            flushing.cancel()
        if successor.is_over:
            self._successor = None
            await successor.end()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()


def _resolve(flushed: asyncio.Future[None] | None) -> None:
    if flushed is not None and not flushed.done():
        flushed.set_result(None)


def _ignore() -> None:
    """Stand for the owner before the start of an upstream."""
