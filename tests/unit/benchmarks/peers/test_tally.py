"""Tests of the tally: it counts every message once, whatever the way in which they come, and says what was lost."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.peers import tally as tallies
from benchmarks.peers.system import Inbox
from benchmarks.peers.tally import GREETING, STAMP, Tally

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

WAYS = ("each", "batches", "blocking")


def inbox_of(messages: Sequence[bytes], way: str, size: int = 3) -> Inbox:
    if way == "blocking":
        return Inbox(iter(messages))

    async def each() -> AsyncIterator[Any]:
        for message in messages:
            yield message

    async def batches() -> AsyncIterator[Any]:
        for begin in range(0, len(messages), size):
            yield list(messages[begin : begin + size])

    return Inbox(batches() if way == "batches" else each(), has_batches=way == "batches")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("greetings", range(5))
@pytest.mark.parametrize("is_stamped", [False, True])
def test_every_message_is_counted_and_no_greeting(way: str, greetings: int, is_stamped: bool) -> None:
    message = STAMP.pack(time.perf_counter_ns()) + b"message"
    tally, greeted = Tally(10, is_stamped=is_stamped), threading.Event()
    more = [GREETING] * greetings + [message] * 13  # three more than it waits for
    asyncio.run(tally.take(inbox_of(more, way), greeted))
    assert tally.seen == 10
    assert greeted.is_set()
    assert 0 < tally.first <= tally.last


@pytest.mark.parametrize("way", WAYS)
def test_what_was_lost_is_found_out(way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(tallies, "IDLE_S", 0.0)
    tally = Tally(10)
    asyncio.run(tally.take(inbox_of([b"message"] * 7, way), threading.Event()))
    tally.tell_losses()
    assert json.loads(capsys.readouterr().out)["seen"] == 7


def test_nothing_is_told_of_losses_where_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(2)
    asyncio.run(tally.take(inbox_of([b"message"] * 2, "each"), threading.Event()))
    tally.tell_losses()
    assert capsys.readouterr().out == ""


def test_latencies_are_means_of_the_first_messages(capsys: pytest.CaptureFixture[str]) -> None:
    count = 10_000
    tally = Tally(count, is_stamped=True)
    began = time.perf_counter_ns()
    # The first thousand have been under way since the clock began, the others since just now.
    messages = [STAMP.pack(0)] * 1_000 + [STAMP.pack(began)] * (count - 1_000)
    asyncio.run(tally.take(inbox_of(messages, "each"), threading.Event()))
    tally.tell()
    means = json.loads(capsys.readouterr().out)["means_ms"]
    assert list(means) == ["100", "1000", "10000"]
    assert means["1000"] >= began / 1e6
    assert means["10000"] < means["1000"]
