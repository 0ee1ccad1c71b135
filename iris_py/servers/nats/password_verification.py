"""Verifies passwords of NATS clients in threads, so that a storm of wrong ones holds up nobody else (docs/design.md 18.5)."""

from __future__ import annotations

import asyncio
import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from iris_py.doors.limits import RateLimits
from iris_py.doors.nats.passwords import KnownPasswords
from iris_py.peers.eviction import network_of

if TYPE_CHECKING:
    from iris_py.doors.nats.session import NatsSession
    from iris_py.doors.nats.users import PasswordQuestion

__all__ = ["PasswordVerification"]

#: Passwords verified at a time: one processor stays for the event loop. Too small: clients that reconnect together wait; too
#: large: connected clients wait.
VERIFICATIONS_MAX: Final = max(1, min(4, (os.cpu_count() or 1) - 1))
#: The same for addresses with too many wrong passwords, all together. Too small: clients beside a program with an old password
#: do not get in; too large: a storm of wrong passwords takes the places of others.
SUSPECTS_MAX: Final = 1
#: Wrong passwords of one address, a second and at once after a pause. Beyond it a verification waits for `FAILURE_S` (seconds).
#: Too small: a program with an old password locks out its neighbours; too large: passwords are guessed.
FAILURES_PER_S: Final = 10 / 60
FAILURES_BURST: Final = 10
FAILURE_S: Final = 1.0
#: Pause behind a wrong password of such an address (seconds). Too small: a storm keeps a processor busy; too large:
#: clients beside a program with an old password do not get in.
PAUSE_S: Final = 0.25
_KEY_BYTES: Final = 32


class PasswordVerification:
    """Verifies passwords, and remembers right ones.

    The threads have the priority of the event loop. With a lower one, on a busy machine, a thread loses the processor while it
    holds the lock of the interpreter, and the event loop stands still for as long.
    """

    def __init__(self) -> None:
        self._known = KnownPasswords(secrets.token_bytes(_KEY_BYTES))
        self._failures = RateLimits(FAILURES_PER_S, FAILURES_BURST)
        self._trusted = asyncio.Semaphore(VERIFICATIONS_MAX)
        self._suspects = asyncio.Semaphore(SUSPECTS_MAX)
        self._threads = ThreadPoolExecutor(VERIFICATIONS_MAX, "iris-password")

    def try_verify(self, session: NatsSession, question: PasswordQuestion) -> bool:
        """Answer a question at once if the password is known to be right; return whether it is."""
        if not self._known.has(question.password_hash, question.password, self._now()):
            return False
        session.authenticate(question.user)
        return True

    async def verify(self, session: NatsSession, question: PasswordQuestion, address: str) -> None:
        """Answer a question. A session that has ended meanwhile costs nothing.

        Args:
            session: The session.
            question: The question.
            address: The address of the client.
        """
        network = network_of(address)
        async with self._trusted:
            if not self._is_suspect(network):
                await self._answer(session, question, network)
                return
        await asyncio.sleep(FAILURE_S)
        async with self._suspects:
            if not await self._answer(session, question, network):
                await asyncio.sleep(PAUSE_S)

    async def _answer(self, session: NatsSession, question: PasswordQuestion, network: str) -> bool:
        """Answer a question; return whether nobody has shown a wrong password."""
        if session.end is not None or self.try_verify(session, question):
            return True
        loop = asyncio.get_running_loop()
        is_right = await loop.run_in_executor(self._threads, question.password_hash.verify, question.password)
        if question.user is None or not is_right:
            self._failures.take(network, self._now())
            session.authenticate(None)
            return False
        self._known.add(question.password_hash, question.password, self._now())
        session.authenticate(question.user)
        return True

    def _is_suspect(self, network: str) -> bool:
        return not self._failures.has_room(network, self._now())

    def close(self) -> None:
        """End the threads. Harmless if repeated."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
