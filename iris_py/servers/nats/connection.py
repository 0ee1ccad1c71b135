"""The connection of a NATS client: bytes between its socket and its session."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from iris_py.doors.nats.session import SessionEnd
from iris_py.errors import NodeClosed
from iris_py.logs import EventLogger
from iris_py.servers.nats.input_turns import OPERATIONS_MAX, ClientInput

if TYPE_CHECKING:
    from iris_py.doors.limits import CountedConnection
    from iris_py.doors.nats.clients import NatsClients
    from iris_py.doors.nats.session import Command
    from iris_py.servers.accepted import AcceptedConnections
    from iris_py.servers.nats.command_execution import CommandExecution
    from iris_py.servers.nats.input_turns import InputTurns
    from iris_py.servers.nats.native_requests import NativeRequests
    from iris_py.servers.nats.node_patterns import NodePatterns
    from iris_py.servers.tls import Certificate

__all__ = ["END_REASONS", "DoorParts", "NatsConnection"]

logger = EventLogger("iris_py.servers")

#: Time (seconds) for a client to take its last bytes. Too small: an error is cut; too large: a client that takes nothing keeps
#: its place.
END_S: Final = 2.0
#: Time between two writes to a client with waiting operations besides messages (seconds). Too small: each refused one costs a
#: write, and wakes the client, which takes a processor; too large: what it gets from others is late.
QUEUED_WRITE_S: Final = 2e-3
#: The longest TLS handshake (seconds). Too small: distant clients fail; too large: strangers keep places.
HANDSHAKE_S: Final = 5.0
#: The reasons for which a door ends connections, for its counts.
END_REASONS: Final = tuple(each.value for each in SessionEnd if each not in (SessionEnd.GONE, SessionEnd.CLOSING))
_NONCE_BYTES: Final = 11


class DoorParts(NamedTuple):
    """The parts of a door that its connections use."""

    clients: NatsClients
    patterns: NodePatterns
    execution: CommandExecution
    turns: InputTurns
    requests: NativeRequests
    connections: AcceptedConnections
    certificate: Certificate | None
    """The certificate; None without TLS."""
    is_tls_first: bool
    """Whether TLS begins before `INFO`."""


class NatsConnection(asyncio.Protocol):
    """The connection of one client.

    Args:
        parts: The door.
        place: The connection in the counts.
        address: The address of the client.
    """

    def __init__(self, parts: DoorParts, place: CountedConnection, address: str) -> None:
        self._parts = parts
        self._place = place
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._input = ClientInput()
        self._is_paused = False
        self._is_lost = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakes = False
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        self._session = parts.clients.open(address, nonce, self._loop.time(), self._wake)

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet the client."""
        transport = cast("asyncio.Transport", transport)  # that of uvloop is no subclass
        certificate = self._parts.certificate
        if certificate is None or not self._parts.is_tls_first:
            self._transport = transport
        if certificate is None:
            self._flush()
        else:
            if self._parts.is_tls_first:
                transport.pause_reading()  # the client may have sent the first bytes of TLS
            self._task = self._loop.create_task(self._begin_tls(transport, certificate))

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the session, after all commands of earlier bytes."""
        if self._session.end is not None:
            return
        is_waiting = self._task is not None or self._is_paused
        self._input.add(data)
        if not is_waiting:
            now = self._loop.time()
            self._take_turn(now)
            if not self._is_paused:
                self._parts.turns.note(self._proceed, now)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client, after its last messages. Harmless if repeated."""
        self._transport = None
        self._is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        if not self._input:
            self._close()

    def _close(self) -> None:
        self._parts.clients.close(self._session)
        self._parts.requests.forget(self._session)
        self._parts.patterns.follow()
        if self._task is None:
            self._parts.connections.release(self._place)
        else:  # a closing door waits for the messages
            self._task.add_done_callback(lambda _task: self._parts.connections.release(self._place))

    # --

    def _proceed(self) -> None:
        self._take_turn(self._loop.time())

    def _take_turn(self, now: float) -> None:
        """Execute the operations of a turn."""
        session, unread, turns = self._session, self._input, self._parts.turns
        delay: float | None = None
        if self._task is None and unread:
            controls, messages = session.controls, session.messages_in
            # A client that goes to another door must not publish there before its last messages here.
            is_whole = session.is_leaving and not unread.is_control
            is_short = unread.is_busy(now) and turns.has_others(self._proceed, now)
            piece = unread.take(is_short=is_short, is_whole=is_whole)
            rest = session.receive(piece, now, sys.maxsize if is_whole else OPERATIONS_MAX)
            self._execute()
            delay = unread.finish(rest, session.controls - controls, session.messages_in - messages, now)
        if session.end is not None:
            unread.drop()
        if session.end is not None or session.is_leaving:
            delay = 0.0 if unread else None
        if self._task is not None:
            return
        if delay is None:
            self._go_on()
        else:
            self._pause()
            turns.add(self._proceed, delay)

    def _execute(self) -> None:
        """Execute the commands of the session; a task executes those that have to wait."""
        session, parts = self._session, self._parts
        parts.patterns.follow(session)
        while commands := session.take_commands():
            done = parts.execution.try_execute_all(session, commands)
            if done < len(commands):
                self._pause()
                self._task = self._loop.create_task(self._execute_late(commands[done:]))
                return
            parts.patterns.follow(session)
        if session.user is not None:
            self._place.admit()

    async def _execute_late(self, commands: list[Command]) -> None:
        session, parts = self._session, self._parts
        with contextlib.suppress(NodeClosed):
            while commands:
                for command in commands:
                    if not parts.execution.try_execute(session, command):
                        await parts.execution.execute(session, command, self._address)
                parts.patterns.follow(session)
                commands = session.take_commands()
        self._resume()

    async def _begin_tls(self, transport: asyncio.Transport, certificate: Certificate) -> None:
        """Change to TLS behind `INFO` in general, as clients of NATS do.

        The client begins its handshake when it has read `INFO`. So nothing comes between `INFO` and the change. Bytes before it
        are unencrypted: kept, they would become operations of the encrypted connection.
        """
        if self._input:
            self._input.drop()
            self._parts.connections.count_refusal("handshake")
            transport.abort()
            return
        self._flush()
        try:
            self._transport = await self._loop.start_tls(
                transport, self, certificate.context, server_side=True, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, ConnectionError) as exc:
            logger.debug("door_handshake_failed", "a connection failed in its handshake: %s", exc)
            self._parts.connections.count_refusal("handshake")
            transport.abort()
            self.connection_lost(exc)  # TLS of asyncio does not call it after a handshake that has taken too long
            return
        self._flush()
        self._resume_reading()
        self._resume()

    def _resume(self) -> None:
        """Go on behind the commands of a task."""
        self._task = None
        if self._session.user is not None:
            self._place.admit()
        if self._input:
            self._parts.turns.add(self._proceed)
        else:
            self._go_on()

    def _go_on(self) -> None:
        """Read from the client again after all its bytes, or forget a lost client."""
        if self._is_lost:
            self._close()
        elif self._is_paused:
            self._resume_reading()

    def _pause(self) -> None:
        if not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        self._is_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _wake(self) -> None:
        """Write the output soon, together with what follows."""
        if self._wakes:
            return
        self._wakes = True
        write_soon = self._parts.turns.write_soon
        if self._is_paused and self._input.is_control:
            self._loop.call_later(QUEUED_WRITE_S, write_soon, self._flush)
        else:
            write_soon(self._flush)

    def _flush(self) -> None:
        self._wakes = False
        session, transport = self._session, self._transport
        if transport is None or transport.is_closing():
            return
        output = session.take_output()
        if output:
            transport.write(output)
        if session.end is not None:
            self._finish(transport, session.end)
            return
        if session.is_leaving:
            self._leave(transport)
            return
        session.note_buffered(transport.get_write_buffer_size(), self._loop.time())
        self._arm()

    def _arm(self) -> None:
        """Set the timer, unless it is due early enough."""
        deadline = self._session.deadline
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        session, transport = self._session, self._transport
        if transport is None or session.end is not None:
            return
        now = self._loop.time()
        session.note_buffered(transport.get_write_buffer_size(), now)
        session.handle_timeout(now, is_reading=self._task is None and not self._input)
        if session.end is None:
            self._arm()

    def _leave(self, transport: asyncio.Transport) -> None:
        """End the own half of the connection. The client ends the other half behind the last message."""
        if not transport.can_write_eof():  # as over TLS
            self._session.finish(SessionEnd.CLOSING)
            return
        transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(END_S, transport.abort)

    def _finish(self, transport: asyncio.Transport, reason: SessionEnd) -> None:
        """End the connection, after the client has taken its last bytes."""
        if reason.value in END_REASONS:
            self._parts.connections.count_refusal(reason.value)
        if self._timer is not None:
            self._timer.cancel()
        if reason is SessionEnd.SLOW:
            transport.abort()
            return
        # A socket closed with unread bytes is reset, and the client may lose the error.
        self._resume_reading()
        if transport.can_write_eof() and reason is not SessionEnd.CLOSING:
            transport.write_eof()
        else:
            transport.close()
        self._timer = self._loop.call_later(END_S, transport.abort)
