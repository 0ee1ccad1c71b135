"""Event streams of doors on nodes of a virtual network: what clients get, and what nodes subscribe to."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import Grant, Rights
from iris_py.doors.settings import DoorSettings, HistorySettings, WebLimits, WebSettings
from iris_py.doors.web.event_router import STREAM_PATTERNS_MAX, StreamOptions
from iris_py.doors.web.event_text import EventForm
from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.servers.shared_subscription import LINGER_S
from iris_py.servers.web import topic_streams
from iris_py.servers.web.event_response import EventResponse
from iris_py.servers.web.topic_streams import HEARTBEAT_S, STALLED_S, TopicStream, TopicStreams
from iris_py.testing import VirtualNetwork, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from iris_py.api.node import Node

KEY = bytes(range(32))
ANN = Grant("ann", (Rights(subscribe=(">",)),))
LINES = StreamOptions(EventForm("lines"))
HISTORIES = {"notes.>": HistorySettings("notes.>", last=True), "news.*": HistorySettings("news.*")}


def settings(*, histories: bool = True, **limits: int) -> DoorSettings:
    return DoorSettings(web=WebSettings(limits=WebLimits(**limits)), histories=HISTORIES if histories else {})


@asynccontextmanager
async def door(network: VirtualNetwork, given: DoorSettings | None = None) -> AsyncIterator[TopicStreams]:
    node = await network.connect()
    streams = TopicStreams(node, given or settings(), KEY, lambda _config: _connect(network))
    async with streams:
        yield streams


async def _connect(network: VirtualNetwork) -> Node:
    return await network.connect()


class Reader:
    """Reads a stream of lines, as a connection does."""

    def __init__(self, stream: TopicStream) -> None:
        self.stream = stream
        self.lines: list[dict[str, Any]] = []
        self.writes: list[bytes] = []
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for content in self.stream:
            self.writes.append(content)
            self.lines += [msgspec.json.decode(line) for line in content.splitlines()]

    @property
    def last_id(self) -> str:
        return str([line["id"] for line in self.lines if line.get("id")][-1])

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def numbers(self) -> list[Any]:
        return [line["json"] for line in self.of("message")]


async def opened(streams: TopicStreams, *patterns: str, options: StreamOptions = LINES, grant: Grant = ANN) -> Reader:
    reader = Reader(await streams.open(patterns, grant, options))
    await settle()
    return reader


async def settle(seconds: float = 0.1) -> None:
    await asyncio.sleep(seconds)


async def publish(node: Node, topic: str, *numbers: int) -> None:
    for number in numbers:
        await node.publish(topic, b"%d" % number)
    await settle()


def test_messages_come_to_all_streams_by_one_subscription_for_each_pattern() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            readers = [await opened(streams, "other.*") for _ in range(3)]
            two = await opened(streams, "other.*", "other.a.>", "notes.ann", "*.x")
            assert streams.status.subscriptions == 3  # notes.ann has a history
            assert (streams.status.patterns, streams.status.streams) == (4, 4)
            await publisher.publish_many("other.x", [b"1", b"2", b"3"])
            await publish(publisher, "notes.ann", 4)
            for reader in readers:
                assert reader.numbers == [1, 2, 3]
                assert len(reader.writes) == 2  # the beginning, and all messages of a turn
                assert "id" not in reader.of("message")[0]
            assert sorted(two.numbers) == [1, 2, 3, 4]
            assert [bool(line.get("id")) for line in two.of("message")].count(True) == 1

    run(main())


def test_a_subscription_outlives_its_last_stream_by_a_short_time() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            for _ in range(3):
                reader = await opened(streams, "other.*")
                reader.stream.close()
                await reader.task
                assert streams.status.streams == 0
                await settle(LINGER_S * 0.8)
                assert streams.status.subscriptions == 1
            await settle(LINGER_S)
            assert streams.status.subscriptions == 0

    run(main())


def test_a_client_resumes_at_another_door_and_at_this_one() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as here, door(network) as there:
            publisher = await network.connect()
            await settle(10.0)
            first = await opened(here, "notes.*")
            await publish(publisher, "notes.a", 1, 2)
            await settle(10.0)
            await publish(publisher, "notes.a", 3)
            first.stream.close()
            await publish(publisher, "notes.a", 4, 5)
            for streams in (here, there):
                again = await opened(streams, "notes.*", options=StreamOptions(EventForm("lines"), last_event_id=first.last_id))
                await publish(publisher, "notes.b", 6)
                assert again.numbers[:4] == [3, 4, 5, 6]
                assert not again.of("gap")
                assert again.of("message")[0]["id"] == first.last_id

    run(main())


def test_a_heartbeat_tells_a_place_from_which_a_quiet_client_resumes_without_a_gap() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as here, door(network) as there:
            publisher = await network.connect()
            await settle(10.0)
            await publish(publisher, "notes.other", 1)
            quiet = await opened(here, "notes.ann")
            await settle(10 * HEARTBEAT_S)  # so the message has left the histories
            assert len(quiet.of("position")) == 11
            quiet.stream.close()
            await publish(publisher, "notes.ann", 2)
            again = await opened(there, "notes.ann", options=StreamOptions(EventForm("lines"), last_event_id=quiet.last_id))
            assert again.numbers == [2]
            assert not again.of("gap")

    run(main())


def test_a_cursor_that_says_nothing_here_gives_a_gap_and_then_all_that_is_kept() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            await publish(publisher, "notes.a", 1, 2)
            await publish(publisher, "notes.b", 3)
            options = LINES
            for cursor in ("nonsense", "a" * 58, "\N{SNOWMAN}"):
                options = LINES._replace(last_event_id=cursor)
                reader = await opened(streams, "notes.*", options=options)
                assert [line["kind"] for line in reader.lines] == ["gap", *["message"] * 3, "position"]
                assert reader.lines[0]["missed"] is None
                assert reader.numbers == [1, 2, 3]
            newest = await opened(streams, "notes.*", options=options._replace(sends_last=True))
            assert newest.numbers == [2, 3]
            without = await opened(streams, "other.*", options=options)
            assert [line["kind"] for line in without.lines] == ["gap", "position"]

    run(main())


def test_the_newest_message_of_a_topic_is_found_and_comes_first_if_wanted() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            await publish(publisher, "notes.a", 1, 2)
            await publish(publisher, "notes.b", 3)
            await publish(publisher, "news.a", 4)
            await settle(100.0)
            line = streams.last("notes.a")
            assert line is not None
            assert msgspec.json.decode(line)["json"] == 2
            assert streams.last("news.a") is None  # its history keeps messages for 60 s alone
            assert streams.last("other.a") is None
            reader = await opened(streams, "notes.*", options=StreamOptions(EventForm("lines"), sends_last=True))
            await publish(publisher, "notes.a", 5)
            assert reader.numbers == [2, 3, 5]
            assert not reader.of("gap")

    run(main())


def test_streams_end_with_the_grant_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    unix_s = time.time()  # it stands still: a busy machine may take long for what takes no virtual time
    monkeypatch.setattr(topic_streams, "time", SimpleNamespace(time=lambda: unix_s))

    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            reader = await opened(streams, "notes.*", grant=Grant("ann", ANN.rights, unix_s + 20.0))
            await settle(19.0)
            assert not reader.task.done()
            await settle(2.0)
            assert reader.task.done()
            assert reader.lines[-1] == {"kind": "closing", "in_s": 0.0, "reason": "token-expired"}
            assert streams.status.streams == 0

    run(main())


def test_a_drain_spreads_the_ends_and_opens_nothing() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            readers = [await opened(streams, "notes.*") for _ in range(5)]
            began = loop.time()
            draining = asyncio.ensure_future(streams.drain(10.0))
            await settle(5.0)
            with pytest.raises(DoorRefusal) as refused:
                await streams.open(("notes.*",), ANN)
            assert refused.value.name == "closing"
            assert [reader.task.done() for reader in readers] == [True, True, False, False, False]
            await publish(publisher, "notes.a", 1)
            await draining
            assert loop.time() - began == pytest.approx(10.0, abs=0.5)
            assert [reader.of("closing")[0]["in_s"] for reader in readers] == [2.0, 4.0, 6.0, 8.0, 10.0]
            assert all(len(reader.of("closing")) == 1 for reader in readers)
            assert [reader.numbers for reader in readers] == [[], [], [1], [1], [1]]

    run(main())


def test_streams_end_when_the_node_does() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network:
            node = await network.connect()
            async with TopicStreams(node, settings(), KEY, lambda _config: _connect(network)) as streams:
                reader = await opened(streams, "other.*")
                kept = await opened(streams, "notes.*")
                await node.close()
                await settle()
                assert reader.lines[-1] == {"kind": "closing", "in_s": 0.0, "reason": "closing"}
                assert reader.task.done()
                with pytest.raises(NodeClosed):
                    await streams.open(("else.*",), ANN)
                assert not kept.task.done()
                assert streams.history_node is not None
                await streams.history_node.close()
                await settle()
                assert kept.lines[-1]["reason"] == "closing"
                with pytest.raises(DoorRefusal):
                    await streams.open(("notes.*",), ANN)

    run(main())


def test_a_connection_that_takes_nothing_is_aborted_and_others_notice_nothing() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network, settings(window_messages=16)) as streams:
            publisher = await network.connect()
            aborted: list[int] = []
            slow = await streams.open(("other.*",), ANN, LINES, lambda: aborted.append(1))
            await anext(slow)
            reader = await opened(streams, "other.*")
            await publish(publisher, "other.a", *range(100))
            assert reader.numbers == list(range(100))
            content = await anext(slow)  # what it takes now came before the pause
            lines = [msgspec.json.decode(line) for line in content.splitlines()]
            assert lines[0] == {"kind": "gap", "missed": 84}
            assert [line["json"] for line in lines[1:]] == list(range(84, 100))
            await settle(STALLED_S - HEARTBEAT_S)
            assert not aborted
            await settle(2 * HEARTBEAT_S)
            assert aborted == [1]
            assert streams.status.stalled == 1
            assert streams.status.dropped == 84
            assert streams.status.streams == 1
            with pytest.raises(StopAsyncIteration):
                await anext(slow)

    run(main())


def test_other_limits_hold_for_open_streams_and_histories() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network, settings(window_messages=256)) as streams:
            publisher = await network.connect()
            slow = await streams.open(("other.*",), ANN, LINES)
            await anext(slow)
            kept = await opened(streams, "notes.*")
            await publish(publisher, "notes.a", *range(5))
            assert streams.status.history_messages == 5
            changed = settings(window_messages=4, patterns=2)
            streams.apply(replace(changed, histories={**HISTORIES, "notes.>": HistorySettings("notes.>", messages=2)}))
            assert streams.status.history_messages == 2
            await publish(publisher, "other.a", *range(10))
            lines = [msgspec.json.decode(line) for line in (await anext(slow)).splitlines()]
            assert lines[0] == {"kind": "gap", "missed": 6}
            assert [line["json"] for line in lines[1:]] == [6, 7, 8, 9]
            with pytest.raises(DoorRefusal) as refused:
                await streams.open(("more",), ANN)
            assert refused.value.name == "too-many"
            await publish(publisher, "notes.a", *range(5, 25))
            assert kept.numbers == list(range(25))  # it reads, so it misses nothing
            for histories in ({"notes.>": HISTORIES["notes.>"]}, {**HISTORIES, "more": HistorySettings("more")}):
                with pytest.raises(ConfigurationError, match="restart"):
                    streams.apply(replace(changed, histories=histories))

    run(main())


def test_limits_of_patterns_are_kept() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network, settings(patterns=2)) as streams:
            a = await opened(streams, "other.a")
            await opened(streams, "notes.b")
            await opened(streams, "other.a")
            for patterns in (("other.c",), ("notes.c",), ("other.a", "other.b", "other.c"), ("x",) * (STREAM_PATTERNS_MAX + 1)):
                with pytest.raises(DoorRefusal) as refused:
                    await streams.open(patterns, ANN)
                assert refused.value.name == "too-many"
            for wrong in ((), ("a..b",), ("a.>.b",), ("iris.doors",)):
                with pytest.raises(DoorRefusal) as refused:
                    await streams.open(wrong, ANN)
                assert refused.value.name == "invalid"
            assert (streams.status.patterns, streams.status.streams) == (2, 3)
            a.stream.close()
            await settle(2 * LINGER_S)
            assert streams.status.subscriptions == 1

    run(main())


def test_the_answer_of_http_carries_the_stream_and_ends_with_the_connection() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            gone = asyncio.Event()
            sent: list[dict[str, Any]] = []

            async def receive() -> dict[str, Any]:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                sent.append(message)

            stream = await streams.open(("notes.*",), ANN)
            answer = asyncio.ensure_future(EventResponse(stream, "sse")({"type": "http", "method": "GET"}, receive, send))
            await publish(publisher, "notes.a", 1)
            headers = dict(sent[0]["headers"])
            assert headers[b"content-type"].startswith(b"text/event-stream")
            assert headers[b"x-accel-buffering"] == b"no"
            assert sent[1]["body"].startswith(b"retry: ")
            assert b"\nevent: message\ndata: {" in sent[2]["body"]
            gone.set()
            await answer
            assert streams.status.streams == 0
            assert sent[-1]["more_body"] is False

    run(main())


class Writer:
    """Takes the parts of an answer, as the connection of a door does."""

    def __init__(self) -> None:
        self.is_writable = True
        self.parts: list[bytes] = []

    def write_content(self, content: bytes) -> None:
        self.parts.append(content)


def test_a_stream_writes_past_its_task_while_the_client_takes_bytes() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            writer = Writer()
            stream = await streams.open(("notes.*",), ANN, LINES)
            stream.writer = writer
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await publish(publisher, "notes.a", 1)
            await publish(publisher, "notes.a", 2)
            assert [msgspec.json.decode(part)["json"] for part in writer.parts] == [1, 2]
            assert not waiting.done()
            assert streams.status.sent_bytes >= sum(map(len, writer.parts))
            writer.is_writable = False
            await publish(publisher, "notes.a", 3)
            assert msgspec.json.decode(await waiting)["json"] == 3, "the task waits for the client"
            await publish(publisher, "notes.a", 4)
            writer.is_writable = True
            assert msgspec.json.decode(await anext(stream))["json"] == 4, "what the task has to take keeps its place"
            assert len(writer.parts) == 2
            waiting = asyncio.ensure_future(anext(stream))
            await settle(0.0)
            stream.end("closing")
            with pytest.raises(StopAsyncIteration):
                await waiting
            assert msgspec.json.decode(writer.parts[2])["kind"] == "closing"

    run(main())


def test_a_pause_of_a_client_counts_from_its_last_bytes_past_the_task() -> None:
    async def main() -> None:
        async with VirtualNetwork() as network, door(network) as streams:
            publisher = await network.connect()
            stream = await streams.open(("other.*",), ANN, LINES)
            stream.writer = writer = Writer()
            await anext(stream)
            waiting = asyncio.ensure_future(anext(stream))
            await settle(2 * STALLED_S)
            assert len(writer.parts) >= STALLED_S // HEARTBEAT_S
            writer.is_writable = False
            await publish(publisher, "other.a", 1)
            await waiting
            await settle(STALLED_S - HEARTBEAT_S)
            assert streams.status.streams == 1, "the pause is short"
            await settle(2 * HEARTBEAT_S)
            assert streams.status.stalled == 1

    run(main())
