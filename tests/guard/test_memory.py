"""The memory of what is idle, counted and not timed: links without ciphers and receive buffers, one heap block in a process."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
import uvloop

import iris_py
from iris_py.link.record_buffers import RECEIVE_BUFFERS_KEPT_MAX, ReceiveBuffers
from iris_py.net import driver as driver_module
from iris_py.net.driver import LinkStream
from iris_py.testing.cores.pair import LinkPair
from iris_security import Keyring, Secret
from iris_security.aead import Suite

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = Secret(bytes(range(32)))
PAIRS = 50
#: Traced memory of one end of an idle link, with its part of the pair, at most. Measured: 4,830. An empty queue takes 750 more,
#: and a dictionary for the attributes of the link 1,500 more.
LINK_END_BYTES_MAX = 5_200
NODES = 6


def test_an_idle_link_is_small() -> None:
    keyring = Keyring(SECRET, network="test")

    def open_pairs(count: int) -> list[LinkPair]:
        pairs = [LinkPair(keyring) for _ in range(count)]
        for pair in pairs:
            pair.open()
        return pairs

    open_pairs(2)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        pairs = open_pairs(PAIRS)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(pairs) / 2 <= LINK_END_BYTES_MAX


def test_links_keep_no_cipher_for_the_first_frames_and_after_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cipher takes 2.5 KiB outside of Python, which no tracer sees."""
    made = 0
    original = Suite.cipher

    def count(suite: Suite, key: bytes) -> object:
        nonlocal made
        made += 1
        return original(suite, key)

    monkeypatch.setattr(Suite, "cipher", count)
    pair = LinkPair(Keyring(SECRET, network="test"))
    pair.open()
    link = pair.initiator.link

    def ciphers_of(records: int) -> int:
        nonlocal made
        made = 0
        for _ in range(records):
            link.send_control(b"x")
            pair.drive()
        return made

    assert ciphers_of(1) == 2, "one for the sealer and one for the opener, dropped at once"
    assert ciphers_of(100) < 100, "kept in a series"
    assert ciphers_of(100) == 0
    pair.drive(until=pair.now + 10.0)
    ciphers_of(1)
    assert ciphers_of(1) == 2, "at rest again"


@pytest.mark.parametrize("new_event_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_links_of_a_process_share_a_few_receive_buffers_and_one_heap_block(
    new_event_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    streams: list[LinkStream] = []
    take, connection_made = ReceiveBuffers.take, LinkStream.connection_made

    def note_buffer(self: ReceiveBuffers) -> memoryview:
        nonlocal taken
        taken += 1
        return take(self)

    def note_stream(self: LinkStream, transport: asyncio.BaseTransport) -> None:
        streams.append(self)
        connection_made(self, transport)

    monkeypatch.setattr(ReceiveBuffers, "take", note_buffer)
    monkeypatch.setattr(LinkStream, "connection_made", note_stream)

    async def main() -> None:
        async with (
            iris_py.connect(secret=SECRET, discovery=False) as member,
            member.join("echo", lambda request: request.payload),
            AsyncExitStack() as stack,
        ):
            for _ in range(NODES):
                opening = iris_py.connect(secret=SECRET, seeds=[member.address], discovery=False)
                node = await stack.enter_async_context(opening)
                assert await node.request("echo", b"x") == b"x"
            assert not any(stream._buffer for stream in streams)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
    assert len(streams) >= 2 * NODES
    assert taken > len(streams), "for each read, and not for each stream"
    assert 1 <= len(driver_module._receive_buffers._free) <= RECEIVE_BUFFERS_KEPT_MAX
    assert driver_module._keep_heap.cache_info().misses == 1
