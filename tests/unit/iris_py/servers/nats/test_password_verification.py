"""Passwords of NATS clients: verified in threads, a few at a time, and fewest for addresses with many wrong ones."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

from iris_py.doors.nats.passwords import hash_password
from iris_py.doors.nats.session import SessionEnd
from iris_py.doors.nats.users import NatsUser, PasswordQuestion
from iris_py.servers.nats import password_verification
from iris_py.servers.nats.password_verification import FAILURES_BURST, VERIFICATIONS_MAX, PasswordVerification

if TYPE_CHECKING:
    import pytest

    from iris_py.doors.nats.passwords import PasswordHash
    from iris_py.doors.nats.session import NatsSession

ANN = NatsUser("ann")
RIGHT = "right"


class Hash:
    """A hash that counts how often it is compared, and how often at a time."""

    def __init__(self) -> None:
        self.count = self.most = self._now = 0
        self._lock = threading.Lock()
        self.gate = threading.Event()
        self.gate.set()

    def verify(self, password: str) -> bool:
        with self._lock:
            self.count += 1
            self._now += 1
            self.most = max(self.most, self._now)
        self.gate.wait(30)
        with self._lock:
            self._now -= 1
        return password == RIGHT

    def text(self) -> str:
        return "hash"


class Session:
    """A session that remembers its answer."""

    def __init__(self) -> None:
        self.end: SessionEnd | None = None
        self.answers: list[NatsUser | None] = []

    def authenticate(self, user: NatsUser | None) -> None:
        self.answers.append(user)


class Door:
    """The passwords of a door."""

    def __init__(self) -> None:
        self.hash = Hash()
        self.passwords = PasswordVerification()

    def question(self, password: str) -> PasswordQuestion:
        return PasswordQuestion(ANN, cast("PasswordHash", self.hash), password)

    async def ask(self, password: str, address: str, session: Session | None = None) -> Session:
        session = session or Session()
        await self.passwords.verify(cast("NatsSession", session), self.question(password), address)
        return session


def test_a_storm_of_one_address_leaves_places_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_verification, "FAILURE_S", 3600.0)

    async def main() -> None:
        door = Door()
        storm = [asyncio.create_task(door.ask(f"wrong {number}", "10.0.0.1")) for number in range(200)]
        assert (await door.ask(RIGHT, "10.0.0.2")).answers == [ANN]
        assert door.hash.count <= FAILURES_BURST + VERIFICATIONS_MAX + 1
        assert door.hash.most <= VERIFICATIONS_MAX
        for task in storm:
            task.cancel()
        door.passwords.close()

    asyncio.run(main())


def test_an_address_with_wrong_passwords_gets_in_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(password_verification, "FAILURE_S", 0.0)
    monkeypatch.setattr(password_verification, "PAUSE_S", 0.0)

    async def main() -> None:
        door = Door()
        for number in range(FAILURES_BURST + 1):
            assert (await door.ask(f"wrong {number}", "2001:db8::1")).answers == [None]
        door.hash.most = 0
        sessions = await asyncio.gather(*(door.ask(RIGHT, f"2001:db8::{number}") for number in range(2, 9)))
        assert [session.answers for session in sessions] == [[ANN]] * 7
        assert door.hash.most == 1, "all addresses of a network count as one"
        door.passwords.close()

    asyncio.run(main())


def test_a_session_that_has_ended_costs_nothing() -> None:
    async def main() -> None:
        door = Door()
        door.hash.gate.clear()
        first = [asyncio.create_task(door.ask(RIGHT, "10.0.0.1")) for _ in range(VERIFICATIONS_MAX)]
        gone = Session()
        waiting = asyncio.create_task(door.ask(RIGHT, "10.0.0.1", gone))
        await asyncio.sleep(0)
        gone.end = SessionEnd.GONE
        door.hash.gate.set()
        await asyncio.gather(*first, waiting)
        assert (door.hash.count, gone.answers) == (VERIFICATIONS_MAX, [])
        door.passwords.close()

    asyncio.run(main())


def test_a_known_password_is_answered_at_once() -> None:
    async def main() -> None:
        door = Door()
        session = cast("NatsSession", known := Session())
        assert not door.passwords.try_verify(session, door.question(RIGHT))
        assert (await door.ask(RIGHT, "10.0.0.1")).answers == [ANN]
        assert door.passwords.try_verify(session, door.question(RIGHT))
        assert not door.passwords.try_verify(session, door.question("wrong"))
        assert (known.answers, door.hash.count) == ([ANN], 1)
        await asyncio.gather(*(door.ask(RIGHT, "10.0.0.1") for _ in range(100)))
        assert door.hash.count == 1, "a crowd with one password costs one hash"
        unknown = PasswordQuestion(None, hash_password("x", bytes(16)), RIGHT)
        assert not door.passwords.try_verify(session, unknown)
        door.passwords.close()

    asyncio.run(main())
