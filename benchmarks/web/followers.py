"""Clients that come back after each end of their connection, and check the numbers of the messages."""

from __future__ import annotations

import asyncio
import random
import re
import time
from typing import TYPE_CHECKING, Final, cast

from benchmarks.web.clients import CONNECT_PACKET, CONNECTED, HEAD_END, stream_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.worker import Parameters

__all__ = ["EventFollower", "Follower", "SocketFollower"]

#: A client comes back after a time below this one (seconds), so that not all come at once.
PAUSE_S: Final = 0.5
#: Of so many clients, one compares the ids of all its messages with those of the other ones.
COMPARED: Final = 50


class Follower:
    """A client that reads numbered messages at one server, and goes to the next one when its connection ends.

    Args:
        places: The servers.
        number: Its number, which chooses the first server.
        topic: The number of its topic.
        ids: The ids of messages, by number, that all clients of the topic have seen.

    Attributes:
        topic: As passed.
        next_number: The number that comes next.
        missing: Numbers that did not come, without a gap before.
        skipped: Numbers that did not come, after a gap.
        gaps: Gaps that the client was told.
        repeated: Messages that the client had already.
        renamed: Messages that came with two ids.
        returns: The number of times that the client came back.
        away_ms: The times from the end of a connection until the next event.
        is_open: Set after the first answer.
    """

    #: The end of each message.
    ending: bytes
    #: The number of a message.
    number_pattern: re.Pattern[bytes]

    def __init__(self, places: Sequence[Parameters], number: int, topic: int, ids: dict[int, bytes]) -> None:
        self.topic = topic
        self.next_number = 0
        self.missing = self.skipped = self.gaps = self.repeated = self.renamed = self.returns = 0
        self.away_ms: list[float] = []
        self.is_open = asyncio.Event()
        self._places = places
        self._place = number
        self._ids = None if number % COMPARED else ids
        self._has_gap = False
        self._left_at = 0.0

    async def follow(self) -> None:
        """Read messages, and come back after each end, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            place = self._places[self._place % len(self._places)]
            host, _, port = place["address"].rpartition(":")
            try:
                transport, connection = await loop.create_connection(
                    lambda place=place: _Connection(self, self._hello(place)),  # type: ignore[misc]
                    host,
                    int(port),
                )
            except OSError:
                pass
            else:
                try:
                    await connection.ended
                finally:
                    transport.close()
            if self.is_open.is_set():
                self._left_at = self._left_at or time.monotonic()
            self._place += 1
            await asyncio.sleep(random.random() * PAUSE_S)

    def answer(self, received: bytes) -> tuple[bytes, int] | None:
        """Return the bytes to send during the opening, and where the messages begin (-1: later); None to leave."""
        raise NotImplementedError

    def take(self, text: bytes) -> None:
        """Take messages that have come whole."""
        numbers = list(map(int, self.number_pattern.findall(text)))
        if numbers and self._left_at:
            self.returns += 1
            self.away_ms.append((time.monotonic() - self._left_at) * 1000)
            self._left_at = 0.0
        after = self.next_number + len(numbers)
        if numbers == list(range(self.next_number, after)) and not self._has_gap and not self._is_odd(text):
            self.next_number = after
        else:
            self._take_odd(text)
        self._note(text)

    def _hello(self, place: Parameters, **headers: str) -> bytes:
        return stream_head({**place, "path": place["own_path"].format(self.topic)}, **headers)

    def _is_odd(self, text: bytes) -> bool:
        """Tell whether there are other things than messages that count."""
        return False

    def _take_odd(self, text: bytes) -> None:
        for match in self.number_pattern.finditer(text):
            self._count(int(match[1]))

    def _note(self, text: bytes) -> None:
        """Note what else is in the messages."""

    def _count(self, number: int) -> None:
        if number < self.next_number:
            self.repeated += 1
            return
        if self._has_gap:
            self.skipped += number - self.next_number
        else:
            self.missing += number - self.next_number
        self._has_gap = False
        self.next_number = number + 1


class EventFollower(Follower):
    """A client of event streams, which resumes with the last id that it has seen."""

    ending = b"\n\n"
    number_pattern = re.compile(rb'"text":"(\d+)"')
    _odd_pattern = re.compile(rb'"text":"(\d+)"|event: gap\n')
    _id_pattern = re.compile(rb"^id: (.+)$", re.MULTILINE)
    _both_pattern = re.compile(rb'^id: (.+)\nevent: message\n.*"text":"(\d+)"', re.MULTILINE)

    def __init__(self, places: Sequence[Parameters], number: int, topic: int, ids: dict[int, bytes]) -> None:
        super().__init__(places, number, topic, ids)
        self._last_id = ""

    def answer(self, received: bytes) -> tuple[bytes, int] | None:
        at = received.find(HEAD_END)
        if at < 0:
            return b"", -1
        return (b"", at + len(HEAD_END)) if received.startswith(b"HTTP/1.1 200") else None

    def _hello(self, place: Parameters, **headers: str) -> bytes:
        return super()._hello(place, **({"Last-Event-ID": self._last_id} if self._last_id else {}), **headers)

    def _is_odd(self, text: bytes) -> bool:
        return b"event: gap\n" in text

    def _take_odd(self, text: bytes) -> None:
        for match in self._odd_pattern.finditer(text):
            if match[1] is None:
                self.gaps += 1
                self._has_gap = True
            else:
                self._count(int(match[1]))

    def _note(self, text: bytes) -> None:
        at = text.rfind(b"id: ")
        if at >= 0 and (found := self._id_pattern.match(text, at)) is not None:
            self._last_id = found[1].decode()
        if self._ids is not None:
            for event_id, number in self._both_pattern.findall(text):
                self.renamed += self._ids.setdefault(int(number), event_id) != event_id


class SocketFollower(Follower):
    """A client of python-socketio over WebSocket, which cannot resume at another server."""

    ending = b'"]'
    number_pattern = re.compile(rb'42\["m","(\d+)"\]')

    def __init__(self, places: Sequence[Parameters], number: int, topic: int, ids: dict[int, bytes]) -> None:
        super().__init__(places, number, topic, ids)
        self._has_upgraded = False

    def answer(self, received: bytes) -> tuple[bytes, int] | None:
        at = received.find(CONNECTED)
        if at >= 0:
            self._has_upgraded = False
            return b"", at
        if self._has_upgraded or HEAD_END not in received:
            return b"", -1
        if not received.startswith(b"HTTP/1.1 101"):
            return None
        self._has_upgraded = True
        return CONNECT_PACKET, -1

    def _hello(self, place: Parameters, **headers: str) -> bytes:
        self._has_upgraded = False
        return super()._hello(place, **headers)


class _Connection(asyncio.Protocol):
    """One connection of a follower.

    Args:
        follower: The follower.
        hello: The first bytes that it sends.

    Attributes:
        ended: Done after the end.
    """

    def __init__(self, follower: Follower, hello: bytes) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._follower = follower
        self._hello = hello
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._is_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        self._transport.write(self._hello)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        follower = self._follower
        text = self._rest + data if self._rest else data
        if not self._is_open:
            assert self._transport is not None
            answer = follower.answer(text)
            if answer is None:
                self._transport.close()
                return
            reply, at = answer
            if reply:
                self._transport.write(reply)
            if at < 0:
                self._rest = text
                return
            self._is_open = True
            follower.is_open.set()
            text = text[at:]
        end = text.rfind(follower.ending) + len(follower.ending)
        if end < len(follower.ending):
            self._rest = text
            return
        self._rest = text[end:]
        follower.take(text[:end])
