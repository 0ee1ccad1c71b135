"""The agent's side of :func:`spark_connector.local_agent`: tasks of the same executor use its node over a Unix socket.

Theory of operation. A process of tasks has one connection with many concurrent *calls*. A call has a number chosen by the task,
and is an :class:`asyncio.Task` here. A survey or a subscription has many answers, so it is a *held call*: the agent keeps it
under the call's number, with the usual bounds of the node, and the task takes parts with further calls. So the agent sends only
requested data, and a slow reader has the same effect as with a separate node.

Each connection has a bounded amount of work in progress. The task knows and keeps the bounds, so cancelling always has room.
The agent stops reading from a task that exceeds the bounds, or does not read answers. The end of a connection cancels all calls
and closes all held calls.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import msgspec

from iris_py import ConfigurationError, Retry, Seal
from iris_py.connector import EventLogger
from spark_connector.local import frames
from spark_connector.local.frames import (
    TAKEN_BYTES_MAX,
    TAKEN_MESSAGES_MAX,
    CallFailed,
    CallReturned,
    FrameReader,
    MalformedFrame,
    MessageDelivered,
    Taken,
    encode_frame,
    failed,
    header_of,
)
from spark_connector.local.private_directory import SOCKET_NAME
from spark_connector.local.sockets import ForeignPeer, check_peer, listen

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from iris_py import Answers, Message, Node, Subscription, Survey, SurveyReply
    from spark_connector.local.frames import Command, Reply
    from spark_connector.local.private_directory import PrivateDirectory

__all__ = ["HeldObject", "HeldSubscription", "HeldSurvey", "NodeServer", "Part", "serve"]

#: A part of a held call, as :meth:`HeldObject.take` returns it: its description, and the payloads.
Part: TypeAlias = tuple[Taken, list[bytes]]


class HeldObject(Protocol):
    """A subscription or a survey, which the agent keeps under the number of its call until the task ends it."""

    async def take(self, timeout: float | None) -> Part:
        """Take the waiting items, or wait for the first; return an empty part after the timeout."""
        ...

    def look(self) -> Taken | CallReturned:
        """Return the state of the held call, without taking items."""
        ...

    async def close(self) -> Taken:
        """End the held call."""
        ...


class HeldSubscription:
    """A task's subscription, kept by the agent."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def take(self, timeout: float | None) -> Part:
        """Take messages; see :class:`HeldObject`."""
        subscription = self._subscription
        messages: list[Message] = []
        try:
            async with asyncio.timeout(timeout):
                messages.append(await anext(subscription))
        except TimeoutError:
            return Taken([]), []
        except StopAsyncIteration:
            return Taken([], is_over=True), []
        size = len(messages[0].payload)
        while subscription.queued_messages and len(messages) < TAKEN_MESSAGES_MAX and size < TAKEN_BYTES_MAX:
            messages.append(await anext(subscription))
            size += len(messages[-1].payload)
        described = [
            MessageDelivered(
                each.source, each.sequence, each.topic, each.gap, dict(each.headers), each.cloud, each.has_unknown_gap
            )
            for each in messages
        ]
        payloads = [message.payload for message in messages]
        return Taken([len(payload) for payload in payloads], messages=described), payloads

    def look(self) -> CallReturned:
        """Return the drops and the queue; see :class:`HeldObject`."""
        subscription = self._subscription
        return CallReturned([dict(subscription.dropped), subscription.queued_messages, subscription.queued_bytes])

    async def close(self) -> Taken:
        """End the subscription; see :class:`HeldObject`."""
        await self._subscription.close()
        return Taken([], is_over=True)


class HeldSurvey:
    """A task's survey, kept by the agent.

    Args:
        survey: The survey.
        ended: Called when the survey has no further replies.
    """

    def __init__(self, survey: Survey, ended: Callable[[], object]) -> None:
        self._survey = survey
        self._replies = aiter(survey)  # this sends the survey
        self._ended = ended

    async def take(self, timeout: float | None) -> Part:
        """Take replies; see :class:`HeldObject`. The argument is ignored, because the survey has a timeout of its own."""
        replies: list[SurveyReply] = []
        try:
            replies.append(await anext(self._replies))
        except StopAsyncIteration:
            self._ended()
            return Taken([], is_over=True, answers=self._rest()), []
        except Exception:  # a cluster without members, for example
            self._ended()
            raise
        size, waiting = len(replies[0].payload), len(self._survey.answers.replies)
        while waiting and len(replies) < TAKEN_MESSAGES_MAX and size < TAKEN_BYTES_MAX:
            replies.append(await anext(self._replies))
            size += len(replies[-1].payload)
            waiting -= 1
        payloads = [reply.payload for reply in replies]
        return Taken([len(payload) for payload in payloads], members=[reply.member for reply in replies]), payloads

    def look(self) -> Taken:
        """Return the answers so far; see :class:`HeldObject`."""
        return Taken([], answers=self._rest())

    async def close(self) -> Taken:
        """Cancel the survey; see :class:`HeldObject`."""
        self._survey.cancel()
        return Taken([], is_over=True, answers=self._rest())

    def _rest(self) -> Answers:
        """Return the answers without the replies, which are sent separately."""
        return dataclasses.replace(self._survey.answers, replies=())


logger = EventLogger("spark_connector")

#: Maximum number of connected processes. Spark has one for each slot, and some more for other kinds of functions. Too small:
#: tasks of a large executor are refused; too large: the agent runs out of descriptors, 1,024 by default.
CONNECTIONS_MAX = 512
#: Calls in progress on one connection, as many as a member queues. Each is a task of some KiB.
IN_FLIGHT_MAX = 1024
#: Payload bytes of the calls in progress on one connection: four of the largest payloads by default. One call is always
#: accepted, of any size.
IN_FLIGHT_BYTES_MAX = 64 * 1024 * 1024
#: Subscriptions and surveys of one connection. Each has a queue in the node.
HELD_MAX = 64
#: Timeout for the hello of a process. Tasks send it at once, so a slower process is not a task.
HELLO_TIMEOUT_S = 10.0
#: How long cancelled calls may take to end when the agent ends.
CANCEL_TIMEOUT_S = 1.0

_RETURNED: Final = header_of(CallReturned())


@asynccontextmanager
async def serve(node: Node, directory: PrivateDirectory, name: str = SOCKET_NAME) -> AsyncIterator[NodeServer]:
    """Let processes of this user use a node over a Unix socket inside the block. Its end removes the socket.

    Args:
        node: The node.
        directory: The directory of the socket; the caller keeps it open.
        name: The name of the socket. An existing socket is replaced; the caller ensures that no other process serves it.

    Raises:
        ConfigurationError: The socket cannot be created.
    """
    listener = listen(directory, name, CONNECTIONS_MAX)
    created = directory.stat(name).st_ino
    node_server = NodeServer(node)
    try:
        server = await asyncio.get_running_loop().create_unix_server(lambda: _TaskConnection(node_server), sock=listener)
        try:
            yield node_server
        finally:
            server.close()
            await node_server._close()
    finally:
        listener.close()
        if directory.has(name) and directory.stat(name).st_ino == created:
            directory.unlink(name)


class NodeServer:
    """The node of an agent, as :func:`serve` offers it to local processes.

    Attributes:
        node: The node.
        refused: Number of refused connections, by reason: ``user``, ``full``, ``version``, ``malformed``, ``silent``.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.refused: dict[str, int] = {}
        self._connections: dict[_TaskConnection, None] = {}

    @property
    def connections(self) -> int:
        """Number of connected processes."""
        return len(self._connections)

    async def _close(self) -> None:
        endings = [task for connection in list(self._connections) for task in connection.close()]
        if endings:
            await asyncio.wait(endings, timeout=CANCEL_TIMEOUT_S)


class _TaskConnection(asyncio.Protocol):
    """The agent's end of the connection to one process of tasks."""

    def __init__(self, node_server: NodeServer) -> None:
        self._node_server = node_server
        self._node = node_server.node
        self._loop = asyncio.get_running_loop()
        self._hello: bytes | None = b""  # the beginning of the hello; None when complete
        self._reader = FrameReader(frames.HEADER_BYTES_MAX, self._node.max_message_bytes)
        self._waiting: deque[tuple[int, Command, bytes]] = deque()  # received calls that wait for room
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._calls_bytes = 0
        self._held: dict[int, HeldObject] = {}
        self._endings: set[asyncio.Task[object]] = set()
        self._out: list[bytes] = []
        self._is_written_slowly = False
        self._is_read_slowly = False
        self._is_over = False

    # -- callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connections = self._node_server._connections
        if not self._is_same_user():
            self._refuse("user")
            return
        self._is_surplus = len(connections) >= CONNECTIONS_MAX
        connections[self] = None
        self._silence = self._loop.call_later(HELLO_TIMEOUT_S, self._refuse, "silent")

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._hello is not None:
            data = self._receive_hello(data)
        try:
            for number, header, payload in self._reader.feed(data):
                self._receive(number, header, payload)
        except MalformedFrame as exc:
            self._break(str(exc))
            return
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def pause_writing(self) -> None:
        self._is_written_slowly = True

    def resume_writing(self) -> None:
        self._is_written_slowly = False
        self._advance()

    # -- the end

    def close(self) -> list[asyncio.Task[Any]]:
        """End the connection; return the asyncio tasks of its calls, which are being cancelled."""
        self._is_over = True
        self._node_server._connections.pop(self, None)
        if self._hello is not None and hasattr(self, "_silence"):
            self._silence.cancel()
        self._waiting.clear()
        for task in self._calls.values():
            task.cancel()
        for number in list(self._held):
            self._end_held(number)
        self._transport.close()
        return [*self._calls.values(), *self._endings]

    def _refuse(self, reason: str) -> None:
        refused = self._node_server.refused
        refused[reason] = refused.get(reason, 0) + 1
        self.close()

    def _break(self, reason: str) -> None:
        logger.warning("call_malformed", "a process of this executor sent an invalid call: %s", reason)
        self._refuse("malformed")

    # -- the beginning

    def _is_same_user(self) -> bool:
        """Tell whether the process belongs to this user, as the kernel reports; called before any byte is sent."""
        try:
            check_peer(self._transport.get_extra_info("socket"))
        except ForeignPeer as exc:
            logger.warning(
                "user_refused",
                "refused a process of user %d, which tried to use the node of this executor",
                exc.user,
                user=exc.user,
            )
            return False
        return True

    def _receive_hello(self, data: bytes) -> bytes:
        """Read the hello of the process; return the bytes behind it."""
        assert self._hello is not None
        self._hello += data
        if not frames.MAGIC.startswith(self._hello[: len(frames.MAGIC)]):
            logger.warning("hello_malformed", "a process of this executor sent an invalid hello")
            self._refuse("malformed")
            return b""
        if len(self._hello) < frames.HELLO.size:
            return b""
        _magic, version = frames.HELLO.unpack_from(self._hello)
        self._transport.write(frames.HELLO.pack(frames.MAGIC, frames.VERSION))
        if version != frames.VERSION:
            logger.warning(
                "version_differs",
                "a process of this executor uses version %d of the protocol, but this agent uses %d",
                version,
                frames.VERSION,
                version=version,
            )
            self._refuse("version")
            return b""
        if self._is_surplus:  # only now, because closing a socket with unread data breaks the other end
            text = f"{CONNECTIONS_MAX} processes of this executor use its agent already, and it accepts no more."
            self._send(0, header_of(CallFailed("IrisError", text, {})))
            self._flush()
            self._refuse("full")
            return b""
        rest, self._hello = self._hello[frames.HELLO.size :], None
        self._silence.cancel()
        node = self._node
        facts = node.id, node.name, node.address, node.zone, node.network, node.max_message_bytes
        self._send(0, header_of(frames.Welcome(*facts, IN_FLIGHT_MAX, IN_FLIGHT_BYTES_MAX)))
        return rest

    # -- calls

    def _receive(self, number: int, header: bytes, payload: bytes) -> None:
        try:
            command = frames.command_decoder.decode(header)
        except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
            raise MalformedFrame(str(exc)) from None
        if type(command) is frames.Cancel:
            self._cancel(number)
        else:
            self._waiting.append((number, command, payload))

    def _advance(self) -> None:
        """Start waiting calls while the bounds allow; stop reading from the process while calls wait."""
        while self._waiting and not self._is_full():
            number, command, payload = self._waiting.popleft()
            if number in self._calls or number in self._held:
                self._break(f"call {number} is under way")
                return
            self._calls_bytes += len(payload)
            task = self._calls[number] = self._loop.create_task(self._run(number, command, payload))
            task.add_done_callback(partial(self._handle_done, number, len(payload)))
        if bool(self._waiting) is not self._is_read_slowly and not self._transport.is_closing():
            self._is_read_slowly = not self._is_read_slowly
            if self._is_read_slowly:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _is_full(self) -> bool:
        is_busy = len(self._calls) >= IN_FLIGHT_MAX or self._calls_bytes >= IN_FLIGHT_BYTES_MAX
        return self._is_written_slowly or is_busy

    def _handle_done(self, number: int, size: int, _done: object) -> None:
        del self._calls[number]
        self._calls_bytes -= size
        if self._waiting:
            self._advance()

    def _cancel(self, number: int) -> None:
        task = self._calls.get(number)
        if task is not None:
            task.cancel()
        elif number in self._held:  # the cancellation crossed with the answer
            self._end_held(number)
        else:
            self._waiting = deque(call for call in self._waiting if call[0] != number)

    async def _run(self, number: int, command: Command, payload: bytes) -> None:
        try:
            answer = await _COMMANDS[type(command)](self, command, payload, number)
        except Exception as exc:
            self._send(number, header_of(failed(exc)))
            return
        if type(answer) is bytes:
            self._send(number, _RETURNED, (answer,))
        elif type(answer) is tuple:
            self._send(number, header_of(answer[0]), answer[1])
        else:
            self._send(number, header_of(answer))

    # -- one method for each command: returns a reply, a reply with payloads, or the payload of an empty reply

    async def _request(self, command: frames.RequestCall, payload: bytes, number: int) -> bytes:
        return await self._node.request(
            command.cluster,
            payload,
            timeout=command.timeout,
            idempotent=command.idempotent,
            key=command.key,
            prefer=command.prefer,
            require=command.require,
            headers=command.headers,
            on_full=command.on_full,
            retry_failed=command.retry_failed,
            retry=_retry(command.retry),
            wait_for_members=command.wait_for_members,
            seal=_seal(command.seal),
        )

    async def _call_method(self, command: frames.MethodCall, payload: bytes, number: int) -> CallReturned:
        arguments = command.arguments
        if frames.METHODS[command.method].takes_payload:
            arguments["payload"] = payload
        found = getattr(self._node, command.method)
        result = found(**arguments) if callable(found) else found
        return CallReturned(await result if isawaitable(result) else result)

    async def _members(self, command: frames.MembersCall, payload: bytes, number: int) -> CallReturned:
        members = self._node.members(command.cluster)
        return CallReturned(await members if command.waits else tuple(members))

    # -- held calls

    async def _survey(self, command: frames.SurveyCall, payload: bytes, number: int) -> CallReturned:
        self._check_held()
        survey = self._node.survey(
            command.cluster,
            payload,
            timeout=command.timeout,
            stop_after=command.stop_after,
            headers=command.headers,
            seal=_seal(command.seal),
        )
        self._held[number] = HeldSurvey(survey, lambda: self._held.pop(number, None))
        return CallReturned()

    async def _subscribe(self, command: frames.Subscribe, payload: bytes, number: int) -> CallReturned:
        self._check_held()
        subscription = await self._node.subscribe(
            command.pattern,
            policy=command.policy,
            queue_messages=command.queue_messages,
            queue_bytes=command.queue_bytes,
            group=command.group,
            weight=command.weight,
        )
        self._held[number] = HeldSubscription(subscription)
        return CallReturned()

    async def _take(self, command: frames.Take, payload: bytes, number: int) -> tuple[Reply, Sequence[bytes]] | Reply:
        held = self._held.get(command.held)
        return frames.Taken([], is_over=True) if held is None else await held.take(command.timeout)

    async def _close_held(self, command: frames.Close, payload: bytes, number: int) -> Reply:
        held = self._held.pop(command.held, None)
        return frames.Taken([], is_over=True) if held is None else await held.close()

    async def _look(self, command: frames.LookCall, payload: bytes, number: int) -> Reply:
        held = self._held.get(command.held)
        return frames.Taken([], is_over=True) if held is None else held.look()

    def _check_held(self) -> None:
        if len(self._held) >= HELD_MAX:
            raise ConfigurationError(
                f"this process has {HELD_MAX} subscriptions and surveys at its agent, which is the limit. Close some."
            )

    def _end_held(self, number: int) -> None:
        """Close a held call without waiting for it."""
        ending: asyncio.Task[object] = self._loop.create_task(self._held.pop(number).close())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    # -- sending

    def _send(self, number: int, header: bytes, payloads: Sequence[bytes] = ()) -> None:
        if self._is_over:
            return
        if not self._out:
            self._loop.call_soon(self._flush)  # all answers of one turn leave together
        self._out.append(encode_frame(number, header, sum(map(len, payloads))))
        self._out += payloads

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self._transport.is_closing():
            self._transport.writelines(out)


def _retry(fields: Any) -> Any:  # noqa: ANN401 - the node refuses any other value
    try:
        return Retry(**fields) if isinstance(fields, dict) else fields
    except TypeError as exc:
        raise ConfigurationError(f"retry= of a task is not valid: {exc}.") from None


def _seal(parts: tuple[str, str | None] | None) -> Seal | None:
    return None if parts is None else Seal(parts[0], name=parts[1])


_Answer = Any  # bytes | Reply | tuple[Reply, Sequence[bytes]]

_COMMANDS: dict[type[Any], Callable[[_TaskConnection, Any, bytes, int], Awaitable[_Answer]]] = {
    frames.RequestCall: _TaskConnection._request,
    frames.MethodCall: _TaskConnection._call_method,
    frames.SurveyCall: _TaskConnection._survey,
    frames.Subscribe: _TaskConnection._subscribe,
    frames.Take: _TaskConnection._take,
    frames.Close: _TaskConnection._close_held,
    frames.LookCall: _TaskConnection._look,
    frames.MembersCall: _TaskConnection._members,
}
