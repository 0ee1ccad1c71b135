"""Event streams of two doors on real nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

import iris_py as iris
from iris_py.doors.rights import Grant, Rights
from iris_py.doors.settings import DoorSettings, HistorySettings
from iris_py.doors.web.event_router import StreamOptions
from iris_py.doors.web.event_text import EventForm
from iris_py.doors.web.histories import OVERLAP_S
from iris_py.servers.web.topic_streams import TopicStreams

if TYPE_CHECKING:
    from iris_py.servers.web.topic_streams import TopicStream
    from tests.integration.conftest import Loops

KEY = bytes(range(32))
ANN = Grant("ann", (Rights(subscribe=(">",)),))
SETTINGS = DoorSettings(histories={"notes.>": HistorySettings("notes.>")})
COUNT = 2000


class Lines:
    """The lines that a client has got, over all its connections."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self.last_id = ""

    async def read(self, stream: TopicStream, count: int) -> None:
        """Read until the client has so many different messages, and close the connection."""
        async for content in stream:
            for line in content.splitlines():
                self.all.append(msgspec.json.decode(line))
                self.last_id = self.all[-1].get("id", self.last_id)
            if len(set(self.numbers)) >= count:
                break
        stream.close()

    @property
    def numbers(self) -> list[int]:
        return [line["json"] for line in self.all if line["kind"] == "message"]


def test_a_client_that_changes_the_door_gets_each_message(loop: Loops) -> None:
    async def main() -> None:
        async with (
            iris.connect() as one,
            iris.connect() as other,
            iris.connect() as publisher,
            TopicStreams(one, SETTINGS, KEY) as here,
            TopicStreams(other, SETTINGS, KEY) as there,
        ):
            assert here.history_node is not None
            assert here.status.subscriptions == 0
            # Clients that resume earlier are told a gap: messages may have come before the doors did.
            came_at = asyncio.get_running_loop().time()
            await loop.until(lambda: asyncio.get_running_loop().time() > came_at + OVERLAP_S)
            lines, plain = Lines(), Lines()
            options = StreamOptions(EventForm("lines"))
            watching = asyncio.ensure_future(plain.read(await here.open(["other.*"], ANN, options), COUNT))
            stream = await here.open(["notes.*"], ANN, options)

            async def publish() -> None:
                for number in range(COUNT):
                    await publisher.publish("notes.ann", b"%d" % number)
                    await publisher.publish("other.ann", b"%d" % number)
                    if number % 50 == 0:
                        await asyncio.sleep(0.001)

            publishing = asyncio.ensure_future(publish())
            await lines.read(stream, COUNT // 4)
            for part, door in ((2, there), (3, here), (4, there)):
                options = StreamOptions(EventForm("lines"), last_event_id=lines.last_id)
                await lines.read(await door.open(["notes.*"], ANN, options), COUNT * part // 4)
            await publishing
            await watching
            assert sorted(set(lines.numbers)) == list(range(COUNT))
            assert plain.numbers == list(range(COUNT))
            assert {line["kind"] for line in [*lines.all, *plain.all]} == {"message", "position"}
            assert here.status.streams == there.status.streams == 0
            assert here.status.history_messages == COUNT

    loop.run(main())
