"""Executes the commands of NATS sessions on a node (docs/design.md 18.6)."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Final

from iris_py.api.lifecycle import parts_of
from iris_py.doors.limits import RateLimits
from iris_py.doors.nats.headers import carry
from iris_py.doors.nats.passwords import KnownPasswords
from iris_py.doors.nats.session import InboxEnd, InboxMessages, PongWait, SessionEnd, TopicMessages
from iris_py.doors.nats.users import PasswordQuestion
from iris_py.errors import IrisError, NodeClosed, Overloaded
from iris_py.logs import EventLogger
from iris_py.wire.names import CLOUD_MARK

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.doors.nats.operations import PubLine
    from iris_py.doors.nats.session import Command, NatsSession
    from iris_py.doors.nats.users import NatsUser
    from iris_py.servers.nats.inbox_cluster import InboxCluster
    from iris_py.servers.nats.native_requests import NativeRequests
    from iris_py.servers.nats.node_patterns import NodePatterns

__all__ = ["CommandExecution"]

logger = EventLogger("iris_py.servers")

#: Passwords verified at a time, in threads. Too small: clients that reconnect together wait; too large: they take all
#: processors.
VERIFICATIONS_MAX: Final = 4
#: Wrong passwords of one address, a second and at once after a pause; beyond it each answer waits for `FAILURE_S` (seconds).
#: Too small: a program with an old password locks out its neighbours; too large: passwords are guessed.
FAILURES_PER_S: Final = 10 / 60
FAILURES_BURST: Final = 10
FAILURE_S: Final = 1.0
_KEY_BYTES: Final = 32


class CommandExecution:
    """Executes commands: at once if possible, else in a task of the connection.

    Args:
        node: The node.
        patterns: The subscriptions of the node.
        inboxes: Sends replies for clients of other doors.
        requests: Asks native clusters for clients.

    Attributes:
        published: Messages published for clients.
    """

    def __init__(self, node: Node, patterns: NodePatterns, inboxes: InboxCluster, requests: NativeRequests) -> None:
        self.published = 0
        self._node = node
        self._topics = parts_of(node).topics
        self._patterns = patterns
        self._inboxes = inboxes
        self._requests = requests
        self._known = KnownPasswords(secrets.token_bytes(_KEY_BYTES))
        self._verifications = asyncio.Semaphore(VERIFICATIONS_MAX)
        self._failures = RateLimits(FAILURES_PER_S, FAILURES_BURST)

    def try_execute(self, session: NatsSession, command: Command) -> bool:
        """Execute a command at once; return False if it has to wait. Messages already published have left it then."""
        if isinstance(command, TopicMessages):
            return self._try_publish(session, command)
        if isinstance(command, InboxMessages):
            return self._inboxes.try_send(command)
        if isinstance(command, InboxEnd):
            self._requests.cancel(session, command.pattern)
            return True
        if isinstance(command, PongWait):
            if not self._patterns.are_known:
                return False
            session.pong()
            return True
        if not self._known.has(command.password_hash, command.password, self._now()):
            return False
        session.authenticate(command.user)
        return True

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
            await self._patterns.wait_until_known()
            session.pong()
        elif isinstance(command, InboxMessages):
            await self._inboxes.send(command, address)
        elif isinstance(command, PasswordQuestion):
            session.authenticate(await self._verify(command, address))

    # --

    def _try_publish(self, session: NatsSession, command: TopicMessages) -> bool:
        topic, line, contents, is_heard = command.topic, command.line, command.contents, command.is_heard
        if line.reply and CLOUD_MARK in topic:
            for content in contents:
                self._requests.ask(session, topic, line, content)
            return True
        if self._patterns.is_opening_group(topic):
            return False
        if len(contents) > 1:
            return self._try_publish_run(session, command)
        payload, headers = contents[0], None
        if line.reply or line.header_bytes > 0:
            carried = carry(payload, line.header_bytes, line.reply)
            payload, headers = carried.payload, carried.headers
        try:
            count = self._topics.try_publish(topic, payload, headers, None)
        except (Overloaded, NodeClosed):
            return False
        except IrisError as exc:
            self._refuse(session, line, exc)
            return True
        self.published += 1
        if line.reply and not is_heard and count == 0:
            self._requests.ask(session, topic, line, contents[0])
        return True

    def _try_publish_run(self, session: NatsSession, command: TopicMessages) -> bool:
        """Publish as many messages as have room; the command keeps the others."""
        topic, line, contents = command.topic, command.line, command.contents
        if line.reply or line.header_bytes > 0 or CLOUD_MARK in topic:
            return False
        try:
            count = self._topics.try_publish_equal(topic, contents)
        except NodeClosed:
            return False
        except IrisError as exc:
            self._refuse(session, line, exc)
            return True
        self.published += count
        del contents[:count]
        return not contents

    async def _publish(self, session: NatsSession, command: TopicMessages) -> None:
        topic, line, contents, is_heard = command.topic, command.line, command.contents, command.is_heard
        try:
            if self._patterns.is_opening_group(topic):  # its members have subscribed before, and get the message
                await self._patterns.wait_until_known()
            if not line.reply and line.header_bytes <= 0:
                await self._node.publish_many(topic, contents)
            else:
                for content in contents:
                    carried = carry(content, line.header_bytes, line.reply)
                    count = await self._node.publish(topic, carried.payload, headers=carried.headers)
                    if line.reply and not is_heard and not count:
                        self._requests.ask(session, topic, line, content)
        except NodeClosed:
            session.finish(SessionEnd.CLOSING)
            raise
        except IrisError as exc:
            self._refuse(session, line, exc)
            return
        self.published += len(contents)

    def _refuse(self, session: NatsSession, line: PubLine, error: IrisError) -> None:
        """Tell the client that the node does not publish its messages."""
        logger.debug("door_publication_failed", "the node does not publish for a client: %s", error)
        session.refuse_messages(line)

    async def _verify(self, question: PasswordQuestion, address: str) -> NatsUser | None:
        """Verify a password; return the user, None if the password is wrong."""
        async with self._verifications:
            is_right = await asyncio.to_thread(question.password_hash.verify, question.password)
        if question.user is not None and is_right:
            self._known.add(question.password_hash, question.password, self._now())
            return question.user
        if self._failures.take(address, self._now()):
            await asyncio.sleep(FAILURE_S)
        return None

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
