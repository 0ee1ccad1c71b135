"""Executes the commands of NATS sessions on a node (docs/design.md 18.6)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeGuard, cast

from iris_py.api.lifecycle import parts_of
from iris_py.doors.nats.headers import ASKED_HEADER, carry, carry_request, reply_header
from iris_py.doors.nats.session import InboxEnd, InboxMessages, PongWait, SessionEnd, TopicMessages
from iris_py.doors.nats.users import PasswordQuestion
from iris_py.errors import IrisError, NodeClosed, Overloaded
from iris_py.logs import EventLogger
from iris_py.servers.nats.password_verification import PasswordVerification
from iris_py.wire.headers import Headers, encode_headers
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_py.api.node import Node
    from iris_py.doors.nats.operations import PubLine
    from iris_py.doors.nats.session import Command, NatsSession
    from iris_py.patterns.topic.bodies import HeadedMessage
    from iris_py.servers.nats.inbox_cluster import InboxCluster
    from iris_py.servers.nats.native_requests import NativeRequests
    from iris_py.servers.nats.node_patterns import NodePatterns

__all__ = ["CommandExecution"]

logger = EventLogger("iris_py.servers")


class CommandExecution:
    """Executes commands: at once if possible, else in a task of the connection.

    Args:
        node: The node.
        patterns: The subscriptions of the node.
        inboxes: Sends replies for clients of other doors.
        requests: Asks native clusters for clients.
    """

    def __init__(self, node: Node, patterns: NodePatterns, inboxes: InboxCluster, requests: NativeRequests) -> None:
        self._node = node
        self._topics = parts_of(node).topics
        self._patterns = patterns
        self._inboxes = inboxes
        self._requests = requests
        self._passwords = PasswordVerification()

    def try_execute_all(self, session: NatsSession, commands: list[Command]) -> int:
        """Execute commands at once as far as possible; return the number of executed commands. The next command has to wait."""
        done, count = 0, len(commands)
        while done < count:
            command, end = commands[done], done + 1
            if type(command) is InboxMessages:
                while end < count and type(commands[end]) is InboxMessages:
                    end += 1
                done += self._inboxes.try_send(cast("list[InboxMessages]", commands[done:end]), session.client_id)
                if done < end:
                    break
            elif not self.try_execute(session, command):
                break
            elif type(command) is TopicMessages and command.line.reply and end < count:
                done = self._publish_behind(session, commands, done)
            else:
                done = end
        return done

    def try_execute(self, session: NatsSession, command: Command) -> bool:
        """Execute a command at once; return False if it has to wait, without the messages already published."""
        if isinstance(command, TopicMessages):
            return self._try_publish(session, command)
        if isinstance(command, InboxMessages):
            return self._inboxes.try_send([command], session.client_id) == 1
        if isinstance(command, InboxEnd):
            self._requests.cancel(session, command.pattern)
            return True
        if isinstance(command, PongWait):
            if not self._patterns.are_known(session):
                return False
            session.pong()
            return True
        return self._passwords.try_verify(session, command)

    async def execute(self, session: NatsSession, command: Command, address: str) -> None:
        """Execute a command that has to wait.

        Args:
            session: The session.
            command: The command.
            address: The address of the client.

        Raises:
            NodeClosed: The node was closed.
        """
        if isinstance(command, TopicMessages):
            await self._publish(session, command)
        elif isinstance(command, PongWait):
            await self._patterns.wait_until_known(session)
            session.pong()
        elif isinstance(command, InboxMessages):
            await self._inboxes.send(command, session.client_id)
        elif isinstance(command, PasswordQuestion):
            await self._passwords.verify(session, command, address)

    def close(self) -> None:
        """End the threads that verify passwords. Harmless if repeated."""
        self._passwords.close()

    # --

    def _try_publish(self, session: NatsSession, command: TopicMessages) -> bool:
        topic, line, contents = command.topic, command.line, command.contents
        if line.reply and CLOUD_MARK in topic:
            for content in contents:
                self._requests.ask(session, topic, line, content)
            return True
        if self._patterns.is_opening_group(topic):
            return False
        if not line.reply and line.header_bytes <= 0:
            return CLOUD_MARK not in topic and self._try_publish_run(session, command)
        if len(contents) > 1:
            return False
        has_native = bool(line.reply) and self._requests.natives.find(topic)
        count: int | None = 0
        if not self._topics.publish_unheard(topic, contents[0]):
            try:
                payload, headers = _carry(line, contents[0], has_native=has_native)
                count = self._topics.try_publish(topic, payload, headers, None)
            except (Overloaded, NodeClosed):
                return False
            except IrisError as exc:
                self._refuse(session, line, exc)
                return True
        if line.reply:
            self._ask(session, command, contents[0], count, has_native=has_native)
        return True

    def _publish_behind(self, session: NatsSession, commands: list[Command], at: int) -> int:
        """Publish the requests behind an executed request, while the node's batch has room.

        Args:
            session: The client.
            commands: The commands.
            at: The place of the executed request.

        Returns:
            The place behind the last published request.
        """
        first = commands[at]
        at += 1
        if not _is_plain_request(first):
            return at
        at = self._publish_unheard(session, commands, at, first.topic)
        unknown: set[str] = set()
        added, count = self._topics.add_headed(self._requests_from(commands, at, unknown))
        if unknown or not count:
            for command in cast("list[TopicMessages]", commands[at : at + added]):
                has_native = None if command.topic in unknown else False
                self._ask(session, command, command.contents[0], count, has_native=has_native)
        return at + added

    def _publish_unheard(self, session: NatsSession, commands: list[Command], at: int, topic: str) -> int:
        """Publish the requests from a place on to a topic without receivers; return the place behind the last."""
        has_native: bool | None = True  # until the first one
        for command in islice(commands, at, None):
            if not _is_plain_request(command) or command.topic != topic:
                break
            if has_native and (has_native := self._requests.natives.find(topic)):
                break
            if not self._topics.publish_unheard(topic, command.contents[0]):
                break
            self._ask(session, command, command.contents[0], 0, has_native=has_native)
            at += 1
        return at

    def _requests_from(self, commands: list[Command], at: int, unknown: set[str]) -> Iterator[HeadedMessage]:
        """Return the requests from a place on, as the network carries them, up to the first that goes another way.

        Args:
            commands: The commands.
            at: The place.
            unknown: Gets the topics whose clusters may have native members.
        """
        topic = ""
        for command in islice(commands, at, None):
            if type(command) is not TopicMessages:
                return
            line, contents = command.line, command.contents
            if not line.reply or line.header_bytes > 0 or len(contents) != 1:  # as `_is_plain_request`, without the call
                return
            if command.topic != topic:
                topic = command.topic
                if CLOUD_MARK in topic:
                    return
                has_native = self._requests.natives.find(topic)
                if has_native or self._patterns.is_opening_group(topic):
                    return
                if has_native is None:
                    unknown.add(topic)
            yield topic, command.tokens, carry_request(line.reply, contents[0])

    def _try_publish_run(self, session: NatsSession, command: TopicMessages) -> bool:
        """Publish as many messages as have room; the command keeps the others."""
        contents = command.contents
        try:
            count = self._topics.try_publish_equal(command.topic, contents)
        except NodeClosed:
            return False
        except IrisError as exc:
            self._refuse(session, command.line, exc)
            return True
        del contents[:count]
        return not contents

    async def _publish(self, session: NatsSession, command: TopicMessages) -> None:
        topic, line, contents = command.topic, command.line, command.contents
        try:
            if self._patterns.is_opening_group(topic):  # its members have subscribed before, and get the message
                await self._patterns.wait_for_groups()
            if not line.reply and line.header_bytes <= 0:
                await self._node.publish_many(topic, contents)
            else:
                for content in contents:
                    has_native = bool(line.reply) and self._requests.natives.find(topic)
                    payload, headers = _carry(line, content, has_native=has_native)
                    count = await self._node.publish(topic, payload, headers=headers)
                    if line.reply:
                        self._ask(session, command, content, count, has_native=has_native)
        except NodeClosed:
            session.finish(SessionEnd.CLOSING)
            raise
        except IrisError as exc:
            self._refuse(session, line, exc)

    def _ask(
        self, session: NatsSession, command: TopicMessages, content: bytes, count: int | None, *, has_native: bool | None
    ) -> None:
        """Ask the cluster with the name of a published request, unless subscribers of its subject serve it alone.

        Args:
            session: The client.
            command: The request.
            content: The header block and the payload.
            count: The number of nodes with the message; None if the node holds it until their number is known.
            has_native: Whether the cluster has native members; None if unknown.
        """
        topic, line, is_heard = command.topic, command.line, command.is_heard
        if has_native:
            self._requests.ask(session, topic, line, content, is_heard=is_heard or count != 0)
        elif not is_heard and count == 0:
            self._requests.ask(session, topic, line, content)
        elif has_native is None and count is not None and not self._topics.has_group(topic):
            self._requests.ask(session, topic, line, content, is_heard=True, is_for_natives=True)

    def _refuse(self, session: NatsSession, line: PubLine, error: IrisError) -> None:
        """Tell the client that the node does not publish its messages."""
        logger.debug("door_publication_failed", "the node does not publish for a client: %s", error)
        session.refuse_messages(line)


def _is_plain_request(command: Command) -> TypeGuard[TopicMessages]:
    """Return whether a command is a single request in this cloud, without a header block."""
    if type(command) is not TopicMessages:
        return False
    line = command.line
    return bool(line.reply) and line.header_bytes <= 0 and len(command.contents) == 1 and CLOUD_MARK not in command.topic


def _carry(line: PubLine, content: bytes, *, has_native: bool | None) -> tuple[bytes, Headers]:
    """Return payload and headers of a message in the network; with a mark if a member of a cluster answers the request."""
    if line.header_bytes <= 0 and not has_native:  # the usual request
        return content, Headers(reply_header(line.reply))
    carried = carry(content, line.header_bytes, line.reply)
    if has_native:
        carried.headers[ASKED_HEADER] = True
    return carried.payload, encode_headers(carried.headers)
