"""One Iris link on a TCP stream, without a node around it: what the link and the two seals alone can carry.

It does what the node does with broadcasts to one member (gather messages into bodies, seal each body for the group, put it on
the link, write once per turn of the event loop), and nothing else: no view of members, no patterns, no handlers, no driver.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from iris_py.link.config import LinkConfig
from iris_py.link.events import CloseReason, LinkOpened, PeerIdentified
from iris_py.link.handshake import LinkHandshake
from iris_py.link.lanes import MULTICAST
from iris_py.link.link import RECORD_BYTES_MAX, Link, LinkState
from iris_py.peers.group import BODY_BYTES
from iris_py.wire.packets import BROADCAST, MESSAGE, MESSAGE_BYTES
from iris_security import GroupOpener, GroupSealer, Identity, Keyring, Secret, multicast_associated
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

_SENDER = bytes(16)
_WRITE_BUFFER_BYTES = 256 * 1024
_WRITE_BATCH_BYTES = 64 * 1024


class LinkStream(asyncio.BufferedProtocol):
    """Both ends of the link.

    Args:
        secret: The secret of the network.
        initiator: Whether this end dialled; it is the one that sends.
        handle: Takes each message that arrives.
        entropy: The source of the ephemeral key.
    """

    _transport: Any

    def __init__(self, secret: str, initiator: bool, handle: Callable[[bytes], None], entropy: Callable[[int], bytes]) -> None:
        self._loop = asyncio.get_running_loop()
        keyring = Keyring(Secret.parse(secret), network="benchmark")
        handshake = LinkHandshake(
            initiator=initiator, keyring=keyring, identity=Identity(entropy(32)), hello=b"", ephemeral_private=entropy(32)
        )
        self.link = Link(handshake=handshake, now=self._loop.time(), config=LinkConfig())
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        keys = keyring.cluster("benchmark")
        self._group = keys.group_id
        self._sealer, self._opener = GroupSealer(keys, _SENDER), GroupOpener(keys)
        self._associated = multicast_associated(keys.group_id, _SENDER)
        self._handle = handle
        self._parts: list[bytes] = []
        self._parts_bytes = 0
        self._sequence = 0
        self._is_awake = self._is_paused = False
        self._room: asyncio.Future[None] | None = None
        self._buffer = memoryview(bytearray(2 * (RECORD_BYTES_MAX + 4)))
        self._start = self._end = 0

    def send(self, payload: bytes) -> None:
        """Gather a message; wait for :meth:`room` when the link is congested."""
        size = MESSAGE_BYTES + len(payload)
        if self._parts_bytes + size > BODY_BYTES:
            self._seal()
        self._sequence += 1
        self._parts += (MESSAGE.pack(BROADCAST, 0, 0, len(payload), self._sequence, 0), payload)
        self._parts_bytes += size
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._flush)

    async def room(self) -> None:
        """Wait until the link has room."""
        while self.link.congested:
            self._room = self._loop.create_future()
            await self._room

    async def finish(self) -> None:
        """Send the rest, and close cleanly."""
        self._flush()
        self.link.close(CloseReason.NORMAL, self._loop.time())
        self._flush()
        await self.closed

    def _seal(self) -> None:
        if self._parts:
            nonce, sealed = self._sealer.seal(b"".join(self._parts), self._associated)
            self._parts, self._parts_bytes = [], 0
            self.link.send_packet(MULTICAST, self._group, nonce, sealed)

    def _flush(self) -> None:
        self._is_awake = False
        self._seal()
        self._write()

    def _write(self) -> None:
        while not self._is_paused:
            data = self.link.data_to_send(_WRITE_BATCH_BYTES)
            if not data:
                break
            self._transport.writelines(data)
        if self._room is not None and not self.link.congested:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None
        if self.link.state is LinkState.CLOSED:
            self._transport.close()

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._write()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        now, link = self._loop.time(), self.link
        start, end = self._start, self._end + nbytes
        start += link.receive_data(self._buffer[start:end], now)
        while link.has_unread:
            self._take(link, now)
            start += link.receive_data(self._buffer[start:end], now)
        self._take(link, now)
        if start == end:
            start = end = 0
        elif len(self._buffer) - end < RECORD_BYTES_MAX:
            rest = bytes(self._buffer[start:end])
            self._buffer[: len(rest)] = rest
            start, end = 0, len(rest)
        self._start, self._end = start, end
        self._write()

    def _take(self, link: Link, now: float) -> None:
        for event in link.events_received():
            if isinstance(event, PeerIdentified):
                link.confirm(now)
            elif isinstance(event, LinkOpened):
                self.opened.set_result(None)
        for _kind, _group, data, start, stop in link.packets_received():
            nonce, sealed = data[start : start + NONCE_BYTES], memoryview(data)[start + NONCE_BYTES : stop]
            self._receive_body(self._opener.open(_SENDER, nonce, sealed, self._associated))

    def _receive_body(self, body: bytes) -> None:
        offset, end, unpack, handle = 0, len(body), MESSAGE.unpack_from, self._handle
        while offset < end:
            _kind, _flags, _headers, length, _id, _argument = unpack(body, offset)
            start = offset + MESSAGE_BYTES
            offset = start + length
            handle(body[start:offset])
