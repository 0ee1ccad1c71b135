"""The session of one NATS client: bytes and time come in, bytes and commands come out (docs/design.md 18.6).

The owner passes received bytes to `receive`, executes the commands in order before it passes more, and writes the output.
Hence the operations of a client take effect in order, and a node without room holds up a single client.
"""

from __future__ import annotations

import math
import sys
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from iris_py.doors.door_reports import ClientReport, clip_text
from iris_py.doors.nats.connect_options import ConnectOptions, read_options
from iris_py.doors.nats.encoder import OK, PING, PONG, Delivery, fault_text, permission_error
from iris_py.doors.nats.headers import responders_block
from iris_py.doors.nats.operations import ConnectLine, ProtocolFault, PubLine, PubRun, Signal, SubLine, UnsubLine
from iris_py.doors.nats.parser import ProtocolParser
from iris_py.doors.nats.pattern_shapes import PatternShapes
from iris_py.doors.nats.subjects import (
    NatsSubject,
    SubjectFault,
    SubjectKind,
    is_valid_queue,
    is_valid_subject,
    read_pattern,
    read_subject,
)
from iris_py.doors.nats.subscription import ClientServices, ClientSubscription
from iris_py.doors.nats.users import ClientCredentials, NatsUser, PasswordQuestion
from iris_py.patterns.topic.names import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.doors.nats.encoder import ServerInfo
    from iris_py.doors.nats.operations import Operation
    from iris_py.doors.nats.routes import Routes
    from iris_py.doors.nats.settings import NatsLimits
    from iris_py.doors.nats.subscription import PatternKey
    from iris_py.doors.nats.users import UserDirectory

__all__ = [
    "Command",
    "InboxEnd",
    "InboxMessages",
    "NatsSession",
    "PongWait",
    "SessionEnd",
    "SessionPlace",
    "TopicMessages",
]

#: Time (seconds) for ``CONNECT`` at a door with users, as at nats-server.
GREETING_S: Final = 2.0
#: Silence (seconds) after which the door asks with ``PING``, and questions without an answer before the end, as at nats-server.
PING_S: Final = 120.0
PINGS_MAX: Final = 2
#: Time (seconds) without a byte taken while bytes wait, after which a client is too slow.
STALLED_S: Final = 10.0
#: Subjects that a client may publish to, remembered for each connection. Too small: each message reads its subject; too large:
#: memory of idle clients.
REMEMBERED_SUBJECTS_MAX: Final = 256

_TOPIC: Final = SubjectKind.TOPIC  # each message is compared with them, and to look up a member of an enumeration is slow
_INBOX: Final = SubjectKind.INBOX


class SessionEnd(Enum):
    """The reasons for which a door ends a connection."""

    PROTOCOL = "protocol"
    """The client broke the protocol, or a limit of it."""
    AUTHORIZATION = "authorization"
    """The credentials were wrong, or missing."""
    CONNECTIONS = "connections"
    """The door, or the user, has too many connections."""
    SILENT = "silent"
    """The client did not answer."""
    SLOW = "slow"
    """Too much waited for the client."""
    GONE = "gone"
    """The client has closed the connection."""
    CLOSING = "closing"
    """The door is closing."""


class TopicMessages(msgspec.Struct, gc=False):
    """A command: publish messages to a topic."""

    topic: str
    """The topic, with ``@cloud`` for another cloud."""
    tokens: Tokens
    """The tokens of the topic; the last token may end with the cloud."""
    line: PubLine
    contents: list[bytes]
    """The header block and payload of each message."""
    is_heard: bool
    """Whether subscriptions of this door have the messages already."""


class InboxMessages(msgspec.Struct, gc=False):
    """A command: send messages to an inbox of another door."""

    subject: NatsSubject
    line: PubLine
    contents: list[bytes]
    home: str
    """The door of the inbox; empty if unknown."""


class InboxEnd(NamedTuple):
    """A command: cancel the requests of the client whose replies nothing of it hears any more."""

    pattern: NatsSubject
    """The pattern of an ended subscription to inboxes."""


class PongWait(Enum):
    """A command: wait until every publisher knows the patterns in `Routes.changed` so far, then call `NatsSession.pong`."""

    PONG = "pong"


#: Everything that the owner of a session has to do.
Command: TypeAlias = "TopicMessages | InboxMessages | InboxEnd | PongWait | PasswordQuestion"


class SessionPlace(Protocol):
    """The shared parts of a door."""

    @property
    def routes(self) -> Routes:
        """The subscriptions of all clients."""

    @property
    def users(self) -> UserDirectory:
        """The users."""

    @property
    def limits(self) -> NatsLimits:
        """The limits."""

    def admit(self, user: NatsUser, earlier: NatsUser | None) -> bool:
        """Count a connection of a user in place of the earlier user; False beyond the limit."""

    def note_waiting(self, count: int) -> None:
        """Note that more or fewer bytes wait for sessions."""


class NatsSession:
    """The session of one client.

    Args:
        place: The door.
        info: The object of ``INFO`` for this client.
        now: The time (seconds).
        wake: Called when output begins to wait.

    Attributes:
        controls: Operations besides messages, and messages that nobody may or can get, as far as this door knows.
        options: The options of the client.
        user: The user; None before the client has shown credentials.
        messages_in: The number of messages from the client.
        end: The reason for which the owner ends the connection, after it has written the output; None for a living session.
        is_leaving: Whether the client hears nothing more. The owner ends its own half of the connection after the output.
        waiting_bytes: Bytes that the client has not taken.
    """

    def __init__(self, place: SessionPlace, info: ServerInfo, now: float, wake: Callable[[], None]) -> None:
        self.controls = 0
        self.options = ConnectOptions()
        self.user: NatsUser | None = None
        self.end: SessionEnd | None = None
        self.is_leaving = False
        self.waiting_bytes = 0
        self.messages_in = 0
        self._place = place
        self._opened_at = now
        self._delivered = 0  # messages of subscriptions that have ended
        self._info = info
        self._wake = wake
        self._parser = ProtocolParser(place.limits.payload_bytes)
        self._operations: list[Operation] = []  # behind a command that the session waits for
        self._is_waiting = False
        self._commands: list[Command] = []
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._subscriptions: dict[bytes, ClientSubscription] = {}
        self._shapes = PatternShapes()
        self._served = ClientServices()
        self._subjects: dict[bytes, NatsSubject] = {}
        self._has_unknown_pattern = False
        self._has_first_pong = False
        self._greeting_until = math.inf if place.users.is_open else now + GREETING_S
        self._heard_at = now
        self._pings = 0
        self._taken_at = math.inf  # the last time that the client took bytes, while bytes wait
        self.write(info.text())

    # -- for the owner

    @property
    def client_id(self) -> int:
        """The number of the client at this door."""
        return self._info.client_id

    @property
    def has_headers(self) -> bool:
        """Whether the client reads headers."""
        return self.options.headers

    @property
    def hears_itself(self) -> bool:
        """Whether the client gets its own messages."""
        return self.options.echo

    @property
    def subscriptions(self) -> int:
        """The number of subscriptions."""
        return len(self._subscriptions)

    def report(self, now: float) -> ClientReport:
        """Describe the client, for operators."""
        options, user = self.options, self.user
        return ClientReport(
            number=self.client_id,
            name=clip_text(options.name),
            user="" if user is None else clip_text(user.name),
            language=clip_text(options.lang),
            version=clip_text(options.version),
            address=clip_text(self._info.client_ip),
            subscriptions=len(self._subscriptions),
            messages_in=self.messages_in,
            messages_out=self._delivered + sum(each.delivered for each in self._subscriptions.values()),
            waiting_bytes=self.waiting_bytes,
            age_s=max(0.0, now - self._opened_at),
        )

    @property
    def deadline(self) -> float:
        """The time of the next call of `handle_timeout`."""
        if self.end is not None or self.is_leaving:
            return math.inf
        return min(self._greeting_until, self._heard_at + PING_S * (1 + self._pings), self._taken_at + STALLED_S)

    def receive(self, data: bytes, now: float, operations_max: int = sys.maxsize) -> int:
        """Take bytes of the client. The owner has executed all commands.

        Args:
            data: The bytes.
            now: The time (seconds).
            operations_max: The number of operations to execute at most.

        Returns:
            The number of last bytes that were not taken, because they begin further operations.
        """
        if self.end is not None:
            return 0
        self._heard_at, self._pings = now, 0
        self._operations += self._parser.receive(data, operations_max)
        self._proceed()
        return self._parser.unread_bytes

    def take_commands(self) -> list[Command]:
        """Return the commands for the owner, in order. More may follow behind a `PongWait` or a question about a password."""
        commands, self._commands = self._commands, []
        return commands

    def take_output(self) -> bytes:
        """Return the bytes to be written."""
        output, self._output = self._output, []
        self._output_bytes = 0
        return output[0] if len(output) == 1 else b"".join(output)

    def note_buffered(self, count: int, now: float) -> None:
        """Note the bytes in the buffer of the connection, after output was written and when time has passed."""
        before, after = self.waiting_bytes, count + self._output_bytes
        if not after:
            self._taken_at = math.inf
        elif after < before or self._taken_at == math.inf:
            self._taken_at = now
        if after != before:
            self.waiting_bytes = after
            self._place.note_waiting(after - before)

    def handle_timeout(self, now: float, *, is_reading: bool) -> None:
        """Ask a silent client, or end a session at its deadline.

        Args:
            now: The time (seconds).
            is_reading: Whether the owner reads from the client; else its silence means nothing.
        """
        if self.end is not None:
            return
        if not is_reading:
            self._heard_at, self._pings = now, 0
        if now >= self._greeting_until:
            self._refuse(ProtocolFault.AUTHENTICATION_TIMEOUT, SessionEnd.AUTHORIZATION)
        elif now >= self._taken_at + STALLED_S:
            self.finish(SessionEnd.SLOW)
        elif now >= self._heard_at + PING_S * (1 + self._pings):
            if self._pings == PINGS_MAX:
                self._refuse(ProtocolFault.STALE, SessionEnd.SILENT)
            else:
                self._pings += 1
                self.write(PING)

    def authenticate(self, user: NatsUser | None) -> None:
        """Continue after a question about a password.

        Args:
            user: The user in the question; None if the password is wrong.
        """
        self._is_waiting = False
        if self.end is None and self._admit(user):
            self._confirm()
            self._proceed()

    def pong(self) -> None:
        """Continue after a `PongWait`: answer the ``PING``."""
        self._is_waiting = False
        if self.end is None:
            self._answer_ping()
            self._proceed()

    def change_user(self, user: NatsUser | None) -> None:
        """Continue with other rights. Forbidden subscriptions end with an error.

        Args:
            user: The same user with new rights, or the user of a later ``CONNECT``; None for a removed user, which ends the
                session.
        """
        if user is None:
            self._refuse(ProtocolFault.AUTHORIZATION, SessionEnd.AUTHORIZATION)
            return
        self.user = user
        self._subjects.clear()
        routes = self._place.routes
        for subscription in list(self._subscriptions.values()):
            pattern, queue = subscription.pattern, subscription.queue
            if not user.may_subscribe(pattern, queue):
                routes.remove(subscription)
                self.refuse_subscription(subscription)
            elif user.hidden_topics(pattern) != subscription.hidden:
                other = ClientSubscription(self, subscription.sid, pattern, queue, user.hidden_topics(pattern))
                other.delivered, other.messages_max = subscription.delivered, subscription.messages_max
                self._subscriptions[subscription.sid] = other
                routes.add(other)  # first, so that the node keeps its subscription
                routes.remove(subscription)

    def announce(self, connect_urls: tuple[str, ...], *, is_closing: bool) -> None:
        """Tell the client about other doors: at once, or behind its first ``PONG``. Old clients are told nothing.

        Args:
            connect_urls: The addresses of all doors.
            is_closing: Whether this door is closing.
        """
        self._info = msgspec.structs.replace(self._info, connect_urls=connect_urls, ldm=is_closing)
        if self._has_first_pong:
            self._tell_info()

    def tell_no_responders(self, line: PubLine) -> None:
        """Tell the client that the subject of a request has no subscriber."""
        reply = read_subject(line.reply)
        if self.options.no_responders and isinstance(reply, NatsSubject):
            block = responders_block(line.subject)
            self._place.routes.answer(self, reply, Delivery(line.reply, b"", len(block), [block]))

    def refuse_messages(self, line: PubLine) -> None:
        """Tell the client about messages that were not published."""
        self.write(permission_error("Publish", line.subject))

    def finish(self, reason: SessionEnd) -> None:
        """End the session without a word. Its subscriptions end at once. Harmless if repeated."""
        if self.end is not None:
            return
        self.end = reason
        self._operations.clear()
        self._end_subscriptions()
        self._place.routes.inboxes.lose(self)
        self._place.note_waiting(-self.waiting_bytes)
        self.waiting_bytes = 0
        self._wake()

    def leave_groups(self) -> list[PatternKey]:
        """End the subscriptions with a queue group that has other clients at this door; return the other groups."""
        routes, alone = self._place.routes, []
        for subscription in list(self._subscriptions.values()):
            if not subscription.queue or subscription.pattern.kind is not SubjectKind.TOPIC:
                continue
            if routes.count_members(subscription.key, 2) == 1:
                alone.append(subscription.key)
            else:
                routes.remove(subscription)
                self.forget_subscription(subscription)
        return alone

    def leave(self) -> None:
        """End the subscriptions, because the door is closing. The messages of the client still count, up to its own end.

        A client writes until it has read the end of the connection. So a door that reads no more would lose messages.
        """
        if self.user is None:
            self.finish(SessionEnd.CLOSING)
        elif self.end is None and not self.is_leaving:
            self.is_leaving = True
            self._end_subscriptions()
            self._wake()

    # -- for subscriptions

    def write(self, data: bytes) -> None:
        """Write bytes for the client. A client with too many waiting bytes ends."""
        if self.end is not None or self.is_leaving:
            return
        output = self._output
        is_first = not output
        output.append(data)
        size = len(data)
        self._output_bytes += size
        self.waiting_bytes += size
        self._place.note_waiting(size)
        if self.waiting_bytes > self._place.limits.waiting_bytes:
            self.finish(SessionEnd.SLOW)
        elif is_first:
            self._wake()

    def refuse_subscription(self, subscription: ClientSubscription) -> None:
        """Tell the client about the end of a subscription."""
        self.forget_subscription(subscription)
        self.write(permission_error("Subscription", subscription.pattern.raw, subscription.queue))

    def forget_subscription(self, subscription: ClientSubscription) -> None:
        """Note the end of a subscription."""
        if self._subscriptions.pop(subscription.sid, None) is not None:
            self._shapes.remove(subscription.pattern.tokens)
            self._served.remove(subscription.pattern, subscription.queue)
            self._delivered += subscription.delivered

    # -- operations

    def _proceed(self) -> None:
        """Execute operations up to the end, or to a command before which no other operation takes effect."""
        operations, self._operations = self._operations, []
        for number, operation in enumerate(operations, 1):
            if type(operation) is PubRun and self.user is not None:  # most are
                self._publish(operation)
            else:
                self._execute(operation)
            if self.end is not None:
                return
            if self._is_waiting:
                self._operations = operations[number:]
                return

    def _execute(self, operation: Operation) -> None:
        self.controls += 1
        if isinstance(operation, ProtocolFault):
            self._refuse(operation, SessionEnd.PROTOCOL)
        elif isinstance(operation, ConnectLine):
            self._connect(operation)
        elif self.user is None and not self._admit(self._find_user(ClientCredentials())):
            return
        elif isinstance(operation, PubRun):
            self._publish(operation)
        elif isinstance(operation, SubLine):
            self._subscribe(operation)
        elif isinstance(operation, UnsubLine):
            self._unsubscribe(operation)
        elif operation is Signal.PING:
            if self._commands or self._has_unknown_pattern:
                self._has_unknown_pattern = False
                self._is_waiting = True
                self._commands.append(PongWait.PONG)
            else:
                self._answer_ping()

    def _connect(self, line: ConnectLine) -> None:
        options = read_options(line.options, self.options)
        if isinstance(options, ProtocolFault):
            self._refuse(options, SessionEnd.PROTOCOL)
            return
        self.options = options
        found = self._place.users.find(options.credentials, self._info.nonce)
        if isinstance(found, PasswordQuestion):
            self._is_waiting = True
            self._commands.append(found)
        elif self._admit(found):
            self._confirm()

    def _find_user(self, credentials: ClientCredentials) -> NatsUser | None:
        found = self._place.users.find(credentials, self._info.nonce)
        return found if isinstance(found, NatsUser) else None

    def _admit(self, user: NatsUser | None) -> bool:
        """Go on as a user; return whether the session lives."""
        if user is None:
            self._refuse(ProtocolFault.AUTHORIZATION, SessionEnd.AUTHORIZATION)
            return False
        if user is not self.user:
            if not self._place.admit(user, self.user):
                self._refuse(ProtocolFault.CONNECTIONS, SessionEnd.CONNECTIONS)
                return False
            self.change_user(user)
        self._greeting_until = math.inf
        return True

    def _publish(self, run: PubRun) -> None:
        line, contents = run.line, run.contents
        if line.header_bytes >= 0 and not self.options.headers:
            self._refuse(ProtocolFault.UNKNOWN_OPERATION, SessionEnd.PROTOCOL)
            return
        subject = self._subjects.get(line.subject)
        if subject is None:
            subject = self._check_subject(run)
            if subject is None:
                return
        routes = self._place.routes
        self.messages_in += len(contents)
        routes.messages_in += len(contents)
        routes.bytes_in += len(contents) * line.total_bytes
        if line.reply and not is_valid_subject(line.reply):
            self._refuse_each(permission_error("Publish", line.reply), len(contents))
            return
        if not self.options.verbose:
            self._send(subject, line, contents)
            return
        for content in contents:
            self._confirm()
            self._send(subject, line, [content])

    def _send(self, subject: NatsSubject, line: PubLine, contents: list[bytes]) -> None:
        routes = self._place.routes
        kind = subject.kind
        if kind is _TOPIC:
            count = routes.publish(self, subject, line, contents)
            self._commands.append(TopicMessages(subject.name, subject.tokens, line, contents, count > 0))
        elif kind is _INBOX:
            if not routes.reply(self, subject, Delivery(line.subject, line.reply, line.header_bytes, contents)):
                home = routes.inboxes.home_of(subject.key)
                self.controls += 0 if home else len(contents)
                self._commands.append(InboxMessages(subject, line, contents, home))
        elif line.reply:  # a door has no services of a server
            for _ in contents:
                self.tell_no_responders(line)

    def _check_subject(self, run: PubRun) -> NatsSubject | None:
        """Return the subject of messages; None after an error."""
        raw, count = run.line.subject, len(run.contents)
        subject = read_subject(raw)
        if subject is SubjectFault.INVALID and self.options.pedantic:
            error = fault_text(ProtocolFault.INVALID_PUBLISH_SUBJECT)
            self._refuse_each(error + OK if self.options.verbose else error, count)
            return None
        assert self.user is not None
        if isinstance(subject, SubjectFault) or not self.user.may_publish(subject):
            self._refuse_each(permission_error("Publish", raw), count)
            return None
        if subject.kind is _TOPIC:  # an inbox is used once
            if len(self._subjects) == REMEMBERED_SUBJECTS_MAX:
                self._subjects.clear()
            self._subjects[raw] = subject
        return subject

    def _refuse_each(self, error: bytes, count: int) -> None:
        """Write an error for each message."""
        self.controls += count
        self.write(error * count)

    def _end_subscriptions(self) -> None:
        self._place.routes.end(self._subscriptions.values())
        self._subscriptions.clear()
        self._shapes.clear()
        self._served.clear()

    def _subscribe(self, line: SubLine) -> None:
        raw, queue, sid = line
        if sid in self._subscriptions or self.is_leaving:
            self._confirm()
            return
        pattern = read_pattern(raw)
        if pattern is SubjectFault.INVALID:
            self.write(fault_text(ProtocolFault.INVALID_SUBJECT))
            return
        user, routes = self.user, self._place.routes
        assert user is not None
        if (
            isinstance(pattern, SubjectFault)
            or (queue and not is_valid_queue(queue))
            or not user.may_subscribe(pattern, queue)
            or len(self._subscriptions) >= self._place.limits.subscriptions_per_client
            or not self._shapes.has_room(pattern.tokens)
            or not self._served.has_room(pattern, queue)
            or not routes.has_room(pattern, queue)
        ):
            self.write(permission_error("Subscription", raw, queue))
            return
        subscription = ClientSubscription(self, sid, pattern, queue, user.hidden_topics(pattern))
        self._subscriptions[sid] = subscription
        self._shapes.add(pattern.tokens)
        self._served.add(pattern, queue)
        if routes.add(subscription):
            self._has_unknown_pattern = True
        self._confirm()

    def _unsubscribe(self, line: UnsubLine) -> None:
        subscription = self._subscriptions.get(line.sid)
        if subscription is not None:
            if line.messages_max > subscription.delivered:
                subscription.messages_max = line.messages_max
            else:
                self._place.routes.remove(subscription)
                self.forget_subscription(subscription)
                if subscription.pattern.kind is SubjectKind.INBOX:
                    self._commands.append(InboxEnd(subscription.pattern))
        self._confirm()

    def _confirm(self) -> None:
        if self.options.verbose:
            self.write(OK)

    def _answer_ping(self) -> None:
        self.write(PONG)
        if not self._has_first_pong:
            self._has_first_pong = True
            self._tell_info()

    def _tell_info(self) -> None:
        if self.options.protocol:
            self.write(self._info.text())

    def _refuse(self, fault: ProtocolFault, reason: SessionEnd) -> None:
        """End the session with an error."""
        self.write(fault_text(fault))
        self.finish(reason)
