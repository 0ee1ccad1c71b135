"""Requests of NATS clients to native clusters (docs/design.md 18.10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.headers import carry, take_key, write_block
from iris_py.doors.nats.subjects import NatsSubject, SubjectKind, read_subject
from iris_py.doors.rights import covers
from iris_py.errors import (
    CloudUnavailable,
    DecodeError,
    IrisError,
    MemberLost,
    NodeClosed,
    NoMembers,
    NotConnected,
    NotExported,
    Overloaded,
    RemoteError,
    RequestTimeout,
)
from iris_py.logs import EventLogger
from iris_py.servers.nats.client_clusters import ERROR_CODE, ERROR_TEXT, SERVICE_ERROR
from iris_py.servers.nats.native_clusters import NativeClusters

if TYPE_CHECKING:
    from iris_py.api.node import Node
    from iris_py.doors.nats.operations import PubLine
    from iris_py.doors.nats.routes import Routes
    from iris_py.doors.nats.session import NatsSession

__all__ = ["NativeRequests"]

logger = EventLogger("iris_py.servers")

#: Requests of one client under way; beyond it the client is told that the service is full. Too small: a fast client waits; too
#: large: one client busies all members.
REQUESTS_MAX: Final = 1024
#: Time for a reply (seconds); the client's own time is shorter. Too small: long work fails; too large: requests of clients that
#: have given up stay under way.
TIMEOUT_S: Final = 30.0
#: The errors for which a client is told that nobody responds.
NO_RESPONDERS: Final = (NoMembers, NotExported, CloudUnavailable, NotConnected)
#: The names and codes of other errors, as services of NATS tell them. Texts of Iris are not for clients; those of
#: handlers are for users with ``remote_errors``.
CODES: Final[tuple[tuple[type[IrisError], str], ...]] = (
    (RemoteError, "500"),
    (MemberLost, "502"),
    (Overloaded, "503"),
    (DecodeError, "500"),
    (IrisError, "500"),
)


class NativeRequests:
    """The requests of the clients of a door to native clusters.

    Args:
        node: The node of the door.
        routes: The subscriptions of the clients.

    Attributes:
        outcomes: Ended requests since the start, by outcome.
        natives: The clusters with native members.
    """

    def __init__(self, node: Node, routes: Routes) -> None:
        self.outcomes = Counter(dict.fromkeys(("reply", "no_responders", "timeout", "error"), 0))
        self.natives = NativeClusters(node)
        self._node = node
        self._routes = routes
        self._tasks: dict[NatsSession, dict[asyncio.Task[None], NatsSubject]] = {}  # with the subjects for replies

    def ask(
        self,
        session: NatsSession,
        cluster: str,
        line: PubLine,
        content: bytes,
        *,
        is_heard: bool = False,
        is_for_natives: bool = False,
    ) -> None:
        """Ask a cluster in place of a client, which gets the reply in its inbox.

        Args:
            session: The client.
            cluster: The cluster, with the name of the subject; ``name@cloud`` for a cluster of another cloud.
            line: The control line of the request.
            content: The header block and the payload.
            is_heard: Whether subscribers have the message, too, and may answer.
            is_for_natives: Whether to ask only a cluster with native members, once its members are known.
        """
        reply = read_subject(line.reply)
        if session.end is not None or not isinstance(reply, NatsSubject):
            return
        tasks = self._tasks.setdefault(session, {})
        if len(tasks) >= REQUESTS_MAX:
            if not is_for_natives:
                self._fail(session, line, Overloaded("the client has too many requests under way"))
            return
        task = asyncio.get_running_loop().create_task(
            self._ask(session, cluster, line, content, is_heard=is_heard, is_for_natives=is_for_natives)
        )
        tasks[task] = reply
        task.add_done_callback(tasks.pop)

    def cancel(self, session: NatsSession, pattern: NatsSubject) -> None:
        """Cancel the requests of a client whose replies nothing of it hears any more.

        Args:
            session: The client.
            pattern: The pattern of an ended subscription.
        """
        for task, reply in list(self._tasks.get(session, {}).items()):
            is_ended = reply.kind is SubjectKind.INBOX and covers(pattern.tokens, reply.tokens)
            if is_ended and not self._routes.inboxes.hears(session, reply.tokens):
                task.cancel()

    def forget(self, session: NatsSession) -> None:
        """Cancel the requests of a client that has gone."""
        for task in list(self._tasks.pop(session, ())):
            task.cancel()

    # --

    async def _ask(
        self,
        session: NatsSession,
        cluster: str,
        line: PubLine,
        content: bytes,
        *,
        is_heard: bool,
        is_for_natives: bool,
    ) -> None:
        key, header_bytes, content = take_key(content, line.header_bytes)
        carried = carry(content, header_bytes, b"")
        try:
            if is_for_natives and not await self.natives.wait(cluster):
                return
            reply = await self._node.request(
                cluster,
                carried.payload,
                headers=carried.headers or None,
                timeout=TIMEOUT_S,
                idempotent=key is not None,
                key=key or None,
            )
        except NodeClosed:
            return
        except NO_RESPONDERS:
            self.outcomes["no_responders"] += 1
            if not is_heard:
                session.tell_no_responders(line)
        except RequestTimeout as exc:  # the client's own time is over
            self.outcomes["timeout"] += 1
            logger.debug("door_request_late", "a request of a client got no reply in time: %s", exc)
        except IrisError as exc:
            self._fail(session, line, exc)
        else:
            self.outcomes["reply"] += 1
            self._answer(session, line, 0, reply)

    def _fail(self, session: NatsSession, line: PubLine, error: IrisError) -> None:
        self.outcomes["error"] += 1
        logger.debug("door_request_failed", "a request of a client failed: %s", error)
        text, code = next((kind.__name__, code) for kind, code in CODES if isinstance(error, kind))
        if isinstance(error, RemoteError):
            if error.type == SERVICE_ERROR:  # of a client of another door, or of this one
                code, _blank, text = error.text.partition(" ")
            elif session.user is not None and session.user.sees_remote_errors:
                text = f"{error.type}: {error.text}"
        block, _omitted = write_block({ERROR_TEXT: text, ERROR_CODE: code})
        self._answer(session, line, len(block), block)

    def _answer(self, session: NatsSession, line: PubLine, header_bytes: int, content: bytes) -> None:
        subject = read_subject(line.reply)
        if isinstance(subject, NatsSubject) and session.end is None:
            self._routes.answer(session, subject, Delivery(line.reply, b"", header_bytes, [content]))
