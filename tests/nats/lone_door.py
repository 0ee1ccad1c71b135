"""A NATS door without a network: the node has no peers, and knows each subscription at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from iris_py.doors.nats.clients import NatsClients
from iris_py.doors.nats.encoder import PROTOCOL, VERSION, Delivery, ServerInfo
from iris_py.doors.nats.session import InboxMessages, NatsSession, PongWait, SessionEnd, TopicMessages
from iris_py.doors.nats.settings import NatsLimits
from iris_py.doors.nats.users import NatsUser, PasswordQuestion, UserDirectory
from iris_py.doors.rights import covers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_py.doors.nats.subscription import PatternKey

INFO: Final = re.compile(rb"INFO \{[^\r\n]*\} \r\n")


class DoorConnection:
    """A client's connection to the door."""

    def __init__(self, door: LoneDoor, address: str = "127.0.0.1") -> None:
        self.door = door
        self.written = b""
        self.session = door.clients.open(address, "nonce", door.now, lambda: None)

    def send(self, data: bytes) -> None:
        """Send bytes, and let the door execute all that follows."""
        self.session.receive(data, self.door.now)
        self.door.execute(self.session)

    def read(self) -> bytes:
        """Take all that was written, with ``<INFO>`` in place of the object."""
        self.written += self.session.take_output()
        self.session.note_buffered(0, self.door.now)
        written, self.written = self.written, b""
        return INFO.sub(b"<INFO>", written)

    def ask(self, data: bytes) -> bytes:
        """Send bytes, and return the answer."""
        self.send(data)
        return self.read()

    @property
    def end(self) -> SessionEnd | None:
        """The reason for which the door has ended the connection."""
        return self.session.end


class LoneDoor:
    """A door, with its node.

    Attributes:
        lost: Messages to inboxes that nobody has.
        published: Messages for the network.
    """

    def __init__(
        self, users: Mapping[str, NatsUser] | None = None, no_user: str = "", limits: NatsLimits | None = None
    ) -> None:
        info = ServerInfo(
            server_id="N1",
            server_name="iris",
            version=VERSION,
            proto=PROTOCOL,
            go="",
            host="127.0.0.1",
            port=4222,
            headers=True,
            max_payload=(limits or NatsLimits()).payload_bytes,
            client_id=0,
            client_ip="",
        )
        self.now = 0.0
        self.clients = NatsClients(info, UserDirectory(users or {}, no_user), limits or NatsLimits())
        self.lost = 0
        self.published: list[TopicMessages] = []
        self._subscribed: set[PatternKey] = set()

    def connect(self, options: bytes = b"") -> DoorConnection:
        """Return a client that has read `INFO` and sent ``CONNECT`` with some options."""
        connection = DoorConnection(self)
        assert connection.read() == b"<INFO>"
        if options:
            assert connection.ask(b"CONNECT %b\r\n" % options) == b""
        return connection

    def execute(self, session: NatsSession) -> None:
        """Execute the commands of a session."""
        while commands := session.take_commands():
            self._subscribe()
            for command in commands:
                if isinstance(command, TopicMessages):
                    self._publish(session, command)
                elif isinstance(command, PasswordQuestion):
                    is_right = command.password_hash.verify(command.password)
                    session.authenticate(command.user if is_right else None)
                elif command is PongWait.PONG:
                    session.pong()
                elif isinstance(command, InboxMessages):
                    self.lost += 1
        self._subscribe()

    def close(self, connection: DoorConnection) -> None:
        """End a connection, as its client does."""
        self.clients.close(connection.session)
        self._subscribe()

    def hear(self, topic: str, delivery: Delivery, matches: Callable[[str, str], bool]) -> None:
        """Give messages of another node to the clients.

        Args:
            topic: The topic.
            delivery: The messages.
            matches: Returns whether a pattern matches a topic.
        """
        for key in list(self._subscribed):
            if matches(key.pattern, topic):
                self.clients.routes.receive(key, tuple(topic.split(".")), delivery)

    def _subscribe(self) -> None:
        changed, self.clients.routes.changed = self.clients.routes.changed, {}
        for key, is_wanted in changed.items():
            (self._subscribed.add if is_wanted else self._subscribed.discard)(key)

    def _publish(self, session: NatsSession, command: TopicMessages) -> None:
        self.published.append(command)
        topic = tuple(command.topic.split("."))
        groups = [key for key in self._subscribed if key.group and covers(tuple(key.pattern.split(".")), topic)]
        line = command.line
        for content in command.contents:
            delivery = Delivery(line.subject, line.reply, line.header_bytes, [content])
            for key in groups:
                self.clients.routes.receive(key, topic, delivery)
            if line.reply and not command.is_heard and not groups:
                session.tell_no_responders(line)
